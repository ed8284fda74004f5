//! An orchestration waits or fails because of its steps: which of them, and what the run behind it says.

use jangar_api::{
    approvals::ApprovalPolicy,
    labels::CREATED_BY,
    orchestration::orchestration_run::{
        ApprovalDecision, OrchestrationRun, OrchestrationRunStatus, ResourceRef, StepStatus, WaitsFor,
    },
    phase::StepPhase,
    values::Int32,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Context, Explanation, Position, Standing, State,
    command::{self, Command},
    explain_at,
    remedy::Remedy,
    subject::{Facts, Subject},
};
use crate::approval::is_by_phase;

/// What the steps of a run say about it.
pub(super) struct Told {
    state: State,
    /// What follows the state in the headline.
    tail: String,
    because: Vec<String>,
    position: Option<Position>,
    who: String,
    commands: Vec<Command>,
}

impl Told {
    pub(super) fn into_explanation(self, facts: &Facts<'_>, standing: &Standing<'_>) -> Explanation {
        Explanation {
            subject: facts.to_string(),
            state: self.state,
            reason: standing.reason.map(ToString::to_string),
            headline: format!("{facts} {} {}", self.state.verb(), self.tail),
            because: self.because,
            position: self.position,
            who_can_unblock: self.who,
            commands: self.commands,
        }
    }
}

/// What one step waits for, works on, or failed of.
struct StepSays {
    state: State,
    /// One sentence about it, which ends with its remedy.
    sentence: String,
    position: Option<Position>,
    who: String,
    commands: Vec<Command>,
}

/// What the steps tell. Without a step to speak of, the conditions of the run have the word.
pub(super) fn look(
    run: &OrchestrationRun,
    standing: &Standing<'_>,
    context: &Context<'_>,
    now: Timestamp,
    depth: usize,
) -> Option<Told> {
    let status = run.status.as_ref()?;
    match standing.state {
        State::Waiting | State::Working => under_way(run, status, context, now, depth),
        State::Failed => failed(run, status, context, now, depth),
        State::Stopping | State::Succeeded | State::Cancelled => None,
    }
}

/// A run that is under way waits as a whole if one of its steps waits for somebody, or if all that is left waits.
fn under_way(
    run: &OrchestrationRun,
    status: &OrchestrationRunStatus,
    context: &Context<'_>,
    now: Timestamp,
    depth: usize,
) -> Option<Told> {
    let active = status.step_statuses.iter().filter(|step| {
        matches!(
            step.progress.phase,
            Some(StepPhase::Running | StepPhase::Retrying)
        )
    });
    let said: Vec<(&StepStatus, StepSays)> = active
        .map(|step| (step, of_active(run, status, step, context, now, depth)))
        .collect();
    let for_people = |step: &StepStatus| step.waits_for.is_some();
    let all_wait = said.iter().all(|(_, says)| says.state == State::Waiting);
    let first = said.iter().position(|(step, _)| for_people(step)).or_else(|| {
        said.iter()
            .position(|(_, says)| says.state == State::Waiting)
            .filter(|_| all_wait)
    });
    let state = if first.is_some() {
        State::Waiting
    } else {
        State::Working
    };
    let (step, says) = said.get(first.unwrap_or(0))?;
    let tail = match state {
        State::Waiting => format!("because of step {}: {}", step.name, says.sentence),
        _ => format!("on {}; {}", named(&said), says.sentence),
    };
    let because = said
        .iter()
        .map(|(step, says)| format!("step {}: {}", step.name, says.sentence))
        .collect();
    let commands = ordered(first.unwrap_or(0), &said);
    Some(Told {
        state,
        tail,
        because,
        position: says.position,
        who: says.who.clone(),
        commands,
    })
}

fn named(said: &[(&StepStatus, StepSays)]) -> String {
    let names: Vec<&str> = said.iter().map(|(step, _)| step.name.as_str()).collect();
    match names.as_slice() {
        [one] => format!("step {one}"),
        names => format!("{} steps", names.len()),
    }
}

/// The commands of all steps, those of the first one first.
fn ordered(first: usize, said: &[(&StepStatus, StepSays)]) -> Vec<Command> {
    let own = said.get(first).into_iter();
    let others = said.iter().enumerate().filter(|(at, _)| *at != first);
    let mut commands: Vec<Command> = Vec::new();
    for (_, says) in own.chain(others.map(|(_, step)| step)) {
        for command in &says.commands {
            if !commands.contains(command) {
                commands.push(command.clone());
            }
        }
    }
    commands
}

/// What a step that works or waits says.
fn of_active(
    run: &OrchestrationRun,
    status: &OrchestrationRunStatus,
    step: &StepStatus,
    context: &Context<'_>,
    now: Timestamp,
    depth: usize,
) -> StepSays {
    let facts = Facts::of(Subject::OrchestrationRun(run));
    if let Some(waits_for) = &step.waits_for {
        return match &waits_for.approval_policy {
            Some(policy) => gate(run, status, step, waits_for, policy, context),
            None => signal(&facts, waits_for),
        };
    }
    if step.progress.phase == Some(StepPhase::Retrying) {
        let due = step.progress.next_retry_at;
        let when = due.map_or_else(String::new, |at| format!(" at {}", at.0));
        let cancel = command::cancel(&facts, "gives the run up");
        return StepSays {
            state: State::Waiting,
            sentence: format!(
                "its next attempt starts{when}, and nobody has to do anything; `{}` {}.",
                cancel.line, cancel.effect
            ),
            position: None,
            who: "nobody has to: it goes on by itself".to_owned(),
            commands: vec![cancel],
        };
    }
    match (child(step, context), &step.resource_ref) {
        (Some(child), _) => StepSays::of(explain_at(child, context, now, depth)),
        (None, reference) => working(&facts, reference.as_ref()),
    }
}

impl StepSays {
    fn of(child: Explanation) -> Self {
        Self {
            state: child.state,
            sentence: child.headline,
            position: child.position,
            who: child.who_can_unblock,
            commands: child.commands,
        }
    }
}

/// A step whose run is not known any nearer.
fn working(facts: &Facts<'_>, reference: Option<&ResourceRef>) -> StepSays {
    let (sentence, commands) =
        match reference.and_then(|child| Some((child.kind.as_deref()?, child.name.as_deref()?))) {
            Some((kind, name)) => {
                let look = command::explain_named(kind, name, facts.namespace);
                (
                    format!("{kind} {name} does its work: `{}` tells more.", look.line),
                    vec![look],
                )
            }
            None => ("it is at work.".to_owned(), Vec::new()),
        };
    StepSays {
        state: State::Working,
        sentence,
        position: None,
        who: "nobody has to: it goes on by itself".to_owned(),
        commands,
    }
}

/// The run that does the work of a step, if it is known.
pub(super) fn child<'a>(step: &StepStatus, context: &Context<'a>) -> Option<Subject<'a>> {
    let uid = step.resource_ref.as_ref()?.uid.as_deref()?;
    let is_it = |subject: &Subject<'a>| subject.metadata().uid.as_deref() == Some(uid);
    let agents = context.agent_runs.iter().copied().map(Subject::AgentRun);
    let tools = context.tool_runs.iter().copied().map(Subject::ToolRun);
    let orchestrations = context
        .orchestration_runs
        .iter()
        .copied()
        .map(Subject::OrchestrationRun);
    agents.chain(tools).chain(orchestrations).find(is_it)
}

fn gate(
    run: &OrchestrationRun,
    status: &OrchestrationRunStatus,
    step: &StepStatus,
    waits_for: &WaitsFor,
    policy_name: &str,
    context: &Context<'_>,
) -> StepSays {
    let facts = Facts::of(Subject::OrchestrationRun(run));
    let namespace = facts.namespace;
    let policy = context
        .policies
        .iter()
        .find(|policy| policy.name_any() == policy_name && policy.namespace().as_deref() == Some(namespace));
    let mut commands = vec![
        command::approve(facts.name, &step.name, namespace),
        command::reject(facts.name, &step.name, namespace),
    ];
    let by_phase = policy.is_some_and(|policy| is_by_phase(&policy.spec));
    if by_phase {
        commands = vec![command::approve_by_phase(policy_name, namespace)];
    }
    let who = policy.map_or_else(
        || format!("whoever ApprovalPolicy {policy_name} names"),
        |policy| deciders(policy, run.annotations().get(CREATED_BY).map(String::as_str)),
    );
    let clause = format!(
        "it waits for an approval under ApprovalPolicy {policy_name}{}",
        policy.map_or_else(String::new, |policy| given(policy, status, step, waits_for))
    );
    of_remedy(&clause, Remedy::new(who, "approve it", commands))
}

/// Who may decide under a policy.
fn deciders(policy: &ApprovalPolicy, creator: Option<&str>) -> String {
    let spec = &policy.spec;
    let named: Vec<String> = spec
        .subjects
        .iter()
        .map(|subject| format!("{} {}", subject.kind, subject.name))
        .collect();
    let who = if named.is_empty() {
        "whoever has the right to approve".to_owned()
    } else {
        named.join(" or ")
    };
    match creator {
        Some(creator) if spec.allow_creator != Some(true) => {
            format!("{who} (but not {creator}, who created the run)")
        }
        _ => who,
    }
}

/// How many approvals are there, if it needs more than one.
fn given(
    policy: &ApprovalPolicy,
    status: &OrchestrationRunStatus,
    step: &StepStatus,
    waits_for: &WaitsFor,
) -> String {
    let required = policy.spec.required_approvals.map_or(1, Int32::get);
    if required <= 1 {
        return String::new();
    }
    let counts = status.approvals.iter().filter(|approval| {
        approval.step == step.name
            && approval.decision == ApprovalDecision::Approved
            && waits_for.digest.as_deref() == Some(approval.digest.as_str())
    });
    format!(" and has {} of {required}", counts.count())
}

fn signal(facts: &Facts<'_>, waits_for: &WaitsFor) -> StepSays {
    let id = waits_for.delivery_id.as_deref();
    let (clause, commands) = match (waits_for.signal.as_deref(), id) {
        (Some(signal), None) => (
            format!("it waits for Signal {signal}"),
            vec![command::deliver(signal, None, facts.namespace)],
        ),
        (Some(signal), Some(id)) => (
            format!("it waits for delivery {id} of Signal {signal}"),
            vec![command::deliver(signal, Some(id), facts.namespace)],
        ),
        (None, id) => (
            format!("it waits for delivery {} of a Signal", id.unwrap_or_default()),
            vec![command::get_all(
                "signals",
                facts.namespace,
                "shows the Signals that there are",
            )],
        ),
    };
    let who = format!(
        "whoever may create a SignalDelivery in namespace {}",
        facts.namespace
    );
    of_remedy(&clause, Remedy::new(who, "release it", commands))
}

fn of_remedy(clause: &str, remedy: Remedy) -> StepSays {
    StepSays {
        state: State::Waiting,
        sentence: format!("{clause}{}.", remedy.tail()),
        position: None,
        who: remedy.who(),
        commands: remedy.commands,
    }
}

/// A run failed because of the first step that was not allowed to.
fn failed(
    run: &OrchestrationRun,
    status: &OrchestrationRunStatus,
    context: &Context<'_>,
    now: Timestamp,
    depth: usize,
) -> Option<Told> {
    let facts = Facts::of(Subject::OrchestrationRun(run));
    let bad: Vec<&StepStatus> = status
        .step_statuses
        .iter()
        .filter(|step| {
            matches!(
                step.progress.phase,
                Some(StepPhase::Failed | StepPhase::Cancelled)
            )
        })
        .filter(|step| !is_allowed_to_fail(status, &step.name))
        .collect();
    let first = bad.first()?;
    let again = command::retry(&facts);
    let because = bad.iter().filter_map(|step| {
        let words = step.message.as_deref()?;
        Some(format!("step {}: {words}", step.name))
    });
    let mut because: Vec<String> = because.collect();
    let skipped = status
        .step_statuses
        .iter()
        .filter(|step| step.progress.phase == Some(StepPhase::Skipped));
    let skipped: Vec<&str> = skipped.map(|step| step.name.as_str()).collect();
    if !skipped.is_empty() {
        because.push(format!("skipped: {}", skipped.join(", ")));
    }
    let Some(child) = child(first, context) else {
        return unknown_child(&facts, first, because, again);
    };
    // The orchestration would not hear of another run of the step alone.
    let alone = command::retry(&Facts::of(child));
    let child = explain_at(child, context, now, depth);
    let mut commands = child.commands;
    commands.retain(|command| *command != alone);
    commands.push(again);
    Some(Told {
        state: State::Failed,
        tail: format!("because of step {}: {}", first.name, child.headline),
        because: because.into_iter().chain(child.because).collect(),
        position: None,
        who: child.who_can_unblock,
        commands,
    })
}

/// The run of the step is not known. If the step had none, the conditions of the orchestration say all there is.
fn unknown_child(facts: &Facts<'_>, step: &StepStatus, because: Vec<String>, again: Command) -> Option<Told> {
    let reference = step.resource_ref.as_ref()?;
    let (kind, name) = (reference.kind.as_deref()?, reference.name.as_deref()?);
    let look = command::explain_named(kind, name, facts.namespace);
    let remedy = Remedy::new("whoever knows the work", "see how it ended", vec![look, again]);
    Some(Told {
        state: State::Failed,
        tail: format!("because of step {} ({kind} {name}){}.", step.name, remedy.tail()),
        because,
        position: None,
        who: remedy.who(),
        commands: remedy.commands,
    })
}

fn is_allowed_to_fail(status: &OrchestrationRunStatus, name: &str) -> bool {
    let mut steps = status.definition.iter().flat_map(|definition| &definition.steps);
    steps.any(|step| step.name == name && step.continue_on_failure == Some(true))
}
