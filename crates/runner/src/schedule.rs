//! When the agent is told to stop and when it is killed: decisions only, time is an argument.

use std::time::Duration;

use rustix::process::Signal;

use crate::spec::Deadlines;

/// Why the agent was told to stop; the first cause counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The runner itself was told to.
    Signal(Signal),
    SoftDeadline,
    HardDeadline,
}

/// The signals to send, all times counted from the agent's start.
#[derive(Debug)]
pub(crate) struct Schedule {
    soft: Option<Duration>,
    kill: Option<Duration>,
    grace: Duration,
    stop: Option<StopCause>,
    killed: bool,
}

impl Schedule {
    pub(crate) fn new(deadlines: &Deadlines) -> Self {
        let grace = deadlines.grace.0;
        let soft = deadlines.soft.map(|seconds| seconds.0);
        let hard = deadlines.hard.map(|seconds| seconds.0);
        Self {
            soft,
            kill: hard.or_else(|| soft.map(|soft| soft.saturating_add(grace))),
            grace,
            stop: None,
            killed: false,
        }
    }

    /// A signal has come for the agent. After one that means "stop" the agent has its grace, and no more for a second one.
    pub(crate) fn forward(&mut self, signal: Signal, now: Duration) {
        if !matches!(signal, Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT) {
            return;
        }
        self.stop.get_or_insert(StopCause::Signal(signal));
        let kill = now.saturating_add(self.grace);
        self.kill = Some(self.kill.map_or(kill, |earlier| earlier.min(kill)));
    }

    /// The signal that is due now, at most once each.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Signal> {
        if self.killed {
            return None;
        }
        if self.kill.is_some_and(|at| at <= now) {
            self.killed = true;
            self.stop.get_or_insert(StopCause::HardDeadline);
            return Some(Signal::KILL);
        }
        if self.stop.is_none() && self.soft.is_some_and(|at| at <= now) {
            self.stop = Some(StopCause::SoftDeadline);
            return Some(Signal::TERM);
        }
        None
    }

    /// How long nothing is due, or none if nothing ever will be.
    pub(crate) fn wait(&self, now: Duration) -> Option<Duration> {
        if self.killed {
            return None;
        }
        let soft = self.soft.filter(|_| self.stop.is_none());
        [soft, self.kill]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_sub(now))
    }

    /// Why the agent was told to stop, if it was, and whether it had to be killed.
    pub(crate) fn stop(&self) -> Option<(StopCause, bool)> {
        self.stop.map(|cause| (cause, self.killed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Seconds;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn schedule(soft: Option<u64>, hard: Option<u64>, grace: u64) -> Schedule {
        Schedule::new(&Deadlines {
            soft: soft.map(|seconds| Seconds(at(seconds))),
            hard: hard.map(|seconds| Seconds(at(seconds))),
            grace: Seconds(at(grace)),
        })
    }

    #[test]
    fn without_deadlines_nothing_is_ever_due() {
        let mut schedule = schedule(None, None, 5);

        assert_eq!(schedule.wait(at(0)), None);
        assert_eq!(schedule.due(at(1_000_000)), None);
    }

    #[test]
    fn the_soft_deadline_asks_and_the_grace_after_it_kills() {
        let mut schedule = schedule(Some(10), None, 5);

        assert_eq!(schedule.wait(at(4)), Some(at(6)));
        assert_eq!(schedule.due(at(10)), Some(Signal::TERM));
        assert_eq!(schedule.due(at(11)), None);
        assert_eq!(schedule.wait(at(11)), Some(at(4)));
        assert_eq!(schedule.due(at(15)), Some(Signal::KILL));
        assert_eq!(schedule.due(at(16)), None);
        assert_eq!(schedule.stop(), Some((StopCause::SoftDeadline, true)));
    }

    #[test]
    fn the_hard_deadline_holds_without_a_soft_one() {
        let mut schedule = schedule(None, Some(3), 60);

        assert_eq!(schedule.due(at(3)), Some(Signal::KILL));
        assert_eq!(schedule.stop(), Some((StopCause::HardDeadline, true)));
    }

    #[test]
    fn a_second_request_to_stop_gives_no_second_grace() {
        let mut schedule = schedule(None, None, 5);

        schedule.forward(Signal::TERM, at(1));
        schedule.forward(Signal::INT, at(3));

        assert_eq!(schedule.stop(), Some((StopCause::Signal(Signal::TERM), false)));
        assert_eq!(schedule.wait(at(3)), Some(at(3)));
        assert_eq!(schedule.due(at(6)), Some(Signal::KILL));
    }

    #[test]
    fn a_request_to_stop_does_not_put_off_the_hard_deadline() {
        let mut schedule = schedule(Some(10), Some(12), 30);

        schedule.forward(Signal::TERM, at(9));

        assert_eq!(schedule.due(at(10)), None, "it has been asked already");
        assert_eq!(schedule.due(at(12)), Some(Signal::KILL));
    }

    #[test]
    fn a_signal_of_the_agents_own_meaning_stops_nothing() {
        let mut schedule = schedule(None, None, 5);

        schedule.forward(Signal::USR1, at(1));

        assert_eq!(schedule.stop(), None);
        assert_eq!(schedule.wait(at(1)), None);
    }
}
