//! Gates: who sees them, who decides them, and what is written.

use http::StatusCode;
use jangar_api::{Kind, labels};
use jangar_proto::v1::{ListApprovalsRequest, agentctl_service_client::AgentctlServiceClient};
use serde_json::{Value, json};

use crate::{
    grpc::{asked, serve},
    stage::{NAMESPACE, Stage},
};

const GATE: &str = "/v1/approvals/agents/r/gate";

pub(crate) async fn stage() -> Stage {
    let stage = Stage::start().await;
    let policy = json!({"metadata": {"name": "release"}, "spec": {
        "subjects": [{"kind": "User", "name": "approver"}], "requiredApprovals": 2}});
    stage.create(Kind::ApprovalPolicy, NAMESPACE, policy).await;
    let run = json!({
        "metadata": {"name": "r", "annotations": {labels::CREATED_BY: "submitter"}},
        "spec": {"orchestrationRef": {"name": "o"}, "parameters": {"region": "north"}},
        "status": {"phase": "Running", "definition": {"steps": [
            {"name": "build", "kind": "Checkpoint"},
            {"name": "gate", "kind": "ApprovalGate", "policyRef": "release"}]}, "stepStatuses": [
            {"name": "build", "kind": "Checkpoint", "phase": "Succeeded", "outputs": {"image": "app:1"}},
            {"name": "gate", "kind": "ApprovalGate", "phase": "Running", "startedAt": "2026-03-01T12:00:00Z",
             "waitsFor": {"approvalPolicy": "release", "digest": "d1", "with": {"image": "app:1"}}}]},
    });
    stage.create(Kind::OrchestrationRun, NAMESPACE, run).await;
    stage
}

fn digest(digest: &str) -> Value {
    json!({"digest": digest, "comment": "looks good"})
}

#[tokio::test]
async fn gates_that_wait_are_listed_with_what_a_decision_needs() {
    let stage = stage().await;
    let (status, body) = stage.get("reader", "/v1/approvals?namespace=agents").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let gate = &body["approvals"][0];
    assert_eq!(body["approvals"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&gate["run"], &gate["step"], &gate["digest"]),
        (&json!("r"), &json!("gate"), &json!("d1"))
    );
    assert_eq!(
        (&gate["required"], &gate["createdBy"]),
        (&json!(2), &json!("submitter"))
    );
    assert_eq!(
        gate["shown"],
        json!({"with": {"image": "app:1"}, "parameters": {"region": "north"},
               "steps": [{"name": "build", "phase": "Succeeded", "outputs": {"image": "app:1"}}]}),
        "all that the digest covers"
    );
}

#[tokio::test]
async fn a_run_that_cannot_be_read_hides_no_others_and_is_told_of() {
    let stage = stage().await;
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"orchestrationRef": {"name": "o"}},
                     "status": {"phase": "Running", "stepStatuses": "later"}});
    stage.create(Kind::OrchestrationRun, NAMESPACE, odd).await;
    let (status, body) = stage.get("reader", "/v1/approvals?namespace=agents").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["approvals"][0]["run"], "r");
    let unreadable = &body["unreadable"][0];
    assert_eq!(
        (&unreadable["namespace"], &unreadable["run"]),
        (&json!(NAMESPACE), &json!("odd"))
    );
    assert!(unreadable["error"].as_str().unwrap().contains("later"), "{body}");
    assert_eq!(body["nextCursor"], Value::Null);
}

#[tokio::test]
async fn gates_come_in_pages_that_part_no_run_and_leave_out_none() {
    let stage = stage().await;
    let gate = |step: &str| {
        json!({"name": step, "kind": "ApprovalGate", "phase": "Running",
               "waitsFor": {"approvalPolicy": "release", "digest": format!("d-{step}")}})
    };
    let run = |name: &str, steps: Value| {
        json!({"metadata": {"name": name}, "spec": {"orchestrationRef": {"name": "o"}},
               "status": {"phase": "Running", "stepStatuses": steps}})
    };
    for (name, steps) in [
        ("both", json!([gate("one"), gate("two")])),
        ("last", json!([gate("one")])),
        (
            "none",
            json!([{"name": "work", "kind": "AgentRun", "phase": "Running"}]),
        ),
        ("odd", json!("later")),
    ] {
        stage
            .create(Kind::OrchestrationRun, NAMESPACE, run(name, steps))
            .await;
    }
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/v1/approvals?namespace=agents&limit=1{cursor}");
        let (status, body) = stage.get("reader", &path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        pages += 1;
        for list in ["approvals", "unreadable"] {
            let runs = body[list].as_array().unwrap().iter();
            seen.extend(runs.map(|gate| format!("{} {}", gate["run"], gate["step"])));
        }
        match body["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    let expected = [
        "\"both\" \"one\"",
        "\"both\" \"two\"",
        "\"last\" \"one\"",
        "\"odd\" null",
        "\"r\" \"gate\"",
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        pages, 4,
        "a page for each run that has something, and none for the one without gates"
    );
    for wrong in ["limit=501", "cursor=x"] {
        let (status, body) = stage
            .get("reader", &format!("/v1/approvals?namespace=agents&{wrong}"))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    let mut client = AgentctlServiceClient::new(serve(&stage).await);
    let (mut gates, mut unreadable, mut request) = (
        0,
        0,
        ListApprovalsRequest {
            namespace: NAMESPACE.to_owned(),
            limit: 2,
            ..ListApprovalsRequest::default()
        },
    );
    loop {
        let page = client.list_approvals(asked("reader", request.clone())).await;
        let page = page.unwrap().into_inner();
        gates += page.approvals.len();
        unreadable += page.unreadable.len();
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!((gates, unreadable), (4, 1));
}

#[tokio::test]
async fn whoever_only_counts_gates_is_not_told_what_they_show() {
    let stage = stage().await;
    let client = AgentctlServiceClient::new(serve(&stage).await);
    let shown = async |brief| {
        let request = ListApprovalsRequest {
            namespace: NAMESPACE.to_owned(),
            brief,
            ..ListApprovalsRequest::default()
        };
        let page = client.clone().list_approvals(asked("reader", request)).await;
        let gates = page.unwrap().into_inner().approvals;
        (gates.len(), gates.iter().any(|gate| !gate.shown_json.is_empty()))
    };
    assert_eq!((shown(false).await, shown(true).await), ((1, true), (1, false)));
}

#[tokio::test]
async fn whoever_holds_the_verb_and_is_named_decides_and_the_control_plane_writes_it() {
    let stage = stage().await;
    let (status, body) = stage
        .post("approver", &format!("{GATE}/approve"), None, digest("d1"))
        .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let run = stage
        .api(Kind::OrchestrationRun, NAMESPACE)
        .get("r")
        .await
        .unwrap();
    let approvals = &run.data["status"]["approvals"];
    assert_eq!(
        approvals[0],
        json!({"step": "gate", "policy": "release", "decision": "Approved", "by": "approver", "at": "2026-03-01T12:00:00Z",
               "comment": "looks good", "digest": "d1"})
    );
    assert_eq!(
        run.data["status"]["stepStatuses"].as_array().unwrap().len(),
        2,
        "the rest stays"
    );
    let written =
        |user: &str| stage.arrived(|arrived| arrived.user == user && arrived.path.ends_with("/r/status"));
    assert_eq!((written("own"), written("approver")), (1, 0));
    let (status, _) = stage
        .post("approver", &format!("{GATE}/reject"), None, digest("d1"))
        .await;
    assert_eq!(status, StatusCode::OK);
    let run = stage
        .api(Kind::OrchestrationRun, NAMESPACE)
        .get("r")
        .await
        .unwrap();
    let approvals = run.data["status"]["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), 1, "a later decision replaces the earlier one");
    assert_eq!(approvals[0]["decision"], "Denied");
}

#[tokio::test]
async fn whoever_lacks_the_verb_or_the_name_does_not_decide() {
    let stage = stage().await;
    for (user, step, digest_given, expected) in [
        ("reader", "gate", "d1", StatusCode::FORBIDDEN),
        ("stranger", "gate", "d1", StatusCode::FORBIDDEN),
        ("approver", "gate", "d0", StatusCode::CONFLICT),
        ("approver", "build", "d1", StatusCode::CONFLICT),
        ("approver", "gate", "", StatusCode::BAD_REQUEST),
    ] {
        let path = format!("/v1/approvals/agents/r/{step}/approve");
        let (status, body) = stage.post(user, &path, None, digest(digest_given)).await;
        assert_eq!(status, expected, "{user} {step} {digest_given}: {body}");
    }
    let hidden = "/v1/approvals/hidden/r/gate/approve";
    let (status, _) = stage.post("approver", hidden, None, digest("d1")).await;
    assert_eq!(
        status,
        StatusCode::NOT_FOUND,
        "who may not see it learns nothing of it"
    );
    let run = stage
        .api(Kind::OrchestrationRun, NAMESPACE)
        .get("r")
        .await
        .unwrap();
    assert!(run.data["status"].get("approvals").is_none());
}
