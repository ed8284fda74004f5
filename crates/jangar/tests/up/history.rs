//! What is left of runs that are gone, and runs without a database.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use jangar_api::{agents::agent_run::AgentRun, phase::RunPhase};
use kube::{
    Api,
    api::DeleteParams,
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    agent_runs::{reached, script},
    process::{PATIENCE, Setup, Up, eventually},
};

/// The control plane of an `up`, asked with the token of its kubeconfig.
struct ControlPlane {
    address: String,
    token: String,
}

impl ControlPlane {
    fn of(up: &Up, directory: &Path) -> Self {
        let (_, rest) = up.line.split_once("control plane on http://").unwrap();
        let is_address = |c: char| c.is_ascii_digit() || ".:".contains(c);
        let address = rest.chars().take_while(|c| is_address(*c)).collect();
        let kubeconfig = fs::read_to_string(directory.join("kubeconfig")).unwrap();
        let (_, rest) = kubeconfig.split_once("token:").unwrap();
        let word = rest.split_whitespace().next().unwrap();
        Self {
            address,
            token: word.trim_matches(['"', '\'']).to_owned(),
        }
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.address, self.token
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (code, serde_json::from_str(body).unwrap_or_default())
    }
}

/// The number of a time series.
fn counted(up: &Up, series: &str) -> u64 {
    let (_, metrics) = up.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |number| number.trim().parse().unwrap())
}

#[tokio::test]
async fn a_run_that_was_deleted_is_still_read_and_explained_and_its_log_given() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    let plane = ControlPlane::of(&up, directory.path());
    let run = script(&client, "mend", "echo the roof leaks; echo here; exit 3").await;
    let uid = run.metadata.uid.unwrap();
    reached(&client, "mend", &RunPhase::Failed).await;
    eventually("the control plane has seen the run", || {
        plane.get(&format!("/v1/runs/{uid}")).1["archived"] == Value::Bool(false)
    });
    eventually("the run and its log are written", || {
        counted(&up, "jangar_runs_archived_total{result=\"written\"}") > 0
            && counted(&up, "jangar_log_tails_total{result=\"written\"}") > 0
    });
    let (code, body) = plane.get(&format!("/v1/runs/{uid}"));
    assert_eq!((code, &body["archived"]), (200, &Value::Bool(false)), "{body}");

    let runs: Api<AgentRun> = Api::default_namespaced(client);
    runs.delete("mend", &DeleteParams::default()).await.unwrap();
    timeout(PATIENCE, await_condition(runs, "mend", is_deleted(&uid)))
        .await
        .unwrap()
        .unwrap();

    eventually("the control plane has seen that it is gone", || {
        plane.get(&format!("/v1/runs/{uid}")).1["archived"] == Value::Bool(true)
    });
    let (code, body) = plane.get(&format!("/v1/runs/{uid}"));
    assert_eq!((code, &body["run"]["status"]), (200, &"Failed".into()), "{body}");
    let (code, body) = plane.get(&format!("/v1/runs/{uid}/explain"));
    let told = &body["explanation"];
    assert_eq!((code, &told["state"]), (200, &"failed".into()), "{body}");
    assert!(
        told["headline"]
            .as_str()
            .unwrap()
            .contains("gone from the cluster"),
        "{body}"
    );
    let (code, body) = plane.get(&format!("/v1/runs/{uid}/logs"));
    assert_eq!(
        (code, &body["log"]["archived"]),
        (200, &Value::Bool(true)),
        "{body}"
    );
    assert!(
        body["log"]["text"]
            .as_str()
            .unwrap()
            .contains("the roof leaks\nhere\n"),
        "{body}"
    );
    let (_, body) = plane.get("/v1/agent-runs?archived=true&search=mend");
    assert_eq!(body["agentRuns"][0]["id"], uid.as_str(), "{body}");
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn runs_go_on_while_the_database_is_down_and_everybody_is_told() {
    let directory = tempfile::tempdir().unwrap();
    // Nothing listens on the port that the system keeps for the multiplexer of TCP.
    let up = Setup::on(directory.path())
        .variable("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
        .ready();
    let client = up.client().await;
    script(&client, "works", "true").await;

    reached(&client, "works", &RunPhase::Succeeded).await;

    let mut last = String::new();
    eventually("it is ready, and says that history is away", || {
        let (code, text) = up.get("/readyz");
        last = text;
        code == 200 && last.contains("note: 1 finished runs are not written into history")
    });
    assert!(last.contains("127.0.0.1:1"), "{last}");
    assert_eq!(counted(&up, "jangar_runs_archive_down"), 1);
    let plane = ControlPlane::of(&up, directory.path());
    let (code, body) = plane.get("/api/agents/control-plane/status");
    assert_eq!(
        (code, &body["database"]["connected"]),
        (200, &Value::Bool(false)),
        "{body}"
    );
    assert_eq!(up.stop(), Some(0));
}
