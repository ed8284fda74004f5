//! Cancel, and giving up: the endpoint is told to stop, and the run is over when it says that it has.
//!
//! Telling it is safe to repeat, unlike handing the work over: a call that may not have arrived is made again.

use jangar_api::{agents::agent_run::AgentRunStatus, reason::Reason, values};
use jiff::Timestamp;
use serde_json::json;

use super::{
    super::{
        NextStatus, Situation,
        cancel::because,
        elsewhere::{Left, cancel_deadline, cancelled, fail, removed, removing_until},
        leftovers::{after, sooner},
        survivors,
    },
    Known,
    record::{Cancel, Heard, Record, Submission},
    reported_end, submit,
};
use crate::{
    custom::{
        call::{Answer, CallId, Post, Purpose},
        endpoint::Endpoint,
    },
    decision::{Decision, Effect, Plan, Rejection},
    removal::again_at,
};

/// How far the end of the work has come.
pub(super) enum Stopping {
    /// The endpoint surely does not have the work.
    Never,
    /// It has to be told, or was and has not reported yet.
    Going(Box<Going>),
}

pub(super) struct Going {
    pub record: Record,
    pub effects: Vec<Effect>,
    pub wake_at: Option<Timestamp>,
}

impl Going {
    fn wait(record: &Record) -> Stopping {
        Self::until(record, None)
    }

    fn until(record: &Record, wake_at: Option<Timestamp>) -> Stopping {
        Stopping::Going(Box::new(Self {
            record: record.clone(),
            effects: Vec::new(),
            wake_at,
        }))
    }

    /// Goes on towards the end with this status, and looks again at the deadline at the latest.
    pub(super) fn plan(self, mut next: NextStatus<'_>, deadline: Timestamp) -> Decision<AgentRunStatus> {
        next.status.runtime_ref = Some(self.record.stored());
        Decision::Act(Plan {
            effects: self.effects,
            status: next.into_status(),
            wake_at: sooner(self.wake_at, Some(deadline)),
            ..Plan::nothing()
        })
    }
}

/// Until when an endpoint that nobody waits for has to confirm that it has stopped: counted from when it was first told.
pub(super) fn confirmed_by(situation: &Situation<'_>, record: &Record) -> Timestamp {
    let told = record.cancel.as_ref().map(|cancel| cancel.since.0);
    after(
        told.unwrap_or(situation.now),
        situation.settings.runs.cancel_timeout,
    )
}

/// Somebody asked for the end of the run.
pub(super) fn cancel(situation: &Situation<'_>, record: Option<&Record>) -> Decision<AgentRunStatus> {
    let deadline = cancel_deadline(situation);
    let Some(record) = record else {
        return cancelled(
            situation,
            None,
            &Reason::Cancelled,
            "the run was cancelled before its endpoint was called",
        );
    };
    let going = match stop(situation, record) {
        Stopping::Never => {
            let message = format!("the run was cancelled: {} does not have the work", record.name);
            return cancelled(situation, None, &Reason::Cancelled, &message);
        }
        Stopping::Going(going) => *going,
    };
    if situation.now >= deadline {
        let said = match heard(&going.record) {
            Some(Heard::Refused(words)) => format!("it refused the cancel: {words}"),
            Some(Heard::Taken) => "it was told to stop".to_owned(),
            None => "it could not be told to stop, and is being told again".to_owned(),
        };
        let message = format!(
            "{} did not confirm until {deadline} that it has stopped, and may still be working; {said}",
            record.name
        );
        let record = going.record.left_behind(situation).stored();
        return cancelled(situation, Some(record), &Reason::CancelTimedOut, &message);
    }
    let mut next = situation.next_status();
    let message = "the run is being cancelled: its endpoint has to confirm that it has stopped";
    next.cancelling(deadline, &because(situation, message));
    going.plan(next, deadline)
}

/// The run is given up: the endpoint is told to stop, and the run fails when it has, or when it has had its time.
pub(super) fn give_up(
    situation: &Situation<'_>,
    record: Option<&Record>,
    why: &Rejection,
) -> Decision<AgentRunStatus> {
    let Some(record) = record else {
        return fail(situation, None, &why.reason, &why.message);
    };
    let going = match stop(situation, record) {
        Stopping::Never => return fail(situation, Some(record.stored()), &why.reason, &why.message),
        Stopping::Going(going) => *going,
    };
    let deadline = confirmed_by(situation, record);
    if situation.now >= deadline {
        let message = format!(
            "{}; {} did not confirm that it has stopped",
            why.message, record.name
        );
        let record = going.record.left_behind(situation).stored();
        return fail(situation, Some(record), &why.reason, &message);
    }
    let mut next = situation.next_status();
    next.warn(&why.reason, &why.message);
    going.plan(next, deadline)
}

/// What the endpoint said to the cancel, if it has.
fn heard(record: &Record) -> Option<&Heard> {
    record.cancel.as_ref()?.heard.as_ref()
}

impl Record {
    /// The same of a run that is over while its endpoint may still be working: it is told, unless it was.
    pub(super) fn left_behind(mut self, situation: &Situation<'_>) -> Self {
        self.removing_until = heard(&self).is_none().then(|| removing_until(situation));
        self
    }
}

/// Goes on telling the endpoint of a run that is over to stop. Nothing, if nobody has to be told.
pub(in super::super) fn removal(situation: &Situation<'_>) -> Option<Decision<AgentRunStatus>> {
    // A record that cannot be read names nobody who could be told.
    let mut record = Record::of(situation.status).ok().flatten()?;
    let name = record.name.clone();
    let over = reported_end(situation, &record).is_some();
    let Some(until) = record.removing_until else {
        // It was told, and says only now that it has stopped.
        let late = over && survivors::is_unrecorded(situation);
        return late.then(|| removed(situation, record.stored(), &Left::Nothing, None));
    };
    let until = until.0;
    let stopping = if over {
        Stopping::Never
    } else {
        stop(situation, &record)
    };
    let mut left = Left::Unknown;
    let notice = match stopping {
        Stopping::Never => {
            left = Left::Nothing;
            situation.normal(Reason::Stopped, format!("{name} does not have the work any more"))
        }
        Stopping::Going(going) => match heard(&going.record) {
            Some(Heard::Taken) => {
                record = going.record;
                situation.normal(Reason::Stopped, format!("{name} was told to stop"))
            }
            Some(Heard::Refused(words)) => {
                let message = format!("{name} refused the cancel, and may still be working: {words}");
                record = going.record.clone();
                situation.warning(Reason::CancelTimedOut, message)
            }
            None if situation.now >= until => {
                let message = format!(
                    "{name} could not be told to stop until {until}, and may still be working: look there"
                );
                situation.warning(Reason::CancelTimedOut, message)
            }
            None => return Some(going.plan(situation.next_status(), until)),
        },
    };
    record.removing_until = None;
    Some(removed(situation, record.stored(), &left, Some(notice)))
}

/// Ends the work, as far as that can be done from here.
pub(super) fn stop(situation: &Situation<'_>, record: &Record) -> Stopping {
    match &record.submission {
        Submission::Postponed(_) => Stopping::Never,
        Submission::Taken => tell(situation, record),
        Submission::Intended(sender) => match situation.known(Purpose::Submit, sender) {
            Known::Unsent => Stopping::Never,
            // What is sent after it could arrive before it.
            Known::UnderWay => Going::wait(record),
            Known::Answered(Answer::NotTaken { .. } | Answer::Refused { .. } | Answer::NotAllowed { .. }) => {
                Stopping::Never
            }
            Known::Answered(Answer::Taken { .. } | Answer::Unknown { .. }) | Known::Stranger => {
                tell(situation, record)
            }
        },
    }
}

/// Tells the endpoint to stop, and remembers what it said to that.
fn tell(situation: &Situation<'_>, record: &Record) -> Stopping {
    let Some(cancel) = &record.cancel else {
        return intend(situation, record, values::Timestamp(situation.now), 1);
    };
    if cancel.heard.is_some() {
        return Going::wait(record);
    }
    let heard = |heard: Heard| {
        let mut record = record.clone();
        record.cancel = Some(Cancel {
            heard: Some(heard),
            ..cancel.clone()
        });
        Going::wait(&record)
    };
    match situation.known(Purpose::Cancel, &cancel.call) {
        Known::Unsent => {
            let effects = post(situation, record, cancel.call.number).into_iter().collect();
            Stopping::Going(Box::new(Going {
                record: record.clone(),
                effects,
                wake_at: None,
            }))
        }
        Known::UnderWay => Going::wait(record),
        Known::Answered(Answer::Taken { .. }) => heard(Heard::Taken),
        Known::Answered(Answer::Refused { words } | Answer::NotAllowed { words }) => {
            heard(Heard::Refused(words.clone()))
        }
        Known::Answered(Answer::NotTaken { .. } | Answer::Unknown { .. }) | Known::Stranger => {
            let due = again_at(
                cancel.since.0,
                cancel.call.at.0,
                situation.settings.runs.cancel_timeout,
            );
            if situation.now < due {
                return Going::until(record, Some(due));
            }
            intend(situation, record, cancel.since, cancel.call.number + 1)
        }
    }
}

/// Says that the endpoint is about to be told. The call follows when that is written.
fn intend(situation: &Situation<'_>, record: &Record, since: values::Timestamp, number: u32) -> Stopping {
    let mut record = record.clone();
    record.cancel = Some(Cancel {
        since,
        call: situation.sender(number),
        heard: None,
    });
    Going::wait(&record)
}

/// The call, unless the endpoint that was recorded is none: then there is nobody to tell.
fn post(situation: &Situation<'_>, record: &Record, number: u32) -> Option<Effect> {
    let endpoint: Endpoint = record.name.parse().ok()?;
    Some(Effect::PostCustom(Box::new(Post {
        id: CallId {
            run: situation.uid.clone(),
            purpose: Purpose::Cancel,
            number,
        },
        run: situation.observed.key.clone(),
        attempt: record.attempt,
        endpoint,
        body: json!({
            "agentRun": submit::identity(situation),
            "reason": situation.run.spec.stop.cancel_reason,
        }),
        expires_at: submit::token_until(record),
    })))
}
