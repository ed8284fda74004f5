//! A server on disk: what survives a restart, and who is let in.
//!
//! The disk has a thread of its own, which paused time does not wait for, so time is real here and tests wait for events.

use std::path::Path;

use axum::body::Body;
use futures::future::join_all;
use http::{Request, header};
use kubelite::store::{Limits, Store};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{
    Answer, CONFIG_MAPS, DEFINITIONS, JSON, MERGE, NAMESPACES, SECRET, TestServer, WIDGETS, condition,
    config_map, definition, names, request, version, widget,
};

async fn open(directory: &Path) -> TestServer {
    TestServer::on(Store::open(&directory.join("store"), Limits::default()).unwrap()).await
}

/// Waits until an object of a collection is as it should be; `None` is an object that is gone.
async fn until(server: &TestServer, path: &str, name: &str, right: impl Fn(Option<&Value>) -> bool) {
    let mut watch = server
        .watch(&format!("{path}?fieldSelector=metadata.name%3D{name}"))
        .await;
    loop {
        let event = watch.expect().await;
        let object = (event.type_ != "DELETED").then_some(&event.object);
        if right(object) {
            return;
        }
    }
}

async fn define(server: &TestServer, definition: Value) {
    server.post(DEFINITIONS, &definition).await.created();
    until(server, DEFINITIONS, "widgets.example.com", |found| {
        let established = found.and_then(|found| condition(found, "Established"));
        established.is_some_and(|established| established["status"] == "True")
    })
    .await;
}

/// Waits for the last thing that a new server does on its own.
async fn quiet(server: &TestServer) {
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    until(server, accounts, "default", |found| found.is_some()).await;
}

#[tokio::test]
async fn restart_changes_nothing_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer", "default": 3 } } });
    let server = open(directory.path()).await;
    define(&server, definition(&spec)).await;
    for name in ["a", "b", "c"] {
        server.post(WIDGETS, &widget(name)).await.created();
    }
    let status = json!({ "status": { "phase": "Busy" } });
    server
        .patch(&format!("{WIDGETS}/a/status"), MERGE, &status)
        .await
        .ok();
    server.delete(&format!("{WIDGETS}/b")).await.ok();
    quiet(&server).await;
    let paths = [WIDGETS, DEFINITIONS, NAMESPACES, "/apis", "/apis/example.com/v1"];
    let mut before = Vec::new();
    for path in paths {
        before.push(server.get(path).await.ok());
    }
    server.server.stop().await;

    let server = open(directory.path()).await;
    // At once: the definitions are served before the first request is answered.
    assert_eq!(names(&server.get(WIDGETS).await.ok()), ["a", "c"]);
    for (path, before) in paths.iter().zip(before) {
        assert_eq!(server.get(path).await.ok(), before, "{path}");
    }
    let newest = server.version().await;
    let mut body = widget("d");
    body["spec"] = json!({});
    let fresh = server.post(WIDGETS, &body).await.created();
    assert_eq!(fresh["spec"]["size"], 3, "the schema is back too");
    assert!(version(&fresh) > newest, "versions go on where they were");
}

#[tokio::test]
async fn watch_from_before_a_restart_is_told_to_start_over() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path()).await;
    let first = version(&server.post(CONFIG_MAPS, &config_map("a")).await.created());
    server.post(CONFIG_MAPS, &config_map("b")).await.created();
    quiet(&server).await;
    let newest = server.version().await;
    server.server.stop().await;

    let server = open(directory.path()).await;
    let events = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={first}"))
        .await
        .rest()
        .await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].type_.as_str(), &events[0].object["code"]),
        ("ERROR", &json!(410))
    );
    // Who had seen everything has missed nothing.
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={newest}"))
        .await;
    server.post(CONFIG_MAPS, &config_map("c")).await.created();
    assert_eq!(watch.take(1).await, ["ADDED c"]);
}

#[tokio::test]
async fn deletion_that_a_restart_interrupts_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path()).await;
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "doomed" } }))
        .await
        .created();
    let inside = "/api/v1/namespaces/doomed/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.post(inside, &held).await.created();
    server.delete(&format!("{NAMESPACES}/doomed")).await.ok();
    server.server.stop().await;

    let server = open(directory.path()).await;
    until(&server, NAMESPACES, "doomed", |found| {
        found.is_some_and(|found| condition(found, "NamespaceContentRemaining").is_some())
    })
    .await;
    // Before it can go: whoever looks later is told nothing.
    let mut watch = server
        .watch(&format!("{NAMESPACES}?fieldSelector=metadata.name%3Ddoomed"))
        .await;
    let free = json!({ "metadata": { "finalizers": null } });
    server.patch(&format!("{inside}/held"), MERGE, &free).await.ok();
    while watch.expect().await.type_ != "DELETED" {}
    let list = server.get(NAMESPACES).await.ok();
    assert!(!names(&list).contains(&"doomed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_that_race_to_the_disk_all_land() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path()).await;
    server.post(CONFIG_MAPS, &config_map("a")).await.created();
    let router = server.server.local(kubelite::server::User::system("tester"));
    let tasks = (0..64).map(|number| {
        let router = router.clone();
        tokio::spawn(async move {
            let patch = json!({ "data": { format!("k{number}"): "x" } }).to_string();
            let request = request(http::Method::PATCH, &format!("{CONFIG_MAPS}/a"), MERGE, patch);
            Answer::read(router.oneshot(request).await.unwrap()).await.code
        })
    });
    let codes: Vec<u16> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(codes, [200; 64]);
    let object = server.get(&format!("{CONFIG_MAPS}/a")).await.ok();
    assert_eq!(object["data"].as_object().unwrap().len(), 64);
}

#[tokio::test]
async fn server_that_stopped_takes_no_writes() {
    let directory = tempfile::tempdir().unwrap();
    let server = open(directory.path()).await;
    let router = server.server.local(kubelite::server::User::system("tester"));
    server.server.stop().await;
    let post = request(http::Method::POST, CONFIG_MAPS, JSON, config_map("a").to_string());
    let answer = Answer::read(router.oneshot(post).await.unwrap()).await;
    answer.fails(503, "ServiceUnavailable");
}

#[tokio::test]
async fn caller_whom_nobody_knows_is_turned_away_everywhere() {
    let server = TestServer::start().await;
    let call = async |path: &str, credentials: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(credentials) = credentials {
            request = request.header(header::AUTHORIZATION, credentials);
        }
        let response = server
            .server
            .router()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        Answer::read(response).await
    };
    let wrong = format!("Bearer {SECRET}x");
    let scheme = format!("Basic {SECRET}");
    for path in [
        "/",
        "/version",
        "/api",
        "/apis",
        "/metrics",
        "/openapi/v3",
        NAMESPACES,
        "/nonsense",
    ] {
        for credentials in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some(wrong.as_str()),
            Some(scheme.as_str()),
        ] {
            let message = call(path, credentials).await.fails(401, "Unauthorized");
            assert_eq!(message, "Unauthorized", "{path} {credentials:?}");
        }
    }
    for credentials in [format!("Bearer {SECRET}"), format!("bearer {SECRET}")] {
        call(NAMESPACES, Some(&credentials)).await.ok();
    }
}
