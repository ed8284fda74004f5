//! The phases of every kind: one word that says where an object stands.
//!
//! A phase is for people and for scripts that compare one string. What decides is the conditions beside it.

use crate::strings::string_enum;

string_enum! {
    /// Where an AgentRun, an OrchestrationRun or a ToolRun stands. An absent phase means `Pending`.
    open enum RunPhase {
        /// Not started: new, or waiting for a reason that the condition `Blocked` names.
        Pending,
        /// At least one step, Job or workflow of it has been started.
        Running,
        /// A cancel was accepted; not every pod is confirmed gone yet.
        Cancelling,
        /// Ended, and everything that had to succeed did.
        Succeeded,
        /// Ended without success; the condition `Failed` says why.
        Failed,
        /// Ended because somebody asked for it.
        Cancelled,
    }
}

impl RunPhase {
    /// Whether a run in this phase has ended for good. A word of another version is taken as not ended, so that nothing
    /// is cleaned up that may still be running.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Cancelling | Self::Other(_) => false,
        }
    }
}

string_enum! {
    /// Where one step stands, of a workflow or of an orchestration.
    open enum StepPhase {
        /// Not started yet.
        Pending,
        /// An attempt is under way.
        Running,
        /// The last attempt failed and another one is due.
        Retrying,
        /// Ended with success.
        Succeeded,
        /// Ended without success, with no attempt left.
        Failed,
        /// Will never run; its reason and `causedBy` say why.
        Skipped,
        /// Its child was cancelled.
        Cancelled,
    }
}

impl StepPhase {
    /// Whether a step in this phase has ended for good.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Retrying | Self::Other(_) => false,
        }
    }
}

string_enum! {
    /// Where an object stands that is only read and checked: Orchestration, Tool, SecretBinding, Signal, Schedule and
    /// Artifact.
    open enum ObjectPhase {
        /// Checked and usable.
        Ready,
        /// Checked and in effect.
        Active,
        /// The spec is wrong; the condition `Ready` says how.
        Invalid,
    }
}

string_enum! {
    /// Where an ApprovalPolicy stands. With `spec.mode: phase` the words below decide a gate; controllers write `Active`
    /// and `Invalid` only.
    open enum ApprovalPolicyPhase {
        /// In effect; decides nothing.
        Active,
        /// The spec is wrong.
        Invalid,
        Approved,
        Allowed,
        Ready,
        Succeeded,
        Denied,
        Rejected,
        Blocked,
        Failed,
    }
}

string_enum! {
    /// Where a Budget stands.
    open enum BudgetPhase {
        /// In effect, with something left.
        Active,
        /// More was used than the limits allow; submissions are refused.
        Exceeded,
        /// Closed by a person; submissions are refused.
        Blocked,
        Denied,
        Failed,
    }
}

string_enum! {
    /// Where a SignalDelivery stands.
    open enum DeliveryPhase {
        /// The signal it names does not exist yet.
        Pending,
        /// Recorded, and able to release a step that waits for the signal.
        Delivered,
        /// It names no signal.
        Invalid,
    }
}

string_enum! {
    /// Where a Workspace stands.
    open enum WorkspacePhase {
        /// The claim is not bound to a volume yet.
        Pending,
        /// The claim is bound.
        Ready,
        /// The volume behind the claim was lost.
        Failed,
        /// Its time to live has passed and the claim was deleted.
        Expired,
        /// The spec is wrong.
        Invalid,
    }
}

string_enum! {
    /// How a webhook delivery to an ImplementationSource went.
    open enum WebhookState {
        Queued = "queued",
        Synced = "synced",
        Retrying = "retrying",
        Failed = "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_phase_is_not_an_end() {
        assert!(!RunPhase::from("Hibernating").is_terminal());
        assert!(!StepPhase::from("Hibernating").is_terminal());
    }

    #[test]
    fn a_run_that_is_being_cancelled_has_not_ended() {
        assert!(!RunPhase::Cancelling.is_terminal());
        assert!(RunPhase::Cancelled.is_terminal());
    }
}
