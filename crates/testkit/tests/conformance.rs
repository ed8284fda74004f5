//! kubelite answers as a real Kubernetes did, but for what is listed. `conformance_cluster.rs` holds that a real one still
//! does.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeSet, sync::Arc};

use http::Method;
use jangar_testkit::conformance::{
    Answer, Difference, RunError, Script,
    compare::differences,
    corpus,
    defect::{DEFECTS, Planted},
    kept, known, play,
    script::Action,
};
use kube::Client;
use kubelite::{
    clock::{Ids, TokioClock},
    defects::Defects,
    node::{Config as NodeConfig, Node},
    server::{Config, Server, User},
    store::{Limits, Store},
};

const START: &str = "2026-03-01T12:00:00Z";
/// As long as that of a real cluster, because messages are cut by length.
const RUN: &str = "00000000";
/// As many as an area that is to say something needs, times the number of areas.
const REQUESTS_MIN: usize = 300;

/// Plays a script on a server of its own and says what differs from what a real cluster answered.
async fn on_kubelite(script: &Script, defects: Defects) -> (Vec<Difference>, Option<RunError>) {
    let mut expected = kept(&script.area).expect("what a real cluster said is kept");
    match played(script, defects, Limits::default()).await {
        Ok(answers) => (differences(&script.area, &expected, &answers), None),
        Err(error) => {
            // What was not asked any more does not differ.
            expected.truncate(error.answers.len());
            (differences(&script.area, &expected, &error.answers), Some(error))
        }
    }
}

/// What a server with a store of these bounds answers.
async fn played(script: &Script, defects: Defects, limits: Limits) -> Result<Vec<Answer>, RunError> {
    let server = Server::start(Config {
        clock: Arc::new(TokioClock::starting_at(START.parse().expect("a time"))),
        ids: Ids::seeded(7),
        defects,
        ..Config::new(Store::in_memory(limits))
    })
    .await
    .expect("a server");
    let node = Node::start(&server, &NodeConfig::default())
        .await
        .expect("a node");
    let client = Client::new(server.local(User::system("kubernetes-admin")), "default");
    let played = play(&client, script, RUN).await;
    node.stop().await;
    server.stop().await;
    played
}

#[test]
fn the_corpus_is_large_and_every_area_has_its_defect() {
    let corpus = corpus().expect("the corpus can be read");

    let requests: usize = corpus.iter().map(|script| script.steps.len()).sum();
    assert!(requests >= REQUESTS_MIN, "only {requests} requests");
    let areas: BTreeSet<_> = corpus.iter().map(|script| script.area.as_str()).collect();
    let with_defects: BTreeSet<_> = DEFECTS.iter().map(|defect| defect.area).collect();
    assert_eq!(areas, with_defects);
}

#[tokio::test(start_paused = true)]
async fn what_differs_from_kubernetes_is_listed_and_no_more() {
    let mut scripts = corpus().expect("the corpus can be read");
    // Pods that run take their time, so they have a test of their own: `conformance_pods.rs`.
    scripts.retain(|script| !script.needs_node);
    let mut listed = known::listed().expect("the list can be read");
    listed.retain(|known| scripts.iter().any(|script| script.area == known.area()));
    let mut found = Vec::new();
    for script in scripts {
        let (differences, error) = on_kubelite(&script, Defects::default()).await;
        assert!(error.is_none(), "the script can be played: {error:?}");
        found.extend(differences);
    }

    let words = known::disagreement(&listed, &found).to_string();
    assert!(
        words.is_empty(),
        "docs/kubelite-differences.md is not exact\n{words}"
    );
}

/// What is forgotten cannot be told, and whether a client lists anew hangs on how that is said.
#[tokio::test(start_paused = true)]
async fn a_watch_of_what_is_forgotten_is_told_so_as_by_kubernetes() {
    const TITLE: &str = "a version before all versions";
    let corpus = corpus().expect("the corpus can be read");
    let mut script = corpus
        .into_iter()
        .find(|script| script.area == "watch")
        .expect("an area about watches");
    // The changes and that question: watches that are open meanwhile have nothing to do with it.
    script.steps.retain(|step| match &step.action {
        Action::Request(request) => request.method != Method::GET || step.title == TITLE,
        Action::Watch { .. } | Action::Events { .. } => false,
    });
    let forgetful = Limits {
        history_events_per_collection: 2,
        ..Limits::default()
    };

    let answers = played(&script, Defects::default(), forgetful).await;

    let of_title = |answers: Vec<Answer>| {
        answers
            .into_iter()
            .filter(|answer| answer.title == TITLE)
            .collect::<Vec<_>>()
    };
    let answers = of_title(answers.expect("the script can be played"));
    let expected = of_title(kept("watch").expect("what a real cluster said is kept"));
    assert_eq!(answers.len(), 1);
    let differences = differences("watch", &expected, &answers);
    assert!(differences.is_empty(), "{differences:?}");
}

#[tokio::test(start_paused = true)]
async fn a_defect_in_any_area_is_noticed() {
    let listed = known::listed().expect("the list can be read");
    let corpus = corpus().expect("the corpus can be read");
    for Planted { area, defect } in DEFECTS {
        let script = corpus
            .iter()
            .find(|script| script.area == *area)
            .expect("its area");
        if script.needs_node {
            continue;
        }

        let (found, error) = on_kubelite(script, Defects::from(*defect)).await;

        // That a script could not be played to its end says nothing by itself: it takes an answer that differs.
        let unlisted = known::disagreement(&listed, &found).unlisted;
        assert!(
            !unlisted.is_empty(),
            "{area}: a server that overlooks {defect:?} passes; {error:?}"
        );
    }
}
