//! Where the pod may run: what the run says, else what the settings say. Only what is not empty is written.

use jangar_api::labels;
use k8s_openapi::{
    api::core::v1::{Affinity, PodSpec, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use super::config::{RuntimeConfig, kubernetes_list};
use crate::{decision::Rejection, settings::RunnerSettings};

/// Writes where the pod may run into its spec.
pub(super) fn place(
    pod: PodSpec,
    config: &RuntimeConfig,
    settings: &RunnerSettings,
) -> Result<PodSpec, Rejection> {
    let node_selector = config.node_selector.as_ref().unwrap_or(&settings.node_selector);
    let tolerations = config.tolerations.as_ref().unwrap_or(&settings.tolerations);
    let constraints = match &config.topology_spread_constraints {
        Some(constraints) => constraints.clone(),
        None => kubernetes_list(
            "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
            &settings.topology_spread_constraints,
        )?,
    };
    let affinity = config.affinity.as_ref().or(settings.affinity.as_ref());
    Ok(PodSpec {
        node_selector: Some(node_selector.clone()).filter(|selector| !selector.is_empty()),
        tolerations: Some(tolerations.clone()).filter(|tolerations| !tolerations.is_empty()),
        topology_spread_constraints: Some(constraints.into_iter().map(counting_runs).collect())
            .filter(|constraints: &Vec<_>| !constraints.is_empty()),
        affinity: affinity
            .filter(|affinity| **affinity != Affinity::default())
            .cloned(),
        priority_class_name: config
            .priority_class_name
            .clone()
            .or_else(|| settings.priority_class.clone()),
        scheduler_name: config
            .scheduler_name
            .clone()
            .or_else(|| settings.scheduler_name.clone()),
        ..pod
    })
}

/// A constraint without a selector counts no pods at all, and so spreads nothing. Whoever leaves the selector out means the
/// pods of all runs.
fn counting_runs(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint {
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
    if constraint.label_selector.as_ref().is_some_and(selects) {
        return constraint;
    }
    TopologySpreadConstraint {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: labels::AGENT_RUN.to_owned(),
                operator: "Exists".to_owned(),
                values: None,
            }]),
            match_labels: None,
        }),
        ..constraint
    }
}
