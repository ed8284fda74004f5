//! Where the pod may run: what the run says, else what the settings say. Only what is not empty is written.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{PodSpec, TopologySpreadConstraint},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::config::RuntimeConfig;
use crate::{as_given::AsGiven, decision::PodFields, settings::RunnerSettings};

/// Writes where the pod may run into its spec, and into `fields` what its types do not know. `all_runs` is the label that the
/// pods of all runs of the kind have.
pub(super) fn place(
    pod: PodSpec,
    config: &RuntimeConfig,
    settings: &RunnerSettings,
    all_runs: &str,
    fields: &mut PodFields,
) -> PodSpec {
    let node_selector = config.node_selector.as_ref().unwrap_or(&settings.node_selector);
    let tolerations = config.tolerations.as_ref().unwrap_or(&settings.tolerations);
    let constraints = config.topology_spread_constraints.as_ref();
    let constraints = constraints.unwrap_or(&settings.topology_spread_constraints);
    let counting = |constraint: &AsGiven<_>| counting_runs(constraint.clone(), all_runs);
    let constraints: Vec<_> = constraints.iter().map(counting).collect();
    let affinity = config.affinity.as_ref().or(settings.affinity.as_ref());
    PodSpec {
        node_selector: Some(node_selector.clone()).filter(|selector| !selector.is_empty()),
        tolerations: list("tolerations", tolerations, fields),
        topology_spread_constraints: list("topologySpreadConstraints", &constraints, fields),
        affinity: affinity.and_then(|affinity| one("affinity", affinity, fields)),
        priority_class_name: config
            .priority_class_name
            .clone()
            .or_else(|| settings.priority_class.clone()),
        scheduler_name: config
            .scheduler_name
            .clone()
            .or_else(|| settings.scheduler_name.clone()),
        ..pod
    }
}

/// What to write into a field of the pod; nothing if it says nothing.
pub(super) fn one<T>(field: &'static str, given: &AsGiven<T>, fields: &mut PodFields) -> Option<T>
where
    T: DeserializeOwned + Serialize + Clone,
{
    if given.is_empty() {
        return None;
    }
    if given.unknown_field().is_some() {
        fields.insert(field, given.json().clone());
    }
    Some(given.typed().clone())
}

fn list<T>(field: &'static str, given: &[AsGiven<T>], fields: &mut PodFields) -> Option<Vec<T>>
where
    T: DeserializeOwned + Serialize + Clone,
{
    if given.iter().any(|one| one.unknown_field().is_some()) {
        let all = given.iter().map(|one| one.json().clone()).collect();
        fields.insert(field, Value::Array(all));
    }
    let typed: Vec<T> = given.iter().map(|one| one.typed().clone()).collect();
    (!typed.is_empty()).then_some(typed)
}

/// A constraint without a selector counts no pods at all, and so spreads nothing. Whoever leaves the selector out means the
/// pods of all runs.
fn counting_runs(
    mut constraint: AsGiven<TopologySpreadConstraint>,
    all_runs: &str,
) -> AsGiven<TopologySpreadConstraint> {
    let selects = |selector: &LabelSelector| {
        selector
            .match_labels
            .as_ref()
            .is_some_and(|labels| !labels.is_empty())
            || selector
                .match_expressions
                .as_ref()
                .is_some_and(|list| !list.is_empty())
    };
    if constraint.typed().label_selector.as_ref().is_some_and(selects) {
        return constraint;
    }
    let all_runs = LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: all_runs.to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        match_labels: None,
    };
    constraint.set("labelSelector", all_runs, |constraint, selector| {
        constraint.label_selector = Some(selector);
    });
    constraint
}

/// What is to be said of a Job whose pod is not counted by one of its own constraints: that the scheduler then does not spread
/// these pods, or waits for ever for others. It is most often a slip of the pen.
pub fn counts_others(job: &Job) -> Option<String> {
    let template = &job.spec.as_ref()?.template;
    let labels = template.metadata.as_ref()?.labels.as_ref()?;
    let constraints = template
        .spec
        .as_ref()?
        .topology_spread_constraints
        .iter()
        .flatten();
    let (number, constraint) = constraints.enumerate().find(|(_, constraint)| {
        let selector = constraint.label_selector.as_ref();
        selector.is_some_and(|selector| !matches(selector, labels))
    })?;
    Some(format!(
        "the labelSelector of topologySpreadConstraints[{number}] ({}) does not select the pod itself, so that pods like it are \
         not counted and not spread: correct it, or leave it out to count the pods of all runs",
        constraint.topology_key
    ))
}

/// Whether a selector selects what has these labels. What Kubernetes does not know either it refuses by itself.
fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|wanted| {
            let value = labels.get(&wanted.key);
            let listed = || value.is_some_and(|value| wanted.values.iter().flatten().any(|one| one == value));
            match wanted.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => true,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn constraint_that_does_not_count_its_own_pod_is_named() {
        let job = |selector: &Value| -> Job {
            let constraint = json!({
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
            });
            let labels = json!({"agent": "coder", "job": "one"});
            let spec = json!({"containers": [], "topologySpreadConstraints": [constraint]});
            let template = json!({"metadata": {"labels": labels}, "spec": spec});
            serde_json::from_value(json!({"metadata": {}, "spec": {"template": template}})).unwrap()
        };
        let expression = |operator: &str, key: &str, values: &Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, counted) in [
            (json!({"matchLabels": {"agent": "coder"}}), true),
            (json!({"matchLabels": {"agent": "codre"}}), false),
            (json!({"matchLabels": {"agent": "coder", "team": "a"}}), false),
            (expression("In", "agent", &json!(["other", "coder"])), true),
            (expression("In", "agent", &json!(["other"])), false),
            (expression("NotIn", "agent", &json!(["coder"])), false),
            (expression("NotIn", "team", &json!(["a"])), true),
            (expression("Exists", "job", &Value::Null), true),
            (expression("Exists", "team", &Value::Null), false),
            (expression("DoesNotExist", "team", &Value::Null), true),
            (expression("DoesNotExist", "job", &Value::Null), false),
        ] {
            let told = counts_others(&job(&selector));
            assert_eq!(told.is_none(), counted, "{selector}");
            assert!(told.is_none_or(|told| told.contains("topologySpreadConstraints[0] (zone)")));
        }
    }
}
