//! What the caches make of lists and changes.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use tokio::time::advance;

use super::*;

fn world() -> World {
    let namespaces = Namespaces::These(BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    World::new(namespaces, "e".to_owned(), Arc::default())
}

fn failure(words: &str) -> Failure {
    Failure {
        sort: "forbidden",
        words: words.to_owned(),
    }
}

fn object(namespace: &str, name: &str, version: u32) -> Object {
    let object = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
                     "resourceVersion": version.to_string(),
                     "creationTimestamp": format!("2026-03-01T12:00:{:02}Z", name.len())},
        "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"},
                 "implementation": {"inline": {"text": "do"}}},
    }))
    .expect("an object");
    Object::read(Kind::AgentRun, object, true)
}

fn names(world: &World, filter: &Filter) -> Vec<String> {
    let listed = world.list(Kind::AgentRun, filter, None, 100);
    listed
        .iter()
        .map(|object| format!("{}/{}", object.namespace, object.name))
        .collect()
}

#[test]
fn a_list_replaces_what_its_own_namespace_had_and_nothing_else() {
    let world = world();
    for scope in ["a", "b"] {
        world.list_begins(Kind::AgentRun, scope);
        world.listed(scope, object(scope, "x", 1));
        world.listed(scope, object(scope, "yy", 2));
        world.list_ends(Kind::AgentRun, scope);
    }
    assert_eq!(names(&world, &Filter::default()), ["a/yy", "b/yy", "a/x", "b/x"]);
    let before = world.log.latest();
    world.list_begins(Kind::AgentRun, "a");
    world.listed("a", object("a", "x", 1));
    assert_eq!(
        names(&world, &Filter::default()).len(),
        4,
        "nothing goes before the list is complete"
    );
    world.list_ends(Kind::AgentRun, "a");
    assert_eq!(names(&world, &Filter::default()), ["b/yy", "a/x", "b/x"]);
    let told = world.log.since(before, 9).expect("the changes");
    assert_eq!(told.len(), 1, "what is the same is not told again");
    assert_eq!(told[0].action, Action::Deleted);
}

#[test]
fn what_waits_is_counted_until_it_goes() {
    let world = world();
    world.apply(object("a", "x", 1));
    world.apply(object("b", "y", 2));
    assert_eq!(world.waiting().len(), 2);
    world.delete(Kind::AgentRun, "a", "x");
    assert_eq!(world.waiting().len(), 1);
    assert!(world.get(Kind::AgentRun, "a", "x").is_none());
    assert!(world.by_uid(Kind::AgentRun, "a-x").is_none());
    assert!(world.by_uid(Kind::AgentRun, "b-y").is_some());
}

#[test]
fn a_page_begins_after_the_place_where_the_one_before_ended() {
    let world = world();
    for name in ["x", "yy", "zzz"] {
        world.apply(object("a", name, 1));
    }
    let first = world.list(Kind::AgentRun, &Filter::default(), None, 2);
    assert_eq!(
        first
            .iter()
            .map(|object| object.name.as_str())
            .collect::<Vec<_>>(),
        ["zzz", "yy"]
    );
    let place = first[1].place();
    let second = world.list(Kind::AgentRun, &Filter::default(), Some(&place), 2);
    assert_eq!(
        second
            .iter()
            .map(|object| object.name.as_str())
            .collect::<Vec<_>>(),
        ["x"]
    );
}

#[test]
fn it_is_complete_when_every_kind_was_listed_in_every_namespace() {
    let world = world();
    assert_eq!(world.missing().len(), Kind::ALL.len());
    world.failed(Kind::Agent, "a", failure("you may not list them in a"));
    let told = world.missing();
    assert!(
        told.contains(&"agents in one namespace: forbidden".to_owned()),
        "{told:?}"
    );
    assert!(
        told.contains(&"agentruns in 2 namespaces: not listed yet".to_owned()),
        "{told:?}"
    );
    assert_eq!(world.missing_in("a")[&Kind::Agent], "you may not list them in a");
    assert_eq!(world.missing_in("b")[&Kind::Agent], "it is not listed yet");
    for kind in Kind::ALL {
        for scope in ["a", "b"] {
            world.list_begins(*kind, scope);
            world.list_ends(*kind, scope);
        }
    }
    assert!(world.missing().is_empty());
    world.failed(Kind::Agent, "a", failure("later"));
    assert!(world.missing().is_empty(), "what was listed once is there");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_for_long_is_told_until_it_goes_on() {
    let world = world();
    world.list_ends(Kind::Agent, "a");
    let fail_for = async |seconds: u64| {
        for _ in 0..seconds / 30 {
            world.failed(Kind::Agent, "a", failure("you may not any more"));
            advance(Duration::from_secs(30)).await;
        }
    };
    fail_for(30).await;
    assert!(world.stale().is_empty(), "it may be over at once");
    fail_for(60).await;
    assert_eq!(world.stale(), BTreeSet::from([Kind::Agent]));
    assert_eq!(world.stale_in("a")[&Kind::Agent], "you may not any more");
    assert!(world.stale_in("b").is_empty());
    world.answered(Kind::Agent, "a");
    assert!(world.stale().is_empty());

    fail_for(120).await;
    assert!(!world.stale().is_empty());
    // Where nothing changes, a watch that goes on is silent.
    advance(Duration::from_secs(90)).await;
    assert!(world.stale().is_empty());
    fail_for(30).await;
    assert!(world.stale().is_empty(), "what failed long ago is forgotten");
}

#[test]
fn filters_look_at_phase_runtime_subject_and_words() {
    let world = world();
    world.apply(object("a", "fix-tests", 1));
    let is_found = |filter: Filter| !names(&world, &filter).is_empty();
    let base = Filter::default();
    assert!(is_found(Filter {
        runtime: Some("job".to_owned()),
        ..base.clone()
    }));
    assert!(!is_found(Filter {
        runtime: Some("workflow".to_owned()),
        ..base.clone()
    }));
    assert!(is_found(Filter {
        subject: Some("coder".to_owned()),
        ..base.clone()
    }));
    assert!(!is_found(Filter {
        phase: Some("Failed".to_owned()),
        ..base.clone()
    }));
    assert!(is_found(Filter {
        words: vec!["fix".to_owned()],
        ..base.clone()
    }));
    assert!(!is_found(Filter {
        words: vec!["mend".to_owned()],
        ..base.clone()
    }));
    assert!(!is_found(Filter {
        namespace: Some("b".to_owned()),
        ..base
    }));
}
