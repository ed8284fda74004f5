//! The pod failure policy: what a Job makes of a failed pod.

use k8s_openapi::api::{
    batch::v1::{
        PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    },
    core::v1::{ContainerStatus, Pod, PodCondition, PodStatus},
};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Judgement {
    /// It ends the Job, for the reason given.
    FailJob(String),
    /// It does not count against the limit.
    Ignore,
    /// One failure more.
    Count,
}

/// The first rule that matches decides; without one the failure counts.
pub(super) fn judge(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Judgement {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    for (index, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let what = if let Some(codes) = &rule.on_exit_codes {
            container_that_matches(status, codes).map(|(container, code)| {
                format!(
                    "Container {} for pod {} failed with exit code {code}",
                    container.name,
                    full_name(pod)
                )
            })
        } else {
            let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
            condition_that_matches(status, patterns)
                .map(|condition| format!("Pod {} has condition {}", full_name(pod), condition.type_))
        };
        let Some(what) = what else { continue };
        return match rule.action.as_str() {
            "FailJob" => Judgement::FailJob(format!("{what} matching FailJob rule at index {index}")),
            "Ignore" => Judgement::Ignore,
            _ => Judgement::Count,
        };
    }
    Judgement::Count
}

fn full_name(pod: &Pod) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn container_that_matches<'s>(
    status: &'s PodStatus,
    codes: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'s ContainerStatus, i32)> {
    let containers = status.container_statuses.iter().flatten();
    let all = containers.chain(status.init_container_statuses.iter().flatten());
    let named = all.filter(|container| {
        codes
            .container_name
            .as_ref()
            .is_none_or(|name| *name == container.name)
    });
    named
        .filter_map(|container| {
            Some((
                container,
                container.state.as_ref()?.terminated.as_ref()?.exit_code,
            ))
        })
        .find(|(_, code)| {
            let listed = codes.values.contains(code);
            *code != 0
                && match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
        })
}

fn condition_that_matches<'s>(
    status: &'s PodStatus,
    patterns: &[PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'s PodCondition> {
    status.conditions.iter().flatten().find(|condition| {
        patterns.iter().any(|pattern| {
            let wanted = pattern.status.as_deref().unwrap_or("True");
            pattern.type_ == condition.type_ && wanted == condition.status
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(rules: &Value, status: &Value) -> Judgement {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "p"}, "status": status,
        });
        judge(Some(&policy), &serde_json::from_value(pod).unwrap())
    }

    fn ended(name: &str, code: i32) -> Value {
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}},
        })
    }

    #[test]
    fn exit_codes_are_matched_by_operator_and_container() {
        let rule = |operator: &str, name: Option<&str>| {
            json!([{
                "action": "FailJob",
                "onExitCodes": {"operator": operator, "containerName": name, "values": [3, 4]},
            }])
        };
        let message = |container: &str, code: i32| {
            Judgement::FailJob(format!(
                "Container {container} for pod n/p failed with exit code {code} matching FailJob rule at index 0"
            ))
        };
        let one = json!({"containerStatuses": [ended("a", 0), ended("b", 4)]});
        let init = json!({"initContainerStatuses": [ended("i", 3)]});
        let cases = [
            (rule("In", None), &one, message("b", 4)),
            (rule("In", Some("b")), &one, message("b", 4)),
            (rule("In", Some("a")), &one, Judgement::Count),
            (rule("NotIn", None), &one, Judgement::Count),
            (rule("In", None), &init, message("i", 3)),
        ];
        for (rules, status, expected) in cases {
            assert_eq!(judged(&rules, status), expected, "{rules} {status}");
        }
        let other = json!({"containerStatuses": [ended("a", 0), ended("b", 9)]});
        assert_eq!(judged(&rule("NotIn", None), &other), message("b", 9));
    }

    #[test]
    fn first_matching_rule_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
            {"action": "FailJob", "onPodConditions": [{"type": "Broken", "status": "True"}]},
        ]);
        let with = |conditions: Value, code: i32| json!({"conditions": conditions, "containerStatuses": [ended("a", code)]});
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
        assert_eq!(judged(&rules, &with(disrupted, 1)), Judgement::Ignore);
        let broken = json!([{"type": "Broken", "status": "True"}]);
        assert_eq!(judged(&rules, &with(broken.clone(), 1)), Judgement::Count);
        assert_eq!(
            judged(&rules, &with(broken, 2)),
            Judgement::FailJob("Pod n/p has condition Broken matching FailJob rule at index 2".to_owned())
        );
        let calm = json!([{"type": "DisruptionTarget", "status": "False"}]);
        assert_eq!(judged(&rules, &with(calm, 2)), Judgement::Count);
    }

    #[test]
    fn running_container_and_success_match_no_exit_code() {
        let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}]);
        let mut running = ended("a", 0);
        running["state"] = json!({"running": {}});
        for status in [
            json!({}),
            json!({"containerStatuses": [running]}),
            json!({"containerStatuses": [ended("a", 0)]}),
        ] {
            assert_eq!(judged(&rules, &status), Judgement::Count, "{status}");
        }
    }
}
