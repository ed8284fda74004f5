//! VersionControlProvider: a forge, and how runs reach their repositories there.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::CommonStatus,
    refs::KeyRef,
    strings::string_enum,
    values::{Int32, IntOrString, Timestamp, if_legible},
};

string_enum! {
    /// The software behind a forge.
    closed enum ForgeKind {
        Github = "github",
        Gitlab = "gitlab",
        Bitbucket = "bitbucket",
        Gitea = "gitea",
        Generic = "generic",
    }
}

string_enum! {
    /// How repositories are cloned.
    closed enum CloneProtocol {
        Https = "https",
        Ssh = "ssh",
    }
}

/// Where the forge is, how runs authenticate there, and which repositories they may use.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "agents.proompteng.ai",
    version = "v1alpha1",
    kind = "VersionControlProvider",
    plural = "versioncontrolproviders",
    namespaced,
    status = "VersionControlProviderStatus",
    derive = "PartialEq",
    shortname = "vcp",
    doc = "A VersionControlProvider is a forge that runs clone from and push to: its addresses, its credentials by \
           reference, and the repositories that may be used.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider")
)]
#[serde(rename_all = "camelCase")]
pub struct VersionControlProviderSpec {
    /// The software behind the forge: `github`, `gitlab`, `bitbucket`, `gitea` or `generic`.
    pub provider: ForgeKind,
    /// Address of its API. Default for github: `https://api.github.com`.
    #[schemars(url)]
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_base_url: Option<String>,
    /// Address that repositories are cloned from.
    #[schemars(url)]
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_base_url: Option<String>,
    /// Address of its pages.
    #[schemars(url)]
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_base_url: Option<String>,
    /// How repositories are cloned: `https` or `ssh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_protocol: Option<CloneProtocol>,
    /// Host to clone from by SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_host: Option<String>,
    /// User to clone as by SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_user: Option<String>,
    /// How runs authenticate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<VcsAuth>,
    /// What can be done there. What is left out counts as true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<VcsCapabilities>,
    /// Branches, authors and pull requests of runs that say nothing themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<VcsDefaults>,
    /// Which repositories runs may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository_policy: Option<RepositoryPolicy>,
}

string_enum! {
    /// How runs authenticate.
    closed enum AuthMethod {
        Token = "token",
        App = "app",
        Ssh = "ssh",
        None = "none",
    }
}

/// How runs authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcsAuth {
    /// The way to authenticate: `token`, `app` (GitHub only), `ssh` or `none`. Absent: the one whose secret is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<AuthMethod>,
    /// A GitHub App, for which a short-lived token is made for each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<AppAuth>,
    /// An SSH key and the hosts it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshAuth>,
    /// A token that the forge issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenAuth>,
    /// User name to present. Default: `x-access-token` for github, `oauth2` for gitlab, `x-token-auth` for bitbucket,
    /// `git` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// A GitHub App, for which a short-lived token is made for each run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppAuth {
    /// Id of the App, as a number or a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<IntOrString>,
    /// Id of its installation, as a number or a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installation_id: Option<IntOrString>,
    /// Secret and key with the App's private key; the key is `privateKey` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_secret_ref: Option<KeyRef>,
    /// How long a token is valid, in seconds. Default: 3600.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ttl_seconds: Option<Int32>,
}

/// An SSH key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshAuth {
    /// ConfigMap and key with the known hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_hosts_config_map_ref: Option<KeyRef>,
    /// Secret and key with the private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key_secret_ref: Option<KeyRef>,
}

string_enum! {
    /// The kinds of token that forges issue.
    closed enum TokenType {
        Pat = "pat",
        FineGrained = "fine_grained",
        ApiToken = "api_token",
        AccessToken = "access_token",
    }
}

/// A token that the forge issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAuth {
    /// Secret and key with the token; the key is `token` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeyRef>,
    /// What kind of token it is: `pat`, `fine_grained`, `api_token` or `access_token`. Default: `fine_grained` for
    /// github, `api_token` for gitea, `access_token` for gitlab and bitbucket. A `pat` for github is deprecated.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TokenType>,
}

/// What can be done at the forge. What is left out counts as true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcsCapabilities {
    /// Whether pull requests can be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_requests: Option<bool>,
    /// Whether repositories can be read. False leaves version control out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    /// Whether branches can be pushed. False makes every run read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<bool>,
}

/// Branches, authors and pull requests of runs that say nothing themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VcsDefaults {
    /// Branch that work starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Template for the branch that work goes to, with the metadata and parameters of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_template: Option<String>,
    /// Template for what is appended to the branch, after a dash, when another run works on one of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_conflict_suffix_template: Option<String>,
    /// E-mail address of the author of commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_author_email: Option<String>,
    /// Name of the author of commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_author_name: Option<String>,
    /// How pull requests are opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestDefaults>,
}

/// How pull requests are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestDefaults {
    /// Whether a pull request is opened for the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether it is opened as a draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft: Option<bool>,
    /// Template for its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title_template: Option<String>,
    /// Template for its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_template: Option<String>,
}

/// Which repositories runs may use, as `owner/name` with `*` for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryPolicy {
    /// Patterns of repositories that may be used, at most 200. Empty or absent: any.
    #[schemars(length(max = 200))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Patterns of repositories that may not be used, at most 200. They win over `allow`.
    #[schemars(length(max = 200))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Whether the forge's credentials are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionControlProviderStatus {
    #[serde(flatten)]
    pub common: CommonStatus,
    /// When the spec and the credentials were last checked.
    #[serde(default, deserialize_with = "if_legible")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_validated_at: Option<Timestamp>,
}
