//! Plans that are drawn from a seed.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::{Fault, Plan, Trouble, Watched};

/// How much goes wrong in one simulation at most. What needs more coincidences than this is found by more seeds.
const FAULTS_MAX: usize = 3;
/// The write at which something may go wrong: a little more than most scenarios have.
const WRITES: u32 = 24;
/// Longer than the lease of the leader, so that another one takes over.
const TAKEOVER_MS: std::ops::Range<u64> = 40_000..90_000;

impl Plan {
    pub fn random(rng: &mut impl Rng) -> Self {
        let count = rng.random_range(1..=FAULTS_MAX);
        let mut faults: Vec<Fault> = (0..count).map(|_| fault(rng)).collect();
        faults.sort_by_key(|fault| fault.at);
        Self(faults)
    }
}

fn fault(rng: &mut impl Rng) -> Fault {
    let at = rng.random_range(0..WRITES);
    let trouble = match rng.random_range(0..19_u32) {
        0 => Trouble::CrashBefore,
        1 => Trouble::CrashAfter,
        2 => Trouble::LostAnswer,
        3 => Trouble::NoAnswer,
        4 => Trouble::GatewayTimeout,
        5 => Trouble::NotSent,
        6 => Trouble::Late(time(rng, 1..20_000)),
        7 => Trouble::Conflict,
        8 => Trouble::Busy,
        9 => Trouble::Broken,
        10 => Trouble::Freeze(watched(rng), time(rng, 100..60_000)),
        11 => Trouble::Skip(watched(rng), time(rng, 100..60_000)),
        12 => Trouble::Lag(watched(rng), time(rng, 10..4_000)),
        13 => Trouble::Expire,
        14 => Trouble::DeleteJob(time(rng, 0..40_000)),
        15 => Trouble::DeletePod(time(rng, 0..40_000)),
        16 => Trouble::Takeover(time(rng, TAKEOVER_MS)),
        17 => Trouble::ClockForward(time(rng, 1_000..600_000)),
        _ => Trouble::ClockBack(time(rng, 1_000..600_000)),
    };
    trouble.at(at)
}

fn time(rng: &mut impl Rng, milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.random_range(milliseconds))
}

fn watched(rng: &mut impl Rng) -> Watched {
    Watched::ALL[rng.random_range(0..Watched::ALL.len())]
}
