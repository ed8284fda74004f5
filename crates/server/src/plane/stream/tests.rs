//! Streams in virtual time, with a world that the test fills and rights that it takes away.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use http::{Request, Response, StatusCode};
use jangar_engine::settings::{Namespaces, Settings};
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::*;
use crate::{
    access::{Connection, Gatekeeper, Token},
    metrics::Metrics,
    plane::{About, Parts, STREAMS_MAX},
    world::World,
};

/// As many as there have to be at once.
const STREAMS: usize = 1_000;

type Tellings = BoxStream<'static, Result<Told, Refusal>>;

/// A control plane on a world that nothing fills, whose API server knows one caller, and their rights.
struct Stage {
    plane: Arc<ControlPlane>,
    may: Arc<AtomicBool>,
}

impl Stage {
    fn new() -> Self {
        let may = Arc::new(AtomicBool::new(true));
        let metrics = Arc::new(Metrics::default());
        let client = api_server(Arc::clone(&may));
        let plane = ControlPlane::new(Parts {
            world: Arc::new(World::new(Namespaces::All, "e".to_owned(), Arc::clone(&metrics))),
            gatekeeper: Gatekeeper::new(
                Connection::new(client.clone()),
                &client,
                None,
                Arc::clone(&metrics),
            ),
            own: client,
            settings: Arc::new(Settings::default()),
            about: About {
                version: String::new(),
                build_sha: String::new(),
                build_time: String::new(),
            },
            history: None,
            metrics,
            clock: Arc::new(|| Timestamp::UNIX_EPOCH),
            grpc_address: None,
            certificate: None,
        });
        Self { plane, may }
    }

    async fn open(&self) -> Result<Tellings, Refusal> {
        self.open_for(Filter::default(), None).await
    }

    async fn open_for(&self, filter: Filter, last_id: Option<String>) -> Result<Tellings, Refusal> {
        let identity = self.plane.gatekeeper.identify(&Token::new("of-ada")).await?;
        let caller = Caller {
            identity,
            source: String::new(),
        };
        let subscription = Subscription {
            kinds: vec![Kind::AgentRun],
            filter,
            name: None,
            last_id,
            snapshot: true,
        };
        let changes = self.plane.changes(caller, subscription, Protocol::Http).await?;
        Ok(changes.boxed())
    }

    fn apply(&self, name: &str, version: usize) {
        self.apply_in(name, version, "Pending");
    }

    fn apply_in(&self, name: &str, version: usize, phase: &str) {
        let object = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
                         "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}},
            "status": {"phase": phase},
        }));
        let object = Object::read(Kind::AgentRun, object.expect("an object"), true);
        self.plane.world.apply(object);
    }
}

/// Answers only who somebody is and what they may do.
fn api_server(may: Arc<AtomicBool>) -> Client {
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let allowed = may.load(Ordering::SeqCst);
        async move {
            let answer = if request.uri().path().ends_with("/selfsubjectreviews") {
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                       "status": {"userInfo": {"username": "ada"}}})
            } else {
                json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {},
                       "status": {"allowed": allowed}})
            };
            let mut response = Response::new(axum::body::Body::from(answer.to_string()));
            *response.status_mut() = StatusCode::CREATED;
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(service, "a")
}

async fn told(stream: &mut Tellings) -> Told {
    stream.next().await.expect("it goes on").expect("no refusal")
}

fn version(told: &Told) -> Option<&str> {
    match told {
        Told::Object { object, .. } => Some(&object.version),
        Told::Reset { .. } | Told::Synced { .. } | Told::Heartbeat { .. } => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_says_in_its_interval_that_it_is_there() {
    let stage = Stage::new();
    let mut stream = stage.open().await.expect("a stream");
    assert!(matches!(told(&mut stream).await, Told::Reset { cut: false }));
    assert!(matches!(told(&mut stream).await, Told::Synced { .. }));
    for _ in 0..3 {
        let before = Instant::now();
        assert!(matches!(told(&mut stream).await, Told::Heartbeat { .. }));
        assert_eq!(before.elapsed().as_secs(), HEARTBEAT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_ends_when_its_caller_may_no_longer_look() {
    let stage = Stage::new();
    let mut stream = stage.open().await.expect("a stream");
    told(&mut stream).await;
    told(&mut stream).await;
    stage.may.store(false, Ordering::SeqCst);
    let before = Instant::now();
    let refusal = stream
        .next()
        .await
        .expect("a last word")
        .expect_err("they may not");
    assert_eq!(refusal.trouble, Trouble::NotFound);
    assert_eq!(before.elapsed().as_secs(), HEARTBEAT.as_secs());
    assert!(stream.next().await.is_none());
    drop(stream);
    assert_eq!(stage.plane.metrics.streams_open(Protocol::Http), 0);
}

#[tokio::test(start_paused = true)]
async fn a_busy_stream_ends_as_soon() {
    let stage = Stage::new();
    let mut stream = stage.open().await.expect("a stream");
    told(&mut stream).await;
    told(&mut stream).await;
    stage.may.store(false, Ordering::SeqCst);
    let before = Instant::now();
    for change in 1.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.apply("busy", change);
        if stream.next().await.expect("a word").is_err() {
            break;
        }
    }
    assert_eq!(before.elapsed().as_secs(), HEARTBEAT.as_secs());
}

#[tokio::test]
async fn streams_end_when_the_program_does() {
    let stage = Stage::new();
    let mut stream = stage.open().await.expect("a stream");
    told(&mut stream).await;
    told(&mut stream).await;
    let (end, ()) = tokio::join!(stream.next(), async { stage.plane.close() });
    assert!(end.is_none());
}

#[tokio::test]
async fn a_thousand_streams_that_nobody_reads_keep_nothing_that_is_forgotten() {
    let stage = Stage::new();
    stage.apply("run", 0);
    let first = {
        let first = stage.plane.world.get(Kind::AgentRun, "a", "run");
        Arc::downgrade(&first.expect("a run"))
    };
    let opened = (0..STREAMS).map(|_| stage.open().map(|stream| stream.expect("a stream")));
    let mut streams: Vec<Tellings> = futures::future::join_all(opened).await;
    // Each has begun to read, and stops there.
    for stream in &mut streams {
        assert!(matches!(told(stream).await, Told::Reset { .. }));
        assert_eq!(version(&told(stream).await), Some("0"));
        assert!(matches!(told(stream).await, Told::Synced { .. }));
    }
    assert!(first.upgrade().is_some());
    let mut changes = 0;
    while first.upgrade().is_some() {
        changes += 1;
        assert!(
            changes < 100_000,
            "the streams keep what everybody else has forgotten"
        );
        stage.apply("run", changes);
    }
    // One more, so that what comes next for them is forgotten as well.
    changes += 1;
    stage.apply("run", changes);
    let latest = changes.to_string();
    for stream in &mut streams {
        assert!(
            matches!(told(stream).await, Told::Reset { .. }),
            "it was away for too long"
        );
        assert_eq!(version(&told(stream).await), Some(latest.as_str()));
        assert!(matches!(told(stream).await, Told::Synced { .. }));
        assert!(stream.next().now_or_never().is_none(), "that is all there is");
    }
    let behind = stage.plane.metrics.losses_counted(Loss::Stream);
    assert_eq!(behind, STREAMS as u64);
}

#[tokio::test]
async fn what_is_there_is_told_piece_by_piece_up_to_a_bound() {
    let stage = Stage::new();
    for number in 0..=SNAPSHOT_MAX {
        stage.apply(&format!("run-{number}"), number);
    }
    let mut stream = stage.open().await.expect("a stream");
    assert!(matches!(told(&mut stream).await, Told::Reset { cut: true }));
    let mut versions = BTreeSet::new();
    for _ in 0..SNAPSHOT_MAX {
        let told = told(&mut stream).await;
        versions.insert(version(&told).expect("an object").to_owned());
    }
    assert_eq!(versions.len(), SNAPSHOT_MAX, "none is told twice");
    assert!(matches!(told(&mut stream).await, Told::Synced { .. }));
    stage.apply("run-0", 9_999);
    assert_eq!(version(&told(&mut stream).await), Some("9999"));
}

#[tokio::test]
async fn one_stream_too_many_is_told_to_come_back() {
    let stage = Stage::new();
    let opened = (0..STREAMS_MAX).map(|_| stage.open().map(|stream| stream.expect("a stream")));
    let mut streams: Vec<Tellings> = futures::future::join_all(opened).await;
    let refusal = stage.open().await.err().expect("there is no place");
    assert_eq!(refusal.trouble, Trouble::Unavailable);
    assert!(refusal.retry_after.is_some());
    streams.pop();
    assert!(stage.open().await.is_ok());
}

#[tokio::test]
async fn who_is_cut_off_while_it_is_told_what_is_there_is_told_all_of_it_again() {
    let stage = Stage::new();
    for number in 0..3 {
        stage.apply(&format!("run-{number}"), number);
    }
    let mut stream = stage.open().await.expect("a stream");
    assert!(matches!(told(&mut stream).await, Told::Reset { .. }));
    let Told::Object { id, .. } = told(&mut stream).await else {
        panic!("one of them")
    };
    assert_eq!(id, None, "there is nothing to come back with");
    for _ in 0..2 {
        assert!(version(&told(&mut stream).await).is_some());
    }
    let Told::Synced { id } = told(&mut stream).await else {
        panic!("that was all")
    };
    stage.apply("run-0", 9);
    let mut again = stage
        .open_for(Filter::default(), Some(id))
        .await
        .expect("a stream");
    assert_eq!(version(&told(&mut again).await), Some("9"));
}

#[tokio::test(start_paused = true)]
async fn a_place_to_come_back_to_moves_on_with_changes_that_are_not_wanted() {
    let stage = Stage::new();
    let failed = Filter {
        phase: Some("Failed".to_owned()),
        ..Filter::default()
    };
    let mut stream = stage.open_for(failed, None).await.expect("a stream");
    told(&mut stream).await;
    let Told::Synced { id: first } = told(&mut stream).await else {
        panic!("there is nothing")
    };
    stage.apply("run", 1);
    let Told::Heartbeat { id: later } = told(&mut stream).await else {
        panic!("it is not wanted")
    };
    assert_ne!(first, later);
}

#[tokio::test]
async fn what_leaves_the_filter_is_gone_for_who_looks_through_it_and_what_enters_is_new() {
    let stage = Stage::new();
    let pending = Filter {
        phase: Some("Pending".to_owned()),
        ..Filter::default()
    };
    let mut stream = stage.open_for(pending, None).await.expect("a stream");
    told(&mut stream).await;
    told(&mut stream).await;
    for (version, phase) in [(1, "Pending"), (2, "Running"), (3, "Failed"), (4, "Pending")] {
        stage.apply_in("run", version, phase);
    }
    for (expected, seen) in [(Action::Added, "1"), (Action::Deleted, "1"), (Action::Added, "4")] {
        let Told::Object { action, object, .. } = told(&mut stream).await else {
            panic!("a change")
        };
        assert_eq!((action, object.version.as_str()), (expected, seen));
    }
}

#[tokio::test]
async fn what_is_listed_again_meanwhile_is_told_all_the_same() {
    let stage = Stage::new();
    for number in 0..3 {
        stage.apply(&format!("run-{number}"), number);
    }
    let mut stream = stage.open().await.expect("a stream");
    assert!(matches!(told(&mut stream).await, Told::Reset { .. }));
    // The watch lists the same versions anew.
    for number in 0..3 {
        stage.apply(&format!("run-{number}"), number);
    }
    for _ in 0..3 {
        assert!(version(&told(&mut stream).await).is_some());
    }
}
