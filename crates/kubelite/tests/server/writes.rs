//! Writes: who wins, what counts as a change, and what the schema of a kind does to them.

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    APPLY, CONFIG_MAPS, DEFINITIONS, JSON, JSON_PATCH, MERGE, PODS, STRATEGIC, TestServer, WIDGETS,
    condition, config_map, definition, name, names, pod, request, sized, uid, version, widget,
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn with_spec(name: &str, spec: &Value) -> Value {
    let mut object = widget(name);
    object["spec"] = spec.clone();
    object
}

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
    strict.fails(400, "BadRequest");
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

/// A schema that uses what schemas can do.
fn rich() -> Value {
    json!({
        "type": "object",
        "properties": {
            "size": { "type": "integer", "default": 3, "minimum": 1 },
            "colour": {
                "type": "string",
                "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "colour cannot change" }],
            },
            "nested": { "type": "object", "properties": { "on": { "type": "boolean", "default": true } } },
            "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": { "name": { "type": "string" }, "count": { "type": "integer" } },
                },
            },
        },
        "x-kubernetes-validations": [{ "rule": "!has(self.size) || self.size < 100", "message": "too big" }],
    })
}

#[tokio::test(start_paused = true)]
async fn schema_fills_in_defaults_and_drops_what_it_does_not_know() {
    let server = TestServer::start().await;
    server.define(definition(&rich())).await;
    let spec = json!({ "colour": "red", "nested": {}, "junk": 1, "open": { "any": [1, null] } });
    let made = server.post(WIDGETS, &with_spec("a", &spec)).await.created();
    let expected = json!({
        "colour": "red", "nested": { "on": true }, "open": { "any": [1, null] }, "size": 3,
    });
    assert_eq!(made["spec"], expected);
    let cleared = server
        .patch(
            &format!("{WIDGETS}/a"),
            MERGE,
            &json!({ "spec": { "size": null } }),
        )
        .await
        .ok();
    assert_eq!(
        cleared["spec"]["size"], 3,
        "what is removed falls back to its default"
    );
}

#[tokio::test(start_paused = true)]
async fn schema_and_rules_refuse_with_the_field_that_is_wrong() {
    let server = TestServer::start().await;
    server.define(definition(&rich())).await;
    let cases = [
        (json!({ "size": 500 }), "spec: Invalid value: too big"),
        (
            json!({ "size": 0 }),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({ "size": "x" }),
            "[spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>: Invalid \
             value: null: some validation rules were not checked because the object was invalid; correct the existing \
             errors to complete validation]",
        ),
        (
            json!({ "parts": [{ "name": "x" }, { "name": "x" }] }),
            "spec.parts[1]: Duplicate value: {\"name\":\"x\"}",
        ),
    ];
    for (spec, message) in cases {
        let refused = server
            .post(WIDGETS, &with_spec("b", &spec))
            .await
            .fails(422, "Invalid");
        assert_eq!(
            refused,
            format!("Widget.example.com \"b\" is invalid: {message}"),
            "{spec}"
        );
    }
    server
        .post(WIDGETS, &with_spec("a", &json!({ "colour": "red" })))
        .await
        .created();
    let change = json!({ "spec": { "colour": "blue" } });
    assert_eq!(
        server
            .patch(&format!("{WIDGETS}/a"), MERGE, &change)
            .await
            .fails(422, "Invalid"),
        "Widget.example.com \"a\" is invalid: spec.colour: Invalid value: \"blue\": colour cannot change"
    );
    server
        .patch(&format!("{WIDGETS}/a"), MERGE, &json!({ "spec": { "size": 9 } }))
        .await
        .ok();
}

impl TestServer {
    /// Changes the schema of a version of the widgets' spec.
    async fn redefine(&self, operations: &Value) {
        let path = format!("{DEFINITIONS}/widgets.example.com");
        self.patch(&path, JSON_PATCH, operations).await.ok();
        self.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn schema_that_changes_is_kind_to_the_objects_that_exist() {
    const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let server = TestServer::start().await;
    let properties = json!({ "a": { "type": "string" }, "old": { "type": "string" } });
    server
        .define(definition(&json!({ "type": "object", "properties": properties })))
        .await;
    let made = server
        .post(WIDGETS, &with_spec("y", &json!({ "a": "1", "old": "x" })))
        .await
        .created();
    server
        .redefine(&json!([
            { "op": "add", "path": format!("{SPEC}/fresh"), "value": { "type": "string", "default": "yes" } },
            { "op": "add", "path": format!("{SPEC}/a/minLength"), "value": 5 },
            { "op": "remove", "path": format!("{SPEC}/old") },
        ]))
        .await;

    // It is shown with the new defaults and without what is no longer known, though nobody wrote it.
    let path = format!("{WIDGETS}/y");
    let shown = server.get(&path).await.ok();
    assert_eq!(shown["spec"], json!({ "a": "1", "fresh": "yes" }));
    assert_eq!(version(&shown), version(&made));
    assert_eq!(server.get(WIDGETS).await.ok()["items"][0]["spec"], shown["spec"]);
    let watched = server
        .watch(&format!("{WIDGETS}?timeoutSeconds=1"))
        .await
        .rest()
        .await;
    assert_eq!(watched[0].object["spec"], shown["spec"]);

    // What was wrong before the change may stay wrong, but not become wrong in another way.
    let labelled = server
        .patch(&path, MERGE, &json!({ "metadata": { "labels": { "l": "1" } } }))
        .await
        .ok();
    assert_eq!(labelled["metadata"]["generation"], 1);
    assert_eq!(
        server
            .patch(&path, MERGE, &json!({ "spec": { "a": "2" } }))
            .await
            .fails(422, "Invalid"),
        "Widget.example.com \"y\" is invalid: spec.a: Invalid value: \"2\": spec.a in body should be at least 5 chars long"
    );
    server
        .patch(&path, MERGE, &json!({ "spec": { "a": "longer" } }))
        .await
        .ok();
}

#[tokio::test(start_paused = true)]
async fn rule_that_comes_later_binds_only_what_changes() {
    let server = TestServer::start().await;
    let part = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    server
        .define(definition(
            &json!({ "type": "object", "properties": { "one": part, "two": part } }),
        ))
        .await;
    server
        .post(
            WIDGETS,
            &with_spec("a", &json!({ "one": { "n": -1 }, "two": { "n": 1 } })),
        )
        .await
        .created();
    let rule = json!([{ "rule": "self.n > 0", "message": "must be positive" }]);
    let at = |part: &str| {
        format!(
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{part}/x-kubernetes-validations"
        )
    };
    server
        .redefine(&json!([
            { "op": "add", "path": at("one"), "value": rule },
            { "op": "add", "path": at("two"), "value": rule },
        ]))
        .await;
    let path = format!("{WIDGETS}/a");
    server
        .patch(&path, MERGE, &json!({ "spec": { "two": { "n": 2 } } }))
        .await
        .ok();
    assert_eq!(
        server
            .patch(&path, MERGE, &json!({ "spec": { "two": { "n": -2 } } }))
            .await
            .fails(422, "Invalid"),
        "Widget.example.com \"a\" is invalid: spec.two: Invalid value: must be positive"
    );
}

/// A kind with two versions that know different things.
fn two_versions() -> Value {
    let version = |name: &str, storage: bool, properties: Value| {
        json!({
            "name": name,
            "served": true,
            "storage": storage,
            "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": { "spec": { "type": "object", "properties": properties } },
            } },
        })
    };
    let mut definition = definition(&json!({ "type": "object" }));
    definition["spec"]["versions"] = json!([
        version(
            "v1",
            true,
            json!({ "a": { "type": "string" }, "one": { "type": "string", "default": "one" } })
        ),
        version(
            "v2",
            false,
            json!({ "a": { "type": "string" }, "two": { "type": "string", "default": "two" } })
        ),
    ]);
    definition
}

#[tokio::test(start_paused = true)]
async fn object_is_the_same_in_every_version_but_for_what_a_version_does_not_know() {
    const OTHER: &str = "/apis/example.com/v2/namespaces/default/widgets";
    let server = TestServer::start().await;
    server.define(two_versions()).await;
    let first = server
        .post(WIDGETS, &with_spec("y", &json!({ "a": "1" })))
        .await
        .created();
    assert_eq!(first["spec"], json!({ "a": "1", "one": "one" }));
    let second = server.get(&format!("{OTHER}/y")).await.ok();
    assert_eq!(
        (&second["apiVersion"], &second["spec"]),
        (&json!("example.com/v2"), &json!({ "a": "1" }))
    );
    assert_eq!((uid(&first), version(&first)), (uid(&second), version(&second)));

    let mut body = with_spec("x", &json!({ "a": "1" }));
    assert_eq!(
        server.post(OTHER, &body).await.fails(400, "BadRequest"),
        "the API version in the data (example.com/v1) does not match the expected API version (example.com/v2)"
    );
    body["apiVersion"] = "example.com/v2".into();
    let made = server.post(OTHER, &body).await.created();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!({ "a": "1" }))
    );
    let stored = server.get(&format!("{WIDGETS}/x")).await.ok();
    assert_eq!(stored["spec"], json!({ "a": "1", "one": "one" }));
    for path in [WIDGETS, OTHER] {
        let list = server.get(path).await.ok();
        assert_eq!(names(&list), ["x", "y"]);
        assert!(
            list["items"]
                .as_array()
                .unwrap()
                .iter()
                .all(|item| item["apiVersion"] == list["apiVersion"])
        );
    }

    // Another version becomes the stored one: what is stored already is shown as before.
    server
        .redefine(&json!([
            { "op": "replace", "path": "/spec/versions/0/storage", "value": false },
            { "op": "replace", "path": "/spec/versions/1/storage", "value": true },
        ]))
        .await;
    let definition = server
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    let shown = server.get(&format!("{OTHER}/y")).await.ok();
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]["a"]),
        (&json!("example.com/v2"), &json!("1"))
    );
    assert_eq!(
        server.get(&format!("{WIDGETS}/y")).await.ok()["apiVersion"],
        "example.com/v1"
    );
}

#[tokio::test(start_paused = true)]
async fn definition_is_served_once_it_says_so_and_refused_where_it_is_wrong() {
    let server = TestServer::start().await;
    let missing = server.get(WIDGETS).await;
    assert_eq!(
        (missing.code, missing.text.as_str()),
        (404, "404 page not found\n")
    );
    let mut wrong = definition(&json!({ "type": "object", "properties": { "size": {} } }));
    let message = server.post(DEFINITIONS, &wrong).await.fails(422, "Invalid");
    assert!(
        message.contains(
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be \
             empty for specified object fields"
        ),
        "{message}"
    );
    wrong["metadata"]["name"] = "gadgets.example.com".into();
    let message = server.post(DEFINITIONS, &wrong).await.fails(422, "Invalid");
    assert!(
        message.contains("metadata.name: Invalid value: \"gadgets.example.com\""),
        "{message}"
    );

    server.define(definition(&sized())).await;
    let served = server
        .get(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    for type_ in ["NamesAccepted", "Established"] {
        assert_eq!(
            condition(&served, type_).map(|found| &found["status"]),
            Some(&json!("True")),
            "{type_}"
        );
    }
    server.post(WIDGETS, &widget("a")).await.created();
    let rows = server
        .get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await
        .ok();
    assert_eq!(rows["rows"][0]["cells"], json!(["a", "0s"]));
}
