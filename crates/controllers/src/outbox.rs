//! Where Events wait for their turn, so that no work waits for one, and so that a crowd of runs does not spend on Events what it
//! needs for itself.
//!
//! They go out no faster than a [`Pace`] allows, warnings first. That a run has begun is left out if it still waits when there is something
//! newer to tell about it: whoever looks then wants to know how it ended.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jangar_api::reason::Reason;
use jangar_engine::decision::{Notice, Severity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::{sync::Notify, time::Instant};

use crate::{
    events::Reporter,
    lease::Gate,
    metrics::{EventResult, Metrics},
};

/// How many Events go out at the same time.
pub(crate) const AT_ONCE: usize = 2;
/// How many Events may wait for their turn, of warnings and of the others. A thousand runs that begin and end at once have two thousand;
/// what is beyond this is dropped, and counted.
const WAITING_MAX: usize = 10_000;
/// Between two Events where there are many. Ten in a second are what people can read, and take the API server a hundredth of its time.
const INTERVAL: Duration = Duration::from_millis(100);
/// How many may go out without that after a rest.
const BURST: u32 = 25;

/// Events that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    /// Told for each Event that is put in, and when there will be no more.
    changed: Notify,
    /// Told when there will be no more.
    closing: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    warnings: VecDeque<Letter>,
    /// The others, which come after them.
    letters: VecDeque<Letter>,
    /// Nothing is put in any more.
    closed: bool,
    pace: Pace,
}

/// Something to tell about an object.
#[derive(Debug)]
struct Letter {
    about: ObjectReference,
    notice: Notice,
    at: Timestamp,
}

/// How fast Events go out.
#[derive(Debug, Default)]
struct Pace {
    /// Until when the turns that were given last, one interval each.
    booked: Option<Instant>,
}

impl Pace {
    /// Gives a turn away, and says how long it is until then.
    fn turn(&mut self, now: Instant) -> Duration {
        let booked = self.booked.filter(|booked| *booked > now).unwrap_or(now) + INTERVAL;
        self.booked = Some(booked);
        booked.duration_since(now).saturating_sub(INTERVAL * BURST)
    }
}

impl Outbox {
    /// Leaves an Event to be told when its turn comes.
    pub(crate) fn put(&self, metrics: &Metrics, about: ObjectReference, notice: Notice, at: Timestamp) {
        let mut waiting = self.waiting();
        let is_past =
            |letter: &Letter| letter.notice.reason == Reason::Submitted && letter.about.uid == about.uid;
        if let Some(place) = waiting.letters.iter().position(is_past) {
            waiting.letters.remove(place);
            metrics.event(EventResult::Superseded);
        }
        let queue = match notice.severity {
            Severity::Warning => &mut waiting.warnings,
            Severity::Normal => &mut waiting.letters,
        };
        if queue.len() >= WAITING_MAX {
            drop(waiting);
            metrics.event(EventResult::Dropped);
            tracing::warn!(
                name = about.name.as_deref().unwrap_or_default(),
                reason = %notice.reason,
                "too many Events wait, so one is not published"
            );
            return;
        }
        queue.push_back(Letter { about, notice, at });
        drop(waiting);
        self.changed.notify_one();
    }

    /// There will be no more. Those that wait still go out, as fast as they can.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.changed.notify_waiters();
        self.closing.notify_waiters();
    }

    /// Gives up those that still wait, and counts them.
    pub(crate) fn abandon(&self, metrics: &Metrics) {
        let left = {
            let mut waiting = self.waiting();
            let left = waiting.warnings.len() + waiting.letters.len();
            waiting.warnings.clear();
            waiting.letters.clear();
            left
        };
        for _ in 0..left {
            metrics.event(EventResult::Dropped);
        }
        tracing::warn!(
            events = left,
            "there was no time to publish all Events before the end"
        );
    }

    /// Tells one Event after the other, until it is closed and nothing is left.
    pub(crate) async fn empty(&self, reporter: &Reporter, gate: &Gate) {
        loop {
            self.turn().await;
            let Some(Letter { about, notice, at }) = self.next().await else {
                return;
            };
            reporter.publish(gate, &about, &notice, at).await;
        }
    }

    /// Waits until there is an Event, and takes it. There is none if it is closed and nothing is left.
    async fn next(&self) -> Option<Letter> {
        loop {
            let changed = self.changed.notified();
            let (next, closed) = {
                let mut waiting = self.waiting();
                let next = waiting.warnings.pop_front();
                (next.or_else(|| waiting.letters.pop_front()), waiting.closed)
            };
            match next {
                Some(letter) => return Some(letter),
                None if closed => return None,
                None => changed.await,
            }
        }
    }

    /// Waits for a turn. Nobody waits once it is closed.
    async fn turn(&self) {
        let closing = self.closing.notified();
        let wait = {
            let mut waiting = self.waiting();
            if waiting.closed {
                return;
            }
            waiting.pace.turn(Instant::now())
        };
        if wait.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = closing => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Every change to it is complete before anything can fail.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::decision::Uid;

    use super::*;

    fn put(outbox: &Outbox, metrics: &Metrics, uid: &str, severity: Severity, reason: Reason) {
        let about = ObjectReference {
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let notice = Notice {
            regarding: Uid(uid.to_owned()),
            severity,
            reason,
            message: String::new(),
        };
        outbox.put(metrics, about, notice, Timestamp::UNIX_EPOCH);
    }

    fn waiting(outbox: &Outbox) -> Vec<(String, Reason)> {
        let waiting = outbox.waiting();
        let letters = waiting.warnings.iter().chain(&waiting.letters);
        letters
            .map(|letter| {
                (
                    letter.about.uid.clone().unwrap_or_default(),
                    letter.notice.reason.clone(),
                )
            })
            .collect()
    }

    #[test]
    fn that_a_run_has_begun_gives_way_to_what_came_of_it() {
        let (outbox, metrics) = (Outbox::default(), Metrics::default());
        put(&outbox, &metrics, "a", Severity::Normal, Reason::Submitted);
        put(&outbox, &metrics, "b", Severity::Normal, Reason::Submitted);
        put(&outbox, &metrics, "a", Severity::Normal, Reason::Completed);

        assert_eq!(
            waiting(&outbox),
            [
                ("b".to_owned(), Reason::Submitted),
                ("a".to_owned(), Reason::Completed)
            ]
        );
    }

    #[test]
    fn whatever_else_is_told_is_told_whatever_comes_after_it() {
        let (outbox, metrics) = (Outbox::default(), Metrics::default());
        put(&outbox, &metrics, "a", Severity::Warning, Reason::JobMissing);
        put(&outbox, &metrics, "a", Severity::Normal, Reason::ApprovalPending);
        put(&outbox, &metrics, "a", Severity::Normal, Reason::ApprovalPending);
        put(&outbox, &metrics, "a", Severity::Normal, Reason::Completed);

        assert_eq!(waiting(&outbox).len(), 4);
    }

    #[tokio::test]
    async fn a_warning_goes_out_before_what_is_well_and_has_its_place_when_there_is_no_other() {
        let (outbox, metrics) = (Outbox::default(), Metrics::default());
        for number in 0..=WAITING_MAX {
            put(
                &outbox,
                &metrics,
                &number.to_string(),
                Severity::Normal,
                Reason::Completed,
            );
        }
        put(&outbox, &metrics, "a", Severity::Warning, Reason::JobMissing);

        let first = outbox.next().await.map(|letter| letter.notice.reason);
        assert_eq!(first, Some(Reason::JobMissing));
        assert_eq!(waiting(&outbox).len(), WAITING_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn events_go_out_at_their_pace_after_the_first_ones() {
        let outbox = Outbox::default();
        let begun = Instant::now();
        for _ in 0..BURST {
            outbox.turn().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "the first ones wait for nothing");
        for _ in 0..10 {
            outbox.turn().await;
        }
        assert_eq!(begun.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_turn_once_it_is_closed() {
        let outbox = Outbox::default();
        for _ in 0..BURST {
            outbox.turn().await;
        }
        outbox.close();
        let begun = Instant::now();
        for _ in 0..100 {
            outbox.turn().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
