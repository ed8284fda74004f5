//! Which system prompt a run has: its own, or the one its Agent has for runs that bring none.

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun},
    reason::Reason,
    refs::{PromptRef, PromptRefKind},
};
use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, KeyToPath, SecretVolumeSource, Volume};
use sha2::{Digest, Sha256};

use super::policy::{self, present};
use crate::decision::{KeyHolder, Rejection};

/// The most characters of a prompt in a spec, as the schema has it. A longer one belongs into a ConfigMap.
const INLINE_MAX_CHARS: usize = 16_384;
/// Name of the file in the volume that holds the prompt.
pub(super) const FILE: &str = "system-prompt.txt";

/// Where a system prompt is kept that does not stand in a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSource {
    pub holder: KeyHolder,
    pub key: String,
}

/// The system prompt of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemPrompt<'a> {
    None,
    Inline(&'a str),
    Secret { name: &'a str, key: &'a str },
    ConfigMap { name: &'a str, key: &'a str },
}

impl<'a> SystemPrompt<'a> {
    /// Chooses the prompt: the run's before the Agent's, and a reference before a text.
    pub(super) fn of(run: &'a AgentRun, agent: &'a Agent) -> Result<Self, Rejection> {
        let of_run = run.spec.system_prompt_ref.as_ref();
        let defaults = agent.spec.defaults.as_ref();
        let of_agent = defaults.and_then(|defaults| defaults.system_prompt_ref.as_ref());
        let agent_name = &run.spec.agent_ref.name;
        if let Some(reference) = of_run {
            return referred(run, agent, reference, "spec.systemPromptRef");
        }
        if let Some(text) = run
            .spec
            .system_prompt
            .as_deref()
            .filter(|text| present(text).is_some())
        {
            return inline(text, "spec.systemPrompt");
        }
        if let Some(reference) = of_agent {
            let place = format!("spec.defaults.systemPromptRef of Agent {agent_name:?}");
            return referred(run, agent, reference, &place);
        }
        let text = defaults.and_then(|defaults| defaults.system_prompt.as_deref());
        match text.filter(|text| present(text).is_some()) {
            Some(text) => inline(
                text,
                &format!("spec.defaults.systemPrompt of Agent {agent_name:?}"),
            ),
            None => Ok(Self::None),
        }
    }

    /// The text, where it is known here.
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Self::Inline(text) => Some(text),
            Self::None | Self::Secret { .. } | Self::ConfigMap { .. } => None,
        }
    }

    /// SHA-256 of the text, in hexadecimal digits. What a reference leads to is known only in the pod.
    pub(super) fn hash(self) -> Option<String> {
        Some(format!("{:x}", Sha256::digest(self.text()?.as_bytes())))
    }

    /// What holds the prompt and under which key, where it does not stand in a spec.
    pub(super) fn source(self) -> Option<PromptSource> {
        let (holder, key) = match self {
            Self::None | Self::Inline(_) => return None,
            Self::Secret { name, key } => (KeyHolder::Secret(name.to_owned()), key),
            Self::ConfigMap { name, key } => (KeyHolder::ConfigMap(name.to_owned()), key),
        };
        Some(PromptSource {
            holder,
            key: key.to_owned(),
        })
    }

    /// The volume that holds the prompt, if it has to be mounted.
    pub(super) fn volume(self, volume: String) -> Option<Volume> {
        let item = |key: &str| {
            Some(vec![KeyToPath {
                key: key.to_owned(),
                path: FILE.to_owned(),
                mode: None,
            }])
        };
        match self {
            Self::None | Self::Inline(_) => None,
            Self::Secret { name, key } => Some(Volume {
                name: volume,
                secret: Some(SecretVolumeSource {
                    secret_name: Some(name.to_owned()),
                    items: item(key),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            Self::ConfigMap { name, key } => Some(Volume {
                name: volume,
                config_map: Some(ConfigMapVolumeSource {
                    name: name.to_owned(),
                    items: item(key),
                    ..Default::default()
                }),
                ..Default::default()
            }),
        }
    }
}

fn inline<'a>(text: &'a str, place: &str) -> Result<SystemPrompt<'a>, Rejection> {
    let characters = text.chars().count();
    if characters > INLINE_MAX_CHARS {
        return Err(Rejection::new(
            Reason::SystemPromptTooLong,
            format!(
                "{place} has {characters} characters, and {INLINE_MAX_CHARS} are allowed: put it into a ConfigMap and name \
                 that in systemPromptRef"
            ),
        ));
    }
    Ok(SystemPrompt::Inline(text))
}

fn referred<'a>(
    run: &AgentRun,
    agent: &Agent,
    reference: &'a PromptRef,
    place: &str,
) -> Result<SystemPrompt<'a>, Rejection> {
    let invalid = |problem: &str| {
        let message = format!("{place} {problem}: it takes kind (Secret or ConfigMap), name and key");
        Rejection::new(Reason::InvalidSystemPromptRef, message)
    };
    let name = present(&reference.name).ok_or_else(|| invalid("has no name"))?;
    let key = present(&reference.key).ok_or_else(|| invalid("has no key"))?;
    match &reference.kind {
        PromptRefKind::ConfigMap => Ok(SystemPrompt::ConfigMap { name, key }),
        PromptRefKind::Secret => {
            policy::prompt_secret(run, agent, place, name)?;
            Ok(SystemPrompt::Secret { name, key })
        }
        PromptRefKind::Other(kind) => Err(invalid(&format!("has the kind {:?}", kind.as_str()))),
    }
}
