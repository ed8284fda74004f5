//! What a process that does not lead would do: every object is observed and planned as a leader does it, and nothing is
//! carried out. The context of a survey has a gate that never opens, so that not even a mistake here could write.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use jangar_engine::decision::{Decision, Effect, Key, Plan, Question};
use kube::{Resource, api::DynamicObject, core::object::HasStatus};

use super::{
    Context, Controller, ReconcileError, StatusOf, Work,
    reconcile::{ROUNDS_MAX, View, view},
};
use crate::{
    caches::{Cached, uid_of},
    live,
    metrics::EffectKind,
    status,
};

/// What a survey of one controller found.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many objects are as this version would leave them.
    pub same: usize,
    /// Everything else, by key.
    pub others: BTreeMap<Key, Other>,
}

/// What is to be said of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// This version would do something. Which version of the object that was, and what it would do.
    Differs { version: String, would: String },
    /// It asks whether it may start, which only the leader can answer.
    AsksForSlot,
    /// What would be done cannot be compared: the leader knows more, or takes turns with it.
    LeftToLeader,
    /// This version cannot plan it, and says why. Whether the leader has accepted the object as it is now.
    Unplannable { accepted: bool, why: String },
    /// Something could not be read, so that nothing is known this time.
    Unread { why: String },
}

/// Plans every object of a controller's kind.
pub(super) async fn survey<C: Controller>(controller: &C, context: &Context) -> Survey {
    let keys: Vec<Key> = C::Object::cache(&context.world.caches())
        .keys()
        .cloned()
        .collect();
    let mut survey = Survey::default();
    for key in keys {
        match look_at(controller, context, &key).await {
            None => survey.same += 1,
            Some(other) => {
                survey.others.insert(key, other);
            }
        }
        // Thousands of objects are planned in a row, and the election must not wait for them.
        tokio::task::yield_now().await;
    }
    survey
}

/// Plans one object; `None` if there is nothing to do about it.
async fn look_at<C: Controller>(controller: &C, context: &Context, key: &Key) -> Option<Other> {
    let illegible = C::Object::cache(&context.world.caches()).illegible(key).cloned();
    if let Some(why) = illegible {
        return Some(unplannable::<C>(context, key, why).await);
    }
    match plan(controller, context, key).await {
        Ok(other) => other,
        Err(Trouble::Panicked) => {
            Some(unplannable::<C>(context, key, "a bug: planning it panics".to_owned()).await)
        }
        Err(Trouble::Reconcile(error)) => Some(Other::Unread {
            why: error.to_string(),
        }),
    }
}

enum Trouble {
    Panicked,
    Reconcile(ReconcileError),
}

impl From<ReconcileError> for Trouble {
    fn from(error: ReconcileError) -> Self {
        Self::Reconcile(error)
    }
}

/// The rounds of a reconcile, up to the first thing that would be done.
async fn plan<C: Controller>(controller: &C, context: &Context, key: &Key) -> Result<Option<Other>, Trouble> {
    let mut work = Work::default();
    for _ in 0..ROUNDS_MAX {
        let seen = catch_unwind(AssertUnwindSafe(|| view(controller, context, key, &work)));
        match seen.map_err(|_| Trouble::Panicked)? {
            View::Nothing => return Ok(None),
            View::Unproven => live::learn::<C::Object>(context, key, &mut work.learned)
                .await
                .map(drop)
                .map_err(ReconcileError::from)?,
            View::Of {
                decision: Decision::Look(questions),
                ..
            } => {
                for question in &questions {
                    match question {
                        Question::Slot { .. } => return Ok(Some(Other::AsksForSlot)),
                        // A forge is asked by one process only: it counts how often.
                        Question::Delivery(_) => return Ok(Some(Other::LeftToLeader)),
                        question => live::answer(context, &key.namespace, question, &mut work.learned)
                            .await
                            .map_err(ReconcileError::from)?,
                    }
                }
            }
            View::Of {
                object,
                decision: Decision::Act(plan),
            } => {
                let other = compare::<C>(object.as_deref(), &plan)?;
                if other.is_none() {
                    controller.settled(key, object.as_deref());
                }
                return Ok(other);
            }
        }
    }
    Err(ReconcileError::Unsettled.into())
}

/// What a plan would change.
fn compare<C: Controller>(
    object: Option<&C::Object>,
    plan: &Plan<StatusOf<C>>,
) -> Result<Option<Other>, ReconcileError> {
    if !plan.effects.iter().all(is_comparable) {
        return Ok(Some(Other::LeftToLeader));
    }
    let mut would: Vec<String> = plan
        .effects
        .iter()
        .map(|effect| format!("{:?}", EffectKind::from(effect)))
        .collect();
    let mut version = String::new();
    if let Some(object) = object {
        let metadata = object.meta();
        version = metadata.resource_version.clone().unwrap_or_default();
        if let Some(planned) = &plan.status
            && let Some(patch) = status::patch(object.status(), planned, &uid_of(metadata), &version)?
        {
            would.push(format!("write the status members {}", members(&patch)));
        }
    }
    Ok((!would.is_empty()).then(|| Other::Differs {
        version,
        would: would.join(", "),
    }))
}

/// The names of the members that a patch of a status changes. Their values stay out of the log.
fn members(patch: &serde_json::Value) -> String {
    let members = patch.get("status").and_then(serde_json::Value::as_object);
    let names: Vec<&str> = members
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    names.join(" and ")
}

/// Whether an effect is planned only where the leader has not done it. Calls of others and tokens are known to the leader
/// alone, so they are planned anew by whoever does not remember them; runs are deleted in turns, so many may wait.
fn is_comparable(effect: &Effect) -> bool {
    match effect {
        Effect::PostCustom(_)
        | Effect::CallTemporal(_)
        | Effect::MintToken(_)
        | Effect::RevokeToken { .. }
        | Effect::DeleteRun { .. } => false,
        Effect::CreateConfigMap(_)
        | Effect::CreateJob(_)
        | Effect::CreatePod(_)
        | Effect::TellJob { .. }
        | Effect::ReleasePods(_)
        | Effect::StopJob { .. }
        | Effect::DeletePod { .. }
        | Effect::ReleaseJob { .. }
        | Effect::SetFinalizers { .. }
        | Effect::CreateChild(_)
        | Effect::CancelChild { .. }
        | Effect::ReleaseChild { .. }
        | Effect::ConsumeSignal { .. }
        | Effect::MarkApproval { .. } => true,
    }
}

/// An object that cannot be planned, with whether the leader has accepted it. It is read as it is, because our own type of
/// it may be what is wrong.
async fn unplannable<C: Controller>(context: &Context, key: &Key, why: String) -> Other {
    match live::raw::<C::Object>(context, key).await {
        Ok(object) => Other::Unplannable {
            accepted: object.as_ref().is_some_and(is_accepted),
            why,
        },
        Err(error) => Other::Unread {
            why: error.to_string(),
        },
    }
}

fn is_accepted(object: &DynamicObject) -> bool {
    let observed = object.data.pointer("/status/observedGeneration");
    let observed = observed.and_then(serde_json::Value::as_i64);
    observed.is_some() && observed == object.metadata.generation
}
