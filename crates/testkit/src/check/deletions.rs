//! What must hold for the pace at which runs go.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::program::DELETIONS_PER_MINUTE;

/// Within this time no more runs go than in a minute. It is shorter than a minute, because a request may be on its way for a
/// while, and shorter than a lease, because a new leader does not know what the one before it did.
const SPAN: Duration = Duration::from_secs(25);

/// When runs went, as far as it matters.
#[derive(Clone, Debug, Default)]
pub struct Deletions(VecDeque<Instant>);

impl Deletions {
    /// A run went: says what that breaks. People delete one at most.
    pub fn broken(&mut self, now: Instant) -> Option<String> {
        while self.0.front().is_some_and(|at| *at + SPAN <= now) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        let (count, seconds) = (self.0.len(), SPAN.as_secs());
        let bound = usize::try_from(DELETIONS_PER_MINUTE).unwrap_or(usize::MAX);
        (count > bound).then(|| format!("{count} runs were deleted within {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_run_within_the_span_is_one_too_many() {
        let origin = Instant::now();
        let mut deletions = Deletions::default();
        let mut at = |seconds| deletions.broken(origin + Duration::from_secs(seconds));

        assert_eq!(at(0), None);
        assert_eq!(at(10), None);
        assert_eq!(at(25), None);
        assert!(at(26).is_some());
    }
}
