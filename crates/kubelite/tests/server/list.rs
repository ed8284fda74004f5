//! Lists: pages, versions and selectors.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    CONFIG_MAPS, MERGE, NAMESPACES, PODS, TestServer, WIDGETS, config_map, definition, name, names, pod,
    version,
};

impl TestServer {
    async fn fill_numbered(&self, count: usize) {
        for number in 0..count {
            self.post(CONFIG_MAPS, &config_map(&format!("m{number:02}")))
                .await
                .created();
        }
    }
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Names and versions, which together tell one state of a collection from another.
fn state(list: &Value) -> Vec<(String, u64)> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (name(item).to_owned(), version(item)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_whatever_is_written_between_them() {
    let server = TestServer::start().await;
    server.fill_numbered(10).await;
    let whole = server.get(CONFIG_MAPS).await.ok();
    let mut page = server.get(&format!("{CONFIG_MAPS}?limit=3")).await.ok();
    let mut collected = state(&page);
    let mut round = 0;
    while let Some(token) = page["metadata"]["continue"].as_str() {
        // Before each page something comes, something changes and something goes, ahead of the page and behind it.
        server
            .post(CONFIG_MAPS, &config_map(&format!("m0{round}-new")))
            .await
            .created();
        server
            .post(CONFIG_MAPS, &config_map(&format!("z{round}")))
            .await
            .created();
        let patch = json!({ "data": { "round": round.to_string() } });
        for name in ["m00", "m08", "m09"] {
            server
                .patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &patch)
                .await;
        }
        server
            .delete(&format!("{CONFIG_MAPS}/m0{}", 9 - round))
            .await
            .ok();
        page = server
            .get(&format!("{CONFIG_MAPS}?limit=3&continue={token}"))
            .await
            .ok();
        assert_eq!(
            version(&page),
            version(&whole),
            "each page tells the version of the first"
        );
        collected.extend(state(&page));
        round += 1;
    }
    assert_eq!(round, 3);
    assert_eq!(collected, state(&whole));
}

#[tokio::test(start_paused = true)]
async fn pages_run_across_namespaces_in_order() {
    let server = TestServer::start().await;
    for namespace in ["b", "a", "a-b"] {
        server
            .post(NAMESPACES, &json!({ "metadata": { "name": namespace } }))
            .await
            .created();
        for name in ["x", "y"] {
            server
                .post(&format!("{NAMESPACES}/{namespace}/configmaps"), &config_map(name))
                .await
                .created();
        }
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/configmaps?limit=1".to_owned();
    loop {
        let page = server.get(&path).await.ok();
        for item in page["items"].as_array().unwrap() {
            seen.push(format!(
                "{}/{}",
                item["metadata"]["namespace"].as_str().unwrap(),
                name(item)
            ));
        }
        let Some(token) = page["metadata"]["continue"].as_str() else {
            break;
        };
        path = format!("/api/v1/configmaps?limit=1&continue={token}");
    }
    assert_eq!(seen, ["a/x", "a/y", "a-b/x", "a-b/y", "b/x", "b/y"]);
}

#[tokio::test(start_paused = true)]
async fn remaining_items_are_counted_only_where_the_count_is_known() {
    let server = TestServer::start().await;
    server.fill_numbered(5).await;
    let cases = [
        ("limit=2", Some(3)),
        ("limit=4", Some(1)),
        ("limit=5", None),
        ("limit=50", None),
        ("", None),
        ("limit=2&labelSelector=%21absent", None),
        ("limit=2&fieldSelector=metadata.name%21%3Dabsent", None),
    ];
    for (query, remaining) in cases {
        let list = server.get(&format!("{CONFIG_MAPS}?{query}")).await.ok();
        assert_eq!(
            list["metadata"].get("remainingItemCount"),
            remaining.map(Value::from).as_ref(),
            "{query}"
        );
        let more = query.starts_with("limit=2") || query == "limit=4";
        assert_eq!(list["metadata"].get("continue").is_some(), more, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn page_of_a_moment_that_is_forgotten_is_refused() {
    let server = TestServer::with_history(4).await;
    server.fill_numbered(4).await;
    let page = server.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    for number in 0..10 {
        let patch = json!({ "data": { "number": number.to_string() } });
        server
            .patch(&format!("{CONFIG_MAPS}/m00"), MERGE, &patch)
            .await
            .ok();
    }
    let message = server
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await
        .fails(410, "Expired");
    assert!(
        message.starts_with("The provided continue parameter is too old"),
        "{message}"
    );
    let old = version(&page);
    let exact = server
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!(
        exact.fails(410, "Expired"),
        "The resourceVersion for the provided list is too old."
    );
}

#[tokio::test(start_paused = true)]
async fn version_and_match_decide_which_state_a_list_shows() {
    let server = TestServer::start().await;
    server.fill_numbered(2).await;
    let old = server.version().await;
    server.fill_numbered(0).await;
    server.post(CONFIG_MAPS, &config_map("new")).await.created();
    let (then, now) = (vec!["m00", "m01"], vec!["m00", "m01", "new"]);
    let cases = [
        (String::new(), &now),
        ("resourceVersion=0".to_owned(), &now),
        (format!("resourceVersion={old}"), &now),
        (
            format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
            &now,
        ),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), &then),
        (format!("resourceVersion={old}&limit=5"), &then),
        (
            format!("resourceVersion={old}&limit=5&resourceVersionMatch=NotOlderThan"),
            &now,
        ),
    ];
    for (query, expected) in cases {
        let list = server.get(&format!("{CONFIG_MAPS}?{query}")).await.ok();
        assert_eq!(&names(&list), expected, "{query}");
        assert_eq!(version(&list) == old, *expected == then, "{query}");
    }
    // A get waits for a version in the same way, but shows only what is there now.
    server
        .get(&format!("{CONFIG_MAPS}/new?resourceVersion={old}"))
        .await
        .ok();
}

#[tokio::test(start_paused = true)]
async fn version_of_the_future_is_awaited_three_seconds() {
    let server = TestServer::start().await;
    server.fill_numbered(1).await;
    let far = server.version().await + 1000;
    for path in [
        format!("{CONFIG_MAPS}?resourceVersion={far}"),
        format!("{CONFIG_MAPS}?resourceVersion={far}&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}/m00?resourceVersion={far}"),
    ] {
        let begun = Instant::now();
        let answer = server.get(&path).await;
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(
            answer.body["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
        answer.fails(504, "Timeout");
        assert_eq!(begun.elapsed().as_secs(), 3, "{path}");
    }
    let path = format!("{CONFIG_MAPS}?resourceVersion={}", server.version().await + 1);
    let (list, ()) = tokio::join!(server.get(&path), async {
        server.post(CONFIG_MAPS, &config_map("x")).await.created();
    });
    assert_eq!(names(&list.ok()), ["m00", "x"]);
}

#[tokio::test(start_paused = true)]
async fn impossible_lists_are_refused_as_kubernetes_refuses_them() {
    let server = TestServer::start().await;
    let invalid = |what: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {what}");
    let cases = [
        (
            "resourceVersionMatch=Exact",
            422,
            invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ),
        (
            "sendInitialEvents=true",
            422,
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            "resourceVersion=abc",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": \
             invalid syntax"
                .to_owned(),
        ),
        (
            "continue=%25%25",
            400,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0".to_owned(),
        ),
        ("limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
        ("labelSelector=a%20in", 400, "unable to parse requirement: found '' expected: '('".to_owned()),
        ("labelSelector=a%3Db%3Dc", 400, "found '=', expected: ',' or 'end of string'".to_owned()),
        (
            "fieldSelector=metadata.name",
            400,
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'".to_owned(),
        ),
    ];
    for (query, code, message) in cases {
        let answer = server.get(&format!("{CONFIG_MAPS}?{query}")).await;
        let reason = if code == 422 { "Invalid" } else { "BadRequest" };
        assert_eq!(answer.fails(code, reason), message, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn label_selectors_of_every_form_select() {
    let server = TestServer::start().await;
    for (name, labels) in [
        ("none", json!({})),
        ("red", json!({ "colour": "red", "size": "5" })),
        ("blue", json!({ "colour": "blue", "size": "10" })),
        ("empty", json!({ "colour": "" })),
        ("domain", json!({ "example.com/colour": "red", "size": "large" })),
    ] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        server.post(CONFIG_MAPS, &object).await.created();
    }
    let cases: [(&str, &[&str]); 18] = [
        ("", &["blue", "domain", "empty", "none", "red"]),
        ("colour=red", &["red"]),
        ("colour==red", &["red"]),
        ("colour!=red", &["blue", "domain", "empty", "none"]),
        ("colour", &["blue", "empty", "red"]),
        ("!colour", &["domain", "none"]),
        ("colour=", &["empty"]),
        ("colour in (red, blue)", &["blue", "red"]),
        ("colour in (red,)", &["empty", "red"]),
        ("colour notin (red,blue)", &["domain", "empty", "none"]),
        ("size>5", &["blue"]),
        ("size > 4", &["blue", "red"]),
        ("size<6", &["red"]),
        ("example.com/colour=red", &["domain"]),
        ("colour,size", &["blue", "red"]),
        ("colour,!size", &["empty"]),
        ("colour in (red,blue),size!=5", &["blue"]),
        ("colour=red,colour=blue", &[]),
    ];
    for (selector, expected) in cases {
        let list = server
            .get(&format!("{CONFIG_MAPS}?labelSelector={}", encoded(selector)))
            .await
            .ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
}

#[tokio::test(start_paused = true)]
async fn field_selectors_of_built_in_kinds_select() {
    let server = TestServer::start().await;
    for (name, node, phase) in [
        ("a", "one", "Running"),
        ("b", "two", "Running"),
        ("c", "", "Pending"),
    ] {
        let mut object = pod(name);
        if !node.is_empty() {
            object["spec"]["nodeName"] = node.into();
        }
        server.post(PODS, &object).await.created();
        let patch = json!({ "status": { "phase": phase } });
        server
            .patch(&format!("{PODS}/{name}/status"), MERGE, &patch)
            .await
            .ok();
    }
    let cases: [(&str, &[&str]); 11] = [
        ("metadata.name=a", &["a"]),
        ("metadata.name!=a", &["b", "c"]),
        ("metadata.namespace=default", &["a", "b", "c"]),
        ("metadata.namespace=other", &[]),
        ("spec.nodeName=one", &["a"]),
        ("spec.nodeName=", &["c"]),
        ("spec.nodeName!=", &["a", "b"]),
        ("status.phase==Running", &["a", "b"]),
        ("status.phase=Running,spec.nodeName!=one", &["b"]),
        ("spec.restartPolicy=Always", &["a", "b", "c"]),
        ("spec.serviceAccountName=absent", &[]),
    ];
    for (selector, expected) in cases {
        let list = server
            .get(&format!("{PODS}?fieldSelector={}", encoded(selector)))
            .await
            .ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
    let unknown = server
        .get(&format!("{PODS}?fieldSelector=metadata.uid%3Dx"))
        .await;
    assert_eq!(
        unknown.fails(400, "BadRequest"),
        "field label not supported: metadata.uid"
    );
    let secrets = "/api/v1/namespaces/default/secrets";
    server
        .post(secrets, &json!({ "metadata": { "name": "plain" } }))
        .await
        .created();
    server
        .post(
            secrets,
            &json!({ "metadata": { "name": "odd" }, "type": "example.com/odd" }),
        )
        .await
        .created();
    let list = server
        .get(&format!("{secrets}?fieldSelector=type%3Dexample.com%2Fodd"))
        .await
        .ok();
    assert_eq!(names(&list), ["odd"]);
    let list = server
        .get(&format!("{NAMESPACES}?fieldSelector=status.phase%3DTerminating"))
        .await
        .ok();
    assert_eq!(names(&list), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn field_selectors_of_a_custom_kind_are_those_it_declares() {
    let server = TestServer::start().await;
    let mut kind = definition(&json!({
        "type": "object",
        "properties": {
            "colour": { "type": "string" },
            "size": { "type": "integer" },
            "new": { "type": "boolean" },
            "hidden": { "type": "string" },
        },
    }));
    kind["spec"]["versions"][0]["selectableFields"] =
        json!([{ "jsonPath": ".spec.colour" }, { "jsonPath": ".spec.size" }, { "jsonPath": ".spec.new" }]);
    server.define(kind).await;
    for (name, spec) in [
        ("a", json!({ "colour": "red", "size": 5, "new": true })),
        ("b", json!({ "colour": "blue", "size": 7, "new": false })),
        ("c", json!({})),
    ] {
        let body = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec });
        server.post(WIDGETS, &body).await.created();
    }
    let cases: [(&str, &[&str]); 7] = [
        ("spec.colour=red", &["a"]),
        ("spec.colour!=red", &["b", "c"]),
        ("spec.size=7", &["b"]),
        ("spec.new=true", &["a"]),
        ("spec.new!=true", &["b", "c"]),
        ("spec.colour=", &["c"]),
        ("spec.colour=red,metadata.name=b", &[]),
    ];
    for (selector, expected) in cases {
        let list = server
            .get(&format!("{WIDGETS}?fieldSelector={}", encoded(selector)))
            .await
            .ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
    let message = server
        .get(&format!("{WIDGETS}?fieldSelector=spec.hidden%3Dx"))
        .await
        .fails(400, "BadRequest");
    assert_eq!(message, "field label not supported: spec.hidden");
}
