//! The settings of this program, from its environment.

use std::{collections::BTreeMap, ffi::OsString};

use jangar_engine::settings::{Settings, is_variable};

use crate::{BadInput, history, logging};

/// Reads the settings. What `defaults` says holds unless the environment says otherwise.
///
/// Names that nobody reads, and values that are hardly meant, are told in the log; a value that cannot be used is an error
/// that lists all of them, also those of what is logged and of the history, which are read elsewhere.
pub(crate) fn read<const N: usize>(defaults: [(&str, &str); N]) -> Result<Settings, BadInput> {
    from(defaults, std::env::vars_os())
}

fn from<const N: usize>(
    defaults: [(&str, &str); N],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, BadInput> {
    let defaults = defaults.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut variables = BTreeMap::from(defaults);
    // Whoever else reads variables knows their names.
    let mut all = BTreeMap::new();
    let mut mistakes = Vec::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else { continue };
        let is_ours = is_variable(&name) && !logging::VARIABLES.contains(&name.as_str());
        match value.into_string() {
            Ok(value) => {
                // A blank one counts as unset, so it does not hide a default.
                if is_ours && !value.trim().is_empty() {
                    variables.insert(name.clone(), value.clone());
                }
                all.insert(name, value);
            }
            Err(value) if is_ours => {
                mistakes.push(format!("{name}={} is not UTF-8: correct it", value.display()));
            }
            Err(_) => {}
        }
    }
    let lookup = |name: &str| all.get(name).cloned();
    mistakes.extend(logging::mistake(lookup).map(|mistake| mistake.to_string()));
    mistakes.extend(history::mistakes(lookup));
    let parsed = match Settings::from_vars(variables) {
        Ok(parsed) if mistakes.is_empty() => parsed,
        Ok(_) => return Err(unusable(&mistakes)),
        Err(of_engine) => {
            mistakes.extend(of_engine.iter().map(ToString::to_string));
            return Err(unusable(&mistakes));
        }
    };
    for name in parsed.unknown {
        tracing::warn!(name, "nothing reads this variable: is its name right?");
    }
    for warning in parsed.warnings {
        tracing::warn!("{warning}");
    }
    Ok(parsed.settings)
}

fn unusable(mistakes: &[String]) -> BadInput {
    let lines: Vec<String> = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
    BadInput(format!("the settings cannot be used:{}", lines.concat()))
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
                ("JANGAR_LOG", "jangar=loud"),
                ("JANGAR_DB_POOL_SIZE", "x"),
                ("JANGAR_MIGRATIONS", "y"),
                ("JANGAR_AGENTRUN_ARTIFACTS_MAX", "many"),
                ("JANGAR_LEADER_ELECTION_ENABLED", "perhaps"),
            ]),
        )
        .unwrap_err()
        .to_string();
        assert_eq!(error.lines().count(), 6, "{error}");
        for mistake in [
            "\n  JANGAR_LOG=\"jangar=loud\"",
            "\n  JANGAR_DB_POOL_SIZE is \"x\"",
            "\n  JANGAR_MIGRATIONS is",
        ] {
            assert!(error.contains(mistake), "{error}");
        }
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
