//! Which run takes a branch, among runs that start in the same moment.
//!
//! A run that works on a branch is found by its Job and its status. Before there is either, it is found here: the first run
//! that is looked at takes the branch, and the next one learns of it. This is remembered for one term of leadership; a later
//! leader finds the Jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use jangar_engine::{decision::Key, vcs::WantedBranch};

/// The branches that runs have taken. There are as many as the runs that have not ended want.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// The name of the run, by namespace and branch.
    by_branch: BTreeMap<(String, WantedBranch), String>,
    by_run: BTreeMap<Key, BTreeSet<WantedBranch>>,
}

impl Claims {
    /// Takes a branch for a run, if no other run has it. The error is the name of the other run.
    pub(super) fn take(&self, run: &Key, branch: &WantedBranch) -> Result<(), String> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (run.namespace.clone(), branch.clone());
        let owner = taken.by_branch.entry(place).or_insert_with(|| run.name.clone());
        if *owner != run.name {
            return Err(owner.clone());
        }
        taken
            .by_run
            .entry(run.clone())
            .or_default()
            .insert(branch.clone());
        Ok(())
    }

    /// The run has ended, or is gone.
    pub(super) fn give_back(&self, run: &Key) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for branch in taken.by_run.remove(run).into_iter().flatten() {
            taken.by_branch.remove(&(run.namespace.clone(), branch));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        Key {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_branch_is_taken_once_until_it_is_given_back() {
        let claims = Claims::default();
        let branch = WantedBranch::new("example/adder", "fix");
        let (first, second) = (key("agents", "a"), key("agents", "b"));

        assert_eq!(claims.take(&first, &branch), Ok(()));
        assert_eq!(claims.take(&first, &branch), Ok(()));
        assert_eq!(claims.take(&second, &branch), Err("a".to_owned()));
        assert_eq!(claims.take(&key("others", "b"), &branch), Ok(()));
        claims.give_back(&second);
        assert_eq!(claims.take(&second, &branch), Err("a".to_owned()));
        claims.give_back(&first);
        assert_eq!(claims.take(&second, &branch), Ok(()));
    }
}
