//! Steps that wait for each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::graph::StepId;

/// The order of the steps in which each comes after what it depends on; the steps that no order exists for are missing in it.
/// Of several that could come next, the first in the list does.
pub(super) fn order(dependencies: &[Vec<StepId>]) -> Vec<StepId> {
    let mut left: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); dependencies.len()];
    for (step, own) in dependencies.iter().enumerate() {
        for dependency in own {
            if let Some(list) = dependents.get_mut(dependency.0) {
                list.push(step);
            }
        }
    }
    let mut free: BTreeSet<usize> = (0..left.len())
        .filter(|step| left.get(*step) == Some(&0))
        .collect();
    let mut order = Vec::with_capacity(left.len());
    while let Some(step) = free.pop_first() {
        order.push(StepId(step));
        for dependent in dependents.get(step).into_iter().flatten() {
            if let Some(count) = left.get_mut(*dependent) {
                *count -= 1;
                if *count == 0 {
                    free.insert(*dependent);
                }
            }
        }
    }
    order
}

/// One cycle through each group of steps that wait for each other, as short as can be, from the first of them in the list.
pub(super) fn cycles(dependencies: &[Vec<StepId>], order: &[StepId]) -> Vec<Vec<StepId>> {
    let ordered: BTreeSet<StepId> = order.iter().copied().collect();
    let mut told: BTreeSet<StepId> = BTreeSet::new();
    let mut found = Vec::new();
    for step in (0..dependencies.len()).map(StepId) {
        if ordered.contains(&step) || told.contains(&step) {
            continue;
        }
        if let Some(cycle) = shortest(step, dependencies) {
            told.extend(group(step, dependencies));
            found.push(cycle);
        }
    }
    found
}

/// The shortest way from a step back to itself.
fn shortest(start: StepId, dependencies: &[Vec<StepId>]) -> Option<Vec<StepId>> {
    let came_from = reach(start, dependencies);
    let mut way = vec![start];
    let mut step = *came_from.get(&start)?;
    while step != start {
        way.push(step);
        step = *came_from.get(&step)?;
    }
    way.push(start);
    way.reverse();
    Some(way)
}

/// The steps that a step depends on and that depend on it, with itself.
fn group(start: StepId, dependencies: &[Vec<StepId>]) -> Vec<StepId> {
    let below = reach(start, dependencies);
    below
        .into_keys()
        .filter(|step| *step == start || reach(*step, dependencies).contains_key(&start))
        .collect()
}

/// What a step depends on, directly or further up, each with the step through which it was first found.
fn reach(start: StepId, dependencies: &[Vec<StepId>]) -> BTreeMap<StepId, StepId> {
    let mut came_from = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(step) = next.pop_front() {
        for dependency in dependencies.get(step.0).into_iter().flatten() {
            if !came_from.contains_key(dependency) {
                came_from.insert(*dependency, step);
                next.push_back(*dependency);
            }
        }
    }
    came_from
}
