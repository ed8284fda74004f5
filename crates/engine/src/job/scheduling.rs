//! Where the pod may run: what the run says, else what the settings say. Only what is not empty is written.

use k8s_openapi::{
    api::core::v1::{PodSpec, TopologySpreadConstraint},
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
