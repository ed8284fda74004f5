//! Runs on a machine that refuses a sandbox: with `--unsandboxed` they are plain processes, and end as they would elsewhere.

use std::path::Path;

use jangar_api::phase::RunPhase;
use serde_json::json;

use crate::{
    agent_runs::{reached, script},
    process::Setup,
};

#[tokio::test]
async fn without_a_sandbox_a_run_has_its_outcome_and_writes_nothing_of_the_machine() {
    // An agent of a real machine may have a directory of this name; what counts is that the run does not touch it.
    let before = Path::new("/workspace")
        .metadata()
        .and_then(|found| found.modified())
        .ok();
    let directory = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first-run.yaml");
    let up = Setup::on(directory.path())
        .where_sandboxes_are_refused()
        .with(&["--unsandboxed", "-f", example])
        .ready();
    let client = up.client().await;
    let report = "cp $AGENT_RUN_SPEC copy.json && test -s \"$KUBELITE_ROOT/workspace/copy.json\" && \
                  echo {\\\"summary\\\": \\\"done\\\", \\\"outputs\\\": {\\\"answer\\\": 42}} > $AGENT_OUTCOME_PATH";
    script(&client, "works", report).await;

    let status = reached(&client, "works", &RunPhase::Succeeded).await;

    let outcome = status.outcome.unwrap();
    assert_eq!(outcome.summary.as_deref(), Some("done"));
    assert_eq!(outcome.outputs.unwrap().0["answer"], json!(42));
    reached(&client, "fix-the-test-1", &RunPhase::Succeeded).await;
    let after = Path::new("/workspace")
        .metadata()
        .and_then(|found| found.modified())
        .ok();
    assert_eq!(before, after);
    assert_eq!(up.stop(), Some(0));
}
