//! What a controller sees when it observes: the caches, and over them what this reconcile has learned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_api::{
    agents::agent_run::AgentRun, labels, orchestration::orchestration_run::OrchestrationRun, tools::ToolRun,
};
use jangar_engine::{
    decision::{ChildKind, Key, PodSight, Sight, Uid},
    last_sight::LastSight,
    orchestration_run::Child,
    parent,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::learned::Learned;
use crate::caches::{Cached, Caches, Term};

/// What there is to observe for one key.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub key: &'a Key,
    pub caches: &'a Caches,
    pub learned: &'a Learned,
    /// Whether so much is written that what may be over soon is told later.
    pub busy: bool,
}

impl Scene<'_> {
    /// What is known of an object in the namespace of the key. Blanks around a name that somebody wrote do not count.
    pub fn sight<K: Cached>(&self, name: &str) -> Sight<K> {
        K::overlay(self.learned).sight(self.caches, &self.beside(name.trim()))
    }

    /// The Jobs that carry the label of this run, and those that this reconcile asked for or made, by name.
    pub fn jobs(&self, run: &Term) -> BTreeMap<String, Arc<Job>> {
        let labelled = self.labelled::<Job>(run);
        let names = labelled.iter().chain(self.learned.jobs.names());
        let known = names.filter_map(|name| match self.sight(name) {
            Sight::Seen(job) => Some((name.clone(), job)),
            Sight::Unseen | Sight::Absent | Sight::Illegible(_) => None,
        });
        known.collect()
    }

    /// The names of the Jobs that the API server has spoken about in this reconcile.
    pub fn live_jobs(&self) -> BTreeSet<String> {
        self.learned.jobs.names().cloned().collect()
    }

    /// What was last seen of the Jobs that this reconcile found to be gone, and of those of this run that went, by name.
    pub fn departed_jobs(&self, run: Option<&ObjectMeta>) -> BTreeMap<String, LastSight> {
        let jobs = &self.caches.jobs;
        let asked = self.learned.jobs.names().map(|name| self.beside(name));
        let own = run
            .and_then(|run| run.uid.clone())
            .into_iter()
            .flat_map(|uid| jobs.departed_of(&Uid(uid)).cloned().collect::<Vec<_>>());
        let departed = asked.chain(own).filter_map(|key| {
            let sight = jobs.departed(&key)?.clone();
            Some((key.name, sight))
        });
        departed.collect()
    }

    /// The pods that carry the label of this run, those that this reconcile made or met, and those that were listed live, by the UID
    /// of the Job that controls them.
    pub fn pods(&self, run: &Term) -> BTreeMap<Uid, PodSight> {
        let mut cached: BTreeMap<Uid, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in self.pods_of_run(run) {
            if let Some(owner) = controller_of(&pod) {
                cached.entry(owner).or_default().push(pod);
            }
        }
        let live = self.learned.pods_of.iter().map(|(owner, names)| {
            let pods = names.iter().filter_map(|name| self.pod(name)).collect();
            (owner.clone(), PodSight::Live(pods))
        });
        let cached = cached
            .into_iter()
            .map(|(owner, pods)| (owner, PodSight::Cached(pods)));
        // What was listed live replaces what is cached.
        cached.chain(live).collect()
    }

    /// The UIDs of those Jobs of this run of which a pod was seen to go.
    pub fn lost_pods(&self, run: &Term) -> BTreeSet<Uid> {
        let jobs = self.jobs(run);
        let uids = jobs.values().filter_map(|job| job.uid().map(Uid));
        uids.filter(|uid| self.caches.pods.departed_of(uid).next().is_some())
            .collect()
    }

    /// Whether a pod of this run is held by our finalizer.
    pub fn holds_pods(&self, run: &Term) -> bool {
        self.pods_of_run(run)
            .iter()
            .any(|pod| labels::is_held(pod.finalizers()))
    }

    /// Until when a run has time to stop, if an OrchestrationRun above is being cancelled.
    pub fn cancel_above(&self, run: &ObjectMeta) -> Option<Timestamp> {
        parent::cancel_above(run, |name| self.sight::<OrchestrationRun>(name).seen().cloned())
    }

    /// The runs that do the work of the steps of the OrchestrationRun of this key, and those that this reconcile asked for or
    /// made, by kind and name.
    pub fn children(&self) -> BTreeMap<(ChildKind, String), Child> {
        let mut children = BTreeMap::new();
        self.children_of::<AgentRun>(ChildKind::AgentRun, Child::AgentRun, &mut children);
        self.children_of::<ToolRun>(ChildKind::ToolRun, Child::ToolRun, &mut children);
        let kind = ChildKind::OrchestrationRun;
        self.children_of::<OrchestrationRun>(kind, Child::OrchestrationRun, &mut children);
        // Nothing is its own child.
        children.remove(&(kind, self.key.name.clone()));
        children
    }

    fn children_of<K: Cached>(
        &self,
        kind: ChildKind,
        child: impl Fn(Arc<K>) -> Child,
        children: &mut BTreeMap<(ChildKind, String), Child>,
    ) {
        let labelled = self.labelled::<K>(&Term::OrchestrationRun(self.key.name.clone()));
        let names = labelled.iter().chain(K::overlay(self.learned).names());
        for name in names {
            if let Sight::Seen(object) = self.sight::<K>(name) {
                children.insert((kind, name.clone()), child(object));
            }
        }
    }

    /// The children that the API server has spoken about in this reconcile.
    pub fn live_children(&self) -> BTreeSet<(ChildKind, String)> {
        let agent_runs = self
            .learned
            .agent_runs
            .names()
            .map(|name| (ChildKind::AgentRun, name));
        let tool_runs = self
            .learned
            .tool_runs
            .names()
            .map(|name| (ChildKind::ToolRun, name));
        let orchestration_runs = self.learned.orchestration_runs.names();
        let orchestration_runs = orchestration_runs.map(|name| (ChildKind::OrchestrationRun, name));
        let all = agent_runs.chain(tool_runs).chain(orchestration_runs);
        all.map(|(kind, name)| (kind, name.clone())).collect()
    }

    /// Nobody else's pods are asked about or made for a run, so that those need no label.
    fn pods_of_run(&self, run: &Term) -> Vec<Arc<Pod>> {
        let mut names = self.labelled::<Pod>(run);
        names.extend(self.learned.pods.names().cloned());
        names.iter().filter_map(|name| self.pod(name)).collect()
    }

    fn pod(&self, name: &str) -> Option<Arc<Pod>> {
        self.sight::<Pod>(name).seen().cloned()
    }

    fn labelled<K: Cached>(&self, run: &Term) -> BTreeSet<String> {
        K::cache(self.caches)
            .naming(&self.key.namespace, run.clone())
            .cloned()
            .collect()
    }

    fn beside(&self, name: &str) -> Key {
        Key {
            namespace: self.key.namespace.clone(),
            name: name.to_owned(),
        }
    }
}

/// The UID of the Job that controls this pod. One that was deleted without its pods no longer does, which is no reason to forget a
/// pod that we hold.
fn controller_of(pod: &Pod) -> Option<Uid> {
    let mut owners = pod.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let of_label = || {
        pod.labels()
            .get(labels::CONTROLLER_UID)
            .filter(|_| labels::is_held(pod.finalizers()))
    };
    let uid = owner.map(|owner| &owner.uid).or_else(of_label)?;
    Some(Uid(uid.clone()))
}
