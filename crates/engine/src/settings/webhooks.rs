//! What an operator chooses about webhooks: how many deliveries may wait, and how often they are tried.

use std::time::Duration;

use super::{
    reader::Reader,
    table::{Unset, Variable, seconds},
};

/// Each waiting delivery holds its issue in memory: more than this are taken for a slip.
const QUEUE_MAX: u32 = 100_000;
/// An hour. Whoever sent the delivery has sent it again long before.
const PAUSE_SECONDS_MAX: u32 = 3_600;
/// With pauses that double, more attempts than this only keep the queue full.
const ATTEMPTS_MAX: u32 = 20;

/// How deliveries of webhooks are worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Deliveries that may be under way or wait for another attempt.
    pub queue_size: u32,
    /// The pause after the first attempt that failed. It doubles with each.
    pub pause_first: Duration,
    pub pause_most: Duration,
    /// How often a delivery is tried in all.
    pub attempts: u32,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            queue_size: 1_000,
            pause_first: Duration::from_secs(1),
            pause_most: Duration::from_mins(1),
            attempts: 5,
        }
    }
}

impl WebhookSettings {
    /// How long to wait after so many attempts that failed.
    pub fn pause(&self, failed: u32) -> Duration {
        let doublings = failed.saturating_sub(1);
        self.pause_first
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(self.pause_most)
    }
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_WEBHOOK_QUEUE_SIZE",
        unset: Unset::Is("1000"),
        meaning: "How many deliveries of webhooks may be under way or wait for another attempt before more are told to come back.",
        reader: Reader::Number {
            from: 1,
            to: QUEUE_MAX,
            or_zero: false,
            set: |draft, number| draft.settings.webhooks.queue_size = number,
        },
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_BASE_DELAY_SECONDS",
        unset: Unset::Is("1"),
        meaning: "The pause after the first attempt to take in a delivery that failed, in seconds, which doubles with each.",
        reader: Reader::Number {
            from: 0,
            to: PAUSE_SECONDS_MAX,
            or_zero: false,
            set: |draft, number| draft.settings.webhooks.pause_first = seconds(number),
        },
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_DELAY_SECONDS",
        unset: Unset::Is("60"),
        meaning: "The longest pause, in seconds.",
        reader: Reader::Number {
            from: 0,
            to: PAUSE_SECONDS_MAX,
            or_zero: false,
            set: |draft, number| draft.settings.webhooks.pause_most = seconds(number),
        },
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_WEBHOOK_RETRY_MAX_ATTEMPTS",
        unset: Unset::Is("5"),
        meaning: "How often a delivery is tried in all.",
        reader: Reader::Number {
            from: 1,
            to: ATTEMPTS_MAX,
            or_zero: false,
            set: |draft, number| draft.settings.webhooks.attempts = number,
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let settings = WebhookSettings::default();
        let pauses: Vec<u64> = (1..=8).map(|failed| settings.pause(failed).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(settings.pause(u32::MAX), Duration::from_mins(1));
        let at_once = WebhookSettings {
            pause_first: Duration::ZERO,
            ..settings
        };
        assert_eq!(at_once.pause(3), Duration::ZERO);
    }
}
