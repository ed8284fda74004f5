//! Which claims are in use, so that the directory of a deleted one stays until its last pod has ended.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
struct Use {
    pods: usize,
    abandoned: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ClaimsInUse(Mutex<BTreeMap<String, Use>>);

impl ClaimsInUse {
    pub(crate) fn take(&self, uid: &str) {
        self.locked().entry(uid.to_owned()).or_default().pods += 1;
    }

    /// A pod has ended. `true` says that its claim is deleted and nobody uses it any more.
    pub(crate) fn release(&self, uid: &str) -> bool {
        let mut uses = self.locked();
        let Some(found) = uses.get_mut(uid) else {
            return false;
        };
        found.pods = found.pods.saturating_sub(1);
        let abandoned = found.abandoned;
        if found.pods > 0 {
            return false;
        }
        uses.remove(uid);
        abandoned
    }

    /// The claim is deleted. `true` says that nobody uses it.
    pub(crate) fn abandon(&self, uid: &str) -> bool {
        match self.locked().get_mut(uid) {
            Some(found) => {
                found.abandoned = true;
                false
            }
            None => true,
        }
    }

    /// The claim is deleted, and pods that have not been found again yet may use it.
    pub(crate) fn abandon_in_use(&self, uid: &str) {
        self.locked().entry(uid.to_owned()).or_default().abandoned = true;
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Use>> {
        // Counts are changed in single steps, so a panic elsewhere leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_claim_is_kept_until_its_last_pod_has_ended() {
        let claims = ClaimsInUse::default();
        assert!(claims.abandon("unused"));
        claims.take("a");
        claims.take("a");
        assert!(!claims.release("a"));
        assert!(!claims.abandon("a"));
        assert!(claims.release("a"), "the last one removes it");
        claims.take("b");
        assert!(!claims.release("b"), "it is not deleted");
        claims.abandon_in_use("c");
        claims.take("c");
        assert!(claims.release("c"));
    }
}
