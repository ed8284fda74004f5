//! A run that has something outside of the cluster, kept from vanishing.
//!
//! Nothing in the cluster would be left of such a run that could tell what it has outside, so the run itself carries a
//! finalizer, from before anybody outside is asked for anything until that is over.

use super::Situation;
use crate::decision::{Decision, Notice, Plan};
pub(super) use crate::life::hold::{hold, is_held, let_go};

/// Lets a run go that was deleted.
pub(super) fn go<S>(situation: &Situation<'_>, notice: Option<Notice>) -> Decision<S> {
    Decision::Act(Plan {
        effects: vec![let_go(situation.run)],
        notices: notice.into_iter().collect(),
        ..Plan::nothing()
    })
}
