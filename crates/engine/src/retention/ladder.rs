//! The times for which a Job, its logs and its run are kept, beside each other.

use std::{fmt, time::Duration};

use jangar_api::{
    agents::{agent_run::AgentRun, agent_run_status::RetentionStatus},
    tools::ToolRun,
    values::Int32,
};

use crate::{job, settings::Settings};

/// How long things are kept after their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// A finished Job; absent, until its run is deleted.
    pub job: Option<Duration>,
    /// Archived logs.
    pub logs: Duration,
    /// The run; absent, for good.
    pub run: Option<Duration>,
}

/// A Job that should be kept for longer than its run. It cannot be: Kubernetes deletes it with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpsideDown {
    pub job_seconds: u64,
    pub run_seconds: u64,
}

impl Ladder {
    /// What holds for runs that say nothing about it.
    pub fn of_settings(settings: &Settings) -> Self {
        Self {
            job: settings.runner.job_ttl_seconds.map(seconds),
            logs: seconds(settings.runner.log_retention_seconds),
            run: settings.runs.retention,
        }
    }

    /// What holds for a run. Where it says something that cannot be used, which is told elsewhere, the settings hold.
    pub fn of_run(run: &AgentRun, settings: &Settings) -> Self {
        let defaults = Self::of_settings(settings);
        Self {
            job: job::ttl_seconds(run, settings).map_or(defaults.job, |ttl| ttl.map(seconds)),
            logs: job::log_retention_seconds(run, settings).map_or(defaults.logs, seconds),
            run: run_retention(run.spec.ttl_seconds_after_finished, settings),
        }
    }

    /// What holds for a run of a tool. How long its Job is kept was decided when that was made: by the Tool, or else by the
    /// settings.
    pub fn of_tool_run(run: &ToolRun, known: Option<&RetentionStatus>, settings: &Settings) -> Self {
        let defaults = Self::of_settings(settings);
        let decided = known.map(|known| {
            let seconds = u32::try_from(known.job_ttl_seconds.get()).unwrap_or(0);
            Some(seconds).filter(|seconds| *seconds > 0)
        });
        Self {
            job: decided.map_or(defaults.job, |ttl| ttl.map(seconds)),
            run: run_retention(run.spec.ttl_seconds_after_finished, settings),
            ..defaults
        }
    }

    /// The two that contradict each other, if they do. A Job that is kept as long as its run, whatever that comes to, and a
    /// run that is kept for good contradict nothing.
    pub fn upside_down(&self) -> Option<UpsideDown> {
        let (job_seconds, run_seconds) = (self.job?.as_secs(), self.run?.as_secs());
        (job_seconds > run_seconds).then_some(UpsideDown {
            job_seconds,
            run_seconds,
        })
    }

    /// The form in which a run's status shows it: seconds, where 0 is for good.
    pub fn status(&self) -> RetentionStatus {
        let shown = |kept: Option<Duration>| {
            let seconds = kept.unwrap_or_default().as_secs();
            Int32::from(i32::try_from(seconds).unwrap_or(i32::MAX))
        };
        RetentionStatus {
            job_ttl_seconds: shown(self.job),
            log_retention_seconds: shown(Some(self.logs)),
            run_retention_seconds: shown(self.run),
        }
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.job {
            Some(job) => write!(f, "finished Jobs {} s", job.as_secs())?,
            None => f.write_str("finished Jobs as long as their run")?,
        }
        write!(f, ", archived logs {} s, ", self.logs.as_secs())?;
        match self.run {
            Some(run) => write!(f, "finished runs {} s", run.as_secs()),
            None => f.write_str("finished runs for good"),
        }
    }
}

/// How long a run is kept after its end, by what it says itself or by the settings; `None` for good.
pub(crate) fn run_retention(own: Option<Int32>, settings: &Settings) -> Option<Duration> {
    match own {
        // The schema admits no negative number; a larger program might.
        Some(own) => u64::try_from(own.get())
            .ok()
            .filter(|own| *own > 0)
            .map(Duration::from_secs),
        None => settings.runs.retention,
    }
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(u64::from(number))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(spec: &Value) -> AgentRun {
        let mut whole = json!({"agentRef": {"name": "a"}, "runtime": {"type": "job"}});
        for (field, value) in spec.as_object().expect("fields") {
            whole[field] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": whole})).expect("a run")
    }

    #[test]
    fn a_run_goes_before_the_settings_and_zero_means_for_good() {
        let settings = Settings::default();
        let of = |spec: Value| Ladder::of_run(&run(&spec), &settings).status();
        let numbers = |status: RetentionStatus| {
            [
                status.job_ttl_seconds.get(),
                status.log_retention_seconds.get(),
                status.run_retention_seconds.get(),
            ]
        };
        assert_eq!(numbers(of(json!({}))), [600, 604_800, 2_592_000]);
        let config = json!({"ttlSecondsAfterFinished": 60, "logRetentionSeconds": 90});
        let own = json!({"ttlSecondsAfterFinished": 120, "runtime": {"type": "job", "config": config}});
        assert_eq!(numbers(of(own)), [60, 90, 120]);
        let config = json!({"ttlSecondsAfterFinished": 0});
        let kept = json!({"ttlSecondsAfterFinished": 0, "runtime": {"type": "job", "config": config}});
        assert_eq!(numbers(of(kept)), [0, 604_800, 0]);
    }

    #[test]
    fn how_long_logs_are_kept_changes_nothing_about_jobs() {
        for logs in [0, 1, 604_800, 0x7fff_ffff] {
            let mut settings = Settings::default();
            settings.runner.log_retention_seconds = logs;
            let config = json!({"logRetentionSeconds": logs});
            for spec in [json!({}), json!({"runtime": {"type": "job", "config": config}})] {
                let ladder = Ladder::of_run(&run(&spec), &settings);
                assert_eq!(ladder.job, Some(Duration::from_mins(10)), "{logs}");
                assert_eq!(ladder.upside_down(), None, "{logs}");
            }
        }
    }

    #[test]
    fn a_job_that_outlives_its_run_is_upside_down() {
        let ladder = |job: Option<u64>, run: Option<u64>| Ladder {
            job: job.map(Duration::from_secs),
            logs: Duration::ZERO,
            run: run.map(Duration::from_secs),
        };
        assert_eq!(
            ladder(Some(600), Some(60)).upside_down(),
            Some(UpsideDown {
                job_seconds: 600,
                run_seconds: 60
            })
        );
        for (job, run) in [(Some(60), Some(60)), (None, Some(60)), (Some(60), None)] {
            assert_eq!(ladder(job, run).upside_down(), None);
        }
    }

    #[test]
    fn the_ladder_is_one_line() {
        let mut settings = Settings::default();
        assert_eq!(
            Ladder::of_settings(&settings).to_string(),
            "finished Jobs 600 s, archived logs 604800 s, finished runs 2592000 s"
        );
        settings.runner.job_ttl_seconds = None;
        settings.runs.retention = None;
        assert_eq!(
            Ladder::of_settings(&settings).to_string(),
            "finished Jobs as long as their run, archived logs 604800 s, finished runs for good"
        );
    }
}
