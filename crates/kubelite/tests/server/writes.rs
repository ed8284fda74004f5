//! Writes: who wins, what counts as a change, and what the schema of a kind does to them.

use futures::future::join_all;
use http::Method;
use serde_json::json;

use crate::support::{
    APPLY, CONFIG_MAPS, JSON, JSON_PATCH, MERGE, PODS, STRATEGIC, TestServer, WIDGETS, config_map,
    definition, name, pod, request, sized, uid, version, widget,
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test(start_paused = true)]
async fn unconditional_patches_all_land_however_many_come_at_once() {
    let server = TestServer::start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.created();
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..64).map(|number| {
        let (server, path) = (&server, &path);
        async move {
            let patch = json!({ "data": { format!("k{number}"): "x" } });
            server.patch(path, MERGE, &patch).await.ok();
        }
    });
    join_all(patches).await;
    let object = server.get(&path).await.ok();
    assert_eq!(object["data"].as_object().unwrap().len(), 64);
}

#[tokio::test(start_paused = true)]
async fn update_from_an_old_version_loses() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let cases = [
        (CONFIG_MAPS, config_map("a"), "configmaps"),
        (WIDGETS, widget("a"), "widgets.example.com"),
    ];
    for (collection, object, resource) in cases {
        let path = format!("{collection}/a");
        let first = server.post(collection, &object).await.created();
        let mut changed = first.clone();
        changed["metadata"]["labels"] = json!({ "a": "b" });
        let second = server.put(&path, &changed).await.ok();
        assert!(version(&second) > version(&first));
        assert_eq!(
            server.put(&path, &changed).await.fails(409, "Conflict"),
            format!(
                "Operation cannot be fulfilled on {resource} \"a\": the object has been modified; please apply your \
                 changes to the latest version and try again"
            )
        );
        let patch =
            json!({ "metadata": { "resourceVersion": version(&first).to_string(), "labels": { "a": "c" } } });
        server.patch(&path, MERGE, &patch).await.fails(409, "Conflict");
        let mut gone = second.clone();
        gone["metadata"]["uid"] = "somebody".into();
        server.put(&path, &gone).await.fails(409, "Conflict");
        assert_eq!(server.get(&path).await.ok(), second);
    }
    // A custom resource is only updated from a version that the client has seen; a ConfigMap need not be.
    assert_eq!(
        server
            .put(&format!("{WIDGETS}/a"), &widget("a"))
            .await
            .fails(422, "Invalid"),
        "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    server
        .put(&format!("{CONFIG_MAPS}/a"), &config_map("a"))
        .await
        .ok();
}

#[tokio::test(start_paused = true)]
async fn write_that_changes_nothing_is_no_change() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let mut object = widget("a");
    object["metadata"]["labels"] = json!({ "a": "b" });
    server.post(WIDGETS, &object).await.created();
    let applied = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "size": 1 } });
    let path = format!("{WIDGETS}/a");
    let apply = format!("{path}?fieldManager=applier");
    server.patch(&apply, APPLY, &applied).await.ok();
    let before = server.get(&path).await.ok();
    let watch = server
        .watch(&format!(
            "{WIDGETS}?resourceVersion={}&timeoutSeconds=600",
            version(&before)
        ))
        .await;
    // Time passes, so that a mere timestamp would be a change.
    tokio::time::sleep(std::time::Duration::from_secs(90)).await;
    server.put(&path, &before).await.ok();
    server
        .patch(&path, MERGE, &json!({ "spec": { "size": 1 } }))
        .await
        .ok();
    server
        .patch(
            &path,
            JSON_PATCH,
            &json!([{ "op": "replace", "path": "/spec/size", "value": 1 }]),
        )
        .await
        .ok();
    server.patch(&apply, APPLY, &applied).await.ok();
    server
        .patch(
            &format!("{path}/status"),
            MERGE,
            &json!({ "spec": { "size": 9 } }),
        )
        .await
        .ok();
    assert_eq!(server.get(&path).await.ok(), before);
    assert_eq!(watch.summaries().await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn generation_counts_changes_of_what_is_wanted() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let mut object = widget("a");
    object["metadata"]["generation"] = 7.into();
    let made = server.post(WIDGETS, &object).await.created();
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{WIDGETS}/a");
    let steps = [
        (path.clone(), json!({ "metadata": { "labels": { "a": "b" } } }), 1),
        (
            format!("{path}/status"),
            json!({ "status": { "phase": "Busy" } }),
            1,
        ),
        (path.clone(), json!({ "spec": { "size": 2 } }), 2),
        (path.clone(), json!({ "metadata": { "generation": 40 } }), 2),
        (
            path.clone(),
            json!({ "spec": { "size": 3 }, "status": { "phase": "Ignored" } }),
            3,
        ),
    ];
    for (path, patch, generation) in steps {
        let object = server.patch(&path, MERGE, &patch).await.ok();
        assert_eq!(object["metadata"]["generation"], generation, "{patch}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_and_the_rest_are_written_through_doors_of_their_own() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let mut object = widget("a");
    object["status"] = json!({ "phase": "Forged" });
    let made = server.post(WIDGETS, &object).await.created();
    assert_eq!(made.get("status"), None);
    let path = format!("{WIDGETS}/a");
    let both = json!({
        "metadata": { "labels": { "a": "b" } }, "spec": { "size": 5 }, "status": { "phase": "Busy" },
    });
    let through_status = server.patch(&format!("{path}/status"), MERGE, &both).await.ok();
    assert_eq!(
        (
            &through_status["spec"]["size"],
            &through_status["status"]["phase"],
            through_status["metadata"].get("labels")
        ),
        (&json!(1), &json!("Busy"), None)
    );
    let mut new = through_status.clone();
    new["status"] = json!({ "phase": "Forged" });
    new["spec"]["size"] = 6.into();
    let through_main = server.put(&path, &new).await.ok();
    assert_eq!(
        (&through_main["spec"]["size"], &through_main["status"]["phase"]),
        (&json!(6), &json!("Busy"))
    );
    let mut new = through_main.clone();
    new.as_object_mut().unwrap().remove("status");
    let cleared = server.put(&format!("{path}/status"), &new).await.ok();
    assert_eq!(cleared.get("status"), None);
    assert_eq!(server.get(&format!("{path}/status")).await.ok(), cleared);

    // A kind without the subresource has one door.
    let pods = format!("{PODS}/p");
    server.post(PODS, &pod("p")).await.created();
    let patch = json!({ "spec": { "activeDeadlineSeconds": 5 }, "status": { "phase": "Running" } });
    assert_eq!(
        server.patch(&pods, STRATEGIC, &patch).await.ok()["status"]["phase"],
        "Pending"
    );
    let running = server
        .patch(&format!("{pods}/status"), STRATEGIC, &patch)
        .await
        .ok();
    assert_eq!(running["status"]["phase"], "Running");
    server
        .get(&format!("{CONFIG_MAPS}/a/status"))
        .await
        .fails(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn name_is_made_up_where_only_a_beginning_is_given() {
    let server = TestServer::start().await;
    let body = json!({ "metadata": { "generateName": "run-" } });
    let one = server.post(CONFIG_MAPS, &body).await.created();
    let two = server.post(CONFIG_MAPS, &body).await.created();
    for object in [&one, &two] {
        assert!(
            name(object).starts_with("run-") && name(object).len() == 9,
            "{}",
            name(object)
        );
        assert_eq!(object["metadata"]["generateName"], "run-");
    }
    assert_ne!(name(&one), name(&two));
    assert_eq!(
        server
            .post(CONFIG_MAPS, &json!({ "metadata": {} }))
            .await
            .fails(422, "Invalid"),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
    let message = server.post(CONFIG_MAPS, &one).await;
    assert_eq!(
        (message.code, message.body["message"].as_str()),
        (
            500,
            Some("resourceVersion should not be set on objects to be created")
        )
    );
    let taken = server
        .post(CONFIG_MAPS, &config_map(name(&one)))
        .await
        .fails(409, "AlreadyExists");
    assert_eq!(taken, format!("configmaps \"{}\" already exists", name(&one)));
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_any_write_answers_in_full_and_leaves_no_trace() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    server.post(WIDGETS, &widget("a")).await.created();
    let stored = server.get(&format!("{WIDGETS}/a")).await.ok();
    let watch = server
        .watch(&format!(
            "{WIDGETS}?resourceVersion={}&timeoutSeconds=1",
            version(&stored)
        ))
        .await;
    let before = server.version().await;
    let path = format!("{WIDGETS}/a?dryRun=All");
    let fresh = server
        .post(&format!("{WIDGETS}?dryRun=All"), &widget("b"))
        .await
        .created();
    assert!(!uid(&fresh).is_empty());
    assert_eq!(fresh["metadata"].get("resourceVersion"), None);
    let mut new = stored.clone();
    new["spec"]["size"] = 2.into();
    let put = server.put(&path, &new).await.ok();
    assert_eq!(
        (&put["spec"]["size"], &put["metadata"]["generation"]),
        (&json!(2), &json!(2))
    );
    let patched = server
        .patch(&path, MERGE, &json!({ "spec": { "size": 3 } }))
        .await
        .ok();
    assert_eq!(patched["spec"]["size"], 3);
    let patch = json!([{ "op": "add", "path": "/spec/size", "value": 4 }]);
    assert_eq!(
        server.patch(&path, JSON_PATCH, &patch).await.ok()["spec"]["size"],
        4
    );
    let applied = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "size": 5 } });
    let apply = format!("{path}&fieldManager=applier&force=true");
    assert_eq!(
        server.patch(&apply, APPLY, &applied).await.ok()["spec"]["size"],
        5
    );
    let apply_new = format!("{WIDGETS}/c?dryRun=All&fieldManager=applier");
    server.patch(&apply_new, APPLY, &applied).await.created();
    let status = format!("{WIDGETS}/a/status?dryRun=All");
    let patched = server
        .patch(&status, MERGE, &json!({ "status": { "x": 1 } }))
        .await
        .ok();
    assert_eq!(patched["status"], json!({ "x": 1 }));
    server.delete(&path).await.ok();
    server.delete(&format!("{WIDGETS}?dryRun=All")).await.ok();

    // What would fail fails.
    server
        .post(&format!("{WIDGETS}?dryRun=All"), &widget("a"))
        .await
        .fails(409, "AlreadyExists");
    server.put(&path, &widget("a")).await.fails(422, "Invalid");
    assert_eq!(
        server
            .post(&format!("{WIDGETS}?dryRun=Some"), &widget("b"))
            .await
            .fails(422, "Invalid"),
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
    );
    server.settle().await;
    assert_eq!(server.version().await, before);
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.ok(), stored);
    assert_eq!(watch.summaries().await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn unknown_and_repeated_fields_are_refused_reported_or_ignored() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let custom = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"size":1,"size":2,"junk":1}}"#;
    let builtin = r#"{"metadata":{"name":"NAME"},"data":{"a":"1","a":"2"},"junk":1}"#;
    let cases = [
        (
            WIDGETS,
            custom,
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \
             \"spec.size\", unknown field \"spec.junk\"",
            [
                "299 - \"duplicate field \\\"spec.size\\\"\"",
                "299 - \"unknown field \\\"spec.junk\\\"\"",
            ],
        ),
        (
            CONFIG_MAPS,
            builtin,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \
             \"data.a\", unknown field \"junk\"",
            [
                "299 - \"duplicate field \\\"data.a\\\"\"",
                "299 - \"unknown field \\\"junk\\\"\"",
            ],
        ),
    ];
    for (path, body, refused, warned) in cases {
        let post = async |name: &str, query: &str| {
            let body = body.replace("NAME", name);
            server
                .send(request(Method::POST, &format!("{path}{query}"), JSON, body))
                .await
        };
        assert_eq!(
            post("strict", "?fieldValidation=Strict")
                .await
                .fails(400, "BadRequest"),
            refused
        );
        for (name, query) in [("default", ""), ("warn", "?fieldValidation=Warn")] {
            let answer = post(name, query).await;
            assert_eq!(answer.warnings(), warned, "{path}{query}");
            let object = answer.created();
            assert!(!object.to_string().contains("junk"), "{object}");
        }
        let answer = post("ignore", "?fieldValidation=Ignore").await;
        assert_eq!(answer.warnings(), [] as [&str; 0]);
        answer.created();
    }
    let patch = json!({ "spec": { "other": 1 } });
    let strict = server
        .patch(&format!("{WIDGETS}/warn?fieldValidation=Strict"), MERGE, &patch)
        .await;
    assert_eq!(
        strict.fails(422, "Invalid"),
        " \"\" is invalid: patch: Invalid value: \"{\\\"spec\\\":{\\\"other\\\":1}}\": strict decoding error: unknown field \
         \"spec.other\""
    );
    let warned = server.patch(&format!("{WIDGETS}/warn"), MERGE, &patch).await;
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"spec.other\\\"\""]);
    let message = server
        .post(&format!("{CONFIG_MAPS}?fieldValidation=Nope"), &config_map("x"))
        .await;
    assert_eq!(
        message.fails(422, "Invalid"),
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Nope\": supported values: \"\", \
         \"Ignore\", \"Strict\", \"Warn\""
    );
}

#[tokio::test(start_paused = true)]
async fn lease_is_made_by_an_update_where_there_is_none() {
    let server = TestServer::start().await;
    let lease = json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "one" } });
    server.put(&format!("{LEASES}/a"), &lease).await.created();
    server
        .put(&format!("{CONFIG_MAPS}/a"), &config_map("a"))
        .await
        .fails(404, "NotFound");
}
