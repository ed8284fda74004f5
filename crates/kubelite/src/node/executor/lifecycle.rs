//! What happens next to the containers of a pod. Pure: from what is known to what to do.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{objects::Reference, run::Exit};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub(crate) fn of(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn restarts(self, role: Role, exit: &Exit) -> bool {
        match (self, role) {
            (Self::Never, _) => false,
            (Self::Always, Role::Main) => true,
            // An init container that has succeeded is never run again.
            (Self::OnFailure, _) | (Self::Always, Role::Init) => exit.code != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Init,
    Main,
}

/// Why a container is not running yet, as `state.waiting.reason` names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr)]
pub(crate) enum WaitReason {
    ContainerCreating,
    CreateContainerConfigError,
    CreateContainerError,
    RunContainerError,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ContainerState {
    /// Its turn has not come, or it is being started.
    Waiting,
    /// It cannot be started until one of these objects changes, or not before this time.
    Blocked {
        reason: WaitReason,
        message: String,
        on: BTreeSet<Reference>,
        retry_at: Option<Timestamp>,
    },
    /// It ended and is started again, but not before this time.
    BackOff {
        until: Timestamp,
        delay: Duration,
    },
    /// Its process is made; its program has not begun.
    Starting,
    Running {
        since: Timestamp,
    },
    Terminated(Exit),
}

/// A container of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// How many attempts have been made, the present one included.
    pub(crate) attempts: u32,
    pub(crate) state: ContainerState,
    /// How the attempt before the present one ended.
    pub(crate) last: Option<Exit>,
}

impl Record {
    pub(crate) fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            attempts: 0,
            state: ContainerState::Waiting,
            last: None,
        }
    }

    /// Whether a process of it may live.
    pub(crate) fn is_live(&self) -> bool {
        matches!(
            self.state,
            ContainerState::Starting | ContainerState::Running { .. }
        )
    }

    /// Whether it is in a state on the way to where the containers of the pod run, which it mostly leaves within moments.
    pub(crate) fn is_passing(&self) -> bool {
        match (&self.state, self.role) {
            (ContainerState::Starting, _) | (ContainerState::Running { .. }, Role::Init) => true,
            (_, Role::Init | Role::Main) => false,
        }
    }

    pub(crate) fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Terminated(exit) => Some(exit),
            _ => None,
        }
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.exit().is_some_and(|exit| exit.code == 0)
    }
}

/// How long a container that ends again and again is kept waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    /// The kubelet's.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_mins(5),
        }
    }
}

impl Backoff {
    /// The wait before the attempt that follows `attempts` others. The first restart is immediate.
    fn delay(&self, attempts: u32) -> Duration {
        match attempts {
            0 | 1 => Duration::ZERO,
            // Thirty doublings of a second are more than any bound here.
            more => self.initial.saturating_mul(1 << (more - 2).min(30)).min(self.max),
        }
    }
}

impl Backoff {
    /// A container that ran for long enough is trusted again.
    fn is_forgotten(&self, exit: &Exit) -> bool {
        let ran = exit
            .started_at
            .map(|started| exit.finished_at.duration_since(started));
        ran.and_then(|ran| Duration::try_from(ran).ok())
            .is_some_and(|ran| ran >= self.max.saturating_mul(2))
    }
}

/// What to do about one container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Start,
    BackOff { until: Timestamp, delay: Duration },
}

/// What to do next.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Next {
    /// By position in the list of containers.
    pub(crate) actions: Vec<(usize, Action)>,
    /// When to look again if nothing happens before.
    pub(crate) wake_at: Option<Timestamp>,
    /// No container runs, and none will.
    pub(crate) over: bool,
}

/// Decides about the containers of a pod that is meant to run. Init containers come first in `records`.
pub(crate) fn next(records: &[Record], policy: RestartPolicy, backoff: Backoff, now: Timestamp) -> Next {
    let mut next = Next::default();
    let unfinished_init = records
        .iter()
        .position(|record| record.role == Role::Init && !record.succeeded());
    if let Some(index) = unfinished_init {
        let Some(record) = records.get(index) else {
            return next;
        };
        next.over = decide(&mut next, index, record, policy, backoff, now);
        return next;
    }
    next.over = true;
    for (index, record) in records.iter().enumerate() {
        if record.role == Role::Main {
            next.over &= decide(&mut next, index, record, policy, backoff, now);
        }
    }
    next
}

/// Decides about one container whose turn it is. `true` says that it has ended for good.
fn decide(
    next: &mut Next,
    index: usize,
    record: &Record,
    policy: RestartPolicy,
    backoff: Backoff,
    now: Timestamp,
) -> bool {
    let wait_until = |next: &mut Next, time: Timestamp| {
        next.wake_at = Some(next.wake_at.map_or(time, |earlier| earlier.min(time)));
    };
    match &record.state {
        ContainerState::Waiting => next.actions.push((index, Action::Start)),
        ContainerState::Blocked { retry_at, .. } => match retry_at {
            Some(time) if *time <= now => next.actions.push((index, Action::Start)),
            Some(time) => wait_until(next, *time),
            None => {}
        },
        ContainerState::BackOff { until, .. } if *until <= now => {
            next.actions.push((index, Action::Start));
        }
        ContainerState::BackOff { until, .. } => wait_until(next, *until),
        ContainerState::Starting | ContainerState::Running { .. } => {}
        ContainerState::Terminated(exit) if policy.restarts(record.role, exit) => {
            let delay = if backoff.is_forgotten(exit) {
                Duration::ZERO
            } else {
                backoff.delay(record.attempts)
            };
            let until = after(exit.finished_at, delay);
            if until <= now {
                next.actions.push((index, Action::Start));
            } else {
                next.actions.push((index, Action::BackOff { until, delay }));
                wait_until(next, until);
            }
        }
        ContainerState::Terminated(_) => return true,
    }
    false
}

/// A time later than another, or the end of time.
pub(crate) fn after(time: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::executor::run::Cause;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ended(code: i32, second: i64) -> ContainerState {
        ContainerState::Terminated(Exit {
            cause: Cause::Exited,
            code,
            signal: None,
            message: String::new(),
            started_at: None,
            finished_at: at(second),
        })
    }

    fn record(role: Role, attempts: u32, state: ContainerState) -> Record {
        Record {
            attempts,
            state,
            ..Record::new("c", role)
        }
    }

    fn decide_on(records: &[Record], policy: RestartPolicy) -> Next {
        next(records, policy, Backoff::default(), at(100))
    }

    #[test]
    fn init_containers_run_one_after_the_other_and_before_all_else() {
        let main = record(Role::Main, 0, ContainerState::Waiting);
        let waiting = record(Role::Init, 0, ContainerState::Waiting);
        let done = record(Role::Init, 1, ended(0, 1));
        let running = record(Role::Init, 1, ContainerState::Running { since: at(1) });
        let starts = |records: &[Record]| decide_on(records, RestartPolicy::Always).actions;
        assert_eq!(
            starts(&[waiting.clone(), waiting.clone(), main.clone()]),
            [(0, Action::Start)]
        );
        assert_eq!(starts(&[running, waiting.clone(), main.clone()]), []);
        assert_eq!(
            starts(&[done.clone(), waiting, main.clone()]),
            [(1, Action::Start)]
        );
        assert_eq!(
            starts(&[done, main.clone(), main]),
            [(1, Action::Start), (2, Action::Start)],
            "the others start all at once"
        );
    }

    #[test]
    fn only_steps_of_a_start_are_passing() {
        let running = || ContainerState::Running { since: at(1) };
        for (role, state, passing) in [
            (Role::Init, ContainerState::Waiting, false),
            (Role::Init, ContainerState::Starting, true),
            (Role::Init, running(), true),
            (Role::Init, ended(1, 1), false),
            (Role::Main, ContainerState::Starting, true),
            (Role::Main, running(), false),
            (Role::Main, ended(0, 1), false),
        ] {
            let record = record(role, 1, state);
            assert_eq!(record.is_passing(), passing, "{record:?}");
        }
    }

    #[test]
    fn restart_policies_decide_who_is_started_again() {
        use RestartPolicy::{Always, Never, OnFailure};
        for (policy, role, code, restarted) in [
            (Always, Role::Main, 0, true),
            (Always, Role::Main, 1, true),
            (OnFailure, Role::Main, 0, false),
            (OnFailure, Role::Main, 1, true),
            (Never, Role::Main, 1, false),
            (Never, Role::Init, 1, false),
            (Always, Role::Init, 1, true),
            (OnFailure, Role::Init, 1, true),
        ] {
            let next = decide_on(&[record(role, 1, ended(code, 99))], policy);
            let expected: &[(usize, Action)] = if restarted { &[(0, Action::Start)] } else { &[] };
            assert_eq!(
                (next.actions.as_slice(), next.over),
                (expected, !restarted),
                "{policy:?} {role:?} {code}"
            );
        }
    }

    #[test]
    fn a_container_that_keeps_failing_waits_longer_each_time() {
        let delays: Vec<u64> = (0..9)
            .map(|attempts| Backoff::default().delay(attempts).as_secs())
            .collect();
        assert_eq!(delays, [0, 0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(Backoff::default().delay(u32::MAX).as_secs(), 300);
        let next = decide_on(&[record(Role::Main, 3, ended(1, 90))], RestartPolicy::Always);
        let until = at(110);
        let delay = Duration::from_secs(20);
        assert_eq!(next.actions, [(0, Action::BackOff { until, delay })]);
        assert_eq!(next.wake_at, Some(until));
        let waited = record(
            Role::Main,
            3,
            ContainerState::BackOff {
                until: at(100),
                delay,
            },
        );
        assert_eq!(
            decide_on(&[waited], RestartPolicy::Always).actions,
            [(0, Action::Start)]
        );
    }

    #[test]
    fn a_container_that_ran_for_long_is_started_again_at_once() {
        let ContainerState::Terminated(mut exit) = ended(1, 1_000) else {
            panic!("it ended");
        };
        exit.started_at = Some(at(400));
        let long = record(Role::Main, 5, ContainerState::Terminated(exit));
        let next = next(&[long], RestartPolicy::Always, Backoff::default(), at(1_000));
        assert_eq!(next.actions, [(0, Action::Start)]);
    }

    #[test]
    fn a_blocked_container_waits_for_its_objects_or_its_time() {
        let blocked = |retry_at| ContainerState::Blocked {
            reason: WaitReason::CreateContainerConfigError,
            message: String::new(),
            on: BTreeSet::new(),
            retry_at,
        };
        for (retry_at, starts, wake_at) in [
            (None, false, None),
            (Some(at(100)), true, None),
            (Some(at(101)), false, Some(at(101))),
        ] {
            let next = decide_on(&[record(Role::Main, 0, blocked(retry_at))], RestartPolicy::Never);
            assert_eq!(
                (!next.actions.is_empty(), next.wake_at, next.over),
                (starts, wake_at, false)
            );
        }
    }
}
