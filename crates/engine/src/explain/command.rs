//! The commands that answers name, and how they are spelled. They can be pasted into a shell as they are.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::subject::{Facts, Subject};

/// A command for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    pub line: String,
    /// What it does.
    pub effect: String,
}

impl Command {
    pub(super) fn new(line: impl Into<String>, effect: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            effect: effect.into(),
        }
    }
}

/// The word for a kind of run on the command line of agentctl.
const fn word(what: Subject<'_>) -> &'static str {
    match what {
        Subject::AgentRun(_) => "run",
        Subject::ToolRun(_) => "toolrun",
        Subject::OrchestrationRun(_) => "orchestrationrun",
    }
}

/// The word for a kind of run on the command line of kubectl.
const fn resource(what: Subject<'_>) -> &'static str {
    match what {
        Subject::AgentRun(_) => "agentrun",
        Subject::ToolRun(_) => "toolrun",
        Subject::OrchestrationRun(_) => "orchestrationrun",
    }
}

/// One word of a shell. Names of Kubernetes need no quotes; names of steps may.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn about(verb: &str, facts: &Facts<'_>) -> String {
    format!(
        "agentctl {verb} {} {} -n {}",
        word(facts.what),
        facts.name,
        facts.namespace
    )
}

pub(super) fn cancel(facts: &Facts<'_>, effect: &str) -> Command {
    Command::new(about("cancel", facts), effect)
}

pub(super) fn retry(facts: &Facts<'_>) -> Command {
    Command::new(about("retry", facts), "does the same work again, as a new run")
}

pub(super) fn resubmit(facts: &Facts<'_>, effect: &str) -> Command {
    Command::new(about("resubmit", facts), effect)
}

pub(super) fn logs(facts: &Facts<'_>) -> Command {
    Command::new(about("logs", facts), "shows what its program said")
}

/// Tells of a run that is known by name only.
pub(super) fn explain_named(kind: &str, name: &str, namespace: &str) -> Command {
    let word = match kind {
        "ToolRun" => "toolrun",
        "OrchestrationRun" => "orchestrationrun",
        _ => "run",
    };
    Command::new(
        format!("agentctl explain {word} {name} -n {namespace}"),
        "tells more about it",
    )
}

pub(super) fn list_runs(namespace: &str, effect: &str) -> Command {
    Command::new(format!("agentctl list runs -n {namespace}"), effect)
}

pub(super) fn approve(run: &str, step: &str, namespace: &str) -> Command {
    Command::new(
        format!("agentctl approve {run} {} -n {namespace}", shell(step)),
        "lets the run pass the gate",
    )
}

pub(super) fn reject(run: &str, step: &str, namespace: &str) -> Command {
    Command::new(
        format!("agentctl reject {run} {} -n {namespace}", shell(step)),
        "closes the gate, which fails the step",
    )
}

/// Decides a gate whose policy has `spec.mode: phase`.
pub(super) fn approve_by_phase(policy: &str, namespace: &str) -> Command {
    let patch = json!({"status": {"phase": "Approved"}});
    Command::new(
        format!(
            "kubectl patch approvalpolicy {policy} -n {namespace} --subresource=status --type=merge -p '{patch}'"
        ),
        "lets every run pass the gates of this policy",
    )
}

pub(super) fn apply(namespace: &str, effect: impl Into<String>) -> Command {
    Command::new(format!("agentctl apply -f FILE -n {namespace}"), effect)
}

pub(super) fn doctor() -> Command {
    Command::new("agentctl doctor", "looks for what is wrong with the installation")
}

pub(super) fn describe(facts: &Facts<'_>) -> Command {
    Command::new(
        format!(
            "kubectl describe {} {} -n {}",
            resource(facts.what),
            facts.name,
            facts.namespace
        ),
        "shows its conditions and Events",
    )
}

pub(super) fn delete(facts: &Facts<'_>) -> Command {
    Command::new(
        format!(
            "kubectl delete {} {} -n {}",
            resource(facts.what),
            facts.name,
            facts.namespace
        ),
        "deletes the run and stops what it has running",
    )
}

pub(super) fn edit(resource: &str, name: &str, namespace: &str, effect: impl Into<String>) -> Command {
    Command::new(format!("kubectl edit {resource} {name} -n {namespace}"), effect)
}

pub(super) fn get_all(resource: &str, namespace: &str, effect: impl Into<String>) -> Command {
    Command::new(format!("kubectl get {resource} -n {namespace}"), effect)
}

/// The pods of a run; of an orchestration, which has none, its children.
pub(super) fn pods(facts: &Facts<'_>, verb: &str, effect: &str) -> Command {
    match facts.pod_label() {
        Some(label) => Command::new(
            format!(
                "kubectl {verb} pods -n {} -l {label}={}",
                facts.namespace, facts.name
            ),
            effect,
        ),
        None => Command::new(
            format!(
                "kubectl get agentruns,toolruns,orchestrationruns -n {} -l {}={}",
                facts.namespace,
                jangar_api::labels::ORCHESTRATION_RUN,
                facts.name
            ),
            "shows the runs of its steps",
        ),
    }
}

pub(super) fn quotas(namespace: &str) -> Command {
    Command::new(
        format!("kubectl describe resourcequotas -n {namespace}"),
        "shows the quotas of the namespace and what is used of them",
    )
}

/// Says how long a run is kept.
pub(super) fn retain(facts: &Facts<'_>) -> Command {
    Command::new(
        format!(
            "kubectl annotate --overwrite {} {} -n {} {}=true",
            resource(facts.what),
            facts.name,
            facts.namespace,
            jangar_api::labels::RETAIN
        ),
        "keeps the run; with false it goes in its time",
    )
}

/// Delivers a signal.
pub(super) fn deliver(signal: &str, delivery_id: Option<&str>, namespace: &str) -> Command {
    let mut spec = json!({"signalRef": {"name": signal}});
    if let (Some(id), Some(spec)) = (delivery_id, spec.as_object_mut()) {
        spec.insert("deliveryId".to_owned(), json!(id));
    }
    let delivery = json!({
        "apiVersion": "signals.proompteng.ai/v1alpha1",
        "kind": "SignalDelivery",
        "metadata": {"generateName": format!("{signal}-")},
        "spec": spec,
    });
    Command::new(
        format!(
            "echo {} | kubectl create -n {namespace} -f -",
            shell(&delivery.to_string())
        ),
        "delivers the signal once, which releases the step",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_shell_would_take_apart_are_quoted() {
        assert_eq!(
            approve("run", "sign-off", "ns").line,
            "agentctl approve run sign-off -n ns"
        );
        assert_eq!(
            approve("run", "it's $HOME", "ns").line,
            r"agentctl approve run 'it'\''s $HOME' -n ns"
        );
    }
}
