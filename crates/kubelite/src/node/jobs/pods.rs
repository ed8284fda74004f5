//! A Job's pods, as its controller counts them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// Keeps a pod until its Job has counted it.
pub(crate) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Pending, running, or not heard of.
    Unfinished,
    Succeeded,
    Failed,
}

/// One pod with what is asked of it again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodView<'a> {
    pub(super) pod: &'a Pod,
    pub(super) uid: &'a str,
    pub(super) phase: Phase,
    /// It carries the finalizer, so it is not counted yet.
    pub(super) tracked: bool,
    pub(super) deleting: bool,
}

impl<'a> PodView<'a> {
    pub(super) fn new(pod: &'a Pod) -> Self {
        let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            pod,
            uid: pod.metadata.uid.as_deref().unwrap_or_default(),
            phase: match phase {
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Unfinished,
            },
            tracked: finalizers.iter().any(|name| name == TRACKING_FINALIZER),
            deleting: pod.metadata.deletion_timestamp.is_some(),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Unfinished && !self.deleting
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.phase == Phase::Unfinished && self.deleting
    }

    /// Whether it counts as a failure. Where pods are replaced as soon as they are being deleted, one that is on its way out
    /// has failed already, as it may never come to say so.
    pub(super) fn is_failed(&self, only_ended: bool) -> bool {
        match self.phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            Phase::Unfinished => self.deleting && !only_ended,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.condition("Ready")
            .is_some_and(|condition| condition.status == "True")
    }

    /// When it ended, as exactly as its status tells: by its containers, else by its condition, else by its deletion.
    pub(super) fn finished_at(&self) -> Timestamp {
        self.containers_finished_at()
            .or_else(|| {
                let condition = self.condition("Ready")?;
                let time = condition.last_transition_time.as_ref()?;
                (condition.status == "False").then_some(time.0)
            })
            .or_else(|| {
                let deadline = self.pod.metadata.deletion_timestamp.as_ref()?.0;
                let grace = self
                    .pod
                    .metadata
                    .deletion_grace_period_seconds
                    .unwrap_or_default();
                deadline.checked_sub(SignedDuration::from_secs(grace)).ok()
            })
            .or_else(|| Some(self.pod.metadata.creation_timestamp.as_ref()?.0))
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The end of the last container, once all have ended. Sidecars end after the others.
    fn containers_finished_at(&self) -> Option<Timestamp> {
        let status = self.pod.status.as_ref()?;
        let sidecars = self
            .pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .filter(|container| container.restart_policy.as_deref() == Some("Always"))
            .map(|container| container.name.as_str())
            .collect::<Vec<_>>();
        let ends = |container: &ContainerStatus| {
            let terminated = container.state.as_ref()?.terminated.as_ref()?;
            Some(terminated.finished_at.as_ref()?.0)
        };
        let containers = status.container_statuses.iter().flatten();
        let sidecars = status
            .init_container_statuses
            .iter()
            .flatten()
            .filter(|container| sidecars.contains(&container.name.as_str()));
        let ends: Option<Vec<Timestamp>> = containers.chain(sidecars).map(ends).collect();
        ends?.into_iter().max()
    }

    /// How often its containers were started again.
    pub(super) fn restarts(&self) -> i64 {
        let Some(status) = &self.pod.status else { return 0 };
        let all = [&status.init_container_statuses, &status.container_statuses];
        all.into_iter()
            .flatten()
            .flatten()
            .map(|container| i64::from(container.restart_count))
            .sum()
    }

    /// Pods with a lower rank are given up first: those that have come least far, then the newest.
    pub(super) fn rank_to_keep(&self) -> impl Ord + use<> {
        let spec = self.pod.spec.as_ref();
        let status = self.pod.status.as_ref();
        let bound = spec
            .and_then(|spec| spec.node_name.as_deref())
            .is_some_and(|node| !node.is_empty());
        let running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
        let created = self.pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (bound, running, self.is_ready(), std::cmp::Reverse(created))
    }

    fn condition(&self, kind: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
        let conditions = self.pod.status.as_ref()?.conditions.as_deref()?;
        conditions.iter().find(|condition| condition.type_ == kind)
    }
}
