//! A pod in line has the surroundings of its first container made already, so that its turn is not spent on that.
//!
//! What they were made of may change meanwhile. Then they are made anew, and until the turn comes nothing of the pod counts as begun.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    process::Child,
    sync::{broadcast::error::TryRecvError, watch},
};
use uuid::Uuid;

use super::{
    Counted, Worker,
    begin::{Blocked, Process},
    has_begun,
};
use crate::node::executor::{
    Control, ObjectChange, Settings,
    attempt::{self, Begun, make_private_dir, remove_tree},
    gate::{self, Gate},
    lifecycle::Action,
    objects::{Kind, Reference, env_references, volume_references},
    run::Files,
};

/// How long a process that waits has to go once it is sent away. It has nothing left to do.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// How often an executor looks whether those that stood by for an earlier one have gone.
const LEAVE_POLL: Duration = Duration::from_millis(50);

/// Who has its turn comes before who only has it soon: where more than this many are about to begin, nobody is made ready.
const STARTING_MAX: usize = 8;

/// Waits until few pods are about to begin.
pub(super) async fn few_start(starting: &mut watch::Receiver<usize>) {
    // The sender is the executor's. Without one there is nobody to stand by for.
    let _ = starting.wait_for(|starting| *starting <= STARTING_MAX).await;
}

/// A container that waits at its gate.
#[derive(Debug)]
pub(super) struct Standby {
    index: usize,
    files: Files,
    gate: Gate,
    begun: Begun,
    /// What it was made of.
    on: BTreeSet<Reference>,
    /// Whoever drains the node waits until it has gone.
    _active: Counted,
}

impl Worker {
    /// Makes the surroundings of the container that begins first, if that is one. What fails now fails again when the turn has come, and
    /// is told then.
    pub(super) async fn stand_by(&mut self, actions: &[(usize, Action)]) {
        let [(index, Action::Start)] = *actions else {
            return;
        };
        let Some(container) = self.container(index) else {
            return;
        };
        let mut on = volume_references(&self.pod);
        on.extend(env_references(container));
        // A claim is bound, and in use, only by who runs.
        if self.standby.is_some() || on.iter().any(|reference| reference.kind == Kind::Claim) {
            return;
        }
        if *self.others_starting.borrow() > STARTING_MAX {
            self.stands_by_later = true;
            return;
        }
        // Before it is looked whether the node goes on: whoever drains it says so first, and then waits for all that are active.
        let active = Counted::among(&self.shared.active);
        if *self.control.borrow() != Control::Run {
            return;
        }
        match self.try_stand_by(index).await {
            Ok((files, gate, begun)) => {
                self.standby = Some(Standby {
                    index,
                    files,
                    gate,
                    begun,
                    on,
                    _active: active,
                });
            }
            Err(blocked) => {
                let (reason, uid) = (blocked.message, &self.uid);
                tracing::debug!(reason, uid, "a pod in line cannot be made ready");
                let undone = self.undo();
                self.note(undone);
            }
        }
    }

    async fn try_stand_by(&mut self, index: usize) -> Result<(Files, Gate, Begun), Blocked> {
        let files = self.next_files(index)?;
        let failed = |error: io::Error| Blocked::files(&error);
        make_private_dir(&files.dir).map_err(failed)?;
        // Before a process is: whoever finds one finds the gate.
        let gate = Gate::make(&files).map_err(failed)?;
        let mut run = self.prepared(index, &files).await?;
        run.gated = true;
        let begun = attempt::start(&files, &self.shared.settings.config.shim, &run).map_err(failed)?;
        Ok((files, gate, begun))
    }

    /// Lets the container begin that stands by, if it is this one, is still there, and was made of what is there now.
    pub(super) async fn begin_from_standby(&mut self, index: usize) -> bool {
        self.hear_all().await;
        let Some(mut standby) = self.standby.take() else {
            return false;
        };
        let is_there = standby.index == index
            && !standby.files.exit().exists()
            && matches!(standby.begun.child.try_wait(), Ok(None));
        if !is_there {
            self.dismiss(standby).await;
            return false;
        }
        let Standby {
            files,
            gate,
            mut begun,
            ..
        } = standby;
        match gate.open() {
            Ok(open) => {
                self.monitor(index, files, Process::begun(begun, Some(open)));
                true
            }
            // The gate is shut by that, and nobody begins.
            Err(error) => {
                self.note(Err(error));
                self.clear_away(&mut begun.child).await;
                false
            }
        }
    }

    /// Takes in what has been told already: the turn may have come in the same moment as a change.
    async fn hear_all(&mut self) {
        loop {
            let change = match self.objects.try_recv() {
                Ok(change) => Some(change),
                Err(TryRecvError::Lagged(_)) => None,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            self.heard(change.as_ref()).await;
        }
        if self.seen.has_changed().unwrap_or(false) && self.look() {
            self.stand_by_anew(None).await;
        }
    }

    /// Sends away who stands by, if it was made of what has changed: of anything if it is not known what has.
    pub(super) async fn stand_by_anew(&mut self, change: Option<&ObjectChange>) {
        let concerns = |standby: &mut Standby| {
            change.is_none_or(|change| {
                change.namespace == self.pod.metadata.namespace.as_deref().unwrap_or_default()
                    && standby.on.contains(&change.reference)
            })
        };
        if let Some(standby) = self.standby.take_if(concerns) {
            self.dismiss(standby).await;
            // It is made again as soon as its turn is looked at.
            self.unblock(None);
        }
    }

    /// Sends away who stands by.
    pub(super) async fn stand_down(&mut self) {
        if let Some(standby) = self.standby.take() {
            self.dismiss(standby).await;
        }
    }

    async fn dismiss(&mut self, standby: Standby) {
        let Standby {
            gate,
            mut begun,
            _active: until_gone,
            ..
        } = standby;
        drop(gate);
        self.clear_away(&mut begun.child).await;
        drop(until_gone);
    }

    /// Removes all that was made for a container that was sent away, once it has gone.
    async fn clear_away(&mut self, child: &mut Child) {
        self.note(leave(child).await);
        let undone = self.undo();
        self.note(undone);
    }

    /// Takes away what was made for a pod that has not begun: all of it or nothing, so that whoever finds the rest after a crash does not
    /// take it for a pod that has.
    pub(super) fn undo(&mut self) -> io::Result<()> {
        self.places = None;
        let leavings = take_away(&self.shared.settings, &self.dir)?;
        let uid = self.uid.clone();
        // Nobody waits for it, and the next start removes what is left.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = remove_tree(&leavings) {
                tracing::warn!(%error, uid, "what was made for a pod in line cannot be removed");
            }
        });
        Ok(())
    }
}

async fn leave(child: &mut Child) -> io::Result<()> {
    match tokio::time::timeout(LEAVE_MAX, child.wait()).await {
        Ok(left) => left.map(|_| ()),
        Err(_) => child.kill().await,
    }
}

/// Moves the directory of a pod to where nobody looks for pods.
fn take_away(settings: &Settings, pod: &Path) -> io::Result<PathBuf> {
    let leavings = settings.leavings_dir().join(Uuid::new_v4().to_string());
    match fs::rename(pod, &leavings) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(leavings),
    }
}

/// Sends away who stood by for an earlier executor, and removes what is left of pods that have not begun. A pod of which that cannot be
/// told counts as one that has.
pub(crate) async fn send_away(settings: &Settings) {
    let pods = directories(&settings.pods_dir());
    let standing: Vec<Files> = pods.iter().flat_map(|pod| shut_gates(pod)).collect();
    gone(&standing).await;
    for pod in pods {
        // Before the first container of a pod has begun, no other has.
        let mut stood_by = standing.iter().filter(|files| files.dir.starts_with(&pod));
        let has_begun = stood_by.clone().next().is_none() && has_begun(&pod);
        if has_begun || stood_by.any(may_live) {
            continue;
        }
        if let Err(error) = take_away(settings, &pod) {
            tracing::warn!(%error, ?pod, "what is left of a pod in line cannot be taken away");
        }
    }
    for leavings in directories(&settings.leavings_dir()) {
        if let Err(error) = remove_tree(&leavings) {
            tracing::warn!(%error, ?leavings, "what is left of a pod in line cannot be removed");
        }
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Sees to it that nobody of this pod begins who stood by for an earlier executor, and tells who that is.
fn shut_gates(pod: &Path) -> Vec<Files> {
    let attempts = attempt::all_in(pod).unwrap_or_else(|error| {
        tracing::warn!(%error, ?pod, "the containers of a pod cannot be listed");
        Vec::new()
    });
    let stood_by = |files: &Files| {
        gate::shut(files).unwrap_or_else(|error| {
            tracing::warn!(%error, attempt = ?files.dir, "it cannot be told whether a container has begun");
            false
        })
    };
    attempts.into_iter().filter(stood_by).collect()
}

/// Waits until none of them lives, and kills those that do not go by themselves.
async fn gone(standing: &[Files]) {
    if leave_all(standing).await {
        return;
    }
    for files in standing.iter().filter(|files| may_live(files)) {
        tracing::warn!(attempt = ?files.dir, "a process that stood by does not go, and is killed");
        if let Err(error) = attempt::signal(files, Signal::KILL) {
            tracing::warn!(%error, attempt = ?files.dir, "a process that stood by cannot be killed");
        }
    }
    // One that even that does not end keeps its directory. It cannot begin, and its pod is told as failed when it goes.
    leave_all(standing).await;
}

/// Whether all of them have gone within the time that they have.
async fn leave_all(standing: &[Files]) -> bool {
    let left = async {
        while standing.iter().any(may_live) {
            tokio::time::sleep(LEAVE_POLL).await;
        }
    };
    tokio::time::timeout(LEAVE_MAX, left).await.is_ok()
}

fn may_live(files: &Files) -> bool {
    attempt::lives(files).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn nobody_is_made_ready_while_many_are_about_to_begin() {
        let starting = watch::Sender::new(STARTING_MAX + 1);
        let mut seen = starting.subscribe();
        assert!(few_start(&mut seen).now_or_never().is_none());
        starting.send_replace(STARTING_MAX);
        assert!(few_start(&mut seen).now_or_never().is_some());
    }
}
