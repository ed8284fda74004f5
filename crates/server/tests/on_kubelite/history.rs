//! Runs that are gone from the cluster, and a database that is away.

use futures::StreamExt;
use http::{Method, StatusCode};
use jangar_api::Kind;
use jangar_proto::v1::{
    ApplyRequest, ExplainRequest, GetRequest, ListRequest, StreamAgentRunLogsRequest,
    agentctl_service_client::AgentctlServiceClient,
};
use jangar_store::{AuditFilter, AuditOutcome, Config, NewLogTail, PageRequest, RunRecord, Store};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Request;
use tower::ServiceExt;

use crate::stage::{Arrived, HIDDEN, NAMESPACE, Stage, agent, agent_run, request};

const AT: &str = "2026-03-01T11:00:00Z";

fn at() -> Timestamp {
    AT.parse().unwrap()
}

/// A history in a file of its own.
pub(crate) fn store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/history.db", directory.path().display());
    let store = Store::open(Config::new(&url, |_| None).unwrap());
    (directory, store)
}

/// A run as the controllers write it, which has ended.
pub(crate) fn gone(kind: &str, name: &str, phase: &str, changes: &Value) -> Value {
    let (group, spec) = match kind {
        "OrchestrationRun" => ("orchestration", json!({"orchestrationRef": {"name": "release"}})),
        _ => (
            "agents",
            json!({"agentRef": {"name": "coder"}, "runtime": {"type": "job"}}),
        ),
    };
    let type_ = if phase == "Succeeded" {
        "Succeeded"
    } else {
        "Failed"
    };
    let mut run = json!({
        "apiVersion": format!("{group}.proompteng.ai/v1alpha1"), "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "resourceVersion": "7",
                     "creationTimestamp": "2026-03-01T10:00:00Z"},
        "spec": spec,
        "status": {"phase": phase, "startedAt": "2026-03-01T10:00:05Z", "finishedAt": "2026-03-01T10:01:00Z",
                   "conditions": [{"type": type_, "status": "True", "reason": "JobFailed",
                                   "message": "the program ended with exit code 3",
                                   "lastTransitionTime": "2026-03-01T10:01:00Z"}]},
    });
    for (pointer, value) in changes.as_object().unwrap() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        run.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    run
}

pub(crate) async fn remember(store: &Store, run: &Value) {
    let record = RunRecord::of(run, "default").unwrap();
    store.record(&record, at()).await.unwrap();
}

pub(crate) async fn log(store: &Store, run: &str, attempt: i64, text: &str) {
    let tail = NewLogTail {
        run_uid: format!("uid-{run}"),
        step: String::new(),
        attempt,
        pod: format!("{run}-{attempt}-pod"),
        container: "agent".to_owned(),
        text: text.to_owned(),
        cut: false,
        total_bytes: None,
        taken_at: at(),
        expires_at: "2026-04-01T00:00:00Z".parse().unwrap(),
    };
    store.record_log(&tail).await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_gone_is_read_and_explained() {
    let (_directory, store) = store();
    remember(&store, &gone("AgentRun", "fix", "Failed", &json!({}))).await;
    let hidden = json!({"/metadata/namespace": HIDDEN});
    remember(&store, &gone("AgentRun", "secret", "Failed", &hidden)).await;
    let stage = Stage::remembering(&store).await;

    for id in ["uid-fix", "fix"] {
        let (status, body) = stage
            .get("reader", &format!("/v1/runs/{id}?namespace=agents"))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(
            (&body["archived"], &body["kind"]),
            (&json!(true), &json!("agent"))
        );
        assert_eq!(body["run"]["status"], "Failed");
        assert_eq!(body["history"]["archivedAt"], AT);
        let last = body["history"]["transitions"].as_array().unwrap().last().unwrap();
        assert_eq!(last["reason"], "JobFailed", "{body}");
    }
    let (status, body) = stage.get("reader", "/v1/agent-runs/uid-fix").await;
    assert_eq!((status, &body["archived"]), (StatusCode::OK, &json!(true)));

    let (status, body) = stage.get("reader", "/v1/runs/uid-fix/explain").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let told = &body["explanation"];
    assert_eq!(
        (&told["state"], &told["reason"]),
        (&json!("failed"), &json!("JobFailed"))
    );
    assert!(
        told["headline"]
            .as_str()
            .unwrap()
            .contains("gone from the cluster"),
        "{told}"
    );
    assert!(told.to_string().contains("exit code 3"), "{told}");

    // What only the cluster could do is refused, and what others may not see is not there.
    let (status, body) = stage
        .post("submitter", "/v1/runs/uid-fix/cancel", None, json!({}))
        .await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    for path in [
        "/v1/runs/uid-secret",
        "/v1/runs/uid-secret/explain",
        "/v1/runs/uid-none",
    ] {
        let (status, body) = stage.get("reader", path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    }
}

#[tokio::test]
async fn an_orchestration_that_is_gone_is_explained_by_the_runs_of_its_steps() {
    let (_directory, store) = store();
    let owner = json!([{"apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
                        "name": "ship", "uid": "uid-ship", "controller": true}]);
    let child = json!({"/metadata/ownerReferences": owner});
    remember(&store, &gone("AgentRun", "ship-build-1", "Failed", &child)).await;
    let steps = json!({"/status/stepStatuses": [
        {"name": "build", "kind": "AgentRun", "phase": "Failed", "resourceRef":
            {"kind": "AgentRun", "name": "ship-build-1", "namespace": NAMESPACE, "uid": "uid-ship-build-1"}}]});
    remember(&store, &gone("OrchestrationRun", "ship", "Failed", &steps)).await;
    let stage = Stage::remembering(&store).await;

    let (status, body) = stage.get("reader", "/v1/runs/uid-ship/explain").await;

    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(body.to_string().contains("build"), "{body}");
    let (_, body) = stage.get("reader", "/v1/runs/uid-ship").await;
    assert_eq!(body["history"]["steps"][0]["name"], "build", "{body}");
}

#[tokio::test]
async fn of_many_runs_of_steps_those_that_failed_are_looked_at_and_that_there_are_more_is_told() {
    let (_directory, store) = store();
    let owner = json!([{"apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
                        "name": "ship", "uid": "uid-ship", "controller": true}]);
    let child = |second: usize| json!({"/metadata/ownerReferences": owner, "/metadata/creationTimestamp": format!("2026-03-01T10:01:{second:02}Z")});
    // The one that failed is the oldest of them.
    remember(&store, &gone("AgentRun", "ship-build-1", "Failed", &child(0))).await;
    for number in 2..=51 {
        let run = gone(
            "AgentRun",
            &format!("ship-build-{number}"),
            "Succeeded",
            &child(number),
        );
        remember(&store, &run).await;
    }
    let steps = json!({"/status/stepStatuses": [
        {"name": "build", "kind": "AgentRun", "phase": "Failed", "resourceRef":
            {"kind": "AgentRun", "name": "ship-build-1", "namespace": NAMESPACE, "uid": "uid-ship-build-1"}}]});
    remember(&store, &gone("OrchestrationRun", "ship", "Failed", &steps)).await;

    let (children, more) = store.children("agents", "uid-ship", 50).await.unwrap();
    assert_eq!(
        (children[0].summary.name.as_str(), children.len(), more),
        ("ship-build-1", 50, true)
    );
    assert_eq!(children[1].summary.name, "ship-build-51");
    let stage = Stage::remembering(&store).await;
    let (_, body) = stage.get("reader", "/v1/runs/uid-ship/explain").await;
    let told = body.to_string();
    assert!(
        told.contains("only 50 were looked at, those that failed first"),
        "{body}"
    );
    assert!(told.contains("exit code 3"), "{body}");
    assert!(!store.children("agents", "uid-ship", 51).await.unwrap().1);
}

#[tokio::test]
async fn the_log_of_a_run_whose_pods_are_gone_comes_from_history_for_who_may_read_logs() {
    let (_directory, store) = store();
    remember(&store, &gone("AgentRun", "fix", "Failed", &json!({}))).await;
    log(&store, "fix", 1, "first try\n").await;
    log(&store, "fix", 2, "one\ntwo\nthree\n").await;
    let stage = Stage::remembering(&store).await;

    let (status, body) = stage.get("reader", "/v1/runs/uid-fix/logs?tailLines=2").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let found = &body["log"];
    assert_eq!(
        (&found["text"], &found["pod"]),
        (&json!("two\nthree\n"), &json!("fix-2-pod"))
    );
    assert_eq!((&found["archived"], &found["cut"]), (&json!(true), &json!(true)));
    let (_, body) = stage.get("reader", "/v1/runs/uid-fix/logs?pod=fix-1-pod").await;
    assert_eq!(
        (&body["log"]["text"], &body["log"]["cut"]),
        (&json!("first try\n"), &json!(false))
    );
    let (_, body) = stage.get("reader", "/v1/runs/uid-fix/logs?follow=true").await;
    let events = body.as_str().unwrap();
    assert!(events.contains("three") && events.contains("\"end\""), "{events}");

    let (status, body) = stage.get("clerk", "/v1/runs/uid-fix/logs").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let (status, _) = stage.get("clerk", "/v1/runs/uid-fix").await;
    assert_eq!(status, StatusCode::OK, "the run itself may be seen");

    // Runs that are there, and whose pods are not, or not yet.
    let mut ended = agent_run("ended");
    ended["status"] = json!({"phase": "Succeeded"});
    stage.create(Kind::AgentRun, NAMESPACE, ended).await;
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("new")).await;
    for (name, remedy) in [
        ("ended", "history has no log of it either"),
        ("new", "has none yet"),
    ] {
        let path = format!("/v1/runs/{name}/logs?namespace=agents");
        let (status, body) = stage.get("reader", &path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
        assert!(body.to_string().contains(remedy), "{body}");
    }
}

#[tokio::test]
async fn logs_that_are_followed_at_once_have_a_bound() {
    let (_directory, store) = store();
    remember(&store, &gone("AgentRun", "fix", "Failed", &json!({}))).await;
    log(&store, "fix", 1, "one\n").await;
    let stage = Stage::remembering(&store).await;
    let open = async || {
        let path = "/v1/runs/uid-fix/logs?follow=true";
        let asked = request(Method::GET, "reader", path, None, None);
        stage.http.clone().oneshot(asked).await.unwrap()
    };
    let mut opened = Vec::new();
    for _ in 0..512 {
        let response = open().await;
        assert_eq!(response.status(), StatusCode::OK);
        opened.push(response);
    }
    assert_eq!(open().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    opened.pop();
    assert_eq!(open().await.status(), StatusCode::OK);
}

fn asked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = "Bearer token-of-reader".parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    request
}

#[tokio::test]
async fn over_grpc_a_run_that_is_gone_is_explained_and_its_log_given() {
    let (_directory, store) = store();
    remember(&store, &gone("AgentRun", "fix", "Failed", &json!({}))).await;
    log(&store, "fix", 1, "one\ntwo\n").await;
    log(&store, "fix", 2, "again\n").await;
    let stage = Stage::remembering(&store).await;
    let router = jangar_server::grpc::router(stage.plane.clone()).await.unwrap();
    let mut client = AgentctlServiceClient::new(router);

    let request = StreamAgentRunLogsRequest {
        namespace: NAMESPACE.to_owned(),
        name: "fix".to_owned(),
        follow: true,
        ..StreamAgentRunLogsRequest::default()
    };
    let lines = client.stream_agent_run_logs(asked(request)).await.unwrap();
    let lines: Vec<_> = lines.into_inner().map(Result::unwrap).collect().await;
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.message.as_str(), line.attempt, line.archived, line.cut))
        .collect();
    assert_eq!(
        told,
        [
            ("one", 1, true, false),
            ("two", 1, true, false),
            ("again", 2, true, false)
        ]
    );
    let request = StreamAgentRunLogsRequest {
        namespace: NAMESPACE.to_owned(),
        name: "fix".to_owned(),
        attempt: 1,
        tail_lines: 1,
        archived: true,
        ..StreamAgentRunLogsRequest::default()
    };
    let lines = client.stream_agent_run_logs(asked(request)).await.unwrap();
    let lines: Vec<_> = lines.into_inner().map(Result::unwrap).collect().await;
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.message.as_str(), line.pod.as_str(), line.cut))
        .collect();
    assert_eq!(
        told,
        [("two", "fix-1-pod", true)],
        "the line before it is missing"
    );

    let request = ExplainRequest {
        namespace: NAMESPACE.to_owned(),
        name: "fix".to_owned(),
    };
    let told = client
        .explain_agent_run(asked(request))
        .await
        .unwrap()
        .into_inner();
    assert!(told.text.contains("gone from the cluster"), "{}", told.text);
    assert!(told.archived);
}

#[tokio::test]
async fn over_grpc_history_is_listed_and_what_is_not_as_it_was_is_named() {
    let (_directory, store) = store();
    let secret = json!({"/spec/parameters": {"API_KEY": "hunter2", "mode": "fast"}});
    remember(&store, &gone("AgentRun", "one", "Failed", &secret)).await;
    let other = json!({"/spec/agentRef": {"name": "painter"}});
    remember(&store, &gone("AgentRun", "two", "Succeeded", &other)).await;
    let stage = Stage::remembering(&store).await;
    let router = jangar_server::grpc::router(stage.plane.clone()).await.unwrap();
    let list = async |kind: &'static str, request: ListRequest| {
        let answer = jangar_proto::call(router.clone(), kind, asked(request)).await?;
        let document: Value = serde_json::from_str(&answer.get_ref().json).unwrap();
        Ok::<_, tonic::Status>(document["items"].as_array().unwrap().clone())
    };
    let all = ListRequest {
        namespace: NAMESPACE.to_owned(),
        archived: true,
        ..ListRequest::default()
    };
    let found = list("AgentRun", all.clone()).await.unwrap();
    assert_eq!(found.len(), 2);
    let failed = ListRequest {
        phase: "Failed".to_owned(),
        subject: "coder".to_owned(),
        search: "exit code".to_owned(),
        ..all.clone()
    };
    let found = list("AgentRun", failed).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let run = &found[0];
    assert_eq!(run["metadata"]["name"], "one");
    assert_eq!(
        run["spec"],
        json!({"agentRef": {"name": "coder"}, "runtime": {"type": "job"}})
    );
    assert_eq!(run["status"]["conditions"][0]["reason"], "JobFailed");
    let refused = list("Agent", all.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let hidden = ListRequest {
        namespace: HIDDEN.to_owned(),
        ..all
    };
    let refused = list("AgentRun", hidden).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);

    let get = GetRequest {
        namespace: NAMESPACE.to_owned(),
        name: "one".to_owned(),
        archived_too: true,
    };
    let got = jangar_proto::call(router, "AgentRun", asked(get))
        .await
        .unwrap()
        .into_inner();
    assert!(got.archived && !got.cut);
    assert_eq!(got.altered, ["/spec/parameters/API_KEY"]);
}

#[tokio::test]
async fn history_is_listed_searched_and_paged() {
    let (_directory, store) = store();
    let named = |summary: &str, second: u32| {
        json!({"/metadata/creationTimestamp": format!("2026-03-01T10:00:0{second}Z"),
               "/spec/implementation": {"inline": {"text": summary}}})
    };
    remember(
        &store,
        &gone("AgentRun", "one", "Failed", &named("mend the roof", 1)),
    )
    .await;
    remember(
        &store,
        &gone("AgentRun", "two", "Succeeded", &named("paint the door", 2)),
    )
    .await;
    remember(
        &store,
        &gone("AgentRun", "three", "Failed", &named("mend the door", 3)),
    )
    .await;
    let stage = Stage::remembering(&store).await;
    let names = |body: &Value| -> Vec<String> {
        let runs = body["agentRuns"].as_array().unwrap();
        runs.iter()
            .map(|run| run["externalRunId"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = async |query: &str| {
        let path = format!("/v1/agent-runs?archived=true&namespace=agents{query}");
        stage.get("reader", &path).await
    };

    for (query, expected) in [
        ("", vec!["three", "two", "one"]),
        ("&phase=failed", vec!["three", "one"]),
        ("&search=door", vec!["three", "two"]),
        ("&search=mend%20door", vec!["three"]),
        ("&agentName=somebody", vec![]),
    ] {
        let (status, body) = list(query).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(names(&body), expected, "{query}");
    }
    let (_, first) = list("&limit=2").await;
    assert_eq!(names(&first), ["three", "two"]);
    let cursor = first["nextCursor"].as_str().unwrap();
    let (_, second) = list(&format!("&limit=2&cursor={cursor}")).await;
    assert_eq!(
        (names(&second), &second["nextCursor"]),
        (vec!["one".to_owned()], &Value::Null)
    );

    for (query, field) in [
        ("&labelSelector=a", "labelSelector"),
        ("&phase=tired", "phase"),
        ("&cursor=nonsense", "cursor"),
        ("&search=--", "search"),
    ] {
        let (status, body) = list(query).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{field}: {body}");
    }
    let (status, body) = stage
        .get("reader", "/v1/agent-runs?archived=true&namespace=hidden")
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    let without = Stage::start().await;
    let (status, body) = without
        .get("reader", "/v1/agent-runs?archived=true&namespace=agents")
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    assert!(body.to_string().contains("DATABASE_URL"), "{body}");
}

fn submission() -> Value {
    json!({"agentRef": {"name": "coder"}, "namespace": NAMESPACE, "runtime": {"type": "job"},
           "implementation": {"text": "do it"}})
}

#[tokio::test]
async fn a_key_is_remembered_after_its_run_is_gone_and_who_used_it_is_audited() {
    let (_directory, store) = store();
    let stage = Stage::remembering(&store).await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let path = "/v1/agent-runs";
    let (status, made) = stage.post("submitter", path, Some("key"), submission()).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let name = made["resource"]["metadata"]["name"].as_str().unwrap();
    stage
        .eventually(|| stage.plane.world.get(Kind::AgentRun, NAMESPACE, name).is_some())
        .await;
    let cancel = format!("/v1/runs/{name}/cancel?namespace=agents");
    let (status, body) = stage.post("reader", &cancel, None, json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");

    // The controllers write it, and it goes.
    remember(&store, &made["resource"]).await;
    let runs = stage.api(Kind::AgentRun, NAMESPACE);
    runs.delete(name, &DeleteParams::default()).await.unwrap();
    stage
        .eventually(|| stage.plane.world.get(Kind::AgentRun, NAMESPACE, name).is_none())
        .await;
    let (status, again) = stage.post("submitter", path, Some("key"), submission()).await;
    assert_eq!(status, StatusCode::OK, "{again}");
    assert_eq!(
        (&again["idempotent"], &again["agentRun"]["id"]),
        (&json!(true), &made["agentRun"]["id"])
    );
    assert!(runs.list(&ListParams::default()).await.unwrap().items.is_empty());

    let entries = async || {
        let all = AuditFilter::default();
        store
            .audit_entries(&all, &PageRequest::default())
            .await
            .unwrap()
            .items
    };
    // They are written beside the request.
    let waiting = async {
        while entries().await.len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), waiting)
        .await
        .unwrap();
    let found = entries().await;
    let told: Vec<_> = found
        .iter()
        .map(|entry| (entry.actor.as_str(), entry.action.as_str(), entry.outcome))
        .collect();
    assert_eq!(
        told,
        [
            ("reader", "agent_run.cancelled", AuditOutcome::Denied),
            ("submitter", "agent_run.created", AuditOutcome::Allowed),
        ]
    );
}

/// The entries of the audit, when there are so many: they are written beside the requests.
async fn audited(store: &Store, count: usize) -> Vec<(String, String, AuditOutcome)> {
    let waiting = async {
        loop {
            let all = AuditFilter::default();
            let found = store.audit_entries(&all, &PageRequest::default()).await.unwrap();
            if found.items.len() >= count {
                let told = found.items.into_iter();
                return told
                    .map(|entry| (entry.actor, entry.action, entry.outcome))
                    .collect();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), waiting)
        .await
        .unwrap()
}

#[tokio::test]
async fn what_somebody_began_who_hung_up_is_done_and_recorded() {
    let (_directory, store) = store();
    let stage = Stage::remembering(&store).await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let path = "/v1/agent-runs";
    let asked = request(Method::POST, "submitter", path, Some("key"), Some(submission()));
    {
        let mut answer = std::pin::pin!(stage.http.clone().oneshot(asked));
        let is_create = |arrived: &Arrived| {
            arrived.method == Method::POST
                && arrived.path.ends_with("/agentruns")
                && arrived.user == "submitter"
        };
        let begun = stage.eventually(|| stage.arrived(is_create) > 0);
        tokio::select! {
            biased;
            () = begun => {}
            // An answer that is faster than we look leaves nothing to hang up on, and has to be recorded all the same.
            _ = &mut answer => {}
        }
    }
    let entries = audited(&store, 1).await;
    let expected = (
        "submitter".to_owned(),
        "agent_run.created".to_owned(),
        AuditOutcome::Allowed,
    );
    assert_eq!(entries, [expected]);
    tokio::time::timeout(std::time::Duration::from_mins(1), stage.plane.settled())
        .await
        .unwrap();
    let key = store
        .key(jangar_store::RunKind::AgentRun, NAMESPACE, "coder", "key", at())
        .await
        .unwrap();
    assert!(key.is_some(), "the key is remembered");
}

#[tokio::test]
async fn a_submission_that_is_refused_is_recorded_and_one_that_is_repeated_is_not() {
    let (_directory, store) = store();
    let stage = Stage::remembering(&store).await;
    let path = "/v1/agent-runs";
    let (status, _) = stage.post("reader", path, Some("one"), submission()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, _) = stage.post("submitter", path, Some("two"), submission()).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "there is no such Agent");
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    for status in [StatusCode::CREATED, StatusCode::OK] {
        let (found, body) = stage.post("submitter", path, Some("three"), submission()).await;
        assert_eq!(found, status, "{body}");
    }
    let (status, _) = stage.post("reader", path, Some("four"), submission()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);

    let told: Vec<_> = audited(&store, 4)
        .await
        .into_iter()
        .map(|entry| entry.2)
        .collect();
    assert_eq!(
        told,
        [
            AuditOutcome::Denied,
            AuditOutcome::Allowed,
            AuditOutcome::Failed,
            AuditOutcome::Denied
        ]
    );
    // Who may get its path reads it over HTTP.
    let (status, body) = stage.get("admin", "/v1/audit?actor=submitter&limit=1").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let entry = &body["entries"][0];
    assert_eq!(
        (&entry["action"], &entry["outcome"]),
        (&json!("agent_run.created"), &json!("Allowed"))
    );
    assert!(body["nextCursor"].is_string(), "{body}");
    let (status, body) = stage.get("reader", "/v1/audit").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    let (status, body) = stage.get("admin", "/v1/audit?since=yesterday").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
}

#[tokio::test]
async fn what_policy_or_the_right_refuses_is_recorded_whichever_way_it_was_tried() {
    let (_directory, store) = store();
    let stage = Stage::remembering(&store).await;
    let agent = json!({"name": "coder", "namespace": NAMESPACE,
        "spec": {"providerRef": {"name": "p"}, "security": {"allowedSecrets": ["token"]}}});
    let orchestration = json!({"name": "release", "namespace": NAMESPACE, "spec": {"steps": [
        {"name": "build", "kind": "AgentRun", "agentRef": {"name": "coder"},
         "implementationSpecRef": {"name": "work"}}]}});
    let told = |entries: Vec<(String, String, AuditOutcome)>| {
        let latest = entries.into_iter().next().unwrap();
        (latest.1, latest.2)
    };
    let denied = |action: &str| (action.to_owned(), AuditOutcome::Denied);
    for (number, (user, path, body)) in [
        ("submitter", "/v1/agents", agent),
        ("reader", "/v1/orchestrations", orchestration),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, body) = stage.post(user, path, Some("k"), body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
        assert_eq!(
            told(audited(&store, number + 1).await),
            denied("object.applied"),
            "{path}"
        );
    }
    let mut run = agent_run("r");
    run["apiVersion"] = json!("agents.proompteng.ai/v1alpha1");
    run["kind"] = json!("AgentRun");
    let apply = ApplyRequest {
        namespace: NAMESPACE.to_owned(),
        manifest_yaml: run.to_string(),
        ..ApplyRequest::default()
    };
    let router = crate::grpc::serve(&stage).await;
    let refused = jangar_proto::call(router, "AgentRun", crate::grpc::asked("reader", apply)).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::PermissionDenied);
    assert_eq!(told(audited(&store, 3).await), denied("object.applied"));

    let tool = json!({"metadata": {"name": "t"}, "spec": {"toolRef": {"name": "lint"}},
                      "status": {"phase": "Succeeded"}});
    stage.create(Kind::ToolRun, NAMESPACE, tool).await;
    let path = "/v1/runs/t/retry?namespace=agents";
    let (status, body) = stage.post("submitter", path, Some("k"), json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(
        told(audited(&store, 4).await),
        ("tool_run.retried".to_owned(), AuditOutcome::Allowed)
    );
}

#[tokio::test]
async fn a_database_that_is_away_stops_nothing_but_history() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/none/history.db", directory.path().display());
    let store = Store::open(Config::new(&url, |_| None).unwrap());
    let stage = Stage::remembering(&store).await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;

    let (status, made) = stage
        .post("submitter", "/v1/agent-runs", Some("key"), submission())
        .await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let uid = made["agentRun"]["id"].as_str().unwrap();
    stage
        .eventually(|| stage.plane.world.by_uid(Kind::AgentRun, uid).is_some())
        .await;
    for path in [format!("/v1/runs/{uid}"), format!("/v1/runs/{uid}/explain")] {
        let (status, body) = stage.get("reader", &path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    let hidden = stage.create(Kind::AgentRun, HIDDEN, agent_run("secret")).await;
    let hidden = format!("/v1/runs/{}", hidden["metadata"]["uid"].as_str().unwrap());
    for path in [
        "/v1/runs/uid-fix",
        // Whoever may not see it cannot tell it from one that nobody has.
        &hidden,
        "/v1/agent-runs?archived=true&namespace=agents",
    ] {
        let (status, body) = stage.get("reader", path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        assert!(body.to_string().contains("the history cannot be read"), "{body}");
    }
    stage.eventually(|| stage.plane.history_is_away()).await;
    let (status, body) = stage.get("", "/ready").await;
    assert_eq!(status, StatusCode::OK);
    let notes = body["notes"].as_array().unwrap();
    assert_eq!((&body["status"], notes.len()), (&json!("ready"), 1), "{body}");
    assert!(
        notes[0].as_str().unwrap().contains("does not answer") && !body.to_string().contains("sqlite"),
        "{body}"
    );
    let (_, body) = stage
        .get("reader", "/api/agents/control-plane/status?namespace=agents")
        .await;
    let database = &body["database"];
    assert_eq!(
        (
            &database["configured"],
            &database["connected"],
            &database["status"]
        ),
        (&json!(true), &json!(false), &json!("degraded")),
        "{body}"
    );
}
