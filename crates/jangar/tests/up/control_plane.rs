//! `jangar control-plane`, against the API server of a `jangar up`.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    time::Duration,
};

use jangar_api::agents::agent_run::AgentRun;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubelite::tls::Identity;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{PATIENCE, Setup, Up, eventually};

/// With no configuration of the person who runs the tests.
pub(crate) fn control_plane(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jangar"));
    command
        .args([
            "control-plane",
            "--listen",
            "127.0.0.1:0",
            "--probes-listen",
            "127.0.0.1:0",
        ])
        .env("HOME", home)
        .env("KUBECONFIG", home.join("kubeconfig"))
        .env("JANGAR_GRPC_ADDRESS", "127.0.0.1:0")
        .env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// The program, and where it says that it answers.
pub(crate) struct Running {
    up: Up,
    address: String,
    token: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command, home: &Path) -> Self {
        let mut up = Up::begin(command, home);
        up.wait_until_served();
        let line = up.logged("the control plane answers");
        assert!(line["grpc"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        let text = fs::read_to_string(home.join("kubeconfig")).unwrap();
        let kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
        Self {
            up,
            address: line["address"].as_str().unwrap().to_owned(),
            token: kubeconfig["users"][0]["user"]["token"]
                .as_str()
                .unwrap()
                .to_owned(),
        }
    }

    /// The status code and the body of an answer; an empty token is none.
    pub(crate) fn ask(&self, token: &str, request: &str, body: &Value) -> (u16, String) {
        tried(&self.address, token, request, body).unwrap()
    }

    /// The same, for the person of the kubeconfig.
    pub(crate) fn sent(&self, request: &str, body: &Value) -> (u16, Value) {
        let (code, text) = self.ask(&self.token, request, body);
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

/// The status code and the body of an answer; absent if there is none, or only a part of one.
fn tried(address: &str, token: &str, request: &str, body: &Value) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{authorization}Idempotency-Key: once\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let code = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((code, body.to_owned()))
}

/// How often a client asks one replica or the other: the one that lives may be too busy to answer in time.
const TRIES: usize = 7;

#[tokio::test]
async fn twenty_with_the_same_key_at_two_replicas_make_one_run_although_one_replica_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let replica = || Running::start(&mut control_plane(directory.path()), directory.path());
    let (stays, doomed) = (replica(), replica());
    for replica in [&stays, &doomed] {
        eventually("its caches are filled", || {
            replica.ask("", "GET /ready", &Value::Null).0 == 200
        });
    }
    let agent = json!({"name": "coder", "namespace": "agents", "spec": {"providerRef": {"name": "none"}}});
    let (code, answer) = stays.sent("POST /v1/agents", &agent);
    assert_eq!(code, 201, "{answer}");
    let run = json!({"agentRef": {"name": "coder"}, "namespace": "agents", "runtime": {"type": "job"},
                     "implementation": {"text": "do it"}});
    let addresses = [doomed.address.clone(), stays.address.clone()];
    let submitted = |first: usize| {
        // Who gets no answer asks the other one, as a client behind a Service does.
        let mut replicas = addresses.iter().cycle().skip(first).take(TRIES);
        let answer = replicas.find_map(|address| {
            let (code, body) = tried(address, &stays.token, "POST /v1/agent-runs", &run)?;
            let body: Value = serde_json::from_str(&body).ok()?;
            matches!(code, 200 | 201).then_some(body)
        });
        answer.expect("one of the two answers")
    };
    let (begin, begun) = std::sync::mpsc::channel();
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|number| {
                let (begin, submitted) = (begin.clone(), &submitted);
                scope.spawn(move || {
                    begin.send(()).unwrap();
                    submitted(number)
                })
            })
            .collect();
        // In the middle of it.
        begun.iter().take(10).for_each(drop);
        doomed.up.signal(Signal::KILL);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let made: BTreeSet<&str> = answers
        .iter()
        .map(|answer| answer["agentRun"]["id"].as_str().unwrap())
        .collect();
    assert_eq!(made.len(), 1, "{answers:?}");
    let first = answers
        .iter()
        .filter(|answer| answer["idempotent"] == json!(false));
    assert!(first.count() <= 1, "the one who made it may have got no answer");
    let runs: Api<AgentRun> = Api::default_namespaced(up.client().await);
    assert_eq!(runs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(stays.up.stop(), Some(0));
}

#[tokio::test]
async fn it_answers_whoever_has_a_token_and_ends_when_it_is_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let running = Running::start(&mut control_plane(directory.path()), directory.path());
    assert_eq!(running.ask("", "GET /health", &Value::Null).0, 200);
    eventually("its caches are filled", || {
        running.ask("", "GET /ready", &Value::Null).0 == 200
    });
    eventually("it says so beside the metrics", || {
        running.up.get("/readyz").0 == 200
    });

    let agent = json!({"name": "coder", "namespace": "agents", "spec": {"providerRef": {"name": "none"}}});
    assert_eq!(running.ask("", "POST /v1/agents", &agent).0, 401);
    assert_eq!(running.ask("nonsense", "POST /v1/agents", &agent).0, 401);
    let (code, answer) = running.sent("POST /v1/agents", &agent);
    assert_eq!(code, 201, "{answer}");
    let run = json!({"agentRef": {"name": "coder"}, "namespace": "agents", "runtime": {"type": "job"},
                     "implementation": {"text": "do it"}});
    let (code, first) = running.sent("POST /v1/agent-runs", &run);
    assert_eq!((code, &first["idempotent"]), (201, &json!(false)), "{first}");
    let (code, second) = running.sent("POST /v1/agent-runs", &run);
    assert_eq!((code, &second["idempotent"]), (200, &json!(true)), "{second}");
    assert_eq!(first["agentRun"]["id"], second["agentRun"]["id"]);
    let runs: Api<AgentRun> = Api::default_namespaced(up.client().await);
    assert_eq!(runs.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let (code, metrics) = running.up.get("/metrics");
    assert_eq!(code, 200);
    assert!(
        metrics.contains("jangar_control_plane_mutations_total"),
        "{metrics}"
    );

    assert_eq!(running.up.stop(), Some(0));
}

/// No request may be refused while those who send callers have not heard of the end.
#[tokio::test]
async fn after_a_request_to_stop_it_is_not_ready_and_answers_for_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let _up = Setup::on(directory.path()).ready();
    let mut command = control_plane(directory.path());
    command.args(["--linger", "3600"]);
    let mut running = Running::start(&mut command, directory.path());
    eventually("it is ready", || running.up.get("/readyz").0 == 200);

    running.up.signal(Signal::TERM);
    eventually("it is ready no longer", || running.up.get("/readyz").0 == 503);
    let (_, said) = running.up.get("/readyz");
    assert!(said.contains("about to end"), "{said}");
    let (code, answer) = running.sent("GET /v1/agent-runs?namespace=agents", &Value::Null);
    assert_eq!(code, 200, "{answer}");

    running.up.signal(Signal::TERM);
    assert_eq!(running.up.ended(), Some(0));
}

#[tokio::test]
async fn with_controllers_it_leads_as_well_and_releases_the_lease_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let up = Setup::on(directory.path()).ready();
    let mut command = control_plane(directory.path());
    command
        .arg("--with-controllers")
        .env("JANGAR_LEADER_ELECTION_LEASE_NAME", "another");
    let running = Running::start(&mut command, directory.path());
    let leases: Api<Lease> = Api::default_namespaced(up.client().await);
    let holder = async || {
        let lease = leases.get_opt("another").await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        holder.unwrap_or_default()
    };
    let leading = async {
        while holder().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, leading).await.unwrap();
    eventually("it is ready", || running.up.get("/readyz").0 == 200);
    let (code, metrics) = running.up.get("/metrics");
    assert_eq!(code, 200);
    for name in ["jangar_control_plane_identities", "jangar_api_requests_total"] {
        assert!(metrics.contains(name), "{metrics}");
    }

    assert_eq!(running.up.stop(), Some(0));
    assert_eq!(holder().await, "", "the next one need not wait");
}

#[tokio::test]
async fn with_a_certificate_it_answers_over_tls_and_without_a_good_one_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let _up = Setup::on(home).ready();
    let files = home.join("certificates");
    let identity = Identity::load_or_create(&files, &[], jiff::Timestamp::now()).unwrap();
    let (certificate, key) = (files.join("server.crt"), files.join("server.key"));

    let alone = control_plane(home)
        .env("JANGAR_TLS_CERT_FILE", &certificate)
        .output()
        .unwrap();
    let complaint = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(alone.status.code(), Some(2), "{complaint}");
    assert!(
        complaint.contains("set JANGAR_TLS_KEY_FILE as well, or neither"),
        "{complaint}"
    );
    let foreign = control_plane(home)
        .env("JANGAR_TLS_CERT_FILE", &certificate)
        .env("JANGAR_TLS_KEY_FILE", files.join("ca.key"))
        .output()
        .unwrap();
    let complaint = String::from_utf8(foreign.stderr).unwrap();
    assert_eq!(foreign.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("cannot be used together"), "{complaint}");

    let mut command = control_plane(home);
    command
        .args(["--tls-cert-file", certificate.to_str().unwrap()])
        .args(["--tls-key-file", key.to_str().unwrap()]);
    let running = Running::start(&mut command, home);
    let path = home.join("control-plane.kubeconfig");
    let server = format!("https://{}", running.address);
    let file = kubelite::kubeconfig::Kubeconfig {
        name: "control-plane",
        server: &server,
        ca_pem: identity.ca_pem(),
        token: &running.token,
        namespace: "agents",
    };
    file.write(&path).unwrap();
    let file = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/api/agents/control-plane/status")
        .body(Vec::new())
        .unwrap();
    let status: Value = client.request(request).await.unwrap();
    assert_eq!(status["tls"]["status"], "healthy", "{status}");

    assert_eq!(running.up.stop(), Some(0));
}
