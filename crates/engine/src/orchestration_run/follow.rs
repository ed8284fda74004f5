//! A run that has started: what its steps have come to, which start now, and how it ends.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jangar_api::{
    orchestration::orchestration_run::{FailurePolicy, OrchestrationRunStatus, StepStatus},
    phase::{RunPhase, StepPhase},
    reason::Reason,
    values::{self, Int32},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    NextStatus, Situation, after,
    begin::{Begun, REFUSED_ENOUGH},
    cancel, finished, sooner,
    step_end::StepEnd,
    survivors,
};
use crate::{
    decision::{Decision, Effect, Notice, Plan, Question, Rejection},
    leisure::UNTOLD_MAX,
    orchestration::{
        Graph, Node, StepId,
        advance::{Ended, Going, RunEnd, Skipped, State, Verdict, Why, advance},
        values::{Result as StepResult, RunFacts, of_step},
    },
};

/// How long it may stay unsaid that the child of a step was made. A child that says nothing yet is silent for as long.
const MADE_UNSAID_MAX: Duration = Duration::from_secs(10);
/// How long it may stay unsaid that the child of a step has done its work.
const ENDED_UNSAID_MAX: Duration = Duration::from_secs(2);
/// What so many steps have done is worth a write: each that is not recorded is compared anew with what its step would make.
const UNSAID_STEPS_MAX: usize = 64;

/// Something good about the child of a step that the status does not say yet, and since when it is so.
pub(super) struct Unsaid {
    pub step: StepId,
    pub what: Good,
    pub since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    Made,
    Ended,
}

impl Unsaid {
    /// Until when it may stay unsaid.
    fn until(&self) -> Timestamp {
        let most = match self.what {
            Good::Made => MADE_UNSAID_MAX,
            Good::Ended => ENDED_UNSAID_MAX,
        };
        after(self.since, most)
    }
}

/// When a run says what its children have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    Now,
    /// When it is its turn, among all that have nothing else to say.
    InTurn {
        until: Timestamp,
    },
    Not {
        until: Timestamp,
    },
}

/// Why no step starts any more, although nobody cancelled the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its own time is up.
    TimedOut,
    /// This step failed, and the run is to fail fast.
    FailFast(StepId),
}

/// One look at all steps of a run.
pub(super) struct Walk<'a> {
    pub situation: &'a Situation<'a>,
    pub graph: &'a Arc<Graph>,
    pub next: NextStatus<'a>,
    pub effects: Vec<Effect>,
    pub questions: BTreeSet<Question>,
    pub notices: Vec<Notice>,
    pub wake_at: Option<Timestamp>,
    /// Steps whose child is being created, or waits for its name.
    pub beginning: BTreeSet<StepId>,
    /// What children have done that is not in the status yet.
    pub unsaid: Vec<Unsaid>,
    /// An attempt ended badly, which is told at once.
    pub hurried: bool,
    /// How many steps failed just now because the API server will not have their child.
    pub refused: usize,
}

pub(super) fn plan(situation: &Situation<'_>) -> Decision<OrchestrationRunStatus> {
    let graph = match &situation.observed.graph {
        Some(Ok(graph)) => graph,
        Some(Err(mistakes)) => return unreadable(situation, &mistakes.rejection()),
        None => return Decision::Act(Plan::nothing()),
    };
    let mut walk = Walk {
        situation,
        graph,
        next: situation.next_status(),
        effects: Vec::new(),
        questions: BTreeSet::new(),
        notices: Vec::new(),
        wake_at: None,
        beginning: BTreeSet::new(),
        unsaid: Vec::new(),
        hurried: false,
        refused: 0,
    };
    walk.next.lay_out(graph);
    walk.look_at_working_steps();
    let cancelling = *situation.phase() == RunPhase::Cancelling;
    let closes = situation.settings.safeguards.cancel_closes;
    if cancelling && closes {
        cancel::carry_on(&mut walk);
    } else if !cancelling && situation.is_asked_to_stop() && walk.stops_here() {
        cancel::begin(&mut walk);
    } else {
        survivors::record(situation, &mut walk.next);
        walk.go_on();
    }
    walk.into_decision()
}

/// The steps that were kept were good when the run started, and another version may read them again: nothing starts, what runs goes
/// on, and nobody records how it ends. Only somebody who does not want to wait for that ends the run, and with it its children.
fn unreadable(situation: &Situation<'_>, why: &Rejection) -> Decision<OrchestrationRunStatus> {
    let mut next = situation.next_status();
    let message = format!(
        "status.definition cannot be read by this version: {}",
        why.message
    );
    let words = |remedy: &str| Rejection::new(Reason::UnreadableDefinition, format!("{message}{remedy}"));
    if situation.is_asked_to_stop() || *situation.phase() == RunPhase::Cancelling {
        next.failed(&words(""));
    } else {
        next.waits(&words(
            "; nothing starts until a version does that can, and a cancel ends the run",
        ));
    }
    Decision::Act(Plan {
        status: next.into_status(),
        ..Plan::nothing()
    })
}

impl<'a> Walk<'a> {
    pub(super) fn step(&self, step: StepId) -> Option<&StepStatus> {
        self.next.step(step)
    }

    /// The steps that are at work, or are to be attempted again.
    pub(super) fn active(&self) -> Vec<(StepId, &'a Node)> {
        let graph: &'a Graph = self.graph;
        let states = self.next.states(graph);
        graph
            .steps()
            .filter(|(step, _)| states.get(step.0) == Some(&State::Active))
            .collect()
    }

    fn look_at_working_steps(&mut self) {
        for (step, node) in self.active() {
            self.look_at(step, node);
        }
    }

    /// What templates and conditions of a step can look up.
    pub(super) fn values(&self, step: StepId) -> Value {
        let run = self.situation.run;
        let facts = RunFacts {
            name: run.metadata.name.as_deref().unwrap_or_default(),
            namespace: run.metadata.namespace.as_deref().unwrap_or_default(),
            uid: &self.situation.uid.0,
            parameters: &run.spec.parameters,
        };
        of_step(facts, self.graph, step, |ancestor| {
            let known = self.step(ancestor)?;
            Some(StepResult {
                phase: known.progress.phase.as_ref().unwrap_or(&StepPhase::Pending),
                outputs: known.outputs.as_ref(),
            })
        })
    }

    pub(super) fn condition(&self, step: StepId) -> Verdict {
        let Some(condition) = self.graph.node(step).and_then(|node| node.when.as_ref()) else {
            return Verdict::Run;
        };
        match condition.holds(&self.values(step)) {
            Ok(true) => Verdict::Run,
            Ok(false) => Verdict::Skip,
            Err(error) => Verdict::Wrong(format!(
                "the condition of step {}: {error}",
                self.graph.name(step)
            )),
        }
    }

    /// Whether a cancel finds something to stop: the run is not over by itself, once all that was done is recorded.
    fn stops_here(&mut self) -> bool {
        self.adopt_unrecorded();
        let states = self.next.states(self.graph);
        let next = advance(self.graph, &states, self.going(&states), |step| {
            self.condition(step)
        });
        next.end.is_none()
    }

    /// Why no step starts any more, if that is so. What came first stays the cause, however long it takes until all has stopped.
    pub(super) fn stop(&self, states: &[State]) -> Option<Stop> {
        let deadline = self.deadline();
        let failed = self.failed_in_time(states, deadline).map(Stop::FailFast);
        let is_late = deadline.is_some_and(|until| self.situation.now >= until);
        failed.or_else(|| is_late.then_some(Stop::TimedOut))
    }

    /// The step for which the run fails fast: one that ended badly while the run still had time.
    fn failed_in_time(&self, states: &[State], deadline: Option<Timestamp>) -> Option<StepId> {
        if self.situation.run.spec.failure_policy != Some(FailurePolicy::FailFast) {
            return None;
        }
        let in_time = |step: StepId| {
            let ended = self.step(step).and_then(|known| known.progress.finished_at);
            ended.zip(deadline).is_none_or(|(ended, until)| ended.0 < until)
        };
        let ended_badly = |step: &StepId| {
            let allowed = self
                .graph
                .node(*step)
                .is_some_and(|node| node.continue_on_failure);
            let bad = matches!(
                states.get(step.0),
                Some(State::Ended(Ended::Failed | Ended::Cancelled))
            );
            let own_fault =
                self.step(*step).and_then(|known| known.reason.as_ref()) != Some(&Reason::RunStopping);
            bad && !allowed && own_fault && in_time(*step)
        };
        let steps = self.graph.steps().map(|(step, _)| step);
        // The others that ended badly may have done so because they were stopped.
        let ended = |step: &StepId| self.step(*step).and_then(|known| known.progress.finished_at);
        steps.filter(ended_badly).min_by_key(ended)
    }

    /// When the time of the run is up.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.situation.run.spec.timeout_seconds.map_or(0, Int32::get);
        let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
        let started = self.situation.status.started_at?.0;
        Some(after(started, Duration::from_secs(seconds)))
    }

    fn going(&self, states: &[State]) -> Going {
        match self.stop(states) {
            None => Going::On,
            Some(stop) => Going::Stops(stop.cause()),
        }
    }

    /// Starts what can start, skips what cannot, and ends the run if nothing is left.
    fn go_on(&mut self) {
        loop {
            let states = self.next.states(self.graph);
            let next = advance(self.graph, &states, Going::On, |step| self.condition(step));
            let stop = self.stop(&states);
            // There is nothing to stop about a run that is over.
            if let Some(stop) = stop.filter(|_| next.end.is_none()) {
                self.start_nothing();
                self.stop_steps(stop.cause());
                self.finish(Some(stop));
                return;
            }
            let mut settled = next.fails.is_empty();
            for (step, words) in next.fails {
                self.fail(step, &Rejection::new(Reason::InvalidCondition, words));
            }
            for (step, skipped) in next.skips {
                self.skip(step, skipped);
            }
            for step in next.starts {
                if self.beginning.contains(&step) || self.situation.stops_soon() {
                    continue;
                }
                match self.begin(step, 1) {
                    Begun::Works => settled = false,
                    Begun::Begins => {
                        self.beginning.insert(step);
                    }
                    Begun::Wrong(why) => {
                        self.fail(step, &why);
                        settled = false;
                    }
                }
            }
            if settled {
                self.finish(stop);
                return;
            }
        }
    }

    /// Drops what was about to start or to be taken: it was decided before it was known that the run stops.
    pub(super) fn start_nothing(&mut self) {
        self.effects
            .retain(|effect| !matches!(effect, Effect::CreateChild(_) | Effect::ConsumeSignal { .. }));
    }

    pub(super) fn fail(&mut self, step: StepId, why: &Rejection) {
        let name = self.graph.name(step);
        let message = format!("step {name}: {}", why.message);
        self.notices
            .push(self.situation.warning(Reason::StepFailed, message));
        self.next.step_ended(step, StepEnd::failed(why));
    }

    pub(super) fn skip(&mut self, step: StepId, skipped: Skipped) {
        let cause = skipped.cause.map(|cause| self.graph.name(cause).to_owned());
        self.next.step_skipped(step, skipped, cause.as_deref());
    }

    /// Looks again at this time, if nothing happens before.
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.wake_at = sooner(self.wake_at, Some(at));
    }

    /// Ends the run if every step has ended.
    fn finish(&mut self, stop: Option<Stop>) {
        let states = self.next.states(self.graph);
        let going = stop.map_or(Going::On, |stop| Going::Stops(stop.cause()));
        let next = advance(self.graph, &states, going, |_| Verdict::Run);
        for (step, skipped) in next.skips {
            if stop.is_some() {
                self.skip(step, skipped);
            }
        }
        let Some(end) = next.end else {
            self.tell_what_is_waited_for();
            if let Some(until) = self.deadline().filter(|_| stop.is_none()) {
                self.wake(until);
            }
            return;
        };
        let message = self.summary();
        let mut steps = self.next.status.step_statuses.iter();
        let stopped_any = steps.any(|step| step.reason == Some(Reason::RunStopping));
        let why = match (stop, end) {
            // A run whose last step ended at the last moment did not take too long.
            (Some(Stop::TimedOut), _) if stopped_any => {
                let seconds = self.situation.run.spec.timeout_seconds.map_or(0, Int32::get);
                Some(Rejection::new(
                    Reason::TimedOut,
                    format!(
                        "the run took longer than the {seconds} s of its timeoutSeconds: raise it, or give the steps less to do"
                    ),
                ))
            }
            (Some(Stop::FailFast(step)), RunEnd::Failed(_) | RunEnd::StepCancelled(_)) => {
                Some(self.verdict_by(step))
            }
            (_, RunEnd::Succeeded) => None,
            (_, RunEnd::Failed(step) | RunEnd::StepCancelled(step)) => Some(self.verdict_by(step)),
        };
        match why {
            None => {
                self.next.succeeded(&message);
                self.notices
                    .push(self.situation.normal(Reason::Completed, message));
            }
            Some(why) => {
                self.next.failed(&why);
                self.notices.push(self.situation.warning(why.reason, why.message));
            }
        }
    }

    /// Why the run failed: this step did, or somebody cancelled it.
    fn verdict_by(&self, step: StepId) -> Rejection {
        let known = self.step(step);
        if known.is_some_and(|known| known.progress.phase == Some(StepPhase::Cancelled)) {
            let words = format!("step {} was cancelled", self.graph.name(step));
            return Rejection::new(Reason::StepCancelled, words);
        }
        let reason = known.and_then(|known| known.reason.clone());
        let reason = reason.unwrap_or(Reason::StepFailed);
        let words = known
            .and_then(|known| known.message.as_deref())
            .unwrap_or_default();
        Rejection::new(reason, format!("step {} failed: {words}", self.graph.name(step)))
    }

    /// How many steps ended in which way.
    fn summary(&self) -> String {
        let count = |phase: StepPhase| {
            let steps = self.next.status.step_statuses.iter();
            steps
                .filter(|step| step.progress.phase.as_ref() == Some(&phase))
                .count()
        };
        let told = [
            (count(StepPhase::Succeeded), "succeeded"),
            (count(StepPhase::Failed), "failed and may"),
            (count(StepPhase::Cancelled), "cancelled and may be"),
            (count(StepPhase::Skipped), "skipped"),
        ];
        let told: Vec<String> = told
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, how)| format!("{count} {how}"))
            .collect();
        format!("steps: {}", told.join(", "))
    }

    /// Lists in one place the steps that wait for people, so that somebody can find them.
    fn tell_what_is_waited_for(&mut self) {
        let waiting: Vec<&StepStatus> = self
            .next
            .status
            .step_statuses
            .iter()
            .filter(|step| step.waits_for.is_some())
            .collect();
        let gates = waiting
            .iter()
            .filter_map(|step| step.waits_for.as_ref()?.approval_policy.as_ref());
        let reason = if gates.count() > 0 {
            Reason::ApprovalPending
        } else {
            Reason::SignalPending
        };
        let words: Vec<String> = waiting
            .iter()
            .map(|step| {
                format!(
                    "step {}: {}",
                    step.name,
                    step.message.as_deref().unwrap_or_default()
                )
            })
            .collect();
        let why = (!words.is_empty()).then(|| Rejection::new(reason, words.join("; ")));
        self.next.blocked(why.as_ref());
    }

    fn into_decision(mut self) -> Decision<OrchestrationRunStatus> {
        if !self.questions.is_empty() {
            return Decision::Look(self.questions);
        }
        if self.refused >= REFUSED_ENOUGH {
            self.effects
                .retain(|effect| !matches!(effect, Effect::CreateChild(_)));
        }
        if !self.unsaid.is_empty() && self.next.outputs_may_be_left_out(self.active().len()) {
            // Whose outputs have room depends on who is recorded first. Nothing is made of what could be found otherwise later.
            self.hurried = true;
            self.effects
                .retain(|effect| !matches!(effect, Effect::CreateChild(_)));
        }
        self.effects.extend(super::gate::mark(&self));
        self.effects.extend(finished::let_go_past(self.situation));
        // What is made or taken is recorded as it was answered, with the next plan. A mark is a new version of the run itself.
        let first_done = self.effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::CreateChild(_) | Effect::ConsumeSignal { .. } | Effect::MarkApproval { .. }
            )
        });
        let hurry = if first_done { Hurry::Now } else { self.hurry() };
        if let Hurry::Not { until } | Hurry::InTurn { until } = hurry {
            self.wake(until);
        }
        let (status, notices) = if first_done || matches!(hurry, Hurry::Not { .. }) {
            (None, Vec::new())
        } else {
            (self.next.into_status(), self.notices)
        };
        Decision::Act(Plan {
            effects: self.effects,
            // An Event tells of a change.
            notices: if status.is_some() { notices } else { Vec::new() },
            status,
            wake_at: self.wake_at,
            gives_way: matches!(hurry, Hurry::InTurn { .. }),
        })
    }
}

impl Walk<'_> {
    /// Whether what there is to say has to be said now. Where there is much to do, that children were made a moment ago, or have done their
    /// work, is said later. The children are the record of that, through all layers that are unsaid: their names and what they are
    /// made of follow from the steps, what they gave back stands in them, and our finalizer keeps them. What comes next says it as
    /// well, in one write.
    fn hurry(&self) -> Hurry {
        let Situation { now, observed, .. } = *self.situation;
        let until = self.unsaid.iter().map(Unsaid::until).min();
        let since = self.unsaid.iter().map(|unsaid| unsaid.since).min();
        let (Some(until), Some(since)) = (until, since) else {
            return Hurry::Now;
        };
        let last = after(since, UNTOLD_MAX);
        let idle = self
            .effects
            .iter()
            .all(|effect| matches!(effect, Effect::ReleaseChild { .. }));
        let steps: BTreeSet<StepId> = self.unsaid.iter().map(|unsaid| unsaid.step).collect();
        let few = steps.len() <= UNSAID_STEPS_MAX;
        let can_wait = observed.busy && !self.hurried && idle && few;
        // A time that lies ahead was stamped before the clock was set back.
        let plausible = until <= after(now, MADE_UNSAID_MAX);
        if !can_wait || !plausible || !self.next.says_nothing_but_that_these_do_well(&steps) {
            Hurry::Now
        } else if now < until {
            Hurry::Not { until }
        } else if now < last {
            Hurry::InTurn { until: last }
        } else {
            Hurry::Now
        }
    }
}

impl Stop {
    const fn cause(self) -> Skipped {
        Skipped {
            why: Why::RunStopping,
            cause: match self {
                Self::TimedOut => None,
                Self::FailFast(step) => Some(step),
            },
        }
    }
}

/// A time as a status has it.
pub(super) const fn stored(at: Timestamp) -> values::Timestamp {
    values::Timestamp(at)
}
