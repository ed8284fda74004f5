//! Watches: order, completeness, bounds, and waking.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::FutureExt;
use tokio::{task::JoinSet, time::timeout};

use super::{
    super::{Change, Event, EventKind, Expect, Lagged, Limits, SnapshotError, Store, Watch, Write},
    body, create, delete, gadgets, key, put, size_of, update, widgets,
};

async fn take(watch: &mut Watch, count: usize) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watch.next().await.unwrap().events);
    }
    events
}

#[tokio::test(start_paused = true)]
async fn watch_sees_its_collection_only_and_in_order() {
    let store = Store::in_memory(Limits::default());
    let mut watch = store.watch(&widgets(), 0).unwrap();
    let a = create(&store, "a", 1).await.unwrap();
    store
        .commit(put(&gadgets(), "g", Expect::Absent, body("g", 1)))
        .await
        .unwrap();
    let a2 = update(&store, "a", a.revision, 2).await.unwrap();
    store.commit(delete(&widgets(), "a", a2.revision)).await.unwrap();
    let batch = watch.next().await.unwrap();
    let seen: Vec<_> = batch
        .events
        .iter()
        .map(|event| (event.revision, event.kind))
        .collect();
    assert_eq!(
        seen,
        [
            (1, EventKind::Added),
            (3, EventKind::Modified),
            (4, EventKind::Deleted)
        ]
    );
    assert_eq!(batch.through, 4);
    assert_eq!(batch.events[2].object.revision, 4);
    assert_eq!(batch.events[2].previous.as_ref().map(size_of), Some(2));
    assert!(timeout(Duration::from_mins(1), watch.next()).await.is_err());
}

#[tokio::test]
async fn watch_resumes_behind_the_revision_it_names() {
    let store = Store::in_memory(Limits::default());
    for name in ["a", "b", "c"] {
        create(&store, name, 1).await.unwrap();
    }
    let mut watch = store.watch(&widgets(), 2).unwrap();
    assert_eq!(take(&mut watch, 1).await[0].revision, 3);
    assert_eq!(
        store.watch(&widgets(), 4).unwrap_err(),
        SnapshotError::Future { current: 3 }
    );
}

#[tokio::test]
async fn idle_watch_moves_up_to_the_newest_revision() {
    let store = Store::in_memory(Limits::default());
    let mut idle = store.watch(&gadgets(), 0).unwrap();
    let mut behind = store.watch(&widgets(), 0).unwrap();
    create(&store, "a", 1).await.unwrap();
    create(&store, "b", 1).await.unwrap();
    assert_eq!((idle.through(), idle.progress(), idle.through()), (0, 2, 2));
    // An event is waiting, so a bookmark at the newest revision would hide it from a client that resumes there.
    assert_eq!(behind.progress(), 0);
    take(&mut behind, 2).await;
    assert_eq!(behind.progress(), 2);
}

#[tokio::test]
async fn slow_watch_is_told_that_it_lagged_and_the_history_stays_bounded() {
    let limits = Limits {
        history_events_per_collection: 10,
        ..Limits::default()
    };
    let store = Store::in_memory(limits);
    let mut slow = store.watch(&widgets(), 0).unwrap();
    let mut quick = store.watch(&widgets(), 0).unwrap();
    let mut other = store.watch(&gadgets(), 0).unwrap();
    for round in 0..100 {
        create(&store, &format!("w{round}"), round).await.unwrap();
        assert_eq!(take(&mut quick, 1).await.len(), 1);
    }
    assert_eq!(store.stats().history_events, 10);
    assert_eq!(slow.next().await.unwrap_err(), Lagged { at: 0, oldest: 90 });
    assert_eq!(slow.next().await.unwrap_err(), Lagged { at: 0, oldest: 90 });
    assert_eq!(slow.progress(), 0);
    assert_eq!(store.stats().watches_dropped, 1);
    assert_eq!(
        store.watch(&widgets(), 89).unwrap_err(),
        SnapshotError::Expired { oldest: 90 }
    );
    assert_eq!(
        store.snapshot(&widgets(), Some(89)).unwrap_err(),
        SnapshotError::Expired { oldest: 90 }
    );
    assert_eq!(store.snapshot(&widgets(), Some(90)).unwrap().len(), 90);
    assert_eq!(
        take(&mut store.watch(&widgets(), 90).unwrap(), 10).await.len(),
        10
    );
    // A quiet collection keeps its own place however busy the others are.
    assert_eq!(other.progress(), 100);
}

#[tokio::test]
async fn history_is_bounded_in_bytes_too_but_keeps_the_newest_event() {
    let limits = Limits {
        history_bytes_per_collection: 10_000,
        ..Limits::default()
    };
    let store = Store::in_memory(limits);
    let mut watch = store.watch(&widgets(), 0).unwrap();
    for round in 0..50 {
        let mut value = body("x", round);
        value["data"] = "x".repeat(1000).into();
        store
            .commit(put(&widgets(), &format!("w{round}"), Expect::Absent, value))
            .await
            .unwrap();
    }
    assert!(store.stats().history_bytes <= 10_000);
    assert!(watch.next().await.is_err());

    let mut watch = store.watch(&widgets(), store.revision()).unwrap();
    let mut huge = body("huge", 1);
    huge["data"] = "x".repeat(20_000).into();
    store
        .commit(put(&widgets(), "huge", Expect::Absent, huge))
        .await
        .unwrap();
    assert_eq!(take(&mut watch, 1).await.len(), 1);
    assert_eq!(store.stats().history_events, 1);
}

#[tokio::test]
async fn long_backlog_arrives_in_bounded_batches() {
    let store = Store::in_memory(Limits::default());
    for round in 0..1300 {
        create(&store, &format!("w{round}"), round).await.unwrap();
    }
    store
        .commit(put(&gadgets(), "g", Expect::Absent, body("g", 1)))
        .await
        .unwrap();
    let mut watch = store.watch(&widgets(), 0).unwrap();
    let mut shape = Vec::new();
    while watch.through() < store.revision() {
        let batch = watch.next().await.unwrap();
        shape.push((batch.events.len(), batch.through));
    }
    assert_eq!(shape, [(512, 512), (1024 - 512, 1024), (1300 - 1024, 1301)]);
}

#[tokio::test]
async fn follower_sees_every_collection_from_now_on() {
    let store = Store::in_memory(Limits {
        follow_events: 4,
        ..Limits::default()
    });
    create(&store, "before", 1).await.unwrap();
    let mut follow = store.follow();
    create(&store, "a", 1).await.unwrap();
    store
        .commit(put(&gadgets(), "g", Expect::Absent, body("g", 1)))
        .await
        .unwrap();
    let batch = follow.next().await.unwrap();
    let seen: Vec<_> = batch
        .events
        .iter()
        .map(|event| (event.collection.clone(), event.key.clone()))
        .collect();
    assert_eq!(seen, [(widgets(), key("a")), (gadgets(), key("g"))]);
    for round in 0..10 {
        create(&store, &format!("w{round}"), round).await.unwrap();
    }
    assert!(follow.next().await.is_err());
    let mut again = store.follow();
    create(&store, "z", 1).await.unwrap();
    assert_eq!(again.next().await.unwrap().events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_revision_ends_when_it_is_published() {
    let store = Store::in_memory(Limits::default());
    store.wait_for(0).await;
    let waiting = store.wait_for(1);
    assert!(timeout(Duration::from_secs(3), waiting).await.is_err());
    let ((), created) = tokio::join!(store.wait_for(1), create(&store, "a", 1));
    assert_eq!(created.unwrap().revision, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_pending_next_loses_nothing() {
    let store = Store::in_memory(Limits::default());
    let mut watch = store.watch(&widgets(), 0).unwrap();
    for round in 1..=20 {
        assert!(timeout(Duration::from_millis(1), watch.next()).await.is_err());
        let created = create(&store, &format!("w{round}"), round).await.unwrap();
        assert_eq!(take(&mut watch, 1).await[0].revision, created.revision);
    }
}

/// Runs the same tangle of tasks twice on a paused runtime with one thread and compares everything that happened.
#[test]
fn same_tasks_give_the_same_history_in_memory() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = Store::in_memory(Limits::default());
            let mut watch = store.watch(&widgets(), 0).unwrap();
            let mut tasks = JoinSet::new();
            for task in 0..8_u64 {
                let store = store.clone();
                tasks.spawn(async move {
                    for round in 0..20_u64 {
                        create(&store, &format!("{task}-{round}"), 1).await.unwrap();
                        tokio::time::sleep(Duration::from_millis((task * 7 + round * 13) % 5)).await;
                    }
                });
            }
            let events = take(&mut watch, 160).await;
            tasks.join_all().await;
            events
                .iter()
                .map(|event| (event.revision, event.key.name.to_string()))
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(run(), run());
}

/// Many writers against many watches on several threads: whatever the timing, every watch sees every event once, in
/// order, and none sleeps through the last one.
async fn hammer(store: Store, writers: u64, rounds: u64) {
    let total = usize::try_from(writers * rounds).unwrap();
    let mut watches = JoinSet::new();
    for reader in 0..8_usize {
        let mut watch = store.watch(&widgets(), 0).unwrap();
        watches.spawn(async move {
            let mut seen = Vec::with_capacity(total);
            while seen.len() < total {
                // Half of the watches give up waiting again and again, as a select loop does.
                if reader % 2 == 0 {
                    tokio::select! {
                        biased;
                        () = tokio::task::yield_now() => {}
                        batch = watch.next() => seen.extend(batch.unwrap().events.iter().map(|event| event.revision)),
                    }
                } else {
                    seen.extend(watch.next().await.unwrap().events.iter().map(|event| event.revision));
                }
            }
            seen
        });
    }
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..rounds {
                create(&store, &format!("{writer}-{round}"), 1).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let expected: Vec<u64> = (1..=total as u64).collect();
    for seen in watches.join_all().await {
        assert!(
            seen == expected,
            "events missing, twice or out of order: {seen:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watch_sees_every_event_once_in_memory() {
    hammer(Store::in_memory(Limits::default()), 8, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_watch_sees_every_event_once_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("objects.redb"), Limits::default()).unwrap();
    hammer(store, 16, 40).await;
}

/// One event at a time: the next is written the moment the watch has seen the last, which is when the watch is about to
/// sleep. A wake-up that is lost there is not made up for by a later event, so the run would stand still.
#[test]
fn watch_that_is_about_to_sleep_is_woken() {
    const ROUNDS: u64 = 20_000;
    let store = Store::in_memory(Limits::default());
    let mut watch = store.watch(&widgets(), 0).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let watcher = {
        let seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            while seen.load(Ordering::Relaxed) < ROUNDS {
                let batch = futures::executor::block_on(watch.next()).unwrap();
                seen.store(batch.through, Ordering::Relaxed);
                // As long as a commit takes, more or less, so that the next event arrives at any point of falling asleep.
                for _ in 0..batch.through * 7919 % 1500 {
                    std::hint::spin_loop();
                }
            }
        })
    };
    for round in 1..=ROUNDS {
        let change = Change::Put(body("a", 1));
        let expect = if round == 1 {
            Expect::Absent
        } else {
            Expect::Revision(round - 1)
        };
        let write = Write {
            collection: widgets(),
            key: key("a"),
            expect,
            change,
        };
        store.commit(write).now_or_never().unwrap().unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        while seen.load(Ordering::Relaxed) < round {
            assert!(Instant::now() < patience, "the watch slept through event {round}");
            std::thread::yield_now();
        }
    }
    watcher.join().unwrap();
}
