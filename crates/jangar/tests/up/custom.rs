//! The runtime `custom` on `jangar up`: a real endpoint on this machine that takes the work and reports.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunStatus},
    condition::ConditionType,
    phase::RunPhase,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

use crate::{
    agent_runs::{agent, reached, run},
    objects::create,
    process::{PATIENCE, Setup, Up},
};

/// A call that the endpoint got.
#[derive(Clone, Debug)]
struct Call {
    headers: HeaderMap,
    body: Value,
}

impl Call {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Reports as the endpoint does, to the address it was given.
    async fn report(&self, body: &Value) -> (u16, Value) {
        let url = self
            .header("jangar-callback-url")
            .strip_prefix("http://")
            .unwrap();
        let (address, path) = url.split_once('/').unwrap();
        self.report_to(address, &format!("/{path}"), body).await
    }

    async fn report_to(&self, address: &str, path: &str, body: &Value) -> (u16, Value) {
        let token = self.header("jangar-callback-token");
        let body = body.to_string();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (code, serde_json::from_str(body).unwrap())
    }
}

/// An endpoint that takes everything.
struct Endpoint {
    url: String,
    calls: mpsc::UnboundedReceiver<Call>,
    all: Arc<Mutex<Vec<Call>>>,
}

type Heard = (mpsc::UnboundedSender<Call>, Arc<Mutex<Vec<Call>>>);

async fn take(
    State((sender, all)): State<Heard>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let call = Call {
        headers,
        body: serde_json::from_slice(&body).unwrap(),
    };
    all.lock().unwrap().push(call.clone());
    sender.send(call).unwrap();
    (StatusCode::ACCEPTED, "{\"ticket\": 7}")
}

impl Endpoint {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/run", listener.local_addr().unwrap());
        let (sender, calls) = mpsc::unbounded_channel();
        let all = Arc::default();
        let router = Router::new()
            .route("/run", post(take))
            .with_state((sender, Arc::clone(&all)));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, calls, all }
    }

    async fn called(&mut self) -> Call {
        timeout(PATIENCE, self.calls.recv()).await.unwrap().unwrap()
    }

    /// Creates a run of this endpoint, and waits until it has been called.
    async fn given(&mut self, client: &Client, name: &str) -> (AgentRun, Call) {
        let created = submit(client, name, &self.url).await;
        (created, self.called().await)
    }
}

async fn submit(client: &Client, name: &str, endpoint: &str) -> AgentRun {
    agent(client, name, json!({"binary": "/bin/true"})).await;
    let runtime = json!({"type": "custom", "config": {"endpoint": endpoint}});
    create(client, run(name, json!({"runtime": runtime}))).await
}

async fn up() -> (tempfile::TempDir, Up, Client) {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let client = up.client().await;
    (directory, up, client)
}

fn said(status: &AgentRunStatus, type_: &ConditionType) -> (String, String) {
    let condition = status.common.condition(type_).unwrap();
    (condition.reason.to_string(), condition.message.clone())
}

#[tokio::test]
async fn an_endpoint_takes_the_work_and_its_report_is_the_status() {
    let (_directory, up, client) = up().await;
    let mut endpoint = Endpoint::start().await;
    let (created, call) = endpoint.given(&client, "outside").await;
    let uid = created.metadata.uid.unwrap();

    assert_eq!(call.header("idempotency-key"), format!("{uid}/1"));
    assert_eq!(call.header("jangar-action"), "submit");
    assert_eq!(call.body["agentRun"]["name"], "outside");
    assert_eq!(call.body["implementation"]["text"], "Do it.");
    let (code, answer) = call.report(&json!({"status": "Running", "percent": 50})).await;
    assert_eq!((code, &answer["phase"]), (200, &json!("Running")));
    let (code, answer) = call.report(&json!({"status": "Done"})).await;
    assert_eq!(code, 400, "{answer}");
    let end = json!({"status": "Succeeded", "summary": "done", "outputs": {"answer": 42}});
    let (code, answer) = call.report(&end).await;
    assert_eq!((code, &answer["phase"]), (200, &json!("Succeeded")));

    // What was answered with success is recorded: nobody has to wait for it.
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let status = runs.get("outside").await.unwrap().status.unwrap();
    assert_eq!(status.phase, Some(RunPhase::Succeeded));
    assert_eq!(status.outcome.unwrap().outputs.unwrap().0["answer"], json!(42));
    let reference = status.runtime_ref.unwrap().0;
    assert_eq!(reference["name"], endpoint.url.as_str());
    assert_eq!(reference["namespace"], "external");
    assert_eq!(reference["response"], json!({"ticket": 7}));
    assert!(
        !json!(reference)
            .to_string()
            .contains(call.header("jangar-callback-token"))
    );
    // The same end again is no trouble, another one is refused.
    assert_eq!(call.report(&end).await.0, 200);
    assert_eq!(call.report(&json!({"status": "Failed"})).await.0, 409);
    assert_eq!(endpoint.all.lock().unwrap().len(), 1);
    assert!(
        up.get("/metrics")
            .1
            .contains("jangar_callbacks_total{result=\"recorded\"} 3")
    );
    assert_eq!(up.stop(), Some(0));
}

#[tokio::test]
async fn a_cancel_reaches_the_endpoint_and_is_over_when_it_says_so() {
    let (_directory, _up, client) = up().await;
    let mut endpoint = Endpoint::start().await;
    let (_, call) = endpoint.given(&client, "unwanted").await;
    call.report(&json!({"status": "Running"})).await;
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    let cancel = Patch::Merge(json!({"spec": {"cancel": true, "cancelReason": "not needed"}}));
    runs.patch("unwanted", &PatchParams::default(), &cancel)
        .await
        .unwrap();

    let cancelled = endpoint.called().await;

    assert_eq!(cancelled.header("jangar-action"), "cancel");
    assert!(cancelled.header("idempotency-key").ends_with("/1/cancel"));
    assert_eq!(cancelled.body["reason"], "not needed");
    reached(&client, "unwanted", &RunPhase::Cancelling).await;
    let (code, answer) = call.report(&json!({"status": "Running", "percent": 9})).await;
    assert_eq!((code, &answer["phase"]), (200, &json!("Cancelling")));
    let (code, answer) = call.report(&json!({"status": "Cancelled"})).await;
    assert_eq!((code, &answer["phase"]), (200, &json!("Cancelled")));
}

#[tokio::test]
async fn a_deleted_run_goes_when_its_endpoint_has_stopped() {
    let (_directory, _up, client) = up().await;
    let mut endpoint = Endpoint::start().await;
    let (created, call) = endpoint.given(&client, "deleted").await;
    call.report(&json!({"status": "Running"})).await;
    let runs: Api<AgentRun> = Api::default_namespaced(client.clone());
    runs.delete("deleted", &DeleteParams::default()).await.unwrap();

    assert_eq!(endpoint.called().await.header("jangar-action"), "cancel");

    assert!(runs.get_opt("deleted").await.unwrap().is_some());
    let (code, answer) = call.report(&json!({"status": "Cancelled"})).await;
    assert_eq!(code, 410, "{answer}");
    let gone = is_deleted(created.metadata.uid.as_deref().unwrap());
    timeout(PATIENCE, await_condition(runs, "deleted", gone))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_run_outlives_the_program_and_its_endpoint_is_not_called_again() {
    let directory = tempfile::tempdir().unwrap();
    let first = Setup::on(directory.path()).ready();
    let mut endpoint = Endpoint::start().await;
    let (_, call) = endpoint.given(&first.client().await, "lasting").await;
    reached(&first.client().await, "lasting", &RunPhase::Running).await;
    first.kill();

    let second = Setup::on(directory.path()).ready();
    let path = "/callbacks/agentruns/agents/lasting";
    let (code, answer) = call
        .report_to(second.address(), path, &json!({"status": "Succeeded"}))
        .await;

    assert_eq!((code, &answer["phase"]), (200, &json!("Succeeded")));
    let elsewhere = call
        .report_to(
            second.address(),
            "/callbacks/agentruns/agents/other",
            &json!({"status": "Succeeded"}),
        )
        .await;
    assert_eq!(elsewhere.0, 401);
    assert_eq!(endpoint.all.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_may_not_be_called_is_told_with_the_remedy() {
    let (_directory, _up, client) = up().await;
    for (name, endpoint, reason, word) in [
        (
            "plain",
            "http://agents.example.com/",
            "EndpointNotAllowed",
            "ALLOWED_ENDPOINTS",
        ),
        (
            "private",
            "https://10.0.0.1/",
            "EndpointNotAllowed",
            "OPEN_NETWORKS",
        ),
        (
            "metadata",
            "https://169.254.169.254/latest",
            "EndpointNotAllowed",
            "metadata",
        ),
        ("none", " ", "MissingEndpoint", "spec.runtime.config.endpoint"),
    ] {
        submit(&client, name, endpoint).await;
        let status = reached(&client, name, &RunPhase::Failed).await;
        let (found, message) = said(&status, &ConditionType::InvalidSpec);
        assert_eq!(found, reason, "{message}");
        assert!(message.contains(word), "{message}");
    }
}
