//! How a pod and its containers end.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use rustix::process::Signal;

use super::{Worker, earliest, recover::PLACES, report::RETRY};
use crate::{
    defects::Defect,
    node::executor::{
        Control,
        attempt::{self, remove_tree},
        lifecycle::{ContainerState, Record, after},
        logs, manager,
        run::{self, Cause, Exit, Files},
        status::{Course, Verdict},
    },
};

/// How long a process has to end once it is killed, before the process that holds it is killed too.
const FORCE_AFTER: Duration = Duration::from_secs(10);
/// Times in the API are whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// How long a termination message may be: the kubelet's number.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The end of the processes of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Stop {
    /// Until then they may end by themselves.
    kill_at: Timestamp,
    /// The containers that have been asked to.
    asked: Vec<usize>,
}

impl Worker {
    /// Decides whether the pod goes on. Returns when its deadline is, if it has one and is still running.
    pub(super) fn steer(&mut self) -> Option<Timestamp> {
        let now = self.shared.now();
        let grace = self
            .spec()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(0);
        let control = *self.control.borrow_and_update();
        if self.removed {
            self.end(Course::Ending, now);
        }
        if self.is_deleted() {
            let allowed = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(grace);
            let marked = self.pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
            let by_now = after(now, seconds(allowed));
            // After a restart the period has begun before we looked.
            let by_mark = marked.map_or(by_now, |marked| after(marked, ROUNDING));
            self.end(Course::Ending, by_now.min(by_mark));
        }
        match control {
            // Nothing of a pod in line runs. It stays as it is, and is in line when the node is there again.
            _ if self.turn.is_to_come() => {}
            Control::Run => {}
            Control::Drain => self.end(shut_down(), after(now, seconds(grace))),
            Control::Kill => self.end(shut_down(), now),
        }
        if self.settled && self.records.iter().any(Record::is_live) {
            self.end(Course::Ending, now);
        }
        if self.turn.is_to_come() {
            return None;
        }
        let limit = self.spec().and_then(|spec| spec.active_deadline_seconds)?;
        let deadline = after(self.seen_at, seconds(limit));
        if self.over || self.course != Course::Open {
            return None;
        }
        if deadline > now {
            return Some(deadline);
        }
        let verdict = Verdict {
            reason: "DeadlineExceeded",
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
            disruption: false,
        };
        self.end(Course::Failing(verdict), after(now, seconds(grace)));
        None
    }

    /// Ends the pod, or sooner than before. The first cause stays.
    fn end(&mut self, course: Course, kill_at: Timestamp) {
        if self.course == Course::Open && !self.over {
            self.course = course;
        }
        match &mut self.stop {
            Some(stop) => stop.kill_at = stop.kill_at.min(kill_at),
            None => {
                self.stop = Some(Stop {
                    kill_at,
                    asked: Vec::new(),
                });
            }
        }
    }

    /// Asks or forces processes to end. Returns when to look again.
    pub(super) fn stop_processes(&mut self) -> Option<Timestamp> {
        let stop = self.stop.as_mut()?;
        let now = self.shared.now();
        let force_at = after(stop.kill_at, FORCE_AFTER);
        let mut wake_at = None;
        for (index, (record, current)) in self.records.iter().zip(&self.current).enumerate() {
            let Some(current) = current.as_ref().filter(|_| record.is_live()) else {
                continue;
            };
            let running = matches!(record.state, ContainerState::Running { .. });
            let signal = if now >= force_at {
                Some(Signal::KILL)
            } else if now >= stop.kill_at {
                Some(Signal::USR1)
            } else if running && !stop.asked.contains(&index) {
                // A process that has not begun does not listen yet; it is asked when it has.
                stop.asked.push(index);
                Some(Signal::TERM)
            } else {
                None
            };
            if let Some(signal) = signal
                && let Err(error) = attempt::signal(&current.files, signal)
            {
                tracing::warn!(%error, uid = self.uid, container = record.name, "cannot signal a container");
            }
            let next = if now >= stop.kill_at {
                force_at
            } else {
                stop.kill_at
            };
            wake_at = earliest(wake_at, Some(next).filter(|next| *next > now));
        }
        // Whoever holds a container that has ended only has its sandbox to take down. If that hangs, it is not waited for for ever.
        for (files, _) in self.spent.iter().filter(|(_, live)| !live.borrow().ended) {
            if now < force_at {
                wake_at = earliest(wake_at, Some(force_at));
            } else if let Err(error) = attempt::signal(files, Signal::KILL) {
                tracing::warn!(%error, uid = self.uid, "cannot kill what holds a sandbox");
            }
        }
        wake_at
    }

    /// A container's process has ended.
    pub(super) fn ended(&mut self, index: usize, mut exit: Exit) {
        let Some((files, live)) = self
            .current
            .get(index)
            .and_then(Option::as_ref)
            .map(|current| (current.files.clone(), current.live.clone()))
        else {
            return;
        };
        let killed = self
            .stop
            .as_ref()
            .is_some_and(|stop| self.shared.now() >= stop.kill_at);
        if killed && exit.cause == Cause::Lost {
            // The process that holds it had no time to write down what we did to it.
            exit = Exit::signalled(Signal::KILL.as_raw(), exit.started_at, exit.finished_at);
            self.note(run::write_durably(&files.exit(), &exit));
        }
        let is_deaf = self.shared.settings.config.defects.has(Defect::LastWords);
        if let Some(container) = self.container(index).filter(|_| !is_deaf) {
            exit = with_message(&files, container, exit);
        }
        self.spent.push((files, live));
        self.set_aside(index, ContainerState::Terminated(exit));
    }

    /// Removes what only the runs needed that have ended, where the processes that held them are gone as well.
    pub(super) async fn clear(&mut self) {
        let (gone, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.spent)
            .into_iter()
            .partition(|(_, live)| live.borrow().ended);
        self.spent = held;
        if gone.is_empty() {
            return;
        }
        let remove = move || gone.iter().try_for_each(|(files, _)| remove_private(files));
        let removed = tokio::task::spawn_blocking(remove).await;
        self.note(removed.map_err(io::Error::other).and_then(|result| result));
    }

    /// Nothing runs any more: what only running containers need goes. Logs stay until the pod is deleted.
    pub(super) async fn tidy(&mut self) {
        if std::mem::replace(&mut self.tidied, true) {
            return;
        }
        let dir = self.dir.clone();
        let removed = tokio::task::spawn_blocking(move || {
            remove_tree(&dir.join("volumes"))?;
            remove_file(&dir.join(PLACES))
        })
        .await;
        self.note(removed.map_err(io::Error::other).and_then(|result| result));
        let places = self.places.take().unwrap_or_default();
        for claim in places.values().filter_map(|place| place.claim.as_deref()) {
            if self.shared.claims.release(claim) {
                manager::remove_claim(&self.shared, claim);
            }
        }
    }

    /// Tells the API server that nothing is left of a pod that somebody deleted. `false` if it has to be told again.
    pub(super) async fn delete(&mut self) -> bool {
        if self.removed {
            return true;
        }
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), self.namespace());
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(self.name(), &params).await {
            Ok(_) => true,
            // It is gone, or another one has its name.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => true,
            Err(error) => {
                tracing::warn!(%error, uid = self.uid, "cannot delete a pod that has ended");
                self.retry_at = Some(after(self.shared.now(), RETRY));
                false
            }
        }
    }

    /// Removes the last traces of the pod.
    pub(super) fn forget(&mut self) {
        self.shared.logs.remove(self.namespace(), self.name(), &self.uid);
        self.note(remove_tree(&self.dir));
    }

    /// Says what could not be done; the pod's course does not depend on it.
    pub(super) fn note(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, uid = self.uid, "the files of a pod cannot be kept in order");
        }
    }
}

fn shut_down() -> Course {
    Course::Failing(Verdict {
        reason: "Terminated",
        message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
        disruption: true,
    })
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// Removes what belongs to one run alone and nobody reads afterwards.
fn remove_private(files: &Files) -> io::Result<()> {
    for directory in [files.tmp(), files.home(), files.root()] {
        remove_tree(&directory)?;
    }
    for file in [files.run(), files.wake(), files.gate()] {
        remove_file(&file)?;
    }
    Ok(())
}

/// Nothing there is no error.
fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The end of a container with the message that it left.
pub(super) fn with_message(files: &Files, container: &Container, exit: Exit) -> Exit {
    let mut message = match exit.cause {
        Cause::Exited => message(files, container, exit.code).unwrap_or_default(),
        Cause::StartFailed | Cause::Lost => exit.message,
    };
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    Exit { message, ..exit }
}

fn message(files: &Files, container: &Container, code: i32) -> io::Result<String> {
    let mut file = File::open(files.message())?;
    let limit = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
    let length = file.metadata()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    let fall_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    if bytes.is_empty() && fall_back && code != 0 {
        return logs::last_lines(files);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
