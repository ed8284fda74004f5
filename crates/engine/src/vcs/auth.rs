//! How runs show a forge who they are: what each forge takes, and what a provider has chosen.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{
    agents::version_control_provider::{
        AppAuth, AuthMethod, ForgeKind, SshAuth, TokenAuth, TokenType, VcsAuth, VersionControlProviderSpec,
    },
    reason::Reason,
    refs::KeyRef,
    values::IntOrString,
};

use crate::{
    decision::{KeyHolder, Keys, Question, Rejection},
    settings::VcsSettings,
};

/// The key of a token in its Secret, unless the provider names another one.
const TOKEN_KEY: &str = "token";
/// The key of a GitHub App's private key.
const APP_KEY: &str = "privateKey";
/// The key of an SSH key, as in Kubernetes' own Secrets of type `kubernetes.io/ssh-auth`.
const SSH_KEY: &str = "ssh-privatekey";
/// The key of the known hosts in their ConfigMap.
const KNOWN_HOSTS_KEY: &str = "known_hosts";
/// How long a token of a GitHub App is used: GitHub gives it for an hour.
const APP_TOKEN_TTL: Duration = Duration::from_hours(1);

/// What a forge takes.
struct Adapter {
    methods: &'static [AuthMethod],
    token_types: &'static [TokenType],
    username: &'static str,
}

const TOKEN_SSH: &[AuthMethod] = &[AuthMethod::Token, AuthMethod::Ssh, AuthMethod::None];

/// What this forge takes; `None` if this version does not know it.
fn adapter(forge: &ForgeKind) -> Option<Adapter> {
    let (methods, token_types, username): (&[AuthMethod], &[TokenType], _) = match forge {
        ForgeKind::Github => (
            &[
                AuthMethod::Token,
                AuthMethod::App,
                AuthMethod::Ssh,
                AuthMethod::None,
            ],
            &[TokenType::FineGrained, TokenType::AccessToken, TokenType::Pat],
            "x-access-token",
        ),
        ForgeKind::Gitlab => (TOKEN_SSH, &[TokenType::AccessToken, TokenType::Pat], "oauth2"),
        ForgeKind::Bitbucket => (TOKEN_SSH, &[TokenType::AccessToken], "x-token-auth"),
        ForgeKind::Gitea => (TOKEN_SSH, &[TokenType::ApiToken, TokenType::AccessToken], "git"),
        ForgeKind::Generic => (TOKEN_SSH, TokenType::KNOWN, "git"),
        ForgeKind::Other(_) => return None,
    };
    Some(Adapter {
        methods,
        token_types,
        username,
    })
}

/// What a token is taken for if the provider does not say: the first that the forge takes. Any may be meant for a server of
/// which nothing is known.
fn default_token_type(forge: &ForgeKind) -> Option<TokenType> {
    match forge {
        ForgeKind::Github => Some(TokenType::FineGrained),
        ForgeKind::Gitlab | ForgeKind::Bitbucket => Some(TokenType::AccessToken),
        ForgeKind::Gitea => Some(TokenType::ApiToken),
        ForgeKind::Generic | ForgeKind::Other(_) => None,
    }
}

/// One value of a Secret or a ConfigMap, by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    pub holder: KeyHolder,
    pub key: String,
    /// The field of the provider that names the holder, for messages.
    pub field: &'static str,
}

/// With what runs show who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    None,
    Token(StoredValue),
    App(AppKey),
    Ssh {
        key: StoredValue,
        known_hosts: Option<StoredValue>,
    },
}

impl Credentials {
    /// The values that have to be there.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &StoredValue> {
        let (first, second) = match self {
            Self::None => (None, None),
            Self::Token(token) => (Some(token), None),
            Self::App(app) => (Some(&app.private_key), None),
            Self::Ssh { key, known_hosts } => (Some(key), known_hosts.as_ref()),
        };
        first.into_iter().chain(second)
    }
}

/// A GitHub App, and where its private key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppKey {
    pub app_id: String,
    pub installation_id: String,
    pub private_key: StoredValue,
    /// How long one token is used.
    pub token_ttl: Duration,
}

/// How runs authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub credentials: Credentials,
    /// The user that goes with a token.
    pub username: String,
    /// Why another kind of token should be used, if so.
    pub deprecated: Option<String>,
}

/// What is wrong with `spec.auth` of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The forge is one that this version does not know.
    Provider(Rejection),
    /// The forge takes no such method or token.
    Unsupported(Rejection),
    /// The method needs something that is not given.
    Incomplete(Rejection),
}

impl Flaw {
    /// What the provider's own conditions say.
    pub(super) fn of_provider(self) -> Rejection {
        match self {
            Self::Provider(flaw) | Self::Unsupported(flaw) | Self::Incomplete(flaw) => flaw,
        }
    }

    /// What a run says that would use the provider.
    pub(super) fn of_run(self, provider: &str) -> Rejection {
        let reason = match &self {
            Self::Provider(_) | Self::Unsupported(_) => Reason::UnsupportedVcsAuth,
            Self::Incomplete(_) => Reason::MissingVcsAuth,
        };
        let message = self.of_provider().message;
        Rejection::new(reason, format!("VersionControlProvider {provider}: {message}"))
    }
}

impl Auth {
    /// What a provider that is well has chosen.
    pub(crate) fn of_provider(spec: &VersionControlProviderSpec, settings: &VcsSettings) -> Option<Self> {
        Self::of(spec, settings).ok()
    }

    /// Whether the forge's API takes the credentials. It takes no SSH key.
    pub(super) const fn speaks_to_the_api(&self) -> bool {
        matches!(self.credentials, Credentials::Token(_) | Credentials::App(_))
    }

    /// What the provider has chosen, if the forge takes it and it is complete.
    pub(super) fn of(spec: &VersionControlProviderSpec, settings: &VcsSettings) -> Result<Self, Flaw> {
        let forge = &spec.provider;
        let Some(adapter) = adapter(forge) else {
            return Err(Flaw::Provider(unknown_forge(forge)));
        };
        let none = VcsAuth::default();
        let auth = spec.auth.as_ref().unwrap_or(&none);
        let method = chosen(auth);
        if !adapter.methods.contains(&method) {
            return Err(Flaw::Unsupported(Rejection::new(
                Reason::UnsupportedAuth,
                format!(
                    "spec.auth.method is {method}, and {forge} takes {}: choose one of those",
                    listed(adapter.methods.iter().map(AuthMethod::as_str))
                ),
            )));
        }
        let mut deprecated = None;
        let credentials = match &method {
            AuthMethod::Token => {
                let token = auth.token.as_ref();
                let type_ = token_type(token, forge, &adapter)?;
                deprecated = type_.and_then(|type_| deprecation(forge, &type_, settings));
                Credentials::Token(token_value(token)?)
            }
            AuthMethod::App => Credentials::App(app_key(auth.app.as_ref())?),
            AuthMethod::Ssh => ssh(auth.ssh.as_ref())?,
            AuthMethod::None | AuthMethod::Other(_) => Credentials::None,
        };
        let username = present(auth.username.as_deref()).unwrap_or(adapter.username);
        Ok(Self {
            credentials,
            username: username.to_owned(),
            deprecated,
        })
    }
}

/// The method that is named, else the one whose secret is given.
fn chosen(auth: &VcsAuth) -> AuthMethod {
    let given = |reference: Option<&KeyRef>| reference.is_some_and(|key| !key.name.trim().is_empty());
    if let Some(method) = &auth.method {
        method.clone()
    } else if given(auth.token.as_ref().and_then(|token| token.secret_ref.as_ref())) {
        AuthMethod::Token
    } else if given(
        auth.app
            .as_ref()
            .and_then(|app| app.private_key_secret_ref.as_ref()),
    ) {
        AuthMethod::App
    } else if given(
        auth.ssh
            .as_ref()
            .and_then(|ssh| ssh.private_key_secret_ref.as_ref()),
    ) {
        AuthMethod::Ssh
    } else {
        AuthMethod::None
    }
}

fn unknown_forge(forge: &ForgeKind) -> Rejection {
    let known = listed(ForgeKind::KNOWN.iter().map(ForgeKind::as_str));
    match present(Some(forge.as_str())) {
        None => Rejection::new(
            Reason::MissingProvider,
            format!("spec.provider is blank: set it to {known}"),
        ),
        Some(word) => Rejection::new(
            Reason::UnsupportedProvider,
            format!("spec.provider is {word}, which this version does not know: set it to {known}"),
        ),
    }
}

fn token_type(
    token: Option<&TokenAuth>,
    forge: &ForgeKind,
    adapter: &Adapter,
) -> Result<Option<TokenType>, Flaw> {
    let Some(type_) = token.and_then(|token| token.type_.as_ref()) else {
        return Ok(default_token_type(forge));
    };
    if adapter.token_types.contains(type_) {
        return Ok(Some(type_.clone()));
    }
    Err(Flaw::Unsupported(Rejection::new(
        Reason::UnsupportedAuth,
        format!(
            "spec.auth.token.type is {type_}, and {forge} takes {}: choose one of those",
            listed(adapter.token_types.iter().map(TokenType::as_str))
        ),
    )))
}

/// Why another kind of token should be used.
fn deprecation(forge: &ForgeKind, type_: &TokenType, settings: &VcsSettings) -> Option<String> {
    let types = settings.deprecated_token_types.get(forge)?;
    types.contains(type_).then(|| {
        format!(
            "spec.auth.token.type is {type_}, which is deprecated for {forge} \
             (JANGAR_AGENTS_CONTROLLER_VCS_DEPRECATED_TOKEN_TYPES): use another kind of token"
        )
    })
}

fn token_value(token: Option<&TokenAuth>) -> Result<StoredValue, Flaw> {
    let field = "spec.auth.token.secretRef.name";
    let reference = token.and_then(|token| token.secret_ref.as_ref());
    secret(reference, TOKEN_KEY, field).ok_or_else(|| {
        Flaw::Incomplete(Rejection::new(
            Reason::MissingSecretRef,
            format!("spec.auth.method is token, and {field} is not set: name the Secret with the token"),
        ))
    })
}

fn app_key(app: Option<&AppAuth>) -> Result<AppKey, Flaw> {
    let none = AppAuth::default();
    let app = app.unwrap_or(&none);
    let id = |value: Option<&IntOrString>, field: &str| {
        let text = value.map(ToString::to_string).unwrap_or_default();
        // It becomes part of a path.
        let legal = !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        legal.then_some(text.clone()).ok_or_else(|| {
            let found = if text.is_empty() { "not set".to_owned() } else { format!("{text:?}") };
            Flaw::Incomplete(Rejection::new(
                Reason::MissingAppAuth,
                format!("spec.auth.method is app, and spec.auth.app.{field} is {found}: set it to the number that GitHub shows"),
            ))
        })
    };
    let field = "spec.auth.app.privateKeySecretRef.name";
    let ttl = app
        .token_ttl_seconds
        .and_then(|seconds| u64::try_from(seconds.get()).ok());
    Ok(AppKey {
        app_id: id(app.app_id.as_ref(), "appId")?,
        installation_id: id(app.installation_id.as_ref(), "installationId")?,
        private_key: secret(app.private_key_secret_ref.as_ref(), APP_KEY, field).ok_or_else(|| {
            Flaw::Incomplete(Rejection::new(
                Reason::MissingAppAuth,
                format!("spec.auth.method is app, and {field} is not set: name the Secret with the App's private key"),
            ))
        })?,
        token_ttl: ttl.filter(|seconds| *seconds > 0).map_or(APP_TOKEN_TTL, Duration::from_secs).min(APP_TOKEN_TTL),
    })
}

fn ssh(ssh: Option<&SshAuth>) -> Result<Credentials, Flaw> {
    let field = "spec.auth.ssh.privateKeySecretRef.name";
    let key = ssh.and_then(|ssh| ssh.private_key_secret_ref.as_ref());
    let key = secret(key, SSH_KEY, field).ok_or_else(|| {
        Flaw::Incomplete(Rejection::new(
            Reason::MissingSecretRef,
            format!("spec.auth.method is ssh, and {field} is not set: name the Secret with the SSH key"),
        ))
    })?;
    let hosts = ssh.and_then(|ssh| ssh.known_hosts_config_map_ref.as_ref());
    let hosts = hosts.and_then(|hosts| {
        Some(StoredValue {
            holder: KeyHolder::ConfigMap(present(Some(&hosts.name))?.to_owned()),
            key: present(hosts.key.as_deref())
                .unwrap_or(KNOWN_HOSTS_KEY)
                .to_owned(),
            field: "spec.auth.ssh.knownHostsConfigMapRef.name",
        })
    });
    Ok(Credentials::Ssh {
        key,
        known_hosts: hosts,
    })
}

fn secret(reference: Option<&KeyRef>, usual: &str, field: &'static str) -> Option<StoredValue> {
    let reference = reference?;
    Some(StoredValue {
        holder: KeyHolder::Secret(present(Some(&reference.name))?.to_owned()),
        key: present(reference.key.as_deref()).unwrap_or(usual).to_owned(),
        field,
    })
}

/// Whether a value is where it is said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is, or we may not look: then whoever mounts it will see.
    Assumed,
    Unknown(Question),
    HolderMissing(Rejection),
    KeyMissing(Rejection),
}

/// Looks for a value among what is known of Secrets and ConfigMaps.
pub(super) fn presence(value: &StoredValue, known: &BTreeMap<KeyHolder, Keys>) -> Presence {
    let StoredValue { holder, key, field } = value;
    let (not_found, key_missing) = match holder {
        KeyHolder::Secret(_) => (Reason::SecretNotFound, Reason::SecretKeyMissing),
        KeyHolder::ConfigMap(_) => (Reason::ConfigMapNotFound, Reason::ConfigMapKeyMissing),
    };
    match known.get(holder) {
        None => Presence::Unknown(Question::Keys(holder.clone())),
        Some(Keys::Forbidden) => Presence::Assumed,
        Some(Keys::Of(keys)) if keys.contains_key(key) => Presence::Assumed,
        Some(Keys::Of(_)) => Presence::KeyMissing(Rejection::new(
            key_missing,
            format!(
                "{field} is {holder}, which has no key {key}: add it, or name another key beside the name"
            ),
        )),
        Some(Keys::Absent) => Presence::HolderMissing(Rejection::new(
            not_found,
            format!(
                "{field} is {holder}, and there is none of that name in this namespace: create it, or name another one"
            ),
        )),
    }
}

pub(super) fn present(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Words as a sentence lists them: `a, b or c`.
pub(super) fn listed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}
