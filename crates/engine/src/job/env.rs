//! The environment of the container.
//!
//! What Jangar sets wins over the Agent's `env` and the provider's `envTemplate`; of these two the template wins. Kubernetes
//! replaces `$(NAME)` in values, and an author may use that, for instance to give a key of a Secret another name. What a
//! template looked up stays what it is: a parameter that contains `$(NAME)` pulls in no other variable.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, EnvVarSource, SecretEnvSource, SecretKeySelector};
use serde_json::Value;

use super::{
    JobRequest,
    documents::{bad_template, provider_name},
    paths,
    policy::present,
    prompt::SystemPrompt,
};
use crate::{
    decision::Rejection,
    settings::AuthSecret,
    template::{self, Piece},
    vcs,
};

const HOME: &str = "HOME";
/// The runner sets it for the agent, whatever the container says.
const OUTCOME_PATH: &str = "AGENT_OUTCOME_PATH";
/// What these variables say decides what the runner pushes, and where: nobody else can set them.
const RESERVED_PREFIX: &str = "VCS_";

/// The variables of the container, and whether one of them is a `HOME` of ours, which then has to be there.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) variables: Vec<EnvVar>,
    pub(super) own_home: bool,
}

impl Environment {
    pub(super) fn of(
        request: &JobRequest<'_>,
        context: &Value,
        prompt: SystemPrompt<'_>,
        auth: Option<&AuthSecret>,
    ) -> Result<Self, Rejection> {
        let provider = provider_name(request);
        let mut before = vec![
            ("AGENT_RUN_SPEC", paths::RUN_DOCUMENT),
            ("AGENT_RUNNER_SPEC_PATH", paths::RUNNER_DOCUMENT),
        ];
        let credentials = auth.map(|auth| (auth.directory(), auth.path()));
        if let Some((directory, file)) = &credentials {
            before.extend([("CODEX_HOME", *directory), ("CODEX_AUTH", file)]);
        }
        let mounted_prompt = match prompt {
            SystemPrompt::Secret { .. } | SystemPrompt::ConfigMap { .. } => {
                Some(("CODEX_SYSTEM_PROMPT_PATH", paths::SYSTEM_PROMPT))
            }
            SystemPrompt::None | SystemPrompt::Inline(_) => None,
        };
        let named_provider = ("AGENT_PROVIDER", provider);
        let goes_on = request.place.step > 1 || request.place.attempt > 1;
        let repository = request.vcs.map(|vcs| vcs::variables(vcs, goes_on));
        let repository = repository.unwrap_or_default();
        let ours = before.iter().chain([&named_provider]).chain(&mounted_prompt);
        let ours = ours.map(|(name, _)| *name);
        let ours = ours.chain(repository.iter().map(|variable| variable.name.as_str()));
        let reserved: BTreeSet<&str> = ours.chain([OUTCOME_PATH]).collect();

        let mut chosen = of_agent(request);
        chosen.extend(of_provider(request, context)?);
        let chosen = last_of_each(chosen, &reserved);
        let nats = of_nats(request, &chosen);
        let own_home = !chosen.iter().any(|variable| variable.name == HOME);
        let home = own_home.then(|| variable(HOME, paths::HOME));
        let literal = |(name, value): &(&str, &str)| variable(name, *value);
        Ok(Self {
            variables: before
                .iter()
                .map(literal)
                .chain(home)
                .chain(chosen)
                .chain([literal(&named_provider)])
                .chain(repository)
                .chain(nats)
                .chain(mounted_prompt.as_ref().map(literal))
                .collect(),
            own_home,
        })
    }
}

/// The Secrets whose keys become variables.
pub(super) fn from_secrets<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Vec<EnvFromSource> {
    secrets
        .into_iter()
        .map(|name| EnvFromSource {
            secret_ref: Some(SecretEnvSource {
                name: name.to_owned(),
                optional: None,
            }),
            ..Default::default()
        })
        .collect()
}

pub(super) fn variable(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// User and password for NATS, unless the Agent or the provider has chosen one of them.
fn of_nats(request: &JobRequest<'_>, chosen: &[EnvVar]) -> Vec<EnvVar> {
    let Some(nats) = request.nats_auth else {
        return Vec::new();
    };
    let pairs = [
        ("NATS_USER", &nats.username_key),
        ("NATS_PASSWORD", &nats.password_key),
    ];
    if chosen
        .iter()
        .any(|variable| pairs.iter().any(|(name, _)| variable.name == *name))
    {
        return Vec::new();
    }
    pairs
        .map(|(name, key)| EnvVar {
            name: name.to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                secret_key_ref: Some(SecretKeySelector {
                    name: nats.secret.clone(),
                    key: key.clone(),
                    optional: None,
                }),
                ..Default::default()
            }),
        })
        .into()
}

fn of_agent(request: &JobRequest<'_>) -> Vec<EnvVar> {
    let own = request.agent.spec.env.iter();
    own.filter_map(|own| Some(variable(present(&own.name)?, own.value.as_str())))
        .collect()
}

fn of_provider(request: &JobRequest<'_>, context: &Value) -> Result<Vec<EnvVar>, Rejection> {
    let templates = request.provider.spec.env_template.iter();
    templates
        .filter_map(|(name, template)| Some((present(name)?, template)))
        .map(|(name, template)| {
            let pieces = template::pieces(template, context).map_err(|error| {
                bad_template(provider_name(request), &format!("envTemplate.{name}"), &error)
            })?;
            Ok(variable(name, joined(&pieces)))
        })
        .collect()
}

/// Of several variables of one name the last, and none that is reserved.
fn last_of_each(variables: Vec<EnvVar>, reserved: &BTreeSet<&str>) -> Vec<EnvVar> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<EnvVar> = variables
        .into_iter()
        .rev()
        .filter(|variable| {
            let name = variable.name.as_str();
            !reserved.contains(name)
                && !name.starts_with(RESERVED_PREFIX)
                && seen.insert(variable.name.clone())
        })
        .collect();
    kept.reverse();
    kept
}

/// Joins the pieces of a template so that Kubernetes replaces `$(NAME)` in what the author wrote, and leaves alone what was
/// looked up. There, `$$` stands for a dollar.
pub(super) fn joined(pieces: &[Piece<'_>]) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(written) => text.push_str(written),
            Piece::Value(value) => {
                // Otherwise a dollar at the end of the author's text and a bracket at the beginning of the value would
                // make a reference that neither is.
                let dollars = text.chars().rev().take_while(|c| *c == '$').count();
                if dollars % 2 == 1 {
                    text.push('$');
                }
                text.push_str(&value.replace('$', "$$"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dollars_of_a_value_stay_dollars_and_those_of_the_author_keep_their_meaning() {
        let context = json!({"plain": "x", "reference": "$(TOKEN)", "bracket": "(TOKEN)", "price": "5$"});
        for (template, expected) in [
            ("$(KEY) {{ plain }}", "$(KEY) x"),
            ("{{ reference }}", "$$(TOKEN)"),
            ("${{ bracket }}", "$$(TOKEN)"),
            ("$${{ bracket }}", "$$(TOKEN)"),
            ("{{ price }}(TOKEN)", "5$$(TOKEN)"),
            ("{{ price }}$(TOKEN)", "5$$$(TOKEN)"),
        ] {
            let pieces = template::pieces(template, &context).unwrap();
            assert_eq!(joined(&pieces), expected, "{template}");
        }
    }
}
