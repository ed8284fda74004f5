//! What this program says about its own work: on standard error, for people at a terminal and as JSON for everybody else.

use std::io::{self, IsTerminal};

use anyhow::Result;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::BadInput;

/// The variables that say what is logged, the first one that is set counts.
pub(crate) const VARIABLES: [&str; 2] = ["JANGAR_LOG", "RUST_LOG"];

/// Begins to log. `default` is what is logged unless a variable says otherwise.
pub(crate) fn start(default: &str) -> Result<()> {
    begin(filter(|name| std::env::var(name).ok(), default)?);
    Ok(())
}

/// The same for a program that reads its settings next: those tell of a bad variable together with all others, so that the default
/// serves until then.
pub(crate) fn start_before_settings(default: &str) {
    let filter = filter(|name| std::env::var(name).ok(), default);
    begin(filter.unwrap_or_else(|_| EnvFilter::new(default)));
}

/// What is wrong with the variables that say what is logged.
pub(crate) fn mistake(variable: impl Fn(&str) -> Option<String>) -> Option<BadInput> {
    filter(variable, "").err()
}

fn begin(filter: EnvFilter) {
    let registry = tracing_subscriber::registry().with(filter);
    if io::stderr().is_terminal() {
        registry
            .with(fmt::layer().compact().with_writer(io::stderr))
            .init();
    } else {
        registry
            .with(fmt::layer().json().flatten_event(true).with_writer(io::stderr))
            .init();
    }
}

fn filter(variable: impl Fn(&str) -> Option<String>, default: &str) -> Result<EnvFilter, BadInput> {
    let set = VARIABLES.into_iter().find_map(|name| {
        let value = variable(name)?;
        (!value.trim().is_empty()).then_some((name, value))
    });
    let Some((name, value)) = set else {
        return Ok(EnvFilter::new(default));
    };
    EnvFilter::try_new(&value).map_err(|error| {
        BadInput(format!(
            "{name}={value:?} does not say what to log ({error}): write a level like info, or levels by module like \
             warn,jangar_controllers=debug"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_says_what_is_logged() {
        for (jangar, rust, expected) in [
            (None, None, "warn"),
            (None, Some("info"), "info"),
            (Some("debug"), Some("info"), "debug"),
            (Some(" "), Some("info"), "info"),
        ] {
            let variable = |name: &str| match name {
                "JANGAR_LOG" => jangar.map(str::to_owned),
                _ => rust.map(str::to_owned),
            };
            assert_eq!(filter(variable, "warn").unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_bad_level_is_named_with_its_variable() {
        let error = filter(|_| Some("jangar=loud".to_owned()), "warn").unwrap_err();
        assert!(
            error.to_string().starts_with("JANGAR_LOG=\"jangar=loud\""),
            "{error}"
        );
    }
}
