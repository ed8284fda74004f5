//! Who can do something about a cause, and with which command.

use jangar_api::agents::agent_run::AgentRun;

use super::{
    Standing, State,
    command::{self, Command},
    line::Line,
    reasons::{Cause, Referred},
    subject::{Facts, Subject},
};

/// How many runs are named that somebody could cancel.
const NAMED_MAX: usize = 3;

/// What can be done, and by whom.
pub(super) struct Remedy {
    /// Absent: nobody has to do anything.
    pub who: Option<String>,
    /// What they do with the first command: "can …".
    pub can: &'static str,
    pub commands: Vec<Command>,
}

impl Remedy {
    fn nobody(commands: Vec<Command>) -> Self {
        Self {
            who: None,
            can: "",
            commands,
        }
    }

    pub(super) fn new(who: impl Into<String>, can: &'static str, commands: Vec<Command>) -> Self {
        Self {
            who: Some(who.into()),
            can,
            commands,
        }
    }

    /// The answer to who can unblock it.
    pub(super) fn who(&self) -> String {
        let who = self
            .who
            .as_deref()
            .unwrap_or("nobody has to: it goes on by itself");
        who.trim_end_matches(',').to_owned()
    }

    /// The end of the headline.
    pub(super) fn tail(&self) -> String {
        match (&self.who, self.commands.first()) {
            (Some(who), Some(command)) => format!(": {who} can {} with `{}`", self.can, command.line),
            (Some(who), None) => format!(": {who} can {}", self.can),
            (None, Some(command)) => format!(
                ", and nobody has to do anything; `{}` {}",
                command.line, command.effect
            ),
            (None, None) => String::new(),
        }
    }

    /// What can be done about the cause of a standing.
    pub(super) fn of(facts: &Facts<'_>, standing: &Standing<'_>, line: &Line<'_>) -> Self {
        let mut remedy = match standing.state {
            State::Working => Self::nobody(vec![watching(facts)]),
            State::Succeeded => Self::nobody(Vec::new()),
            State::Waiting | State::Stopping | State::Failed | State::Cancelled => {
                of_cause(facts, standing, line)
            }
        };
        if standing.state == State::Failed {
            let again = command::retry(facts);
            if !remedy.commands.contains(&again) && standing.row.cause != Cause::Duplicate {
                remedy.commands.push(again);
            }
        }
        remedy
    }
}

/// Somebody wanted it to end, and it has.
fn stopped(facts: &Facts<'_>) -> Remedy {
    let same = command::resubmit(facts, "submits the same again, under a new name");
    looks(same, "whoever may create runs", "start it again")
}

fn of_cause(facts: &Facts<'_>, standing: &Standing<'_>, line: &Line<'_>) -> Remedy {
    match standing.row.cause {
        Cause::Slots => slots(facts, line),
        Cause::Places => places(facts, line),
        Cause::Rate | Cause::Time | Cause::Fine if standing.state == State::Waiting => {
            Remedy::nobody(vec![command::cancel(facts, "gives the run up")])
        }
        Cause::Pod => pod(facts),
        Cause::Rights => rights(facts),
        Cause::Name => name(facts, standing.state),
        Cause::Create(referred) => create(facts, referred),
        Cause::Mend(referred) => mend(facts, referred),
        Cause::Forge => mend(facts, Referred::VersionControlProvider),
        Cause::Spec => rewritten(facts, "whoever wrote it"),
        Cause::Policy => rewritten(facts, "whoever wrote it, or the operator, who can allow it,"),
        Cause::Template => template(facts),
        Cause::Limit => limit(facts),
        Cause::Work => looks(words(facts), "whoever knows the work", "read what went wrong"),
        Cause::Rate | Cause::Time | Cause::Fine | Cause::Retry => {
            again(facts, "whoever may create runs", "run it again")
        }
        Cause::Lost => {
            let who = "whoever knows whether its work may be done twice";
            again(facts, who, "run it again")
        }
        Cause::Denied => again(facts, "whoever may create runs", "ask for the approval again"),
        Cause::Endpoint => endpoint(facts, standing.state),
        Cause::Approval | Cause::Signal => looks(
            command::describe(facts),
            "whoever the gate names",
            "see what it waits for",
        ),
        Cause::Describe | Cause::Unknown => {
            let who = format!("whoever may read it in namespace {}", facts.namespace);
            looks(command::describe(facts), who, "see what is the matter")
        }
        Cause::Duplicate => duplicate(facts),
        Cause::Stopping => Remedy::nobody(vec![command::pods(facts, "get", "shows what is left of it")]),
        Cause::Cancelled => stopped(facts),
        // Nothing is left by now.
        Cause::Survivors if facts.survivors_gone_at.is_some() => stopped(facts),
        Cause::Survivors => {
            let left = command::pods(facts, "get", "shows what is left of it, and on which nodes");
            looks(left, "whoever looks after the nodes", "see what is left")
        }
        Cause::CancelDisabled => looks(command::delete(facts), "whoever may delete it", "end it"),
        Cause::Retention => looks(
            command::retain(facts),
            "whoever may edit it",
            "say how long it is kept",
        ),
        Cause::Unseen => Remedy::new(
            "the operator",
            "find out why",
            vec![command::doctor(), command::describe(facts)],
        ),
    }
}

/// One command is all there is.
fn looks(command: Command, who: impl Into<String>, can: &'static str) -> Remedy {
    Remedy::new(who, can, vec![command])
}

fn again(facts: &Facts<'_>, who: &str, can: &'static str) -> Remedy {
    looks(command::retry(facts), who, can)
}

fn rewritten(facts: &Facts<'_>, who: &str) -> Remedy {
    let can = "submit it again, corrected and under another name,";
    looks(corrected(facts), who, can)
}

fn pod(facts: &Facts<'_>) -> Remedy {
    let who = format!(
        "whoever looks after the nodes, images and Secrets of namespace {}",
        facts.namespace
    );
    let effect = "shows what the pod waits for, in the node's own words";
    looks(command::pods(facts, "describe", effect), who, "see what it lacks")
}

fn rights(facts: &Facts<'_>) -> Remedy {
    let who = format!(
        "whoever grants rights and quotas in namespace {}",
        facts.namespace
    );
    let commands = vec![command::quotas(facts.namespace), command::describe(facts)];
    Remedy::new(who, "see what is used up", commands)
}

/// What a run that works shows.
fn watching(facts: &Facts<'_>) -> Command {
    match facts.what {
        Subject::AgentRun(_) | Subject::ToolRun(_) => command::logs(facts),
        Subject::OrchestrationRun(_) => command::pods(facts, "get", ""),
    }
}

/// What says what went wrong. An orchestration has no program of its own.
fn words(facts: &Facts<'_>) -> Command {
    match facts.what {
        Subject::AgentRun(_) | Subject::ToolRun(_) => command::logs(facts),
        Subject::OrchestrationRun(_) => command::describe(facts),
    }
}

fn corrected(facts: &Facts<'_>) -> Command {
    command::apply(
        facts.namespace,
        format!("submits the corrected {} from a file", facts.kind()),
    )
}

fn cancels(runs: &[&AgentRun], effect: &str) -> Vec<Command> {
    let named = runs.iter().take(NAMED_MAX);
    named
        .map(|run| command::cancel(&Facts::of(Subject::AgentRun(run)), effect))
        .collect()
}

fn slots(facts: &Facts<'_>, line: &Line<'_>) -> Remedy {
    let of = line
        .scope
        .as_ref()
        .map_or_else(String::new, |scope| format!(" of {scope}"));
    let mut commands = cancels(&line.holders, "ends a run that holds a slot");
    let can = if commands.is_empty() {
        commands.push(command::list_runs(
            facts.namespace,
            "shows the runs that hold the slots",
        ));
        "find one"
    } else {
        "free a slot"
    };
    let who =
        format!("whoever may cancel a run{of} that is under way, or the operator, who can raise the limit,");
    Remedy::new(who, can, commands)
}

fn places(facts: &Facts<'_>, line: &Line<'_>) -> Remedy {
    let of = line
        .scope
        .as_ref()
        .map_or_else(String::new, |scope| format!(" of {scope}"));
    let mut commands = cancels(&line.earlier, "gives up a run that waits and came earlier");
    let can = if commands.is_empty() {
        commands.push(command::list_runs(facts.namespace, "shows the runs that wait"));
        "find one"
    } else {
        "free a place"
    };
    let who = format!("whoever may cancel a run{of} that waits, or the operator, who can raise the limit,");
    Remedy::new(who, can, commands)
}

fn name(facts: &Facts<'_>, state: State) -> Remedy {
    if state == State::Failed {
        let again = command::resubmit(facts, "submits the same again, under a new name");
        return Remedy::new(
            "whoever may create runs",
            "submit it under another name",
            vec![again],
        );
    }
    let look = command::get_all(
        "jobs,configmaps",
        facts.namespace,
        "shows what has the name, and its owner",
    );
    Remedy::new("whoever may delete what has the name", "find it", vec![look])
}

/// An object that a run refers to, as people name it.
fn named(facts: &Facts<'_>, referred: Referred) -> String {
    let kind = referred.kind();
    match facts.refers_to(referred) {
        Some(name) => format!("{kind} {name}"),
        None => format!("the {kind}"),
    }
}

fn create(facts: &Facts<'_>, referred: Referred) -> Remedy {
    let what = named(facts, referred);
    let commands = vec![
        command::apply(facts.namespace, format!("creates {what} from a file")),
        command::get_all(referred.resource(), facts.namespace, "shows those that there are"),
    ];
    let who = format!("whoever may create {what} in namespace {}", facts.namespace);
    Remedy::new(who, "do so", commands)
}

fn mend(facts: &Facts<'_>, referred: Referred) -> Remedy {
    let what = named(facts, referred);
    let who = format!("whoever may edit {what} in namespace {}", facts.namespace);
    match facts.refers_to(referred) {
        Some(name) => {
            let effect = format!("opens {what} in an editor");
            let edit = command::edit(referred.resource(), name, facts.namespace, effect);
            Remedy::new(who, "mend it", vec![edit])
        }
        None => {
            let effect = "shows those that there are; the words above name the one";
            let look = command::get_all(referred.resource(), facts.namespace, effect);
            Remedy::new(who, "find it", vec![look])
        }
    }
}

fn template(facts: &Facts<'_>) -> Remedy {
    match facts.what {
        Subject::OrchestrationRun(_) => mend(facts, Referred::Orchestration),
        Subject::ToolRun(_) => mend(facts, Referred::Tool),
        Subject::AgentRun(_) => rewritten(facts, "whoever wrote it"),
    }
}

/// A Tool says how long its runs may take; other runs say it themselves.
fn limit(facts: &Facts<'_>) -> Remedy {
    match facts.what {
        Subject::ToolRun(_) => mend(facts, Referred::Tool),
        Subject::AgentRun(_) | Subject::OrchestrationRun(_) => Remedy::new(
            "whoever wrote it",
            "submit it again, with more time and under another name,",
            vec![corrected(facts)],
        ),
    }
}

fn endpoint(facts: &Facts<'_>, state: State) -> Remedy {
    if state == State::Failed {
        let who = "whoever looks after the endpoint";
        return Remedy::new(who, "run it again once it answers", vec![command::retry(facts)]);
    }
    let look = vec![
        command::describe(facts),
        command::cancel(facts, "gives the run up"),
    ];
    Remedy::new("whoever looks after the endpoint", "see what it said", look)
}

fn duplicate(facts: &Facts<'_>) -> Remedy {
    let other = match facts.what {
        Subject::AgentRun(run) => run
            .status
            .as_ref()
            .and_then(|status| status.canonical_run.as_deref()),
        Subject::ToolRun(_) | Subject::OrchestrationRun(_) => None,
    };
    let look = other.map(|name| command::explain_named(facts.kind(), name, facts.namespace));
    Remedy::new(
        "whoever submitted it",
        "follow the run that does the work",
        vec![look.unwrap_or_else(|| command::describe(facts))],
    )
}
