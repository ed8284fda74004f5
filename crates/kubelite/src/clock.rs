//! Where the server gets its time and its identifiers from, so that a simulation can supply both.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// The time of day.
pub trait Clock: Debug + Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that starts at a given time and moves with tokio's, so that pausing tokio pauses the server too.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// Must be called inside a tokio runtime.
    pub fn starting_at(start: Timestamp) -> Self {
        Self {
            start,
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.origin.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// A time as `metadata.creationTimestamp` shows it: whole seconds, UTC.
pub fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

/// The alphabet of generated names, without vowels and signs that look alike, so that no word appears by accident.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many random characters `generateName` adds.
const NAME_SUFFIX_LENGTH: usize = 5;
/// What is left of a `generateName` prefix so that prefix and suffix stay within a DNS label.
const NAME_PREFIX_LENGTH_MAX: usize = 63 - NAME_SUFFIX_LENGTH;

/// The source of UIDs and generated names.
#[derive(Debug)]
pub struct Ids(Mutex<StdRng>);

impl Ids {
    /// From the operating system's randomness.
    pub fn random() -> Self {
        Self(Mutex::new(rand::make_rng()))
    }

    /// The same seed gives the same identifiers.
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    pub fn uid(&self) -> String {
        let mut bytes = [0_u8; 16];
        self.rng().fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    pub fn generated_name(&self, prefix: &str) -> String {
        let mut end = prefix.len().min(NAME_PREFIX_LENGTH_MAX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = prefix[..end].to_owned();
        let mut rng = self.rng();
        for _ in 0..NAME_SUFFIX_LENGTH {
            name.push(char::from(
                NAME_ALPHABET[rng.random_range(0..NAME_ALPHABET.len())],
            ));
        }
        name
    }

    /// A number in `0..bound`, for spreading timeouts.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.rng().random_range(0..bound)
        }
    }

    fn rng(&self) -> std::sync::MutexGuard<'_, StdRng> {
        // A generator cannot be left half-changed, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_identifiers() {
        let (one, two) = (Ids::seeded(7), Ids::seeded(7));
        assert_eq!(one.uid(), two.uid());
        assert_eq!(one.generated_name("run-"), two.generated_name("run-"));
    }

    #[test]
    fn generated_name_fits_a_dns_label() {
        let name = Ids::seeded(1).generated_name(&"a".repeat(80));
        assert_eq!(name.len(), 63);
    }

    #[test]
    fn times_are_shown_in_whole_seconds() {
        let time: Timestamp = "2026-03-01T10:20:30.75Z".parse().unwrap();
        assert_eq!(seconds(time), "2026-03-01T10:20:30Z");
    }
}
