//! Why a run waits, why it failed, and what to do about it: the answer for a person, as a value.
//!
//! [`explain`] reads the run itself, and whatever else the caller happens to know: other runs, which hold slots or do the work of
//! steps, and the ApprovalPolicies. More of that makes the answer more exact; none of it is needed. Everything that answers people
//! (agentctl, the control plane, its web pages) asks here, so that all give the same answer.
//!
//! | module | subject |
//! |---|---|
//! | `reasons` | what each reason means: one row for every word there is, which the compiler checks |
//! | `remedy` | who can do something about it, and with which command |
//! | `command` | how those commands are spelled |
//! | `line` | who waits for the same slots, and who holds them |
//! | `gone` | runs that are gone from the cluster, and remembered |
//! | `steps` | the steps of an orchestration and the runs that do their work |
//! | `subject` | what is read from a run of any kind |
//!
//! A headline is always one sentence of the same form: what stands where, why, its place in the line, who can change that, and the
//! command that does.

mod command;
mod gone;
mod line;
mod reasons;
mod remedy;
mod steps;
mod subject;
#[cfg(test)]
mod tests;

use std::fmt;

use jangar_api::{
    agents::agent_run::AgentRun,
    approvals::ApprovalPolicy,
    condition::{Condition, ConditionStatus, ConditionType},
    orchestration::orchestration_run::OrchestrationRun,
    phase::RunPhase,
    reason::Reason,
    tools::ToolRun,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    command::Command,
    gone::explain_gone,
    line::{counts_all_namespaces, stands_in_line},
    subject::Subject,
};
use self::{
    reasons::{Cause, Row},
    remedy::Remedy,
    subject::Facts,
};

/// What else is known besides the run. Lists may hold more than matters: what does is picked.
#[derive(Clone, Debug, Default)]
pub struct Context<'a> {
    /// They tell the place in the line, who holds slots, and what became of steps.
    pub agent_runs: Vec<&'a AgentRun>,
    /// Whether there are more than these, so that a place counted from them would be wrong.
    pub more_agent_runs: bool,
    pub tool_runs: Vec<&'a ToolRun>,
    pub orchestration_runs: Vec<&'a OrchestrationRun>,
    /// They tell who may approve.
    pub policies: Vec<&'a ApprovalPolicy>,
    /// The place in the line, where somebody knows it better than it can be counted from the runs.
    pub position: Option<Position>,
}

/// A place among those who wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Position {
    /// Counted from one.
    pub place: u32,
    /// How many wait, if somebody counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Some(of) => write!(f, "number {} of {of} in line", self.place),
            None => write!(f, "number {} in line", self.place),
        }
    }
}

/// Where a run stands, as people ask about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Waiting,
    Working,
    /// It is being cancelled or deleted.
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
}

impl State {
    /// What a run in it does, in the words of the headline.
    const fn verb(self) -> &'static str {
        match self {
            Self::Waiting => "waits",
            Self::Working => "is at work",
            Self::Stopping => "is being stopped",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "was cancelled",
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Kind, namespace and name of the run.
    pub subject: String,
    pub state: State,
    /// The word of the condition that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence: what holds it up or what went wrong, its place, who can change that, and the command that does.
    pub headline: String,
    /// What is known about it, the most important first.
    pub because: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    pub who_can_unblock: String,
    /// The first one is that of the headline.
    pub commands: Vec<Command>,
}

/// For a terminal.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline)?;
        for line in &self.because {
            writeln!(f, "  - {line}")?;
        }
        for command in &self.commands {
            writeln!(f, "  $ {}  # {}", command.line, command.effect)?;
        }
        Ok(())
    }
}

/// How deep the runs of steps are followed. Orchestrations are nested less deeply than that.
const DEPTH_MAX: usize = 10;
/// The most commands of an answer: more than that nobody tries.
const COMMANDS_MAX: usize = 6;

/// Why a run stands where it stands, and what can be done about it.
pub fn explain(what: Subject<'_>, context: &Context<'_>, now: Timestamp) -> Explanation {
    explain_at(what, context, now, DEPTH_MAX)
}

fn explain_at(what: Subject<'_>, context: &Context<'_>, now: Timestamp, depth: usize) -> Explanation {
    let facts = Facts::of(what);
    let standing = standing(&facts);
    let from_steps = match what {
        Subject::OrchestrationRun(run) if depth > 0 => steps::look(run, &standing, context, now, depth - 1),
        Subject::OrchestrationRun(_) | Subject::AgentRun(_) | Subject::ToolRun(_) => None,
    };
    let mut explanation = match from_steps {
        Some(told) => told.into_explanation(&facts, &standing),
        None => of_reason(&facts, &standing, context),
    };
    for line in details(&facts, &standing, now) {
        if !explanation.because.contains(&line) {
            explanation.because.push(line);
        }
    }
    explanation.commands.truncate(COMMANDS_MAX);
    explanation
}

static RETRY_BACKOFF: Reason = Reason::RetryBackoff;

/// What decides about the answer: where the run stands, and the condition that says why.
struct Standing<'a> {
    state: State,
    row: Row,
    reason: Option<&'a Reason>,
    message: &'a str,
    since: Option<Timestamp>,
}

fn standing<'a>(facts: &Facts<'a>) -> Standing<'a> {
    let phase = facts.phase.unwrap_or(&RunPhase::Pending);
    let by = |state: State, condition: Option<&'a Condition>| Standing {
        state,
        row: condition.map_or(Row::UNTOLD, |condition| reasons::row(&condition.reason)),
        reason: condition.map(|condition| &condition.reason),
        message: condition.map_or("", |condition| condition.message.as_str()),
        since: condition
            .and_then(|condition| condition.last_transition_time)
            .map(|at| at.0),
    };
    let ended = |type_: &ConditionType| {
        facts
            .holds(type_)
            .or_else(|| facts.condition(&ConditionType::Succeeded))
    };
    match phase {
        RunPhase::Succeeded => by(State::Succeeded, facts.condition(&ConditionType::Succeeded)),
        RunPhase::Failed => by(State::Failed, ended(&ConditionType::Failed)),
        RunPhase::Cancelled => by(State::Cancelled, ended(&ConditionType::Cancelled)),
        RunPhase::Cancelling => by(State::Stopping, facts.condition(&ConditionType::Succeeded)),
        RunPhase::Pending | RunPhase::Running | RunPhase::Other(_) => {
            if facts.is_deleting {
                return Standing {
                    row: Row::DELETED,
                    ..by(State::Stopping, None)
                };
            }
            match facts.holds(&ConditionType::Blocked) {
                Some(blocked) => by(State::Waiting, Some(blocked)),
                // The condition has the reason of the failure, and says when the next attempt starts.
                None if facts.is_between_attempts => Standing {
                    row: reasons::row(&RETRY_BACKOFF),
                    reason: Some(&RETRY_BACKOFF),
                    ..by(State::Waiting, facts.condition(&ConditionType::InProgress))
                },
                None if *phase == RunPhase::Running => Standing {
                    row: Row::AT_WORK,
                    ..by(State::Working, facts.condition(&ConditionType::InProgress))
                },
                None => Standing {
                    row: Row::UNSEEN,
                    ..by(State::Waiting, None)
                },
            }
        }
    }
}

/// The answer that the condition itself gives.
fn of_reason(facts: &Facts<'_>, standing: &Standing<'_>, context: &Context<'_>) -> Explanation {
    let in_line = line::of(facts, context);
    let queued = matches!(standing.row.cause, Cause::Slots | Cause::Places | Cause::Rate);
    let position = context.position.or(in_line.position).filter(|_| queued);
    let remedy = Remedy::of(facts, standing, &in_line);
    Explanation {
        subject: facts.to_string(),
        state: standing.state,
        reason: standing.reason.map(ToString::to_string),
        headline: headline(facts, standing, position, &remedy),
        because: Vec::new(),
        position,
        who_can_unblock: remedy.who(),
        commands: remedy.commands,
    }
}

fn headline(
    facts: &Facts<'_>,
    standing: &Standing<'_>,
    position: Option<Position>,
    remedy: &Remedy,
) -> String {
    let clause = standing.row.clause(standing.reason);
    let why = if clause.is_empty() || standing.state == State::Succeeded {
        String::new()
    } else {
        format!(" because {clause}")
    };
    let place = position.map_or_else(String::new, |position| format!(", {position}"));
    let (verb, tail) = (standing.state.verb(), remedy.tail());
    format!("{facts} {verb}{why}{place}{tail}.")
}

/// What else is known about it, in the words of the status.
fn details(facts: &Facts<'_>, standing: &Standing<'_>, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    if !standing.message.is_empty() {
        lines.push(standing.message.to_owned());
    }
    if standing.state == State::Waiting
        && let Some(since) = standing.since
    {
        let seconds = now.duration_since(since).as_secs().max(0);
        lines.push(format!("it has waited for {seconds} s, since {since}"));
    }
    if standing.state == State::Stopping
        && let Some(deadline) = facts.cancel_deadline
    {
        lines.push(format!("the cancel is given up at {deadline}"));
    }
    if standing.row.cause == Cause::Survivors
        && let Some(gone) = facts.survivors_gone_at
    {
        lines.push(format!("what was left then was gone at {gone}"));
    }
    if let Some(outcome) = facts.outcome.filter(|_| standing.state == State::Failed) {
        lines.extend(outcome.message.clone());
        lines.extend(
            outcome
                .exit_code
                .map(|code| format!("its program ended with exit code {}", code.get())),
        );
    }
    lines.extend(remarks(facts, standing));
    lines
}

/// Conditions beside the one that decides, which deserve attention.
fn remarks(facts: &Facts<'_>, standing: &Standing<'_>) -> Vec<String> {
    let told = |type_: ConditionType, status: ConditionStatus| {
        let condition = facts.condition(&type_)?;
        let news = condition.status == status && !condition.message.is_empty();
        // The one that decides is told already.
        let repeated = condition.message == standing.message;
        (news && !repeated).then(|| format!("{}: {}", condition.reason, condition.message))
    };
    [
        told(ConditionType::Warning, ConditionStatus::True),
        told(ConditionType::Cancelled, ConditionStatus::False),
        told(ConditionType::Delivered, ConditionStatus::False),
        told(ConditionType::VcsSkipped, ConditionStatus::True),
        told(ConditionType::ResultUnavailable, ConditionStatus::True),
        told(ConditionType::ArtifactsLimited, ConditionStatus::True),
    ]
    .into_iter()
    .flatten()
    .collect()
}
