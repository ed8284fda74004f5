//! Bad luck, as data: what goes wrong, and at which write of the controllers.
//!
//! The writes that the controllers send are counted from 0, Leases apart, whichever process sends them. A plan says what
//! happens at some of them. It can be printed and read back, so that a failure is a line of text.

mod embassy;
mod line;
mod outpost;
mod random;
mod watched;
mod wire;

use std::{fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;

pub use self::{
    embassy::Embassy,
    line::Line,
    outpost::Outpost,
    wire::{Order, Process, Wire},
};

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The process dies before it sends the write. Another one is started in its place.
    CrashBefore,
    /// The process dies after the write was carried out, before it hears so.
    CrashAfter,
    /// The write is carried out, and the connection breaks before the answer.
    LostAnswer,
    /// The write is carried out, and nothing is ever answered.
    NoAnswer,
    /// The write is carried out, and the answer is 504.
    GatewayTimeout,
    /// The connection breaks before the write is carried out.
    NotSent,
    /// The connection breaks, and the write arrives and is carried out this much later all the same.
    Late(Duration),
    /// The answer is 409, and nothing is carried out.
    Conflict,
    /// The answer is 429 with a `Retry-After`, and nothing is carried out.
    Busy,
    /// The answer is 500, and nothing is carried out.
    Broken,
    /// Watches say nothing for a while, then everything that they held back.
    Freeze(Watched, Duration),
    /// Watches say nothing for a while, then only the last state of each object.
    Skip(Watched, Duration),
    /// Watches tell everything this much later, from now on.
    Lag(Watched, Duration),
    /// Watches end with 410: their place in the history is gone.
    Expire,
    /// Somebody else deletes a Job, this much later.
    DeleteJob(Duration),
    /// Somebody else deletes a pod, this much later.
    DeletePod(Duration),
    /// Nothing gets through to or from the process for a while, and another one is started beside it. What it had sent
    /// arrives when that is over.
    Takeover(Duration),
    /// Somebody sets the clock of the controllers forward.
    ClockForward(Duration),
    /// Somebody sets the clock of the controllers back.
    ClockBack(Duration),
}

/// Which watches are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    All,
    Runs,
    Jobs,
    Pods,
    /// OrchestrationRuns, and what their steps wait for.
    Orchestrations,
}

impl Watched {
    const ALL: [Self; 5] = [
        Self::All,
        Self::Runs,
        Self::Jobs,
        Self::Pods,
        Self::Orchestrations,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Runs => "agentruns",
            Self::Jobs => "jobs",
            Self::Pods => "pods",
            Self::Orchestrations => "orchestrationruns",
        }
    }

    /// Whether a watch of this resource is meant.
    fn means(self, plural: &str) -> bool {
        let beside = match self {
            Self::Runs => plural == "toolruns",
            Self::Orchestrations => matches!(plural, "signaldeliveries" | "approvalpolicies"),
            Self::All | Self::Jobs | Self::Pods => false,
        };
        self == Self::All || self.name() == plural || beside
    }
}

impl Trouble {
    /// Whether it leaves no mark: the end must be the same as if nothing had happened.
    pub fn leaves_no_mark(self) -> bool {
        match self {
            Self::CrashBefore
            | Self::CrashAfter
            | Self::LostAnswer
            | Self::NoAnswer
            | Self::GatewayTimeout
            | Self::NotSent
            | Self::Late(_)
            | Self::Conflict
            | Self::Busy
            | Self::Broken
            | Self::Freeze(..)
            | Self::Skip(..)
            | Self::Lag(..)
            | Self::Expire
            | Self::Takeover(_) => true,
            // What somebody else deletes is gone, and a clock that was set makes deadlines pass or wait.
            Self::DeleteJob(_) | Self::DeletePod(_) | Self::ClockForward(_) | Self::ClockBack(_) => false,
        }
    }

    /// What every trouble is called in a plan.
    pub const WORDS: [&'static str; 19] = [
        "crash-before",
        "crash-after",
        "lost-answer",
        "no-answer",
        "gateway-timeout",
        "not-sent",
        "late",
        "conflict",
        "busy",
        "broken",
        "freeze",
        "skip",
        "lag",
        "expire",
        "delete-job",
        "delete-pod",
        "takeover",
        "clock-forward",
        "clock-back",
    ];

    /// What it is called in a plan.
    pub fn word(self) -> &'static str {
        match self {
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::LostAnswer => "lost-answer",
            Self::NoAnswer => "no-answer",
            Self::GatewayTimeout => "gateway-timeout",
            Self::NotSent => "not-sent",
            Self::Late(_) => "late",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Broken => "broken",
            Self::Freeze(..) => "freeze",
            Self::Skip(..) => "skip",
            Self::Lag(..) => "lag",
            Self::Expire => "expire",
            Self::DeleteJob(_) => "delete-job",
            Self::DeletePod(_) => "delete-pod",
            Self::Takeover(_) => "takeover",
            Self::ClockForward(_) => "clock-forward",
            Self::ClockBack(_) => "clock-back",
        }
    }

    /// By how much it sets the clock.
    fn jump(self) -> Option<SignedDuration> {
        match self {
            Self::ClockForward(by) => SignedDuration::try_from(by).ok(),
            Self::ClockBack(by) => SignedDuration::try_from(by).ok().map(|by| -by),
            _ => None,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Self::Freeze(which, time) | Self::Skip(which, time) | Self::Lag(which, time) => {
                write!(f, ":{}:{}", which.name(), time.as_millis())
            }
            Self::Late(time)
            | Self::DeleteJob(time)
            | Self::DeletePod(time)
            | Self::Takeover(time)
            | Self::ClockForward(time)
            | Self::ClockBack(time) => write!(f, ":{}", time.as_millis()),
            _ => Ok(()),
        }
    }
}

/// A trouble at one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: u32,
    pub trouble: Trouble,
}

impl Trouble {
    /// This trouble at that write.
    pub fn at(self, write: u32) -> Fault {
        Fault {
            at: write,
            trouble: self,
        }
    }
}

/// What goes wrong in one simulation: `crash-after@3,freeze:agentruns:40000@5`, times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(pub Vec<Fault>);

impl Plan {
    /// Whether nobody sets the clock.
    pub fn keeps_the_clock(&self) -> bool {
        self.0.iter().all(|fault| fault.trouble.jump().is_none())
    }

    pub fn leaves_no_mark(&self) -> bool {
        self.0.iter().all(|fault| fault.trouble.leaves_no_mark())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}@{}", fault.trouble, fault.at)?;
        }
        Ok(())
    }
}

/// A plan that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegible(String);

impl fmt::Display for Illegible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no fault; one looks like crash-after@3 or freeze:agentruns:40000@5",
            self.0
        )
    }
}

impl std::error::Error for Illegible {}

impl FromStr for Plan {
    type Err = Illegible;

    fn from_str(text: &str) -> Result<Self, Illegible> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let faults = parts.map(|part| read_fault(part).ok_or_else(|| Illegible(part.to_owned())));
        faults.collect::<Result<_, _>>().map(Self)
    }
}

fn read_fault(text: &str) -> Option<Fault> {
    let (trouble, at) = text.split_once('@')?;
    let mut words = trouble.split(':');
    let word = words.next()?;
    let mut which = words.clone();
    let time = |text: Option<&str>| text?.parse().ok().map(Duration::from_millis);
    let mut watched = || {
        let name = which.next()?;
        let found = Watched::ALL.into_iter().find(|watched| watched.name() == name)?;
        Some((found, time(which.next())?))
    };
    let trouble = match word {
        "crash-before" => Trouble::CrashBefore,
        "crash-after" => Trouble::CrashAfter,
        "lost-answer" => Trouble::LostAnswer,
        "no-answer" => Trouble::NoAnswer,
        "gateway-timeout" => Trouble::GatewayTimeout,
        "not-sent" => Trouble::NotSent,
        "late" => Trouble::Late(time(words.next())?),
        "conflict" => Trouble::Conflict,
        "busy" => Trouble::Busy,
        "broken" => Trouble::Broken,
        "freeze" => watched().map(|(which, time)| Trouble::Freeze(which, time))?,
        "skip" => watched().map(|(which, time)| Trouble::Skip(which, time))?,
        "lag" => watched().map(|(which, time)| Trouble::Lag(which, time))?,
        "expire" => Trouble::Expire,
        "delete-job" => Trouble::DeleteJob(time(words.next())?),
        "delete-pod" => Trouble::DeletePod(time(words.next())?),
        "takeover" => Trouble::Takeover(time(words.next())?),
        "clock-forward" => Trouble::ClockForward(time(words.next())?),
        "clock-back" => Trouble::ClockBack(time(words.next())?),
        _ => return None,
    };
    Some(trouble.at(at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn a_plan_is_read_back_as_it_was_printed() {
        for seed in 0..500 {
            let plan = Plan::random(&mut StdRng::seed_from_u64(seed), 8);
            assert!(!plan.0.is_empty());
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
        assert_eq!("".parse(), Ok(Plan::default()));
    }

    #[test]
    fn a_plan_that_means_nothing_is_refused_with_its_text() {
        for text in ["crash", "crash-after@", "freeze:nodes:1@2", "late@1", "late:x@1"] {
            let refused = text.parse::<Plan>().unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
    }
}
