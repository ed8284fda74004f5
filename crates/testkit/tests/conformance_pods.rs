//! Pods run on kubelite's node as they did on a real one, but for what is listed. They are processes of this machine, so time
//! is that of this machine, and a sandbox is needed.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{path::PathBuf, sync::Arc};

use jangar_testkit::conformance::{
    Answer, RunError, Script, compare::differences, corpus, defect::DEFECTS, kept, known, play,
    script::NODE_LABEL,
};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use kubelite::{
    defects::Defects,
    node::{
        Config as NodeConfig, Node,
        executor::{Config as ExecutorConfig, Executor, PodLogStore},
    },
    server::{Config, Server, User},
    store::{Limits, Store},
};
use serde_json::json;

const AREA: &str = "pods";
/// As long as that of a real cluster.
const RUN: &str = "00000000";

fn script() -> Script {
    let corpus = corpus().expect("the corpus can be read");
    let mut scripts = corpus.into_iter().filter(|script| script.needs_node);
    let script = scripts.next().expect("an area about pods");
    assert_eq!(
        (script.area.as_str(), scripts.next().map(|other| other.area)),
        (AREA, None)
    );
    script
}

/// What a server with a node that runs pods answers.
async fn played(script: &Script, defects: Defects) -> Result<Vec<Answer>, RunError> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let logs = PodLogStore::default();
    let server = Server::start(Config {
        logs: Some(Arc::new(logs.clone())),
        ..Config::new(Store::in_memory(Limits::default()))
    })
    .await
    .expect("a server");
    let node_config = NodeConfig::default();
    let node = Node::start(&server, &node_config).await.expect("a node");
    let client = Client::new(server.local(User::system("kubernetes-admin")), "default");
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {NODE_LABEL: "real"}}}));
    nodes
        .patch(&node_config.name, &PatchParams::default(), &label)
        .await
        .expect("the node takes a label");
    let executor = ExecutorConfig {
        shim: PathBuf::from(env!("CARGO_BIN_EXE_testkit-shim")),
        defects,
        ..ExecutorConfig::new(&node_config.name, directory.path())
    };
    let executor = Executor::start(client.clone(), executor, logs)
        .await
        .expect("an executor");

    let played = play(&client, script, RUN).await;

    // Pods outlive their executor, but not their test.
    executor.kill().await;
    executor.stop().await;
    node.stop().await;
    server.stop().await;
    played
}

#[tokio::test]
async fn what_differs_from_pods_on_a_real_node_is_listed_and_no_more() {
    let mut listed = known::listed().expect("the list can be read");
    listed.retain(|known| known.area() == AREA);

    let answers = played(&script(), Defects::default())
        .await
        .expect("the script can be played");

    let expected = kept(AREA).expect("what a real cluster said is kept");
    let found = differences(AREA, &expected, &answers);
    let words = known::disagreement(&listed, &found).to_string();
    assert!(
        words.is_empty(),
        "docs/kubelite-differences.md is not exact\n{words}"
    );
}

/// Only the pod that shows it runs: each takes its time.
#[tokio::test]
async fn a_node_that_overlooks_something_is_noticed() {
    let pods = ["a pod with last words", "its last words"];
    let mut script = script();
    script.steps.retain(|step| pods.contains(&step.title.as_str()));
    // What is masked is called by the number of its request, so that a part of the script is compared with itself.
    let sound = async || {
        played(&script, Defects::default())
            .await
            .expect("the script can be played")
    };
    let expected = sound().await;
    let again = differences(AREA, &expected, &sound().await);
    assert!(again.is_empty(), "a sound node says the same twice: {again:?}");
    for planted in DEFECTS.iter().filter(|planted| planted.area == AREA) {
        let answers = played(&script, Defects::from(planted.defect))
            .await
            .expect("the script can be played");

        let found = differences(AREA, &expected, &answers);
        assert!(
            !found.is_empty(),
            "a node that overlooks {:?} passes",
            planted.defect
        );
    }
}
