//! The steps of an orchestration as a graph. There is no way to make one that is wrong: [`read`](super::read) makes it.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::orchestration::Step;

use super::{condition::Condition, work::Work};

/// A step, by its position in the list. Ties go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub usize);

/// One step.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub work: Work,
    /// The steps that have to end before it, without repetition, in the order of the list.
    pub dependencies: Vec<StepId>,
    /// Whether its failure is only recorded.
    pub continue_on_failure: bool,
    pub when: Option<Condition>,
    /// How many attempts it has in all.
    pub attempts: u32,
    /// How long the second attempt waits.
    pub backoff: Duration,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// As it was written.
    pub step: Step,
}

/// Steps without unknown names, repetitions or cycles.
#[derive(Debug)]
pub struct Graph {
    nodes: Vec<Node>,
    /// Every step after all that it depends on; of several that could come next, the first in the list.
    order: Vec<StepId>,
    above: Vec<Bits>,
    by_name: BTreeMap<String, StepId>,
}

impl Graph {
    /// What has been checked becomes a graph. `order` has every step after its dependencies.
    pub(super) fn new(nodes: Vec<Node>, order: Vec<StepId>) -> Self {
        let above = above(&order, nodes.len(), |step| {
            nodes
                .get(step.0)
                .map_or(&[][..], |node| node.dependencies.as_slice())
        });
        let by_name = nodes
            .iter()
            .enumerate()
            .map(|(position, node)| (node.name.clone(), StepId(position)))
            .collect();
        Self {
            nodes,
            order,
            above,
            by_name,
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The steps in the order of the list.
    pub fn steps(&self) -> impl Iterator<Item = (StepId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(position, node)| (StepId(position), node))
    }

    /// The steps in an order in which each comes after what it depends on.
    pub fn in_order(&self) -> impl Iterator<Item = (StepId, &Node)> {
        self.order
            .iter()
            .filter_map(|step| Some((*step, self.node(*step)?)))
    }

    pub fn node(&self, step: StepId) -> Option<&Node> {
        self.nodes.get(step.0)
    }

    pub fn name(&self, step: StepId) -> &str {
        self.node(step).map_or("", |node| node.name.as_str())
    }

    pub fn find(&self, name: &str) -> Option<StepId> {
        self.by_name.get(name).copied()
    }

    /// The steps that this one depends on, directly or further up, in the order of the list.
    pub fn ancestors(&self, step: StepId) -> impl Iterator<Item = StepId> {
        let bits = self.above.get(step.0);
        (0..self.nodes.len())
            .filter(move |position| bits.is_some_and(|bits| bits.has(*position)))
            .map(StepId)
    }
}

/// Which steps each one depends on, directly or further up. Steps that are not in the order have none.
pub(super) fn above<'d>(
    order: &[StepId],
    count: usize,
    dependencies: impl Fn(StepId) -> &'d [StepId],
) -> Vec<Bits> {
    let mut above = vec![Bits::default(); count];
    for step in order {
        let mut own = Bits::default();
        for dependency in dependencies(*step) {
            own.add(dependency.0);
            if let Some(further) = above.get(dependency.0) {
                own.join(further);
            }
        }
        if let Some(place) = above.get_mut(step.0) {
            *place = own;
        }
    }
    above
}

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn has(&self, number: usize) -> bool {
        let word = self.0.get(number / 64);
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    fn add(&mut self, number: usize) {
        let place = number / 64;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        if let Some(word) = self.0.get_mut(place) {
            *word |= 1 << (number % 64);
        }
    }

    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own |= other;
        }
    }
}
