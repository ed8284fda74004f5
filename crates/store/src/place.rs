//! Where a run stands in lists, as one number.
//!
//! Lists are newest first, and a page ends where the next begins. Kubernetes tells the time of creation in seconds, which many
//! runs share; so the number is the second and, within it, thirty bits of the UID's hash. One whole number is the key of the
//! table, of every index and of the words of a search, so that a page costs the same wherever in the list it is.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// How many bits of the number are the UID's.
const UID_BITS: u32 = 30;
/// What fits into the rest: until the year 2242.
const MAX_SECOND: i64 = (1 << (63 - UID_BITS)) - 1;

/// The place of a run that was created then. Two runs of one second may have the same, so rarely that the writer looks for
/// the next free number.
pub(crate) fn of_run(created_at: Timestamp, uid: &str) -> i64 {
    first_of_second(created_at.as_second()) | lot(uid)
}

/// The lowest place of runs that were created at `time` or later.
pub(crate) fn not_before(time: Timestamp) -> i64 {
    let second = time.as_second();
    // Creation is known to the second, so a run of a second that has begun before `time` is before it.
    let whole = time.subsec_nanosecond() <= 0;
    first_of_second(if whole { second } else { second + 1 })
}

fn first_of_second(second: i64) -> i64 {
    second.clamp(0, MAX_SECOND) << UID_BITS
}

fn lot(uid: &str) -> i64 {
    number(uid) & ((1 << UID_BITS) - 1)
}

/// A number that follows from a text, for locks and lots.
pub(crate) fn number(text: &str) -> i64 {
    let hash = Sha256::digest(text.as_bytes());
    let first = hash.iter().take(8);
    first.fold(0_i64, |number, byte| (number << 8) | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn places_are_in_the_order_of_creation() {
        let earlier = of_run(time("2026-03-01T10:00:00Z"), "zzz");
        let later = of_run(time("2026-03-01T10:00:01Z"), "aaa");
        assert!(earlier < later);
        assert!(earlier > 0);
    }

    #[test]
    fn a_bound_in_time_takes_whole_seconds() {
        let run = of_run(time("2026-03-01T10:00:00Z"), "any");
        assert!(not_before(time("2026-03-01T10:00:00Z")) <= run);
        assert!(not_before(time("2026-03-01T10:00:00.5Z")) > run);
        assert!(not_before(time("2026-03-01T10:00:01Z")) > run);
    }

    #[test]
    fn times_out_of_range_do_not_wrap() {
        assert!(of_run(Timestamp::MIN, "any") >= 0);
        assert!(of_run(Timestamp::MAX, "any") > of_run(time("2026-03-01T10:00:00Z"), "any"));
    }
}
