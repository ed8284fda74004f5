//! Plans that are drawn from a seed.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::{Fault, Plan, Trouble, Watched};

/// How much goes wrong in one simulation at most. What needs more coincidences than this is found by more seeds.
const FAULTS_MAX: usize = 3;
/// Trouble makes for more writes, and there may be trouble with those too.
const WRITES_MORE: u32 = 4;
/// Longer than the lease of the leader, so that another one takes over.
const TAKEOVER_MS: std::ops::Range<u64> = 40_000..90_000;

impl Plan {
    /// For a scenario that takes this many writes if nothing goes wrong.
    pub fn random(rng: &mut impl Rng, writes: u32) -> Self {
        let count = rng.random_range(1..=FAULTS_MAX);
        let mut faults: Vec<Fault> = (0..count).map(|_| fault(rng, writes)).collect();
        faults.sort_by_key(|fault| fault.at);
        // One at most: what was sent before two of them arrives after the run has ended and its Job is gone, when nothing is
        // left that it could collide with. `docs/simulation.md` says so among what is not covered.
        let mut takeovers = 0;
        faults.retain(|fault| {
            takeovers += u32::from(matches!(fault.trouble, Trouble::Takeover(_)));
            takeovers < 2 || !matches!(fault.trouble, Trouble::Takeover(_))
        });
        Self(faults)
    }
}

fn fault(rng: &mut impl Rng, writes: u32) -> Fault {
    let at = rng.random_range(0..writes + WRITES_MORE);
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
