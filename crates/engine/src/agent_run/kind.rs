//! What AgentRuns have of their own in the life that they have in common with other runs.

use std::time::Duration;

use jangar_api::{
    agents::{
        agent_run::{AgentRun, AgentRunStatus},
        agent_run_status::{RetentionStatus, WorkflowStatus},
    },
    reason::Reason,
    values,
};
use k8s_openapi::api::batch::v1::Job;

use super::{NextStatus, Observed, Situation, artifacts, hold, stamp::Stamp, start, token, version_control};
use crate::{
    decision::{Decision, Rejection},
    job,
    last_sight::{LastSight, MadeFor},
    life::{
        Hold, Run, RunStatus, Worker, attempt::Attempt, course_in_fields, outcome::Ending, run_in_fields,
        task::Task,
    },
    parent,
    retention::{Ladder, run_retention},
    settings::Settings,
};

impl Run for AgentRun {
    type Status = AgentRunStatus;
    type Observed = Observed;
    const WORKER: Worker = Worker {
        container: job::CONTAINER,
        who: "agent",
        memory: "spec.workload.resources.limits.memory",
        image: "spec.workload.image, or JANGAR_AGENT_RUNNER_IMAGE of the controllers where the run names none",
        configuration: "the run and its provider",
        done: "the agent has done its work",
    };

    run_in_fields!();

    fn task(&self, number: u32) -> Option<Task<'_>> {
        Task::numbered(self, number)
    }

    fn start(situation: &Situation<'_>) -> Decision<AgentRunStatus> {
        start::plan(situation)
    }

    /// As the step says itself, or as its Job was made for.
    fn attempts_allowed(situation: &Situation<'_>, job: Option<&Job>) -> u32 {
        let agent = situation.observed.references.agent.seen();
        let by_settings = || {
            job::attempts_allowed(situation.run, agent.map(AsRef::as_ref), situation.settings).unwrap_or(1)
        };
        let of_step = situation.task.attempts();
        of_step.unwrap_or_else(|| job.map_or_else(by_settings, |job| Stamp::of(job).attempts_allowed))
    }

    /// Steps have one; what the Agent says about a whole run is counted in the pod.
    fn timeout(situation: &Situation<'_>, _: &Job) -> Option<(Duration, Rejection)> {
        let timeout = situation.task.timeout()?;
        let why = format!(
            "attempt {} took longer than the {} s of its timeoutSeconds: raise it, or give the step less to do",
            situation.attempt.current(),
            timeout.as_secs()
        );
        Some((timeout, Rejection::new(Reason::WorkflowStepTimedOut, why)))
    }

    fn begun(situation: &Situation<'_>, next: &mut NextStatus<'_>, job: &Job, attempt: &Attempt) {
        Self::begun_unseen(situation, next, &LastSight::of(job).made_for, attempt);
        let stamp = Stamp::of(job);
        next.status.system_prompt_hash = stamp.system_prompt_hash;
        next.status.contract = stamp.contract;
        next.note(&Reason::SpreadCountsOthers, job::counts_others(job).as_deref());
        version_control::record(next, situation.task, stamp.vcs);
    }

    fn begun_unseen(
        situation: &Situation<'_>,
        next: &mut NextStatus<'_>,
        made_for: &MadeFor,
        attempt: &Attempt,
    ) {
        let admitted = made_for.admitted_at.unwrap_or(situation.now);
        next.step_running(situation.task, situation.run, attempt, admitted);
        next.status.admitted_at = Some(values::Timestamp(admitted));
        if let Some(repository) = &made_for.repository {
            let reference = next.status.runtime_ref.get_or_insert_default();
            reference
                .0
                .insert("repository".to_owned(), repository.clone().into());
        }
    }

    fn take_over(
        situation: &Situation<'_>,
        next: &mut NextStatus<'_>,
        ending: &Ending,
    ) -> Result<(), Rejection> {
        artifacts::record(next, &ending.artifacts, &situation.settings.runs)
    }

    fn attended(
        situation: &Situation<'_>,
        job: &Job,
        decision: Decision<AgentRunStatus>,
    ) -> Decision<AgentRunStatus> {
        token::kept_fresh(situation, job, decision)
    }

    fn delivered(next: &mut NextStatus<'_>, ending: &Ending) {
        version_control::report(next, ending);
    }

    fn job_ttl(&self, _: &Job, settings: &Settings) -> Option<u32> {
        job::ttl_seconds(self, settings).unwrap_or(settings.runner.job_ttl_seconds)
    }

    fn ladder(&self, _: &AgentRunStatus, settings: &Settings) -> Ladder {
        Ladder::of_run(self, settings)
    }

    fn retention(&self, settings: &Settings) -> Option<Duration> {
        run_retention(self.spec.ttl_seconds_after_finished, settings)
    }

    fn hold(situation: &Situation<'_>) -> Hold {
        let run = situation.run;
        if parent::is_held(&run.metadata) {
            Hold::Parent
        } else if hold::is_held(run) {
            let last = token::last(situation).into_iter();
            Hold::Ours(last.chain([hold::let_go(run)]).collect())
        } else {
            Hold::Nothing
        }
    }
}

impl RunStatus for AgentRunStatus {
    course_in_fields!();

    fn workflow(&mut self) -> Option<&mut WorkflowStatus> {
        self.workflow.as_mut()
    }

    fn keep(&mut self, retention: RetentionStatus) {
        self.retention = Some(retention);
    }

    fn out_of_line(&mut self) {
        self.waiting = None;
    }
}
