//! What was true of runs before, and is not any more.
//!
//! A run is written when it has ended, and its conditions have the time of their last change only. So what a condition said before it
//! changed, such as what the run waited for, is kept here until the run is written, and is written with it. It is in memory alone:
//! it costs no write, and whoever takes over in the middle of a run knows nothing of what was before.

use std::collections::BTreeMap;

use jangar_api::condition::Condition;
use jangar_engine::decision::Uid;

/// How many changes are kept of a run. One that goes to and fro more often says nothing new by it.
const CHANGES_MAX: usize = 32;
/// Of how many runs any are kept, at once.
const RUNS_MAX: usize = 10_000;
/// How much is kept of a message.
const MESSAGE_MAX_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Earlier(BTreeMap<Uid, Vec<Condition>>);

impl Earlier {
    /// Keeps what is no longer true; how much of it there was no room for.
    pub(super) fn keep(&mut self, run: &Uid, over: Vec<Condition>) -> usize {
        let mut lost = 0;
        if self.0.len() >= RUNS_MAX && !self.0.contains_key(run) {
            // Any: what is never written must not keep out what will be.
            lost += self.0.pop_first().map_or(0, |(_, kept)| kept.len());
        }
        let kept = self.0.entry(run.clone()).or_default();
        let room = CHANGES_MAX.saturating_sub(kept.len());
        lost += over.len().saturating_sub(room);
        kept.extend(over.into_iter().take(room).map(|mut condition| {
            cut(&mut condition.message);
            condition
        }));
        lost
    }

    pub(super) fn of(&self, run: &Uid) -> Vec<Condition> {
        self.0.get(run).cloned().unwrap_or_default()
    }

    /// The first of them are written.
    pub(super) fn forget(&mut self, run: &Uid, written: usize) {
        if let Some(kept) = self.0.get_mut(run) {
            kept.drain(..written.min(kept.len()));
            if kept.is_empty() {
                self.0.remove(run);
            }
        }
    }
}

/// Leaves as many whole words as there is room for. Half of a secret could not be told from other words any more, and what is
/// secret is withheld only when it is written.
fn cut(message: &mut String) {
    if message.len() > MESSAGE_MAX_BYTES {
        let room = message.floor_char_boundary(MESSAGE_MAX_BYTES);
        let end = message[..room].rfind(char::is_whitespace).unwrap_or_default();
        message.truncate(end);
    }
}

/// What was said before, and is no longer said with the same reason.
pub(super) fn over(before: &[Condition], now: &[Condition]) -> Vec<Condition> {
    let still = |old: &Condition| {
        let mut all = now.iter();
        all.any(|new| new.type_ == old.type_ && new.status == old.status && new.reason == old.reason)
    };
    before.iter().filter(|old| !still(old)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, status: &str, reason: &str) -> Condition {
        serde_json::from_value(json!({
            "type": type_, "status": status, "reason": reason, "message": "word ".repeat(400),
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }))
        .unwrap()
    }

    fn uid(number: usize) -> Uid {
        Uid(number.to_string())
    }

    #[test]
    fn what_changed_its_status_or_its_reason_or_went_is_over() {
        let before = [
            condition("Blocked", "True", "QueueLimit"),
            condition("Accepted", "True", "Accepted"),
            condition("Warning", "True", "Odd"),
        ];
        let now = [
            condition("Accepted", "True", "Accepted"),
            condition("Blocked", "True", "ConcurrencyLimit"),
        ];
        let found = over(&before, &now);
        let types: Vec<String> = found.iter().map(|found| found.type_.to_string()).collect();
        assert_eq!(types, ["Blocked", "Warning"]);
        assert!(over(&now, &now).is_empty());
    }

    #[test]
    fn there_is_a_bound_for_each_run_and_for_all_of_them() {
        let mut earlier = Earlier::default();
        let some = |count: usize| vec![condition("Blocked", "True", "QueueLimit"); count];
        assert_eq!(earlier.keep(&uid(0), some(CHANGES_MAX + 3)), 3);
        assert_eq!(earlier.of(&uid(0)).len(), CHANGES_MAX);
        let message = &earlier.of(&uid(0))[0].message;
        assert!(
            message.len() < MESSAGE_MAX_BYTES && message.ends_with("word"),
            "{message}"
        );
        for number in 1..RUNS_MAX {
            assert_eq!(earlier.keep(&uid(number), some(1)), 0);
        }
        assert_eq!(
            earlier.keep(&uid(RUNS_MAX), some(2)),
            CHANGES_MAX,
            "one of the others goes"
        );
        earlier.forget(&uid(1), 1);
        assert_eq!(
            earlier.keep(&uid(RUNS_MAX + 1), some(2)),
            0,
            "there is room again"
        );
    }

    #[test]
    fn a_message_is_not_cut_within_a_word() {
        let mut message = format!(
            "{} https://user:secret@example",
            "m".repeat(MESSAGE_MAX_BYTES - 15)
        );
        cut(&mut message);
        assert!(!message.contains("user"), "{message}");
        let mut one = "m".repeat(2 * MESSAGE_MAX_BYTES);
        cut(&mut one);
        assert_eq!(one, "");
    }

    #[test]
    fn what_came_while_the_rest_was_written_is_not_forgotten() {
        let mut earlier = Earlier::default();
        earlier.keep(&uid(0), vec![condition("Blocked", "True", "QueueLimit")]);
        let written = earlier.of(&uid(0)).len();
        earlier.keep(&uid(0), vec![condition("Blocked", "True", "ConcurrencyLimit")]);
        earlier.forget(&uid(0), written);
        let left = earlier.of(&uid(0));
        assert_eq!(
            (left.len(), left[0].reason.to_string().as_str()),
            (1, "ConcurrencyLimit")
        );
    }
}
