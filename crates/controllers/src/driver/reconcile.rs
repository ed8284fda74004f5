//! One reconcile: observe, plan, act, report, and again until there is nothing left to do.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use jangar_engine::{
    decision::{Decision, Effect, Key, Notice, Plan, Question, Refusal, Sight},
    plain_status::PlainStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource, ResourceExt,
    api::Patch,
    core::{Status, object::HasStatus},
};
use thiserror::Error;

use super::{
    Context, Controller, Scene, StatusOf, Work,
    archiving::{self, Hold, Leave},
    learned::Learned,
    leisure,
};
use crate::{
    admissions::Asked,
    caches::{Cached, uid_of},
    effects::{self, Outcome},
    lease::WriteError,
    live::{self, ReadError},
    metrics::{ObjectKind, Verb},
    outside, status,
};

/// How often one reconcile plans before others have their turn. A run of one Job needs a handful of rounds; one with many
/// children has something new to do in each, for as long as children end while it works.
pub(super) const ROUNDS_MAX: u32 = 16;

/// When to look again at an object of which the API server takes not even a plain status. Only a change of the object, of its
/// kind or of a webhook can help; the first wakes it, and the others are rare.
const REFUSED_RETRY: Duration = Duration::from_mins(5);

/// Why a reconcile did not come to its end. The key is tried again.
#[derive(Debug, Error)]
pub enum ReconcileError {
    #[error("another process leads, or may")]
    NotLeading,
    #[error("the controllers are being stopped")]
    Stopping,
    #[error("failed to {action}: {source}")]
    Write {
        action: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to {action}: no answer in time, so it may have happened")]
    WriteTimedOut { action: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the planned status cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("an endpoint was not called: {0}")]
    NotCalled(#[from] outside::Full),
    #[error("a Temporal server was not called: {0}")]
    TemporalNotCalled(#[from] outside::TooMany),
    #[error("there is still something to do after {ROUNDS_MAX} rounds of planning")]
    Busy,
    #[error("nothing was done in {ROUNDS_MAX} rounds of planning, and still there is something to do")]
    Unsettled,
    #[error("a bug: the reconcile panicked")]
    Panicked,
}

impl ReconcileError {
    pub(crate) fn write(action: String, error: WriteError) -> Self {
        match error {
            WriteError::NotLeading => Self::NotLeading,
            WriteError::TimedOut => Self::WriteTimedOut { action },
            WriteError::Api(source) => Self::Write {
                action,
                source: Box::new(source),
            },
        }
    }

    /// How long the API server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let (Self::Write { source, .. } | Self::Read(ReadError::Api { source, .. })) = self else {
            return None;
        };
        let kube::Error::Api(status) = source.as_ref() else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// One word for a metric.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NotLeading => "not_leading",
            Self::Stopping => "stopping",
            Self::Write { .. } => "write",
            Self::WriteTimedOut { .. } => "write_timeout",
            Self::Read(_) => "read",
            Self::Json(_) => "json",
            Self::NotCalled(_) | Self::TemporalNotCalled(_) => "not_called",
            Self::Busy => "busy",
            Self::Unsettled => "unsettled",
            Self::Panicked => "panic",
        }
    }
}

/// What there is to decide about.
pub(super) enum View<C: Controller> {
    /// Nothing: the object is not there and left nothing behind, or cannot be read and is left alone.
    Nothing,
    /// The object is not in the cache, and something of it is. Whether it is gone has to be proven.
    Unproven,
    Of {
        object: Option<Arc<C::Object>>,
        decision: Decision<StatusOf<C>>,
    },
}

/// Does what is to be done about a key. Returns when to look again although nothing happened.
pub(super) async fn reconcile<C: Controller>(
    controller: &C,
    context: &Context,
    key: &Key,
    work: &mut Work,
) -> Result<Option<Timestamp>, ReconcileError> {
    for _ in 0..ROUNDS_MAX {
        context.check_halt()?;
        match view(controller, context, key, work) {
            View::Nothing => return Ok(None),
            View::Unproven => {
                live::learn::<C::Object>(context, key, &mut work.learned).await?;
            }
            View::Of { object, decision } => match decision {
                Decision::Look(questions) => {
                    answer(controller, context, key, object.as_deref(), questions, work).await?;
                }
                Decision::Act(plan) => {
                    match act(controller, context, key, object.as_ref(), &plan, work).await? {
                        Acted::Settled(put_off) => {
                            let Some(again) = kept::<C>(context, key, object.as_ref(), work).await? else {
                                continue;
                            };
                            controller.settled(key, object.as_deref());
                            let later = put_off.map(|wait| context.clock.now() + wait);
                            return Ok(plan.wake_at.into_iter().chain(again).chain(later).min());
                        }
                        Acted::PlanAgain => {}
                        Acted::Refused => return Ok(Some(context.clock.now() + REFUSED_RETRY)),
                        Acted::NotYet(wait) => {
                            let turn = context.clock.now() + wait;
                            return Ok(plan.wake_at.into_iter().chain([turn]).min());
                        }
                    }
                }
            },
        }
    }
    Err(if work.written.is_empty() {
        ReconcileError::Unsettled
    } else {
        ReconcileError::Busy
    })
}

/// Finds the answers to the questions of a plan. Those about children are asked together: there can be as many as there are
/// steps, and a cancel waits for all of them.
async fn answer<C: Controller>(
    controller: &C,
    context: &Context,
    key: &Key,
    object: Option<&C::Object>,
    questions: BTreeSet<Question>,
    work: &mut Work,
) -> Result<(), ReconcileError> {
    let (children, others): (Vec<_>, Vec<_>) = questions
        .into_iter()
        .partition(|question| matches!(question, Question::Child(..)));
    for question in &others {
        if let Question::Slot { job, repository } = question {
            let answer =
                object.and_then(|object| controller.ask(key, object, job.as_deref(), repository.as_deref()));
            work.asked = answer.as_ref().map(Asked::from);
            work.learned.admission = answer;
        } else {
            live::answer(context, &key.namespace, question, &mut work.learned).await?;
        }
    }
    for group in children.chunks(effects::TOGETHER_MAX) {
        let each = group.iter().map(|question| async move {
            let mut own = Learned::default();
            let answer = live::answer(context, &key.namespace, question, &mut own).await;
            answer.map(|()| own)
        });
        for answer in futures::future::join_all(each).await {
            work.learned.absorb_children(answer?);
        }
    }
    Ok(())
}

/// Sees to it that a run that has ended gets into history before it goes. When to look again for that, if at all; `None` if the object has
/// changed by it.
async fn kept<C: Controller>(
    context: &Context,
    key: &Key,
    object: Option<&Arc<C::Object>>,
    work: &mut Work,
) -> Result<Option<Option<Timestamp>>, ReconcileError> {
    let Some(object) = object else {
        return Ok(Some(None));
    };
    let effect = match archiving::settled(context, object) {
        Hold::AsItIs(wait) => return Ok(Some(wait.map(|wait| context.clock.now() + wait))),
        Hold::Set(effect) => effect,
        Hold::GivenUp(effect, notice) => {
            work.notices.push((reference::<C::Object>(key, &notice), *notice));
            effect
        }
    };
    context.check_halt()?;
    effects::carry_out_together::<C::Object>(context, key, &[effect], work).await?;
    Ok(None)
}

/// Observes and plans: no waiting in here, so that all of it is seen at one moment.
pub(super) fn view<C: Controller>(controller: &C, context: &Context, key: &Key, work: &Work) -> View<C> {
    let caches = context.world.caches();
    let scene = Scene {
        key,
        caches: &caches,
        learned: &work.learned,
        busy: context.leisure.is_busy(),
    };
    let object = match scene.sight::<C::Object>(&key.name) {
        Sight::Seen(object) => Some(object),
        Sight::Absent => None,
        Sight::Unseen if controller.has_remains(&scene) => return View::Unproven,
        Sight::Unseen | Sight::Illegible(_) => return View::Nothing,
    };
    let Some(observed) = controller.observe(&scene, object.clone()) else {
        return View::Nothing;
    };
    drop(caches);
    let decision = controller.plan(&observed, &context.settings, context.clock.now());
    let decision = match &work.learned.status_refusal {
        None => decision,
        Some(refusal) => {
            let before = object.as_ref().and_then(|object| object.status());
            decision.map_status(|planned| planned.plain(before, refusal))
        }
    };
    View::Of { object, decision }
}

/// What carrying a plan out has come to.
enum Acted {
    /// There was nothing to do, or nothing but what gives way to others for so long.
    Settled(Option<Duration>),
    /// Something was done or learned, from which another plan may follow.
    PlanAgain,
    /// The status could not be written, in no form.
    Refused,
    /// The run's time has come, but so has that of many others, or history does not have it yet: its turn is later.
    NotYet(Duration),
}

/// Carries a plan out: effects in order, then the status. The notices go out when the reconcile is over.
async fn act<C: Controller>(
    controller: &C,
    context: &Context,
    key: &Key,
    object: Option<&Arc<C::Object>>,
    plan: &Plan<StatusOf<C>>,
    work: &mut Work,
) -> Result<Acted, ReconcileError> {
    let (effects, put_off) = in_turn(context, key, &plan.effects);
    if !effects.is_empty() {
        work.learned.refusal = None;
        work.learned.occupant = None;
        // What was let in was this one.
        work.learned.admission = None;
    }
    let mut changed = false;
    let mut left = effects.as_ref();
    while let Some(effect) = left.first() {
        context.check_halt()?;
        let (now, later) = left.split_at(effects::together(left).min(left.len()));
        left = later;
        match archiving::leave(context, object, effect) {
            Leave::Granted => {}
            Leave::GrantedUnwritten(notice) => {
                work.notices.push((reference::<C::Object>(key, &notice), *notice));
            }
            Leave::Later(wait) => return Ok(Acted::NotYet(wait)),
        }
        if matches!(effect, Effect::DeleteRun { .. })
            && let Some(release) = object.and_then(|object| archiving::released(object.as_ref()))
        {
            // It is written, so that nothing keeps it any more.
            effects::carry_out_together::<C::Object>(context, key, &[release], work).await?;
            return Ok(Acted::PlanAgain);
        }
        if matches!(effect, Effect::DeleteRun { .. })
            && let Some(wait) = context.deletions.ask(&context.metrics)
        {
            return Ok(Acted::NotYet(wait));
        }
        match effects::carry_out_together::<C::Object>(context, key, now, work).await? {
            // A token that was taken back before is asked for whenever its Job is to go, and tells nothing new.
            Outcome::Already if matches!(effect, Effect::RevokeToken { .. }) => {}
            Outcome::Unheard => {}
            Outcome::Done | Outcome::Already => changed = true,
            Outcome::Otherwise | Outcome::Refused => return Ok(Acted::PlanAgain),
        }
        if !left.is_empty() && object.is_some_and(|object| wants_otherwise(context, key, object.as_ref())) {
            return Ok(Acted::PlanAgain);
        }
    }
    let untold = object
        .filter(|_| plan.gives_way && plan.status.is_some())
        .and_then(|object| context.leisure.tell(&uid_of(object.meta())));
    let put_off = put_off.into_iter().chain(untold).min();
    let report = match (object, &plan.status) {
        (Some(object), Some(status)) if untold.is_none() => {
            report(controller, context, key, object, status, work).await?
        }
        (Some(_) | None, _) => Report::Unchanged,
    };
    if matches!(report, Report::Written) && !plan.gives_way {
        context.leisure.wrote();
    }
    match report {
        Report::Unchanged if !changed => return Ok(Acted::Settled(put_off)),
        Report::Otherwise => return Ok(Acted::PlanAgain),
        Report::Refused(refusal) => {
            let plain_already = work.learned.status_refusal.replace(refusal).is_some();
            return Ok(if plain_already {
                Acted::Refused
            } else {
                Acted::PlanAgain
            });
        }
        Report::Unchanged | Report::Written => {}
    }
    let told = plan.notices.iter().filter(|_| untold.is_none()).cloned();
    work.notices
        .extend(told.map(|notice| (reference::<C::Object>(key, &notice), notice)));
    Ok(Acted::PlanAgain)
}

/// The effects that are carried out now, without those that give way to others, and how long these do. They come when all else that the
/// plan wants is done: what is put off changes nothing for the rest.
fn in_turn<'p>(context: &Context, key: &Key, effects: &'p [Effect]) -> (Cow<'p, [Effect]>, Option<Duration>) {
    let known = |effect: &Effect| {
        effect
            .lets_go()
            .is_some_and(|object| context.leisure.is_put_off(object))
    };
    let again: Vec<bool> = effects.iter().map(known).collect();
    let waits: Vec<Option<Duration>> = effects
        .iter()
        .map(|effect| leisure::gives_way(context, &key.namespace, effect))
        .collect();
    let Some(soonest) = waits.iter().flatten().min().copied() else {
        return (Cow::Borrowed(effects), None);
    };
    // The token of a Job was taken back when it was put off for the first time.
    let is_over = |place: usize| {
        let next = place + 1;
        matches!(effects.get(place), Some(Effect::RevokeToken { .. }))
            && again.get(next) == Some(&true)
            && waits.get(next).is_some_and(Option::is_some)
    };
    let now = effects.iter().zip(&waits).enumerate();
    let now = now.filter(|(place, (_, wait))| wait.is_none() && !is_over(*place));
    (
        Cow::Owned(now.map(|(_, (effect, _))| effect.clone()).collect()),
        Some(soonest),
    )
}

/// Whether somebody has changed what an object asks for since a plan was made from it: what is left of a long plan is not sent
/// to a run that was cancelled meanwhile.
fn wants_otherwise<K: Cached>(context: &Context, key: &Key, planned: &K) -> bool {
    let caches = context.world.caches();
    // One that is not in the cache proves nothing.
    K::cache(&caches).get(key).is_some_and(|known| {
        let (known, planned) = (known.meta(), planned.meta());
        uid_of(known) != uid_of(planned)
            || known.generation > planned.generation
            || (known.deletion_timestamp.is_some() && planned.deletion_timestamp.is_none())
    })
}

/// The object that a notice is about, which need not be there any more.
fn reference<K: Cached>(key: &Key, notice: &Notice) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(notice.regarding.0.clone()),
        ..ObjectReference::default()
    }
}

enum Report {
    /// The status is as it should be.
    Unchanged,
    Written,
    /// The object is not as the plan took it to be.
    Otherwise,
    /// The API server will not have this status, however often it is sent.
    Refused(Refusal),
}

/// Writes the status, if it differs.
async fn report<C: Controller>(
    controller: &C,
    context: &Context,
    key: &Key,
    object: &C::Object,
    status: &StatusOf<C>,
    work: &mut Work,
) -> Result<Report, ReconcileError> {
    let metadata = object.meta();
    let version = metadata.resource_version.as_deref().unwrap_or_default();
    let Some(patch) = status::patch(object.status(), status, &uid_of(metadata), version)? else {
        return Ok(Report::Unchanged);
    };
    context.check_halt()?;
    let api = Api::<C::Object>::namespaced(context.client.clone(), &key.namespace);
    let written = match first::<C>(context, &api, object, &patch).await {
        Some(written) => written,
        None => {
            let (params, patch) = (effects::patching(), Patch::Merge(patch));
            let request = api.patch_status(&key.name, &params, &patch);
            context.write::<C::Object, _>(Verb::Patch, request).await
        }
    };
    match written {
        Ok(written) => {
            controller.reported(key, &context.metrics, object.status(), status);
            work.wrote(written);
            Ok(Report::Written)
        }
        Err(error)
            if effects::status(&error)
                .is_some_and(|status| status.is_conflict() || status.is_not_found()) =>
        {
            effects::find_out::<C::Object>(context, &key.namespace, &key.name, work).await?;
            Ok(Report::Otherwise)
        }
        Err(error) => match effects::refusal(&error) {
            Some(refusal) => {
                context.metrics.status_refused(ObjectKind::of::<C::Object>());
                // What is left out of the plain status can be read here.
                tracing::error!(
                    object = %key,
                    code = refusal.code,
                    error = refusal.message,
                    status = %serde_json::to_string(status)?,
                    "the API server refused a status"
                );
                Ok(Report::Refused(refusal))
            }
            None => Err(ReconcileError::write("write the status".to_owned(), error)),
        },
    }
}

/// Writes the first status of an object of which there may be crowds, whole: where there is none yet, none can hold what this version of
/// Jangar does not know. `None` if it has to be patched.
async fn first<C: Controller>(
    context: &Context,
    api: &Api<C::Object>,
    object: &C::Object,
    patch: &serde_json::Value,
) -> Option<Result<C::Object, WriteError>> {
    if !C::COMES_IN_CROWDS || object.status().is_some() {
        return None;
    }
    let (name, params, whole) = (object.name_any(), effects::post(), status::whole(object, patch));
    let request = api.replace_subresource("status", &name, &params, &whole);
    let answer = context.write::<C::Object, _>(Verb::Update, request).await;
    // A Role that somebody keeps by hand may allow patches only.
    let refused = answer.as_ref().err().and_then(effects::status);
    let may_not = refused.is_some_and(Status::is_forbidden);
    (!may_not).then_some(answer)
}
