//! Which keys want attention, and when. Pure: what happened and what time it is goes in, the next key comes out.
//!
//! A key is in here once, however often it was woken, so the queue is never longer than there are objects. Nobody works on
//! a key twice at the same time: one that is woken while it is worked on comes again afterwards.
//!
//! What has work under way goes before what is to begin: a step that follows does not wait behind a thousand new runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jangar_engine::decision::Key;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::backoff::Backoff;

/// How long a key rests after a failure. The first pause is short, because most failures are a conflict or a hiccup; the
/// longest is what a person may have to wait after the API server came back.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(200),
    most: Duration::from_secs(30),
};

/// How many turns in a row a key may have without coming to an end. A graph of a thousand steps that all end at once needs
/// about four, and one whose steps end all the time while it is worked on has one for every few of them; what needs more than
/// this may be going round in circles, and rests.
const BUSY_TURNS_MAX: u32 = 64;

/// How many keys that are under way may overtake one that is not. Beginnings get a fair share of the work, and ends are not kept
/// waiting behind them.
const OVERTAKEN_MAX: u32 = 8;

/// The longest nap between two looks at the time of day, so that a clock that was set is noticed.
const NAP_MAX: Duration = Duration::from_mins(1);

/// The queue of one controller.
#[derive(Debug, Default)]
pub struct Queue {
    slots: BTreeMap<Key, Slot>,
    /// Keys in stage [`Stage::Ready`], in the order they got there, those that are under way first.
    ready: BTreeMap<Place, Key>,
    /// How many keys have become ready so far.
    arrivals: u64,
    /// How many keys in a row were taken because they are under way, while others waited.
    overtaken: u32,
    /// Keys in stage [`Stage::Waiting`], by when they wake.
    waiting: BTreeSet<(Timestamp, Key)>,
    /// Keys in stage [`Stage::Resting`], by when they may go on.
    resting: BTreeSet<(Instant, Key)>,
}

/// How urgent it is to look at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something that it has started went on, or ended.
    UnderWay,
    Ordinary,
}

/// Where a key stands among those that are ready.
type Place = (Urgency, u64);

#[derive(Debug)]
struct Slot {
    stage: Stage,
    row: Row,
}

/// What became of a key again and again, since its work was last done.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// How often it failed. Each makes the next rest longer.
    failures: u32,
    /// How often it was still busy when its turn was over, since it last rested. These are no failures: who has much to do does
    /// not pay for it with a long rest at the first hiccup.
    turns: u32,
}

#[derive(Debug)]
enum Stage {
    /// Nothing to do before this time of day, unless something happens.
    Waiting(Timestamp),
    /// It failed and rests. What happens meanwhile does not cut that short: an API server in trouble gets its rest.
    Resting,
    Ready(Place),
    /// Somebody works on it. It comes again if something happens meanwhile.
    Taken {
        again: Option<Urgency>,
    },
}

impl Queue {
    /// Something happened to this key.
    pub fn wake(&mut self, key: &Key, urgency: Urgency) {
        let Some(slot) = self.slots.get_mut(key) else {
            return self.line_up(key.clone(), urgency, Row::default());
        };
        let row = slot.row;
        match slot.stage {
            Stage::Resting => {}
            Stage::Taken { ref mut again } => {
                *again = Some(again.map_or(urgency, |known| known.min(urgency)));
            }
            Stage::Ready(place) => {
                if urgency < place.0 {
                    self.ready.remove(&place);
                    self.line_up(key.clone(), urgency, row);
                }
            }
            Stage::Waiting(at) => {
                self.waiting.remove(&(at, key.clone()));
                self.line_up(key.clone(), urgency, row);
            }
        }
    }

    /// The next key to work on, in the order in which they were woken, those that are under way first. Others have their turn
    /// too, however many are under way.
    pub fn take(&mut self, today: Timestamp, now: Instant) -> Option<(Key, Urgency)> {
        self.rouse(today, now);
        let ordinary = self.ready.range((Urgency::Ordinary, 0)..).next();
        let ordinary = ordinary.map(|(place, _)| *place);
        let first = *self.ready.first_key_value()?.0;
        let place = match ordinary {
            Some(ordinary) if self.overtaken >= OVERTAKEN_MAX => ordinary,
            Some(_) | None => first,
        };
        self.overtaken = if ordinary.is_some_and(|waits| waits != place) {
            self.overtaken + 1
        } else {
            0
        };
        let key = self.take_at(place)?;
        Some((key, place.0))
    }

    /// The next key to work on of those that are under way.
    pub fn take_under_way(&mut self) -> Option<Key> {
        let first = *self.ready.first_key_value()?.0;
        (first.0 == Urgency::UnderWay)
            .then(|| self.take_at(first))
            .flatten()
    }

    fn take_at(&mut self, place: Place) -> Option<Key> {
        let key = self.ready.remove(&place)?;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.stage = Stage::Taken { again: None };
        }
        Some(key)
    }

    /// How often in a row the work on a key has failed.
    pub fn failures(&self, key: &Key) -> u32 {
        self.slots.get(key).map_or(0, |slot| slot.row.failures)
    }

    /// The work on a taken key is done. It comes again at `wake_at`, or when something happens, or at once if something
    /// happened meanwhile.
    pub fn done(&mut self, key: Key, wake_at: Option<Timestamp>) {
        match (self.take_back(&key), wake_at) {
            (Taken::Again(urgency, _), _) => self.line_up(key, urgency, Row::default()),
            (Taken::Quiet(_), Some(at)) => {
                self.waiting.insert((at, key.clone()));
                let (stage, row) = (Stage::Waiting(at), Row::default());
                self.slots.insert(key, Slot { stage, row });
            }
            (Taken::Quiet(_), None) | (Taken::Not, _) => {}
        }
    }

    /// The work on a taken key failed. It comes again after a pause that grows with each failure in a row, and that is at
    /// least as long as the API server asked for.
    pub fn failed(&mut self, key: Key, now: Instant, at_least: Option<Duration>) {
        let failures = match self.take_back(&key) {
            Taken::Again(_, row) | Taken::Quiet(row) => row.failures.saturating_add(1),
            Taken::Not => return,
        };
        let until = now + RETRY.delay(failures).max(at_least.unwrap_or_default());
        self.resting.insert((until, key.clone()));
        let (stage, row) = (Stage::Resting, Row { failures, turns: 0 });
        self.slots.insert(key, Slot { stage, row });
    }

    /// There is still something to do about a taken key, and others have their turn first. One that does not come to an end for
    /// long rests as if it had failed, for longer each time: perhaps its plans do not see what they did.
    pub fn busy(&mut self, key: Key, now: Instant) {
        match self.slots.get(&key).map(|slot| slot.row) {
            Some(Row { turns, .. }) if turns < BUSY_TURNS_MAX => {
                if let Taken::Again(_, row) | Taken::Quiet(row) = self.take_back(&key) {
                    let turns = row.turns.saturating_add(1);
                    self.line_up(key, Urgency::UnderWay, Row { turns, ..row });
                }
            }
            Some(_) | None => self.failed(key, now, None),
        }
    }

    /// How long nothing will be ready, if nothing happens.
    pub fn nap(&self, today: Timestamp, now: Instant) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let wait = self.waiting.first().map(|(at, _)| {
            // Negative if it is due: no nap at all.
            Duration::try_from(at.duration_since(today)).unwrap_or_default()
        });
        let rest = self
            .resting
            .first()
            .map(|(until, _)| until.saturating_duration_since(now));
        wait.into_iter().chain(rest).fold(NAP_MAX, Duration::min)
    }

    /// How many keys are ready or will be after their rest.
    pub fn backlog(&self) -> usize {
        self.ready.len() + self.resting.len()
    }

    /// Moves the keys whose time has come.
    fn rouse(&mut self, today: Timestamp, now: Instant) {
        while let Some((until, _)) = self.resting.first()
            && *until <= now
        {
            let Some((_, key)) = self.resting.pop_first() else {
                break;
            };
            let row = self.slots.get(&key).map_or(Row::default(), |slot| slot.row);
            self.line_up(key, Urgency::Ordinary, row);
        }
        while let Some((at, _)) = self.waiting.first()
            && *at <= today
        {
            let Some((_, key)) = self.waiting.pop_first() else {
                break;
            };
            self.line_up(key, Urgency::Ordinary, Row::default());
        }
    }

    fn line_up(&mut self, key: Key, urgency: Urgency, row: Row) {
        let place = (urgency, self.arrivals);
        self.arrivals += 1;
        self.ready.insert(place, key.clone());
        let stage = Stage::Ready(place);
        self.slots.insert(key, Slot { stage, row });
    }

    fn take_back(&mut self, key: &Key) -> Taken {
        match self.slots.get(key) {
            Some(Slot {
                stage: Stage::Taken { again },
                row,
            }) => {
                let taken = match again {
                    Some(urgency) => Taken::Again(*urgency, *row),
                    None => Taken::Quiet(*row),
                };
                self.slots.remove(key);
                taken
            }
            // Whoever reports on a key that nobody took is mistaken, and changes nothing.
            Some(_) | None => Taken::Not,
        }
    }
}

/// What became of a key while it was worked on, with what it has behind it.
enum Taken {
    /// Something happened to it.
    Again(Urgency, Row),
    Quiet(Row),
    /// Nobody worked on it.
    Not,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_owned(),
        }
    }

    struct Bench {
        queue: Queue,
        start: Timestamp,
        now: Instant,
        uptime: Duration,
        set_ahead: Duration,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                queue: Queue::default(),
                start: "2026-03-01T12:00:00Z".parse().unwrap(),
                now: Instant::now(),
                uptime: Duration::ZERO,
                set_ahead: Duration::ZERO,
            }
        }

        fn today(&self) -> Timestamp {
            self.start + self.uptime + self.set_ahead
        }

        fn instant(&self) -> Instant {
            self.now + self.uptime
        }

        fn pass(&mut self, time: Duration) {
            self.uptime += time;
        }

        fn wake(&mut self, name: &str) {
            self.queue.wake(&key(name), Urgency::Ordinary);
        }

        fn hurry(&mut self, name: &str) {
            self.queue.wake(&key(name), Urgency::UnderWay);
        }

        fn take(&mut self) -> Option<String> {
            let (today, now) = (self.today(), self.instant());
            self.queue.take(today, now).map(|(key, _)| key.name)
        }

        fn done(&mut self, name: &str, seconds: Option<u64>) {
            let wake_at = seconds.map(|seconds| self.today() + Duration::from_secs(seconds));
            self.queue.done(key(name), wake_at);
        }

        fn failed(&mut self, name: &str) {
            let now = self.instant();
            self.queue.failed(key(name), now, None);
        }

        fn busy(&mut self, name: &str) {
            let now = self.instant();
            self.queue.busy(key(name), now);
        }

        fn nap(&self) -> Duration {
            self.queue.nap(self.today(), self.instant())
        }
    }

    #[test]
    fn keys_come_in_the_order_they_were_woken_and_once() {
        let mut bench = Bench::new();
        for name in ["b", "a", "b", "c", "a"] {
            bench.wake(name);
        }

        let taken: Vec<_> = std::iter::from_fn(|| bench.take()).collect();

        assert_eq!(taken, ["b", "a", "c"]);
    }

    #[test]
    fn what_is_under_way_goes_before_what_is_to_begin() {
        let mut bench = Bench::new();
        for name in ["new-1", "old-1", "new-2"] {
            bench.wake(name);
        }

        bench.hurry("old-2");
        bench.hurry("old-1");

        let taken: Vec<_> = std::iter::from_fn(|| bench.take()).collect();
        assert_eq!(taken, ["old-2", "old-1", "new-1", "new-2"]);
    }

    #[test]
    fn what_is_to_begin_is_overtaken_so_many_times_and_no_more() {
        let mut bench = Bench::new();
        bench.wake("new");
        let mut before = 0;
        loop {
            bench.hurry("old");
            match bench.take().as_deref() {
                Some("old") => before += 1,
                other => break assert_eq!(other, Some("new")),
            }
            bench.done("old", None);
        }

        assert_eq!(before, OVERTAKEN_MAX);
    }

    #[test]
    fn where_nothing_may_begin_only_what_is_under_way_is_given_out() {
        let mut bench = Bench::new();
        bench.wake("new");
        bench.hurry("old");

        assert_eq!(bench.queue.take_under_way(), Some(key("old")));
        assert_eq!(bench.queue.take_under_way(), None);
        assert_eq!(bench.take().as_deref(), Some("new"));
    }

    #[test]
    fn a_key_that_goes_on_while_it_is_worked_on_comes_again_before_others() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.wake("b");
        bench.hurry("a");
        bench.wake("a");

        bench.done("a", None);

        assert_eq!(bench.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_key_that_is_worked_on_is_not_given_out_again() {
        let mut bench = Bench::new();
        bench.wake("a");
        assert_eq!(bench.take().as_deref(), Some("a"));

        bench.wake("a");

        assert_eq!(bench.take(), None);
    }

    #[test]
    fn a_key_that_changes_while_it_is_worked_on_comes_again_behind_the_others() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.wake("a");
        bench.wake("b");

        bench.done("a", Some(60));

        assert_eq!(bench.take().as_deref(), Some("b"));
        assert_eq!(bench.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_key_that_is_still_busy_comes_again_behind_the_others_without_a_rest() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.hurry("b");

        bench.busy("a");

        assert_eq!(bench.take().as_deref(), Some("b"));
        assert_eq!(bench.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_key_that_is_busy_without_end_rests_and_one_that_came_to_its_end_begins_anew() {
        let mut bench = Bench::new();
        bench.wake("a");
        let mut turns = 0;
        while bench.take().is_some() {
            turns += 1;
            bench.busy("a");
        }
        assert_eq!(turns, BUSY_TURNS_MAX + 1);
        assert_eq!(bench.nap(), RETRY.first);

        bench.pass(RETRY.first);
        while bench.take().is_some() {
            bench.busy("a");
        }
        assert_eq!(bench.nap(), RETRY.delay(2), "it is still going round in circles");

        bench.pass(RETRY.delay(2));
        assert_eq!(bench.take().as_deref(), Some("a"));
        bench.done("a", None);

        bench.wake("a");
        bench.take();
        bench.busy("a");
        assert_eq!(bench.nap(), Duration::ZERO);
    }

    #[test]
    fn a_key_that_was_busy_for_long_rests_after_its_first_failure_as_briefly_as_any_other() {
        let mut bench = Bench::new();
        bench.wake("a");
        for _ in 0..10 {
            bench.take();
            bench.busy("a");
        }
        assert_eq!(bench.queue.failures(&key("a")), 0);

        bench.take();
        bench.failed("a");

        assert_eq!(bench.nap(), RETRY.first);
    }

    #[test]
    fn a_key_wakes_at_its_time_of_day() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.done("a", Some(40));

        assert_eq!((bench.nap(), bench.take()), (Duration::from_secs(40), None));
        bench.pass(Duration::from_secs(40));

        assert_eq!(
            (bench.nap(), bench.take().as_deref()),
            (Duration::ZERO, Some("a"))
        );
    }

    #[test]
    fn a_clock_that_is_set_ahead_wakes_what_has_become_due() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.done("a", Some(3600));
        assert_eq!(
            bench.nap(),
            Duration::from_mins(1),
            "the clock is looked at every minute"
        );

        bench.set_ahead = Duration::from_hours(1);

        assert_eq!(bench.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_change_comes_before_the_time_of_day_and_replaces_it() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.done("a", Some(40));

        bench.wake("a");
        assert_eq!(bench.take().as_deref(), Some("a"));
        bench.done("a", None);
        bench.pass(Duration::from_secs(100));

        assert_eq!(bench.take(), None);
    }

    #[test]
    fn failures_in_a_row_are_followed_by_longer_and_longer_rests() {
        let mut bench = Bench::new();
        bench.wake("a");
        let mut rests = Vec::new();
        for _ in 0..10 {
            bench.take();
            bench.failed("a");
            let rest = bench.nap();
            rests.push(rest.as_millis());
            bench.pass(rest);
        }

        assert_eq!(
            rests,
            [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]
        );
    }

    #[test]
    fn a_success_ends_the_row_of_failures() {
        let mut bench = Bench::new();
        bench.wake("a");
        for _ in 0..5 {
            bench.take();
            bench.failed("a");
            bench.pass(Duration::from_secs(30));
        }
        bench.take();
        bench.done("a", None);
        bench.wake("a");
        bench.take();

        bench.failed("a");

        assert_eq!(bench.nap(), Duration::from_millis(200));
    }

    #[test]
    fn a_change_does_not_cut_a_rest_short() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        bench.failed("a");

        bench.wake("a");

        assert_eq!(bench.take(), None);
        bench.pass(Duration::from_millis(200));
        assert_eq!(bench.take().as_deref(), Some("a"));
    }

    #[test]
    fn a_rest_is_as_long_as_the_api_server_asked_for() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();
        let now = bench.instant();

        bench.queue.failed(key("a"), now, Some(Duration::from_secs(7)));

        assert_eq!(bench.nap(), Duration::from_secs(7));
    }

    #[test]
    fn a_key_that_needs_nothing_leaves_nothing_behind() {
        let mut bench = Bench::new();
        bench.wake("a");
        bench.take();

        bench.done("a", None);

        assert!(bench.queue.slots.is_empty());
        assert_eq!(bench.queue.backlog(), 0);
    }
}
