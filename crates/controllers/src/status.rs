//! The one write that reports: what has to change in a status, and nothing else.

use jangar_engine::decision::Uid;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A merge patch that makes the status as it should be, if it is not already.
///
/// It holds only on the object and the version that was looked at: what somebody else wrote meanwhile is never overwritten.
/// Members that this version of Jangar does not know are in neither of the two, and stay.
pub(crate) fn patch<S: Serialize>(
    observed: Option<&S>,
    planned: &S,
    uid: &Uid,
    resource_version: &str,
) -> Result<Option<Value>, serde_json::Error> {
    let before = serde_json::to_value(observed)?;
    let after = serde_json::to_value(planned)?;
    Ok(difference(&before, &after).map(|status| {
        json!({
            "metadata": { "uid": uid.0, "resourceVersion": resource_version },
            "status": status,
        })
    }))
}

/// The object that a first status is replaced by. The endpoint for statuses takes nothing but the status from it, but whoever owns a member
/// of the metadata would lose that if it was not there.
pub(crate) fn whole<K: Resource<DynamicType = ()>>(object: &K, patch: &Value) -> Value {
    let metadata = ObjectMeta {
        managed_fields: None,
        ..object.meta().clone()
    };
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": metadata,
        "status": patch.get("status"),
    })
}

/// The JSON merge patch (RFC 7386) from one value to another; `None` if they are equal.
///
/// A merge patch cannot say `null`, so a member that is `null` counts as absent.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let patch = members(before, after);
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // What was no object is replaced as a whole, which a merge patch does as well.
        (_, Value::Object(after)) => {
            let patch = members(&Map::new(), after);
            Some(Value::Object(patch))
        }
        (before, after) => (before != after).then(|| after.clone()),
    }
}

fn members(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let absent = Value::Null;
    let removed = before
        .iter()
        .filter(|(name, value)| !value.is_null() && after.get(*name).is_none_or(Value::is_null))
        .map(|(name, _)| (name.clone(), Value::Null));
    let changed = after.iter().filter(|(_, value)| !value.is_null());
    let changed = changed.filter_map(|(name, value)| {
        let patch = difference(before.get(name).unwrap_or(&absent), value)?;
        Some((name.clone(), patch))
    });
    removed.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use jangar_api::agents::agent_run::AgentRun;

    use super::*;

    #[test]
    fn equal_values_need_no_patch() {
        let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready" }] });

        assert_eq!(difference(&status, &status), None);
    }

    #[test]
    fn only_what_differs_is_in_the_patch() {
        let before = json!({ "phase": "Pending", "runtimeRef": { "name": "a", "type": "job" } });
        let after = json!({ "phase": "Running", "runtimeRef": { "name": "b", "type": "job" } });

        let patch = difference(&before, &after);

        assert_eq!(
            patch,
            Some(json!({ "phase": "Running", "runtimeRef": { "name": "b" } }))
        );
    }

    #[test]
    fn what_goes_is_null_at_its_depth() {
        let before = json!({ "cancelDeadline": "x", "vcs": { "branch": "b", "commit": "c" } });
        let after = json!({ "vcs": { "branch": "b" } });

        let patch = difference(&before, &after);

        assert_eq!(
            patch,
            Some(json!({ "cancelDeadline": null, "vcs": { "commit": null } }))
        );
    }

    #[test]
    fn lists_are_replaced_as_a_whole() {
        let before = json!({ "conditions": [1, 2] });

        assert_eq!(
            difference(&before, &json!({ "conditions": [1] })),
            Some(json!({ "conditions": [1] }))
        );
    }

    #[test]
    fn null_counts_as_absent_on_both_sides() {
        assert_eq!(difference(&json!({ "a": null }), &json!({})), None);
        assert_eq!(difference(&json!({}), &json!({ "a": null })), None);
        assert_eq!(
            difference(&json!({ "a": 1 }), &json!({ "a": null })),
            Some(json!({ "a": null }))
        );
    }

    #[test]
    fn an_empty_object_that_was_not_there_is_added() {
        assert_eq!(
            difference(&json!({}), &json!({ "outcome": {} })),
            Some(json!({ "outcome": {} }))
        );
    }

    #[test]
    fn a_first_status_is_written_whole_and_bound_to_what_was_looked_at() {
        let planned = json!({ "phase": "Pending" });

        let patch = patch(None, &planned, &Uid("u-1".to_owned()), "7").unwrap();

        assert_eq!(
            patch,
            Some(json!({
                "metadata": { "uid": "u-1", "resourceVersion": "7" },
                "status": { "phase": "Pending" },
            }))
        );
    }

    #[test]
    fn a_status_that_is_written_whole_has_the_metadata_that_was_looked_at() {
        let run: AgentRun = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u-1", "resourceVersion": "7", "labels": { "team": "x" },
                "managedFields": [{ "manager": "kubectl" }],
            },
            "spec": { "agentRef": { "name": "fixer" }, "runtime": { "type": "job" } },
        }))
        .unwrap();
        let planned = json!({ "phase": "Pending", "outcome": null });
        let first = patch(None, &planned, &Uid("u-1".to_owned()), "7")
            .unwrap()
            .unwrap();

        assert_eq!(
            whole(&run, &first),
            json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1",
                "kind": "AgentRun",
                "metadata": {
                    "name": "a", "namespace": "n", "uid": "u-1", "resourceVersion": "7", "labels": { "team": "x" },
                },
                "status": { "phase": "Pending" },
            })
        );
    }
}
