//! How the workflow was closed is how the run ends.

use jangar_api::{
    agents::{agent_run::AgentRunStatus, agent_run_status::RunOutcome},
    phase::RunPhase,
    reason::Reason,
};

use super::{
    super::{
        Situation,
        cancel::because,
        elsewhere::fail,
        follow,
        outcome::{Ending, Verdict},
    },
    record::{Beginning, Record},
};
use crate::{
    decision::{Decision, Plan, Rejection},
    temporal::{
        call::{Closed, Returned},
        result,
    },
};

/// `why` is the reason for which the run was given up, if it was: then that is what it failed for, unless the workflow did its
/// work all the same.
pub(super) fn conclude(
    situation: &Situation<'_>,
    record: &Record,
    closed: &Closed,
    why: Option<&Rejection>,
) -> Decision<AgentRunStatus> {
    let mut record = record.clone();
    record.start = Beginning::Started;
    // How it came to that is over.
    record.unclear = false;
    record.stop = None;
    record.removing_until = None;
    let words = record.words();
    let said = |text: &Option<String>| match text {
        Some(text) => format!(": {text}"),
        None => String::new(),
    };
    let cancelling = situation.status.phase == Some(RunPhase::Cancelling) || situation.is_asked_to_stop();
    match (closed, why) {
        (Closed::Completed(returned), _) => succeed(situation, &record, returned),
        (Closed::Canceled { .. } | Closed::Terminated { .. }, Some(why)) => {
            let message = format!("{}; {words} was stopped", why.message);
            fail(situation, Some(record.stored()), &why.reason, &message)
        }
        (Closed::Canceled { words: text }, None) => {
            let message = format!("{words} was cancelled{}", said(text));
            cancelled(situation, &record, &message, cancelling)
        }
        // Whoever asked for the end of the run has it.
        (Closed::Terminated { words: text }, None) if cancelling => {
            let message = format!("{words} was terminated{}", said(text));
            cancelled(situation, &record, &message, cancelling)
        }
        (Closed::Terminated { words: text }, None) => {
            let message = format!("{words} was terminated by somebody{}", said(text));
            failed(
                situation,
                &record,
                &Reason::Terminated,
                &message,
                RunOutcome::default(),
            )
        }
        (Closed::Failed { kind, message }, _) => {
            let outcome = RunOutcome {
                reason: kind.clone(),
                message: Some(message.clone()),
                ..RunOutcome::default()
            };
            let kind = kind.as_deref().unwrap_or("no type given");
            let message = format!("{words} failed ({kind}): {message}");
            failed(situation, &record, &Reason::Failed, &message, outcome)
        }
        (Closed::TimedOut, _) => {
            let message = format!("{words} was closed by the server, because its time was up");
            failed(
                situation,
                &record,
                &Reason::TimedOut,
                &message,
                RunOutcome::default(),
            )
        }
        (Closed::Vanished { words: text }, _) => {
            let message = format!(
                "{words} is not there any more, so that it is not known how it ended ({text}): look at the retention of the \
                 namespace, and submit the run again if it is needed"
            );
            failed(
                situation,
                &record,
                &Reason::TemporalError,
                &message,
                RunOutcome::default(),
            )
        }
    }
}

fn succeed(situation: &Situation<'_>, record: &Record, returned: &Returned) -> Decision<AgentRunStatus> {
    let (report, artifacts) = result::outcome(returned);
    let mut next = situation.next_status();
    next.no_warning(&Reason::TemporalError);
    next.status.runtime_ref = Some(record.stored());
    let ending = Ending {
        verdict: Verdict::Succeeded,
        at: Some(situation.now),
        message: report.summary.clone().unwrap_or_default(),
        report,
        artifacts,
        delivery: None,
        words: None,
    };
    follow::succeed(situation, next, &ending)
}

fn cancelled(
    situation: &Situation<'_>,
    record: &Record,
    message: &str,
    asked: bool,
) -> Decision<AgentRunStatus> {
    let message = if asked {
        because(situation, message)
    } else {
        message.to_owned()
    };
    let mut next = situation.next_status();
    next.no_warning(&Reason::TemporalError);
    next.status.runtime_ref = Some(record.stored());
    next.cancelled(&Reason::Cancelled, &message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.normal(Reason::Cancelled, message)],
        ..Plan::nothing()
    })
}

fn failed(
    situation: &Situation<'_>,
    record: &Record,
    reason: &Reason,
    message: &str,
    outcome: RunOutcome,
) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.no_warning(&Reason::TemporalError);
    next.status.runtime_ref = Some(record.stored());
    if outcome != RunOutcome::default() {
        next.status.outcome = Some(outcome);
    }
    next.failed(situation.now, reason, message);
    Decision::Act(Plan {
        status: next.into_status(),
        notices: vec![situation.warning(reason.clone(), message)],
        ..Plan::nothing()
    })
}
