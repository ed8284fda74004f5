//! Where the secrets of a run are, so that the runner keeps them out of all that it writes.
//!
//! What a Secret holds is known in the pod alone. Variables that come from one by name are told by their names. Of the Secrets
//! whose keys all become variables nobody here knows the keys, so they are mounted as well, and the runner is told where, as it is
//! of every other file that holds a secret. A system prompt may be in a Secret and is not among them: it is a text for the agent,
//! and its words are no credentials.

use jangar_api::agents::workload::VolumeType;
use k8s_openapi::api::core::v1::EnvVar;

use super::{JobRequest, env::Environment, policy};
use crate::{
    decision::KeyHolder,
    settings::AuthSecret,
    vcs::{self, Credentials},
};

/// Below it are the Secrets whose keys are variables, by their place in the list of the run.
const DIRECTORY: &str = "/var/run/secrets/agents/env";

/// What is secret in a pod.
#[derive(Debug)]
pub(super) struct Secrets {
    /// Names of variables.
    pub(super) env: Vec<String>,
    /// Files, and directories whose files all count.
    pub(super) files: Vec<String>,
}

impl Secrets {
    /// Without an environment, because there is something wrong with it, there will be no pod either.
    pub(super) fn of(
        request: &JobRequest<'_>,
        environment: Option<&Environment>,
        auth: Option<&AuthSecret>,
    ) -> Self {
        let variables = environment.map_or(&[][..], |environment| &environment.variables);
        let listed = listed(request).map(|(_, directory)| directory);
        let workload = request.run.spec.workload.as_ref();
        let own = workload.map_or(&[][..], |workload| &workload.volumes);
        let own = own.iter().filter(|volume| volume.type_ == VolumeType::Secret);
        let auth = auth.map(AuthSecret::path);
        Self {
            env: variables
                .iter()
                .filter(|variable| is_from_secret(variable))
                .map(|variable| variable.name.clone())
                .collect(),
            files: listed
                .chain(own.map(|volume| volume.mount_path.clone()))
                .chain(auth)
                .chain(of_repository(request).map(str::to_owned))
                .collect(),
        }
    }
}

/// The Secrets whose keys become variables, each with the directory where it is mounted.
pub(super) fn listed<'a>(request: &JobRequest<'a>) -> impl Iterator<Item = (&'a str, String)> {
    let secrets = policy::run_secrets(request.run).into_iter().enumerate();
    secrets.map(|(number, name)| (name, format!("{DIRECTORY}/{number}")))
}

/// Where the credentials for the repository of the run are, if they are files.
fn of_repository(request: &JobRequest<'_>) -> Option<&'static str> {
    match &request.vcs?.auth.credentials {
        Credentials::Ssh { key, .. } => {
            matches!(key.holder, KeyHolder::Secret(_)).then_some(vcs::SSH_DIRECTORY)
        }
        Credentials::App(_) => Some(vcs::TOKEN_DIRECTORY),
        Credentials::Token(_) | Credentials::None => None,
    }
}

fn is_from_secret(variable: &EnvVar) -> bool {
    let source = variable.value_from.as_ref();
    source.is_some_and(|source| source.secret_key_ref.is_some())
}
