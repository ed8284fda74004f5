//! Those who contend, so that the first one for whom there is room is found without looking at the others.
//!
//! It is a tournament. Of each lane the first run plays for its agent, of each agent the first lane for its namespace, and of
//! each namespace the first agent for the cluster. Whoever has no room is left out one level below: a lane whose repository is
//! full, an agent that is full, a namespace that is full. A change plays only the matches on its way to the top again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use super::scope::{Lane, Scope};
use crate::decision::{Key, Uid};

/// Where a run stands among those of its lane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) priority: Reverse<i32>,
    pub(super) created: Timestamp,
    pub(super) uid: Uid,
    pub(super) key: Key,
}

/// Where a run stands among all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<i32>,
    /// When its turn was last; never is before every time.
    last_turn: Option<Timestamp>,
    created: Timestamp,
    uid: Uid,
}

impl Rank {
    fn new(order: &Order, last_turn: Option<Timestamp>) -> Self {
        Self {
            priority: order.priority,
            last_turn,
            created: order.created,
            uid: order.uid.clone(),
        }
    }
}

/// The winners of one level, by their rank.
#[derive(Clone, Debug)]
struct Level<K> {
    ranked: BTreeMap<Scope, BTreeSet<(Rank, K)>>,
    /// The rank under which each stands above.
    standing: BTreeMap<K, Rank>,
}

impl<K> Default for Level<K> {
    fn default() -> Self {
        Self {
            ranked: BTreeMap::new(),
            standing: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> Level<K> {
    /// Puts somebody under a new rank, or takes it out.
    fn place(&mut self, above: &Scope, who: &K, rank: Option<Rank>) {
        if let Some(before) = self.standing.remove(who)
            && let Some(ranked) = self.ranked.get_mut(above)
        {
            ranked.remove(&(before, who.clone()));
            if ranked.is_empty() {
                self.ranked.remove(above);
            }
        }
        if let Some(rank) = rank {
            self.standing.insert(who.clone(), rank.clone());
            let ranked = self.ranked.entry(above.clone()).or_default();
            ranked.insert((rank, who.clone()));
        }
    }

    fn first(&self, of: &Scope) -> Option<&(Rank, K)> {
        self.ranked.get(of)?.first()
    }
}

/// What the tournament has to know of the limits and of the turns.
pub(super) trait Rules {
    fn is_full(&self, scope: &Scope) -> bool;
    fn last_turn(&self, lane: &Lane) -> Option<Timestamp>;
}

/// All who contend.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    lanes: BTreeMap<Lane, BTreeSet<Order>>,
    /// The lanes of each turn: they change their rank together. Those of a repository also open and close together.
    turns: BTreeMap<Scope, BTreeSet<Lane>>,
    in_agent: Level<Lane>,
    in_namespace: Level<Scope>,
    in_cluster: Level<Scope>,
}

impl Line {
    pub(super) fn join(&mut self, lane: &Lane, order: Order) {
        self.lanes.entry(lane.clone()).or_default().insert(order);
        self.turns.entry(lane.turn()).or_default().insert(lane.clone());
    }

    pub(super) fn leave(&mut self, lane: &Lane, order: &Order) {
        let Some(orders) = self.lanes.get_mut(lane) else {
            return;
        };
        orders.remove(order);
        if orders.is_empty() {
            self.lanes.remove(lane);
            if let Some(lanes) = self.turns.get_mut(&lane.turn()) {
                lanes.remove(lane);
                if lanes.is_empty() {
                    self.turns.remove(&lane.turn());
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Plays the matches again that a change of this lane, or of what it is counted by, can have decided otherwise.
    pub(super) fn replay(&mut self, lane: &Lane, rules: &impl Rules) {
        let together = self.turns.get(&lane.turn()).cloned().unwrap_or_default();
        for lane in together.iter().chain([lane]) {
            self.replay_lane(lane, rules);
        }
    }

    fn replay_lane(&mut self, lane: &Lane, rules: &impl Rules) {
        let (agent, namespace) = (lane.agent_scope(), lane.namespace_scope());
        let open = lane
            .repository_scope()
            .is_none_or(|repository| !rules.is_full(&repository));
        let first = self.lanes.get(lane).and_then(BTreeSet::first);
        let rank = first
            .filter(|_| open)
            .map(|order| Rank::new(order, rules.last_turn(lane)));
        self.in_agent.place(&agent, lane, rank);

        let first = self.in_agent.first(&agent).map(|(rank, _)| rank.clone());
        let rank = first.filter(|_| !rules.is_full(&agent));
        self.in_namespace.place(&namespace, &agent, rank);

        let first = self.in_namespace.first(&namespace).map(|(rank, _)| rank.clone());
        let rank = first.filter(|_| !rules.is_full(&namespace));
        self.in_cluster.place(&Scope::Cluster, &namespace, rank);
    }

    /// The first for whom there is room.
    pub(super) fn first(&self, rules: &impl Rules) -> Option<(Lane, Order)> {
        if rules.is_full(&Scope::Cluster) {
            return None;
        }
        let (_, namespace) = self.in_cluster.first(&Scope::Cluster)?;
        let (_, agent) = self.in_namespace.first(namespace)?;
        let (_, lane) = self.in_agent.first(agent)?;
        let order = self.lanes.get(lane)?.first()?;
        Some((lane.clone(), order.clone()))
    }
}
