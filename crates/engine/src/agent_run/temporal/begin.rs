//! Starting the workflow, and the wait for its end.

use std::time::Duration;

use jangar_api::{
    agents::{agent_run::AgentRunStatus, agent_run_status::ContractStatus},
    reason::Reason,
    values,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    super::{
        Situation,
        elsewhere::{self, Accepted, Postponed, Sender, fail},
        leftovers::after,
        references::{self, Resolved, Unresolved},
        start::{self, Next},
        task::Task,
    },
    call,
    config::Config,
    heed,
    record::{Beginning, Record},
    stop, trouble,
};
use crate::{
    decision::{Decision, Plan, Rejection},
    job::{self, JobRequest, Place},
    temporal::call::{Known, Start, StartAnswer, What},
    vcs,
    waiting::{Gate, Waiting},
};

/// The most bytes of the argument. A Temporal server takes two million; what is that large belongs where the workflow can fetch
/// it.
const ARGUMENT_MAX_BYTES: usize = 1024 * 1024;
/// How long to wait before a start that did not arrive is made again; each later wait is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(5);
/// The longest of these waits.
const BACKOFF_MAX: Duration = Duration::from_mins(2);
/// How long a server that cannot be reached is tried.
const UNREACHABLE_MAX: Duration = Duration::from_mins(10);
/// How much later than its execution timeout a workflow may be heard to have ended: its start may have come late, and the
/// server may be away just then.
const LATE_MAX: Duration = Duration::from_mins(30);

/// What the start needs, all of it there.
struct Ready<'a> {
    config: Config,
    resolved: Resolved<'a>,
    argument: Value,
    /// The repository whose slot the run takes, in lower case.
    repository: Option<String>,
    /// Why the workflow gets no repository from here, if one was asked for.
    without: Option<Rejection>,
}

/// Everything that the workflow is started with, or why it cannot be.
fn ready<'a>(situation: &Situation<'a>) -> Result<Ready<'a>, Unresolved> {
    let (run, settings) = (situation.run, situation.settings);
    job::check_any_runtime(run, settings).map_err(Unresolved::Wrong)?;
    let config = Config::read(run, &situation.uid, settings).map_err(Unresolved::Wrong)?;
    let resolved = references::resolve(situation, Task::Whole, run)?;
    job::check_secrets_elsewhere(run, resolved.agent, resolved.memory, settings)
        .map_err(Unresolved::Wrong)?;
    let without = vcs::elsewhere(
        "a Temporal workflow",
        run,
        resolved.implementation,
        resolved.agent,
    )
    .map_err(Unresolved::Wrong)?;
    let argument = argument(situation, &resolved).map_err(Unresolved::Wrong)?;
    Ok(Ready {
        config,
        resolved,
        argument,
        repository: job::repository(run, resolved.implementation),
        without,
    })
}

/// What the workflow is told: the same document that a pod would find.
fn argument(situation: &Situation<'_>, resolved: &Resolved<'_>) -> Result<Value, Rejection> {
    let document = job::document(&JobRequest {
        run: situation.run,
        place: Place { step: 0, attempt: 1 },
        step: None,
        agent: resolved.agent,
        provider: resolved.provider,
        implementation: resolved.implementation,
        implementation_ref: resolved.implementation_ref,
        memory: resolved.memory,
        nats_auth: None,
        vcs: None,
        spec_hash: "",
        admitted_at: situation.now,
    })?;
    let bytes = document.to_string().len();
    if bytes > ARGUMENT_MAX_BYTES {
        return Err(Rejection::new(
            Reason::InputsTooLarge,
            format!(
                "the workflow would be given {bytes} bytes, and {ARGUMENT_MAX_BYTES} are allowed: shorten the implementation"
            ),
        ));
    }
    Ok(document)
}

/// Everything that the first start needs, the slot of the run included; or what comes instead.
fn admitted<'a>(situation: &Situation<'a>) -> Result<(Ready<'a>, Option<ContractStatus>), Next> {
    let ready = ready(situation).map_err(|unresolved| start::lacks(situation, unresolved))?;
    let Resolved {
        implementation,
        implementation_ref,
        ..
    } = ready.resolved;
    let contract =
        job::check_contract(situation.run, implementation, implementation_ref).map_err(Next::Wrong)?;
    match start::slot(situation, None, ready.repository.clone()) {
        Some(next) => Err(next),
        None => Ok((ready, contract)),
    }
}

/// Says which workflow is about to be started. The start follows when that is written.
pub(super) fn first(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let (ready, contract) = match admitted(situation) {
        Ok(admitted) => admitted,
        Err(next) => return start::carry_on(situation, next),
    };
    if let Some(decision) = elsewhere::held_first(situation) {
        return decision;
    }
    let limit = ready.config.timeouts(ready.resolved.agent).execution;
    let limit = limit.map(|limit| limit.saturating_add(LATE_MAX));
    let record = Record::new(&ready.config, ready.repository, situation.sender(1), limit);
    let accepted = Accepted {
        record: record.stored(),
        message: &format!("{} is being started", record.words()),
        contract,
        without: ready.without.as_ref(),
    };
    elsewhere::accept(situation, accepted)
}

/// A run whose workflow was meant to be started.
pub(super) fn follow(situation: &Situation<'_>, record: Record) -> Decision<AgentRunStatus> {
    match &record.start {
        Beginning::Started => working(situation, &record, Plan::nothing()),
        Beginning::Postponed(postponed) => {
            let due = postponed.not_before.0;
            // A time farther away than any wait was written before the clock was set back.
            if due > situation.now && due <= after(situation.now, BACKOFF_MAX) {
                return Decision::Act(Plan {
                    wake_at: Some(due),
                    ..Plan::nothing()
                });
            }
            let number = postponed.number + 1;
            intend(situation, record, number)
        }
        Beginning::Intended(mine) => {
            let mine = mine.clone();
            match known(situation, mine.number) {
                None => send(situation, record, &mine),
                Some(Known { answer: None, .. }) => Decision::Act(Plan::nothing()),
                Some(Known {
                    answer: Some(answer), ..
                }) => answered(situation, record, mine.number, answer),
            }
        }
    }
}

/// What this process knows of the start of this number.
pub(super) fn known<'a>(situation: &Situation<'a>, number: u32) -> Option<&'a Known<StartAnswer>> {
    let start = situation.observed.outside.workflow.start.as_ref();
    start.filter(|start| start.number == number)
}

/// Says that the start of this number is about to be made.
fn intend(situation: &Situation<'_>, mut record: Record, number: u32) -> Decision<AgentRunStatus> {
    record.start = Beginning::Intended(situation.sender(number));
    let mut next = situation.next_status();
    next.status.runtime_ref = Some(record.stored());
    Decision::Act(Plan {
        status: next.into_status(),
        ..Plan::nothing()
    })
}

/// Makes the start. If another process was to make it, that one may have.
fn send(situation: &Situation<'_>, mut record: Record, mine: &Sender) -> Decision<AgentRunStatus> {
    let ready = match ready(situation) {
        Ok(ready) => ready,
        Err(unresolved) => {
            let may_be_there = record.unclear || mine.by != situation.observed.outside.process;
            return match start::lacks(situation, unresolved) {
                // What was there for the first start is not any more; its workflow must not be left alone.
                Next::Wrong(why) | Next::Fails(why) if may_be_there => {
                    stop::give_up(situation, Some(&record), &why)
                }
                next => start::carry_on(situation, next),
            };
        }
    };
    let start = Start {
        number: mine.number,
        workflow_type: ready.config.workflow_type.clone(),
        task_queue: record.task_queue.clone(),
        timeouts: ready.config.timeouts(ready.resolved.agent),
        argument: ready.argument,
    };
    let effects = vec![call(situation, &record, What::Start(Box::new(start)))];
    let mut next = situation.next_status();
    if mine.by != situation.observed.outside.process {
        record.unclear = true;
        record.start = Beginning::Intended(situation.sender(mine.number));
        next.status.runtime_ref = Some(record.stored());
    }
    Decision::Act(Plan {
        effects,
        status: next.into_status(),
        ..Plan::nothing()
    })
}

/// What follows from the answer of the server.
fn answered(
    situation: &Situation<'_>,
    mut record: Record,
    number: u32,
    answer: &StartAnswer,
) -> Decision<AgentRunStatus> {
    match answer {
        StartAnswer::Started { run_id } => {
            record.run_id = Some(run_id.clone());
            record.start = Beginning::Started;
            record.unclear = false;
            let words = format!(
                "{} was started on task queue {}",
                record.words(),
                record.task_queue
            );
            let notices = vec![situation.normal(Reason::Submitted, words)];
            working(
                situation,
                &record,
                Plan {
                    notices,
                    ..Plan::nothing()
                },
            )
        }
        StartAnswer::NotTaken { words } => postpone(situation, record, number, words),
        StartAnswer::Unclear { words } => {
            record.unclear = true;
            postpone(situation, record, number, words)
        }
        StartAnswer::Occupied { words } => {
            let message = format!(
                "{} belongs to somebody else ({words}): choose another spec.runtime.config.workflowId, or leave it out",
                record.words()
            );
            fail(situation, Some(record.stored()), &Reason::SubmitFailed, &message)
        }
        StartAnswer::Refused { words } => {
            let message = format!("{} was refused: {words}", record.words());
            fail(situation, Some(record.stored()), &Reason::SubmitFailed, &message)
        }
    }
}

/// The start is made again later, unless the server was tried for long enough.
fn postpone(
    situation: &Situation<'_>,
    mut record: Record,
    number: u32,
    words: &str,
) -> Decision<AgentRunStatus> {
    let due = after(situation.now, backoff(number));
    if due >= after(record.since.0, UNREACHABLE_MAX) {
        let (reason, ending) = if record.unclear {
            record.removing_until = Some(elsewhere::removing_until(situation));
            (
                Reason::SubmitUnknown,
                "it may be there all the same, and is stopped when the server answers: look in Temporal, and submit the run again",
            )
        } else {
            (
                Reason::SubmitFailed,
                "see that the server can be reached, and submit the run again",
            )
        };
        let message = format!(
            "{} could not be started, {number} times: {words}; {ending}",
            record.words()
        );
        return fail(situation, Some(record.stored()), &reason, &message);
    }
    let postponed = Postponed {
        number,
        not_before: values::Timestamp(due),
        why: words.to_owned(),
    };
    let mut next = situation.next_status();
    next.waits(&waiting(situation, &postponed));
    record.start = Beginning::Postponed(postponed);
    next.status.runtime_ref = Some(record.stored());
    Decision::Act(Plan {
        status: next.into_status(),
        wake_at: Some(due),
        ..Plan::nothing()
    })
}

/// What a run waits for whose workflow could not be started.
fn waiting(situation: &Situation<'_>, postponed: &Postponed) -> Waiting {
    let due = postponed.not_before.0;
    let address = situation.settings.temporal.address.as_deref();
    let gate = Gate::Endpoint {
        endpoint: format!("the Temporal server at {}", address.unwrap_or("no address")),
        words: postponed.why.clone(),
        due,
    };
    Waiting::at(gate).until(due)
}

/// The workflow is there: somebody waits for its end, and what keeps it from going on is told.
fn working(
    situation: &Situation<'_>,
    record: &Record,
    mut plan: Plan<AgentRunStatus>,
) -> Decision<AgentRunStatus> {
    let mut next = situation.next_status();
    next.running(
        record.since.0,
        &format!("{} works on task queue {}", record.words(), record.task_queue),
    );
    next.note(&Reason::TemporalError, trouble(situation));
    next.status.runtime_ref = Some(record.stored());
    plan.effects.extend(heed(situation, record));
    plan.wake_at = record.deadline.map(|deadline| deadline.0);
    plan.status = next.into_status();
    Decision::Act(plan)
}

/// How long to wait after the start of this number did not arrive.
fn backoff(number: u32) -> Duration {
    let doublings = number.saturating_sub(1).min(16);
    (BACKOFF_FIRST * 2_u32.pow(doublings)).min(BACKOFF_MAX)
}

/// When the last start that may be on its way was made.
pub(super) fn last_start(record: &Record) -> Timestamp {
    match &record.start {
        Beginning::Intended(sender) => sender.at.0,
        Beginning::Postponed(postponed) => postponed.not_before.0,
        Beginning::Started => record.since.0,
    }
}
