//! Custom kinds: what a definition's schema does to the objects of its kind.

use serde_json::{Value, json};

use crate::support::{
    DEFINITIONS, JSON_PATCH, MERGE, TestServer, WIDGETS, condition, definition, names, sized, uid, version,
    widget,
};

fn with_spec(name: &str, spec: &Value) -> Value {
    let mut object = widget(name);
    object["spec"] = spec.clone();
    object
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

#[tokio::test(start_paused = true)]
async fn metadata_of_a_custom_resource_is_read_as_go_reads_it() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let post = async |metadata: Value| {
        let mut object = widget("odd");
        object["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        server.post(&format!("{WIDGETS}?dryRun=All"), &object).await
    };
    let made = post(json!({ "labels": { "a": null }, "annotations": null, "finalizers": [], "junk": 1 }))
        .await
        .created();
    assert_eq!(made["metadata"]["labels"], json!({ "a": "" }));
    for absent in ["annotations", "finalizers", "junk"] {
        assert_eq!(made["metadata"].get(absent), None, "{absent}");
    }
    let owner = "metadata.ownerReferences";
    let cases = [
        (
            json!({ "finalizers": [null] }),
            422,
            "Widget.example.com \"odd\" is invalid: [metadata.finalizers: Invalid value: \"\": name part must be \
             non-empty, metadata.finalizers: Invalid value: \"\": name part must consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
             '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]"
                .to_owned(),
        ),
        (
            json!({ "ownerReferences": [null] }),
            422,
            format!(
                "Widget.example.com \"odd\" is invalid: [{owner}.apiVersion: Invalid value: \"\": version must not be \
                 empty, {owner}.kind: Invalid value: \"\": must not be empty, {owner}.name: Invalid value: \"\": must not \
                 be empty, {owner}.uid: Invalid value: \"\": must not be empty]"
            ),
        ),
        (
            json!({ "finalizers": [1] }),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
             ObjectMeta.finalizers of type string"
                .to_owned(),
        ),
        (
            json!({ "deletionTimestamp": "x" }),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: parsing time \"x\" as \
             \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""
                .to_owned(),
        ),
    ];
    for (metadata, code, message) in cases {
        let reason = if code == 422 { "Invalid" } else { "BadRequest" };
        assert_eq!(
            post(metadata.clone()).await.fails(code, reason),
            message,
            "{metadata}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn object_that_is_nested_too_deep_is_the_fault_of_who_sent_it() {
    let server = TestServer::start().await;
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    server.define(definition(&open)).await;
    let mut deep = json!(1);
    for _ in 0..122 {
        deep = json!([deep]);
    }
    server
        .post(WIDGETS, &with_spec("a", &json!({ "deep": deep })))
        .await
        .fails(400, "BadRequest");
}
