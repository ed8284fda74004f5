//! What a cancel looks like to somebody who watches: when the pods were gone, and when their runs were said to have ended.

use std::{collections::BTreeMap, time::Instant};

use crate::hops::seconds_between;

/// Something that was seen. Versions of the API server order what happened, also when two watches are read one after the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Instant,
    pub version: u64,
}

/// The pods of a number of runs, and the runs.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// By the name of the pod: its run, and when the pod was gone or had ended.
    pods: BTreeMap<String, (String, Option<Moment>)>,
    reported: BTreeMap<String, Moment>,
}

impl Watched {
    pub fn pod_is_there(&mut self, pod: &str, run: &str) {
        self.pods
            .entry(pod.to_owned())
            .or_insert_with(|| (run.to_owned(), None));
    }

    /// Only the first time counts: a pod that has ended is also removed some time.
    pub fn pod_is_gone(&mut self, pod: &str, moment: Moment) {
        if let Some((_, gone)) = self.pods.get_mut(pod) {
            gone.get_or_insert(moment);
        }
    }

    pub fn run_is_reported(&mut self, run: &str, moment: Moment) {
        self.reported.entry(run.to_owned()).or_insert(moment);
    }

    /// When all this many runs were reported and no pod is left.
    pub fn is_over(&self, runs: usize) -> bool {
        self.reported.len() >= runs && self.pods.values().all(|(_, gone)| gone.is_some())
    }

    /// How many pods were alive when their run was said to have ended.
    pub fn alive_when_reported(&self) -> usize {
        let alive = |(run, gone): &&(String, Option<Moment>)| {
            self.reported
                .get(run)
                .is_some_and(|reported| gone.is_none_or(|gone| gone.version > reported.version))
        };
        self.pods.values().filter(alive).count()
    }

    /// From the request to the last pod's end.
    pub fn all_gone_after(&self, asked: Instant) -> Option<f64> {
        let last = self.gone().map(|(_, moment)| moment.at).max()?;
        Some(seconds_between(asked, last))
    }

    /// From the request until the last run was reported.
    pub fn all_reported_after(&self, asked: Instant) -> Option<f64> {
        let last = self.reported.values().map(|moment| moment.at).max()?;
        Some(seconds_between(asked, last))
    }

    /// For each run, from the end of its last pod to its report: negative where the report came first.
    pub fn report_delays(&self) -> Vec<f64> {
        let mut last: BTreeMap<&str, Instant> = BTreeMap::new();
        for (run, moment) in self.gone() {
            let latest = last.entry(run).or_insert(moment.at);
            *latest = moment.at.max(*latest);
        }
        let delay = |(run, ended): (&str, Instant)| {
            let reported = self.reported.get(run)?;
            Some(seconds_between(ended, reported.at))
        };
        last.into_iter().filter_map(delay).collect()
    }

    fn gone(&self) -> impl Iterator<Item = (&str, Moment)> {
        let pods = self.pods.values();
        pods.filter_map(|(run, gone)| gone.map(|moment| (run.as_str(), moment)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rounded(seconds: f64) -> f64 {
        (seconds * 10.0).round() / 10.0
    }

    #[test]
    fn the_order_is_that_of_the_versions_and_not_of_the_watches() {
        let start = Instant::now();
        let moment = |seconds, version| Moment {
            at: start + Duration::from_secs(seconds),
            version,
        };
        let mut watched = Watched::default();
        for (pod, run) in [("p1", "honest"), ("p2", "hasty"), ("p3", "hasty")] {
            watched.pod_is_there(pod, run);
        }
        // The watch of runs is read before that of pods.
        watched.run_is_reported("honest", moment(1, 20));
        watched.pod_is_gone("p1", moment(2, 19));
        watched.run_is_reported("hasty", moment(3, 30));
        watched.pod_is_gone("p2", moment(4, 29));
        assert!(!watched.is_over(2), "a pod is left");
        watched.pod_is_gone("p3", moment(9, 31));
        watched.pod_is_gone("p3", moment(99, 99));

        assert!(watched.is_over(2));
        assert_eq!(watched.alive_when_reported(), 1);
        assert_eq!(watched.all_gone_after(start).map(rounded), Some(9.0));
        assert_eq!(watched.all_reported_after(start).map(rounded), Some(3.0));
        let delays: Vec<_> = watched.report_delays().into_iter().map(rounded).collect();
        assert_eq!(delays, [-6.0, -1.0], "of hasty and of honest");
    }

    #[test]
    fn a_pod_that_never_goes_counts_as_alive() {
        let mut watched = Watched::default();
        watched.pod_is_there("p", "run");
        watched.run_is_reported(
            "run",
            Moment {
                at: Instant::now(),
                version: 1,
            },
        );

        assert_eq!(watched.alive_when_reported(), 1);
        assert!(!watched.is_over(1));
    }
}
