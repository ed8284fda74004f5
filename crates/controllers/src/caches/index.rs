//! Finds the objects of a namespace that name another one, without looking at all of them.

use std::collections::{BTreeMap, BTreeSet};

use jangar_engine::{decision::Key, vcs::WantedBranch};

/// What an object names, and can be found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// The AgentRun that a Job or a pod belongs to, as its label says.
    AgentRun(String),
    /// The ToolRun that a Job or a pod belongs to, as its label says.
    ToolRun(String),
    Tool(String),
    /// The OrchestrationRun that a run does the work of a step for, as its label says.
    OrchestrationRun(String),
    /// The same, whether or not that has recorded its end.
    ChildOf(String),
    Orchestration(String),
    ApprovalPolicy(String),
    /// The ApprovalPolicy under which somebody decided a gate of a run.
    DecidedUnder(String),
    /// The Signal that happened, or that is waited for.
    Signal(String),
    /// The one delivery of a signal that is waited for, by the id that its sender gave it.
    DeliveryId(String),
    Agent(String),
    AgentProvider(String),
    ImplementationSpec(String),
    Memory(String),
    VersionControlProvider(String),
    /// A branch that a run or a Job writes to.
    Branch(WantedBranch),
    /// That the object is a Memory for whoever names none.
    DefaultMemory,
}

impl Term {
    /// Whether it is something that deliveries of signals are found by.
    pub(crate) const fn is_of_delivery(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::DeliveryId(_))
    }
}

/// Names of objects, by namespace and term. Sorted, so that the order of what is found never depends on chance.
#[derive(Debug, Default)]
pub(super) struct Index {
    names: BTreeMap<(String, Term), BTreeSet<String>>,
}

impl Index {
    pub(super) fn insert(&mut self, key: &Key, terms: &BTreeSet<Term>) {
        for term in terms {
            let place = (key.namespace.clone(), term.clone());
            self.names.entry(place).or_default().insert(key.name.clone());
        }
    }

    pub(super) fn remove(&mut self, key: &Key, terms: &BTreeSet<Term>) {
        for term in terms {
            let place = (key.namespace.clone(), term.clone());
            if let Some(names) = self.names.get_mut(&place) {
                names.remove(&key.name);
                if names.is_empty() {
                    self.names.remove(&place);
                }
            }
        }
    }

    /// The names of the objects in a namespace that name this.
    pub(super) fn find(&self, namespace: &str, term: Term) -> impl Iterator<Item = &String> + use<'_> {
        self.names
            .get(&(namespace.to_owned(), term))
            .into_iter()
            .flatten()
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
    fn finds_by_term_within_one_namespace() {
        let mut index = Index::default();
        let terms = BTreeSet::from([Term::Agent("coder".to_owned())]);
        index.insert(&key("a", "one"), &terms);
        index.insert(&key("b", "two"), &terms);

        let found: Vec<_> = index.find("a", Term::Agent("coder".to_owned())).collect();

        assert_eq!(found, ["one"]);
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut index = Index::default();
        let terms = BTreeSet::from([Term::Agent("coder".to_owned()), Term::Memory("notes".to_owned())]);
        index.insert(&key("a", "one"), &terms);

        index.remove(&key("a", "one"), &terms);

        assert!(index.names.is_empty());
    }
}
