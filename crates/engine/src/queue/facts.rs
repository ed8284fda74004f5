//! What the objects of one run say to the queue.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::{
    agents::agent_run::{AgentRun, RuntimeType},
    condition::{ConditionStatus, ConditionType},
    labels,
    phase::RunPhase,
    reason::Reason,
};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Resource, ResourceExt};

use super::{scope::Lane, usage::Admission};
use crate::{
    decision::{Key, Uid},
    parent, removal,
};

/// The parameters that name the repository of a run, the first that is set.
const REPOSITORY_PARAMETERS: [&str; 3] = ["repository", "repo", "issueRepository"];

/// A run as it contends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub uid: Uid,
    pub lane: Lane,
    pub priority: i32,
    pub created: Timestamp,
    pub idempotency_key: Option<String>,
}

impl Demand {
    pub fn of(namespace: &str, run: &AgentRun) -> Self {
        let key = run.spec.idempotency_key.as_deref().map(str::trim);
        let created = run.metadata.creation_timestamp.as_ref();
        Self {
            uid: Uid(run.uid().unwrap_or_default()),
            lane: Lane {
                namespace: namespace.to_owned(),
                agent: run.spec.agent_ref.name.trim().to_owned(),
                repository: repository_of(run),
            },
            priority: run.spec.priority.get(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            idempotency_key: key.filter(|key| !key.is_empty()).map(str::to_owned),
        }
    }

    /// The same run, which has found out that it works on this repository.
    #[must_use]
    pub fn working_on(mut self, repository: Option<&str>) -> Self {
        self.lane.repository = repository.map(str::to_owned);
        self
    }
}

/// The repository that a run works on, in lower case, as far as the run itself tells: as its status has it, or as its
/// parameters name it. What else it refers to may name another one, which is known when it asks for its slot.
pub fn repository_of(run: &AgentRun) -> Option<String> {
    let status = run.status.as_ref();
    let in_line = status
        .and_then(|status| status.waiting.as_ref())
        .and_then(|waiting| waiting.repository.as_deref());
    let by_runtime = status
        .and_then(|status| status.runtime_ref.as_ref())
        .and_then(|record| record.0.get("repository")?.as_str());
    let by_vcs = status
        .and_then(|status| status.vcs.as_ref())
        .and_then(|vcs| vcs.repository.as_deref());
    let named = REPOSITORY_PARAMETERS
        .iter()
        .filter_map(|name| run.spec.parameters.get(*name).map(String::as_str));
    in_line
        .into_iter()
        .chain(by_runtime)
        .chain(by_vcs)
        .chain(named)
        .map(str::trim)
        .find(|name| !name.is_empty())
        .map(str::to_lowercase)
}

/// What the objects of one name say: the run, its Jobs and their pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub(super) run: Option<RunFacts>,
    pub(super) slots: Vec<Slot>,
}

/// A run that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunFacts {
    pub demand: Demand,
    pub stands: Stands,
    /// Something was started for it, whatever became of it.
    pub executed: bool,
    /// When it was last let in, as its status says.
    pub admitted_at: Option<Timestamp>,
}

/// Whether a run contends, as far as its objects tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// It wants to start, or says that it waits for its turn.
    Contends,
    /// It has started, or waits for something else. It may ask to start something later.
    Apart,
    /// It will start nothing any more.
    Over,
}

/// What takes a slot, or took one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The UID of the Job, or of the run where no Job executes it.
    pub id: Uid,
    pub run: Uid,
    pub lane: Lane,
    pub admitted_at: Option<Timestamp>,
    pub hold: Hold,
}

/// What holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// A pod that works, or may; or whatever else executes the run.
    Pod,
    /// A Job that has no pod and does not say that it has ended: it may not have begun.
    Job,
    /// Nothing any more.
    Over,
}

impl Facts {
    /// Reads the objects that carry the name of a run. They may belong to different runs, one after the other. `cancels` says
    /// whether the settings let runs be cancelled.
    pub fn of<'a>(
        key: &Key,
        run: Option<&AgentRun>,
        jobs: impl IntoIterator<Item = &'a Job>,
        pods: impl IntoIterator<Item = &'a Pod>,
        cancels: bool,
    ) -> Self {
        let demand = run.map(|run| Demand::of(&key.namespace, run));
        let mut seen = Pods::of(pods);
        let mut slots: Vec<Slot> = jobs
            .into_iter()
            .filter_map(|job| of_job(key, job, demand.as_ref(), &seen))
            .collect();
        for slot in &slots {
            seen.living.remove(&slot.id);
        }
        // The Job is gone, and its pod works on.
        slots.extend(seen.living.into_iter().map(|(job, agent)| {
            let lane = Lane {
                namespace: key.namespace.clone(),
                agent,
                repository: None,
            };
            Slot {
                id: job,
                run: demand
                    .as_ref()
                    .map_or_else(|| Uid(String::new()), |demand| demand.uid.clone()),
                lane: demand.as_ref().map_or(lane, |demand| demand.lane.clone()),
                admitted_at: None,
                hold: Hold::Pod,
            }
        }));
        let (Some(run), Some(demand)) = (run, demand) else {
            return Self { run: None, slots };
        };
        slots.extend(without_job(run, &demand));
        let own = |slot: &&Slot| slot.run == demand.uid;
        let has_job = slots.iter().any(|slot| own(&slot));
        let works = slots.iter().filter(own).any(|slot| slot.hold != Hold::Over);
        let status = run.status.as_ref();
        Self {
            run: Some(RunFacts {
                stands: stands(run, has_job, works, cancels),
                executed: has_job
                    || status
                        .is_some_and(|status| status.runtime_ref.is_some() || status.admitted_at.is_some()),
                admitted_at: status.and_then(|status| status.admitted_at).map(|at| at.0),
                demand,
            }),
            slots,
        }
    }

    pub(super) fn uid(&self) -> Option<&Uid> {
        self.run.as_ref().map(|run| &run.demand.uid)
    }

    /// Whether the run will start nothing any more, or is not there.
    pub(super) fn is_over(&self) -> bool {
        self.run.as_ref().is_none_or(|run| run.stands == Stands::Over)
    }

    /// When its runs were let in, as far as objects tell.
    pub(super) fn admissions(&self) -> BTreeMap<Admission, Lane> {
        let of_run = self.run.iter().filter_map(|run| {
            Some((
                (run.admitted_at?, run.demand.uid.clone()),
                run.demand.lane.clone(),
            ))
        });
        let of_jobs = self
            .slots
            .iter()
            .filter_map(|slot| Some(((slot.admitted_at?, slot.run.clone()), slot.lane.clone())));
        of_run.chain(of_jobs).collect()
    }
}

/// The pods of Jobs, by the UID of the Job.
struct Pods {
    /// Those that work, or may, with the agent that their label names.
    living: BTreeMap<Uid, String>,
    ended: BTreeSet<Uid>,
}

impl Pods {
    fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut all = Self {
            living: BTreeMap::new(),
            ended: BTreeSet::new(),
        };
        for pod in pods {
            let owners = pod.owner_references();
            let job = owners
                .iter()
                .find(|owner| owner.controller == Some(true) && owner.kind == "Job");
            // Somebody may have given our label to a pod that is not ours.
            let (Some(job), Some(agent)) = (job, pod.labels().get(labels::AGENT)) else {
                continue;
            };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if matches!(phase, Some("Succeeded" | "Failed")) {
                all.ended.insert(Uid(job.uid.clone()));
            } else {
                all.living.insert(Uid(job.uid.clone()), agent.clone());
            }
        }
        all
    }
}

/// The slot of a Job: from its creation until its pod has ended. A Job without a pod has not begun, unless it says that it
/// has ended.
fn of_job(key: &Key, job: &Job, demand: Option<&Demand>, pods: &Pods) -> Option<Slot> {
    let annotations = job.annotations();
    let admitted_at = annotations.get(labels::ADMITTED_AT)?.parse().ok();
    let owners = job.owner_references();
    let owner = owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == AgentRun::kind(&()));
    let id = Uid(job.uid().unwrap_or_default());
    let run = owner.map_or_else(|| Uid(String::new()), |owner| Uid(owner.uid.clone()));
    let agent = match demand.filter(|demand| demand.uid == run) {
        Some(demand) => demand.lane.agent.clone(),
        None => job.labels().get(labels::AGENT).cloned().unwrap_or_default(),
    };
    let hold = if pods.living.contains_key(&id) {
        Hold::Pod
    } else if has_ended(job) || pods.ended.contains(&id) {
        Hold::Over
    } else {
        Hold::Job
    };
    Some(Slot {
        id,
        run,
        lane: Lane {
            namespace: key.namespace.clone(),
            agent,
            repository: annotations.get(labels::REPOSITORY).cloned(),
        },
        admitted_at,
        hold,
    })
}

fn has_ended(job: &Job) -> bool {
    let status = job.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })
}

/// The slot of a run that no Job executes: its status is the record that it was let in, and tells when it is over, and when what
/// did its work has been told.
fn without_job(run: &AgentRun, demand: &Demand) -> Option<Slot> {
    let status = run.status.as_ref()?;
    let admitted_at = status.admitted_at?.0;
    match run.spec.runtime.type_ {
        RuntimeType::Job | RuntimeType::Workflow | RuntimeType::Other(_) => None,
        RuntimeType::Temporal | RuntimeType::Custom => Some(Slot {
            id: demand.uid.clone(),
            run: demand.uid.clone(),
            lane: demand.lane.clone(),
            admitted_at: Some(admitted_at),
            hold: match &status.phase {
                Some(phase) if phase.is_terminal() && !removal::is_under_way(run) => Hold::Over,
                _ => Hold::Pod,
            },
        }),
    }
}

pub(super) fn stands(run: &AgentRun, has_job: bool, works: bool, cancels: bool) -> Stands {
    let status = run.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    let stopping =
        phase == Some(&RunPhase::Cancelling) || parent::has_to_stop(&run.metadata, &run.spec.stop, cancels);
    if phase.is_some_and(RunPhase::is_terminal) || stopping || run.metadata.deletion_timestamp.is_some() {
        return Stands::Over;
    }
    let blocked = status
        .and_then(|status| status.common.condition(&ConditionType::Blocked))
        .filter(|blocked| blocked.status == ConditionStatus::True)
        .map(|blocked| &blocked.reason);
    let started = has_job || status.is_some_and(|status| status.runtime_ref.is_some());
    match blocked {
        _ if works => Stands::Apart,
        Some(Reason::ConcurrencyLimit | Reason::QueueLimit | Reason::RateLimit) => Stands::Contends,
        Some(_) => Stands::Apart,
        None if started => Stands::Apart,
        None => Stands::Contends,
    }
}
