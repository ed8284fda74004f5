//! The control plane on a real API server: RBAC alone says who may do what, and the Role of
//! `tests/cluster/control-plane-role.yaml` is all that the control plane itself needs.

use std::collections::BTreeSet;

use jangar_api::{
    Kind,
    agents::agent_run::AgentRun,
    approvals::ApprovalPolicy,
    labels,
    orchestration::orchestration_run::{ApprovalDecision, OrchestrationRun},
};
use jangar_testkit::cluster::{Failure, until_list, until_true};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    rbac::{right_of, rights_of},
    replica::Replica,
    rights,
    stage::{Stage, beside_others},
};

/// Who the control plane is.
const ACCOUNT: &str = "jangar-control-plane";
const ROLE: &str = include_str!("../../../../tests/cluster/control-plane-role.yaml");
/// What the gate of the run shows for a decision.
const DIGEST: &str = "0123456789abcdef";

fn role() -> Result<Role, Failure> {
    Ok(serde_saphyr::from_str(ROLE)?)
}

/// The groups of all kinds.
fn groups() -> BTreeSet<&'static str> {
    Kind::ALL.iter().map(|kind| kind.info().group.as_str()).collect()
}

fn reading() -> Value {
    json!({"apiGroups": groups(), "resources": ["*"], "verbs": ["get", "list", "watch"]})
}

fn approving() -> Value {
    json!({"apiGroups": ["orchestration.proompteng.ai"], "resources": ["orchestrationruns"], "verbs": ["approve"]})
}

/// Makes a service account, if it is not there yet.
async fn account(stage: &Stage<'_>, name: &str) -> Result<(), Failure> {
    let accounts = stage.scene.api::<ServiceAccount>();
    let object: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    if accounts.get_opt(name).await?.is_none() {
        accounts.create(&PostParams::default(), &object).await?;
    }
    Ok(())
}

/// Gives an account these rights in a namespace, and waits until the API server knows.
async fn allow(stage: &Stage<'_>, name: &str, namespace: &str, rules: &Value) -> Result<(), Failure> {
    account(stage, name).await?;
    let parameters = PostParams::default();
    let role: Role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": stage.namespace()}],
    }))?;
    let admin = stage.scene.admin();
    let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
    roles.create(&parameters, &role).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(admin, namespace);
    bindings.create(&parameters, &binding).await?;
    let client = stage.scene.client(&rights::user(stage.scene, name)).await?;
    let runs: Api<AgentRun> = Api::namespaced(client, namespace);
    until_list(&runs, "", "to be readable", |_| true).await?;
    Ok(())
}

/// A control plane that answers.
struct Plane {
    replica: Replica,
    address: String,
}

impl Plane {
    async fn start(stage: &Stage<'_>, namespaces: &str) -> Result<Self, Failure> {
        let kubeconfig = stage.kubeconfig("plane", ACCOUNT, None).await?;
        let settings = stage
            .settings()
            .with("JANGAR_AGENTS_CONTROLLER_NAMESPACES", namespaces)
            .with("JANGAR_GRPC_ADDRESS", "127.0.0.1:0");
        let replica = Replica::start_control_plane("plane", &kubeconfig, &stage.scene.reports(), &settings)?;
        let mut address = None;
        until_true("the control plane to say where it answers", async || {
            let log = replica.log()?;
            let line = log
                .lines()
                .find(|line| line.contains("the control plane answers"));
            let line: Option<Value> = line.and_then(|line| serde_json::from_str(line).ok());
            address = line.and_then(|line| Some(line["address"].as_str()?.to_owned()));
            Ok::<_, Failure>(address.is_some())
        })
        .await?;
        let plane = Self {
            replica,
            address: address.ok_or("it did not say where it answers")?,
        };
        until_true("the caches to be filled", async || {
            Ok::<_, Failure>(plane.ask("", "GET /ready", &Value::Null).await?.0 == 200)
        })
        .await?;
        Ok(plane)
    }

    /// The status code and the body of an answer; an empty token is none.
    async fn ask(&self, token: &str, request: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let authorization = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let request = format!(
            "{request} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{authorization}Idempotency-Key: once\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let code = answer.split(' ').nth(1).ok_or("an answer without a status")?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("an answer without a body")?;
        let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        Ok((code.parse()?, body))
    }
}

/// Asks, and holds the answer to its status.
async fn expect(
    plane: &Plane,
    token: &str,
    request: &str,
    body: &Value,
    status: u16,
) -> Result<Value, Failure> {
    let (found, answer) = plane.ask(token, request, body).await?;
    assert_eq!(found, status, "{request}: {answer}");
    Ok(answer)
}

#[tokio::test]
async fn rbac_alone_says_who_may_do_what_through_the_control_plane() -> Result<(), Failure> {
    beside_others("control-plane", async |stage| {
        let other = format!("{}-other", stage.namespace());
        let namespaces: Api<Namespace> = Api::all(stage.scene.admin());
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": other}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let outcome = played(stage, &other).await;
        namespaces.delete(&other, &DeleteParams::default()).await?;
        outcome
    })
    .await
}

async fn played(stage: &Stage<'_>, other: &str) -> Result<(), Failure> {
    let here = stage.namespace();
    let own = serde_json::to_value(role()?.rules)?;
    for namespace in [here, other] {
        allow(stage, ACCOUNT, namespace, &own).await?;
    }
    let plane = Plane::start(stage, &format!("{here},{other}")).await?;
    unknown(stage, &plane).await?;
    limited_to_one_namespace(stage, &plane, other).await?;
    only_reading(stage, &plane).await?;
    deciding(stage, &plane).await?;
    withdrawn(stage, &plane).await?;
    assert!(plane.replica.stop().await?.success());
    needed(stage, other).await
}

async fn unknown(stage: &Stage<'_>, plane: &Plane) -> Result<(), Failure> {
    let here = stage.namespace();
    expect(plane, "", "GET /health", &Value::Null, 200).await?;
    let list = format!("GET /v1/agent-runs?namespace={here}");
    for token in ["", "nonsense"] {
        expect(plane, token, &list, &Value::Null, 401).await?;
        expect(plane, token, "POST /v1/agent-runs", &json!({}), 401).await?;
    }
    // Known to Kubernetes, but of no account that may do anything.
    account(stage, "nobody").await?;
    let nobody = rights::token(stage.scene, "nobody").await?;
    expect(plane, &nobody, &list, &Value::Null, 404).await?;
    Ok(())
}

async fn limited_to_one_namespace(stage: &Stage<'_>, plane: &Plane, other: &str) -> Result<(), Failure> {
    let here = stage.namespace();
    let rules = json!([{"apiGroups": ["agents.proompteng.ai"], "resources": ["*"],
                        "verbs": ["get", "list", "watch", "create", "patch", "delete"]}]);
    allow(stage, "editor", here, &rules).await?;
    let editor = rights::token(stage.scene, "editor").await?;
    let agent = |namespace: &str| json!({"name": "coder", "namespace": namespace, "spec": {"providerRef": {"name": "p"}}});
    expect(plane, &editor, "POST /v1/agents", &agent(here), 201).await?;
    expect(plane, &editor, "POST /v1/agents", &agent(other), 403).await?;
    let run = |namespace: &str| {
        json!({"agentRef": {"name": "coder"}, "namespace": namespace, "runtime": {"type": "job"},
               "implementation": {"text": "do it"}})
    };
    let made = expect(plane, &editor, "POST /v1/agent-runs", &run(here), 201).await?;
    let again = expect(plane, &editor, "POST /v1/agent-runs", &run(here), 200).await?;
    assert_eq!(again["agentRun"]["id"], made["agentRun"]["id"]);
    let user = rights::user(stage.scene, "editor").name();
    assert_eq!(
        made["resource"]["metadata"]["annotations"][labels::CREATED_BY],
        json!(user)
    );
    let creations = stage.scene.bench().audit(&stage.scene.admin(), &user).await?;
    let creations = creations.iter().filter(|request| {
        request.verb == "create" && request.object_ref.resource == "agentruns" && request.succeeded()
    });
    assert_eq!(creations.count(), 1, "it is made with the token of the caller");

    // What they may not see looks like what is not there.
    let absent = format!("{here}-none");
    for request in [
        "/v1/agent-runs?namespace=NAMESPACE",
        "/v1/agents/coder?namespace=NAMESPACE",
    ] {
        let request = format!("GET {request}");
        expect(
            plane,
            &editor,
            &request.replace("NAMESPACE", here),
            &Value::Null,
            200,
        )
        .await?;
        let told = async |namespace: &str| -> Result<String, Failure> {
            let request = request.replace("NAMESPACE", namespace);
            let answer = expect(plane, &editor, &request, &Value::Null, 404).await?;
            Ok(answer.to_string().replace(namespace, "NAMESPACE"))
        };
        assert_eq!(told(other).await?, told(&absent).await?);
    }
    Ok(())
}

async fn only_reading(stage: &Stage<'_>, plane: &Plane) -> Result<(), Failure> {
    let here = stage.namespace();
    allow(stage, "reader", here, &json!([reading()])).await?;
    let reader = rights::token(stage.scene, "reader").await?;
    expect(
        plane,
        &reader,
        &format!("GET /v1/agents/coder?namespace={here}"),
        &Value::Null,
        200,
    )
    .await?;
    let run = json!({"agentRef": {"name": "coder"}, "namespace": here, "runtime": {"type": "job"},
                     "implementation": {"text": "do it"}});
    expect(plane, &reader, "POST /v1/agent-runs", &run, 403).await?;
    let agent = format!("/api/agents/control-plane/resource?kind=Agent&name=coder&namespace={here}");
    expect(plane, &reader, &format!("DELETE {agent}"), &Value::Null, 403).await?;
    let status = format!("GET /api/agents/control-plane/status?namespace={here}");
    let status = expect(plane, &reader, &status, &Value::Null, 200).await?;
    assert_eq!(status["controllers"][0]["crds_ready"], json!(true), "{status}");
    for kind in Kind::ALL {
        let kind = &kind.info().kind;
        let list = format!("GET /api/agents/control-plane/resources?kind={kind}&namespace={here}");
        expect(plane, &reader, &list, &Value::Null, 200).await?;
        let one = format!("GET /api/agents/control-plane/resource?kind={kind}&name=none&namespace={here}");
        expect(plane, &reader, &one, &Value::Null, 404).await?;
    }
    Ok(())
}

async fn deciding(stage: &Stage<'_>, plane: &Plane) -> Result<(), Failure> {
    let here = stage.namespace();
    for name in ["approver", "bystander"] {
        allow(stage, name, here, &json!([reading(), approving()])).await?;
    }
    gate(stage, &["approver", "reader"]).await?;
    let approver = rights::token(stage.scene, "approver").await?;
    let list = format!("GET /v1/approvals?namespace={here}");
    until_true("the gate to be listed", async || {
        let (_, answer) = plane.ask(&approver, &list, &Value::Null).await?;
        Ok::<_, Failure>(answer["approvals"][0]["digest"] == json!(DIGEST))
    })
    .await?;
    let approve = format!("POST /v1/approvals/{here}/release/gate/approve");
    let decision = json!({"digest": DIGEST, "comment": "good"});
    // One is named by the policy and lacks the verb; the other has the verb and is not named.
    for name in ["reader", "bystander"] {
        let token = rights::token(stage.scene, name).await?;
        expect(plane, &token, &approve, &decision, 403).await?;
    }
    expect(plane, &approver, &approve, &decision, 200).await?;
    let run = stage.scene.api::<OrchestrationRun>().get("release").await?;
    let approvals = run.status.unwrap_or_default().approvals;
    assert_eq!(approvals.len(), 1, "{approvals:?}");
    assert_eq!(approvals[0].by, rights::user(stage.scene, "approver").name());
    assert_eq!(approvals[0].decision, ApprovalDecision::Approved);
    Ok(())
}

/// A run with a gate that waits for these accounts, as controllers would have left it.
async fn gate(stage: &Stage<'_>, named: &[&str]) -> Result<(), Failure> {
    let subjects: Vec<Value> = named
        .iter()
        .map(|name| json!({"kind": "User", "name": rights::user(stage.scene, name).name()}))
        .collect();
    let policy: ApprovalPolicy = serde_json::from_value(json!({
        "metadata": {"name": "release"}, "spec": {"subjects": subjects, "requiredApprovals": 1},
    }))?;
    let run: OrchestrationRun = serde_json::from_value(json!({
        "metadata": {"name": "release"}, "spec": {"orchestrationRef": {"name": "release"}},
    }))?;
    let status = json!({"status": {"phase": "Running", "stepStatuses": [
        {"name": "gate", "kind": "ApprovalGate", "phase": "Running", "startedAt": "2026-03-01T12:00:00Z",
         "waitsFor": {"approvalPolicy": "release", "digest": DIGEST}}]}});
    let scene = stage.scene;
    scene
        .api::<ApprovalPolicy>()
        .create(&PostParams::default(), &policy)
        .await?;
    let runs = scene.api::<OrchestrationRun>();
    runs.create(&PostParams::default(), &run).await?;
    runs.patch_status("release", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// A right that is taken away is missed within seconds.
async fn withdrawn(stage: &Stage<'_>, plane: &Plane) -> Result<(), Failure> {
    let reader = rights::token(stage.scene, "reader").await?;
    let list = format!("GET /v1/agent-runs?namespace={}", stage.namespace());
    expect(plane, &reader, &list, &Value::Null, 200).await?;
    stage
        .scene
        .api::<RoleBinding>()
        .delete("reader", &DeleteParams::default())
        .await?;
    until_true("the right to be gone", async || {
        Ok::<_, Failure>(plane.ask(&reader, &list, &Value::Null).await?.0 == 404)
    })
    .await
}

/// The Role was enough, and each of its rights was used.
async fn needed(stage: &Stage<'_>, other: &str) -> Result<(), Failure> {
    let user = rights::user(stage.scene, ACCOUNT).name();
    let requests = stage.scene.bench().audit(&stage.scene.admin(), &user).await?;
    let outside: Vec<_> = requests
        .iter()
        .filter(|request| ![stage.namespace(), other].contains(&request.object_ref.namespace.as_str()))
        .map(|request| &request.uri)
        .collect();
    assert!(outside.is_empty(), "it looked elsewhere: {outside:#?}");
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| matches!(request.response_status.code, 401 | 403))
        .map(|request| (&request.verb, &request.uri))
        .collect();
    assert!(refused.is_empty(), "the Role lacks something: {refused:#?}");
    let used: BTreeSet<_> = requests.iter().map(right_of).collect();
    let role = role()?;
    let granted = rights_of(&role);
    assert!(
        granted.is_subset(&used),
        "nothing needs these rights of {}: {:#?}",
        role.name_any(),
        granted.difference(&used).collect::<Vec<_>>()
    );
    Ok(())
}
