//! What is still missing before this program does its work, in words.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// Something that has to be there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The definitions of the kinds, established.
    Kinds,
    /// The manifests that were given at the start.
    Manifests,
    /// The controllers.
    Controllers,
    /// The caches that the control plane answers from, filled once.
    Caches,
    /// That it stays. What ends is no place to send anybody to.
    Stay,
}

/// Told by those who bring a part about, asked by probes and by whoever waits.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    missing: watch::Sender<BTreeMap<Part, String>>,
    /// Something that people should know, and that stops nothing.
    note: watch::Sender<Option<String>>,
}

impl Readiness {
    /// Everything in the list is missing, for the reason beside it.
    pub(crate) fn new<const N: usize>(missing: [(Part, &str); N]) -> Self {
        let missing = missing.map(|(part, why)| (part, why.to_owned()));
        Self {
            missing: watch::Sender::new(BTreeMap::from(missing)),
            note: watch::Sender::default(),
        }
    }

    /// The part is there.
    pub(crate) fn there(&self, part: Part) {
        self.missing
            .send_if_modified(|missing| missing.remove(&part).is_some());
    }

    /// The part is not there, or no longer.
    pub(crate) fn missing(&self, part: Part, why: impl Into<String>) {
        let why = why.into();
        self.missing.send_if_modified(|missing| {
            let changed = missing.get(&part) != Some(&why);
            missing.insert(part, why);
            changed
        });
    }

    /// What is missing now, one sentence each. Nothing: ready.
    pub(crate) fn sentences(&self) -> Vec<String> {
        self.missing.borrow().values().cloned().collect()
    }

    /// Something that people should know although it stops nothing, or that there is no such thing any more.
    pub(crate) fn note(&self, note: Option<String>) {
        self.note.send_replace(note);
    }

    /// What people should know although it stops nothing.
    pub(crate) fn noted(&self) -> Option<String> {
        self.note.borrow().clone()
    }

    /// Waits until nothing is missing.
    pub(crate) async fn complete(&self) {
        // The sender is ours, so waiting cannot fail.
        let _ = self.missing.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_means_that_nothing_is_missing() {
        let readiness = Readiness::new([(Part::Kinds, "no kinds"), (Part::Controllers, "no controllers")]);
        assert_eq!(readiness.sentences(), ["no kinds", "no controllers"]);
        readiness.there(Part::Kinds);
        readiness.missing(Part::Controllers, "they wait");
        assert_eq!(readiness.sentences(), ["they wait"]);
        readiness.there(Part::Controllers);
        readiness.complete().await;
        assert!(readiness.sentences().is_empty());
        readiness.missing(Part::Controllers, "they stopped");
        assert_eq!(readiness.sentences(), ["they stopped"]);
    }
}
