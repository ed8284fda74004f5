//! A canary that does not lead: it plans everything without writing, and tells what it would do differently.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jangar_engine::decision::Key;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    driver::{Context, Other, Station, Survey, TermSetup, open},
    metrics::{CanaryOutcome, Metrics},
};

/// How long after a survey the next one begins. A person decides about a canary in minutes.
pub(crate) const SURVEY_PAUSE: Duration = Duration::from_secs(10);

/// How long a difference must last to be one: a leader that is about to do the same is much quicker.
const DIFFERENCE_MIN: Duration = Duration::from_secs(30);

/// How many objects are named where a canary says why it is not ready.
const NAMED_MAX: usize = 5;

/// A canary with caches of its own.
pub(crate) struct Canary {
    context: Arc<Context>,
    stations: Vec<Arc<dyn Station>>,
    tally: Tally,
    /// They end when they are dropped: they only read.
    _watches: JoinSet<()>,
}

impl Canary {
    /// Fills the caches. The gate of `setup` should be one that is shut.
    pub(crate) async fn begin(setup: TermSetup, stations: Vec<Arc<dyn Station>>) -> Self {
        let (context, watches) = open(setup, Vec::new());
        context.world.until(crate::caches::Caches::are_ready).await;
        Self {
            context,
            stations,
            tally: Tally::default(),
            _watches: watches,
        }
    }

    /// Plans everything once, counts, and returns what keeps the canary from being ready.
    pub(crate) async fn survey(&mut self) -> Vec<String> {
        let mut unplannable = Vec::new();
        for station in &self.stations {
            let survey = Arc::clone(station).survey(Arc::clone(&self.context)).await;
            let counts = self.tally.take(station.name(), &survey, Instant::now());
            counts.tell(station.name(), &self.context.metrics);
            unplannable.extend(accepted_and_unplannable(&survey));
        }
        unplannable
    }
}

impl Drop for Canary {
    /// What was counted is no longer known.
    fn drop(&mut self) {
        for station in &self.stations {
            Counts::default().tell(station.name(), &self.context.metrics);
        }
    }
}

/// The objects that the leader works on and this version cannot, in words; the first few, and how many more.
fn accepted_and_unplannable(survey: &Survey) -> Vec<String> {
    let all: Vec<String> = survey
        .others
        .iter()
        .filter_map(|(key, other)| match other {
            Other::Unplannable { accepted: true, why } => Some(format!("{key}: {why}")),
            _ => None,
        })
        .collect();
    let left = all.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> = all.into_iter().take(NAMED_MAX).collect();
    if left > 0 {
        named.push(format!("and {left} more"));
    }
    named
}

/// Since when each difference has been there.
#[derive(Debug, Default)]
struct Tally {
    since: BTreeMap<(&'static str, Key), Difference>,
}

#[derive(Debug)]
struct Difference {
    version: String,
    since: Instant,
    told: bool,
}

impl Tally {
    /// Takes a survey in. A difference counts once it has been there for a while with the same version of the object.
    fn take(&mut self, controller: &'static str, survey: &Survey, now: Instant) -> Counts {
        self.since.retain(|(of, key), difference| {
            *of != controller
                || matches!(survey.others.get(key), Some(Other::Differs { version, .. }) if *version == difference.version)
        });
        let mut counts = Counts {
            same: survey.same,
            ..Counts::default()
        };
        for (key, other) in &survey.others {
            match other {
                Other::Differs { version, would } => {
                    let difference =
                        self.since
                            .entry((controller, key.clone()))
                            .or_insert_with(|| Difference {
                                version: version.clone(),
                                since: now,
                                told: false,
                            });
                    if now.duration_since(difference.since) < DIFFERENCE_MIN {
                        counts.recent += 1;
                        continue;
                    }
                    counts.differs += 1;
                    if !std::mem::replace(&mut difference.told, true) {
                        tracing::warn!(controller, object = %key, would, "this canary would do what the leader does not");
                    }
                }
                Other::AsksForSlot => counts.asks_for_slot += 1,
                Other::LeftToLeader => counts.left_to_leader += 1,
                Other::Unplannable { accepted, why } => {
                    counts.unplannable += 1;
                    tracing::warn!(controller, object = %key, accepted, why, "this canary cannot plan an object");
                }
                Other::Unread { why } => {
                    counts.unread += 1;
                    tracing::debug!(controller, object = %key, why, "not known this time");
                }
            }
        }
        counts
    }
}

/// How many objects of one controller there are of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    same: usize,
    recent: usize,
    differs: usize,
    asks_for_slot: usize,
    left_to_leader: usize,
    unplannable: usize,
    unread: usize,
}

impl Counts {
    fn tell(&self, controller: &'static str, metrics: &Metrics) {
        for (outcome, count) in [
            (CanaryOutcome::Same, self.same),
            (CanaryOutcome::Recent, self.recent),
            (CanaryOutcome::Differs, self.differs),
            (CanaryOutcome::AsksForSlot, self.asks_for_slot),
            (CanaryOutcome::LeftToLeader, self.left_to_leader),
            (CanaryOutcome::Unplannable, self.unplannable),
            (CanaryOutcome::Unread, self.unread),
        ] {
            metrics.canary(controller, outcome, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_owned(),
        }
    }

    fn survey(others: &[(&str, Other)]) -> Survey {
        Survey {
            same: 1,
            others: others
                .iter()
                .map(|(name, other)| (key(name), other.clone()))
                .collect(),
        }
    }

    fn differs(version: &str) -> Other {
        Other::Differs {
            version: version.to_owned(),
            would: "create_job".to_owned(),
        }
    }

    #[test]
    fn a_difference_counts_when_it_has_lasted_with_the_same_version() {
        let start = Instant::now();
        let mut tally = Tally::default();
        let mut at =
            |after, survey: &Survey| tally.take("agent-run", survey, start + Duration::from_secs(after));
        let counts = |recent, differs| Counts {
            same: 1,
            recent,
            differs,
            ..Counts::default()
        };

        assert_eq!(at(0, &survey(&[("a", differs("1"))])), counts(1, 0));
        assert_eq!(at(29, &survey(&[("a", differs("1"))])), counts(1, 0));
        assert_eq!(at(30, &survey(&[("a", differs("1"))])), counts(0, 1));
        // Somebody changed it: the leader may be about to act.
        assert_eq!(at(40, &survey(&[("a", differs("2"))])), counts(1, 0));
        // The leader did, and later it differs again.
        assert_eq!(at(50, &survey(&[])), counts(0, 0));
        assert_eq!(at(80, &survey(&[("a", differs("2"))])), counts(1, 0));
        assert_eq!(at(110, &survey(&[("a", differs("2"))])), counts(0, 1));
    }

    #[test]
    fn controllers_are_tallied_apart() {
        let start = Instant::now();
        let mut tally = Tally::default();
        tally.take("agent-run", &survey(&[("a", differs("1"))]), start);
        tally.take("tool-run", &survey(&[]), start);
        let counts = tally.take(
            "agent-run",
            &survey(&[("a", differs("1"))]),
            start + DIFFERENCE_MIN,
        );
        assert_eq!(counts.differs, 1);
    }

    #[test]
    fn only_what_the_leader_has_accepted_keeps_a_canary_from_being_ready() {
        let unplannable = |accepted| Other::Unplannable {
            accepted,
            why: "spec.x: unknown".to_owned(),
        };
        let found = survey(&[("new", unplannable(false)), ("old", unplannable(true))]);
        assert_eq!(accepted_and_unplannable(&found), ["agents/old: spec.x: unknown"]);

        let many: Vec<(String, Other)> = (0..8).map(|n| (format!("run-{n}"), unplannable(true))).collect();
        let many: Vec<(&str, Other)> = many
            .iter()
            .map(|(name, other)| (name.as_str(), other.clone()))
            .collect();
        let named = accepted_and_unplannable(&survey(&many));
        assert_eq!(named.len(), NAMED_MAX + 1);
        assert_eq!(named.last().map(String::as_str), Some("and 3 more"));
    }
}
