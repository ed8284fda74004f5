//! What a Lease says, what the next one should say, and how long one has been seen unchanged. No input or output.

use std::time::Duration;

use jangar_engine::settings::LeaseSettings;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::time::Instant;

use super::Identity;

/// How long a released lease says it lasts: the least that the API allows. Nobody waits for it, since it has no holder.
const RELEASED_DURATION_SECONDS: i32 = 1;

/// One time of leading, from the taking of the lease to its end. A name alone would not do: a process that was started
/// again, or a second one by mistake, may have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) holder: String,
    acquired: Option<Timestamp>,
    transitions: i32,
}

/// The term under way; `None` if nobody holds the lease.
pub(super) fn term(lease: &Lease) -> Option<Term> {
    let spec = lease.spec.as_ref()?;
    let holder = spec
        .holder_identity
        .as_ref()
        .filter(|holder| !holder.is_empty())?;
    Some(Term {
        holder: holder.clone(),
        acquired: spec.acquire_time.as_ref().map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    })
}

/// The Lease that begins a new term, in place of the one that was seen.
pub(super) fn claimed(
    seen: Option<&Lease>,
    settings: &LeaseSettings,
    identity: &Identity,
    now: Timestamp,
) -> Lease {
    let new = || ObjectMeta {
        name: Some(settings.name.clone()),
        namespace: Some(settings.namespace.clone()),
        ..ObjectMeta::default()
    };
    let spec = seen.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    Lease {
        metadata: seen.map_or_else(new, metadata),
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.as_str().to_owned()),
            lease_duration_seconds: Some(whole_seconds(settings.duration)),
            acquire_time: Some(MicroTime(microseconds(now))),
            renew_time: Some(MicroTime(microseconds(now))),
            // Each term has a number of its own, also where the same holder comes again.
            lease_transitions: Some(seen.map_or(0, |_| {
                spec.lease_transitions.unwrap_or_default().saturating_add(1)
            })),
            ..spec
        }),
    }
}

/// The Lease that goes on with the term.
///
/// Its time always differs from the one before, even if the clock stands still: a write that changes nothing would leave
/// the version as it was, and those who watch it would take the holder for dead.
pub(super) fn renewed(lease: &Lease, settings: &LeaseSettings, now: Timestamp) -> Lease {
    let spec = lease.spec.clone().unwrap_or_default();
    let before = spec.renew_time.as_ref().map(|time| time.0);
    let mut now = microseconds(now);
    if before == Some(now) {
        let tick = SignedDuration::from_micros(1);
        let other = now.checked_add(tick).or_else(|_| now.checked_sub(tick));
        now = other.unwrap_or(now);
    }
    Lease {
        metadata: metadata(lease),
        spec: Some(LeaseSpec {
            lease_duration_seconds: Some(whole_seconds(settings.duration)),
            renew_time: Some(MicroTime(now)),
            ..spec
        }),
    }
}

/// The Lease that ends the term, so that nobody has to wait.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    Lease {
        metadata: metadata(lease),
        spec: Some(LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(RELEASED_DURATION_SECONDS),
            acquire_time: Some(MicroTime(microseconds(now))),
            renew_time: Some(MicroTime(microseconds(now))),
            ..lease.spec.clone().unwrap_or_default()
        }),
    }
}

/// The metadata as it was read, with the version that makes the write conditional. Who owns which field is the API
/// server's to say.
fn metadata(lease: &Lease) -> ObjectMeta {
    ObjectMeta {
        managed_fields: None,
        ..lease.metadata.clone()
    }
}

/// A Lease keeps microseconds. Cut before it is sent, a time equals the one that is read back.
fn microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// A Lease counts whole seconds, at least one. Rounded up: it is never said to end before it does.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

/// A Lease, and since when it has been seen unchanged, by the clock that only counts forward in this process.
///
/// The times in the Lease are another machine's. They are compared with each other, to see a change, and never with a clock.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub(super) lease: Lease,
    since: Instant,
}

impl Sighting {
    /// `since` is when the answer was here, not when it was asked for: the holder may have renewed in between, and all it
    /// may assume counts from before that.
    pub(super) fn new(lease: Lease, since: Instant) -> Self {
        Self { lease, since }
    }

    /// What is known after another look.
    pub(super) fn then(before: Option<Self>, lease: Lease, now: Instant) -> Self {
        match before {
            Some(before) if unchanged(&before.lease, &lease) => before,
            _ => Self::new(lease, now),
        }
    }

    /// From when on the lease may be taken.
    pub(super) fn free_at(&self, our_duration: Duration) -> Instant {
        if term(&self.lease).is_none() {
            return self.since;
        }
        let spec = self.lease.spec.as_ref();
        let stated = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or_default();
        let stated = Duration::from_secs(u64::try_from(stated).unwrap_or_default());
        // A holder with other settings counts on its own; one whose Lease was edited, on ours.
        self.since + stated.max(our_duration)
    }
}

fn unchanged(before: &Lease, after: &Lease) -> bool {
    let holder = |lease: &Lease| term(lease).map(|term| term.holder);
    let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    before.metadata.resource_version == after.metadata.resource_version
        && holder(before) == holder(after)
        && renewed(before) == renewed(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(30);

    fn identity(name: &str) -> Identity {
        Identity::new(name).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spec(lease: &Lease) -> LeaseSpec {
        lease.spec.clone().unwrap()
    }

    fn held(version: &str) -> Lease {
        let now = time("2026-03-01T12:00:00.5Z");
        let mut lease = claimed(None, &LeaseSettings::default(), &identity("a"), now);
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn renewing_keeps_the_term_and_moves_the_time() {
        let lease = held("1");
        let renewed = renewed(&lease, &LeaseSettings::default(), time("2026-03-01T12:00:05Z"));
        assert_eq!(term(&renewed), term(&lease));
        assert_eq!(renewed.metadata.resource_version.as_deref(), Some("1"));
        assert_ne!(spec(&renewed).renew_time, spec(&lease).renew_time);
    }

    #[test]
    fn renewing_changes_the_lease_also_when_the_clock_stands_still() {
        let lease = held("1");
        // The same microsecond: what is finer is not kept.
        let again = renewed(
            &lease,
            &LeaseSettings::default(),
            time("2026-03-01T12:00:00.500000999Z"),
        );
        assert_ne!(spec(&again).renew_time, spec(&lease).renew_time);
        let last = Lease {
            spec: Some(LeaseSpec {
                renew_time: Some(MicroTime(microseconds(Timestamp::MAX))),
                ..spec(&lease)
            }),
            ..lease
        };
        let after = renewed(&last, &LeaseSettings::default(), Timestamp::MAX);
        assert_ne!(spec(&after).renew_time, spec(&last).renew_time);
    }

    #[test]
    fn each_term_has_a_number_of_its_own() {
        let first = held("1");
        let second = claimed(
            Some(&first),
            &LeaseSettings::default(),
            &identity("a"),
            time("2026-03-01T12:00:00.5Z"),
        );
        assert_eq!(spec(&first).lease_transitions, Some(0));
        assert_eq!(spec(&second).lease_transitions, Some(1));
        assert_ne!(term(&second), term(&first));
    }

    #[test]
    fn releasing_leaves_nobody_and_keeps_the_number() {
        let lease = claimed(
            Some(&held("1")),
            &LeaseSettings::default(),
            &identity("b"),
            time("2026-03-01T12:01:00Z"),
        );
        let released = released(&lease, time("2026-03-01T12:02:00Z"));
        assert_eq!(term(&released), None);
        assert_eq!(spec(&released).lease_transitions, Some(1));
        assert_eq!(spec(&released).lease_duration_seconds, Some(1));
    }

    #[test]
    fn durations_are_rounded_up_to_what_a_lease_can_say() {
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn any_change_starts_the_wait_again() {
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        let first = Sighting::new(held("1"), start);

        let same = Sighting::then(Some(first.clone()), held("1"), later);
        assert_eq!(same.free_at(DURATION), start + DURATION);
        let version = Sighting::then(Some(first.clone()), held("2"), later);
        assert_eq!(version.free_at(DURATION), later + DURATION);
        let renewed = renewed(
            &held("1"),
            &LeaseSettings::default(),
            time("2026-03-01T12:00:05Z"),
        );
        let time = Sighting::then(Some(first), renewed, later);
        assert_eq!(time.free_at(DURATION), later + DURATION);
    }

    #[test]
    fn the_longer_of_two_durations_is_waited_for() {
        let start = Instant::now();
        let sighting = Sighting::new(held("1"), start);
        let stated = DURATION;
        assert_eq!(sighting.free_at(Duration::from_secs(10)), start + stated);
        assert_eq!(
            sighting.free_at(Duration::from_mins(1)),
            start + Duration::from_mins(1)
        );
    }

    #[test]
    fn a_released_lease_is_free_at_once() {
        let start = Instant::now();
        let sighting = Sighting::new(released(&held("1"), time("2026-03-01T12:00:05Z")), start);
        assert_eq!(sighting.free_at(DURATION), start);
    }
}
