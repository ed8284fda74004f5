//! Watches: where they begin, what they tell, and how they end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAPS, MERGE, NAMESPACES, PODS, TestServer, config_map, definition, name, pod, sized, version,
    widget,
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

impl TestServer {
    /// Makes ConfigMaps and returns their versions.
    async fn fill<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let mut versions = [0; N];
        for (slot, name) in versions.iter_mut().zip(names) {
            *slot = version(&self.post(CONFIG_MAPS, &config_map(name)).await.created());
        }
        versions
    }

    async fn label(&self, name: &str, colour: &str) -> u64 {
        let patch = json!({ "metadata": { "labels": { "colour": colour } } });
        version(
            &self
                .patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &patch)
                .await
                .ok(),
        )
    }

    async fn remove(&self, name: &str) {
        self.delete(&format!("{CONFIG_MAPS}/{name}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_version_begins_with_what_is_there() {
    let server = TestServer::start().await;
    server.fill(["b", "a"]).await;
    for query in [
        "timeoutSeconds=1",
        "timeoutSeconds=1&resourceVersion=0",
        "timeoutSeconds=1&resourceVersion=",
    ] {
        let seen = server
            .watch(&format!("{CONFIG_MAPS}?{query}"))
            .await
            .summaries()
            .await;
        assert_eq!(seen, ["ADDED a", "ADDED b"], "{query}");
    }
    let mut watch = server.watch(CONFIG_MAPS).await;
    server.fill(["c"]).await;
    server.remove("a").await;
    assert_eq!(
        watch.take(4).await,
        ["ADDED a", "ADDED b", "ADDED c", "DELETED a"]
    );
}

#[tokio::test(start_paused = true)]
async fn watch_goes_on_after_any_version_without_loss_or_repetition() {
    let server = TestServer::start().await;
    server.fill(["a", "b"]).await;
    let before = server.version().await;
    server.fill(["c"]).await;
    server.label("a", "red").await;
    // A change of another kind lies between; its version is as good a place to begin as any.
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "other" } }))
        .await
        .created();
    server.label("a", "blue").await;
    server.remove("b").await;
    server.fill(["b"]).await;
    let events = server
        .watch(&format!(
            "{CONFIG_MAPS}?resourceVersion={before}&timeoutSeconds=1"
        ))
        .await
        .rest()
        .await;
    let all: Vec<(u64, String)> = events
        .iter()
        .map(|event| (event.version(), event.summary()))
        .collect();
    let summaries: Vec<&str> = all.iter().map(|(_, summary)| summary.as_str()).collect();
    assert_eq!(
        summaries,
        ["ADDED c", "MODIFIED a", "MODIFIED a", "DELETED b", "ADDED b"]
    );
    assert!(all.is_sorted());

    for from in before..=server.version().await {
        let events = server
            .watch(&format!("{CONFIG_MAPS}?resourceVersion={from}&timeoutSeconds=1"))
            .await
            .rest()
            .await;
        let seen: Vec<(u64, String)> = events
            .iter()
            .map(|event| (event.version(), event.summary()))
            .collect();
        let expected: Vec<(u64, String)> = all
            .iter()
            .filter(|(version, _)| *version > from)
            .cloned()
            .collect();
        assert_eq!(seen, expected, "from {from}");
    }
}

#[tokio::test(start_paused = true)]
async fn event_shows_the_object_as_a_get_at_that_moment_did() {
    let server = TestServer::start().await;
    let mut watch = server.watch(CONFIG_MAPS).await;
    let created = server.post(CONFIG_MAPS, &config_map("a")).await.created();
    server.label("a", "red").await;
    let changed = server.get(&format!("{CONFIG_MAPS}/a")).await.ok();
    server.remove("a").await;
    assert_eq!(watch.expect().await.object, created);
    assert_eq!(watch.expect().await.object, changed);
    let gone = watch.expect().await;
    assert!(
        gone.version() > version(&changed),
        "a deletion has a version of its own"
    );
    assert_eq!(gone.object["metadata"]["labels"], changed["metadata"]["labels"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_shortly_before_the_end() {
    let server = TestServer::start().await;
    let [from] = server.fill(["a"]).await;
    let begun = Instant::now();
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?resourceVersion={from}&timeoutSeconds=150&allowWatchBookmarks=true"
        ))
        .await;
    // Something that this watch does not show moves its bookmarks on.
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "other" } }))
        .await
        .created();
    server.settle().await;
    let newest = server.version().await;
    let mut seen = Vec::new();
    while let Some(event) = watch.next().await {
        assert_eq!((event.type_.as_str(), event.version()), ("BOOKMARK", newest));
        assert_eq!(
            (&event.object["kind"], &event.object["apiVersion"]),
            (&json!("ConfigMap"), &json!("v1"))
        );
        assert_eq!(event.object.get("data"), None);
        seen.push(begun.elapsed().as_secs());
    }
    assert_eq!(seen, [60, 120, 148]);
    assert_eq!(begun.elapsed().as_secs(), 150);

    let quiet = server
        .watch(&format!(
            "{CONFIG_MAPS}?resourceVersion={from}&timeoutSeconds=150"
        ))
        .await;
    assert_eq!(
        quiet.summaries().await,
        [] as [&str; 0],
        "who did not ask gets none"
    );
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark_that_says_so() {
    let server = TestServer::start().await;
    server.fill(["a", "b"]).await;
    let newest = server.version().await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.take(2).await, ["ADDED a", "ADDED b"]);
    let mark = watch.expect().await;
    assert_eq!((mark.type_.as_str(), mark.version()), ("BOOKMARK", newest));
    assert_eq!(
        mark.object["metadata"]["annotations"],
        json!({ "k8s.io/initial-events-end": "true" })
    );
    server.fill(["c"]).await;
    assert_eq!(watch.take(1).await, ["ADDED c"]);
    assert_eq!(
        watch.expect().await.object["metadata"].get("annotations"),
        None,
        "only the first is marked"
    );

    // The mark comes even where there is nothing to send, else a client would wait for ever.
    let mut empty = server.watch(&format!("{PODS}?{query}")).await;
    assert_eq!(empty.expect().await.type_, "BOOKMARK");

    let refused = server
        .get(&format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true"))
        .await
        .fails(422, "Invalid");
    assert_eq!(
        refused,
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
         resourceVersionMatch to NotOlderThan"
    );
}

#[tokio::test(start_paused = true)]
async fn version_that_is_too_old_is_told_in_the_stream() {
    let server = TestServer::with_history(4).await;
    let [first] = server.fill(["a"]).await;
    let mut versions = Vec::new();
    for number in 0..10 {
        versions.push(server.label("a", &format!("c{number}")).await);
    }
    let events = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={first}"))
        .await
        .rest()
        .await;
    assert_eq!(events.len(), 1, "{events:?}");
    let status = &events[0].object;
    assert_eq!(events[0].type_, "ERROR");
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("too old resource version: {first} (")),
        "{message}"
    );

    // The last four changes are still there.
    let place = versions[5];
    let seen = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={place}&timeoutSeconds=1"))
        .await
        .rest()
        .await;
    assert_eq!(
        seen.iter()
            .map(crate::support::Event::version)
            .collect::<Vec<_>>(),
        versions[6..]
    );
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_not_read_is_overtaken_and_told_so() {
    let server = TestServer::with_history(8).await;
    let [from] = server.fill(["a"]).await;
    let slow = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={from}"))
        .await;
    let mut quick = server
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={from}"))
        .await;
    for number in 0..50 {
        server.label("a", &format!("c{number}")).await;
        assert_eq!(quick.take(1).await, ["MODIFIED a"]);
    }
    let events = slow.rest().await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].type_.as_str(), &events[0].object["code"]),
        ("ERROR", &json!(410))
    );
}

#[tokio::test(start_paused = true)]
async fn version_of_the_future_is_awaited_three_seconds() {
    let server = TestServer::start().await;
    let next = server.version().await + 1;
    let begun = Instant::now();
    let far = next + 1000;
    let message = server
        .get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={far}"))
        .await
        .fails(504, "Timeout");
    assert_eq!(
        message,
        format!(
            "Timeout: Too large resource version: {far}, current: {}",
            next - 1
        )
    );
    assert_eq!(begun.elapsed().as_secs(), 3);

    // It came true in time.
    let path = format!("{CONFIG_MAPS}?resourceVersion={next}&timeoutSeconds=1");
    let (watch, _) = tokio::join!(server.watch(&path), server.fill(["a", "b"]));
    assert_eq!(watch.summaries().await, ["ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn object_enters_and_leaves_a_selection_by_its_labels() {
    let server = TestServer::start().await;
    let [from] = server.fill(["a"]).await;
    let path = format!("{CONFIG_MAPS}?labelSelector=colour%3Dred&resourceVersion={from}&timeoutSeconds=1");
    let watch = server.watch(&path).await;
    server.label("a", "green").await;
    let entered = server.label("a", "red").await;
    let patch = json!({ "data": { "x": "1" } });
    let changed = version(
        &server
            .patch(&format!("{CONFIG_MAPS}/a"), MERGE, &patch)
            .await
            .ok(),
    );
    let left = server.label("a", "blue").await;
    server.label("a", "grey").await;
    server.remove("a").await;
    let events = watch.rest().await;
    let seen: Vec<(&str, u64)> = events
        .iter()
        .map(|event| (event.type_.as_str(), event.version()))
        .collect();
    assert_eq!(
        seen,
        [("ADDED", entered), ("MODIFIED", changed), ("DELETED", left)]
    );
    // It leaves as the client last knew it, not in the form that does not match.
    assert_eq!(events[2].object["metadata"]["labels"]["colour"], "red");
    assert_eq!(events[2].object["data"], json!({ "x": "1" }));
}

#[tokio::test(start_paused = true)]
async fn object_enters_and_leaves_a_selection_by_its_fields() {
    let server = TestServer::start().await;
    server.post(PODS, &pod("a")).await.created();
    server.post(PODS, &pod("b")).await.created();
    let watch = server
        .watch(&format!(
            "{PODS}?fieldSelector=status.phase%3DRunning&timeoutSeconds=1"
        ))
        .await;
    for (name, phase) in [("a", "Running"), ("b", "Failed"), ("a", "Succeeded")] {
        let patch = json!({ "status": { "phase": phase } });
        server
            .patch(&format!("{PODS}/{name}/status"), MERGE, &patch)
            .await
            .ok();
    }
    let events = watch.rest().await;
    let seen: Vec<String> = events.iter().map(crate::support::Event::summary).collect();
    assert_eq!(seen, ["ADDED a", "DELETED a"]);
    assert_eq!(events[1].object["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn watch_of_a_namespace_a_name_or_everything_shows_just_that() {
    let server = TestServer::start().await;
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "other" } }))
        .await
        .created();
    let from = server.version().await;
    let others = "/api/v1/namespaces/other/configmaps";
    for name in ["a", "b"] {
        server.post(others, &config_map(name)).await.created();
    }
    server.fill(["a"]).await;
    let cases: [(&str, &[&str]); 5] = [
        (CONFIG_MAPS, &["default/a"]),
        (others, &["other/a", "other/b"]),
        ("/api/v1/configmaps", &["other/a", "other/b", "default/a"]),
        (
            "/api/v1/configmaps?fieldSelector=metadata.name%3Da",
            &["other/a", "default/a"],
        ),
        (
            "/api/v1/namespaces/other/configmaps?fieldSelector=metadata.name%3Db",
            &["other/b"],
        ),
    ];
    for (path, expected) in cases {
        let joint = if path.contains('?') { '&' } else { '?' };
        let watch = server
            .watch(&format!("{path}{joint}resourceVersion={from}&timeoutSeconds=1"))
            .await;
        let events = watch.rest().await;
        let seen: Vec<String> = events
            .iter()
            .map(|event| {
                format!(
                    "{}/{}",
                    event.object["metadata"]["namespace"].as_str().unwrap(),
                    name(&event.object)
                )
            })
            .collect();
        assert_eq!(seen, expected, "{path}");
    }
    // A get of one object stays a get, whatever `watch` says.
    server.fill(["one"]).await;
    assert_eq!(
        name(&server.get(&format!("{CONFIG_MAPS}/one?watch=true")).await.ok()),
        "one"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_its_time_is_over_or_the_server_stops() {
    let server = TestServer::start().await;
    let begun = Instant::now();
    let watch = server.watch(&format!("{CONFIG_MAPS}?timeoutSeconds=5")).await;
    assert_eq!(watch.summaries().await, [] as [&str; 0]);
    assert_eq!(begun.elapsed(), Duration::from_secs(5));

    let begun = Instant::now();
    let mut open = server.watch(CONFIG_MAPS).await;
    assert!(open.next().await.is_none());
    let minutes = begun.elapsed().as_secs() / 60;
    assert!(
        (30..60).contains(&minutes),
        "a watch without a time ended after {minutes} minutes"
    );

    let open = server.watch(CONFIG_MAPS).await;
    let begun = Instant::now();
    server.server.stop().await;
    assert_eq!(open.summaries().await, [] as [&str; 0]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn table_watch_sends_its_columns_once() {
    let server = TestServer::start().await;
    let mut kind = definition(&sized());
    kind["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{ "name": "Size", "type": "integer", "jsonPath": ".spec.size" }]);
    server.define(kind).await;
    for (path, object, cells) in [
        (
            CONFIG_MAPS,
            config_map as fn(&str) -> Value,
            json!(["a", 0, "0s"]),
        ),
        (crate::support::WIDGETS, widget, json!(["a", 1])),
    ] {
        let mut watch = server.watch_as(path, TABLE).await;
        server.post(path, &object("a")).await.created();
        server.post(path, &object("b")).await.created();
        let (first, second) = (watch.expect().await.object, watch.expect().await.object);
        assert_eq!(
            (&first["kind"], &first["apiVersion"]),
            (&json!("Table"), &json!("meta.k8s.io/v1"))
        );
        assert_eq!(first["columnDefinitions"][0]["name"], "Name");
        assert_eq!(first["rows"][0]["cells"], cells);
        assert_eq!(first["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(second.get("columnDefinitions"), Some(&Value::Null));
        assert_eq!(second["rows"][0]["cells"][0], "b");
        assert!(
            version(&second) > version(&first),
            "a table carries the version of its event"
        );
    }
}
