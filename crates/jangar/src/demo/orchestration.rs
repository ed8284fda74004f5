//! The orchestrations of the story: one that a person signs off, one of which a branch fails, and one that is cancelled.

use anyhow::{Context, Result, bail, ensure};
use jangar_api::{
    approvals::ApprovalPolicy,
    orchestration::orchestration_run::{
        ApprovalDecision, OrchestrationRun, OrchestrationRunStatus, StepStatus,
    },
    phase::{RunPhase, StepPhase},
};
use jangar_engine::{
    approval::{Caller, Request, decide},
    explain::{self, Subject, explain},
};
use jiff::Timestamp;
use kube::{ResourceExt, api::PostParams};
use serde_json::json;

use super::{
    agentctl,
    console::{command, show},
    processes,
    stage::Stage,
};

/// Who signs off, as the ApprovalPolicy of the story names them.
pub(super) const PERSON: &str = "you";
/// How often a decision is written when the controllers write the status at the same moment.
const WRITES_MAX: usize = 10;

/// A graph of agents with a gate: it is shown, explained, signed off, and comes to its result.
pub(super) async fn release(stage: &Stage, manifest: (&str, &str)) -> Result<()> {
    stage.apply(&[manifest]).await?;
    let run = "release-1";
    let waiting = live(stage, run, "to wait for its approval", |status| {
        pending_gate(status).is_some()
    })
    .await?;
    sign_off(stage, &waiting).await?;

    let status = status_of(&ended(stage, run).await?);
    ensure!(
        status.phase == Some(RunPhase::Succeeded),
        "the orchestration did not succeed; where its steps stand is above"
    );
    for step in &status.step_statuses {
        if let Some(outputs) = &step.outputs {
            show(&format!("{}: {}", step.name, serde_json::to_string(outputs)?))?;
        }
    }
    Ok(())
}

/// One side of a diamond fails: what depends on it is skipped and says why, and the other side goes on to its end.
pub(super) async fn failing_branch(stage: &Stage, manifest: (&str, &str)) -> Result<()> {
    stage.apply(&[manifest]).await?;
    let status = status_of(&ended(stage, "check-1").await?);
    ensure!(
        status.phase == Some(RunPhase::Failed),
        "one step of the orchestration should have failed; where its steps stand is above"
    );
    let skipped = status.step_statuses.iter().find(|step| step.caused_by.is_some());
    let skipped = skipped.context("no step was skipped because of another one")?;
    show(&format!(
        "{} was skipped: {}",
        skipped.name,
        skipped.message.as_deref().unwrap_or_default()
    ))
}

/// Shows the graph of a run whenever it changes, until the run stands like this.
async fn live(
    stage: &Stage,
    name: &str,
    what: &str,
    is: impl Fn(&OrchestrationRunStatus) -> bool,
) -> Result<OrchestrationRun> {
    let mut shown = String::new();
    loop {
        let run = stage
            .orchestration(name, what, |status| is(status) || graph(status) != shown)
            .await?;
        let status = status_of(&run);
        let drawn = graph(&status);
        if drawn != shown {
            show(&drawn)?;
            shown = drawn;
        }
        if is(&status) {
            return Ok(run);
        }
    }
}

/// Asks why the run waits, and does what the answer says.
async fn sign_off(stage: &Stage, run: &OrchestrationRun) -> Result<()> {
    if let Some(console) = &stage.agentctl {
        let (name, namespace) = (run.name_any(), stage.namespace);
        let line = format!("agentctl explain orchestrationrun {name} -n {namespace}");
        let answer = console.type_in(&line).await?;
        let advised = answer.lines().find_map(agentctl::advised);
        let advised = advised.context("the answer names no command")?;
        console.type_in(advised).await?;
        return Ok(());
    }
    let status = status_of(run);
    let gate = pending_gate(&status).context("no gate waits")?;
    let waits_for = gate.waits_for.clone().unwrap_or_default();
    let policy_name = waits_for.approval_policy.unwrap_or_default();
    let policy: ApprovalPolicy = stage.api().get(&policy_name).await?;
    let context = explain::Context {
        policies: vec![&policy],
        ..explain::Context::default()
    };
    let answer = explain(Subject::OrchestrationRun(run), &context, Timestamp::now());
    command(&format!(
        "agentctl explain orchestrationrun {} -n {}",
        run.name_any(),
        stage.namespace
    ))?;
    show(&answer.headline)?;
    let advised = answer.commands.first().context("the answer names no command")?;
    command(&advised.line)?;
    approve(stage, &run.name_any(), &gate.name, &policy).await?;
    show(&format!(
        "{PERSON} approved step {}; agentctl is not beside this program (make demo builds both), so that it was recorded as \
         agentctl does it",
        gate.name
    ))
}

/// Records a decision as agentctl does, for whoever watches the demo.
async fn approve(stage: &Stage, name: &str, step: &str, policy: &ApprovalPolicy) -> Result<()> {
    let runs = stage.api::<OrchestrationRun>();
    for _ in 0..WRITES_MAX {
        let mut run = runs.get(name).await?;
        let known = status_of(&run);
        let gate = known.step_statuses.iter().find(|known| known.name == step);
        let shown = gate.and_then(|gate| gate.waits_for.as_ref()?.digest.clone());
        let caller = Caller {
            user: PERSON.to_owned(),
            groups: Vec::new(),
        };
        let request = Request {
            step: step.to_owned(),
            decision: ApprovalDecision::Approved,
            comment: Some("looks good".to_owned()),
            digest: shown.context("the gate shows nothing to decide about")?,
        };
        run.status = Some(decide(&run, policy, &caller, request, Timestamp::now())?);
        match runs.replace_status(name, &PostParams::default(), &run).await {
            Ok(_) => return Ok(()),
            // The controllers have written meanwhile.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(error).context("failed to record the approval"),
        }
    }
    bail!("the status of {name} changed with every attempt to write the approval")
}

/// Two agents at once are stopped by one request, and called stopped only when their processes are dead.
pub(super) async fn cancel(stage: &Stage, manifest: (&str, &str)) -> Result<()> {
    stage.apply(&[manifest]).await?;
    let run = "dawdle-1";
    for step in ["left", "right"] {
        stage
            .follow_run(&format!("{run}-{step}-1"), Some("thinking"))
            .await?;
    }
    let working = stage
        .orchestration(run, "to have two steps at work", |status| {
            running(status).len() == 2
        })
        .await?;
    show(&graph(&status_of(&working)))?;
    // The UID of each run is among the arguments of its agent, which tells its processes from all others.
    let markers: Vec<String> = running(&status_of(&working))
        .into_iter()
        .filter_map(|step| step.resource_ref?.uid)
        .collect();
    let alive = count(&markers)?;
    show(&format!("processes of it on this machine: {alive}"))?;
    ensure!(
        alive >= 2,
        "the agents said that they work, but only {alive} processes of them were found"
    );
    let request = json!({"spec": {"cancel": true, "cancelReason": "we have seen enough"}});
    stage
        .patch::<OrchestrationRun>("orchestrationrun", run, &request)
        .await?;
    let status = status_of(&ended(stage, run).await?);
    for receipt in &status.cancel_receipt {
        let child = receipt
            .resource_ref
            .as_ref()
            .and_then(|child| child.name.as_deref());
        let result = receipt.result.as_deref().unwrap_or_default();
        show(&format!("receipt: {}: {result}", child.unwrap_or(&receipt.step)))?;
    }
    let left = count(&markers)?;
    show(&format!("processes of it on this machine: {left}"))?;
    ensure!(
        left == 0,
        "the run is called cancelled, and {left} processes of it are alive"
    );
    Ok(())
}

fn count(markers: &[String]) -> Result<usize> {
    let mut all = 0;
    for marker in markers {
        all += processes::count(marker)?;
    }
    Ok(all)
}

async fn ended(stage: &Stage, name: &str) -> Result<OrchestrationRun> {
    let run = live(stage, name, "to end", |status| {
        status.phase.as_ref().is_some_and(RunPhase::is_terminal)
    })
    .await?;
    let phase = status_of(&run).phase.unwrap_or(RunPhase::Pending);
    show(&format!("{name}: {phase}"))?;
    Ok(run)
}

fn status_of(run: &OrchestrationRun) -> OrchestrationRunStatus {
    run.status.clone().unwrap_or_default()
}

fn pending_gate(status: &OrchestrationRunStatus) -> Option<&StepStatus> {
    status.step_statuses.iter().find(|step| {
        let waits_for = step.waits_for.as_ref();
        waits_for.is_some_and(|waits_for| waits_for.approval_policy.is_some())
    })
}

fn running(status: &OrchestrationRunStatus) -> Vec<StepStatus> {
    let steps = status.step_statuses.iter();
    steps
        .filter(|step| step.progress.phase == Some(StepPhase::Running))
        .cloned()
        .collect()
}

/// The steps as a graph in one line: those that can be at work at the same time stand together.
fn graph(status: &OrchestrationRunStatus) -> String {
    let dependencies = |name: &str| -> Vec<&str> {
        let mut steps = status.definition.iter().flat_map(|definition| &definition.steps);
        let step = steps.find(|step| step.name == name);
        let named = step
            .and_then(|step| step.depends_on.as_deref())
            .unwrap_or_default();
        named.iter().map(String::as_str).collect()
    };
    let mut layers: Vec<Vec<&StepStatus>> = Vec::new();
    let mut left: Vec<&StepStatus> = status.step_statuses.iter().collect();
    // The definition has no cycles, so that each turn finds a step; should it not, the rest is left out.
    while !left.is_empty() {
        let waits = |step: &&StepStatus| {
            let needs = dependencies(&step.name);
            left.iter().any(|other| needs.contains(&other.name.as_str()))
        };
        let (later, now): (Vec<_>, Vec<_>) = left.iter().copied().partition(waits);
        if now.is_empty() {
            break;
        }
        layers.push(now);
        left = later;
    }
    let told: Vec<String> = layers
        .iter()
        .map(|layer| {
            let steps: Vec<String> = layer.iter().map(|step| told(step)).collect();
            steps.join(", ")
        })
        .collect();
    told.join(" -> ")
}

fn told(step: &StepStatus) -> String {
    let phase = step.progress.phase.as_ref().unwrap_or(&StepPhase::Pending);
    match &step.reason {
        Some(reason) => format!("{} ({phase}, {reason})", step.name),
        None => format!("{} ({phase})", step.name),
    }
}
