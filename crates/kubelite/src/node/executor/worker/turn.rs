//! Whose turn it is: a node may have more pods than it runs at once.

use std::{collections::BTreeSet, path::Path, time::Duration};

use tokio::sync::oneshot;

use super::{Counted, Worker, report::RETRY};
use crate::node::executor::{
    attempt,
    lifecycle::{ContainerState, WaitReason},
    run::Files,
    slots::{Slot, Untold},
};

/// For how long a pod that stands in line says nothing of that. Where short pods follow each other, its turn comes before that, and each
/// word costs every watcher of pods something.
pub(super) const UNTOLD_MAX: Duration = Duration::from_secs(5);

/// Whether a pod may run.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Other pods come first.
    InLine(oneshot::Receiver<Slot>),
    Now(Slot),
    /// Nothing of it lives any more, and whoever came next may have begun, although nobody was told.
    GivenAway {
        _untold: Untold,
    },
    Over,
}

impl Turn {
    pub(super) fn is_to_come(&self) -> bool {
        matches!(self, Self::InLine(_))
    }

    /// Waits until it has come.
    pub(super) async fn comes(&mut self) -> Slot {
        if let Self::InLine(answer) = self
            && let Ok(slot) = answer.await
        {
            return slot;
        }
        // It has come, is over, or the executor is about to go.
        std::future::pending().await
    }
}

/// Whether a process of the pod in this directory was ever made for its turn, or was about to be.
pub(crate) fn has_begun(directory: &Path) -> bool {
    let began = |files: &Files| files.lock().exists() || files.exit().exists();
    // What cannot be read may live.
    !attempt::all_in(directory).is_ok_and(|attempts| !attempts.iter().any(began))
}

impl Worker {
    /// Whether the pod may begin. If not, its containers say what they wait for.
    pub(super) fn may_begin(&mut self) -> bool {
        if let Turn::InLine(answer) = &mut self.turn
            && let Ok(slot) = answer.try_recv()
        {
            self.turn_came(slot);
        }
        if !self.turn.is_to_come() {
            return true;
        }
        let most = self.shared.settings.config.pods_max;
        for record in &mut self.records {
            if record.state == ContainerState::Waiting {
                record.state = ContainerState::Blocked {
                    reason: WaitReason::ContainerCreating,
                    message: format!("waits for its turn: this node runs {most} at a time"),
                    on: BTreeSet::new(),
                    retry_at: None,
                };
            }
        }
        false
    }

    pub(super) fn turn_came(&mut self, slot: Slot) {
        self.turn = Turn::Now(slot);
        self.stands_by_later = false;
        self.active
            .get_or_insert_with(|| Counted::among(&self.shared.active));
        // What it waited for does not count as its own time.
        self.seen_at = self.shared.now();
        self.hold_until = None;
        self.unblock(None);
    }

    /// Lets the next pod begin, if nothing of this one lives any more.
    pub(super) fn give_turn_away(&mut self) {
        if !self.over {
            return;
        }
        self.turn = match std::mem::replace(&mut self.turn, Turn::Over) {
            Turn::Now(slot) => Turn::GivenAway {
                _untold: slot.give_away(),
            },
            Turn::InLine(_) => Turn::Over,
            unchanged @ (Turn::GivenAway { .. } | Turn::Over) => unchanged,
        };
    }

    /// Whoever came next may tell of itself, unless the end of this one has to be told again.
    pub(super) fn end_was_told(&mut self) {
        if matches!(self.turn, Turn::GivenAway { .. }) && self.retry_at.is_none() {
            self.turn = Turn::Over;
        }
    }

    /// Waits until the end of the pod that had the slot before was told, so that nobody sees more pods than the node runs. If that
    /// cannot be told, although it was tried twice, this one is not silent for ever.
    pub(super) async fn predecessors_told(&mut self) {
        if let Turn::Now(slot) = &mut self.turn {
            let _ = tokio::time::timeout(RETRY * 2, slot.predecessors_told()).await;
        }
    }
}
