//! That no limit is exceeded at any moment, counted from the outside: by the Jobs and pods that there are, and by the status of
//! runs that no Job executes, and not by what the controllers believe.

use std::collections::{BTreeMap, BTreeSet};

use jangar_api::labels;
use jangar_engine::settings::LimitSettings;
use jiff::Timestamp;
use kubelite::store::{Event, EventKind};
use serde_json::Value;

use crate::world;

/// What is under way, as the API shows it.
#[derive(Debug)]
pub struct Slots {
    limits: LimitSettings,
    /// By their UID.
    jobs: BTreeMap<String, JobView>,
    pods: BTreeMap<String, PodView>,
    /// The Jobs whose pod has ended.
    over: BTreeSet<String>,
    runs: BTreeMap<String, RunKey>,
    /// The runs that were let in and that no Job executes.
    elsewhere: BTreeMap<String, JobView>,
    starts: Vec<(Timestamp, Option<String>)>,
}

#[derive(Debug)]
struct JobView {
    agent: String,
    repository: Option<String>,
    run: String,
    ended: bool,
}

#[derive(Debug)]
struct PodView {
    job: String,
    agent: String,
    ended: bool,
}

/// By what a run is executed once: its agent, and its idempotency key.
type RunKey = (String, String);

impl Slots {
    pub fn new(limits: LimitSettings) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            over: BTreeSet::new(),
            runs: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            starts: Vec::new(),
        }
    }

    /// The rules that are broken after a change.
    pub fn broken_by(&mut self, event: &Event) -> Vec<String> {
        let value = event.object.value();
        let uid = event.object.meta.uid.clone();
        let gone = event.kind == EventKind::Deleted;
        let mut found = Vec::new();
        if event.collection == world::runs() {
            self.runs.remove(&uid);
            if let Some(key) = value["spec"]["idempotencyKey"].as_str().filter(|_| !gone) {
                let agent = text(&value["spec"]["agentRef"]["name"]);
                self.runs.insert(uid.clone(), (agent, key.to_owned()));
            }
            let before = self.elsewhere.remove(&uid);
            if let Some(run) = without_job(&uid, &value).filter(|_| !gone) {
                if before.is_none() {
                    found.extend(self.too_fast(&run, &value["status"]["admittedAt"]));
                    found.extend(self.executed_twice(&run));
                }
                self.elsewhere.insert(uid, run);
            }
        } else if event.collection == world::jobs() {
            if gone {
                self.jobs.remove(&uid);
            } else if let Some(job) = job(&value) {
                if event.kind == EventKind::Added {
                    let stamp = &value["metadata"]["annotations"][labels::ADMITTED_AT];
                    found.extend(self.too_fast(&job, stamp));
                    found.extend(self.executed_twice(&job));
                }
                self.jobs.insert(uid, job);
            }
        } else if event.collection == world::pods() {
            let pod = pod(&value);
            // The pod may be gone before anybody looks again: that its work is over is remembered.
            if let Some(over) = pod.as_ref().filter(|pod| pod.ended) {
                self.over.insert(over.job.clone());
            }
            match pod {
                Some(pod) if !gone => drop(self.pods.insert(uid, pod)),
                Some(_) | None => drop(self.pods.remove(&uid)),
            }
        } else {
            return found;
        }
        found.extend(self.too_many());
        found
    }

    /// Too many at once.
    fn too_many(&self) -> Vec<String> {
        let works = |job: &String| self.pods.values().any(|pod| pod.job == *job && !pod.ended);
        let held = self
            .jobs
            .iter()
            .filter(|(uid, job)| works(uid) || (!job.ended && !self.over.contains(*uid)))
            .map(|(_, job)| (job.agent.as_str(), job.repository.as_deref()));
        let orphans = self
            .pods
            .values()
            .filter(|pod| !pod.ended && !self.jobs.contains_key(&pod.job))
            .map(|pod| (pod.agent.as_str(), None));
        let elsewhere = self
            .elsewhere
            .values()
            .filter(|run| !run.ended)
            .map(|run| (run.agent.as_str(), run.repository.as_deref()));
        let all: Vec<(&str, Option<&str>)> = held.chain(orphans).chain(elsewhere).collect();
        let limits = &self.limits.concurrency;
        let mut found = Vec::new();
        let mut within = |what: String, count: usize, limit: Option<u32>| {
            if limit.is_some_and(|limit| count > usize::try_from(limit).unwrap_or(usize::MAX)) {
                found.push(format!(
                    "{count} runs of {what} are under way, more than its limit"
                ));
            }
        };
        within("the cluster".to_owned(), all.len(), Some(limits.cluster));
        within("the namespace".to_owned(), all.len(), Some(limits.namespace));
        let agents: BTreeSet<&str> = all.iter().map(|(agent, _)| *agent).collect();
        for agent in agents {
            let count = all.iter().filter(|(other, _)| *other == agent).count();
            within(format!("agent {agent}"), count, Some(limits.agent));
        }
        let repositories: BTreeSet<&str> = all.iter().filter_map(|(_, repository)| *repository).collect();
        for repository in repositories {
            let count = all.iter().filter(|(_, other)| *other == Some(repository)).count();
            let limit = limits.repositories.as_ref().and_then(|all| all.of(repository));
            within(format!("repository {repository}"), count, limit);
        }
        found
    }

    /// Too many within the window.
    fn too_fast(&mut self, job: &JobView, stamp: &Value) -> Vec<String> {
        let Ok(at) = text(stamp).parse::<Timestamp>() else {
            return vec!["a Job does not say when its run was let in".to_owned()];
        };
        self.starts.push((at, job.repository.clone()));
        let rate = &self.limits.rate;
        let begin = at - rate.window;
        let within = |starts: &mut dyn Iterator<Item = &(Timestamp, Option<String>)>| {
            starts.filter(|(other, _)| *other > begin && *other <= at).count()
        };
        let all = within(&mut self.starts.iter());
        let of_repository = within(&mut self.starts.iter().filter(|(_, other)| *other == job.repository));
        let repository = job.repository.as_ref().and(rate.repository);
        [
            (all, rate.cluster),
            (all, rate.namespace),
            (of_repository, repository),
        ]
        .into_iter()
        .filter(|(count, limit)| {
            limit.is_some_and(|limit| *count > usize::try_from(limit).unwrap_or(usize::MAX))
        })
        .map(|(count, _)| format!("{count} runs started within the window, more than the limit"))
        .collect()
    }

    /// Two runs with the same idempotency key.
    fn executed_twice(&self, job: &JobView) -> Option<String> {
        let key = self.runs.get(&job.run)?;
        let twice = self
            .jobs
            .values()
            .chain(self.elsewhere.values())
            .any(|other| other.run != job.run && self.runs.get(&other.run) == Some(key));
        twice.then(|| format!("two runs with the idempotency key {} were executed", key.1))
    }
}

fn job(value: &Value) -> Option<JobView> {
    let metadata = &value["metadata"];
    let annotations = &metadata["annotations"];
    annotations[labels::ADMITTED_AT].as_str()?;
    // Runs of tools take no slot.
    metadata["labels"][labels::AGENT_RUN].as_str()?;
    let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
    let ended = conditions.any(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    });
    Some(JobView {
        agent: text(&metadata["labels"][labels::AGENT]),
        repository: annotations[labels::REPOSITORY].as_str().map(str::to_owned),
        run: text(&metadata["ownerReferences"][0]["uid"]),
        ended,
    })
}

/// A run that was let in and that no Job executes, until it has ended.
fn without_job(uid: &str, value: &Value) -> Option<JobView> {
    let (spec, status) = (&value["spec"], &value["status"]);
    if spec["runtime"]["type"] != "custom" && spec["runtime"]["type"] != "temporal" {
        return None;
    }
    status["admittedAt"].as_str()?;
    let phase = status["phase"].as_str().unwrap_or_default();
    Some(JobView {
        agent: text(&spec["agentRef"]["name"]),
        repository: status["runtimeRef"]["repository"].as_str().map(str::to_owned),
        run: uid.to_owned(),
        ended: matches!(phase, "Succeeded" | "Failed" | "Cancelled"),
    })
}

fn pod(value: &Value) -> Option<PodView> {
    let metadata = &value["metadata"];
    let phase = &value["status"]["phase"];
    metadata["labels"][labels::AGENT_RUN].as_str()?;
    Some(PodView {
        job: metadata["ownerReferences"][0]["uid"].as_str()?.to_owned(),
        agent: text(&metadata["labels"][labels::AGENT]),
        ended: phase == "Succeeded" || phase == "Failed",
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
