//! What a pod will do: written down before it starts.

use std::{collections::BTreeMap, time::Duration};

/// What the pod of one attempt does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// It runs for a while and ends by itself.
    Exits {
        after: Duration,
        code: i32,
        on_term: OnTerm,
    },
    /// It runs until it is told to stop.
    Runs { on_term: OnTerm },
    /// It cannot start for want of something.
    NeverStarts(Lack),
    /// It is put off its node while it runs.
    Evicted { after: Duration, by: Eviction },
    /// Its node dies while it runs; the cluster notices some time later and gives the pod up.
    NodeLost {
        after: Duration,
        noticed_after: Duration,
    },
}

/// What a pod cannot start without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Its image cannot be had.
    Image,
    /// Something is wrong about what it mounts.
    Configuration,
}

impl Lack {
    /// What the kubelet says at first, and what later.
    pub(super) const fn reasons(self) -> [&'static str; 2] {
        match self {
            Self::Image => ["ErrImagePull", "ImagePullBackOff"],
            Self::Configuration => ["CreateContainerConfigError", "CreateContainerError"],
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Image => "the image cannot be had",
            Self::Configuration => "the files of the pod cannot be had",
        }
    }
}

/// What the work does when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTerm {
    /// It ends after this long, if its grace reaches that far.
    Obeys(Duration),
    /// It brings its work to a good end within this long, if its grace reaches that far.
    Finishes(Duration),
    /// It goes on until it is killed.
    Ignores,
}

/// Who puts a pod off its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Somebody who drains the node: the pod is deleted with its grace.
    Drain,
    /// The kubelet, for want of memory: the pod fails and stays.
    Pressure,
}

/// The scripts of a scenario, by the name of the run, the number of the step (0 if it is no workflow) and that of the attempt.
#[derive(Clone, Debug, Default)]
pub struct Scripts(BTreeMap<(String, u32, u32), Script>);

impl Scripts {
    #[must_use]
    pub fn with(self, run: &str, attempt: u32, script: Script) -> Self {
        self.with_step(run, 0, attempt, script)
    }

    /// What an attempt of the step of a workflow does.
    #[must_use]
    pub fn with_step(mut self, run: &str, step: u32, attempt: u32, script: Script) -> Self {
        self.0.insert((run.to_owned(), step, attempt), script);
        self
    }

    /// What an attempt does; without a script it works for a little while and succeeds.
    pub(super) fn get(&self, run: &str, step: u32, attempt: u32) -> Script {
        let written = self.0.get(&(run.to_owned(), step, attempt)).cloned();
        written.unwrap_or(Script::Exits {
            after: Duration::from_secs(20),
            code: 0,
            on_term: OnTerm::Obeys(Duration::from_secs(1)),
        })
    }
}
