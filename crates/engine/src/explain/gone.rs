//! A run that is gone from the cluster: how it ended, from what is remembered of it.

use jangar_api::phase::RunPhase;
use jiff::Timestamp;

use super::{
    Context, Explanation, State, command, explain, standing,
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
    Explanation {
        headline,
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
