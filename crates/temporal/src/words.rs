//! What an error of the server means, and what to do about it.

use jangar_engine::temporal::call::{StartAnswer, StopAnswer, Workflow};
use tonic::{Code, Status};

use crate::connection::Connector;

/// What follows from an error, for whoever asked.
pub(crate) enum Meaning {
    /// The server did not do it, and would not if it were asked again.
    Refused(String),
    /// The server did not do it, and may if it is asked again.
    NotTaken(String),
    /// Nobody knows whether the server did it.
    Unclear(String),
}

/// The meaning of an error that is about no workflow.
pub(crate) fn meaning(connector: &Connector, workflow: &Workflow, status: &Status) -> Meaning {
    let said = status.message();
    let namespace = &workflow.namespace;
    let address = connector.address();
    match status.code() {
        Code::NotFound => Meaning::Refused(format!(
            "the Temporal server at {address} knows no namespace {namespace} ({said}): correct spec.runtime.config.namespace or \
             TEMPORAL_NAMESPACE, or make the namespace"
        )),
        Code::InvalidArgument => Meaning::Refused(format!(
            "the Temporal server at {address} finds something wrong with spec.runtime.config ({said}): correct it and submit the \
             run again"
        )),
        Code::Unauthenticated | Code::PermissionDenied => Meaning::Refused(format!(
            "the Temporal server at {address} does not let this program into namespace {namespace} ({said}): see that \
             TEMPORAL_API_KEY_FILE or TEMPORAL_TLS_CLIENT_CERT_PATH is right"
        )),
        Code::FailedPrecondition | Code::Unimplemented | Code::OutOfRange => Meaning::Refused(format!(
            "the Temporal server at {address} will not do it ({said})"
        )),
        // It is said before anything is done.
        Code::ResourceExhausted => Meaning::NotTaken(format!(
            "the Temporal server at {address} has too much to do ({said})"
        )),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Meaning::Unclear(connector.unreachable(said)),
    }
}

impl From<Meaning> for StartAnswer {
    fn from(meaning: Meaning) -> Self {
        match meaning {
            Meaning::Refused(words) => Self::Refused { words },
            Meaning::NotTaken(words) => Self::NotTaken { words },
            Meaning::Unclear(words) => Self::Unclear { words },
        }
    }
}

impl From<Meaning> for StopAnswer {
    fn from(meaning: Meaning) -> Self {
        let (Meaning::Refused(words) | Meaning::NotTaken(words) | Meaning::Unclear(words)) = meaning;
        Self::NotTaken { words }
    }
}
