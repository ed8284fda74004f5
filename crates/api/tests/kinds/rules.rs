//! Evaluates the CEL rules as an API server does: on create and on update, accepted and refused.

use std::sync::LazyLock;

use jangar_api::Kind;
use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use crate::support::schema;

const WRITABLE: [&str; 4] = [
    "cancel",
    "desiredState",
    "cancelReason",
    "ttlSecondsAfterFinished",
];

/// The rules of all kinds, compiled once: most of the time of a validation goes into compiling.
static COMPILED: LazyLock<Vec<CompiledSchema>> = LazyLock::new(|| {
    Kind::ALL
        .iter()
        .map(|kind| compile_schema(&schema(*kind)))
        .collect()
});

/// The messages of the rules that refuse an object; empty if it is accepted.
fn refusals(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    match Validator::new().validate_compiled(&COMPILED[kind as usize], object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

fn object(kind: Kind, spec: &Value) -> Value {
    let info = kind.info();
    json!({
        "apiVersion": format!("{}/{}", info.group, info.version),
        "kind": info.kind,
        "metadata": {"name": "one", "namespace": "agents"},
        "spec": spec,
    })
}

fn with_status(mut object: Value, status: Value) -> Value {
    object["status"] = status;
    object
}

/// A spec of each kind of run with a value for every field it has.
fn full_spec(kind: Kind) -> Value {
    match kind {
        Kind::AgentRun => json!({
            "agentRef": {"name": "coder"}, "idempotencyKey": "k", "implementation": {"inline": {"text": "do it"}},
            "implementationSpecRef": {"name": "work"}, "memoryRef": {"name": "m"}, "parameters": {"a": "b"},
            "priority": 5, "runtime": {"type": "job", "config": {"tolerations": [{"key": "x"}]}}, "secrets": ["s"],
            "systemPrompt": "be brief", "systemPromptRef": {"kind": "Secret", "name": "s", "key": "k"},
            "vcsPolicy": {"mode": "read-only"}, "vcsRef": {"name": "v"}, "workflow": {"steps": [{"name": "one"}]},
            "workload": {"image": "i"}, "ttlSecondsAfterFinished": 60,
            "cancel": false, "desiredState": "Running", "cancelReason": "none",
        }),
        Kind::OrchestrationRun => json!({
            "orchestrationRef": {"name": "o"}, "parameters": {"a": "b"}, "deliveryId": "d",
            "failurePolicy": "FailFast", "timeoutSeconds": 60, "ttlSecondsAfterFinished": 60,
            "cancel": false, "desiredState": "Running", "cancelReason": "none",
        }),
        Kind::ToolRun => json!({
            "toolRef": {"name": "t"}, "parameters": {"a": "b"}, "deliveryId": "d", "runtime": {"type": "job"},
            "ttlSecondsAfterFinished": 60,
            "cancel": false, "desiredState": "Running", "cancelReason": "none",
        }),
        other => panic!("{other:?} is not a kind of run"),
    }
}

fn runs() -> impl Iterator<Item = Kind> {
    Kind::ALL.iter().copied().filter(|kind| kind.is_run())
}

fn accepted_statuses() -> Vec<Value> {
    vec![
        json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Accepted", "status": "True"}]}),
        json!({"phase": "Pending", "conditions": [{"type": "Accepted", "status": "True"}]}),
        json!({"phase": "Running"}),
        json!({"phase": "Succeeded", "conditions": []}),
        json!({"phase": "Cancelling"}),
    ]
}

fn waiting_statuses() -> Vec<Value> {
    vec![
        json!({}),
        json!({"phase": ""}),
        json!({"phase": "Pending"}),
        json!({"phase": "Pending", "conditions": [{"type": "Blocked", "status": "True"}]}),
        json!({"conditions": [{"type": "Accepted", "status": "False"}]}),
    ]
}

#[test]
fn a_run_says_what_is_to_be_done() {
    let spec = |extra: Value| {
        let mut spec = json!({"agentRef": {"name": "a"}, "runtime": {"type": "job"}});
        spec.as_object_mut()
            .expect("a spec")
            .extend(extra.as_object().expect("fields").clone());
        refusals(Kind::AgentRun, &object(Kind::AgentRun, &spec), None)
    };
    assert_eq!(
        spec(json!({"implementationSpecRef": {"name": "w"}})),
        Vec::<String>::new()
    );
    assert_eq!(
        spec(json!({"implementation": {"inline": {"text": "t"}}})),
        Vec::<String>::new()
    );
    assert_eq!(
        spec(json!({"workflow": {"steps": [{"name": "s", "implementationSpecRef": {"name": "w"}}]}})),
        Vec::<String>::new()
    );
    let refused = spec(json!({}));
    assert!(
        refused.len() == 1 && refused[0].contains("implementationSpecRef"),
        "{refused:?}"
    );
}

#[test]
fn a_system_prompt_comes_from_one_place() {
    let reference = json!({"kind": "ConfigMap", "name": "p", "key": "k"});
    for (prompts, accepted) in [
        (json!({}), true),
        (json!({"systemPrompt": "p"}), true),
        (json!({"systemPromptRef": reference}), true),
        (json!({"systemPrompt": "p", "systemPromptRef": reference}), false),
    ] {
        let agent = object(
            Kind::Agent,
            &json!({"providerRef": {"name": "p"}, "defaults": prompts}),
        );
        assert_eq!(
            refusals(Kind::Agent, &agent, None).is_empty(),
            accepted,
            "{prompts}"
        );

        let mut spec = json!({
            "agentRef": {"name": "a"}, "runtime": {"type": "job"}, "implementationSpecRef": {"name": "w"},
        });
        spec.as_object_mut()
            .expect("a spec")
            .extend(prompts.as_object().expect("fields").clone());
        let run = object(Kind::AgentRun, &spec);
        assert_eq!(
            refusals(Kind::AgentRun, &run, None).is_empty(),
            accepted,
            "{prompts}"
        );
    }
}

#[test]
fn long_names_of_runs_are_refused_with_a_remedy() {
    for kind in runs() {
        let mut spec = full_spec(kind);
        spec.as_object_mut().expect("a spec").remove("systemPromptRef");
        let mut run = object(kind, &spec);
        run["metadata"]["name"] = json!("x".repeat(63));
        assert_eq!(refusals(kind, &run, None), Vec::<String>::new(), "{kind:?}");

        run["metadata"]["name"] = json!("x".repeat(64));
        let refused = refusals(kind, &run, None);
        assert!(
            refused.len() == 1 && refused[0].contains("shorter metadata.name"),
            "{kind:?}: {refused:?}"
        );

        let stored_before = with_status(run, json!({"phase": "Failed"}));
        assert_eq!(
            refusals(kind, &stored_before, Some(&stored_before)),
            Vec::<String>::new(),
            "{kind:?}"
        );
    }
}

/// Every way to edit one field of a spec: change it, remove it, add it.
fn edits(kind: Kind, field: &str) -> Vec<(Value, Value)> {
    let mut full = full_spec(kind);
    // The two prompts exclude each other, which is not what is tested here.
    let other_prompt = if field == "systemPrompt" {
        "systemPromptRef"
    } else {
        "systemPrompt"
    };
    full.as_object_mut().expect("a spec").remove(other_prompt);
    let mut without = full.clone();
    without.as_object_mut().expect("a spec").remove(field);
    let mut changed = full.clone();
    changed[field] = match &full[field] {
        Value::String(text) => json!(format!("{text} else")),
        Value::Bool(truth) => json!(!truth),
        Value::Number(number) => json!(number.as_i64().expect("a number") + 1),
        Value::Array(items) => json!([items[0], "more"]),
        Value::Object(map) => {
            let (key, value) = map.iter().next().expect("a member");
            let mut map = map.clone();
            map.insert(key.clone(), changed_member(value));
            Value::Object(map)
        }
        Value::Null => panic!("{field} has no value"),
    };
    vec![
        (full.clone(), changed),
        (full.clone(), without.clone()),
        (without, full),
    ]
}

fn changed_member(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(format!("{text}-2")),
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({"text": "something else"}),
        other => panic!("no other value for {other}"),
    }
}

/// Whether an edit is refused because the run was accepted.
fn is_fixed(kind: Kind, before: &Value, after: &Value, status: &Value) -> bool {
    let old = with_status(object(kind, before), status.clone());
    let new = with_status(object(kind, after), status.clone());
    refusals(kind, &new, Some(&old))
        .iter()
        .any(|message| message.contains("was accepted"))
}

#[test]
fn once_accepted_only_the_cancel_and_the_retention_can_be_edited() {
    let (running, pending) = (json!({"phase": "Running"}), json!({"phase": "Pending"}));
    for kind in runs() {
        let root = schema(kind);
        for field in root["properties"]["spec"]["properties"]
            .as_object()
            .expect("fields")
            .keys()
        {
            assert!(
                full_spec(kind).get(field).is_some(),
                "the full spec of {kind:?} lacks {field}"
            );
            let writable = WRITABLE.contains(&field.as_str());
            for (before, after) in edits(kind, field) {
                assert_eq!(
                    is_fixed(kind, &before, &after, &running),
                    !writable,
                    "{kind:?} {field}: {after}"
                );
                assert!(
                    !is_fixed(kind, &before, &after, &pending),
                    "{kind:?} {field} of a waiting run: {after}"
                );
            }
        }
    }
}

#[test]
fn a_run_is_accepted_by_its_condition_or_by_its_phase() {
    for kind in runs() {
        let (before, after) = edits(kind, "parameters").remove(0);
        for status in accepted_statuses() {
            assert!(
                is_fixed(kind, &before, &after, &status),
                "{kind:?} was edited with {status}"
            );
        }
        for status in waiting_statuses() {
            assert!(
                !is_fixed(kind, &before, &after, &status),
                "{kind:?} was refused with {status}"
            );
        }
    }
}

#[test]
fn an_edit_deep_inside_a_free_form_value_is_seen() {
    let accepted = json!({"phase": "Running"});
    let run = |config: Value| {
        let mut spec = full_spec(Kind::AgentRun);
        spec.as_object_mut().expect("a spec").remove("systemPrompt");
        spec["runtime"]["config"] = config;
        with_status(object(Kind::AgentRun, &spec), accepted.clone())
    };
    let old = run(json!({"tolerations": [{"key": "x"}]}));
    for config in [
        json!({"tolerations": [{"key": "y"}]}),
        json!({"toleration": [{"key": "x"}]}),
        json!({}),
    ] {
        assert!(
            !refusals(Kind::AgentRun, &run(config.clone()), Some(&old)).is_empty(),
            "{config}"
        );
    }
    assert!(refusals(Kind::AgentRun, &old, Some(&old)).is_empty());
}

#[test]
fn a_status_write_is_never_refused_by_the_rules_on_the_spec() {
    for kind in runs() {
        let mut spec = full_spec(kind);
        spec.as_object_mut().expect("a spec").remove("systemPrompt");
        let new = object(kind, &spec);
        for before in accepted_statuses().into_iter().chain(waiting_statuses()) {
            for after in accepted_statuses().into_iter().chain(waiting_statuses()) {
                let old = with_status(new.clone(), before.clone());
                let new = with_status(new.clone(), after);
                assert_eq!(refusals(kind, &new, Some(&old)), Vec::<String>::new(), "{kind:?}");
            }
        }
    }
}

#[test]
fn a_run_without_a_spec_can_still_be_updated() {
    for kind in [Kind::OrchestrationRun, Kind::ToolRun] {
        let mut run = with_status(object(kind, &json!({})), json!({"phase": "Failed"}));
        run.as_object_mut().expect("an object").remove("spec");
        assert_eq!(refusals(kind, &run, Some(&run)), Vec::<String>::new(), "{kind:?}");
        let mut with_spec = run.clone();
        with_spec["spec"] = full_spec(kind);
        assert_eq!(refusals(kind, &with_spec, Some(&run)).len(), 1, "{kind:?}");
    }
}
