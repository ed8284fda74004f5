//! Where a forge is: its API, its repositories and its pages.
//!
//! A token is sent to these addresses, so one that is not given is never taken from another server than those that are: the
//! public service is only meant where nothing is given at all.

use jangar_api::{
    agents::version_control_provider::{CloneProtocol, ForgeKind, VersionControlProviderSpec},
    reason::Reason,
};

use super::auth::{Auth, Credentials, present};
use crate::decision::Rejection;

/// The user of every forge's SSH server.
const SSH_USER: &str = "git";

/// Where a forge is. What is absent is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub api: Option<String>,
    pub clone: Option<String>,
    pub web: Option<String>,
    pub protocol: CloneProtocol,
    pub ssh_host: Option<String>,
    pub ssh_user: Option<String>,
}

/// Address of the public service's pages, and of its API.
fn public(forge: &ForgeKind) -> Option<(&'static str, &'static str)> {
    match forge {
        ForgeKind::Github => Some(("https://github.com", "https://api.github.com")),
        ForgeKind::Gitlab => Some(("https://gitlab.com", "https://gitlab.com/api/v4")),
        ForgeKind::Bitbucket => Some(("https://bitbucket.org", "https://api.bitbucket.org/2.0")),
        ForgeKind::Gitea | ForgeKind::Generic | ForgeKind::Other(_) => None,
    }
}

/// Where a server of one's own has its API, below its pages.
fn api_path(forge: &ForgeKind) -> Option<&'static str> {
    match forge {
        ForgeKind::Github => Some("/api/v3"),
        ForgeKind::Gitlab => Some("/api/v4"),
        ForgeKind::Gitea => Some("/api/v1"),
        ForgeKind::Bitbucket | ForgeKind::Generic | ForgeKind::Other(_) => None,
    }
}

impl Addresses {
    /// The addresses that a provider gives, and those that follow from them.
    pub(super) fn of(spec: &VersionControlProviderSpec, auth: &Auth) -> Result<Self, Rejection> {
        let given = |text: &Option<String>, field: &str| match present(text.as_deref()) {
            None => Ok(None),
            Some(text) => base_url(text, field).map(Some),
        };
        let api = given(&spec.api_base_url, "spec.apiBaseUrl")?;
        let clone = given(&spec.clone_base_url, "spec.cloneBaseUrl")?;
        let web = given(&spec.web_base_url, "spec.webBaseUrl")?;
        let by_ssh = matches!(auth.credentials, Credentials::Ssh { .. });
        let protocol = spec.clone_protocol.clone().unwrap_or(if by_ssh {
            CloneProtocol::Ssh
        } else {
            CloneProtocol::Https
        });
        let public = public(&spec.provider);
        let is_public = |url: &Option<String>| {
            let public = public.map(|(web, _)| web);
            url.as_deref().is_none_or(|url| Some(url) == public)
        };
        let of_public = public.filter(|(_, public_api)| {
            let api = api.as_deref();
            is_public(&clone) && is_public(&web) && api.is_none_or(|api| api == *public_api)
        });
        let api = api.or_else(|| match of_public {
            Some((_, api)) => Some(api.to_owned()),
            None => Some(format!(
                "{}{}",
                web.as_ref().or(clone.as_ref())?,
                api_path(&spec.provider)?
            )),
        });
        let web = web
            .or_else(|| of_public.map(|(web, _)| web.to_owned()))
            .or_else(|| clone.clone());
        let clone = clone.or_else(|| web.clone());
        let ssh_host = present(spec.ssh_host.as_deref())
            .map(str::to_owned)
            .or_else(|| clone.as_deref().and_then(host).map(str::to_owned));
        let addresses = Self {
            api,
            clone,
            web,
            ssh_user: (protocol == CloneProtocol::Ssh)
                .then(|| present(spec.ssh_user.as_deref()).unwrap_or(SSH_USER).to_owned()),
            ssh_host: ssh_host.filter(|_| protocol == CloneProtocol::Ssh),
            protocol,
        };
        addresses.complete(spec)
    }

    /// Whether there is an address to clone from.
    fn complete(self, spec: &VersionControlProviderSpec) -> Result<Self, Rejection> {
        let ssh = self.protocol == CloneProtocol::Ssh;
        let missing = if ssh {
            self.ssh_host.is_none()
        } else {
            self.clone.is_none()
        };
        if !missing {
            return Ok(self);
        }
        let (field, what) = if ssh {
            (
                "spec.sshHost",
                "the host that repositories are cloned from by SSH",
            )
        } else {
            (
                "spec.cloneBaseUrl",
                "the address that repositories are cloned from",
            )
        };
        Err(Rejection::new(
            Reason::InvalidSpec,
            format!(
                "{field} is not set, and it does not follow from the rest for {}: set it to {what}",
                spec.provider
            ),
        ))
    }
}

/// An address without a slash at its end.
fn base_url(text: &str, field: &str) -> Result<String, Rejection> {
    let wrong =
        |what: &str, remedy: &str| Rejection::new(Reason::InvalidSpec, format!("{field} {what}: {remedy}"));
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let Some(authority) = rest
        .and_then(|rest| rest.split('/').next())
        .filter(|host| !host.is_empty())
    else {
        return Err(wrong(
            &format!("is {text:?}, which is no address of a server"),
            "it must begin with https:// or http:// and a host",
        ));
    };
    if authority.contains('@') {
        // The address itself is not repeated: what stands before the @ may be a password.
        return Err(wrong(
            "has a user in it",
            "take it out, and name the Secret with the token in spec.auth",
        ));
    }
    if text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '"' | '\'' | '\\'))
    {
        return Err(wrong(
            &format!("is {text:?}, which has more in it than a host and a path"),
            "leave out blanks, quotes, ? and #",
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    // A port for HTTP is none for SSH.
    authority.split(':').next().filter(|host| !host.is_empty())
}
