//! An API server in the test's own process, served on this machine, and the program that talks to it, by itself or through a
//! control plane.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    future::IntoFuture as _,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use jangar_api::Kind;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use kubelite::{
    clock::{Clock, Ids},
    error::ApiError,
    server::{Config, LogRequest, PodLogs, Server, Token, User},
    store::{Limits, Store},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpListener,
    process::{Child, Command},
    sync::OnceCell,
};

use crate::plane::{Having, Plane};

/// When everything was made.
pub(crate) const MADE: &str = "2026-03-01T12:00:00Z";
/// When agentctl is called.
pub(crate) const NOW: &str = "2026-03-01T12:05:00Z";
pub(crate) const NAMESPACE: &str = "agents";
pub(crate) const SECRET: &str = "open-sesame";

/// A clock that stands still.
#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        MADE.parse().unwrap()
    }
}

/// The log of such a pod breaks off before its last line when it is read for the first time, and is refused the second time.
pub(crate) const BREAKS_OFF: &str = "breaks-off";

/// Every pod has written the same three lines, the last two of them at once.
#[derive(Debug, Default)]
struct Logs {
    /// How often the log of each pod that breaks off was read.
    read: Mutex<BTreeMap<String, u32>>,
}

impl PodLogs for Logs {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<Body, ApiError>> {
        let breaks = request.pod.starts_with(BREAKS_OFF) && {
            let mut read = self.read.lock().unwrap();
            let times = read
                .entry(format!("{}/{}", request.namespace, request.pod))
                .or_default();
            *times += 1;
            if *times == 2 {
                return async { Err(ApiError::bad_request("the node has just come back")) }.boxed();
            }
            *times == 1
        };
        let mut text = String::new();
        for (number, second) in [(1, 1), (2, 2), (3, 2)] {
            if breaks && number == 3 {
                continue;
            }
            if request.timestamps {
                let _ = write!(text, "2026-03-01T12:00:0{second}Z ");
            }
            let _ = writeln!(text, "line {number} of {} in {}", request.pod, request.container);
        }
        async move { Ok(Body::from(text)) }.boxed()
    }
}

/// The one API server of all tests: our kinds take longer to define than a test takes.
struct Shared {
    router: axum::Router,
    /// Here each request needs a token.
    anonymous: axum::Router,
    address: String,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

impl Shared {
    /// Starts it on a thread of its own, which lives as long as the tests do.
    async fn start() -> Self {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(Self::serve(sender));
        });
        receiver.await.unwrap()
    }

    async fn serve(started: tokio::sync::oneshot::Sender<Self>) {
        let ada = User {
            name: "ada".to_owned(),
            uid: String::new(),
            groups: vec!["system:masters".to_owned(), "leads".to_owned()],
        };
        let config = Config {
            clock: Arc::new(Stopped),
            ids: Ids::seeded(7),
            tokens: vec![Token::new(SECRET, ada)],
            logs: Some(Arc::new(Logs::default())),
            ..Config::new(Store::in_memory(Limits::default()))
        };
        let server = Server::start(config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = server.local(User::system("tester"));
        let anonymous = server.router();
        define(&Client::new(router.clone(), NAMESPACE)).await;
        let serving = axum::serve(listener, server.router()).into_future();
        assert!(
            started
                .send(Self {
                    router,
                    anonymous,
                    address
                })
                .is_ok(),
            "nobody waits for it"
        );
        serving.await.unwrap();
    }
}

async fn define(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in Kind::ALL {
        definitions
            .create(&PostParams::default(), &kind.crd())
            .await
            .unwrap();
    }
    for kind in Kind::ALL {
        let info = kind.info();
        let name = format!("{}.{}", info.plural, info.group);
        await_condition(definitions.clone(), &name, is_crd_established())
            .await
            .unwrap();
    }
}

/// A namespace of its own on the shared API server.
pub(crate) struct Cluster {
    client: Client,
    address: String,
    plane: Option<Plane>,
    /// As long as [`NAMESPACE`], which stands in its place in what is compared.
    pub(crate) namespace: &'static str,
    /// The home of whoever calls, and the files of the test.
    pub(crate) home: TempDir,
}

impl Cluster {
    /// Each test names a namespace that no other has.
    pub(crate) async fn start(namespace: &'static str) -> Self {
        assert_eq!(namespace.len(), NAMESPACE.len(), "columns would not line up");
        let shared = SHARED.get_or_init(Shared::start).await;
        let this = Self {
            client: Client::new(shared.router.clone(), namespace),
            address: shared.address.clone(),
            plane: None,
            namespace,
            home: tempfile::tempdir().unwrap(),
        };
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace.to_owned());
        Api::all(this.client.clone())
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\nclusters:\n- name: here\n  cluster: {{server: \
             'http://{}'}}\nusers:\n- name: ada\n  user: {{token: {SECRET}}}\ncontexts:\n- name: here\n  context: {{cluster: here, user: \
             ada, namespace: {namespace}}}\n",
            this.address
        );
        std::fs::write(this.path("kubeconfig"), kubeconfig).unwrap();
        this
    }

    /// The same behind a control plane, which is what the program is called to talk to.
    pub(crate) async fn behind_control_plane(namespace: &'static str) -> Self {
        Self::behind(namespace, Having::default()).await
    }

    /// Behind a control plane that has this.
    pub(crate) async fn behind(namespace: &'static str, having: Having) -> Self {
        let mut this = Self::start(namespace).await;
        let shared = SHARED.get_or_init(Shared::start).await;
        let anonymous = Client::new(shared.anonymous.clone(), namespace);
        this.plane = Some(Plane::start(&this.client, anonymous, namespace, having).await);
        this
    }

    /// One for each mode.
    pub(crate) async fn both(namespaces: [&'static str; 2]) -> [Self; 2] {
        let [kube, grpc] = namespaces;
        [Self::start(kube).await, Self::behind_control_plane(grpc).await]
    }

    pub(crate) const fn is_behind_control_plane(&self) -> bool {
        self.plane.is_some()
    }

    /// Where the control plane answers.
    pub(crate) fn control_plane(&self) -> &str {
        &self.plane.as_ref().unwrap().address
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file of the test.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |key: &str| object[key].as_str().unwrap();
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        let ours = Kind::ALL
            .iter()
            .map(|kind| kind.info())
            .find(|info| info.kind == text("kind"));
        let plural = ours.map_or_else(
            || format!("{}s", text("kind").to_ascii_lowercase()),
            |info| info.plural.clone(),
        );
        let gvk = GroupVersionKind::gvk(group, version, text("kind"));
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        Api::namespaced_with(self.client.clone(), self.namespace, &resource)
    }

    /// Creates an object with its status.
    pub(crate) async fn have(&self, mut object: Value) {
        object["metadata"]["namespace"] = json!(self.namespace);
        let api = self.api(&object);
        let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        api.create(&PostParams::default(), &new).await.unwrap();
        self.status(&object).await;
    }

    /// Deletes an object.
    pub(crate) async fn lose(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object)
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Writes the status of an object, if it has one.
    pub(crate) async fn status(&self, object: &Value) {
        if let Some(status) = object.get("status") {
            let name = object["metadata"]["name"].as_str().unwrap();
            let patch = json!({"status": status});
            self.api(object)
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap();
        }
    }

    /// An object as it is now.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Value {
        let info = kind.info();
        let like = json!({"apiVersion": format!("{}/{}", info.group, info.version), "kind": info.kind});
        serde_json::to_value(self.api(&like).get(name).await.unwrap()).unwrap()
    }

    /// The program, called as somebody with this home and this kubeconfig, or with a token for the control plane.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(self.home.path(), arguments);
        match &self.plane {
            None => command.env("KUBECONFIG", self.path("kubeconfig")),
            Some(plane) => command
                .env("AGENTCTL_MODE", "grpc")
                .env("AGENTCTL_SERVER", &plane.address)
                .env("AGENTCTL_TOKEN", SECRET)
                .env("AGENTCTL_NAMESPACE", self.namespace),
        };
        command
    }

    /// Waits until the caches of the control plane show what is there.
    pub(crate) async fn caught_up(&self) {
        if let Some(plane) = &self.plane {
            plane.caught_up(&self.client, self.namespace).await;
        }
    }

    /// What a command prints and ends with, as text.
    pub(crate) async fn transcript(&self, arguments: &[&str]) -> String {
        self.transcript_with(arguments, "").await
    }

    /// The same with something on standard input.
    pub(crate) async fn transcript_with(&self, arguments: &[&str], input: &str) -> String {
        self.caught_up().await;
        let text = transcript(self.command(arguments), arguments, input).await;
        self.masked(&text)
    }

    /// Several commands, one after the other.
    pub(crate) async fn session(&self, commands: &[&[&str]]) -> String {
        let mut text = String::new();
        for arguments in commands {
            text.push_str(&self.transcript(arguments).await);
        }
        text
    }

    /// Without what differs from one test to the next.
    pub(crate) fn masked(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(plane) = &self.plane {
            text = text.replace(&plane.address, "SERVER");
        }
        let text = text
            .replace(&self.address, "SERVER")
            .replace(self.namespace, NAMESPACE);
        masked(&text, self.home.path())
    }
}

/// Without what differs from one machine, one version or one order of writes to the next.
pub(crate) fn masked(text: &str, home: &Path) -> String {
    let text = text
        .replace(home.to_str().unwrap(), "HOME")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let mut lines = String::new();
    for line in text.lines() {
        let key = line.trim_start().trim_start_matches("- ").trim_start_matches('"');
        let is = |name: &str| {
            key.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['"', ':']))
        };
        if is("resourceVersion") || is("uid") {
            let (before, _) = line.split_once(':').unwrap();
            lines.push_str(before);
            lines.push_str(": MASKED");
        } else {
            lines.push_str(line);
        }
        lines.push('\n');
    }
    lines
}

/// The program without a kubeconfig, in an environment of its own.
pub(crate) fn bare(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentctl"));
    command
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .env("AGENTCTL_NOW", NOW)
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub(crate) async fn transcript(command: Command, arguments: &[&str], input: &str) -> String {
    let child = begun(command, input).await;
    let output = child.wait_with_output().await.unwrap();
    let mut text = format!("$ agentctl {}\n", arguments.join(" "));
    text.push_str(&String::from_utf8(output.stdout).unwrap());
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        let _ = writeln!(text, "! {line}");
    }
    let code = output.status.code().unwrap();
    let _ = writeln!(text, "= {code}\n");
    text
}

/// Starts a command and closes its standard input after what is given.
pub(crate) async fn begun(mut command: Command, input: &str) -> Child {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that reads nothing has closed it already.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    child
}

/// A run of an agent.
pub(crate) fn agent_run(name: &str, status: Value) -> Value {
    let mut run = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"team": "web"}},
        "spec": {
            "agentRef": {"name": "coder"}, "implementationSpecRef": {"name": "fix"}, "runtime": {"type": "job"},
            "parameters": {"repository": "example/adder"},
        },
    });
    if !status.is_null() {
        run["status"] = status;
    }
    run
}

/// One condition of a status.
pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-03-01T12:01:00Z"})
}

/// Runs in every phase.
pub(crate) fn runs() -> Vec<Value> {
    vec![
        agent_run("fresh", Value::Null),
        agent_run(
            "queued",
            json!({"phase": "Pending", "conditions": [
                condition("Blocked", "True", "ConcurrencyLimit", "as many runs of Agent coder are under way as may be at once, which is 5"),
                condition("Succeeded", "Unknown", "Submitted", ""),
            ], "waiting": {"scope": "agent", "name": "coder", "limit": 5}}),
        ),
        agent_run(
            "busy",
            json!({"phase": "Running", "startedAt": "2026-03-01T12:01:30Z", "conditions": [
                condition("Succeeded", "Unknown", "Running", "the agent works"),
            ]}),
        ),
        agent_run(
            "done",
            json!({"phase": "Succeeded", "startedAt": "2026-03-01T12:01:00Z", "finishedAt": "2026-03-01T12:03:30Z",
                "outcome": {"exitCode": 0, "reason": "Completed", "summary": "fixed it"},
                "conditions": [condition("Succeeded", "True", "Completed", "")]}),
        ),
        agent_run(
            "broken",
            json!({"phase": "Failed", "startedAt": "2026-03-01T12:01:00Z", "finishedAt": "2026-03-01T12:02:00Z",
            "conditions": [
                condition("Failed", "True", "JobFailed", "the agent ended with code 7"),
                condition("Succeeded", "False", "JobFailed", "the agent ended with code 7"),
            ]}),
        ),
        agent_run(
            "stopped",
            json!({"phase": "Cancelled", "finishedAt": "2026-03-01T12:02:00Z", "conditions": [
                condition("Cancelled", "True", "Cancelled", "on request"),
                condition("Succeeded", "False", "Cancelled", "on request"),
            ]}),
        ),
    ]
}

/// The agent and the work that runs refer to.
pub(crate) fn references() -> Vec<Value> {
    vec![
        json!({"apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent",
            "metadata": {"name": "coder", "namespace": NAMESPACE}, "spec": {"providerRef": {"name": "shell"}},
            "status": {"conditions": [condition("Ready", "True", "ValidSpec", "")]}}),
        json!({"apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "ImplementationSpec",
            "metadata": {"name": "fix", "namespace": NAMESPACE}, "spec": {"text": "Fix it.", "summary": "fix"}}),
    ]
}

/// A run of an orchestration, with a gate that waits.
pub(crate) fn orchestration_run() -> Value {
    let step =
        |name: &str, kind: &str, after: &[&str]| json!({"name": name, "kind": kind, "dependsOn": after});
    json!({
        "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
        "metadata": {"name": "release-1", "namespace": NAMESPACE, "labels": {"jangar.proompteng.ai/approval": "pending"}},
        "spec": {"orchestrationRef": {"name": "release"}},
        "status": {
            "phase": "Running", "startedAt": "2026-03-01T12:00:30Z",
            "conditions": [condition("Blocked", "True", "ApprovalPending", "step ship waits for an approval under ApprovalPolicy leads")],
            "definition": {"steps": [
                step("build", "AgentRun", &[]), step("test", "AgentRun", &["build"]), step("lint", "ToolRun", &["build"]),
                step("ship", "ApprovalGate", &["test", "lint"]),
            ]},
            "stepStatuses": [
                {"name": "build", "kind": "AgentRun", "phase": "Succeeded", "startedAt": "2026-03-01T12:00:30Z",
                 "finishedAt": "2026-03-01T12:01:30Z", "resourceRef": {"kind": "AgentRun", "name": "release-1-build-1"}},
                {"name": "test", "kind": "AgentRun", "phase": "Succeeded", "startedAt": "2026-03-01T12:01:30Z",
                 "finishedAt": "2026-03-01T12:02:00Z", "resourceRef": {"kind": "AgentRun", "name": "release-1-test-1"}},
                {"name": "lint", "kind": "ToolRun", "phase": "Failed", "reason": "ToolRunFailed", "message": "exit code 2"},
                {"name": "ship", "kind": "ApprovalGate", "phase": "Running", "startedAt": "2026-03-01T12:02:00Z",
                 "waitsFor": {"approvalPolicy": "leads", "digest": "0123456789abcdef"}},
            ],
        },
    })
}

/// The policy of that gate.
#[expect(
    clippy::needless_pass_by_value,
    reason = "every caller makes the value on the spot"
)]
pub(crate) fn policy(spec: Value) -> Value {
    json!({"apiVersion": "approvals.proompteng.ai/v1alpha1", "kind": "ApprovalPolicy",
        "metadata": {"name": "leads", "namespace": NAMESPACE}, "spec": spec})
}
