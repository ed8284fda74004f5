//! Deliveries of webhooks: who may send them, what becomes of them, and what does not.

use std::{fmt::Write as _, time::Duration};

use axum::{Router, body::Body};
use futures::future::join_all;
use http::{Method, Request, StatusCode, header};
use jangar_api::{Kind, labels};
use jangar_store::{Config, PageRequest, Store};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::stage::{NAMESPACE, START, Stage, call};

pub(crate) const SECRET: &str = "a secret of at least sixteen bytes";
pub(crate) const GITHUB: &str = "/api/agents/implementation-sources/webhooks/github";
pub(crate) const LINEAR: &str = "/api/agents/implementation-sources/webhooks/linear";
const NAME: &str = "team-app-7-impl";

pub(crate) fn signature(secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut text = String::new();
    for byte in hmac::sign(&key, body).as_ref() {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// A delivery of GitHub, signed with a secret.
fn github(secret: &str, id: &str, body: &str) -> Request<Body> {
    let signature = signature(secret, body.as_bytes());
    Request::builder()
        .method(Method::POST)
        .uri(GITHUB)
        .header(header::CONTENT_TYPE, "application/json")
        .header("X-GitHub-Event", "issues")
        .header("X-GitHub-Delivery", id)
        .header("X-Hub-Signature-256", format!("sha256={signature}"))
        .body(Body::from(body.to_owned()))
        .unwrap()
}

fn linear(secret: &str, body: &str) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(LINEAR)
        .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
        .header("Linear-Event", "Issue")
        .header("Linear-Delivery", "d-1")
        .header("Linear-Signature", signature(secret, body.as_bytes()))
        .body(Body::from(body.to_owned()))
        .unwrap()
}

/// An issue as it is after so many edits.
pub(crate) fn issue(edits: u32) -> Value {
    json!({
        "action": "edited",
        "issue": {
            "number": 7, "title": "Add two numbers", "body": format!("edit {edits}"), "state": "open",
            "labels": [{"name": "agent"}], "html_url": "https://github.com/team/app/issues/7",
            "updated_at": format!("2026-03-01T11:00:{edits:02}Z"),
        },
        "repository": {"full_name": "team/app"},
    })
}

/// An issue of Linear that was sent at this time.
pub(crate) fn linear_issue(sent: i64) -> Value {
    json!({
        "action": "create", "type": "Issue", "organizationId": "o", "webhookTimestamp": sent,
        "data": {"id": "x", "identifier": "ENG-7", "title": "Add", "updatedAt": "2026-03-01T11:59:00.500Z",
                 "team": {"key": "ENG"}, "labels": []},
    })
}

fn source(provider: &str, scope: &Value) -> Value {
    json!({"metadata": {"name": provider}, "spec": {
        "provider": provider, "auth": {"secretRef": {"name": "hooks"}}, "scope": scope, "webhook": {"enabled": true}}})
}

async fn secret(stage: &Stage, value: &str) {
    let mut secret = Secret::default();
    secret.metadata.name = Some("hooks".to_owned());
    let value = ByteString(value.as_bytes().to_vec());
    secret.data = Some([("token".to_owned(), value)].into());
    let secrets: Api<Secret> = Api::namespaced(stage.admin.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

/// A stage with a source of GitHub for `team/app` and its secret.
async fn stage() -> Stage {
    with(Stage::start().await).await
}

/// A source of Linear for one team, which shares the secret.
pub(crate) async fn with_linear(stage: Stage) -> Stage {
    let scope = json!({"team": "ENG"});
    stage
        .create(Kind::ImplementationSource, NAMESPACE, source("linear", &scope))
        .await;
    stage
}

pub(crate) async fn with(stage: Stage) -> Stage {
    secret(&stage, SECRET).await;
    let scope = json!({"repository": "Team/App", "labels": ["agent"]});
    stage
        .create(Kind::ImplementationSource, NAMESPACE, source("github", &scope))
        .await;
    stage
}

async fn spec(stage: &Stage, name: &str) -> Option<Value> {
    let api: Api<DynamicObject> = stage.api(Kind::ImplementationSpec, NAMESPACE);
    let found = api.get_opt(name).await.unwrap();
    found.map(|found| serde_json::to_value(&found).unwrap())
}

async fn source_status(stage: &Stage, name: &str) -> Value {
    let found = stage.api(Kind::ImplementationSource, NAMESPACE).get(name).await;
    serde_json::to_value(found.unwrap()).unwrap()["status"].clone()
}

fn condition<'s>(status: &'s Value, type_: &str) -> &'s Value {
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    found.unwrap_or(&Value::Null)
}

async fn send(router: &Router, id: &str, payload: &Value) -> (StatusCode, Value) {
    call(router, github(SECRET, id, &payload.to_string())).await
}

#[tokio::test]
async fn a_signed_issue_becomes_a_spec_and_the_source_says_so() {
    let stage = stage().await;
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(
        body,
        json!({"ok": true, "queued": 1, "deduped": 0, "synced": 1, "outdated": 0})
    );
    let spec = spec(&stage, NAME).await.unwrap();
    assert_eq!(
        spec["spec"],
        json!({
            "text": "edit 1", "summary": "Add two numbers", "labels": ["agent"],
            "source": {"provider": "github", "externalId": "team/app#7", "url": "https://github.com/team/app/issues/7"},
        })
    );
    assert_eq!(spec["metadata"]["labels"][labels::SOURCE_PROVIDER], "github");
    assert_eq!(
        (&spec["status"]["sourceVersion"], &spec["status"]["syncedAt"]),
        (&json!("2026-03-01T11:00:01Z"), &json!(START))
    );
    let status = source_status(&stage, "github").await;
    assert_eq!(condition(&status, "Ready")["reason"], "WebhookSynced");
    assert_eq!(status["lastSyncedAt"], START);
    assert_eq!(
        status["lastWebhook"],
        json!({
            "attempts": 1, "deliveryId": "d-1", "externalId": "team/app#7", "idempotencyKey": "github:d-1",
            "processedAt": START, "provider": "github", "receivedAt": START,
            "sourceVersion": "2026-03-01T11:00:01Z", "status": "synced",
        })
    );
}

#[tokio::test]
async fn what_is_not_signed_by_a_source_is_refused_before_it_is_read() {
    let stage = stage().await;
    let wrong = call(
        &stage.http,
        github("another secret of sixteen bytes", "d", "not even JSON"),
    )
    .await;
    assert_eq!(wrong.0, StatusCode::UNAUTHORIZED, "{}", wrong.1);
    // Whether there is a source is not told either.
    let nobody = call(&stage.http, linear(SECRET, "{}")).await;
    assert_eq!(nobody.0, StatusCode::UNAUTHORIZED, "{}", nobody.1);
    assert_eq!(
        nobody.1["error"].as_str().unwrap().replace("Linear", "GitHub"),
        wrong.1["error"].as_str().unwrap()
    );
    let mut changed = github(SECRET, "d", &issue(1).to_string());
    *changed.body_mut() = Body::from(issue(2).to_string());
    assert_eq!(call(&stage.http, changed).await.0, StatusCode::UNAUTHORIZED);
    let mut huge = github(SECRET, "d", "{}");
    *huge.body_mut() = Body::from("a".repeat(1024 * 1024 + 1));
    assert_eq!(call(&stage.http, huge).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let mut form = github(SECRET, "d", "{}");
    let urlencoded = header::HeaderValue::from_static("application/x-www-form-urlencoded");
    form.headers_mut().insert(header::CONTENT_TYPE, urlencoded);
    assert_eq!(
        call(&stage.http, form).await.0,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    assert_eq!(spec(&stage, NAME).await, None);
    assert!(source_status(&stage, "github").await.is_null());
}

#[tokio::test]
async fn an_older_version_never_takes_the_place_of_a_newer_one_on_any_replica() {
    let stage = stage().await;
    let (other, _watches) = stage.replica().await;
    // 7 and 20 have no common factor, so that every version comes once, and in no order.
    let versions: Vec<u32> = (0..20).map(|step| (step * 7) % 20).collect();
    let sent = versions.iter().map(|version| {
        let router = if version.is_multiple_of(3) {
            &other
        } else {
            &stage.http
        };
        let payload = issue(*version);
        async move {
            // Whoever sends repeats what was not taken in.
            loop {
                let (status, body) = send(router, &format!("d-{version}"), &payload).await;
                match status {
                    StatusCode::OK => return body,
                    StatusCode::SERVICE_UNAVAILABLE => {}
                    other => panic!("{other} {body}"),
                }
            }
        }
    });
    let answers = join_all(sent).await;
    assert!(
        answers.iter().all(|body| body["ok"] == json!(true)),
        "{answers:?}"
    );
    let after = spec(&stage, NAME).await.unwrap();
    assert_eq!(after["spec"]["text"], "edit 19");
    assert_eq!(after["status"]["sourceVersion"], "2026-03-01T11:00:19Z");
    let (_, body) = send(&stage.http, "late", &issue(3)).await;
    assert_eq!(
        (&body["synced"], &body["outdated"]),
        (&json!(0), &json!(1)),
        "{body}"
    );
    assert_eq!(spec(&stage, NAME).await, Some(after));
}

#[tokio::test]
async fn history_tells_what_came_of_a_delivery() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/history.db", directory.path().display());
    let store = Store::open(Config::new(&url, |_| None).unwrap());
    let stage = with(Stage::remembering(&store).await).await;
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let source = format!("{NAMESPACE}/github");
    // It is noted after the answer.
    let noted = async {
        loop {
            let page = store.deliveries(&source, &PageRequest::default()).await.unwrap();
            if let Some(delivery) = page.items.into_iter().next() {
                return delivery;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let delivery = tokio::time::timeout(Duration::from_mins(1), noted).await.unwrap();
    assert_eq!(
        (
            delivery.delivery_id.as_str(),
            delivery.provider.as_str(),
            delivery.state.as_str()
        ),
        ("d-1", "github", "synced")
    );
    assert_eq!((delivery.attempts, delivery.error), (1, None));
}

#[tokio::test]
async fn a_repeated_delivery_writes_nothing() {
    let stage = stage().await;
    assert_eq!(send(&stage.http, "d-1", &issue(1)).await.0, StatusCode::OK);
    let writes = || stage.arrived(|arrived| arrived.method != Method::GET && arrived.user == "own");
    let before = writes();
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&body["queued"], &body["deduped"]),
        (&json!(0), &json!(1)),
        "{body}"
    );
    assert_eq!(writes(), before);
    // The same id for another body is another delivery: nobody vouches for headers.
    let (_, body) = send(&stage.http, "d-1", &issue(2)).await;
    assert_eq!(body["synced"], json!(1), "{body}");
}

#[tokio::test]
async fn what_is_closed_or_out_of_scope_is_answered_well_and_makes_nothing() {
    let stage = stage().await;
    let mut closed = issue(1);
    closed["action"] = json!("closed");
    let mut elsewhere = issue(1);
    elsewhere["repository"]["full_name"] = json!("team/other");
    let mut unlabelled = issue(1);
    unlabelled["issue"]["labels"] = json!([]);
    for payload in [closed, elsewhere, unlabelled] {
        let (status, body) = send(&stage.http, "d", &payload).await;
        assert_eq!(
            (status, &body["ignored"]),
            (StatusCode::OK, &json!(true)),
            "{body}"
        );
        assert!(body["reason"].is_string());
    }
    let specs = stage.api(Kind::ImplementationSpec, NAMESPACE);
    let specs = specs.list(&ListParams::default()).await.unwrap();
    assert!(specs.items.is_empty());
}

#[tokio::test]
async fn what_people_add_to_the_spec_stays_theirs() {
    let stage = stage().await;
    let mut first = issue(1);
    first["issue"]["labels"] = json!([{"name": "agent"}, {"name": "soon"}]);
    assert_eq!(send(&stage.http, "d-1", &first).await.0, StatusCode::OK);
    let patch = json!({"spec": {"acceptanceCriteria": ["it adds"], "text": "mine"}});
    stage
        .api(Kind::ImplementationSpec, NAMESPACE)
        .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let mut second = issue(2);
    second["issue"]["html_url"] = Value::Null;
    assert_eq!(send(&stage.http, "d-2", &second).await.0, StatusCode::OK);
    let spec = spec(&stage, NAME).await.unwrap();
    assert_eq!(spec["spec"]["acceptanceCriteria"], json!(["it adds"]));
    assert_eq!(
        spec["spec"]["text"], "edit 2",
        "the issue says what is to be done"
    );
    assert_eq!(spec["spec"]["labels"], json!(["agent"]));
    assert_eq!(
        spec["spec"]["source"].get("url"),
        None,
        "what goes from the issue goes"
    );
}

#[tokio::test]
async fn a_spec_of_something_else_is_not_overwritten() {
    let stage = stage().await;
    let manual = json!({"metadata": {"name": NAME}, "spec": {"text": "by hand"}});
    stage.create(Kind::ImplementationSpec, NAMESPACE, manual).await;
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let kept = spec(&stage, NAME).await.unwrap();
    assert_eq!(kept["spec"], json!({"text": "by hand"}));
    let status = source_status(&stage, "github").await;
    assert_eq!(condition(&status, "Error")["reason"], "WebhookFailed");
    assert_eq!(status["lastWebhook"]["status"], "failed");
}

#[tokio::test]
async fn what_cannot_be_written_is_told_and_works_when_it_is_sent_again() {
    let stage = with(
        Stage::with(|settings| {
            settings.webhooks.pause_first = Duration::ZERO;
            settings.webhooks.attempts = 2;
        })
        .await,
    )
    .await;
    stage
        .denied
        .lock()
        .unwrap()
        .push(("create", "implementationspecs"));
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(
        body["error"]
            .as_str()
            .unwrap()
            .contains("give its account the verbs"),
        "{body}"
    );
    let creates = || {
        stage.arrived(|arrived| {
            arrived.method == Method::POST && arrived.path.ends_with("/implementationspecs")
        })
    };
    stage.eventually(|| creates() == 2).await;
    let given_up = || {
        let seen = stage
            .plane
            .world
            .get(Kind::ImplementationSource, NAMESPACE, "github");
        seen.is_some_and(|seen| {
            seen.json["status"]["lastWebhook"]["status"] == "failed"
                && condition(&seen.json["status"], "Error")["reason"] == "WebhookRetryDropped"
        })
    };
    stage.eventually(given_up).await;
    stage.denied.lock().unwrap().clear();
    let (status, body) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!((status, &body["synced"]), (StatusCode::OK, &json!(1)), "{body}");
    let status = source_status(&stage, "github").await;
    assert_eq!(condition(&status, "Error")["status"], "False");
    assert_eq!(status["lastWebhook"].get("error"), None);
}

#[tokio::test]
async fn a_full_queue_sends_away_until_there_is_room() {
    let stage = with(
        Stage::with(|settings| {
            settings.webhooks.queue_size = 1;
            settings.webhooks.pause_first = Duration::from_hours(1);
            settings.webhooks.pause_most = Duration::from_hours(1);
        })
        .await,
    )
    .await;
    stage
        .denied
        .lock()
        .unwrap()
        .push(("create", "implementationspecs"));
    // This one holds the only place until its next attempt.
    let (status, _) = send(&stage.http, "d-1", &issue(1)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    stage.denied.lock().unwrap().clear();
    let request = github(SECRET, "d-2", &issue(2).to_string());
    let response = stage.http.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()[header::RETRY_AFTER], "15");
    assert_eq!(spec(&stage, NAME).await, None);
}

#[tokio::test]
async fn a_source_that_cannot_check_deliveries_says_why() {
    for (value, reason) in [(None, "SecretNotFound"), (Some("short"), "SecretKeyMissing")] {
        let stage = Stage::start().await;
        if let Some(value) = value {
            secret(&stage, value).await;
        }
        stage
            .create(
                Kind::ImplementationSource,
                NAMESPACE,
                source("github", &json!({})),
            )
            .await;
        let body = issue(1).to_string();
        let (status, _) = call(&stage.http, github(value.unwrap_or(SECRET), "d", &body)).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{reason}");
        let status = source_status(&stage, "github").await;
        let ready = condition(&status, "Ready");
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!(reason))
        );
        assert!(!status.to_string().contains("short"), "{status}");
        // Anybody can send rubbish, and that does not ask the API server each time.
        let reads = || stage.arrived(|arrived| arrived.path.contains("/secrets/"));
        let before = reads();
        call(&stage.http, github(SECRET, "d", &body)).await;
        assert_eq!(reads(), before);
    }
}

#[tokio::test]
async fn linear_has_to_be_of_now_and_old_deliveries_are_told() {
    let stage = Stage::start().await;
    secret(&stage, SECRET).await;
    let stage = with_linear(stage).await;
    let now: Timestamp = START.parse().unwrap();
    let payload = |sent: i64| linear_issue(sent).to_string();
    let old = payload(now.as_millisecond() - 61_000);
    let (status, body) = call(&stage.http, linear(SECRET, &old)).await;
    assert_eq!(
        (status, &body["details"]["field"]),
        (StatusCode::BAD_REQUEST, &json!("webhookTimestamp")),
        "{body}"
    );
    let told = source_status(&stage, "linear").await;
    assert_eq!(condition(&told, "Error")["reason"], "InvalidPayload");
    let (status, body) = call(&stage.http, linear(SECRET, &payload(now.as_millisecond()))).await;
    assert_eq!((status, &body["synced"]), (StatusCode::OK, &json!(1)), "{body}");
    let spec = spec(&stage, "linear-eng-7-impl").await.unwrap();
    assert_eq!(spec["spec"]["source"]["externalId"], "ENG-7");
    assert_eq!(spec["spec"]["text"], "Add");
}
