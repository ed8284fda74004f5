//! What becomes of runs on their way into history.

use jangar_api::tools::ToolRun;
use serde_json::json;

use super::*;

/// Fails as long as it is told to, and remembers what it was given.
#[derive(Debug, Default)]
struct Shelf {
    down: Mutex<bool>,
    /// A run that it fails for, and one that it will not have.
    fails: Option<&'static str>,
    refuses: Option<&'static str>,
    takes: Duration,
    given: Arc<Mutex<Vec<String>>>,
    /// What they had before.
    before: Arc<Mutex<Vec<Value>>>,
}

impl Archive for Shelf {
    fn record(&self, run: Value, earlier: Vec<Value>) -> BoxFuture<'static, Result<(), NotWritten>> {
        let name = run["metadata"]["name"].as_str();
        let down = *self.down.lock().unwrap() || (name.is_some() && name == self.fails);
        let refused = name.is_some() && name == self.refuses;
        let (given, before) = (Arc::clone(&self.given), Arc::clone(&self.before));
        let takes = self.takes;
        Box::pin(async move {
            sleep(takes).await;
            if down {
                return Err(NotWritten::Away("nobody answers".to_owned()));
            }
            if refused {
                return Err(NotWritten::Refused("this is no run".to_owned()));
            }
            assert_eq!(run["kind"], "ToolRun");
            let metadata = &run["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap().to_owned();
            given
                .lock()
                .unwrap()
                .push(format!("{}@{}", text("name"), text("resourceVersion")));
            before.lock().unwrap().extend(earlier);
            Ok(())
        })
    }

    fn log_bytes(&self) -> usize {
        1 << 20
    }

    fn has_log(&self, _: &Uid, _: &str, _: u32) -> BoxFuture<'static, Result<bool, String>> {
        Box::pin(async { Ok(true) })
    }

    fn record_log(&self, _: Tail) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

fn run(name: &str, version: &str) -> Arc<ToolRun> {
    let run = json!({
        "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": "ToolRun",
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": version},
        "spec": {"toolRef": {"name": "lint"}},
        "status": {"phase": "Succeeded"},
    });
    Arc::new(serde_json::from_value(run).unwrap())
}

async fn idle(archiver: &Archiver) {
    archiver
        .state()
        .wait_for(|state| state.waiting == 0)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_is_written_once_for_each_of_its_versions() {
    let shelf = Arc::new(Shelf::default());
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    assert!(!archiver.has(run("a", "1").as_ref()));
    for version in ["1", "1", "2"] {
        archiver.offer(&run("a", version));
        idle(&archiver).await;
    }
    assert_eq!(*shelf.given.lock().unwrap(), ["a@1", "a@2"]);
    assert!(archiver.has(run("a", "2").as_ref()) && !archiver.has(run("a", "1").as_ref()));
}

fn blocked(version: &str, status: &str, reason: &str) -> ToolRun {
    let mut run = run("a", version).as_ref().clone();
    let condition = json!({"type": "Blocked", "status": status, "reason": reason, "message": "in line",
                           "lastTransitionTime": "2026-03-01T12:00:00Z"});
    run.status.as_mut().unwrap().common.conditions = vec![serde_json::from_value(condition).unwrap()];
    run
}

#[tokio::test(start_paused = true)]
async fn what_a_run_waited_for_is_written_with_its_end_and_once() {
    let shelf = Arc::new(Shelf::default());
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    let (waits, goes) = (
        blocked("1", "True", "QueueLimit"),
        blocked("2", "False", "Admitted"),
    );
    archiver.changed(&waits, &goes);
    archiver.changed(&goes, &goes);
    for version in ["3", "4"] {
        archiver.offer(&Arc::new(blocked(version, "False", "Admitted")));
        idle(&archiver).await;
    }
    let before = shelf.before.lock().unwrap();
    let reasons: Vec<&str> = before
        .iter()
        .map(|before| before["reason"].as_str().unwrap())
        .collect();
    assert_eq!(reasons, ["QueueLimit"]);
    assert_eq!(before[0]["lastTransitionTime"], "2026-03-01T12:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_waits_and_is_told_until_it_is() {
    let shelf = Arc::new(Shelf::default());
    *shelf.down.lock().unwrap() = true;
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    archiver.offer(&run("a", "1"));
    archiver.offer(&run("b", "1"));
    let mut state = archiver.state();
    state.wait_for(|state| state.trouble.is_some()).await.unwrap();
    assert_eq!(state.borrow().waiting, 2);
    assert_eq!(archiver.trouble().as_deref(), Some("nobody answers"));
    *shelf.down.lock().unwrap() = false;
    idle(&archiver).await;
    assert_eq!(archiver.trouble(), None);
    let mut given = shelf.given.lock().unwrap().clone();
    given.sort();
    assert_eq!(given, ["a@1", "b@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_line_is_no_outage() {
    let shelf = Arc::new(Shelf {
        takes: Duration::from_millis(100),
        ..Shelf::default()
    });
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    for number in 0..200 {
        archiver.offer(&run(&format!("run-{number}"), "1"));
    }
    let last = Uid("run-199".to_owned());
    let waits = || archiver.waits(&last).expect("it waits");
    sleep(Duration::from_secs(10)).await;
    assert!(waits() < Duration::from_secs(1), "{:?}", waits());
    *shelf.down.lock().unwrap() = true;
    sleep(Duration::from_secs(10)).await;
    assert!(waits() > Duration::from_secs(9), "{:?}", waits());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_tried_in_vain_has_waited_although_others_are_written() {
    let shelf = Arc::new(Shelf {
        fails: Some("bad"),
        ..Shelf::default()
    });
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    archiver.offer(&run("bad", "1"));
    for number in 0..10 {
        sleep(Duration::from_secs(1)).await;
        archiver.offer(&run(&format!("run-{number}"), "1"));
    }
    let waits = archiver.waits(&Uid("bad".to_owned())).expect("it waits");
    assert!(waits >= Duration::from_secs(10), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_given_up_is_written_when_history_is_back() {
    let shelf = Arc::new(Shelf::default());
    *shelf.down.lock().unwrap() = true;
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    archiver.offer(&run("a", "1"));
    archiver.given_up(&run("a", "2"));
    archiver.went(run("a", "2").as_ref());
    *shelf.down.lock().unwrap() = false;
    idle(&archiver).await;
    assert_eq!(*shelf.given.lock().unwrap(), ["a@2"]);
}

#[tokio::test(start_paused = true)]
async fn one_run_that_cannot_be_written_holds_up_no_other() {
    let shelf = Arc::new(Shelf {
        fails: Some("bad"),
        ..Shelf::default()
    });
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    archiver.offer(&run("bad", "1"));
    // For so long that it is tried once a minute.
    sleep(Duration::from_mins(10)).await;
    for name in ["a", "b"] {
        archiver.offer(&run(name, "1"));
        let before = Instant::now();
        let mut state = archiver.state();
        state.wait_for(|state| state.waiting == 1).await.unwrap();
        assert!(before.elapsed() <= BACKOFF.first, "{:?}", before.elapsed());
    }
    assert_eq!(*shelf.given.lock().unwrap(), ["a@1", "b@1"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_history_will_not_have_is_not_waited_for_and_is_no_outage() {
    let shelf = Arc::new(Shelf {
        refuses: Some("bad"),
        ..Shelf::default()
    });
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    for _ in 0..2 {
        archiver.offer(&run("bad", "1"));
        idle(&archiver).await;
    }
    let uid = Uid("bad".to_owned());
    assert!(archiver.is_done_with(&uid) && archiver.trouble().is_none());
    assert_eq!(archiver.refusal(&uid).as_deref(), Some("this is no run"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_is_known_whatever_changes_after_it() {
    let archiver = Arc::new(Archiver::new(Arc::new(Shelf::default()) as Arc<dyn Archive>));
    archiver.offer(&run("a", "1"));
    idle(&archiver).await;
    assert!(archiver.is_done_with(&Uid("a".to_owned())));
    assert!(!archiver.has(run("a", "2").as_ref()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_went_before_it_was_written_is_written_as_it_was_last() {
    let shelf = Arc::new(Shelf::default());
    let archiver = Arc::new(Archiver::new(Arc::clone(&shelf) as Arc<dyn Archive>));
    archiver.went(run("a", "3").as_ref());
    idle(&archiver).await;
    archiver.went(run("a", "4").as_ref());
    idle(&archiver).await;
    assert_eq!(*shelf.given.lock().unwrap(), ["a@3"]);
}
