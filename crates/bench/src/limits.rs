//! Whether limits hold, seen from outside: how many pods live at once, in all and for each Agent.

use std::collections::{BTreeMap, BTreeSet};

/// The pods that live, by the Agent that they work for, and the most there ever were.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    living: BTreeMap<String, BTreeSet<String>>,
    most: usize,
    most_of_one: usize,
}

impl Crowd {
    /// Takes down that a pod lives.
    pub fn lives(&mut self, pod: &str, agent: &str) {
        let of_one = self.living.entry(agent.to_owned()).or_default();
        of_one.insert(pod.to_owned());
        self.most_of_one = self.most_of_one.max(of_one.len());
        self.most = self.most.max(self.now());
    }

    /// Takes down that a pod has ended, or is gone.
    pub fn ends(&mut self, pod: &str, agent: &str) {
        if let Some(of_one) = self.living.get_mut(agent) {
            of_one.remove(pod);
        }
    }

    fn now(&self) -> usize {
        self.living.values().map(BTreeSet::len).sum()
    }

    /// The most that lived at once.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The most that lived at once for one Agent.
    pub fn most_of_one(&self) -> usize {
        self.most_of_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_at_once_is_kept_when_fewer_live_again() {
        let mut crowd = Crowd::default();
        crowd.lives("a", "x");
        crowd.lives("b", "x");
        // A pod is seen more than once.
        crowd.lives("b", "x");
        crowd.lives("c", "y");
        crowd.ends("a", "x");
        crowd.ends("a", "x");
        crowd.lives("d", "y");

        assert_eq!((crowd.most(), crowd.most_of_one()), (3, 2));
    }
}
