//! The end that the endpoint reported is the run's.

use jangar_api::{agents::agent_run::AgentRunStatus, phase::RunPhase, reason::Reason};

use super::{
    super::{
        Situation, artifacts,
        cancel::because,
        follow,
        outcome::{Ending, Verdict},
    },
    record::{Record, Submission},
    submit,
};
use crate::{
    custom::callback::{End, How},
    decision::{Decision, Plan},
};

pub(super) fn conclude(situation: &Situation<'_>, record: &Record, end: &End) -> Decision<AgentRunStatus> {
    let mut record = record.clone();
    submit::take_over(situation, &mut record);
    // An answer that has not come by now changes nothing any more.
    record.submission = Submission::Taken;
    let mut next = situation.next_status();
    next.no_warning(&Reason::SubmitUnknown);
    next.status.runtime_ref = Some(record.stored());
    let reported = end.outcome.message.as_deref().unwrap_or("it gave no message");
    let (reason, message) = match end.how {
        How::Succeeded => {
            let ending = Ending {
                verdict: Verdict::Succeeded,
                at: Some(situation.now),
                message: end.outcome.summary.clone().unwrap_or_default(),
                report: end.outcome.clone(),
                artifacts: end.artifacts.clone(),
                words: None,
                delivery: None,
            };
            return follow::succeed(situation, next, &ending);
        }
        How::Failed => {
            let word = end.outcome.reason.as_deref().unwrap_or("no reason given");
            (
                Reason::Failed,
                format!("{} reports a failure ({word}): {reported}", record.name),
            )
        }
        How::Cancelled => {
            let message = format!("{} has stopped: {reported}", record.name);
            let asked = situation.status.phase == Some(RunPhase::Cancelling)
                || situation.run.spec.stop.is_requested();
            let message = if asked {
                because(situation, &message)
            } else {
                message
            };
            (Reason::Cancelled, message)
        }
    };
    next.status.outcome = Some(end.outcome.clone());
    // The run has ended badly for a reason of its own, so that too many artifacts change nothing.
    let _ = artifacts::record(&mut next, &end.artifacts, &situation.settings.runs);
    let notice = match end.how {
        How::Cancelled => {
            next.cancelled(&reason, &message);
            situation.normal(reason, message)
        }
        How::Succeeded | How::Failed => {
            next.failed(situation.now, &reason, &message);
            situation.warning(reason, message)
        }
    };
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![notice],
        ..Plan::nothing()
    })
}
