//! Handing the work over: the call, its answer, and the wait for what the endpoint reports.

use std::time::Duration;

use jangar_api::{
    agents::{agent_run::AgentRunStatus, agent_run_status::ContractStatus},
    reason::Reason,
    values,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::{
        NextStatus, Situation,
        elsewhere::{self, Accepted, Postponed, fail},
        leftovers::after,
        references::{self, Resolved, Unresolved},
        start::{self, Next},
        task::Task,
    },
    Known,
    config::Config,
    in_words,
    record::{ProgressSeen, Record, Submission},
};
use crate::{
    custom::{
        call::{Answer, CallId, Post, Purpose},
        callback::Report,
    },
    decision::{Decision, Effect, Plan, Rejection},
    job, vcs,
    waiting::{Gate, Waiting},
};

/// The most bytes that are sent. What is larger belongs where the endpoint can fetch it.
const BODY_MAX_BYTES: usize = 1024 * 1024;
/// How long to wait before a call that did not arrive is made again; each later wait is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(5);
/// The longest of these waits, and of those that an endpoint may ask for.
const BACKOFF_MAX: Duration = Duration::from_mins(2);
/// How long an endpoint that cannot be reached is tried. Whoever mistyped its name should not wait for the deadline.
const UNREACHABLE_MAX: Duration = Duration::from_mins(10);
/// How often progress is recorded: each record is a write of the status.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);
/// How much longer than the deadline a token is good, so that whoever reports late learns what became of the run.
const TOKEN_GRACE: Duration = Duration::from_hours(1);

/// What the call needs, all of it there.
struct Ready<'a> {
    config: Config,
    resolved: Resolved<'a>,
    /// The repository whose slot the run takes, in lower case.
    repository: Option<String>,
    /// Why the endpoint gets no repository from here, if one was asked for.
    without: Option<Rejection>,
}

/// Everything that the call is made from, or why it cannot be made.
fn ready<'a>(situation: &Situation<'a>) -> Result<Ready<'a>, Unresolved> {
    let (run, settings) = (situation.run, situation.settings);
    job::check_any_runtime(run, settings).map_err(Unresolved::Wrong)?;
    let config = Config::read(run, settings).map_err(Unresolved::Wrong)?;
    let resolved = references::resolve(situation, Task::Whole, run)?;
    job::check_secrets_elsewhere(run, resolved.agent, resolved.memory, settings)
        .map_err(Unresolved::Wrong)?;
    let without = vcs::elsewhere("an endpoint", run, resolved.implementation, resolved.agent)
        .map_err(Unresolved::Wrong)?;
    Ok(Ready {
        config,
        resolved,
        repository: job::repository(run, resolved.implementation),
        without,
    })
}

/// Everything that the first call needs, the slot of the run included; or what comes instead.
fn admitted<'a>(situation: &Situation<'a>) -> Result<(Ready<'a>, Option<ContractStatus>), Next> {
    let ready = ready(situation).map_err(|unresolved| start::lacks(situation, unresolved))?;
    let Resolved {
        implementation,
        implementation_ref,
        ..
    } = ready.resolved;
    let contract =
        job::check_contract(situation.run, implementation, implementation_ref).map_err(Next::Wrong)?;
    body(situation, &ready).map_err(Next::Wrong)?;
    match start::slot(situation, None, ready.repository.clone()) {
        Some(next) => Err(next),
        None => Ok((ready, contract)),
    }
}

/// Says that the endpoint is about to be called for the first time. The call follows when that is written.
pub(super) fn first(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
    let (ready, contract) = match admitted(situation) {
        Ok(admitted) => admitted,
        Err(next) => return start::carry_on(situation, next),
    };
    if let Some(decision) = elsewhere::held_first(situation) {
        return decision;
    }
    let timeout = ready.config.timeout(ready.resolved.agent, situation.settings);
    let deadline = after(situation.now, timeout);
    let record = Record::new(
        &ready.config.endpoint,
        ready.repository,
        situation.sender(1),
        deadline,
    );
    let accepted = Accepted {
        record: record.stored(),
        message: &handing_over(&record),
        contract,
        without: ready.without.as_ref(),
    };
    elsewhere::accept(situation, accepted)
}

fn handing_over(record: &Record) -> String {
    format!("the work is being handed to {}", record.name)
}

/// A run whose endpoint was meant to be called.
pub(super) fn follow(situation: &Situation<'_>, mut record: Record) -> Decision<AgentRunStatus> {
    hear_progress(situation, &mut record);
    let step = match &record.submission {
        Submission::Taken => Step::Wait,
        Submission::Postponed(postponed) => again(situation, postponed),
        Submission::Intended(sender) => match situation.known(Purpose::Submit, sender) {
            Known::Unsent => Step::Send(sender.number),
            Known::UnderWay => Step::Wait,
            Known::Answered(answer) => answered(situation, &record, sender.number, answer),
            Known::Stranger => Step::Unsure(
                "the process that was to call it ended before it could say what came of it".to_owned(),
            ),
        },
    };
    let now = situation.now;
    if now >= record.deadline.0 && !matches!(step, Step::Fail(_) | Step::Reject(_)) {
        return too_late(situation, record, step);
    }
    let mut next = situation.next_status();
    let mut plan = Plan::nothing();
    plan.wake_at = Some(record.deadline.0);
    match step {
        Step::Send(number) => match post(situation, &record, number) {
            Ok(post) => plan.effects.push(Effect::PostCustom(Box::new(post))),
            Err(unresolved) => return start::unresolved(situation, unresolved),
        },
        Step::Wait => {}
        Step::Unsure(words) => {
            let message = format!(
                "it is not known whether {} has the work ({words}); it is not sent again, and the run waits for a report until {}",
                record.name, record.deadline.0
            );
            next.warn(&Reason::SubmitUnknown, &message);
        }
        Step::Taken(response) => {
            let name = record.name.clone();
            taken(&mut record, response);
            plan.notices
                .push(situation.normal(Reason::Submitted, format!("{name} has taken the work")));
        }
        Step::Postpone(postponed) => {
            let due = postponed.not_before.0;
            next.waits(&waiting(&record, &postponed));
            record.submission = Submission::Postponed(postponed);
            plan.wake_at = Some(due);
        }
        Step::Until(due) => plan.wake_at = Some(due),
        Step::Intend(number) => record.submission = Submission::Intended(situation.sender(number)),
        Step::Fail(message) => {
            return fail(situation, Some(record.stored()), &Reason::SubmitFailed, &message);
        }
        Step::Reject(rejection) => return start::reject(situation, &rejection),
    }
    if record.submission == Submission::Taken {
        working(&mut next, &record);
    }
    next.status.runtime_ref = Some(record.stored());
    plan.status = next.into_status();
    Decision::Act(plan)
}

/// What a run waits for whose endpoint did not take the work.
fn waiting(record: &Record, postponed: &Postponed) -> Waiting {
    let due = postponed.not_before.0;
    let gate = Gate::Endpoint {
        endpoint: record.name.clone(),
        words: postponed.why.clone(),
        due,
    };
    Waiting::at(gate).until(due)
}

/// What follows for a run that is not over.
enum Step {
    /// The call of this number is made now.
    Send(u32),
    Wait,
    Until(Timestamp),
    /// The call of this number is about to be made.
    Intend(u32),
    /// Nobody knows whether the call arrived.
    Unsure(String),
    Taken(Option<Value>),
    Postpone(Postponed),
    Fail(String),
    Reject(Rejection),
}

/// What follows from the answer of the endpoint.
fn answered(situation: &Situation<'_>, record: &Record, number: u32, answer: &Answer) -> Step {
    let endpoint = &record.name;
    match answer {
        Answer::Taken { response } => Step::Taken(response.clone()),
        Answer::NotTaken { words, retry_after } => {
            let wait = retry_after
                .unwrap_or_default()
                .max(backoff(number))
                .min(BACKOFF_MAX);
            let due = after(situation.now, wait);
            let end = after(record.since.0, UNREACHABLE_MAX).min(record.deadline.0);
            if due >= end {
                return Step::Fail(format!(
                    "{endpoint} did not take the work, {number} times: {words}; see that it can be reached, and submit the run \
                     again"
                ));
            }
            Step::Postpone(Postponed {
                number,
                not_before: values::Timestamp(due),
                why: words.clone(),
            })
        }
        Answer::Refused { words } => Step::Fail(format!("{endpoint} refused the work: {words}")),
        Answer::NotAllowed { words } => Step::Reject(Rejection::new(
            Reason::EndpointNotAllowed,
            format!("spec.runtime.config.endpoint is {endpoint}, which may not be called: {words}"),
        )),
        Answer::Unknown { words } => Step::Unsure(words.clone()),
    }
}

/// A call that did not arrive is made again when its time has come.
fn again(situation: &Situation<'_>, postponed: &Postponed) -> Step {
    let due = postponed.not_before.0;
    // A time farther away than any wait was written before the clock was set back.
    if due > situation.now && due <= after(situation.now, BACKOFF_MAX) {
        return Step::Until(due);
    }
    Step::Intend(postponed.number + 1)
}

/// The endpoint has the work.
fn taken(record: &mut Record, response: Option<Value>) {
    record.submission = Submission::Taken;
    record.response = response;
}

/// Says that the endpoint works, and how far it has come.
fn working(next: &mut NextStatus<'_>, record: &Record) {
    let message = record
        .last_progress()
        .and_then(in_words)
        .unwrap_or_else(|| format!("{} has taken the work", record.name));
    next.running(record.since.0, &message);
    next.no_warning(&Reason::SubmitUnknown);
}

/// The endpoint has the work, because it reports. What it answered is kept, if it has; an answer that is still on its way says
/// the same in a moment, and more.
pub(super) fn take_over(situation: &Situation<'_>, record: &mut Record) {
    if let Submission::Intended(sender) = &record.submission {
        match situation.known(Purpose::Submit, sender) {
            Known::UnderWay => return,
            Known::Answered(Answer::Taken { response }) => record.response.clone_from(response),
            Known::Answered(_) | Known::Unsent | Known::Stranger => {}
        }
    }
    record.submission = Submission::Taken;
}

/// Takes over the last progress that was reported, unless one was a moment ago. Whoever reports has the work.
fn hear_progress(situation: &Situation<'_>, record: &mut Record) {
    let last = situation.reports(record).filter_map(|report| match report {
        Report::Progress(progress) => Some(progress),
        Report::End(_) => None,
    });
    let Some(progress) = last.last() else { return };
    take_over(situation, record);
    let recent = record.progress.as_ref().is_some_and(|seen| {
        let since = situation.now.duration_since(seen.at.0);
        !since.is_negative() && since.unsigned_abs() < PROGRESS_PAUSE
    });
    if !recent && record.last_progress() != Some(progress) {
        record.progress = Some(ProgressSeen {
            progress: progress.clone(),
            at: values::Timestamp(situation.now),
        });
    }
}

/// The deadline passed.
fn too_late(situation: &Situation<'_>, mut record: Record, step: Step) -> Decision<AgentRunStatus> {
    let unsent = matches!(step, Step::Send(_));
    if let Step::Taken(response) = step {
        taken(&mut record, response);
    }
    let (endpoint, deadline) = (&record.name, record.deadline.0);
    let (reason, message) = match &record.submission {
        Submission::Intended(_) if unsent => (
            Reason::SubmitFailed,
            format!(
                "{endpoint} was not called until {deadline}, and does not have the work: submit the run again"
            ),
        ),
        Submission::Taken => (
            Reason::TimedOut,
            format!(
                "{endpoint} took the work and did not report its end until {deadline}; it is told to stop, and may still be \
                 working"
            ),
        ),
        Submission::Intended(_) => (
            Reason::SubmitUnknown,
            format!(
                "it is not known whether {endpoint} has the work, and it reported nothing until {deadline}; it is told to \
                 stop: look there, and submit the run again"
            ),
        ),
        Submission::Postponed(postponed) => (
            Reason::SubmitFailed,
            format!(
                "{endpoint} did not take the work until {deadline}: {}",
                postponed.why
            ),
        ),
    };
    let record = match record.submission {
        Submission::Postponed(_) => record,
        Submission::Intended(_) if unsent => record,
        Submission::Taken | Submission::Intended(_) => record.left_behind(situation),
    };
    fail(situation, Some(record.stored()), &reason, &message)
}

fn post(situation: &Situation<'_>, record: &Record, number: u32) -> Result<Post, Unresolved> {
    let ready = ready(situation)?;
    let body = body(situation, &ready).map_err(Unresolved::Wrong)?;
    Ok(Post {
        id: CallId {
            run: situation.uid.clone(),
            purpose: Purpose::Submit,
            number,
        },
        run: situation.observed.key.clone(),
        attempt: record.attempt,
        endpoint: ready.config.endpoint,
        body,
        expires_at: token_until(record),
    })
}

/// Until when the endpoint's token is good.
pub(super) fn token_until(record: &Record) -> Timestamp {
    after(record.deadline.0, TOKEN_GRACE)
}

/// What is sent: what the run says, else what the work is.
fn body(situation: &Situation<'_>, ready: &Ready<'_>) -> Result<Value, Rejection> {
    // A prompt that nobody could read is refused, whether or not the payload would have it.
    let prompt = job::system_prompt(situation.run, ready.resolved.agent)?;
    let body = match &ready.config.payload {
        Some(payload) => payload.clone(),
        None => json!({
            "agentRun": identity(situation),
            "implementation": ready.resolved.implementation,
            "systemPrompt": prompt,
            "parameters": situation.run.spec.parameters,
            "memory": ready.resolved.memory.map(|memory| json!({
                "type": memory.spec.type_, "connectionRef": memory.spec.connection.secret_ref,
            })),
        }),
    };
    let bytes = body.to_string().len();
    if bytes > BODY_MAX_BYTES {
        return Err(Rejection::new(
            Reason::InputsTooLarge,
            format!(
                "the endpoint would be sent {bytes} bytes, and {BODY_MAX_BYTES} are allowed: shorten \
                 spec.runtime.config.payload or the implementation"
            ),
        ));
    }
    Ok(body)
}

/// Which run it is, as the endpoint is told.
pub(super) fn identity(situation: &Situation<'_>) -> Value {
    let key = &situation.observed.key;
    json!({"name": key.name, "namespace": key.namespace, "uid": situation.uid})
}

/// How long to wait after the call of this number did not arrive.
fn backoff(number: u32) -> Duration {
    let doublings = number.saturating_sub(1).min(16);
    (BACKOFF_FIRST * 2_u32.pow(doublings)).min(BACKOFF_MAX)
}
