//! What a run may ask for: its parameters, labels, image, secrets and service account.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    agents::{
        agent::{Agent, AgentSecurity},
        agent_run::AgentRun,
        memory::Memory,
        workload::VolumeType,
    },
    labels,
    reason::Reason,
};
use kube::ResourceExt;

use super::{
    config::RuntimeConfig,
    privilege::{self, DEFAULT_SERVICE_ACCOUNT},
};
use crate::{
    decision::Rejection,
    settings::{AuthSecret, NatsAuth, PolicySettings, RunnerSettings, Settings},
};

/// The most parameters of a run, as its schema has it.
const PARAMETERS_MAX: usize = 100;
/// The most bytes of one parameter. Larger inputs belong into the implementation or a file.
const PARAMETER_MAX_BYTES: usize = 2048;

/// A Secret that a run uses, and the field that says so.
pub(super) struct SecretUse<'a> {
    pub(super) field: String,
    pub(super) name: &'a str,
}

/// The text without the blanks around it; `None` if nothing is left.
pub(super) fn present(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// Whether the parameters are within their bounds. `elsewhere` is where long texts belong.
pub(super) fn parameters(parameters: &BTreeMap<String, String>, elsewhere: &str) -> Result<(), Rejection> {
    if parameters.len() > PARAMETERS_MAX {
        return Err(Rejection::new(
            Reason::ParametersTooLarge,
            format!(
                "spec.parameters has {} entries, and {PARAMETERS_MAX} are allowed: take some out, or join them",
                parameters.len()
            ),
        ));
    }
    let too_large = parameters
        .iter()
        .find(|(_, value)| value.len() > PARAMETER_MAX_BYTES);
    match too_large {
        None => Ok(()),
        Some((name, value)) => Err(Rejection::new(
            Reason::ParameterValueTooLarge,
            format!(
                "spec.parameters.{name} has {} bytes, and {PARAMETER_MAX_BYTES} are allowed: put long texts into \
                 {elsewhere}",
                value.len()
            ),
        )),
    }
}

/// Labels that Jangar itself gives to runs. No policy is about them: whoever writes a run cannot do without.
const OWN_LABELS: [&str; 5] = [
    labels::APPROVAL,
    labels::DELIVERY_ID,
    labels::ORCHESTRATION_RUN,
    labels::ORCHESTRATION_STEP,
    labels::SCHEDULE,
];

/// Whether a run has the labels that every run must have.
pub(crate) fn required_labels(run: &impl ResourceExt, policy: &PolicySettings) -> Result<(), Rejection> {
    let labels = run.labels();
    let has = |key: &str| labels.get(key).is_some_and(|value| present(value).is_some());
    let missing: Vec<&str> = policy
        .labels_required
        .iter()
        .map(String::as_str)
        .filter(|key| !has(key))
        .collect();
    if !missing.is_empty() {
        return Err(Rejection::new(
            Reason::MissingRequiredLabels,
            format!(
                "metadata.labels lacks {}, which every run must have: set it when you create the run",
                missing.join(", ")
            ),
        ));
    }
    Ok(())
}

/// Whether a run has the labels that it must have, and only such as it may have.
pub(super) fn labels(run: &impl ResourceExt, policy: &PolicySettings) -> Result<(), Rejection> {
    required_labels(run, policy)?;
    let chosen = run.labels().keys();
    for key in chosen.filter(|key| !OWN_LABELS.contains(&key.as_str())) {
        if let Some(pattern) = policy.labels_denied.iter().find(|pattern| matches(pattern, key)) {
            return Err(Rejection::new(
                Reason::LabelBlocked,
                format!(
                    "metadata.labels has {key}, which no run may have (it matches {pattern}): take it out"
                ),
            ));
        }
        if !allowed(&policy.labels_allowed, key) {
            return Err(Rejection::new(
                Reason::LabelNotAllowed,
                format!(
                    "metadata.labels has {key}, and runs may only have labels that match {}: take it out",
                    policy.labels_allowed.join(", ")
                ),
            ));
        }
    }
    Ok(())
}

/// The image of the run, if it has one that it may use.
pub(super) fn image(run: &AgentRun, settings: &Settings) -> Result<String, Rejection> {
    let own = run
        .spec
        .workload
        .as_ref()
        .and_then(|workload| workload.image.as_deref());
    let (image, place) = match (
        own.and_then(present),
        settings.runner.image.as_deref().and_then(present),
    ) {
        (Some(image), _) => (image, "spec.workload.image"),
        (None, Some(image)) => (image, "JANGAR_AGENT_RUNNER_IMAGE"),
        (None, None) => {
            return Err(Rejection::new(
                Reason::MissingWorkloadImage,
                "spec.workload.image is not set, and the controllers have no image for runs without one: set it, or \
                 JANGAR_AGENT_RUNNER_IMAGE for all runs",
            ));
        }
    };
    image_allowed(image, place, &settings.policy)?;
    Ok(image.to_owned())
}

/// Whether runs may use an image; `place` is what names it.
pub(super) fn image_allowed(image: &str, place: &str, policy: &PolicySettings) -> Result<(), Rejection> {
    if let Some(pattern) = policy
        .images_denied
        .iter()
        .find(|pattern| matches(pattern, image))
    {
        return Err(Rejection::new(
            Reason::ImageBlocked,
            format!(
                "{place} is {image:?}, which no run may use (it matches {pattern}): choose another image"
            ),
        ));
    }
    if !allowed(&policy.images_allowed, image) {
        return Err(Rejection::new(
            Reason::ImageNotAllowed,
            format!(
                "{place} is {image:?}, and runs may only use images that match {}: choose one of those",
                policy.images_allowed.join(", ")
            ),
        ));
    }
    Ok(())
}

/// The names of the Secrets whose keys become variables, each once.
pub(super) fn run_secrets(run: &AgentRun) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let names = run.spec.secrets.iter().filter_map(|name| present(name));
    names.filter(|name| seen.insert(*name)).collect()
}

/// The Secrets that the run itself asks for, as variables or as volumes.
fn asked_for(run: &AgentRun) -> impl Iterator<Item = SecretUse<'_>> {
    let listed = run
        .spec
        .secrets
        .iter()
        .enumerate()
        .map(|(index, name)| SecretUse {
            field: format!("spec.secrets[{index}]"),
            name: name.trim(),
        });
    let volumes = run.spec.workload.iter().flat_map(|workload| &workload.volumes);
    let mounted = volumes
        .enumerate()
        .filter(|(_, volume)| volume.type_ == VolumeType::Secret)
        .filter_map(|(index, volume)| {
            Some(SecretUse {
                field: format!("spec.workload.volumes[{index}].secretName"),
                name: volume.secret_name.as_deref()?.trim(),
            })
        });
    listed.chain(mounted).filter(|used| !used.name.is_empty())
}

/// The Secret that holds the connection of a memory.
fn of_memory(memory: &Memory) -> Option<SecretUse<'_>> {
    let name = memory.metadata.name.as_deref().unwrap_or_default();
    Some(SecretUse {
        field: format!("spec.connection.secretRef.name of Memory {name:?}"),
        name: present(&memory.spec.connection.secret_ref.name)?,
    })
}

/// The Secret with the credentials of all agents.
fn of_settings(auth: &AuthSecret) -> SecretUse<'_> {
    SecretUse {
        field: "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME".to_owned(),
        name: &auth.name,
    }
}

/// What the agent restricts its runs to. An empty list restricts nothing.
fn restriction(agent: &Agent, list: impl Fn(&AgentSecurity) -> &Vec<String>) -> Option<BTreeSet<&str>> {
    let names: BTreeSet<&str> = agent
        .spec
        .security
        .as_ref()
        .map(|security| list(security).iter().filter_map(|name| present(name)).collect())
        .unwrap_or_default();
    (!names.is_empty()).then_some(names)
}

fn check_allowed(run: &AgentRun, agent: &Agent, used: &SecretUse<'_>) -> Result<(), Rejection> {
    match restriction(agent, |security| &security.allowed_secrets) {
        Some(names) if !names.contains(used.name) => Err(Rejection::new(
            Reason::SecretNotAllowed,
            format!(
                "{} is {:?}, and Agent {:?} allows only {}: use one of those, or add it to spec.security.allowedSecrets \
                 of the Agent",
                used.field,
                used.name,
                run.spec.agent_ref.name,
                listed(names),
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether the agent allows the Secrets that the run asks for.
pub(super) fn secrets_allowed(
    run: &AgentRun,
    agent: &Agent,
    config: &RuntimeConfig,
) -> Result<(), Rejection> {
    asked_for(run)
        .chain(for_pulling(config))
        .try_for_each(|used| check_allowed(run, agent, &used))
}

/// The Secrets that the run wants its image to be pulled with.
pub(super) fn for_pulling(config: &RuntimeConfig) -> impl Iterator<Item = SecretUse<'_>> {
    let names = config.image_pull_secrets.iter().flatten().enumerate();
    names.map(|(index, name)| SecretUse {
        field: format!("spec.runtime.config.imagePullSecrets[{index}]"),
        name,
    })
}

/// Whether the agent allows a Secret that the run comes to use; `field` is what names it.
pub(crate) fn secret_allowed(
    run: &AgentRun,
    agent: &Agent,
    field: &str,
    name: &str,
) -> Result<(), Rejection> {
    let used = SecretUse {
        field: field.to_owned(),
        name,
    };
    check_allowed(run, agent, &used)
}

/// Whether a Secret is kept from all runs; `field` is what names it.
pub(crate) fn secret_blocked(field: &str, name: &str, policy: &PolicySettings) -> Result<(), Rejection> {
    if !policy.blocked_secrets.contains(name) {
        return Ok(());
    }
    Err(Rejection::new(
        Reason::SecretBlocked,
        format!(
            "{field} is {name:?}, which no run may use (JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS): use another Secret"
        ),
    ))
}

/// The service account of the pod, if one was chosen and the agent allows it.
pub(super) fn service_account(
    run: &AgentRun,
    agent: &Agent,
    config: &RuntimeConfig,
    settings: &Settings,
) -> Result<Option<String>, Rejection> {
    let of_settings = settings.runner.service_account.as_deref().and_then(present);
    let chosen = config.service_account.as_deref().or(of_settings);
    let effective = chosen.unwrap_or(DEFAULT_SERVICE_ACCOUNT);
    match restriction(agent, |security| &security.allowed_service_accounts) {
        Some(names) if !names.contains(effective) => Err(Rejection::new(
            Reason::ServiceAccountNotAllowed,
            format!(
                "the pod would use the service account {effective:?}, and Agent {:?} allows only {}: name one of those in \
                 spec.runtime.config.serviceAccount, or add it to spec.security.allowedServiceAccounts of the Agent",
                run.spec.agent_ref.name,
                listed(names),
            ),
        )),
        Some(_) => Ok(chosen.map(str::to_owned)),
        None => match privilege::unasked_account(config, &settings.policy, &settings.runner) {
            None => Ok(chosen.map(str::to_owned)),
            Some(name) => Err(Rejection::new(
                Reason::ServiceAccountNotAllowed,
                format!(
                    "spec.runtime.config.serviceAccount is {name:?}, and nobody lets runs of Agent {:?} choose it: leave it out, or \
                     add it to spec.security.allowedServiceAccounts of the Agent or to \
                     JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
                    run.spec.agent_ref.name
                ),
            )),
        },
    }
}

/// Whether one of the Secrets that the run comes to use is kept from all runs.
pub(super) fn secrets_blocked(
    run: &AgentRun,
    memory: Option<&Memory>,
    config: &RuntimeConfig,
    settings: &Settings,
) -> Result<(), Rejection> {
    let used = asked_for(run)
        .chain(memory.and_then(of_memory))
        .chain(settings.runner.auth_secret.as_ref().map(of_settings))
        .chain(for_pulling(config));
    none_blocked(used, &settings.policy)
}

/// The same for a run that has no pod: it is told of no other Secrets than these.
pub(super) fn secrets_blocked_elsewhere(
    run: &AgentRun,
    memory: Option<&Memory>,
    settings: &Settings,
) -> Result<(), Rejection> {
    none_blocked(asked_for(run).chain(memory.and_then(of_memory)), &settings.policy)
}

fn none_blocked<'a>(
    mut used: impl Iterator<Item = SecretUse<'a>>,
    policy: &PolicySettings,
) -> Result<(), Rejection> {
    match used.find(|used| policy.blocked_secrets.contains(used.name)) {
        None => Ok(()),
        Some(used) => secret_blocked(&used.field, used.name, policy),
    }
}

/// Whether the agent allows the Secret with the credentials of all agents.
pub(super) fn auth_secret_allowed(
    run: &AgentRun,
    agent: &Agent,
    settings: &RunnerSettings,
) -> Result<(), Rejection> {
    match &settings.auth_secret {
        Some(auth) => check_allowed(run, agent, &of_settings(auth)),
        None => Ok(()),
    }
}

/// Whether the run may have the user and password for NATS. Unlike what is asked for, they are an offer: a run that may not
/// have them goes without.
pub(super) fn may_use_nats(agent: &Agent, nats: &NatsAuth, policy: &PolicySettings) -> bool {
    let allowed = restriction(agent, |security| &security.allowed_secrets);
    !policy.blocked_secrets.contains(&nats.secret)
        && allowed.is_none_or(|names| names.contains(nats.secret.as_str()))
}

/// Whether the run may use the Secret of its memory: the agent must allow it, and a run that lists its Secrets must list
/// this one too.
pub(super) fn memory_secret(run: &AgentRun, agent: &Agent, memory: Option<&Memory>) -> Result<(), Rejection> {
    let Some(used) = memory.and_then(of_memory) else {
        return Ok(());
    };
    check_allowed(run, agent, &used)?;
    let secrets = run_secrets(run);
    if secrets.is_empty() || secrets.contains(&used.name) {
        return Ok(());
    }
    Err(Rejection::new(
        Reason::SecretNotAllowed,
        format!(
            "{} is {:?}, and spec.secrets of the run has only {}: add it there",
            used.field,
            used.name,
            listed(secrets),
        ),
    ))
}

/// Whether the run may read its system prompt from a Secret: it must list it, and the agent must allow it.
pub(super) fn prompt_secret(run: &AgentRun, agent: &Agent, field: &str, name: &str) -> Result<(), Rejection> {
    if !run_secrets(run).contains(&name) {
        return Err(Rejection::new(
            Reason::SecretNotAllowed,
            format!(
                "{field} is the Secret {name:?}, which the run does not list: add it to spec.secrets of the run"
            ),
        ));
    }
    secret_allowed(run, agent, field, name)
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Whether a list of patterns lets a text pass. An empty list lets everything pass.
fn allowed(patterns: &[String], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, text))
}

/// Whether the whole text matches the pattern, in which `*` stands for any characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut literals = pattern.split('*');
    let first = literals.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = literals.next_back() else {
        return rest.is_empty();
    };
    for literal in literals {
        // The earliest place leaves most for what follows.
        match rest.split_once(literal) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_whole_text() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything/at:all", true),
            ("ghcr.io/*", "ghcr.io/team/agent:1", true),
            ("ghcr.io/*", "evil.example/ghcr.io/agent", false),
            ("*:latest", "ghcr.io/agent:latest", true),
            ("*:latest", "ghcr.io/agent:latest@sha256:0", false),
            ("ghcr.io/*/agent:*", "ghcr.io/team/agent:1", true),
            ("ghcr.io/*/agent:*", "ghcr.io/agent:1", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("a.b", "axb", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
