//! Kills a process under write load, again and again, and checks that every write it acknowledged is there.
//!
//! The process is this test program itself, told by an environment variable to be the victim. It prints a line for each
//! write that the store acknowledged; the parent reads the lines, kills it after a seeded number of them, reads what was
//! still in the pipe, and opens the store.

#![expect(clippy::unwrap_used, reason = "helpers of a test may fail it")]

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Write as _, stdout},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use kubelite::store::{Change, Collection, Expect, Key, Limits, Object, Store, Write};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const ROUNDS: u64 = 100;
const TASKS: u64 = 24;
const SEED: u64 = 0x6b75_6265_6c69_7465;
const DIRECTORY: &str = "KUBELITE_TEST_CRASH_DIRECTORY";
const ROUND: &str = "KUBELITE_TEST_CRASH_ROUND";
/// More than one task can write in one round.
const ROUND_STEPS: u64 = 1_000_000;

/// What a task's object holds: the number of the write that made it, or nothing.
type Held = Option<u64>;

fn widgets() -> Collection {
    Collection::new("example.com", "widgets")
}

fn key(task: u64) -> Key {
    Key::new("default", &format!("task-{task}"))
}

/// The object of a write. Its length depends on the number, so that pages split and merge.
fn body(task: u64, number: u64) -> Value {
    let text = format!("{task}:{number};").repeat(usize::try_from(number * 7 % 300).unwrap_or_default());
    json!({
        "kind": "Widget",
        "metadata": {"name": format!("task-{task}"), "namespace": "default", "uid": format!("{task}-{number}")},
        "spec": {"number": number, "text": text}
    })
}

/// What write `number` makes of an object: every fifth removes it if it is there.
fn after(held: Held, number: u64) -> Held {
    if held.is_some() && number % 5 == 4 {
        None
    } else {
        Some(number)
    }
}

fn number_of(object: &Object) -> u64 {
    object.value()["spec"]["number"].as_u64().unwrap()
}

/// The victim. Does nothing unless the parent asks for it.
#[test]
fn victim() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    let round: u64 = env::var(ROUND).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let store = Store::open(&database(Path::new(&directory)), Limits::default()).unwrap();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(write_until_killed(store.clone(), task, round));
        }
        tasks.join_all().await;
    });
}

async fn write_until_killed(store: Store, task: u64, round: u64) {
    let mut current = store.get(&widgets(), &key(task));
    let mut held = current.as_ref().map(number_of);
    for number in round * ROUND_STEPS..(round + 1) * ROUND_STEPS {
        held = after(held, number);
        let expect = current
            .as_ref()
            .map_or(Expect::Absent, |object| Expect::Revision(object.revision));
        let change = match held {
            Some(number) => Change::Put(body(task, number)),
            None => Change::Delete(body(task, number)),
        };
        let write = Write {
            collection: widgets(),
            key: key(task),
            expect,
            change,
        };
        let object = store.commit(write).await.unwrap();
        // One call per line, so that a line is never torn. Fails when the parent is gone, and so ends the victim.
        let line = format!("ack {task} {number} {}\n", object.revision);
        stdout().write_all(line.as_bytes()).unwrap();
        current = held.is_some().then_some(object);
    }
}

fn database(directory: &Path) -> PathBuf {
    directory.join("objects.redb")
}

#[derive(Debug)]
struct Acknowledged {
    task: u64,
    number: u64,
    revision: u64,
}

fn parse(line: &str) -> Option<Acknowledged> {
    // The test harness may print the name of the test on the same line first.
    let (_, line) = line.split_once("ack ")?;
    let mut words = line.split(' ').map(str::parse);
    let mut next = || words.next()?.ok();
    Some(Acknowledged {
        task: next()?,
        number: next()?,
        revision: next()?,
    })
}

/// Starts the victim, kills it after `kill_after` acknowledged writes, and returns all that it acknowledged.
fn run_victim(directory: &Path, round: u64, kill_after: usize) -> Vec<Acknowledged> {
    let mut victim: Child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output: ChildStdout = victim.stdout.take().unwrap();
    let mut lines = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| parse(&line));
    let mut acknowledged: Vec<_> = lines.by_ref().take(kill_after).collect();
    victim.kill().unwrap();
    let ended = victim.wait().unwrap();
    assert!(
        !ended.success() && ended.code().is_none(),
        "round {round}: the victim ended by itself: {ended}"
    );
    acknowledged.extend(lines);
    acknowledged
}

/// A small generator (SplitMix64), so that a failure can be repeated from the seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What the parent knows about one task's object when a round begins.
#[derive(Clone, Debug, Default)]
struct Known {
    held: Held,
    revision: u64,
}

/// Compares the store with what was acknowledged. The write in flight may have happened or not.
fn check_task(store: &Store, round: u64, task: u64, known: &mut Known, acknowledged: &[Acknowledged]) {
    let own: Vec<_> = acknowledged.iter().filter(|ack| ack.task == task).collect();
    let mut next = round * ROUND_STEPS;
    for ack in &own {
        assert_eq!(ack.number, next, "round {round}, task {task}");
        *known = Known {
            held: after(known.held, ack.number),
            revision: ack.revision,
        };
        next += 1;
    }
    let found = store.get(&widgets(), &key(task));
    let held = found.as_ref().map(number_of);
    let in_flight = after(known.held, next);
    assert!(
        held == known.held || held == in_flight,
        "round {round}, task {task}: found {held:?}, acknowledged {:?}, in flight {in_flight:?}",
        known.held
    );
    if let Some(object) = &found {
        let number = number_of(object);
        let mut expected = body(task, number);
        if held == known.held {
            assert_eq!(object.revision, known.revision, "round {round}, task {task}");
        }
        expected["metadata"]["resourceVersion"] = json!(object.revision.to_string());
        assert_eq!(object.value(), expected, "round {round}, task {task}");
    }
    *known = Known {
        held,
        revision: found.map_or(known.revision, |object| object.revision),
    };
}

#[test]
fn every_acknowledged_write_survives_being_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut dice = Dice(SEED);
    let mut known = vec![Known::default(); usize::try_from(TASKS).unwrap()];
    let mut newest = 0;
    let mut total = 0;
    for round in 0..ROUNDS {
        // Now and then it is killed while it opens the store.
        let kill_after = if dice.below(10) == 0 {
            0
        } else {
            1 + dice.below(200)
        };
        let acknowledged = run_victim(directory.path(), round, usize::try_from(kill_after).unwrap());
        assert!(
            acknowledged.len() as u64 >= kill_after,
            "round {round}, seed {SEED:#x}"
        );
        total += acknowledged.len();
        let revisions: BTreeSet<u64> = acknowledged.iter().map(|ack| ack.revision).collect();
        assert_eq!(
            revisions.len(),
            acknowledged.len(),
            "round {round}: a revision was given twice"
        );
        assert!(
            revisions.first().is_none_or(|first| *first > newest),
            "round {round}: revisions went back"
        );

        let store = Store::open(&database(directory.path()), Limits::default()).unwrap();
        assert!(
            store.revision() >= revisions.last().copied().unwrap_or(newest),
            "round {round}: revisions went back"
        );
        for (task, known) in (0..TASKS).zip(&mut known) {
            check_task(&store, round, task, known, &acknowledged);
        }
        newest = store.revision();
    }
    assert!(
        total as u64 > ROUNDS * 20,
        "only {total} writes were acknowledged in all rounds"
    );
}
