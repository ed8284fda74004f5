//! How long a Job waits before it replaces a failed pod.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::pods::{Phase, PodView};

/// The wait after the first failure; each further one doubles it.
const DELAY: SignedDuration = SignedDuration::from_secs(10);
const DELAY_MAX: SignedDuration = SignedDuration::from_mins(10);

/// When the pods of one Job ended. It remembers those that are gone by now; a restart forgets them, as it does in Kubernetes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ends {
    /// By UID, so that no pod is counted twice, with the time at which its failure was first seen.
    failed: BTreeMap<String, Timestamp>,
    last_success: Option<Timestamp>,
}

impl Ends {
    /// What is known together with what these pods tell.
    pub(super) fn with(&self, pods: &[PodView<'_>], only_ended: bool) -> Self {
        let mut ends = self.clone();
        for pod in pods {
            if pod.phase == Phase::Succeeded {
                ends.last_success = ends.last_success.max(Some(pod.finished_at()));
            } else if pod.is_failed(only_ended) {
                ends.failed
                    .entry(pod.uid.to_owned())
                    .or_insert_with(|| pod.finished_at());
            }
        }
        ends
    }

    /// When the next pod may be made; `None` when nothing has failed since the last success.
    pub(super) fn next_start(&self) -> Option<Timestamp> {
        let failed = self
            .failed
            .values()
            .filter(|time| self.last_success.is_none_or(|success| **time > success));
        let count = failed.clone().count();
        let last = failed.max()?;
        Some(last.saturating_add(delay(count)).unwrap_or(*last))
    }
}

fn delay(failures: usize) -> SignedDuration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let factor = 2_i32.checked_pow(doublings).unwrap_or(i32::MAX);
    DELAY.checked_mul(factor).unwrap_or(DELAY_MAX).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_from_ten_seconds_to_ten_minutes() {
        let seconds: Vec<i64> = [1, 2, 3, 6, 7, 8, 1_000_000]
            .into_iter()
            .map(|failures| delay(failures).as_secs())
            .collect();
        assert_eq!(seconds, [10, 20, 40, 320, 600, 600, 600]);
    }

    #[test]
    fn success_ends_the_waiting_for_older_failures() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut ends = Ends::default();
        assert_eq!(ends.next_start(), None);
        ends.failed.insert("a".to_owned(), at(100));
        ends.failed.insert("b".to_owned(), at(120));
        assert_eq!(ends.next_start(), Some(at(140)));
        ends.last_success = Some(at(110));
        assert_eq!(ends.next_start(), Some(at(130)));
        ends.last_success = Some(at(120));
        assert_eq!(ends.next_start(), None);
    }
}
