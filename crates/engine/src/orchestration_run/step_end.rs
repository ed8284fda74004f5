//! How a step ended, with all that is said about it.

use jangar_api::{phase::StepPhase, reason::Reason, values::FreeForm};

use crate::decision::Rejection;

pub(super) struct StepEnd {
    pub phase: StepPhase,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub outputs: Option<FreeForm>,
}

impl StepEnd {
    pub(super) fn failed(why: &Rejection) -> Self {
        Self {
            phase: StepPhase::Failed,
            reason: Some(why.reason.clone()),
            message: Some(why.message.clone()),
            outputs: None,
        }
    }

    pub(super) fn cancelled(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            phase: StepPhase::Cancelled,
            reason: Some(reason),
            message: Some(message.into()),
            outputs: None,
        }
    }

    pub(super) const fn succeeded(outputs: Option<FreeForm>) -> Self {
        Self {
            phase: StepPhase::Succeeded,
            reason: None,
            message: None,
            outputs,
        }
    }
}
