//! `approvals`, `approve` and `reject`: gates of orchestrations that wait for people.
//!
//! Who decides is who the API server says that the caller is; whether they may is what the engine says of the ApprovalPolicy. In
//! kube mode the decision is written with the caller's own rights, so it takes the right to patch the status of
//! OrchestrationRuns. The control plane writes it for whoever holds the verb `approve`.

use jangar_api::{
    Kind,
    approvals::ApprovalPolicy,
    labels,
    orchestration::orchestration_run::{ApprovalDecision, OrchestrationRun, StepStatus},
    phase::StepPhase,
};
use jangar_engine::approval::{self, Caller, Request, Shown};
use jangar_proto::v1::{DecideRequest, PendingApproval};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cli::{ApprovalsArgs, DecisionArgs},
    error::{Error, status_code},
    object::Object,
    output::{self, Cell, Table},
    session::Session,
    transport::{Identity, Transport, grpc::Grpc, kube::Kube},
};

/// How often a decision is made anew because the run changed meanwhile.
const TRIES_MAX: usize = 5;
/// How much of a digest is shown in a table.
const DIGEST_SHOWN: usize = 12;

pub async fn list(session: &mut Session, arguments: &ApprovalsArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let place = (!arguments.all_namespaces).then_some(namespace.as_str());
    let Waiting {
        gates: pending,
        unreadable,
    } = pending(&transport, place, false).await?;
    for words in &unreadable {
        session
            .console
            .note(&format!("its gates are not listed: {words}"))?;
    }
    let format = session.format();
    if output::is_for_programs(&format) {
        let all: Vec<Value> = pending.iter().map(Pending::to_value).collect();
        return output::value(session, &Value::Array(all));
    }
    if pending.is_empty() {
        return session.console.note("No gate waits for a decision.");
    }
    let policies = policies(&transport, place).await;
    let mut table = Table::new([
        "RUN",
        "NAMESPACE",
        "STEP",
        "POLICY",
        "WAITING",
        "DECISIONS",
        "WHO",
        "DIGEST",
    ]);
    for gate in &pending {
        let policy = policies
            .iter()
            .find(|policy| policy.namespace() == gate.namespace && policy.name() == gate.policy);
        let since = gate.since.as_deref();
        table.push(vec![
            Cell::plain(&gate.run),
            Cell::plain(&gate.namespace),
            Cell::plain(&gate.step),
            Cell::plain(&gate.policy),
            Cell::optional(since.and_then(|since| session.clock.age(since))),
            Cell::plain(format!("{} of {}", gate.approved(), needed(gate, policy))),
            Cell::plain(who(policy)),
            Cell::plain(gate.digest.chars().take(DIGEST_SHOWN).collect::<String>()),
        ]);
    }
    output::show_table(session, &table)?;
    for gate in &pending {
        let lines = gate.shown.as_ref().map(Shown::lines).unwrap_or_default();
        if !lines.is_empty() {
            let what = format!("{}/{} {} shows:", gate.namespace, gate.run, gate.step);
            session.console.note(&what)?;
        }
        for line in lines {
            session.console.note(&format!("  {line}"))?;
        }
    }
    session
        .console
        .note("decide with: agentctl approve RUN STEP, or agentctl reject RUN STEP")
}

/// A gate that waits.
#[derive(Debug)]
pub struct Pending {
    pub run: String,
    pub namespace: String,
    step: String,
    policy: String,
    digest: String,
    /// Since when it waits.
    since: Option<String>,
    /// What is to be approved.
    shown: Option<Shown>,
    approvals: Vec<(ApprovalDecision, String)>,
    /// How many have to approve, where the control plane says so.
    required: Option<u32>,
}

impl Pending {
    fn approved(&self) -> usize {
        let approved = |decision: &&(ApprovalDecision, String)| decision.0 == ApprovalDecision::Approved;
        self.approvals.iter().filter(approved).count()
    }

    fn to_value(&self) -> Value {
        let decisions: Vec<Value> = self
            .approvals
            .iter()
            .map(|(decision, by)| json!({"decision": decision.as_str(), "by": by}))
            .collect();
        let mut value = json!({
            "run": self.run, "namespace": self.namespace, "step": self.step, "policy": self.policy,
            "digest": self.digest, "since": self.since,
            "decisions": decisions,
        });
        if let Some(shown) = &self.shown {
            value["shown"] = json!(shown);
        }
        value
    }
}

/// What waits for people.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The one that waits longest first.
    pub gates: Vec<Pending>,
    /// Runs that cannot be read, in words.
    pub unreadable: Vec<String>,
}

/// The gates that wait. A run that cannot be read does not hide those of others.
/// Whoever only counts them gets them `brief`, without what they show, where that is fetched for it.
pub async fn pending(transport: &Transport, namespace: Option<&str>, brief: bool) -> Result<Waiting, Error> {
    let mut waiting = match transport {
        Transport::Kube(kube) => {
            let selector = format!("{}=pending", labels::APPROVAL);
            waiting_in(
                &kube
                    .list(Kind::OrchestrationRun, namespace, Some(&selector))
                    .await?,
            )
        }
        Transport::Grpc(grpc) => {
            let (gates, unreadable) = grpc.approvals(namespace, brief).await?;
            let mut waiting = Waiting {
                gates: Vec::new(),
                unreadable,
            };
            for gate in gates {
                let (gate, illegible) = pending_at_the_plane(gate);
                waiting.gates.push(gate);
                waiting.unreadable.extend(illegible);
            }
            waiting
        }
    };
    let since = |gate: &Pending| gate.since.as_deref()?.parse::<Timestamp>().ok();
    waiting.gates.sort_by_key(since);
    Ok(waiting)
}

/// A gate as the control plane tells of it. What it shows may be of a later version, and is then told in words as not to be read.
fn pending_at_the_plane(gate: PendingApproval) -> (Pending, Option<String>) {
    let mut illegible = None;
    let shown = match gate.shown_json.as_str() {
        "" => None,
        text => match serde_json::from_str::<Shown>(text) {
            Ok(shown) => Some(shown),
            Err(error) => {
                illegible = Some(format!(
                    "what gate {} of {} shows cannot be read: {error}",
                    gate.step, gate.run
                ));
                None
            }
        },
    };
    let pending = Pending {
        run: gate.run,
        namespace: gate.namespace,
        step: gate.step,
        policy: gate.policy,
        digest: gate.digest,
        since: Some(gate.since).filter(|since| !since.is_empty()),
        shown,
        required: Some(gate.required).filter(|required| *required > 0),
        approvals: gate
            .approved_by
            .into_iter()
            .map(|by| (ApprovalDecision::Approved, by))
            .collect(),
    };
    (pending, illegible)
}

fn waiting_in(runs: &[Object]) -> Waiting {
    let mut waiting = Waiting::default();
    for object in runs {
        let run: OrchestrationRun = match object.typed() {
            Ok(run) => run,
            Err(error) => {
                waiting.unreadable.push(error.to_string());
                continue;
            }
        };
        waiting.gates.extend(gates_of(&run).into_iter().map(|step| {
            let status = run.status.as_ref();
            let decisions = status.into_iter().flat_map(|status| &status.approvals);
            let waits_for = step.waits_for.unwrap_or_default();
            let digest = waits_for.digest.unwrap_or_default();
            Pending {
                run: object.name().to_owned(),
                namespace: object.namespace().to_owned(),
                shown: approval::shown(&run, &step.name),
                approvals: decisions
                    .filter(|known| known.step == step.name && known.digest == digest)
                    .map(|known| (known.decision.clone(), known.by.clone()))
                    .collect(),
                since: step.progress.started_at.map(|at| at.to_string()),
                required: None,
                policy: waits_for.approval_policy.unwrap_or_default(),
                digest,
                step: step.name,
            }
        }));
    }
    waiting
}

/// The steps of a run that wait for a decision.
fn gates_of(run: &OrchestrationRun) -> Vec<StepStatus> {
    let steps = run
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.step_statuses);
    let waits = |step: &&StepStatus| {
        let gate = step
            .waits_for
            .as_ref()
            .is_some_and(|waits_for| waits_for.approval_policy.is_some());
        gate && step.progress.phase == Some(StepPhase::Running)
    };
    steps.iter().filter(waits).cloned().collect()
}

/// The policies, for what they say of who decides. Without the right to read them that is left out.
async fn policies(transport: &Transport, namespace: Option<&str>) -> Vec<Object> {
    transport
        .list(Kind::ApprovalPolicy, namespace, None)
        .await
        .unwrap_or_default()
}

fn needed(gate: &Pending, policy: Option<&Object>) -> String {
    if let Some(required) = gate.required {
        return required.to_string();
    }
    let Some(policy) = policy else {
        return "?".to_owned();
    };
    let required = policy
        .value()
        .pointer("/spec/requiredApprovals")
        .and_then(Value::as_i64);
    required.unwrap_or(1).max(1).to_string()
}

fn who(policy: Option<&Object>) -> String {
    let Some(policy) = policy else {
        return "?".to_owned();
    };
    let subjects = policy.value().pointer("/spec/subjects").and_then(Value::as_array);
    let names: Vec<String> = subjects
        .into_iter()
        .flatten()
        .filter_map(|subject| {
            let text = |key: &str| subject.get(key).and_then(Value::as_str);
            Some(format!("{} {}", text("kind")?, text("name")?))
        })
        .collect();
    if names.is_empty() {
        "anybody with the right".to_owned()
    } else {
        names.join(", ")
    }
}

pub async fn approve(session: &mut Session, arguments: &DecisionArgs) -> Result<(), Error> {
    decide(session, arguments, ApprovalDecision::Approved).await
}

pub async fn reject(session: &mut Session, arguments: &DecisionArgs) -> Result<(), Error> {
    decide(session, arguments, ApprovalDecision::Denied).await
}

async fn decide(
    session: &mut Session,
    arguments: &DecisionArgs,
    decision: ApprovalDecision,
) -> Result<(), Error> {
    let transport = session.connect().await?;
    let identity = transport.identity().await?;
    let decided = match &transport {
        Transport::Kube(kube) => write(session, &transport, kube, arguments, &decision, &identity).await?,
        Transport::Grpc(grpc) => send(session, &transport, grpc, arguments, &decision).await?,
    };
    let words = match decision {
        ApprovalDecision::Approved => "approved",
        _ => "denied",
    };
    session.console.line(&format!(
        "step {decided} of {} {words}, as {}",
        arguments.run, identity.user
    ))
}

/// Says what is about to be decided. Whoever does not want that after all can still stop the command.
fn show(session: &mut Session, run: &OrchestrationRun, gate: &str) -> Result<(), Error> {
    for line in approval::shown(run, gate).iter().flat_map(Shown::lines) {
        session.console.note(&line)?;
    }
    Ok(())
}

/// Lets the control plane write the decision. The gate that was decided.
async fn send(
    session: &mut Session,
    transport: &Transport,
    grpc: &Grpc,
    arguments: &DecisionArgs,
    decision: &ApprovalDecision,
) -> Result<String, Error> {
    let namespace = session.namespace();
    let object = transport
        .get(Kind::OrchestrationRun, &namespace, &arguments.run)
        .await?;
    let run: OrchestrationRun = object.typed()?;
    let gate = gate(&run, arguments)?;
    let shown = gate.waits_for.and_then(|waits_for| waits_for.digest);
    let request = DecideRequest {
        namespace,
        run: arguments.run.clone(),
        step: gate.name.clone(),
        digest: arguments.digest.clone().or(shown).unwrap_or_default(),
        comment: arguments.comment.clone().unwrap_or_default(),
    };
    show(session, &run, &gate.name)?;
    grpc.decide(request, decision).await?;
    Ok(gate.name)
}

/// Writes the decision with the caller's own rights. The gate that was decided.
async fn write(
    session: &mut Session,
    transport: &Transport,
    kube: &Kube,
    arguments: &DecisionArgs,
    decision: &ApprovalDecision,
    identity: &Identity,
) -> Result<String, Error> {
    let namespace = session.namespace();
    let caller = Caller {
        user: identity.user.clone(),
        groups: identity.groups.clone(),
    };
    let mut digest = arguments.digest.clone();
    for attempt in 0..TRIES_MAX {
        let object = transport
            .get(Kind::OrchestrationRun, &namespace, &arguments.run)
            .await?;
        let run: OrchestrationRun = object.typed()?;
        let gate = gate(&run, arguments)?;
        let shown = gate.waits_for.clone().unwrap_or_default();
        // The first look is what was shown. If it shows something else when we try again, the engine refuses.
        let digest = digest
            .get_or_insert_with(|| shown.digest.clone().unwrap_or_default())
            .clone();
        let policy_name = shown.approval_policy.unwrap_or_default();
        let policy: ApprovalPolicy = transport
            .get(Kind::ApprovalPolicy, &namespace, &policy_name)
            .await?
            .typed()?;
        let request = Request {
            step: gate.name.clone(),
            decision: decision.clone(),
            comment: arguments.comment.clone(),
            digest,
        };
        let status = approval::decide(&run, &policy, &caller, request, session.clock.now())
            .map_err(|refused| Error::Validation(refused.to_string()))?;
        // With another try it is the same: its digest is.
        if attempt == 0 {
            show(session, &run, &gate.name)?;
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.text("/metadata/resourceVersion")},
            "status": {"approvals": status.approvals},
        });
        let written = kube
            .patch_status(Kind::OrchestrationRun, &namespace, &arguments.run, &patch)
            .await;
        match written {
            Ok(()) => return Ok(gate.name),
            Err(error) if status_code(&error) == Some(409) => {}
            Err(error) if status_code(&error) == Some(403) => {
                return Err(Error::Cluster(format!(
                    "you may not write the status of OrchestrationRuns, which is where decisions stand ({}): ask for the right to \
                     patch orchestrationruns/status, or decide through the control plane, which needs only the verb approve",
                    crate::error::kube_words(&error)
                )));
            }
            Err(error) => return Err(Error::kube("the decision cannot be written")(error)),
        }
    }
    Err(Error::Cluster(format!(
        "OrchestrationRun {} changed {TRIES_MAX} times while the decision was written: try again",
        arguments.run
    )))
}

/// The gate that is meant.
fn gate(run: &OrchestrationRun, arguments: &DecisionArgs) -> Result<StepStatus, Error> {
    let mut waiting = gates_of(run);
    if let Some(step) = &arguments.step {
        let names: Vec<String> = waiting.iter().map(|gate| gate.name.clone()).collect();
        return waiting
            .into_iter()
            .find(|gate| gate.name == *step)
            .ok_or_else(|| {
                let hint = match names.as_slice() {
                    [] => "none of its steps does".to_owned(),
                    names => format!("these do: {}", names.join(", ")),
                };
                Error::Validation(format!(
                    "step {step} of {} does not wait for a decision: {hint}",
                    arguments.run
                ))
            });
    }
    match waiting.len() {
        1 => waiting
            .pop()
            .ok_or_else(|| Error::Unknown("a gate that was found is gone".to_owned())),
        0 => Err(Error::Validation(format!(
            "no step of {} waits for a decision",
            arguments.run
        ))),
        _ => {
            let names: Vec<&str> = waiting.iter().map(|gate| gate.name.as_str()).collect();
            Err(Error::Validation(format!(
                "several gates of {} wait: name one of {}",
                arguments.run,
                names.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_be_read_hides_no_gates_of_others() {
        let run = |name: &str, steps: Value| {
            Object::from_value(json!({
                "apiVersion": "orchestration.proompteng.ai/v1alpha1", "kind": "OrchestrationRun",
                "metadata": {"name": name, "namespace": "agents"}, "spec": {"orchestrationRef": {"name": "release"}},
                "status": {"phase": "Running", "stepStatuses": steps},
            }))
        };
        let gate = json!([{"name": "ship", "kind": "ApprovalGate", "phase": "Running",
            "waitsFor": {"approvalPolicy": "leads", "digest": "d"}}]);
        let waiting = waiting_in(&[run("odd", json!("later")), run("release-1", gate)]);
        let runs: Vec<&str> = waiting.gates.iter().map(|gate| gate.run.as_str()).collect();
        assert_eq!(runs, ["release-1"]);
        assert_eq!(waiting.unreadable.len(), 1);
        assert!(
            waiting.unreadable.iter().all(|words| words.contains("odd")),
            "{:?}",
            waiting.unreadable
        );
    }
}
