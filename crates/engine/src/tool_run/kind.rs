//! What ToolRuns have of their own in the life that they have in common with other runs.

use std::time::Duration;

use jangar_api::{
    agents::agent_run_status::RetentionStatus,
    labels,
    reason::Reason,
    tools::{ToolRun, ToolRunStatus},
    values::Int32,
};
use k8s_openapi::api::batch::v1::Job;

use super::{NextStatus, Observed, Situation, outputs, start};
use crate::{
    decision::{Decision, Rejection},
    job::{
        self,
        tool::{number_in, timeout_of},
    },
    last_sight::{LastSight, MadeFor},
    life::{
        Hold, Run, RunStatus, Worker,
        attempt::Attempt,
        course_in_fields, hold,
        outcome::{Ending, Verdict},
        run_in_fields,
        task::Task,
    },
    parent,
    retention::{Ladder, run_retention},
    settings::Settings,
};

impl Run for ToolRun {
    type Status = ToolRunStatus;
    type Observed = Observed;
    const WORKER: Worker = Worker {
        container: job::TOOL_CONTAINER,
        who: "tool",
        memory: "spec.resources.limits.memory of the Tool",
        image: "spec.image of the Tool",
        configuration: "the Tool and the run",
        done: "the tool has done its work",
    };

    run_in_fields!();

    fn task(&self, number: u32) -> Option<Task<'_>> {
        (number == 0).then_some(Task::Whole)
    }

    fn start(situation: &Situation<'_>) -> Decision<ToolRunStatus> {
        start::plan(situation)
    }

    fn attempts_allowed(situation: &Situation<'_>, job: Option<&Job>) -> u32 {
        let stamped = job.and_then(|job| number_in(job, labels::ATTEMPTS));
        stamped.unwrap_or_else(|| job::tool_attempts(situation.run).unwrap_or(1))
    }

    /// As the Tool said when the Job was made.
    fn timeout(_: &Situation<'_>, job: &Job) -> Option<(Duration, Rejection)> {
        let timeout = timeout_of(job)?;
        let why = format!(
            "the tool took longer than the {} s of spec.timeoutSeconds of its Tool: raise it, or give the tool less to do",
            timeout.as_secs()
        );
        Some((timeout, Rejection::new(Reason::TimedOut, why)))
    }

    fn begun(situation: &Situation<'_>, next: &mut NextStatus<'_>, job: &Job, attempt: &Attempt) {
        Self::begun_unseen(situation, next, &LastSight::of(job).made_for, attempt);
        let job_ttl = situation.run.job_ttl(job, situation.settings).unwrap_or(0);
        let retention = next.status.retention.get_or_insert_default();
        retention.job_ttl_seconds = Int32::from(i32::try_from(job_ttl).unwrap_or(i32::MAX));
        next.keeps();
        next.note(&Reason::SpreadCountsOthers, job::counts_others(job).as_deref());
    }

    fn begun_unseen(situation: &Situation<'_>, next: &mut NextStatus<'_>, _: &MadeFor, _: &Attempt) {
        next.status.run_id = Some(situation.seen.key.name.clone());
    }

    /// What a tool left counts only if it ended well and was there to be read.
    fn take_over(_: &Situation<'_>, _: &mut NextStatus<'_>, ending: &Ending) -> Result<(), Rejection> {
        match (ending.verdict, &ending.words) {
            (Verdict::Succeeded, Some(words)) => outputs::check(words),
            (Verdict::Succeeded | Verdict::SucceededUnseen | Verdict::Failed | Verdict::Disrupted, _) => {
                Ok(())
            }
        }
    }

    /// As its Tool and the settings said when the Job was made.
    fn job_ttl(&self, job: &Job, settings: &Settings) -> Option<u32> {
        let stamped = number_in(job, labels::TTL_SECONDS);
        stamped
            .or(settings.runner.job_ttl_seconds)
            .filter(|seconds| *seconds > 0)
    }

    fn ladder(&self, known: &ToolRunStatus, settings: &Settings) -> Ladder {
        Ladder::of_tool_run(self, known.retention.as_ref(), settings)
    }

    fn retention(&self, settings: &Settings) -> Option<Duration> {
        run_retention(self.spec.ttl_seconds_after_finished, settings)
    }

    fn hold(situation: &Situation<'_>) -> Hold {
        if parent::is_held(&situation.run.metadata) {
            Hold::Parent
        } else if hold::is_held(situation.run) {
            Hold::Ours(vec![hold::let_go(situation.run)])
        } else {
            Hold::Nothing
        }
    }
}

impl RunStatus for ToolRunStatus {
    course_in_fields!();

    fn keep(&mut self, retention: RetentionStatus) {
        self.retention = Some(retention);
    }
}
