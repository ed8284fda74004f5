//! How long to wait before something that failed is tried again.

use std::time::Duration;

/// Waiting times that double with each failure in a row, between two bounds.
///
/// There is no chance in it: one process at a time does the work, so nobody has to be kept from trying at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl Backoff {
    /// How long to wait after this many failures in a row.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_millis(200),
        most: Duration::from_secs(30),
    };

    #[test]
    fn doubles_until_the_bound_and_stays_there() {
        let pause = |failures| BACKOFF.delay(failures).as_millis();

        assert_eq!([1, 2, 3, 8].map(pause), [200, 400, 800, 25_600]);
        assert_eq!([9, 40, u32::MAX].map(pause), [30_000; 3]);
    }
}
