//! What can go wrong, and the exit code that tells scripts which kind of wrong it was.

use std::{error::Error as _, io};

/// Success.
pub const OK: u8 = 0;
/// What was asked for makes no sense as it was written: arguments, files, names.
pub const VALIDATION: u8 = 2;
/// The Kubernetes API server refused, or could not be asked.
pub const KUBE: u8 = 3;
/// Something is wrong with what runs: a check of `doctor` failed, the control plane refused.
pub const RUNTIME: u8 = 4;
/// Anything else.
pub const UNKNOWN: u8 = 5;
/// What was waited for ended as `Failed`.
pub const RUN_FAILED: u8 = 10;
/// What was waited for ended as `Cancelled`.
pub const RUN_CANCELLED: u8 = 11;
/// The time given with `--timeout` is over.
pub const WAIT_TIMED_OUT: u8 = 12;
/// What was waited for was deleted.
pub const WAIT_GONE: u8 = 13;
/// Ctrl-C, as shells count it.
pub const INTERRUPTED: u8 = 130;

/// The codes with their meaning, as the documentation lists them.
pub const CODES: &[(u8, &str)] = &[
    (OK, "done; for `wait` and `--wait`: it ended as was wanted"),
    (
        VALIDATION,
        "the command line, a file or a name has to be corrected",
    ),
    (KUBE, "the Kubernetes API server refused, or could not be reached"),
    (
        RUNTIME,
        "something is wrong with what runs: `doctor` found it, or the control plane refused",
    ),
    (UNKNOWN, "something else failed"),
    (RUN_FAILED, "`wait`, `--wait`: the run ended as Failed"),
    (RUN_CANCELLED, "`wait`, `--wait`: the run ended as Cancelled"),
    (
        WAIT_TIMED_OUT,
        "`wait`, `--wait`: the time of `--timeout` is over",
    ),
    (WAIT_GONE, "`wait`, `--wait`: the object was deleted meanwhile"),
    (INTERRUPTED, "stopped with Ctrl-C"),
];

/// Why a command does not end with success.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The words name what to change.
    #[error("{0}")]
    Validation(String),
    #[error("{doing}: {}", kube_words(.source))]
    Kube { doing: String, source: Box<kube::Error> },
    /// The cluster is not as it has to be.
    #[error("{0}")]
    Cluster(String),
    #[error("{0}")]
    Runtime(String),
    #[error("{0}")]
    Unknown(String),
    /// Whoever read our output has seen enough.
    #[error("nobody reads the output any more")]
    BrokenPipe,
    /// What was to be said has been said: only the code is left.
    #[error("")]
    Silent(u8),
}

impl Error {
    /// For `map_err`: what was being done when the API server said no.
    pub fn kube(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Kube {
            doing,
            source: Box::new(source),
        }
    }

    /// The code that the program ends with.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Validation(_) => VALIDATION,
            Self::Kube { .. } | Self::Cluster(_) => KUBE,
            Self::Runtime(_) => RUNTIME,
            Self::Unknown(_) => UNKNOWN,
            Self::BrokenPipe => OK,
            Self::Silent(code) => *code,
        }
    }

    /// Whether the API server said that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if status_code(source) == Some(404))
    }

    /// Whether the API server said that we may not.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(status_code(source), Some(401 | 403)))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Unknown(format!("the output cannot be written: {error}")),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Unknown(format!("a value cannot be written as JSON: {error}"))
    }
}

/// The HTTP code of the API server's answer, if it answered.
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What the API server said, or why it said nothing, with what can be done about it.
pub fn kube_words(error: &kube::Error) -> String {
    let kube::Error::Api(status) = error else {
        return format!(
            "the API server cannot be asked ({}): check --kubeconfig and --context, and that the server runs",
            root_cause(error)
        );
    };
    let words = status.message.trim_end_matches('.');
    let remedy = match status.code {
        401 => "the kubeconfig's user is not known to the cluster: log in again, or choose another --context",
        404 => "check the name, and the namespace (-n)",
        403 => {
            "`agentctl doctor` lists the rights that you have; ask whoever runs the cluster for the others"
        }
        409 => "somebody else changed it meanwhile: look at it, and try again",
        _ => return words.to_owned(),
    };
    format!("{words}; {remedy}")
}

/// The innermost error, which names the cause; the ones around it say that something failed.
fn root_cause(error: &kube::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    if text.is_empty() {
        error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string)
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_means_one_thing() {
        let codes: BTreeSet<u8> = CODES.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes.len(), CODES.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let error = Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.code(), OK);
    }
}
