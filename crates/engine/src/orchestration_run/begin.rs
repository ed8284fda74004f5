//! One step starts: its values are looked up, and its child is made.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{
    labels::ORCHESTRATION_ANCESTORS,
    orchestration::{Step, orchestration_run::WaitsFor},
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::Value;

use super::{
    after,
    child::{self, Child, Draft},
    follow::{Good, Unsaid, Walk},
    gate, origin,
    step_end::StepEnd,
};
use crate::{
    decision::{ChildKind, Effect, NewChild, Refusal, Rejection},
    orchestration::{
        Node, StepId,
        values::render,
        work::{self, Work},
    },
    parent::NESTED_MAX,
    template::{TemplateError, render_strict},
};

/// When to look again at a name that something else has, which is going away: no event of it may come.
const NAME_RETRY: Duration = Duration::from_secs(5);

/// When a child is sent again that the API server did not let in. Nothing tells when it would.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);
/// After so many of them the rest is not even tried: what is used up for these is used up for all, and each costs a request.
const FORBIDDEN_ENOUGH: usize = 32;

/// So many steps that fail because the API server will never take their child are recorded before the next are sent. What it
/// says to each is known only until the reconcile is over.
pub(super) const REFUSED_ENOUGH: usize = 32;

/// What became of a step that was to start.
pub(super) enum Begun {
    /// It works, or has ended already.
    Works,
    /// Its child is about to be made.
    Begins,
    Wrong(Rejection),
}

impl Walk<'_> {
    /// Starts an attempt of a step.
    pub(super) fn begin(&mut self, step: StepId, attempt: u32) -> Begun {
        let Some(node) = self.graph.node(step) else {
            return Begun::Begins;
        };
        let kind = match &node.work {
            Work::AgentRun(_) => ChildKind::AgentRun,
            Work::ToolRun { .. } => ChildKind::ToolRun,
            Work::SubOrchestration { .. } => ChildKind::OrchestrationRun,
            Work::ApprovalGate { .. } | Work::SignalWait { .. } | Work::Checkpoint => {
                return self.wait(step, attempt, &node.work);
            }
        };
        let name = child::name(&self.situation.name(), &node.name, attempt);
        let key = (kind, name);
        if let Some(child) = self.situation.observed.children.get(&key) {
            return self.find(step, node, attempt, child);
        }
        if let Some(refusal) = self.forbidden(&key) {
            let words = format!(
                "the API server does not let {kind} {} in, which is tried again: {}",
                key.1, refusal.message
            );
            return self.held_up(
                step,
                FORBIDDEN_RETRY,
                &Rejection::new(Reason::ChildForbidden, words),
            );
        }
        if let Some(refusal) = self.situation.observed.refusals.get(&key) {
            self.refused += 1;
            let words = format!("the API server refused {kind} {}: {}", key.1, refusal.message);
            return Begun::Wrong(Rejection::new(Reason::ChildRejected, words));
        }
        match self.draft(step, node, attempt) {
            Ok(child) => {
                self.effects.push(Effect::CreateChild(Box::new(child)));
                Begun::Begins
            }
            Err(why) => Begun::Wrong(why),
        }
    }

    /// There is something of the name of the child already: it was made a moment ago, or is not ours.
    fn find(&mut self, step: StepId, node: &Node, attempt: u32, child: &Child) -> Begun {
        if child.owner().as_ref() == Some(&self.situation.uid) {
            return self.adopt(step, node, attempt, child);
        }
        let name = child.name();
        let of_earlier_run =
            crate::parent::of(child.metadata()).is_some_and(|parent| parent.name == self.situation.name());
        if of_earlier_run || child.is_deleting() {
            let whose = if of_earlier_run {
                "of an earlier run of this name"
            } else {
                "which is not this run's"
            };
            let words = format!(
                "waits until {} {name} is gone, {whose} and has the name that the step needs",
                child.kind()
            );
            return self.held_up(step, NAME_RETRY, &Rejection::new(Reason::NameTaken, words));
        }
        Begun::Wrong(Rejection::new(
            Reason::NameTaken,
            format!(
                "{} {name} is there already, and was not made for this run: delete it, or give the run another name",
                child.kind()
            ),
        ))
    }

    /// A child of this run that nobody recorded: it is the step's if the step would make the same.
    fn adopt(&mut self, step: StepId, node: &Node, attempt: u32, child: &Child) -> Begun {
        match self.draft(step, node, attempt) {
            Ok(draft) if child.is_made_as(&draft) => {
                self.next.step_works(step, node, attempt, child);
                if let Some(since) = child.created_at().filter(|_| child.is_held()) {
                    let what = Good::Made;
                    self.unsaid.push(Unsaid { step, what, since });
                }
                self.look_at(step, node);
                Begun::Works
            }
            Ok(_) => Begun::Wrong(Rejection::new(
                Reason::NameTaken,
                format!(
                    "{} {} is there already and belongs to this run, but its spec is not the one of this step: somebody made or \
                     changed it; delete it, and start the run again under another name",
                    child.kind(),
                    child.name()
                ),
            )),
            Err(why) => Begun::Wrong(why),
        }
    }

    /// A step cannot start yet: says why, and looks again later.
    fn held_up(&mut self, step: StepId, wait: Duration, why: &Rejection) -> Begun {
        self.next.step_held_up(step, why);
        self.wake(after(self.situation.now, wait));
        Begun::Begins
    }

    /// What the API server said to a child that it does not let in, for want of a right or of room in a quota, or because of a trouble that
    /// lasts. Once it has said so
    /// to many, no others of the kind are sent for now.
    fn forbidden(&self, key: &(ChildKind, String)) -> Option<&Refusal> {
        let refusals = &self.situation.observed.refusals;
        let passing =
            |(other, refusal): &(&(ChildKind, String), &Refusal)| other.0 == key.0 && may_pass(refusal);
        let own = refusals.get(key).filter(|refusal| may_pass(refusal));
        own.or_else(|| {
            let mut all = refusals.iter().filter(passing).map(|(_, refusal)| refusal);
            all.nth(FORBIDDEN_ENOUGH - 1)
        })
    }

    /// The child that an attempt of a step makes. It follows from the run, its definition and what the steps before gave back, so that it
    /// is the same whenever it is asked for.
    pub(super) fn draft(&self, step: StepId, node: &Node, attempt: u32) -> Result<NewChild, Rejection> {
        self.unstamped(step, attempt, &node.work, &node.step)
            .map(origin::stamped)
    }

    fn unstamped(
        &self,
        step: StepId,
        attempt: u32,
        work: &Work,
        written: &Step,
    ) -> Result<NewChild, Rejection> {
        let values = self.values(step);
        let run = self.situation.run;
        let mut parameters = run.spec.parameters.clone();
        parameters.extend(rendered(&work::parameters(written), &values)?);
        let draft = Draft {
            parent: run,
            step: self.graph.name(step),
            attempt,
            parameters,
            labels_required: &self.situation.settings.policy.labels_required,
        };
        match work {
            Work::AgentRun(spec) => {
                let mut spec = spec.as_ref().clone();
                spec.agent_ref.name = text(&spec.agent_ref.name, &values)?;
                if let Some(reference) = spec.implementation_spec_ref.as_mut() {
                    reference.name = text(&reference.name, &values)?;
                }
                work::render_texts(&mut spec, &values).map_err(|error| wrong(&error))?;
                Ok(draft.agent_run(spec))
            }
            Work::ToolRun { tool, runtime } => Ok(draft.tool_run(text(tool, &values)?, runtime.clone())),
            Work::SubOrchestration { orchestration } => {
                let name = text(orchestration, &values)?;
                let ancestors = self.ancestors();
                not_nested_too_deeply(&name, &ancestors)?;
                Ok(draft.orchestration_run(name, &ancestors))
            }
            Work::ApprovalGate { .. } | Work::SignalWait { .. } | Work::Checkpoint => Err(Rejection::new(
                Reason::UnsupportedStep,
                "a step of this kind has no child",
            )),
        }
    }

    /// The Orchestrations above a child of this run: those above the run, and its own.
    fn ancestors(&self) -> Vec<String> {
        let run = self.situation.run;
        let above = run.annotations().get(ORCHESTRATION_ANCESTORS);
        let above = above.map(String::as_str).unwrap_or_default();
        let above = above.split(',').filter(|name| !name.is_empty());
        above
            .chain([run.spec.orchestration_ref.name.trim()])
            .map(str::to_owned)
            .collect()
    }

    /// A step that has no child: it waits, or is over at once.
    fn wait(&mut self, step: StepId, attempt: u32, work: &Work) -> Begun {
        let values = self.values(step);
        let waits_for = match work {
            Work::ApprovalGate { policy } => text(policy, &values).and_then(|policy| {
                let shown = self.shown(step, &policy)?;
                Ok((shown, gate::pending(&policy)))
            }),
            Work::SignalWait { signal, delivery_id } => {
                optional(signal.as_deref(), &values).and_then(|signal| {
                    let delivery_id = optional(delivery_id.as_deref(), &values)?;
                    let what = match (&signal, &delivery_id) {
                        (Some(signal), None) => format!("Signal {signal}"),
                        (Some(signal), Some(id)) => format!("delivery {id} of Signal {signal}"),
                        (None, id) => format!("delivery {} of a Signal", id.as_deref().unwrap_or_default()),
                    };
                    let why = Rejection::new(Reason::SignalPending, format!("waits for {what}"));
                    let waits_for = WaitsFor {
                        signal,
                        delivery_id,
                        ..WaitsFor::default()
                    };
                    Ok((waits_for, why))
                })
            }
            _ => {
                let name = self.graph.name(step);
                let notice = self
                    .situation
                    .normal(Reason::Completed, format!("checkpoint {name} was reached"));
                self.notices.push(notice);
                self.next.step_ended(step, StepEnd::succeeded(None));
                return Begun::Works;
            }
        };
        match waits_for {
            Ok((waits_for, why)) => {
                let name = self.graph.name(step);
                let message = format!("step {name} {}", why.message);
                self.notices
                    .push(self.situation.normal(why.reason.clone(), message));
                self.next.step_waits(step, attempt, waits_for, &why);
                Begun::Works
            }
            Err(why) => Begun::Wrong(why),
        }
    }
}

/// Whether an answer may be another one later: a quota has room again, somebody grants a right, or the API server can do again what it
/// could not.
const fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal.code, 403 | 429 | 500..)
}

fn not_nested_too_deeply(name: &str, ancestors: &[String]) -> Result<(), Rejection> {
    let way = || format!("{} -> {name}", ancestors.join(" -> "));
    if ancestors.iter().any(|above| above == name) {
        return Err(Rejection::new(
            Reason::RecursionRefused,
            format!("Orchestration {name} would run itself: {}", way()),
        ));
    }
    if ancestors.len() >= NESTED_MAX {
        return Err(Rejection::new(
            Reason::RecursionRefused,
            format!("orchestrations may be nested {NESTED_MAX} deep: {}", way()),
        ));
    }
    Ok(())
}

fn wrong(error: &TemplateError) -> Rejection {
    Rejection::new(Reason::InvalidTemplate, error.to_string())
}

fn text(template: &str, values: &Value) -> Result<String, Rejection> {
    render_strict(template, values).map_err(|error| wrong(&error))
}

fn optional(template: Option<&str>, values: &Value) -> Result<Option<String>, Rejection> {
    template.map(|template| text(template, values)).transpose()
}

pub(super) fn rendered(
    templates: &BTreeMap<String, String>,
    values: &Value,
) -> Result<BTreeMap<String, String>, Rejection> {
    render(templates, values).map_err(|error| wrong(&error))
}
