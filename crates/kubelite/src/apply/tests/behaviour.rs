//! What the tables do not show: times, order, versions, errors on the wire, and schemas that change.

use serde_json::{Value, json};

use super::{
    super::{MAX_DEPTH, Reset, Writer, apply, keep_times_of_noop, track_update},
    harness::{API_VERSION, Server, Step, TIME, schema},
};
use crate::{
    error::{ApiError, Reason},
    schema::{PatchStrategy, Schema},
};

const LATER: &str = "2026-01-02T04:00:00Z";

fn step(by: &str, is_apply: bool, body: Value) -> Step {
    Step {
        by: by.to_owned(),
        body,
        is_apply,
        force: false,
        subresource: "",
    }
}

fn applied(by: &str, body: Value) -> Step {
    step(by, true, body)
}

fn updated(by: &str, body: Value) -> Step {
    step(by, false, body)
}

fn kind() -> Schema {
    schema(&serde_saphyr::from_str(include_str!("schema.yaml")).expect("a valid schema"))
}

fn server(steps: &[Step]) -> Server {
    let mut server = Server::new(kind(), false);
    for step in steps {
        server.write(step).expect("a valid write");
    }
    server
}

/// Manager and time of every entry, in the order they are stored in.
fn times(server: &Server) -> Vec<(&str, &str)> {
    let entries = server.managed().iter();
    entries
        .map(|entry| {
            (
                entry["manager"].as_str().unwrap_or_default(),
                entry["time"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

#[test]
fn an_entry_has_the_time_when_it_last_took_fields() {
    let mut server = server(&[
        applied("a", json!({"spec": {"num": 1}})),
        updated("u", json!({"spec": {"num": 1, "text": "x"}})),
    ]);
    server
        .write_at(&updated("u", json!({"spec": {"num": 1, "text": "y"}})), LATER)
        .unwrap();
    assert_eq!(times(&server), [("a", TIME), ("u", LATER)]);
}

#[test]
fn losing_fields_changes_no_time() {
    let mut server = server(&[
        updated("u", json!({"spec": {"num": 1, "text": "x"}})),
        applied("a", json!({"spec": {"flag": true}})),
    ]);
    server
        .write_at(&updated("u", json!({"spec": {"num": 1, "flag": true}})), LATER)
        .unwrap();
    assert_eq!(times(&server), [("a", TIME), ("u", TIME)]);
    server
        .write_at(&updated("v", json!({"spec": {"num": 2, "flag": true}})), LATER)
        .unwrap();
    assert_eq!(times(&server), [("a", TIME), ("u", TIME), ("v", LATER)]);
}

#[test]
fn an_apply_that_changes_nothing_keeps_its_time() {
    let mut server = server(&[applied("a", json!({"spec": {"num": 1}}))]);
    let before = server.live.clone();
    server
        .write_at(&applied("a", json!({"spec": {"num": 1}})), LATER)
        .unwrap();
    assert_eq!(server.live, before);
    // Who joins the owners without changing anything has never taken a field.
    server
        .write_at(&applied("b", json!({"spec": {"num": 1}})), LATER)
        .unwrap();
    assert_eq!(times(&server), [("b", ""), ("a", TIME)]);
}

#[test]
fn an_update_that_changes_nothing_leaves_the_object_as_it_is() {
    let mut server = server(&[
        applied("a", json!({"spec": {"num": 1}})),
        updated("u", json!({"spec": {"num": 1, "text": "x"}})),
    ]);
    let before = server.live.clone().unwrap();
    let mut sent_whole = before.clone();
    let writer = Writer {
        manager: "v",
        api_version: API_VERSION,
        subresource: "",
        time: LATER,
    };
    track_update(Some(&before), &mut sent_whole, &kind(), writer);
    assert_eq!(sent_whole, before);
    server
        .write_at(&updated("v", json!({"spec": {"num": 1, "text": "x"}})), LATER)
        .unwrap();
    assert_eq!(server.live, Some(before));
}

#[test]
fn times_are_reverted_when_nothing_else_is_left_of_a_write() {
    let live = server(&[applied("a", json!({"spec": {"num": 1}}))]).live.unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!(LATER);
    new["metadata"]["resourceVersion"] = json!("2");
    keep_times_of_noop(&live, &mut new);
    assert_eq!(
        new["metadata"]["managedFields"],
        live["metadata"]["managedFields"]
    );

    for (pointer, value) in [
        ("/spec/num", json!(2)),
        ("/metadata/managedFields/0/manager", json!("b")),
    ] {
        let mut new = live.clone();
        new["metadata"]["managedFields"][0]["time"] = json!(LATER);
        *new.pointer_mut(pointer).unwrap() = value;
        let changed = new.clone();
        keep_times_of_noop(&live, &mut new);
        assert_eq!(new, changed, "{pointer}");
    }
}

#[test]
fn entries_are_sorted_by_operation_then_time_then_manager() {
    let mut server = server(&[updated("z", json!({"spec": {"num": 1}}))]);
    server
        .write_at(&applied("b", json!({"spec": {"text": "x"}})), LATER)
        .unwrap();
    server
        .write(&applied("c", json!({"spec": {"flag": true}})))
        .unwrap();
    server.write(&applied("a", json!({"spec": {"port": 1}}))).unwrap();
    let names: Vec<_> = times(&server).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "c", "b", "z"]);
}

#[test]
fn an_entry_looks_as_in_kubernetes() {
    let server = server(&[updated("u", json!({"spec": {"num": 1}}))]);
    let entry = json!({
        "apiVersion": API_VERSION, "fieldsType": "FieldsV1", "manager": "u", "operation": "Update", "time": TIME,
        "fieldsV1": {"f:spec": {".": {}, "f:num": {}}},
    });
    assert_eq!(server.managed(), [entry]);
}

#[test]
fn a_manager_without_a_name_is_unknown() {
    let server = server(&[updated("", json!({"spec": {"num": 1}}))]);
    assert_eq!(times(&server), [("unknown", TIME)]);
}

#[test]
fn conflicts_are_409_with_a_cause_for_each_field() {
    let mut server = server(&[updated(
        "kubectl",
        json!({"spec": {"num": 1, "items": [{"name": "a", "value": "x"}]}}),
    )]);
    let body = json!({"spec": {"num": 2, "items": [{"name": "a", "value": "y"}]}});
    let error = server.write(&applied("a", body)).unwrap_err();
    assert_eq!((error.reason, error.code.as_u16()), (Reason::Conflict, 409));
    let lines = [
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using example.com/v1:",
        "- .spec.num",
        "- .spec.items[name=\"a\"].value",
    ];
    assert_eq!(error.message, lines.join("\n"));
    let details = error.details.as_deref().unwrap();
    assert!(details.name.is_empty());
    let causes: Vec<_> = details
        .causes
        .iter()
        .map(|cause| (&*cause.reason, &*cause.message, &*cause.field))
        .collect();
    let message = "conflict with \"kubectl\" using example.com/v1";
    assert_eq!(
        causes,
        [
            ("FieldManagerConflict", message, ".spec.num"),
            ("FieldManagerConflict", message, ".spec.items[name=\"a\"].value"),
        ]
    );
}

#[test]
fn a_bad_body_is_answered_as_kubernetes_does() {
    let writer = Writer {
        manager: "a",
        api_version: "v1",
        subresource: "",
        time: TIME,
    };
    let answer = |body: Value| -> ApiError {
        apply(None, &body, &kind(), writer, Reset::Nothing, false)
            .unwrap_err()
            .into()
    };
    let error = answer(json!({"apiVersion": "v2", "kind": "Thing"}));
    assert_eq!(
        (error.reason, &*error.message),
        (Reason::BadRequest, "invalid object type: /v2, Kind=Thing")
    );
    let error = answer(json!({}));
    assert_eq!(
        (error.reason, &*error.message),
        (Reason::BadRequest, "invalid object type: /, Kind=")
    );
    let error = answer(json!({"apiVersion": "v1", "metadata": {"managedFields": []}}));
    assert_eq!(
        (error.reason, &*error.message),
        (Reason::BadRequest, "metadata.managedFields must be nil")
    );
    assert_eq!(answer(json!([])).reason, Reason::BadRequest);

    let misfit =
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"namespace": "n", "name": "x"}, "spec": 1});
    let status = answer(misfit).to_status();
    assert_eq!((status.get("reason"), &status["code"]), (None, &json!(500)));
    let message = "failed to create typed patch object (n/x; /v1, Kind=Thing): .spec: expected map, got &{1}";
    assert_eq!(status["message"], message);
}

#[test]
fn an_applier_of_another_version_is_the_same_and_an_updater_is_not() {
    let mut live = server(&[
        applied("a", json!({"spec": {"num": 1}})),
        updated("u", json!({"spec": {"num": 1, "text": "x"}})),
    ])
    .live
    .unwrap();
    let version = "example.com/v2";
    live["apiVersion"] = json!(version);
    let at = |manager| Writer {
        manager,
        api_version: version,
        subresource: "",
        time: TIME,
    };
    let body =
        json!({"apiVersion": version, "kind": "Thing", "metadata": {"name": "x"}, "spec": {"flag": true}});
    let mut new = apply(Some(&live), &body, &kind(), at("a"), Reset::Nothing, false).unwrap();
    assert_eq!(new["spec"], json!({"text": "x", "flag": true}));
    let before = new.clone();
    new["spec"]["text"] = json!("y");
    track_update(Some(&before), &mut new, &kind(), at("u"));
    let entries = new["metadata"]["managedFields"].as_array().unwrap().iter();
    let entries: Vec<_> = entries
        .map(|entry| (&entry["manager"], &entry["apiVersion"], &entry["fieldsV1"]))
        .collect();
    assert_eq!(
        entries,
        [
            (&json!("a"), &json!(version), &json!({"f:spec": {"f:flag": {}}})),
            (&json!("u"), &json!(version), &json!({"f:spec": {"f:text": {}}})),
        ]
    );
}

#[test]
fn a_map_that_became_atomic_is_owned_as_one_value() {
    let granular = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"m": {
        "type": "object", "additionalProperties": {"type": "string"}}}}}});
    let mut atomic = granular.clone();
    atomic["properties"]["spec"]["properties"]["m"]["x-kubernetes-map-type"] = json!("atomic");
    let mut server = Server::new(schema(&granular), false);
    server
        .write(&applied("a", json!({"spec": {"m": {"x": "1"}}})))
        .unwrap();
    server.schema = schema(&atomic);
    server
        .write(&applied("b", json!({"spec": {"m": {"x": "1"}}})))
        .unwrap();
    let whole = json!({"f:spec": {"f:m": {}}});
    assert_eq!(
        server.owners(),
        [("a".to_owned(), whole.clone()), ("b".to_owned(), whole)].into()
    );
}

#[test]
fn the_oldest_updaters_are_merged_by_version_and_keep_the_latest_time() {
    let mut server = Server::new(kind(), false);
    let mut tags = json!({});
    for number in 0..12 {
        tags[format!("k{number}")] = json!("v");
        // The first writers are the most recent ones.
        let time = format!("2026-01-02T03:{:02}:00Z", 59 - number);
        server
            .write_at(
                &updated(&format!("u{number:02}"), json!({"spec": {"tags": tags}})),
                &time,
            )
            .unwrap();
    }
    let times = times(&server);
    assert_eq!(times.len(), 10);
    assert_eq!(times[0], ("ancient-changes", "2026-01-02T03:50:00Z"));
    assert_eq!(times[9], ("u00", "2026-01-02T03:59:00Z"));
    let ancient = json!({"f:spec": {"f:tags": {"f:k10": {}, "f:k11": {}, "f:k9": {}}}});
    assert_eq!(server.owners()["ancient-changes update"], ancient);
}

#[test]
fn a_live_object_without_uid_is_what_a_create_starts_from() {
    let start = json!({"spec": {}});
    let mut new = json!({"spec": {"num": 1}});
    let writer = Writer {
        manager: "u",
        api_version: API_VERSION,
        subresource: "",
        time: TIME,
    };
    track_update(Some(&start), &mut new, &kind(), writer);
    assert_eq!(
        new["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:num": {}}})
    );
}

#[test]
fn managers_cannot_be_changed_through_a_subresource() {
    let mut server = Server::new(kind(), true);
    server.write(&applied("a", json!({"spec": {"num": 1}}))).unwrap();
    let mut sent = server.live.clone().unwrap();
    sent["metadata"]["managedFields"] = json!([]);
    sent["status"] = json!({"phase": "Done"});
    let writer = Writer {
        manager: "c",
        api_version: API_VERSION,
        subresource: "status",
        time: TIME,
    };
    track_update(server.live.as_ref(), &mut sent, &kind(), writer);
    server.live = Some(sent);
    let status = json!({"f:status": {".": {}, "f:phase": {}}});
    let spec = json!({"f:spec": {"f:num": {}}});
    assert_eq!(
        server.owners(),
        [("a".to_owned(), spec), ("c update status".to_owned(), status)].into()
    );
}

#[test]
fn lists_of_built_in_kinds_are_merged_by_their_patch_strategy() {
    let mut list = schema(
        &json!({"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "image": {"type": "string"}}}}),
    );
    list.patch_strategy = PatchStrategy::Merge {
        key: Some("name".to_owned()),
        retain_keys: false,
    };
    let mut kind = schema(&json!({"type": "object"}));
    kind.properties.insert("containers".to_owned(), list.into());
    let mut server = Server::new(kind, false);
    server
        .write(&applied(
            "a",
            json!({"containers": [{"name": "x", "image": "1"}]}),
        ))
        .unwrap();
    server
        .write(&applied("b", json!({"containers": [{"name": "y"}]})))
        .unwrap();
    assert_eq!(
        server.object(),
        json!({"containers": [{"name": "x", "image": "1"}, {"name": "y"}]})
    );
}

#[test]
fn values_below_the_depth_bound_are_owned_as_a_whole() {
    // The innermost value, and a map around it for each level.
    let nest = |leaf: Value| (0..MAX_DEPTH + 20).fold(leaf, |below, _| json!({"x": below}));
    let mut server = Server::new(kind(), false);
    server
        .write(&applied("a", json!({"spec": {"free": nest(json!({"one": 1}))}})))
        .unwrap();
    let error = server
        .write(&applied("b", json!({"spec": {"free": nest(json!({"two": 2}))}})))
        .unwrap_err();
    assert_eq!(error.message.matches(".x").count(), MAX_DEPTH - 2);
}

#[test]
fn a_flood_of_misfits_is_cut_short() {
    let labels: serde_json::Map<String, Value> =
        (0..1000).map(|number| (number.to_string(), json!(1))).collect();
    let error = server(&[])
        .write(&applied("a", json!({"metadata": {"labels": labels}})))
        .unwrap_err();
    assert_eq!(error.message.lines().count(), 33);
}
