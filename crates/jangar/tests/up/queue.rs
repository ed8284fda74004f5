//! Runs that wait for their turn on `jangar up`: why, as the terminal and the API tell it, and what the printed command does about it.

use std::{
    path::Path,
    process::{Command, Output},
};

use jangar_agentctl::{Environment, main_with};
use jangar_api::{
    agents::agent_run::AgentRun,
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
};
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::wait::await_condition};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{
    agent_runs::{agent, reached, run},
    control_plane::{Running, control_plane},
    objects::create,
    process::{PATIENCE, PAUSE, Setup, eventually},
};

/// The words of a command line for [`agentctl`], one in each line.
const WORDS: &str = "JANGAR_TEST_AGENTCTL";

/// Not a test by itself: `agentctl` as a program of its own, for the tests that say what it is to do. A program that is built beside this
/// one may be an old one, or none.
#[test]
fn agentctl_for_other_tests() {
    if let Ok(words) = std::env::var(WORDS) {
        let code = main_with(words.lines().map(Into::into), Environment::of_the_process());
        std::process::exit(code.into());
    }
}

/// Runs a command line as somebody would who copied it to a terminal.
fn typed(home: &Path, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], "agentctl", "{line}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "queue::agentctl_for_other_tests", "--nocapture"])
        .env(WORDS, words.join("\n"))
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {complaint}");
    output
}

/// What `agentctl explain` says of a run.
fn explained(home: &Path, name: &str) -> Value {
    let output = typed(home, &format!("agentctl explain run {name} -n agents -o json"));
    let text = String::from_utf8(output.stdout).unwrap();
    // Before it stands what the test program says of itself.
    let begin = text.find('{').unwrap_or_else(|| panic!("no JSON: {text}"));
    serde_json::from_str(&text[begin..]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The reason for which a run waits, if it does.
fn waits_for(run: Option<&AgentRun>) -> Option<String> {
    let blocked = run?.status.as_ref()?.common.condition(&ConditionType::Blocked)?;
    (blocked.status == ConditionStatus::True).then(|| blocked.reason.to_string())
}

async fn waiting(client: &Client, name: &str, reason: &str) {
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let is = |run: Option<&AgentRun>| waits_for(run).as_deref() == Some(reason);
    let waited = timeout(PATIENCE, await_condition(runs.clone(), name, is)).await;
    let run = runs.get(name).await.unwrap();
    assert!(
        waited.is_ok(),
        "{name} does not wait for {reason}: {:#?}",
        run.status
    );
}

/// Which of the runs `one` and `two` has a place in the queue, and which has none.
async fn beyond_the_places(client: &Client) -> (&'static str, &'static str) {
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let late = |run: &&AgentRun| waits_for(Some(*run)).as_deref() == Some("QueueLimit");
    loop {
        let all = runs.list(&ListParams::default()).await.unwrap().items;
        match all.iter().find(late).map(ResourceExt::name_any).as_deref() {
            Some("one") => return ("two", "one"),
            Some("two") => return ("one", "two"),
            _ => sleep(PAUSE).await,
        }
    }
}

#[tokio::test]
async fn who_does_what_explain_prints_ends_the_wait_and_the_terminal_and_the_api_say_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let up = Setup::on(home)
        .variable("JANGAR_AGENTS_CONTROLLER_CONCURRENCY_AGENT", "1")
        .variable("JANGAR_AGENTS_CONTROLLER_QUEUE_NAMESPACE", "1")
        .ready();
    let client = up.client().await;
    let plane = Running::start(&mut control_plane(home), home);
    eventually("its caches are filled", || {
        plane.ask("", "GET /ready", &Value::Null).0 == 200
    });
    let script = "trap 'exit 1' TERM; while :; do sleep 0.1; done";
    agent(
        &client,
        "busy",
        json!({"binary": "/bin/sh", "argsTemplate": ["-c", script]}),
    )
    .await;
    let of_agent = |name: &str| run(name, json!({"agentRef": {"name": "busy"}}));
    create::<AgentRun>(&client, of_agent("works")).await;
    reached(&client, "works", &RunPhase::Running).await;
    for name in ["one", "two"] {
        create::<AgentRun>(&client, of_agent(name)).await;
    }
    // Times of creation are whole seconds: of two that came in the same one, either may be the earlier.
    let (next, last) = timeout(PATIENCE, beyond_the_places(&client)).await.unwrap();
    waiting(&client, next, "ConcurrencyLimit").await;

    let told = explained(home, last);

    assert_eq!(told["reason"], "QueueLimit", "{told}");
    assert_eq!(told["position"], json!({"place": 2, "of": 2}), "{told}");
    let path = format!("GET /v1/runs/{last}/explain?namespace=agents");
    eventually("the API says the same", || {
        let (_, answer) = plane.sent(&path, &Value::Null);
        ["reason", "position", "commands"]
            .iter()
            .all(|field| answer["explanation"][field] == told[field])
    });
    assert_eq!(
        told["commands"][0]["line"],
        format!("agentctl cancel run {next} -n agents"),
        "{told}"
    );
    typed(home, told["commands"][0]["line"].as_str().unwrap());
    waiting(&client, last, "ConcurrencyLimit").await;

    let told = explained(home, last);
    assert_eq!(told["position"], json!({"place": 1, "of": 1}), "{told}");
    assert_eq!(
        told["commands"][0]["line"], "agentctl cancel run works -n agents",
        "{told}"
    );
    typed(home, told["commands"][0]["line"].as_str().unwrap());
    let status = reached(&client, last, &RunPhase::Running).await;
    let blocked = status.common.condition(&ConditionType::Blocked).unwrap();
    assert_eq!(blocked.status, ConditionStatus::False, "{}", blocked.message);
}
