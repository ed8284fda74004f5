//! Where the steps of a workflow stand, as the status shows it. A run that is no workflow has none, and nothing here
//! touches it.

use jangar_api::{
    agents::{
        agent_run::AgentRun,
        agent_run_status::{JobRef, WorkflowStatus, WorkflowStepStatus},
    },
    phase::{RunPhase, StepPhase},
    step::StepProgress,
    values::{FreeForm, Int32, Timestamp},
};

use super::{
    NextStatus, Run, RunStatus,
    attempt::Attempt,
    task::{Step, Task, name, steps},
};

/// The most characters of a message of a step: the whole is in the conditions of the run.
const MESSAGE_MAX: usize = 1024;

impl NextStatus<'_, AgentRun> {
    /// An attempt of a step runs as a Job.
    pub(crate) fn step_running(
        &mut self,
        task: Task<'_>,
        run: &AgentRun,
        attempt: &Attempt,
        started: jiff::Timestamp,
    ) {
        let Task::Step(step) = task else { return };
        self.lay_out(step, run);
        let now = Timestamp(self.now);
        let namespace = run.metadata.namespace.clone();
        self.change_step(step, StepPhase::Running, |known| {
            known.progress.attempt = Some(number(attempt.current()));
            known.progress.started_at = Some(Timestamp(started));
            known.progress.finished_at = None;
            known.progress.next_retry_at = None;
            known.message = None;
            known.job_observed_at = Some(now);
            known.job_ref = attempt.job.as_ref().map(|job| JobRef {
                name: Some(job.name.clone()),
                namespace,
                uid: Some(job.uid.0.clone()),
            });
        });
    }

    /// Lists the steps, if the status does not yet. Those before the one that runs have succeeded: otherwise it would not run.
    fn lay_out(&mut self, at: Step<'_>, run: &AgentRun) {
        let now = Timestamp(self.now);
        let workflow = self.status.workflow.get_or_insert_with(WorkflowStatus::default);
        if workflow.steps.len() == steps(run).len() {
            return;
        }
        let listed = (1_u32..)
            .zip(steps(run))
            .map(|(number, step)| WorkflowStepStatus {
                name: Some(name(step).to_owned()),
                progress: StepProgress {
                    phase: Some(if number < at.number {
                        StepPhase::Succeeded
                    } else {
                        StepPhase::Pending
                    }),
                    last_transition_time: Some(now),
                    ..StepProgress::default()
                },
                ..WorkflowStepStatus::default()
            });
        workflow.steps = listed.collect();
    }
}

impl<R: Run> NextStatus<'_, R> {
    /// An attempt of a step ended badly, and another one is due.
    pub(crate) fn step_retrying(&mut self, task: Task<'_>, due: jiff::Timestamp, message: &str) {
        let Task::Step(step) = task else { return };
        self.change_step(step, StepPhase::Retrying, |known| {
            known.progress.next_retry_at = Some(Timestamp(due));
            known.message = Some(cut(message));
        });
    }

    /// A step has done its work.
    pub(crate) fn step_succeeded(&mut self, task: Task<'_>, at: jiff::Timestamp, outputs: Option<&FreeForm>) {
        let Task::Step(step) = task else { return };
        self.change_step(step, StepPhase::Succeeded, |known| {
            known.progress.finished_at = Some(not_before_start(known, at));
            known.message = None;
            known.outputs = outputs.cloned();
        });
    }

    /// Something is said about the step that the run is at.
    pub(crate) fn step_waits(&mut self, message: Option<&str>) {
        if let Some(step) = self.open_steps().next() {
            step.message = message.map(cut);
        }
    }

    /// The run has ended, and with it the step that it was at. Those that follow will never run.
    pub(crate) fn steps_ended(&mut self, phase: &RunPhase, at: jiff::Timestamp, message: &str) {
        let now = Timestamp(self.now);
        let mut open = self.open_steps();
        let at_it = open.next();
        let why = match (&at_it, phase) {
            (Some(step), RunPhase::Failed) => {
                format!("step {} failed", step.name.as_deref().unwrap_or_default())
            }
            _ => "the run was cancelled".to_owned(),
        };
        let skipped = |step: &mut WorkflowStepStatus| {
            move_to(step, StepPhase::Skipped, now);
            step.message = Some(why.clone());
        };
        open.for_each(skipped);
        let Some(step) = at_it else { return };
        let begun = step.progress.attempt.is_some();
        match phase {
            RunPhase::Cancelled if !begun => {
                skipped(step);
                return;
            }
            RunPhase::Cancelled => move_to(step, StepPhase::Cancelled, now),
            _ => move_to(step, StepPhase::Failed, now),
        }
        step.progress.finished_at = Some(not_before_start(step, at));
        step.progress.next_retry_at = None;
        step.message = Some(cut(message));
    }

    /// The workflow as a whole stands where the run does.
    pub(crate) fn workflow_follows(&mut self) {
        let phase = self.status.phase().cloned();
        let now = Timestamp(self.now);
        if let Some(workflow) = self.status.workflow().filter(|known| known.phase != phase) {
            workflow.phase = phase;
            workflow.last_transition_time = Some(now);
        }
    }

    fn change_step(
        &mut self,
        step: Step<'_>,
        phase: StepPhase,
        change: impl FnOnce(&mut WorkflowStepStatus),
    ) {
        let now = Timestamp(self.now);
        let index = usize::try_from(step.number - 1).unwrap_or(usize::MAX);
        let workflow = self.status.workflow();
        if let Some(known) = workflow.and_then(|workflow| workflow.steps.get_mut(index)) {
            move_to(known, phase, now);
            change(known);
        }
    }

    /// The steps that have not ended, in their order.
    fn open_steps(&mut self) -> impl Iterator<Item = &mut WorkflowStepStatus> {
        let workflow = self.status.workflow().into_iter();
        let steps = workflow.flat_map(|workflow| &mut workflow.steps);
        steps.filter(|step| {
            let phase = step.progress.phase.as_ref();
            !phase.is_some_and(StepPhase::is_terminal)
        })
    }
}

fn move_to(step: &mut WorkflowStepStatus, phase: StepPhase, now: Timestamp) {
    if step.progress.phase.as_ref() != Some(&phase) {
        step.progress.phase = Some(phase);
        step.progress.last_transition_time = Some(now);
    }
}

/// Nodes report whole seconds, so that a short attempt would end before it started.
fn not_before_start(step: &WorkflowStepStatus, at: jiff::Timestamp) -> Timestamp {
    let started = step.progress.started_at;
    Timestamp(started.map_or(at, |started| at.max(started.0)))
}

fn number(attempt: u32) -> Int32 {
    Int32::from(i32::try_from(attempt).unwrap_or(i32::MAX))
}

fn cut(message: &str) -> String {
    message.chars().take(MESSAGE_MAX).collect()
}
