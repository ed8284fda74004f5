//! What can go wrong, and the exit code that tells scripts which kind of wrong it was.

use std::{error::Error as _, io};

use tonic::Code;

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
    #[error("{doing}: {}", grpc_words(.address, .status))]
    Grpc {
        doing: String,
        address: String,
        status: tonic::Status,
    },
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
    pub fn code(&self) -> u8 {
        match self {
            Self::Validation(_) => VALIDATION,
            Self::Kube { .. } | Self::Cluster(_) => KUBE,
            Self::Grpc { status, .. } => match status.code() {
                Code::InvalidArgument | Code::OutOfRange => VALIDATION,
                _ => RUNTIME,
            },
            Self::Runtime(_) => RUNTIME,
            Self::Unknown(_) => UNKNOWN,
            Self::BrokenPipe => OK,
            Self::Silent(code) => *code,
        }
    }

    /// Whether whoever answered said that there is no such object.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Kube { source, .. } => status_code(source) == Some(404),
            Self::Grpc { status, .. } => status.code() == Code::NotFound,
            _ => false,
        }
    }

    /// Whether whoever answered said that we may not.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Kube { source, .. } => matches!(status_code(source), Some(401 | 403)),
            Self::Grpc { status, .. } => {
                matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied)
            }
            _ => false,
        }
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

/// What the control plane said, or why it said nothing, with what can be done about it.
pub fn grpc_words(address: &str, status: &tonic::Status) -> String {
    let words = status.message().trim_end_matches('.');
    // Only what failed on this side has a source: the control plane sends words.
    let failed_here = status.source().is_some();
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal if failed_here => format!(
            "the control plane at {address} cannot be asked ({}): check --server, whether it talks TLS (--tls, --no-tls), and that \
             it runs",
            innermost(status)
        ),
        Code::DeadlineExceeded | Code::Cancelled => {
            format!("the control plane at {address} did not answer in time: try again, or look at its log")
        }
        Code::Unauthenticated => {
            // What a program has to send is not what a person has to do.
            let why = words.split_once("; ").map_or(words, |(why, _)| why);
            format!(
                "{why}: give the control plane at {address} another --token, or keep one with `agentctl auth login`; `kubectl \
                 create token NAME` makes one of a service account"
            )
        }
        // The control plane says itself what can be done, where it knows.
        _ if words.contains("; ") => words.to_owned(),
        Code::PermissionDenied => {
            format!("{words}; ask whoever runs the cluster for that right")
        }
        Code::NotFound => format!("{words}; check the name, and the namespace (-n)"),
        Code::Unimplemented => format!(
            "the control plane at {address} does not know this call: it is older than this agentctl; upgrade it, or leave --grpc out"
        ),
        _ if words.is_empty() => format!("the control plane at {address} says {}", status.code()),
        _ => words.to_owned(),
    }
}

/// The innermost of what went wrong on the way to the control plane.
fn innermost(status: &tonic::Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
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
    fn what_the_control_plane_refuses_has_a_code_and_a_remedy() {
        let told = |status: tonic::Status| {
            let error = Error::Grpc {
                doing: "run x cannot be read".to_owned(),
                address: "127.0.0.1:1".to_owned(),
                status,
            };
            (error.code(), error.to_string())
        };
        for (status, code, words) in [
            (
                tonic::Status::invalid_argument("limit=0: more"),
                VALIDATION,
                "limit=0: more",
            ),
            (tonic::Status::not_found("there is none"), RUNTIME, "(-n)"),
            (
                tonic::Status::unauthenticated("who?"),
                RUNTIME,
                "agentctl auth login",
            ),
            (
                tonic::Status::permission_denied("no"),
                RUNTIME,
                "ask whoever runs",
            ),
            (
                tonic::Status::deadline_exceeded("late"),
                RUNTIME,
                "127.0.0.1:1 did not answer in time",
            ),
            (tonic::Status::unimplemented(""), RUNTIME, "upgrade it"),
            (
                tonic::Status::unavailable("the database is down"),
                RUNTIME,
                "the database is down",
            ),
        ] {
            let (found, text) = told(status);
            assert_eq!(found, code, "{text}");
            assert!(
                text.starts_with("run x cannot be read: ") && text.contains(words),
                "{text}"
            );
        }
        let error = tonic::Status::from_error(Box::new(io::Error::other("nobody listens")));
        let (found, text) = told(error);
        assert_eq!(found, RUNTIME);
        assert!(
            text.contains("127.0.0.1:1 cannot be asked (nobody listens): check --server"),
            "{text}"
        );
    }

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
