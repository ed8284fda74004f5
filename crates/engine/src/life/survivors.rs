//! What was still there when a cancel was given up, and when it was gone.
//!
//! Such a run has ended, and its end stays what it is. What is left is removed as before, and the time at which a live list has shown
//! that nothing is left is the one thing that is added to the status: whoever keeps a receipt of the cancel has it from there.

use jangar_api::values;

use super::{
    Run, RunStatus, Situation, finished, jobs, kept,
    leftovers::{self, Stopping, after},
};
use crate::{
    decision::{Decision, Plan},
    parent,
    plain_status::PlainStatus,
    removal::REMOVAL_MAX,
};

/// Whether a cancel of the run was given up, and nobody has recorded that what was left is gone.
pub(crate) fn is_unrecorded<R: Run>(situation: &Situation<'_, R>) -> bool {
    let status = situation.status;
    status.survivors_gone_at().is_none() && parent::outlived_its_cancel(status.phase(), status.common())
}

/// Goes on removing what was left, lets the Jobs go when nothing is, and records that. `None` if there is nothing to record.
pub(crate) fn plan<R: Run>(situation: &Situation<'_, R>) -> Option<Decision<R::Status>> {
    if !is_unrecorded(situation) || is_forgotten(situation) {
        return None;
    }
    let mut next = finished::settled(situation);
    let (effects, wake_at) = match leftovers::stop_run(situation) {
        Stopping::Unsure(question) => return Some(Decision::look(question)),
        Stopping::Going { effects, wake_at } => (effects, wake_at),
        Stopping::Stopped => {
            *next.status.course().survivors_gone_at = Some(values::Timestamp(situation.now));
            let held = situation.own_jobs().filter(|job| kept::is_open(job));
            let let_go = held.map(|job| finished::let_go(situation, job));
            match let_go.collect() {
                Ok(effects) => (effects, None),
                Err(question) => return Some(Decision::look(question)),
            }
        }
    };
    Some(Decision::Act(Plan {
        effects,
        status: next.into_status(),
        wake_at,
        ..Plan::nothing()
    }))
}

/// The same of a run that was deleted and that its parent keeps until it knows. What has to be done is done as for any other run that
/// is deleted.
pub(crate) fn farewell<R: Run>(situation: &Situation<'_, R>) -> Option<Decision<R::Status>> {
    match plan(situation)? {
        Decision::Act(plan) => Some(Decision::Act(Plan {
            effects: Vec::new(),
            ..plan
        })),
        look @ Decision::Look(_) => Some(look),
    }
}

/// Whether nobody can know any more when it was: nothing of the run is held, and its end is long past. A version that did not record
/// this has let its Jobs go, and a time that is made up now would be wrong by weeks.
fn is_forgotten<R: Run>(situation: &Situation<'_, R>) -> bool {
    let held = situation.own_jobs().any(|job| jobs::is_held(job));
    let ended = situation.status.finished_at();
    !held && ended.is_none_or(|ended| situation.now >= after(ended, REMOVAL_MAX))
}
