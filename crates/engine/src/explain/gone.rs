//! A run that is gone from the cluster: how it ended, from what is remembered of it.

use jangar_api::{
    orchestration::orchestration_run::OrchestrationRun,
    phase::{RunPhase, StepPhase},
};
use jiff::Timestamp;

use super::{
    Context, Explanation, State, command, explain, standing, steps,
    subject::{Facts, Subject},
};

/// How a run ended that is gone from the cluster. Nothing can be done to it any more, so that no command names it but the one that
/// shows what it said.
///
/// `context` has what is remembered of the runs of its steps, and `seen` is when the run was last seen.
pub fn explain_gone(what: Subject<'_>, context: &Context<'_>, seen: Timestamp) -> Explanation {
    let facts = Facts::of(what);
    let standing = standing(&facts);
    let told = explain(what, context, seen);
    let clause = standing.row.clause(standing.reason);
    let why = if clause.is_empty() || standing.state == State::Succeeded {
        String::new()
    } else {
        format!(" because {clause}")
    };
    let verb = standing.state.verb();
    let ended = facts.phase.is_some_and(RunPhase::is_terminal);
    let headline = if ended {
        format!("{facts} {verb}{why}; it is gone from the cluster, and this is what history has of it.")
    } else {
        format!(
            "{facts} was deleted before its end; what was last seen of it, at {seen}, is that it {verb}{why}."
        )
    };
    let mut because = told.because.clone();
    if let Subject::OrchestrationRun(run) = what {
        because.extend(failed_steps(run, context, seen));
    }
    Explanation {
        headline,
        because,
        position: None,
        who_can_unblock:
            "nobody: it is gone from the cluster; whoever may create runs can submit the work again"
                .to_owned(),
        commands: facts
            .pod_label()
            .map(|_| command::logs(&facts))
            .into_iter()
            .collect(),
        ..told
    }
}

/// What went wrong with the steps of an orchestration.
fn failed_steps(run: &OrchestrationRun, context: &Context<'_>, seen: Timestamp) -> Vec<String> {
    let all = run.status.iter().flat_map(|status| &status.step_statuses);
    let failed = all.filter(|step| step.progress.phase == Some(StepPhase::Failed));
    let told = failed.map(|step| match steps::child(step, context) {
        // What a nested orchestration did is told by its own explanation.
        Some(child @ (Subject::AgentRun(_) | Subject::ToolRun(_))) => {
            let told = explain_gone(child, &Context::default(), seen);
            format!("step {}: {}", step.name, told.headline)
        }
        _ => {
            let message = step.message.as_deref().unwrap_or("it failed");
            format!("step {}: {message}", step.name)
        }
    });
    told.collect()
}
