//! The environment of the process, read once, so that everything that depends on it is a function of a value.

use std::{collections::BTreeMap, path::PathBuf};

/// Variables by name.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// What the process was started with. Variables that are no text are passed over.
    pub fn of_the_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// The value of a variable; an empty one counts as absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The first of several variables that is set.
    pub fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Whether a variable says yes: `1`, `true`, `yes` or `on`; `None` if it is absent.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let value = self.get(name)?.trim().to_ascii_lowercase();
        Some(matches!(value.as_str(), "1" | "true" | "yes" | "on"))
    }

    /// All variables.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Where the configuration of the user is kept.
    pub fn config_file(&self) -> Option<PathBuf> {
        let base = match self.get("XDG_CONFIG_HOME") {
            Some(base) => PathBuf::from(base),
            None => PathBuf::from(self.get("HOME")?).join(".config"),
        };
        Some(base.join("agentctl").join("config.json"))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self(owned.into())
    }
}
