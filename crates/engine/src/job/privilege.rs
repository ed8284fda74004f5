//! What a run may say about its pod in `spec.runtime.config` that would give it more than others have: a service account, a
//! priority class, a looser security context. Nobody gets more by asking for it alone: somebody else has to allow it. What the
//! operator set for all runs is not checked: it is the operator's word.

use jangar_api::reason::Reason;
use k8s_openapi::api::core::v1::PodSecurityContext;

use super::config::RuntimeConfig;
use crate::{
    decision::Rejection,
    settings::{PolicySettings, RunnerSettings, Settings},
};

/// The service account of a pod that names none.
pub(super) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// Sysctls that Kubernetes takes to be harmless, as the Pod Security Standards list them.
const SAFE_SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Whether the operator lets runs say what this one says.
pub(super) fn check(config: &RuntimeConfig, settings: &Settings) -> Result<(), Rejection> {
    let policy = &settings.policy;
    service_account(
        "spec.runtime.config.serviceAccount",
        config.service_account.as_deref(),
        policy,
    )?;
    priority_class(config.priority_class_name.as_deref(), settings)?;
    let context = config.pod_security_context.as_ref();
    match context.filter(|_| policy.pod_security_restricted) {
        None => Ok(()),
        Some(context) => loosened(context.typed()).map_or(Ok(()), |how| {
            Err(Rejection::new(
                Reason::PodSecurityNotAllowed,
                format!(
                    "spec.runtime.config.podSecurityContext {how}, and runs have to keep to the Pod Security Standard \
                     restricted (JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED): change it, or leave it out"
                ),
            ))
        }),
    }
}

/// A priority class makes room for a pod at the cost of others, so that the operator has to name those that runs may choose.
fn priority_class(name: Option<&str>, settings: &Settings) -> Result<(), Rejection> {
    let field = "spec.runtime.config.priorityClassName";
    let variable = "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED";
    let allowed = &settings.policy.priority_classes_allowed;
    match name {
        Some(name) if allowed.is_empty() && settings.runner.priority_class.as_deref() != Some(name) => {
            Err(Rejection::new(
                Reason::PriorityClassNotAllowed,
                format!(
                    "{field} is {name:?}, and runs may choose none: leave it out, or have it added to {variable}"
                ),
            ))
        }
        name => named(field, name, allowed, variable, Reason::PriorityClassNotAllowed),
    }
}

/// Whether a run that nobody lets choose a service account chooses one all the same. The one that it would have anyway is none.
pub(super) fn unasked_account<'a>(
    config: &'a RuntimeConfig,
    policy: &PolicySettings,
    runner: &RunnerSettings,
) -> Option<&'a str> {
    let anyway = runner
        .service_account
        .as_deref()
        .unwrap_or(DEFAULT_SERVICE_ACCOUNT);
    let chosen = config.service_account.as_deref();
    chosen.filter(|name| policy.service_accounts_allowed.is_empty() && *name != anyway)
}

/// Whether the operator lets runs choose this service account, if the operator says which; `field` is what names it.
pub(super) fn service_account(
    field: &str,
    name: Option<&str>,
    policy: &PolicySettings,
) -> Result<(), Rejection> {
    named(
        field,
        name,
        &policy.service_accounts_allowed,
        "JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
        Reason::ServiceAccountNotAllowed,
    )
}

fn named(
    field: &str,
    name: Option<&str>,
    allowed: &[String],
    variable: &str,
    reason: Reason,
) -> Result<(), Rejection> {
    match name {
        Some(name) if !allowed.is_empty() && !allowed.iter().any(|other| other == name) => {
            Err(Rejection::new(
                reason,
                format!(
                    "{field} is {name:?}, and runs may only choose {} ({variable}): choose one of those, or \
                 leave it out",
                    allowed.join(", ")
                ),
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// In which way a security context is looser than `restricted`, as far as it is about the pod. It replaces ours as a whole,
/// so that what it leaves out is not restricted either.
fn loosened(context: &PodSecurityContext) -> Option<&'static str> {
    let seccomp = context
        .seccomp_profile
        .as_ref()
        .map(|profile| profile.type_.as_str());
    let app_armor = context
        .app_armor_profile
        .as_ref()
        .map(|profile| profile.type_.as_str());
    let se_linux = context.se_linux_options.as_ref();
    let container_type = |name: &String| {
        matches!(
            name.as_str(),
            "" | "container_t" | "container_init_t" | "container_kvm_t" | "container_engine_t"
        )
    };
    let plain_se_linux = se_linux.is_none_or(|options| {
        options.user.is_none() && options.role.is_none() && options.type_.as_ref().is_none_or(container_type)
    });
    let safe = |name: &str| SAFE_SYSCTLS.contains(&name);
    let unsafe_sysctl = context.sysctls.iter().flatten().any(|sysctl| !safe(&sysctl.name));
    let host_process = context
        .windows_options
        .as_ref()
        .is_some_and(|options| options.host_process == Some(true));
    if context.run_as_user == Some(0) {
        Some("runs as root (runAsUser is 0)")
    } else if context.run_as_non_root != Some(true) {
        Some("does not say runAsNonRoot: true")
    } else if !matches!(seccomp, Some("RuntimeDefault" | "Localhost")) {
        Some("does not say seccompProfile: {type: RuntimeDefault}")
    } else if app_armor == Some("Unconfined") {
        Some("has no AppArmor profile")
    } else if !plain_se_linux {
        Some("chooses SELinux options of its own")
    } else if unsafe_sysctl {
        Some("sets a sysctl that is not among the safe ones")
    } else if host_process {
        Some("asks for a process of the host")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::loosened;

    #[test]
    fn context_that_is_looser_than_restricted_is_recognised() {
        let kept =
            json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 7});
        let is_loose = |change: serde_json::Value| {
            let mut context = kept.clone();
            for (field, value) in change.as_object().expect("fields") {
                context[field] = value.clone();
            }
            loosened(&serde_json::from_value(context).expect("a context")).is_some()
        };
        assert!(!is_loose(json!({})));
        assert!(!is_loose(
            json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]})
        ));
        assert!(!is_loose(
            json!({"seLinuxOptions": {"type": "container_t", "level": "s0"}})
        ));
        for loose in [
            json!({"runAsUser": 0}),
            json!({"runAsNonRoot": false}),
            json!({"runAsNonRoot": null}),
            json!({"seccompProfile": {"type": "Unconfined"}}),
            json!({"seccompProfile": null}),
            json!({"appArmorProfile": {"type": "Unconfined"}}),
            json!({"seLinuxOptions": {"user": "root"}}),
            json!({"seLinuxOptions": {"type": "spc_t"}}),
            json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
            json!({"windowsOptions": {"hostProcess": true}}),
        ] {
            assert!(is_loose(loose.clone()), "{loose}");
        }
    }
}
