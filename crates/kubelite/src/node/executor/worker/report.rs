//! What a worker tells the API server and those who read logs.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Worker, earliest, turn};
use crate::node::executor::{
    crowd,
    lifecycle::{ContainerState, Record, Role, after},
    logs::ContainerLogs,
    status::{self, Course, Transitions, View},
};

/// Who writes the status of pods and claims.
pub(super) const MANAGER: &str = "kubelite-node";
/// When to try again what the API server did not take.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// How long the status of a pod that is about to change may wait for that change. Each status that is written costs every
/// watcher of pods something, and the steps of a start mostly follow each other within milliseconds.
const HOLD_MAX: Duration = Duration::from_millis(500);

/// When the conditions of a pod last changed, as the API shows it.
pub(super) fn transitions_of(pod: &Pod) -> Transitions {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter_map(|condition| {
            let time = condition.last_transition_time.as_ref()?.0;
            Some((condition.type_.clone(), (condition.status.clone(), time)))
        })
        .collect()
}

impl Worker {
    /// Writes the status of the pod if it has changed, and not before it has changed again if that is near.
    pub(super) async fn publish(&mut self) {
        // It is due again only if it is held back, or not taken.
        self.retry_at = None;
        if self.settled || self.removed {
            return;
        }
        let settings = &self.shared.settings;
        let view = View {
            pod: &self.pod,
            records: &self.records,
            course: &self.course,
            seen_at: self.seen_at,
            now: self.shared.now(),
            host_ip: &settings.facts.host_ip,
            unsandboxed: settings.unsandboxed.as_deref(),
        };
        let status = status::status(&view, &mut self.transitions);
        if self.published.as_ref() == Some(&status) {
            self.hold_until = None;
            return;
        }
        if let Some(until) = self.waits_for_more() {
            self.retry_at = earliest(self.retry_at, Some(until));
            return;
        }
        self.hold_until = None;
        self.predecessors_told().await;
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), self.namespace());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({"metadata": {"uid": self.uid}, "status": status});
        match api
            .patch_status(self.name(), &params, &Patch::Strategic(patch))
            .await
        {
            Ok(_) => self.published = Some(status),
            // The watch is about to say so too.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => {
                tracing::warn!(%error, uid = self.uid, "cannot write the status of a pod");
                self.retry_at = Some(after(self.shared.now(), RETRY));
            }
        }
    }

    /// Until when the status waits for the next one, if that is near and nobody has stopped the pod.
    fn waits_for_more(&mut self) -> Option<Timestamp> {
        if self.over || self.course != Course::Open {
            return None;
        }
        let now = self.shared.now();
        let most = if self.turn.is_to_come() {
            turn::UNTOLD_MAX
        } else if self.records.iter().any(Record::is_passing) {
            HOLD_MAX
        } else {
            return self.untold_in_crowd(now);
        };
        let until = *self.hold_until.get_or_insert_with(|| after(now, most));
        (until > now).then_some(until)
    }

    /// Until when nothing is told of a pod that has begun as one of many: it may have ended by then.
    fn untold_in_crowd(&self, now: Timestamp) -> Option<Timestamp> {
        let begun = self.records.iter().filter_map(|record| match record.state {
            ContainerState::Running { since } => Some(since),
            _ => None,
        });
        // A beginning that lies ahead was noted before the clock was set back.
        let until = after(begun.max()?.min(now), crowd::UNTOLD_MAX);
        let restarted = self.records.iter().any(|record| record.last.is_some());
        (until > now && !restarted && self.shared.crowd.is_there(now)).then_some(until)
    }

    /// Lets the logs be found.
    pub(super) fn show_logs(&self) {
        let has_init = self.records.iter().any(|record| record.role == Role::Init);
        let containers = self.records.iter().zip(&self.current).enumerate();
        let logs = containers.map(|(index, (record, current))| {
            let waiting: &str = match &record.state {
                ContainerState::Blocked { reason, .. } => (*reason).into(),
                _ if has_init => "PodInitializing",
                _ => "ContainerCreating",
            };
            let previous = record.attempts.checked_sub(2);
            ContainerLogs {
                name: record.name.clone(),
                init: record.role == Role::Init,
                current: current
                    .as_ref()
                    .map(|current| (current.files.clone(), current.live.clone())),
                previous: previous
                    .and_then(|attempt| self.files(index, attempt))
                    .filter(|files| files.dir.exists()),
                waiting: waiting.to_owned(),
            }
        });
        self.shared
            .logs
            .set(self.namespace(), self.name(), &self.uid, logs.collect());
    }
}
