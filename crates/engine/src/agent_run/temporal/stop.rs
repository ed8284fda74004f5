//! Cancel, giving up and deletion: the workflow is asked to end, then made to, and the run is over when it is closed.

use std::time::Duration;

use jangar_api::{agents::agent_run::AgentRunStatus, phase::RunPhase, reason::Reason, values};
use jiff::Timestamp;

use super::{
    super::{
        NextStatus, Situation,
        cancel::because,
        elsewhere::{Left, cancel_deadline, cancelled, fail, leave, removed, removing_until},
        hold::go,
        leftovers::{after, sooner},
    },
    begin, call, closed, ending, given_up, heed,
    record::{Beginning, Record, Stopped},
    trouble,
};
use crate::{
    decision::{Decision, Effect, Plan, Rejection},
    removal::again_at,
    temporal::call::{Known, Means, StartAnswer, Stop, StopAnswer, What},
};

/// What is kept of the time for a cancel, so that a workflow that was terminated can also be heard to be closed.
const CONFIRMATION: Duration = Duration::from_secs(10);
/// How often the server is told before it is worth anybody's attention that it cannot be.
const UNTOLD_MAX: u32 = 3;
/// How long a start can be on its way: what the server does not know by then never comes. It is longer than the time that a
/// start has, and than a process that lost its lease goes on.
const START_LIFETIME: Duration = Duration::from_mins(2);

/// How far the end of the workflow has come.
enum Stopping {
    /// There surely is no such workflow.
    Never,
    /// The server has to be told, or was and has not said yet how the workflow was closed.
    Going(Box<Going>),
}

struct Going {
    record: Record,
    effects: Vec<Effect>,
    wake_at: Option<Timestamp>,
}

impl Going {
    fn of(situation: &Situation<'_>, record: Record) -> Self {
        Self {
            effects: heed(situation, &record).into_iter().collect(),
            record,
            wake_at: None,
        }
    }

    fn wait(situation: &Situation<'_>, record: &Record, until: Option<Timestamp>) -> Stopping {
        Stopping::Going(Box::new(Self {
            wake_at: until,
            ..Self::of(situation, record.clone())
        }))
    }

    /// Goes on towards the end with this status.
    fn plan(self, mut next: NextStatus<'_>, deadline: Option<Timestamp>) -> Decision<AgentRunStatus> {
        next.status.runtime_ref = Some(self.record.stored());
        Decision::Act(Plan {
            effects: self.effects,
            status: next.into_status(),
            wake_at: sooner(self.wake_at, deadline),
            ..Plan::nothing()
        })
    }

    /// Why the workflow is not closed yet, if that is not its own doing.
    fn trouble(&self, situation: &Situation<'_>) -> Option<String> {
        let stop = self.record.stop.as_ref().filter(|stop| stop.number >= UNTOLD_MAX);
        let untold = stop.and_then(|stop| stop.trouble.clone());
        untold.or_else(|| trouble(situation).map(str::to_owned))
    }
}

/// Somebody asked for the end of the run.
pub(super) fn cancel(situation: &Situation<'_>, record: Option<&Record>) -> Decision<AgentRunStatus> {
    let Some(record) = record else {
        let message = "the run was cancelled before its workflow was started";
        return cancelled(situation, None, &Reason::Cancelled, message);
    };
    let going = match stop(situation, record) {
        Stopping::Never => {
            let message = format!("the run was cancelled: there is no {}", record.words());
            return cancelled(situation, None, &Reason::Cancelled, &message);
        }
        Stopping::Going(going) => *going,
    };
    let deadline = cancel_deadline(situation);
    if situation.now >= deadline {
        return timed_out(situation, going, deadline);
    }
    let how = match going.record.stop.as_ref().map(|stop| stop.means) {
        Some(Means::Terminate) => "is being terminated, because it was asked to end and did not",
        Some(Means::Cancel) | None => "was asked to end",
    };
    let message = format!("the run is being cancelled: {} {how}", record.words());
    let mut next = situation.next_status();
    next.cancelling(deadline, &because(situation, &message));
    tell_trouble(&mut next, &going, situation);
    going.plan(next, Some(deadline))
}

/// The deadline passed. The controllers go on making the workflow end.
fn timed_out(situation: &Situation<'_>, going: Going, deadline: Timestamp) -> Decision<AgentRunStatus> {
    let trouble = going.trouble(situation).map(|words| format!(" ({words})"));
    let message = format!(
        "{} was not closed until {deadline}{}; it may still be working, and is being terminated",
        going.record.words(),
        trouble.unwrap_or_default()
    );
    let record = going.record.left_behind(situation).stored();
    cancelled(situation, Some(record), &Reason::CancelTimedOut, &message)
}

impl Record {
    /// The same of a run that is over while its workflow may be open.
    fn left_behind(mut self, situation: &Situation<'_>) -> Self {
        self.removing_until = Some(removing_until(situation));
        self
    }
}

/// Goes on making the workflow of a run end that is over. Nothing, if there is none any more.
pub(in super::super) fn removal(situation: &Situation<'_>) -> Option<Decision<AgentRunStatus>> {
    // A record that cannot be read names no workflow.
    let mut record = Record::of(situation.status).ok().flatten()?;
    let until = record.removing_until?.0;
    let words = record.words();
    let stopping = match closed(situation) {
        Some(_) => Stopping::Never,
        None => stop(situation, &record),
    };
    let (left, notice) = match stopping {
        Stopping::Never => {
            let message = format!("{words} is not open any more");
            (Left::Nothing, situation.normal(Reason::Stopped, message))
        }
        Stopping::Going(_) if situation.now >= until => {
            let message = format!("{words} could not be seen to be closed until {until}: look in Temporal");
            (Left::Unknown, situation.warning(Reason::CancelTimedOut, message))
        }
        Stopping::Going(going) => return Some(going.plan(situation.next_status(), Some(until))),
    };
    record.stop = None;
    record.removing_until = None;
    Some(removed(situation, record.stored(), &left, Some(notice)))
}

/// What keeps the workflow from being closed deserves attention; the remedy is part of the words.
fn tell_trouble(next: &mut NextStatus<'_>, going: &Going, situation: &Situation<'_>) {
    let trouble = going.trouble(situation).map(|words| {
        format!(
            "{words}; {} may still be working until that is mended",
            going.record.words()
        )
    });
    next.note(&Reason::TemporalError, trouble.as_deref());
}

/// The run is given up: its workflow is made to end, and the run fails when it is closed, or when the server has had its time.
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
    let deadline = given_up_at(situation, record);
    if situation.now >= deadline {
        let message = format!(
            "{}; it is not known whether {} was stopped, which is being tried",
            why.message,
            record.words()
        );
        let record = going.record.left_behind(situation).stored();
        return fail(situation, Some(record), &why.reason, &message);
    }
    let mut next = situation.next_status();
    next.warn(&why.reason, &why.message);
    going.plan(next, Some(deadline))
}

/// The run was deleted: its workflow is made to end, and the run goes when it is closed, or when the server has had its time.
pub(in super::super) fn farewell(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let over = situation.status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    // A record that cannot be read names no workflow.
    let Some(record) = Record::of(situation.status).ok().flatten() else {
        return go(situation, None);
    };
    let unsure = || {
        format!(
            "the run was deleted, and it is not known whether {} was stopped: look in Temporal",
            record.words()
        )
    };
    if over {
        return leave(situation, removal(situation), unsure);
    }
    if let Some(closed) = closed(situation) {
        let why = given_up(situation, Some(&record));
        return ending::conclude(situation, &record, closed, why.as_ref());
    }
    let going = match stop(situation, &record) {
        Stopping::Never => return go(situation, None),
        Stopping::Going(going) => *going,
    };
    let deadline = given_up_at(situation, &record);
    if situation.now >= deadline {
        let notice = situation.warning(Reason::CancelTimedOut, unsure());
        return go(situation, Some(notice));
    }
    going.plan(situation.next_status(), Some(deadline))
}

/// Until when it is waited for the end of a workflow that nobody wants any more: it has its time to end by itself, and the
/// server as much to make it.
fn given_up_at(situation: &Situation<'_>, record: &Record) -> Timestamp {
    let since = record.stop.as_ref().map_or(situation.now, |stop| stop.since.0);
    after(since, situation.settings.runs.cancel_timeout.saturating_mul(2))
}

/// Until when a workflow that was asked to end may do so by itself. What is then left of the time for a cancel is for the server.
fn patience_ends(situation: &Situation<'_>, stop: &Stopped) -> Timestamp {
    let timeout = situation.settings.runs.cancel_timeout;
    let whole = after(stop.since.0, timeout);
    let Some(deadline) = situation.status.cancel_deadline else {
        return whole;
    };
    let kept = CONFIRMATION.min(timeout / 2);
    whole.min(deadline.0.saturating_sub(kept).unwrap_or(deadline.0))
}

/// Makes the workflow end.
fn stop(situation: &Situation<'_>, record: &Record) -> Stopping {
    match &record.start {
        Beginning::Postponed(_) if !record.unclear => Stopping::Never,
        Beginning::Started | Beginning::Postponed(_) => tell(situation, record),
        Beginning::Intended(sender) => match begin::known(situation, sender.number) {
            // What is sent after it could arrive before it.
            Some(Known { answer: None, .. }) => Going::wait(situation, record, None),
            Some(Known {
                answer: Some(StartAnswer::Started { run_id }),
                ..
            }) => {
                let mut record = record.clone();
                record.run_id = Some(run_id.clone());
                record.start = Beginning::Started;
                record.unclear = false;
                tell(situation, &record)
            }
            Some(Known {
                answer: Some(StartAnswer::Occupied { .. } | StartAnswer::Refused { .. }),
                ..
            }) => Stopping::Never,
            Some(Known {
                answer: Some(StartAnswer::NotTaken { .. }),
                ..
            }) if !record.unclear => Stopping::Never,
            // Nobody knows of a call: not even this process, which forgets its calls when it loses the lead.
            Some(_) | None => tell(situation, record),
        },
    }
}

/// Tells the server, and remembers what it said to that.
fn tell(situation: &Situation<'_>, record: &Record) -> Stopping {
    let Some(stop) = &record.stop else {
        return intend(situation, record, Means::Cancel, None);
    };
    let patience_ends = patience_ends(situation, stop);
    if stop.told {
        return match stop.means {
            Means::Cancel if situation.now >= patience_ends => {
                intend(situation, record, Means::Terminate, Some(stop))
            }
            Means::Cancel => Going::wait(situation, record, Some(patience_ends)),
            Means::Terminate => Going::wait(situation, record, None),
        };
    }
    let known = situation.observed.outside.workflow.stop.as_ref();
    match known.filter(|known| known.number == stop.number) {
        None => send(situation, record, stop),
        Some(Known { answer: None, .. }) => Going::wait(situation, record, None),
        Some(Known {
            answer: Some(answer), ..
        }) => answered(situation, record, stop, answer, patience_ends),
    }
}

fn send(situation: &Situation<'_>, record: &Record, stop: &Stopped) -> Stopping {
    let reason = situation.run.spec.stop.cancel_reason.clone();
    let stop = Stop {
        number: stop.number,
        means: stop.means,
        reason: reason.unwrap_or_else(|| format!("AgentRun {} is to end", situation.observed.key)),
    };
    let mut going = Going::of(situation, record.clone());
    going.effects.push(call(situation, record, What::Stop(stop)));
    Stopping::Going(Box::new(going))
}

/// What follows from the answer of the server.
fn answered(
    situation: &Situation<'_>,
    record: &Record,
    stop: &Stopped,
    answer: &StopAnswer,
    patience_ends: Timestamp,
) -> Stopping {
    let mut record = record.clone();
    match answer {
        StopAnswer::Told => {
            // It is there, whoever has started it last.
            record.start = Beginning::Started;
            record.stop = Some(Stopped {
                told: true,
                trouble: None,
                ..stop.clone()
            });
            let until = (stop.means == Means::Cancel).then_some(patience_ends);
            Going::wait(situation, &record, until)
        }
        // How it ended is heard from whoever waits for that.
        StopAnswer::NotFound if record.start == Beginning::Started => Going::wait(situation, &record, None),
        StopAnswer::NotFound => {
            let never_after = after(begin::last_start(&record), START_LIFETIME);
            if situation.now >= never_after && stop.at.0 >= never_after {
                return Stopping::Never;
            }
            again(
                situation,
                &record,
                stop,
                never_after.max(told_again_at(situation, stop)),
            )
        }
        StopAnswer::NotTaken { words } => {
            record.stop = Some(Stopped {
                trouble: Some(words.clone()),
                ..stop.clone()
            });
            again(situation, &record, stop, told_again_at(situation, stop))
        }
    }
}

fn told_again_at(situation: &Situation<'_>, stop: &Stopped) -> Timestamp {
    again_at(stop.since.0, stop.at.0, situation.settings.runs.cancel_timeout)
}

/// The server is told again when its time has come, and more firmly if the workflow has had its time.
fn again(situation: &Situation<'_>, record: &Record, stop: &Stopped, due: Timestamp) -> Stopping {
    if situation.now < due {
        return Going::wait(situation, record, Some(due));
    }
    let patience_ends = patience_ends(situation, stop);
    let means = if situation.now >= patience_ends {
        Means::Terminate
    } else {
        stop.means
    };
    let last = record.stop.clone();
    intend(situation, record, means, last.as_ref())
}

/// Says that the server is about to be told. The call follows when that is written.
fn intend(situation: &Situation<'_>, record: &Record, means: Means, last: Option<&Stopped>) -> Stopping {
    let now = values::Timestamp(situation.now);
    let mut record = record.clone();
    record.stop = Some(Stopped {
        since: last.map_or(now, |last| last.since),
        means,
        number: last.map_or(1, |last| last.number + 1),
        at: now,
        told: false,
        trouble: last.and_then(|last| last.trouble.clone()),
    });
    Going::wait(situation, &record, None)
}
