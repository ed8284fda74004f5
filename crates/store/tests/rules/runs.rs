//! Runs: written, read, listed and searched.

use jangar_api::phase::RunPhase;
use jangar_store::{Kept, Namespaces, PageRequest, RunFilter, RunKind, RunSummary, Store, WITHHELD};
use serde_json::json;

use super::{Place, now, object, record, time, write};

fn page(limit: u32, cursor: Option<String>) -> PageRequest {
    PageRequest { limit, cursor }
}

fn names(runs: &[RunSummary]) -> Vec<&str> {
    runs.iter().map(|run| run.name.as_str()).collect()
}

/// The names of the runs that a filter takes, newest first.
async fn taken(store: &Store, filter: RunFilter) -> Vec<String> {
    let page = store.runs(&filter, &PageRequest::default()).await.unwrap();
    page.items.into_iter().map(|run| run.name).collect()
}

pub(crate) async fn a_run_is_read_back_with_all_that_stands_beside_it(place: Place) {
    let store = place.store().await;
    let mut object = object("team", 1);
    object["kind"] = json!("OrchestrationRun");
    object["spec"] = json!({"orchestrationRef": {"name": "release"}});
    object["status"]["stepStatuses"] = json!([
        {"name": "build", "kind": "AgentRun", "phase": "Failed", "attempt": 2, "reason": "ChildFailed",
         "finishedAt": "2026-03-01T10:00:05Z", "resourceRef": {"name": "run-1-build-2", "uid": "c-1"}},
        {"name": "ship", "kind": "ApprovalGate", "phase": "Skipped", "causedBy": "build"},
    ]);
    object["status"]["approvals"] = json!([
        {"step": "ship", "decision": "Denied", "by": "ada", "groups": ["web"], "at": "2026-03-01T10:00:04Z",
         "comment": "not today", "digest": "d-1"},
    ]);
    object["status"]["cancelReceipt"] = json!([
        {"step": "build", "resourceRef": {"kind": "AgentRun", "name": "run-1-build-2"}, "result": "Cancelled",
         "askedAt": "2026-03-01T10:00:06Z"},
    ]);
    object["status"]["artifacts"] = json!([{"name": "patch", "url": "https://example.com/patch"}]);
    assert_eq!(
        store.record(&record(&object), now()).await.unwrap(),
        Kept::Written
    );

    let page = store.page("team-1").await.unwrap().expect("it was written");
    let summary = &page.run.summary;
    assert_eq!(
        (summary.kind, summary.subject.as_str()),
        (RunKind::OrchestrationRun, "release")
    );
    assert_eq!(
        (&summary.phase, summary.reason.as_deref()),
        (&RunPhase::Failed, Some("AgentFailed"))
    );
    assert_eq!((summary.archived_at, summary.cluster.as_str()), (now(), "here"));
    assert_eq!(summary.labels["team"], "web");
    assert_eq!(
        page.run.document["status"]["stepStatuses"][1]["causedBy"],
        "build"
    );
    assert!(!page.run.document_cut);
    let steps: Vec<_> = page
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.attempt))
        .collect();
    assert_eq!(steps, [("build", Some(2)), ("ship", None)]);
    assert_eq!(page.steps[0].child_uid.as_deref(), Some("c-1"));
    assert_eq!(page.steps[1].caused_by.as_deref(), Some("build"));
    assert_eq!(page.approvals[0].groups, ["web"]);
    assert_eq!(
        page.cancel_receipts[0].resource.as_deref(),
        Some("AgentRun/run-1-build-2")
    );
    assert_eq!(
        page.artifacts[0].url.as_deref(),
        Some("https://example.com/patch")
    );
    let changes: Vec<_> = page
        .transitions
        .iter()
        .map(|change| (change.what.as_str(), change.became.as_str()))
        .collect();
    assert!(
        changes.contains(&("Failed", "True")) && changes.contains(&("Phase", "Failed")),
        "{changes:?}"
    );
    assert!(page.transitions.is_sorted_by_key(|change| change.at));
    assert_eq!(store.page("nobody").await.unwrap(), None);
}

pub(crate) async fn what_a_run_waited_for_is_among_its_transitions(place: Place) {
    let store = place.store().await;
    let earlier = json!([
        {"type": "Blocked", "status": "True", "reason": "QueueLimit", "message": "in line, PASSWORD=hunter2",
         "lastTransitionTime": "2026-02-01T00:00:00Z"},
        {"type": "Warning", "status": "True", "reason": "NoTime", "message": ""},
    ]);
    let run = record(&object("team", 1)).with_earlier(earlier.as_array().unwrap());
    store.record(&run, now()).await.unwrap();
    let page = store.page("team-1").await.unwrap().unwrap();
    let first = &page.transitions[0];
    assert_eq!(
        (first.what.as_str(), first.became.as_str(), first.reason.as_str()),
        ("Blocked", "True", "QueueLimit")
    );
    assert!(!first.message.contains("hunter2"), "{}", first.message);
    assert!(
        !page
            .transitions
            .iter()
            .any(|transition| transition.what == "Warning")
    );
}

pub(crate) async fn an_older_state_never_takes_the_place_of_a_newer_one(place: Place) {
    let store = place.store().await;
    let ended = object("team", 1);
    let mut earlier = ended.clone();
    earlier["metadata"]["resourceVersion"] = json!("99");
    earlier["status"]["conditions"][0]["reason"] = json!("Earlier");
    let mut running = ended.clone();
    running["metadata"]["resourceVersion"] = json!("200");
    running["status"] = json!({"phase": "Running"});
    let mut later = ended.clone();
    later["metadata"]["resourceVersion"] = json!("101");
    later["status"]["conditions"][0]["reason"] = json!("Later");

    let kept = async |object| store.record(&record(object), now()).await.unwrap();
    assert_eq!(kept(&ended).await, Kept::Written);
    assert_eq!(kept(&ended).await, Kept::Already);
    assert_eq!(kept(&earlier).await, Kept::Newer);
    assert_eq!(
        kept(&running).await,
        Kept::Newer,
        "an end is not taken back by a greater version"
    );
    let run = store.run("team-1").await.unwrap().unwrap();
    assert_eq!(run.summary.reason.as_deref(), Some("AgentFailed"));
    assert_eq!(kept(&later).await, Kept::Written);
    let run = store.run("team-1").await.unwrap().unwrap();
    assert_eq!(run.summary.reason.as_deref(), Some("Later"));
    assert_eq!(run.document["metadata"]["resourceVersion"], "101");
}

pub(crate) async fn many_who_write_one_run_at_once_leave_one(place: Place) {
    let store = place.store().await;
    let writers: Vec<_> = (1..=20)
        .map(|version| {
            let store = store.clone();
            let mut object = object("team", 1);
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            tokio::spawn(async move { store.record(&record(&object), now()).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    assert_eq!(place.meddle("SELECT COUNT(*) FROM jangar_runs").await, Some(1));
    let run = store.run("team-1").await.unwrap().unwrap();
    assert_eq!(
        run.document["metadata"]["resourceVersion"], "20",
        "the newest is left, whoever came last"
    );
}

pub(crate) async fn several_runs_are_written_together_or_not_at_all(place: Place) {
    let store = place.store().await;
    write(&store, "team", 2..3).await;
    let records: Vec<_> = (1..=3).map(|number| record(&object("team", number))).collect();
    let kept = store.record_all(&records, now()).await.unwrap();
    assert_eq!(kept, [Kept::Written, Kept::Already, Kept::Written]);
    assert_eq!(
        taken(&store, RunFilter::default()).await,
        ["run-3", "run-2", "run-1"]
    );
}

pub(crate) async fn two_runs_with_one_place_both_have_one(place: Place) {
    let store = place.store().await;
    write(&store, "team", 1..2).await;
    let first = place.meddle("SELECT place FROM jangar_runs").await.unwrap();
    // Somebody else's run has that place.
    place.meddle("DELETE FROM jangar_documents").await;
    place.meddle("DELETE FROM jangar_transitions").await;
    place
        .meddle("UPDATE jangar_runs SET uid = 'stranger', name = 'stranger'")
        .await;
    write(&store, "team", 1..2).await;
    assert_eq!(
        place
            .meddle("SELECT place FROM jangar_runs WHERE uid = 'team-1'")
            .await,
        Some(first + 1)
    );
    let runs = store
        .runs(&RunFilter::default(), &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(names(&runs.items), ["run-1", "stranger"]);
}

pub(crate) async fn a_name_that_was_used_again_means_the_latest(place: Place) {
    let store = place.store().await;
    for (number, kind) in [(1, "AgentRun"), (3, "AgentRun"), (2, "ToolRun")] {
        let mut object = object("team", number);
        object["metadata"]["name"] = json!("nightly");
        object["kind"] = json!(kind);
        store.record(&record(&object), now()).await.unwrap();
    }
    let uid = async |kind| {
        let run = store.run_named(kind, "team", "nightly").await.unwrap();
        run.map(|run| run.summary.uid)
    };
    assert_eq!(uid(None).await.as_deref(), Some("team-3"));
    assert_eq!(uid(Some(RunKind::ToolRun)).await.as_deref(), Some("team-2"));
    assert_eq!(uid(Some(RunKind::OrchestrationRun)).await, None);
    assert_eq!(store.run_named(None, "other", "nightly").await.unwrap(), None);
}

pub(crate) async fn pages_have_every_run_once_while_others_are_added(place: Place) {
    let store = place.store().await;
    write(&store, "team", 0..25).await;
    let (mut seen, mut cursor) = (Vec::new(), None);
    for turn in 0.. {
        let runs = store
            .runs(&RunFilter::default(), &page(10, cursor))
            .await
            .unwrap();
        seen.extend(runs.items.into_iter().map(|run| run.name));
        // A newer run that comes in between neither repeats nor hides one.
        write(&store, "team", 100 + turn..101 + turn).await;
        cursor = runs.next;
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..25).rev().map(|number| format!("run-{number}")).collect();
    assert_eq!(seen, expected);
}

pub(crate) async fn a_cursor_of_another_filter_is_refused(place: Place) {
    let store = place.store().await;
    write(&store, "team", 0..3).await;
    let cursor = store
        .runs(&RunFilter::default(), &page(1, None))
        .await
        .unwrap()
        .next;
    let failed = RunFilter {
        phases: vec![RunPhase::Failed],
        ..RunFilter::default()
    };
    let error = store.runs(&failed, &page(1, cursor.clone())).await.unwrap_err();
    assert!(
        error.is_bad_request() && error.to_string().contains("another filter"),
        "{error}"
    );
    let error = store
        .runs(&failed, &page(1, Some("bent".to_owned())))
        .await
        .unwrap_err();
    assert!(
        error.is_bad_request() && error.to_string().contains("damaged"),
        "{error}"
    );
    assert!(store.runs(&RunFilter::default(), &page(1, cursor)).await.is_ok());
}

/// Three runs of agents in two namespaces, and one of a tool that was a step of an orchestration.
async fn mixed(place: &Place) -> Store {
    let store = place.store().await;
    write(&store, "team", 1..3).await;
    write(&store, "other", 3..4).await;
    let mut child = object("team", 4);
    child["kind"] = json!("ToolRun");
    child["spec"] = json!({"toolRef": {"name": "lint"}});
    child["status"]["phase"] = json!("Succeeded");
    child["metadata"]["ownerReferences"] = json!([{"kind": "OrchestrationRun", "uid": "o-1"}]);
    store.record(&record(&child), now()).await.unwrap();
    store
}

pub(crate) async fn filters_take_what_they_say_and_nothing_else(place: Place) {
    let store = mixed(&place).await;
    let all = ["run-4", "run-3", "run-2", "run-1"];
    let by = async |change: &dyn Fn(&mut RunFilter)| {
        let mut filter = RunFilter::default();
        change(&mut filter);
        taken(&store, filter).await
    };
    let only = |name: &str| Namespaces::Only(vec![name.to_owned()]);
    assert_eq!(by(&|_| {}).await, all);
    assert_eq!(by(&|filter| filter.namespaces = only("other")).await, ["run-3"]);
    assert_eq!(
        by(&|filter| filter.kind = Some(RunKind::ToolRun)).await,
        ["run-4"]
    );
    let ended = vec![RunPhase::Succeeded, RunPhase::Cancelled];
    assert_eq!(by(&|filter| filter.phases.clone_from(&ended)).await, ["run-4"]);
    assert_eq!(
        by(&|filter| filter.subject = Some("lint".to_owned())).await,
        ["run-4"]
    );
    assert_eq!(
        by(&|filter| filter.parent = Some("o-1".to_owned())).await,
        ["run-4"]
    );
    let none = |filter: &mut RunFilter| {
        filter.namespaces = only("other");
        filter.phases.clone_from(&ended);
    };
    assert!(by(&none).await.is_empty());
}

pub(crate) async fn bounds_in_time_take_the_first_and_leave_the_last(place: Place) {
    let store = mixed(&place).await;
    let created = async |uid: &str| store.run(uid).await.unwrap().unwrap().summary.created_at;
    let (second, third) = (created("team-2").await, created("other-3").await);
    let between = async |since, until| {
        let filter = RunFilter {
            since,
            until,
            ..RunFilter::default()
        };
        taken(&store, filter).await
    };
    assert_eq!(between(Some(third), None).await, ["run-4", "run-3"]);
    assert_eq!(between(None, Some(second)).await, ["run-1"]);
    assert_eq!(between(Some(second), Some(third)).await, ["run-2"]);
}

pub(crate) async fn a_search_finds_words_and_their_beginnings(place: Place) {
    let store = place.store().await;
    let texts = [
        "mend the login page",
        "login naïve Ünicode",
        "lo and behold",
        "owner/repo#12 fails",
    ];
    for (number, text) in (1..).zip(texts) {
        let mut object = object("team", number);
        object["spec"]["parameters"] = json!({"goal": text});
        store.record(&record(&object), now()).await.unwrap();
    }
    let found = async |text: &str| {
        let filter = RunFilter {
            text: Some(text.to_owned()),
            ..RunFilter::default()
        };
        taken(&store, filter).await
    };
    assert_eq!(found("login").await, ["run-2", "run-1"]);
    assert_eq!(found("LOG").await, ["run-2", "run-1"], "three letters are enough");
    assert_eq!(found("lo").await, ["run-3"], "two have to be a word");
    assert_eq!(found("page login").await, ["run-1"], "all words, in any order");
    assert_eq!(found("ünicode").await, ["run-2"]);
    assert_eq!(found("repo 12").await, ["run-4"]);
    assert_eq!(found("owner/repo").await, ["run-4"]);
    assert_eq!(found("coder exit").await.len(), 4, "names and messages too");
    assert!(found("logout").await.is_empty());
    assert!(found("login' OR 1=1").await.is_empty());

    // What was said before is not found any more.
    let mut object = object("team", 1);
    object["spec"]["parameters"] = json!({"goal": "something else"});
    object["metadata"]["resourceVersion"] = json!("101");
    store.record(&record(&object), now()).await.unwrap();
    assert_eq!(found("login").await, ["run-2"]);
    assert_eq!(found("something").await, ["run-1"]);
    let none = RunFilter {
        text: Some("...".to_owned()),
        ..RunFilter::default()
    };
    assert!(
        store
            .runs(&none, &page(1, None))
            .await
            .unwrap_err()
            .is_bad_request()
    );
    // Pages of a search go on where they ended.
    let filter = RunFilter {
        text: Some("coder".to_owned()),
        ..RunFilter::default()
    };
    let first = store.runs(&filter, &page(3, None)).await.unwrap();
    assert_eq!(names(&first.items), ["run-4", "run-3", "run-2"]);
    let second = store.runs(&filter, &page(3, first.next)).await.unwrap();
    assert_eq!((names(&second.items), second.next), (vec!["run-1"], None));
}

pub(crate) async fn runs_are_counted_by_kind_and_phase(place: Place) {
    let store = place.store().await;
    write(&store, "team", 1..4).await;
    let mut other = object("other", 4);
    other["status"]["phase"] = json!("Succeeded");
    store.record(&record(&other), now()).await.unwrap();
    let counted = async |filter: RunFilter| {
        let counts = store.counts(&filter).await.unwrap();
        counts
            .into_iter()
            .map(|count| (count.phase.to_string(), count.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        counted(RunFilter::default()).await,
        [("Failed".to_owned(), 3), ("Succeeded".to_owned(), 1)]
    );
    let text = RunFilter {
        text: Some("other".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(counted(text).await, [("Succeeded".to_owned(), 1)]);
}

pub(crate) async fn whoever_sees_no_namespace_sees_nothing(place: Place) {
    let store = place.store().await;
    write(&store, "team", 1..3).await;
    let nobody = RunFilter {
        namespaces: Namespaces::Only(Vec::new()),
        ..RunFilter::default()
    };
    assert!(taken(&store, nobody.clone()).await.is_empty());
    assert!(store.counts(&nobody).await.unwrap().is_empty());
}

pub(crate) async fn no_secret_reaches_the_database(place: Place) {
    let store = place.store().await;
    let secret = "hunter2hunter2";
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let mut object = object("team", 1);
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": secret});
    object["metadata"]["managedFields"] = json!([{"manager": secret}]);
    object["spec"]["parameters"] = json!({"API_TOKEN": secret, "goal": format!("use {token}")});
    object["spec"]["runtime"]["config"] = json!({
        "env": [{"name": "PLAIN", "value": secret}],
        "database": format!("postgres://app:{secret}@db/x"),
    });
    object["status"]["conditions"][0]["message"] =
        json!(format!("git clone https://{token}@example.com failed"));
    object["status"]["outcome"] = json!({"summary": format!("Authorization: Bearer {secret}{secret}")});
    object["status"]["artifacts"] = json!([{"name": "x", "url": format!("https://u:{secret}@example.com")}]);
    store.record(&record(&object), now()).await.unwrap();
    let tail = super::notes::tail(
        "team-1",
        1,
        &format!("export TOKEN={token}\ncurl https://u:{secret}@example.com\n"),
    );
    store.record_log(&tail).await.unwrap();
    let entry = super::notes::entry(
        1,
        json!({"password": secret, "url": format!("https://u:{secret}@example.com")}),
    );
    store.audit(&entry).await.unwrap();

    let run = store.run("team-1").await.unwrap().unwrap();
    assert_eq!(run.document["spec"]["parameters"]["API_TOKEN"], WITHHELD);
    store.close().await;
    let dump = (place.dump)();
    let holds = |text: &str| dump.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("run-1") && holds(WITHHELD), "the dump shows what is there");
    assert!(!holds(secret) && !holds(&token[..12]));
}

pub(crate) async fn odd_characters_come_back(place: Place) {
    let store = place.store().await;
    let mut object = object("team", 1);
    object["spec"]["parameters"] = json!({"goal": "a\u{0}b 'quoted' \"twice\" \\ \u{1F980}\n%_$1 ?"});
    object["status"]["conditions"][0]["message"] = json!("zero \u{0} here");
    store.record(&record(&object), now()).await.unwrap();
    let run = store.run("team-1").await.unwrap().unwrap();
    assert_eq!(run.document["spec"]["parameters"], object["spec"]["parameters"]);
    assert_eq!(run.summary.message.as_deref(), Some("zero \u{fffd} here"));
    assert_eq!(run.summary.created_at, time("2026-02-25T06:13:21Z"));
}
