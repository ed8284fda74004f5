//! What a submission has to keep to: the Budget and the SecretBinding that it names, and the service accounts of its Agent.
//!
//! They bind submissions. Whoever may create or change runs as they are, here or in Kubernetes directly, is bound by RBAC alone, and so is
//! whoever runs again what has run.

use jangar_api::{
    agents::agent::Agent,
    budgets::{Amounts, Budget},
    phase::BudgetPhase,
    security::SecretBinding,
};
use kube::ResourceExt;
use serde_json::json;

use crate::refusal::{Refusal, Trouble, shown};

/// Whether the Budget lets more work in.
pub fn check_budget(budget: &Budget) -> Result<(), Refusal> {
    let name = budget.name_any();
    let status = budget.status.clone().unwrap_or_default();
    if let Some(
        phase @ (BudgetPhase::Exceeded | BudgetPhase::Blocked | BudgetPhase::Denied | BudgetPhase::Failed),
    ) = &status.phase
    {
        return Err(refused(
            "policy.budgetRef",
            format!("Budget {name} is {phase}"),
            format!("raise spec.limits of Budget {name}, or name another Budget"),
        ));
    }
    let limits = budget.spec.limits.clone().unwrap_or_default();
    let used = status.used.unwrap_or_default();
    let over = amounts(&used)
        .into_iter()
        .zip(amounts(&limits))
        .find_map(|((what, used), (_, limit))| {
            let (used, limit) = (used?, limit?);
            (quantity(used)? > quantity(limit)?).then(|| format!("{used} {what} of {limit} are used"))
        });
    match over {
        Some(words) => Err(refused(
            "policy.budgetRef",
            format!("Budget {name} is used up: {words}"),
            format!("raise spec.limits of Budget {name}, or name another Budget"),
        )),
        None => Ok(()),
    }
}

fn amounts(amounts: &Amounts) -> [(&'static str, Option<&str>); 5] {
    [
        ("tokens", amounts.tokens.as_deref()),
        ("dollars", amounts.dollars.as_deref()),
        ("cpu", amounts.cpu.as_deref()),
        ("memory", amounts.memory.as_deref()),
        ("gpu", amounts.gpu.as_deref()),
    ]
}

/// A number with one of the suffixes of Kubernetes.
fn quantity(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 14] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let text = text.trim();
    SUFFIXES.iter().find_map(|(suffix, factor)| {
        let number: f64 = text.strip_suffix(suffix)?.parse().ok()?;
        number.is_finite().then_some(number * factor)
    })
}

/// Whether a SecretBinding lets the agent use these Secrets.
pub fn check_secrets(
    agent: &str,
    secrets: &[String],
    binding: Option<&SecretBinding>,
) -> Result<(), Refusal> {
    if secrets.is_empty() {
        return Ok(());
    }
    let Some(binding) = binding else {
        return Err(refused(
            "policy.secretBindingRef",
            format!(
                "the Secrets {} are asked for, and no SecretBinding is named",
                secrets.join(", ")
            ),
            "name a SecretBinding that lists them, or leave them out".to_owned(),
        ));
    };
    let name = binding.name_any();
    let namespace = binding.namespace().unwrap_or_default();
    let named = binding.spec.subjects.iter().any(|subject| {
        subject.kind == "Agent"
            && subject.name == agent
            && subject.namespace.as_ref().is_none_or(|other| *other == namespace)
    });
    if !named {
        return Err(refused(
            "policy.secretBindingRef",
            format!("SecretBinding {name} does not name Agent {agent}"),
            format!("add it to spec.subjects of SecretBinding {name}"),
        ));
    }
    let missing: Vec<&str> = secrets
        .iter()
        .filter(|secret| !binding.spec.allowed_secrets.contains(secret))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(refused(
            "secrets",
            format!("SecretBinding {name} does not list {}", missing.join(", ")),
            format!("add them to spec.allowedSecrets of SecretBinding {name}"),
        ))
    }
}

/// Whether the Agent lets its runs use this service account.
pub fn check_service_account(agent: &Agent, account: Option<&str>) -> Result<(), Refusal> {
    let allowed = agent
        .spec
        .security
        .as_ref()
        .map(|security| security.allowed_service_accounts.as_slice())
        .unwrap_or_default();
    match account {
        Some(account) if !allowed.is_empty() && !allowed.iter().any(|allowed| allowed == account) => {
            Err(refused(
                "runtime.config.serviceAccount",
                format!(
                    "Agent {} does not let its runs use the service account {}",
                    agent.name_any(),
                    shown(account)
                ),
                format!("use one of {}", allowed.join(", ")),
            ))
        }
        _ => Ok(()),
    }
}

fn refused(field: &str, message: String, remedy: String) -> Refusal {
    Refusal::new(Trouble::Forbidden, message)
        .named(field)
        .remedy(remedy)
        .details(json!({"policy": "denied"}))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn budget(limits: &Value, status: &Value) -> Budget {
        serde_json::from_value(json!({
            "apiVersion": "budgets.proompteng.ai/v1alpha1", "kind": "Budget", "metadata": {"name": "b"},
            "spec": {"limits": limits}, "status": status,
        }))
        .expect("a budget")
    }

    #[test]
    fn a_budget_that_is_closed_or_used_up_lets_nothing_in() {
        let limits = json!({"dollars": "10", "memory": "2Gi"});
        for (status, lets_in) in [
            (json!(null), true),
            (
                json!({"phase": "Active", "used": {"dollars": "10", "memory": "2048Mi"}}),
                true,
            ),
            (json!({"used": {"dollars": "10.5"}}), false),
            (json!({"used": {"memory": "2049Mi"}}), false),
            (json!({"used": {"tokens": "1000000"}}), true),
            (json!({"phase": "Exceeded"}), false),
            (json!({"phase": "Blocked"}), false),
        ] {
            let checked = check_budget(&budget(&limits, &status));
            assert_eq!(checked.is_ok(), lets_in, "{status}");
        }
    }

    #[test]
    fn secrets_need_a_binding_that_names_the_agent_and_lists_them() {
        let binding: SecretBinding = serde_json::from_value(json!({
            "apiVersion": "security.proompteng.ai/v1alpha1", "kind": "SecretBinding",
            "metadata": {"name": "s", "namespace": "a"},
            "spec": {"subjects": [{"kind": "Agent", "name": "coder"}], "allowedSecrets": ["one"]},
        }))
        .expect("a binding");
        let secrets = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(check_secrets("coder", &[], None).is_ok());
        assert!(check_secrets("coder", &secrets(&["one"]), Some(&binding)).is_ok());
        assert!(check_secrets("coder", &secrets(&["one"]), None).is_err());
        assert!(check_secrets("other", &secrets(&["one"]), Some(&binding)).is_err());
        assert!(check_secrets("coder", &secrets(&["one", "two"]), Some(&binding)).is_err());
    }

    #[test]
    fn a_service_account_has_to_be_one_that_the_agent_allows() {
        let agent = |allowed: &[&str]| -> Agent {
            serde_json::from_value(json!({
                "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent", "metadata": {"name": "coder"},
                "spec": {"providerRef": {"name": "p"}, "security": {"allowedServiceAccounts": allowed}},
            }))
            .expect("an agent")
        };
        assert!(check_service_account(&agent(&[]), Some("any")).is_ok());
        assert!(check_service_account(&agent(&["one"]), Some("one")).is_ok());
        assert!(check_service_account(&agent(&["one"]), None).is_ok());
        assert!(check_service_account(&agent(&["one"]), Some("two")).is_err());
    }
}
