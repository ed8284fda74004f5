//! The time between two steps of a chain: from the end of one pod to the next one's creation.

use std::{collections::BTreeMap, time::Instant};

/// When the pods of a chain were created and when they ended, by the clock of the one who watches.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    pods: BTreeMap<String, Life>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    created: Instant,
    ended: Option<Instant>,
}

impl Lives {
    /// Takes down that a pod was seen, and says whether it was seen to have ended for the first time.
    pub fn see(&mut self, pod: &str, has_ended: bool, at: Instant) -> bool {
        let life = self.pods.entry(pod.to_owned()).or_insert(Life {
            created: at,
            ended: None,
        });
        if !has_ended || life.ended.is_some() {
            return false;
        }
        life.ended = Some(at);
        true
    }

    /// How many pods have ended.
    pub fn ended(&self) -> usize {
        self.pods.values().filter(|life| life.ended.is_some()).count()
    }

    /// The hops of the chain in seconds, in order. One that is negative would say that two steps overlapped.
    pub fn hops(&self) -> Vec<f64> {
        let mut lives: Vec<Life> = self.pods.values().copied().collect();
        lives.sort_by_key(|life| life.created);
        let pairs = lives.iter().zip(lives.iter().skip(1));
        pairs
            .filter_map(|(one, next)| one.ended.map(|ended| seconds_between(ended, next.created)))
            .collect()
    }
}

/// From one moment to another, which may be before it.
pub fn seconds_between(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hop_is_from_the_end_of_a_pod_to_the_next_one() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut lives = Lives::default();
        // The names are not in the order of the chain.
        lives.see("b", false, at(0));
        assert!(lives.see("b", true, at(100)), "it ended");
        assert!(!lives.see("b", true, at(200)), "it ended before");
        lives.see("a", false, at(350));
        lives.see("a", true, at(400));
        lives.see("c", false, at(390));

        assert_eq!(lives.ended(), 2);
        let hops = lives.hops();
        let rounded: Vec<_> = hops.iter().map(|hop| (hop * 1000.0).round()).collect();
        assert_eq!(rounded, [250.0, -10.0]);
    }
}
