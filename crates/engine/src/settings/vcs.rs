//! Version control: which forges and repositories runs may use, and how.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jangar_api::agents::version_control_provider::{ForgeKind, TokenType};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mistakes::{Wrong, shown};

/// What an operator can choose about version control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcsSettings {
    /// Whether VersionControlProviders are looked after, and runs use them.
    pub enabled: bool,
    /// Patterns of repositories that runs may use; empty allows all.
    pub repositories_allowed: Vec<String>,
    /// The kinds of token that are warned about, for each forge.
    pub deprecated_token_types: BTreeMap<ForgeKind, BTreeSet<TokenType>>,
    /// How often pull requests may be opened, for each forge.
    pub rate_limits: BTreeMap<ForgeKind, PullRequestRate>,
}

/// How often pull requests may be opened: so many in so long, and how long to wait after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullRequestRate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_seconds: Option<u32>,
}

/// As JSON, which is how a pod is told.
impl fmt::Display for PullRequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

impl Default for VcsSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            repositories_allowed: Vec::new(),
            deprecated_token_types: BTreeMap::from([(ForgeKind::Github, BTreeSet::from([TokenType::Pat]))]),
            rate_limits: BTreeMap::new(),
        }
    }
}

/// The kinds of token that are warned about, from a JSON object.
pub(super) fn deprecated_token_types(text: &str) -> Result<BTreeMap<ForgeKind, BTreeSet<TokenType>>, Wrong> {
    by_forge(text, |path, value| {
        let words: Vec<TokenType> =
            serde_json::from_value(value).map_err(|error| field(path, &error.to_string()))?;
        for word in &words {
            if let TokenType::Other(word) = word {
                return Err(field(path, &format!("{word} is no kind of token")));
            }
        }
        Ok(words.into_iter().collect())
    })
}

/// How often pull requests may be opened, from a JSON object.
pub(super) fn rate_limits(text: &str) -> Result<BTreeMap<ForgeKind, PullRequestRate>, Wrong> {
    by_forge(text, |path, value| {
        let rate: PullRequestRate =
            serde_json::from_value(value).map_err(|error| field(path, &error.to_string()))?;
        for (name, number) in [
            ("windowSeconds", rate.window_seconds),
            ("maxRequests", rate.max_requests),
        ] {
            if number == Some(0) {
                return Err(field(&format!("{path}.{name}"), "it must be at least 1"));
            }
        }
        Ok(rate)
    })
}

fn by_forge<T>(
    text: &str,
    read: impl Fn(&str, Value) -> Result<T, Wrong>,
) -> Result<BTreeMap<ForgeKind, T>, Wrong> {
    let fields: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|error| Wrong::NotJson {
        error: shown(&error.to_string()),
    })?;
    fields
        .into_iter()
        .map(|(name, value)| match ForgeKind::from(name.as_str()) {
            ForgeKind::Other(_) => Err(field(&name, "it is no kind of forge")),
            forge => Ok((forge, read(&name, value)?)),
        })
        .collect()
}

fn field(path: &str, error: &str) -> Wrong {
    Wrong::Field {
        path: shown(path),
        error: shown(error),
    }
}
