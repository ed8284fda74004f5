//! What nobody waits for gives way while there is much to do that somebody waits for.
//!
//! A Job that has ended, or a child whose end its parent has, is let go by a write that frees nothing and tells nobody anything. While
//! many runs begin and end, the API server has better things to do. So whoever wants to write such a thing asks here first, and is
//! put off for as long as much else is written, up to a bound.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{decision::Uid, retention::Turn};

/// So many other writes within [`BUSY_WITHIN`] are much to do: some fifteen runs that begin and end. A person who applies a directory of
/// manifests causes fewer.
const BUSY_WRITES: usize = 50;
const BUSY_WITHIN: Duration = Duration::from_secs(1);
/// For how long after that there is still much to do. A crowd has its lulls for us, while Kubernetes makes the pods that we asked for.
const BUSY_LASTS: Duration = Duration::from_secs(5);
/// How long one can be put off in all: longer than a crowd of a thousand runs takes to begin and end.
const PUT_OFF_MAX: Duration = Duration::from_mins(1);
/// When who was put off asks again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How many can be put off. Beyond that nobody is, so that what was forgotten about does not add up.
const WAITING_MAX: usize = 20_000;

/// Between two runs that say how their work goes, where there is much to do. Ten in a second are more than people can read, and a tenth of
/// what a crowd would say of itself; each is a write, which makes the others wait longer and so have more to say.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// How many may say it without that after a rest.
const TELL_BURST: u32 = 25;

/// How long a run may wait for its turn to say how its work goes, whoever else has something to say.
pub(crate) const UNTOLD_MAX: Duration = Duration::from_mins(1);

/// How much there is to do, and who is put off because of it. Times are counted from any one moment.
#[derive(Debug, Default)]
pub struct Leisure {
    /// The latest writes that somebody waited for, no more than it takes to be busy.
    written: VecDeque<Duration>,
    /// Until when there is much to do, unless more comes.
    busy_until: Duration,
    /// There is always much to do.
    never_rests: bool,
    /// What was to be let go and was put off, and since when.
    waiting: BTreeMap<Uid, Duration>,
    /// Who waits for its turn to say how its work goes, and when that is.
    turns: BTreeMap<Uid, Duration>,
    /// Until when turns are given away, one interval each.
    booked: Duration,
}

impl Leisure {
    /// As if there was always much to do.
    pub fn never_resting() -> Self {
        Self {
            never_rests: true,
            ..Self::default()
        }
    }

    /// Something was written that somebody waited for.
    pub fn wrote(&mut self, now: Duration) {
        if self.written.len() >= BUSY_WRITES {
            self.written.pop_front();
        }
        self.written.push_back(now);
        let oldest = self.written.front();
        if self.written.len() >= BUSY_WRITES
            && oldest.is_some_and(|oldest| now.saturating_sub(*oldest) < BUSY_WITHIN)
        {
            self.busy_until = now.saturating_add(BUSY_LASTS);
        }
    }

    /// Somebody wants to let this object go, for which nobody waits.
    pub fn ask(&mut self, object: &Uid, now: Duration) -> Turn {
        if !self.is_busy(now) {
            return Turn::Now;
        }
        let since = self.waiting.get(object).copied();
        let left = PUT_OFF_MAX.saturating_sub(now.saturating_sub(since.unwrap_or(now)));
        if left.is_zero() || (since.is_none() && !self.has_room(now)) {
            return Turn::Now;
        }
        self.waiting.entry(object.clone()).or_insert(now);
        Turn::In(left.min(ASK_AGAIN))
    }

    /// Whether this object was to be let go before, and was put off.
    pub fn is_put_off(&self, object: &Uid) -> bool {
        self.waiting.contains_key(object)
    }

    /// An object was let go.
    pub fn let_go(&mut self, object: &Uid) {
        self.waiting.remove(object);
    }

    /// Whether one more can be put off. Who has not come for its turn will not come any more.
    fn has_room(&mut self, now: Duration) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            let long = PUT_OFF_MAX + ASK_AGAIN;
            self.waiting.retain(|_, since| now.saturating_sub(*since) < long);
        }
        self.waiting.len() < WAITING_MAX
    }

    /// A run wants to say how its work goes, and nothing else. It has one turn, however often it asks.
    pub fn tell(&mut self, run: &Uid, now: Duration) -> Turn {
        let turn = self.turns.get(run).copied();
        if !self.is_busy(now) || turn.is_some_and(|turn| turn <= now) {
            self.turns.remove(run);
            return Turn::Now;
        }
        if let Some(turn) = turn {
            return Turn::In(turn.saturating_sub(now));
        }
        if self.turns.len() >= WAITING_MAX {
            self.turns.retain(|_, turn| *turn > now);
        }
        if self.turns.len() >= WAITING_MAX {
            return Turn::In(ASK_AGAIN);
        }
        self.booked = self.booked.max(now).saturating_add(TELL_INTERVAL);
        let turn = self.booked.saturating_sub(TELL_INTERVAL * TELL_BURST);
        if turn <= now {
            return Turn::Now;
        }
        self.turns.insert(run.clone(), turn);
        Turn::In(turn.saturating_sub(now))
    }

    /// Whether much is written that somebody waits for, or was a moment ago.
    pub fn is_busy(&self, now: Duration) -> bool {
        self.never_rests || now < self.busy_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn object(name: &str) -> Uid {
        Uid(name.to_owned())
    }

    /// Has written this often at this time.
    fn busy(leisure: &mut Leisure, now: Duration) {
        for _ in 0..BUSY_WRITES {
            leisure.wrote(now);
        }
    }

    #[test]
    fn where_little_is_written_nobody_is_put_off() {
        let mut leisure = Leisure::default();
        for _ in 1..BUSY_WRITES {
            leisure.wrote(SECOND);
        }

        assert_eq!(leisure.ask(&object("a"), SECOND), Turn::Now);
    }

    #[test]
    fn who_is_put_off_has_its_turn_when_the_crowd_is_gone() {
        let mut leisure = Leisure::default();
        busy(&mut leisure, SECOND);

        assert_eq!(leisure.ask(&object("a"), SECOND), Turn::In(ASK_AGAIN));
        let lull = (SECOND + BUSY_LASTS).saturating_sub(Duration::from_millis(1));
        assert!(leisure.is_busy(lull), "a lull does not end a crowd");
        assert_eq!(leisure.ask(&object("a"), SECOND + BUSY_LASTS), Turn::Now);
    }

    #[test]
    fn nobody_is_put_off_for_longer_than_the_bound() {
        let mut leisure = Leisure::default();
        let mut now = SECOND;
        let begun = now;
        loop {
            busy(&mut leisure, now);
            match leisure.ask(&object("a"), now) {
                Turn::Now => break,
                Turn::In(wait) => now += wait,
            }
        }

        assert_eq!(now.saturating_sub(begun), PUT_OFF_MAX);
        leisure.let_go(&object("a"));
        assert!(leisure.waiting.is_empty(), "what was let go is forgotten");
    }

    #[test]
    fn how_the_work_goes_is_told_at_once_by_few_and_by_many_in_turn() {
        let mut leisure = Leisure::default();
        let runs: Vec<Uid> = (0..1000).map(|number| object(&number.to_string())).collect();
        assert!(
            runs.iter().all(|run| leisure.tell(run, SECOND) == Turn::Now),
            "there is little to do"
        );
        let mut waiting: Vec<(Duration, &Uid)> = runs.iter().map(|run| (SECOND, run)).collect();
        let (mut told, mut last) = (Vec::new(), SECOND);
        while !waiting.is_empty() {
            waiting.sort();
            let (now, run) = waiting.remove(0);
            busy(&mut leisure, now);
            match leisure.tell(run, now) {
                Turn::Now => told.push(now),
                Turn::In(wait) => waiting.push((now + wait, run)),
            }
            last = now;
        }

        let at_once = told.iter().filter(|at| **at == SECOND).count();
        assert_eq!(at_once, 25);
        assert_eq!(
            last,
            SECOND + TELL_INTERVAL * 975,
            "each has the turn that it was given"
        );
    }

    #[test]
    fn who_asks_often_has_one_turn() {
        let mut leisure = Leisure::default();
        busy(&mut leisure, SECOND);
        for number in 0..TELL_BURST {
            leisure.tell(&object(&number.to_string()), SECOND);
        }
        let first = leisure.tell(&object("a"), SECOND);
        assert_eq!(first, Turn::In(TELL_INTERVAL));
        assert_eq!(leisure.tell(&object("a"), SECOND), first);
        assert_eq!(leisure.tell(&object("b"), SECOND), Turn::In(TELL_INTERVAL * 2));
    }

    #[test]
    fn no_more_than_the_bound_are_put_off_and_who_did_not_come_again_makes_room() {
        let mut leisure = Leisure::default();
        busy(&mut leisure, SECOND);
        for number in 0..WAITING_MAX {
            leisure.ask(&object(&number.to_string()), SECOND);
        }
        assert_eq!(leisure.ask(&object("one more"), SECOND), Turn::Now);

        let later = SECOND + PUT_OFF_MAX + ASK_AGAIN;
        busy(&mut leisure, later);
        assert!(matches!(leisure.ask(&object("one more"), later), Turn::In(_)));
        assert_eq!(leisure.waiting.len(), 1);
    }
}
