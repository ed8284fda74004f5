//! The settings of the controllers, from the environment of this program.

use std::{collections::BTreeMap, ffi::OsString};

use jangar_engine::settings::{Settings, is_variable};

use crate::{BadInput, logging};

/// Reads the settings. What `defaults` says holds unless the environment says otherwise.
///
/// Names that nobody reads, and values that are hardly meant, are told in the log; a value that cannot be used is an error
/// that lists all of them.
pub(crate) fn read<const N: usize>(defaults: [(&str, &str); N]) -> Result<Settings, BadInput> {
    from(defaults, std::env::vars_os())
}

fn from<const N: usize>(
    defaults: [(&str, &str); N],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, BadInput> {
    let defaults = defaults.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut variables = BTreeMap::from(defaults);
    for (name, value) in environment {
        let Ok(name) = name.into_string() else { continue };
        if !is_variable(&name) || logging::VARIABLES.contains(&name.as_str()) {
            continue;
        }
        let value = value
            .into_string()
            .map_err(|value| BadInput(format!("{name}={} is not UTF-8: correct it", value.display())))?;
        // A blank one counts as unset, so it does not hide a default.
        if !value.trim().is_empty() {
            variables.insert(name, value);
        }
    }
    let parsed = Settings::from_vars(variables).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
        BadInput(format!("the settings cannot be used:{}", lines.concat()))
    })?;
    for name in parsed.unknown {
        tracing::warn!(name, "nothing reads this variable: is its name right?");
    }
    for warning in parsed.warnings {
        tracing::warn!("{warning}");
    }
    Ok(parsed.settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        owned.collect()
    }

    #[test]
    fn the_environment_goes_before_a_default_unless_it_is_blank() {
        let defaults = [("JANGAR_AGENT_RUNNER_IMAGE", "localhost/default")];
        for (value, expected) in [(" ", "localhost/default"), ("localhost/own", "localhost/own")] {
            let settings = from(defaults, environment(&[("JANGAR_AGENT_RUNNER_IMAGE", value)])).unwrap();
            assert_eq!(settings.runner.image.as_deref(), Some(expected));
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let error = from(
            [],
            environment(&[
                ("JANGAR_LOG", "no setting"),
                ("JANGAR_AGENTRUN_ARTIFACTS_MAX", "many"),
                ("JANGAR_LEADER_ELECTION_ENABLED", "perhaps"),
            ]),
        )
        .unwrap_err()
        .to_string();
        assert_eq!(error.lines().count(), 3, "{error}");
        assert!(
            error.contains("\n  JANGAR_AGENTRUN_ARTIFACTS_MAX='many'"),
            "{error}"
        );
        assert!(
            error.contains("\n  JANGAR_LEADER_ELECTION_ENABLED='perhaps'"),
            "{error}"
        );
    }
}
