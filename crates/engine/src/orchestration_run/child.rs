//! The run that does the work of a step: what its parent reads of it, and how it is made.

use std::{collections::BTreeMap, sync::Arc};

use jangar_api::{
    agents::agent_run::{AgentRun, AgentRunSpec},
    cancel::CancelRequest,
    condition::{CommonStatus, ConditionType},
    labels::{
        CREATED_BY, ORCHESTRATION_ANCESTORS, ORCHESTRATION_ATTEMPT, ORCHESTRATION_RUN, ORCHESTRATION_STEP,
        RUNTIME_CLEANUP_FINALIZER,
    },
    names::{DnsLabel, label_value},
    orchestration::orchestration_run::{
        OrchestrationRun, OrchestrationRunSpec, OrchestrationRunStatus, ResourceRef,
    },
    phase::RunPhase,
    refs::LocalRef,
    tools::{ToolRun, ToolRunSpec},
    values::{FreeForm, Int32},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value};

use super::survivors;
use crate::decision::{ChildId, ChildKind, Effect, NewChild, ObjectId, Uid};

/// A run that does the work of a step.
#[derive(Clone, Debug)]
pub enum Child {
    AgentRun(Arc<AgentRun>),
    ToolRun(Arc<ToolRun>),
    OrchestrationRun(Arc<OrchestrationRun>),
}

impl Child {
    pub const fn kind(&self) -> ChildKind {
        match self {
            Self::AgentRun(_) => ChildKind::AgentRun,
            Self::ToolRun(_) => ChildKind::ToolRun,
            Self::OrchestrationRun(_) => ChildKind::OrchestrationRun,
        }
    }

    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::AgentRun(run) => &run.metadata,
            Self::ToolRun(run) => &run.metadata,
            Self::OrchestrationRun(run) => &run.metadata,
        }
    }

    pub(super) fn name(&self) -> String {
        self.metadata().name.clone().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> Uid {
        Uid(self.metadata().uid.clone().unwrap_or_default())
    }

    pub(super) fn id(&self) -> ChildId {
        ChildId {
            kind: self.kind(),
            id: ObjectId {
                name: self.name(),
                uid: self.uid(),
            },
            parent: self.owner(),
        }
    }

    fn common(&self) -> Option<&CommonStatus> {
        match self {
            Self::AgentRun(run) => run.status.as_ref().map(|status| &status.common),
            Self::ToolRun(run) => run.status.as_ref().map(|status| &status.common),
            Self::OrchestrationRun(run) => run.status.as_ref().map(|status| &status.common),
        }
    }

    /// How it ended, if it did.
    pub(super) fn end(&self) -> Option<&RunPhase> {
        let phase = match self {
            Self::AgentRun(run) => run.status.as_ref()?.phase.as_ref(),
            Self::ToolRun(run) => run.status.as_ref()?.phase.as_ref(),
            Self::OrchestrationRun(run) => run.status.as_ref()?.phase.as_ref(),
        };
        phase.filter(|phase| phase.is_terminal())
    }

    /// When it said how it ended, if it did.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.end()?;
        let told = self.common()?.condition(&ConditionType::Succeeded)?;
        told.last_transition_time.map(|at| at.0)
    }

    pub(super) fn created_at(&self) -> Option<Timestamp> {
        self.metadata().creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Why it stands where it does, in words.
    pub(super) fn message(&self) -> Option<&str> {
        let condition = self.common()?.condition(&ConditionType::Succeeded)?;
        Some(condition.message.as_str()).filter(|message| !message.is_empty())
    }

    /// Whether something of it outlived its end. A run of an orchestration may have ended in any way by then: what of a step could not be
    /// stopped stands in its receipts.
    pub(super) fn has_survivors(&self) -> bool {
        let common = self.common();
        common.is_some_and(|common| crate::parent::outlived_its_cancel(self.end(), common))
            || self.below().is_some_and(survivors::are_any)
    }

    /// What a run of an orchestration that has ended says.
    fn below(&self) -> Option<&OrchestrationRunStatus> {
        match self {
            Self::AgentRun(_) | Self::ToolRun(_) => None,
            Self::OrchestrationRun(run) => self.end().and(run.status.as_ref()),
        }
    }

    /// Whether its parent has asked it to stop. That somebody else has proves nothing: they may not be allowed to.
    pub(super) fn is_asked_to_stop(&self) -> bool {
        let stop = match self {
            Self::AgentRun(run) => &run.spec.stop,
            Self::ToolRun(run) => &run.spec.stop,
            Self::OrchestrationRun(run) => &run.spec.stop,
        };
        stop.is_requested() && crate::parent::is_stopped_from_above(self.metadata())
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// The UID of the OrchestrationRun that it was made for.
    pub(super) fn owner(&self) -> Option<Uid> {
        crate::parent::of(self.metadata()).map(|owner| Uid(owner.uid.clone()))
    }

    /// The step that it was made for, as its label has it, and the attempt.
    pub(super) fn place(&self) -> Option<(&str, u32)> {
        let metadata = self.metadata();
        let step = metadata.labels.as_ref()?.get(ORCHESTRATION_STEP)?;
        let attempt = metadata.annotations.as_ref()?.get(ORCHESTRATION_ATTEMPT)?;
        Some((step, attempt.parse().ok()?))
    }

    pub(super) fn is_held(&self) -> bool {
        let mut finalizers = self.metadata().finalizers.iter().flatten();
        finalizers.any(|name| name == RUNTIME_CLEANUP_FINALIZER)
    }

    /// What it gave back. Of an orchestration, that is what its steps did, by their names.
    pub(super) fn outputs(&self) -> Option<FreeForm> {
        match self {
            Self::AgentRun(run) => run.status.as_ref()?.outcome.as_ref()?.outputs.clone(),
            Self::ToolRun(run) => run.status.as_ref()?.outcome.as_ref()?.outputs.clone(),
            Self::OrchestrationRun(run) => {
                let steps = run.status.as_ref()?.step_statuses.iter();
                let outputs: Map<String, Value> = steps
                    .filter_map(|step| Some((step.name.clone(), Value::Object(step.outputs.clone()?.0))))
                    .collect();
                (!outputs.is_empty()).then_some(FreeForm(outputs))
            }
        }
    }

    pub(super) fn resource_ref(&self) -> ResourceRef {
        let api_version = match self {
            Self::AgentRun(_) => AgentRun::api_version(&()),
            Self::ToolRun(_) => ToolRun::api_version(&()),
            Self::OrchestrationRun(_) => OrchestrationRun::api_version(&()),
        };
        ResourceRef {
            api_version: Some(api_version.into_owned()),
            kind: Some(self.kind().to_string()),
            name: Some(self.name()),
            namespace: self.metadata().namespace.clone(),
            uid: Some(self.uid().0),
        }
    }

    /// Lets it go.
    pub(super) fn release(&self) -> Effect {
        Effect::ReleaseChild {
            child: self.id(),
            finalizers: self.metadata().finalizers.clone().unwrap_or_default(),
        }
    }
}

/// The name of the child of one attempt.
pub(super) fn name(run: &str, step: &str, attempt: u32) -> String {
    DnsLabel::child(run, step, attempt).into()
}

/// What a child is made of.
pub(super) struct Draft<'a> {
    pub parent: &'a OrchestrationRun,
    pub step: &'a str,
    pub attempt: u32,
    pub parameters: BTreeMap<String, String>,
    /// The labels that every run must have: a child has them from its parent.
    pub labels_required: &'a [String],
}

impl Draft<'_> {
    pub(super) fn agent_run(self, mut spec: AgentRunSpec) -> NewChild {
        let metadata = self.metadata();
        spec.parameters = self.parameters;
        spec.stop = CancelRequest::default();
        NewChild::AgentRun(AgentRun {
            metadata,
            spec,
            status: None,
        })
    }

    pub(super) fn tool_run(self, tool: String, runtime: Option<FreeForm>) -> NewChild {
        NewChild::ToolRun(ToolRun {
            metadata: self.metadata(),
            spec: ToolRunSpec {
                tool_ref: LocalRef { name: tool },
                parameters: self.parameters,
                runtime,
                ..ToolRunSpec::default()
            },
            status: None,
        })
    }

    /// `ancestors` are the Orchestrations above the new run.
    pub(super) fn orchestration_run(self, orchestration: String, ancestors: &[String]) -> NewChild {
        let mut metadata = self.metadata();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(ORCHESTRATION_ANCESTORS.to_owned(), ancestors.join(","));
        NewChild::OrchestrationRun(OrchestrationRun {
            metadata,
            spec: OrchestrationRunSpec {
                orchestration_ref: LocalRef { name: orchestration },
                parameters: self.parameters,
                failure_policy: self.parent.spec.failure_policy.clone(),
                ..OrchestrationRunSpec::default()
            },
            status: None,
        })
    }

    fn metadata(&self) -> ObjectMeta {
        let parent = self.parent.name_any();
        let of_parent = self.parent.labels();
        let inherited = self.labels_required.iter().filter_map(|key| {
            let value = of_parent.get(key)?;
            Some((key.clone(), value.clone()))
        });
        let mut labels: BTreeMap<String, String> = inherited.collect();
        labels.extend(owned([
            (ORCHESTRATION_RUN, parent.clone()),
            (ORCHESTRATION_STEP, label_value(self.step)),
        ]));
        let creator = self.parent.annotations().get(CREATED_BY);
        let annotations = [(ORCHESTRATION_ATTEMPT, self.attempt.to_string())]
            .into_iter()
            .chain(creator.map(|creator| (CREATED_BY, creator.clone())));
        ObjectMeta {
            name: Some(name(&parent, self.step, self.attempt)),
            namespace: self.parent.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(owned(annotations)),
            finalizers: Some(vec![RUNTIME_CLEANUP_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: OrchestrationRun::api_version(&()).into_owned(),
                kind: OrchestrationRun::kind(&()).into_owned(),
                name: parent,
                uid: self.parent.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        }
    }
}

fn owned(pairs: impl IntoIterator<Item = (&'static str, String)>) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The number of an attempt as a status has it.
pub(super) fn number(attempt: u32) -> Int32 {
    Int32::from(i32::try_from(attempt).unwrap_or(i32::MAX))
}
