//! What the pod of a run is told about its repository.

use jangar_api::agents::{agent_run::VcsMode, version_control_provider::ForgeKind};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use serde::Serialize;

use super::{
    auth::{Credentials, StoredValue},
    resolve::{Access, VersionControl},
};
use crate::decision::KeyHolder;

/// Where the SSH key lies in the pod, under the name of its key.
pub(crate) const SSH_DIRECTORY: &str = "/var/run/secrets/agents/vcs/ssh";
/// Where the known hosts lie in the pod, under the name of their key.
pub(crate) const KNOWN_HOSTS_DIRECTORY: &str = "/var/run/secrets/agents/vcs/known-hosts";

/// Where a token that is renewed lies in the pod.
pub(crate) const TOKEN_DIRECTORY: &str = "/var/run/secrets/agents/vcs/token";
/// Its key in the Secret, and its name in the directory.
pub(crate) const TOKEN_KEY: &str = "token";

/// `vcs` in `run.json` and in the templates of providers. It holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VcsDocument<'a> {
    pub provider: &'a str,
    #[serde(rename = "type")]
    pub type_: &'a ForgeKind,
    pub repository: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_branch: Option<&'a str>,
    pub mode: VcsMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_base_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_base_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_base_url: Option<&'a str>,
    pub write_enabled: bool,
    pub pull_requests_enabled: bool,
}

impl VersionControl {
    /// What the agent and the templates are told.
    pub fn document(&self) -> VcsDocument<'_> {
        VcsDocument {
            provider: &self.provider,
            type_: &self.forge,
            repository: &self.repository,
            base_branch: self.base.as_deref(),
            head_branch: self.head.as_deref(),
            mode: self.access.mode(),
            api_base_url: self.addresses.api.as_deref(),
            clone_base_url: self.addresses.clone.as_deref(),
            web_base_url: self.addresses.web.as_deref(),
            write_enabled: self.access == Access::ReadWrite,
            pull_requests_enabled: self.pull_requests,
        }
    }
}

/// The variables of the container. Tokens come from their Secret, and stand in no spec. `goes_on` says that an earlier attempt or
/// step of the run may have pushed: what the branch has then can be work of the run, also if nothing is added to it.
pub(crate) fn variables(vcs: &VersionControl, goes_on: bool) -> Vec<EnvVar> {
    let mut list = Variables(Vec::new());
    let mode = vcs.access.mode();
    list.text("VCS_PROVIDER", vcs.forge.as_str());
    list.text("VCS_PROVIDER_NAME", &vcs.provider);
    list.given("VCS_API_BASE_URL", vcs.addresses.api.as_deref());
    list.given("VCS_CLONE_BASE_URL", vcs.addresses.clone.as_deref());
    list.given("VCS_WEB_BASE_URL", vcs.addresses.web.as_deref());
    list.text("VCS_REPOSITORY", &vcs.repository);
    list.given("VCS_BASE_BRANCH", vcs.base.as_deref());
    list.given("VCS_HEAD_BRANCH", vcs.head.as_deref());
    list.text("VCS_CLONE_PROTOCOL", vcs.addresses.protocol.as_str());
    list.given("VCS_SSH_HOST", vcs.addresses.ssh_host.as_deref());
    list.given("VCS_SSH_USER", vcs.addresses.ssh_user.as_deref());
    list.text("VCS_USERNAME", &vcs.auth.username);
    list.text("GIT_ASKPASS_USERNAME", &vcs.auth.username);
    list.credentials(vcs);
    list.defaults(vcs);
    list.text("VCS_WRITE_ENABLED", flag(vcs.access == Access::ReadWrite));
    list.text("VCS_PULL_REQUESTS_ENABLED", flag(vcs.pull_requests));
    list.text("VCS_MODE", mode.as_str());
    list.given("VCS_EARLIER_WORK", goes_on.then_some(flag(true)));
    list.0
}

const fn flag(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

struct Variables(Vec<EnvVar>);

impl Variables {
    /// A value as it is: Kubernetes would replace `$(NAME)` in it.
    fn text(&mut self, name: &str, value: &str) {
        self.0.push(EnvVar {
            name: name.to_owned(),
            value: Some(value.replace('$', "$$")),
            value_from: None,
        });
    }

    fn given(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    fn secret(&mut self, name: &str, secret: &str, key: &str) {
        self.0.push(EnvVar {
            name: name.to_owned(),
            value: None,
            value_from: Some(EnvVarSource {
                secret_key_ref: Some(SecretKeySelector {
                    name: secret.to_owned(),
                    key: key.to_owned(),
                    optional: None,
                }),
                ..Default::default()
            }),
        });
    }

    fn credentials(&mut self, vcs: &VersionControl) {
        match &vcs.auth.credentials {
            Credentials::Token(StoredValue {
                holder: KeyHolder::Secret(secret),
                key,
                ..
            }) => {
                self.secret("VCS_TOKEN", secret, key);
                if vcs.forge == ForgeKind::Github {
                    self.secret("GITHUB_TOKEN", secret, key);
                    self.secret("GH_TOKEN", secret, key);
                }
            }
            Credentials::Ssh { key, known_hosts } => {
                self.text("VCS_SSH_KEY_PATH", &format!("{SSH_DIRECTORY}/{}", key.key));
                if let Some(hosts) = known_hosts {
                    self.text(
                        "VCS_SSH_KNOWN_HOSTS_PATH",
                        &format!("{KNOWN_HOSTS_DIRECTORY}/{}", hosts.key),
                    );
                }
            }
            Credentials::App(_) => {
                // It is made before the Job is, so there is a Secret wherever there is a Job.
                if let Some(secret) = &vcs.token_secret {
                    for name in ["VCS_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"] {
                        self.secret(name, secret, TOKEN_KEY);
                    }
                    self.text("VCS_TOKEN_PATH", &format!("{TOKEN_DIRECTORY}/{TOKEN_KEY}"));
                }
            }
            Credentials::Token(_) | Credentials::None => {}
        }
    }

    fn defaults(&mut self, vcs: &VersionControl) {
        let defaults = &vcs.defaults;
        self.given("VCS_BRANCH_TEMPLATE", defaults.branch_template.as_deref());
        self.given(
            "VCS_BRANCH_CONFLICT_SUFFIX_TEMPLATE",
            defaults.branch_conflict_suffix_template.as_deref(),
        );
        for (value, names) in [
            (
                &defaults.commit_author_name,
                ["VCS_COMMIT_AUTHOR_NAME", "GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"],
            ),
            (
                &defaults.commit_author_email,
                [
                    "VCS_COMMIT_AUTHOR_EMAIL",
                    "GIT_AUTHOR_EMAIL",
                    "GIT_COMMITTER_EMAIL",
                ],
            ),
        ] {
            for name in names {
                self.given(name, value.as_deref());
            }
        }
        let pull_request = defaults.pull_request.clone().unwrap_or_default();
        self.given("VCS_PR_TITLE_TEMPLATE", pull_request.title_template.as_deref());
        self.given("VCS_PR_BODY_TEMPLATE", pull_request.body_template.as_deref());
        self.given("VCS_PR_RATE_LIMITS", vcs.rate_limits.as_deref());
        self.given("VCS_PR_DRAFT", pull_request.draft.map(flag));
    }
}
