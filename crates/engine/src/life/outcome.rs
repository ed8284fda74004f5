//! How an attempt ended, as its pod tells it, or its Job where there is no pod to read.

use jangar_api::{
    agents::agent_run_status::RunOutcome,
    refs::ArtifactRef,
    values::{FreeForm, Int32},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStateTerminated, ContainerStatus, Pod},
};
use serde_json::{Map, Value};

use super::{
    Worker,
    jobs::{self, JobEnd},
};
use crate::vcs::ReportedDelivery;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub verdict: Verdict,
    /// When, as the node or the Job controller says.
    pub at: Option<Timestamp>,
    /// For people; names the cause, and the remedy where there is one to name.
    pub message: String,
    pub report: RunOutcome,
    pub artifacts: Vec<ArtifactRef>,
    /// What agent-runner says of the work on the repository.
    pub delivery: Option<ReportedDelivery>,
    /// The container's last words as they are.
    pub words: Option<String>,
}

impl Ending {
    /// Whether agent-runner ended the agent because its time was up.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        let reason = self.report.reason.as_deref();
        matches!(reason, Some("SoftDeadlineExceeded" | "HardDeadlineExceeded"))
    }
}

/// What an ending means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeded,
    /// The Job completed, but nothing is left to read a result from.
    SucceededUnseen,
    Failed,
    /// The node took the pod away, which is nobody's fault.
    Disrupted,
}

/// What agent-runner wrote as its container's last words.
#[derive(Debug, Default)]
struct LastWords {
    reason: Option<String>,
    message: Option<String>,
    summary: Option<String>,
    usage: Option<Map<String, Value>>,
    artifacts: Vec<ArtifactRef>,
    commit: Option<String>,
    outputs: Option<Map<String, Value>>,
    delivery: Option<ReportedDelivery>,
}

/// How a pod ended that has ended.
pub(crate) fn of_pod(pod: &Pod, worker: &Worker) -> Ending {
    let status = pod.status.clone().unwrap_or_default();
    let succeeded = status.phase.as_deref() == Some("Succeeded");
    let failed_init = first_failure(status.init_container_statuses.as_deref());
    let container = terminated(status.container_statuses.as_deref(), worker.container);
    let ended = failed_init.or(container);
    let text = container.and_then(|state| state.message.as_deref());
    let words = text.map(last_words).unwrap_or_default();
    let verdict = if succeeded {
        Verdict::Succeeded
    } else if jobs::was_disrupted(pod) {
        Verdict::Disrupted
    } else {
        Verdict::Failed
    };
    let message = match verdict {
        Verdict::Succeeded | Verdict::SucceededUnseen => words.summary.clone().unwrap_or_default(),
        Verdict::Disrupted => disruption(pod),
        Verdict::Failed => match (failed_init, container) {
            (Some(init), _) => init_failure(init),
            (None, Some(state)) => container_failure(state, &words, worker),
            (None, None) => pod_failure(status.reason.as_deref(), status.message.as_deref()),
        },
    };
    let reason = words
        .reason
        .clone()
        .or_else(|| ended.and_then(|state| state.reason.clone()))
        .or(status.reason);
    Ending {
        verdict,
        at: ended
            .and_then(|state| state.finished_at.as_ref())
            .map(|time| time.0),
        message,
        report: RunOutcome {
            exit_code: ended.map(|state| Int32::from(state.exit_code)),
            reason,
            message: words.message,
            summary: words.summary,
            usage: words.usage.map(FreeForm),
            commit: words.commit,
            outputs: words.outputs.map(FreeForm),
        },
        artifacts: words.artifacts,
        delivery: words.delivery,
        words: text.map(str::to_owned),
    }
}

/// How a Job ended whose pod is not there any more, if its conditions say that it did.
pub(crate) fn of_job(job: &Job) -> Option<Ending> {
    let ending = |verdict, condition: &k8s_openapi::api::batch::v1::JobCondition, message| Ending {
        verdict,
        at: condition.last_transition_time.as_ref().map(|time| time.0),
        message,
        report: RunOutcome {
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            ..RunOutcome::default()
        },
        artifacts: Vec::new(),
        delivery: None,
        words: None,
    };
    let failed = match jobs::end(job)? {
        JobEnd::Complete(complete) => {
            let message =
                "the Job completed, but its pod was gone before its result could be read".to_owned();
            return Some(ending(Verdict::SucceededUnseen, complete, message));
        }
        JobEnd::Failed(failed) => failed,
    };
    let why = failed.reason.as_deref().unwrap_or("no reason given");
    let words = failed.message.as_deref().unwrap_or_default();
    // The one rule that the failure policy of our Jobs has is about disruptions.
    let verdict = if why == "PodFailurePolicy" {
        Verdict::Disrupted
    } else {
        Verdict::Failed
    };
    Some(ending(
        verdict,
        failed,
        format!("the Job failed ({why}): {words}"),
    ))
}

fn terminated<'a>(
    statuses: Option<&'a [ContainerStatus]>,
    container: &str,
) -> Option<&'a ContainerStateTerminated> {
    statuses?
        .iter()
        .find(|status| status.name == container)?
        .state
        .as_ref()?
        .terminated
        .as_ref()
}

fn first_failure(statuses: Option<&[ContainerStatus]>) -> Option<&ContainerStateTerminated> {
    statuses?
        .iter()
        .filter_map(|status| status.state.as_ref()?.terminated.as_ref())
        .find(|state| state.exit_code != 0)
}

/// Reads what agent-runner wrote, one field at a time, so that a bad one does not cost the others. Anything else, such as
/// the words of a node, is taken as a message.
fn last_words(text: &str) -> LastWords {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(text) else {
        return LastWords {
            message: Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            ..LastWords::default()
        };
    };
    let artifacts = match fields.remove("artifacts") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    let delivery = fields
        .remove("vcs")
        .and_then(|value| serde_json::from_value(value).ok());
    let mut text = |field: &str| match fields.remove(field) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    LastWords {
        reason: text("reason"),
        message: text("message"),
        summary: text("summary"),
        commit: text("commit"),
        usage: object(fields.remove("usage")),
        outputs: object(fields.remove("outputs")),
        artifacts: artifacts
            .into_iter()
            .filter_map(|artifact| serde_json::from_value(artifact).ok())
            .collect(),
        delivery,
    }
}

fn object(value: Option<Value>) -> Option<Map<String, Value>> {
    match value {
        Some(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

fn container_failure(state: &ContainerStateTerminated, words: &LastWords, worker: &Worker) -> String {
    let Worker { who, memory, .. } = worker;
    let code = state.exit_code;
    let killed = state.reason.as_deref() == Some("OOMKilled");
    if killed {
        return format!(
            "the container was killed for using more memory than it may (OOMKilled): raise {memory}"
        );
    }
    let reason = words
        .reason
        .as_deref()
        .or(state.reason.as_deref())
        .unwrap_or("Error");
    let hint = match reason {
        "BinaryNotFound" | "BinaryNotExecutable" => {
            "; check spec.binary of the AgentProvider and the image of the run"
        }
        "GitMissing" => "; use an image that has git, or set spec.vcsPolicy.mode to none",
        "CloneFailed" => {
            "; check spec.parameters.repository and the credentials of the VersionControlProvider"
        }
        _ => "",
    };
    match &words.message {
        Some(message) => format!("the {who} ended with exit code {code} ({reason}): {message}{hint}"),
        None => format!("the {who} ended with exit code {code} ({reason}){hint}"),
    }
}

fn init_failure(state: &ContainerStateTerminated) -> String {
    let words = state.message.as_deref().unwrap_or("its log says more");
    format!(
        "agent-runner could not be put into the pod: the init container ended with exit code {}: {words}",
        state.exit_code
    )
}

fn pod_failure(reason: Option<&str>, message: Option<&str>) -> String {
    format!(
        "the pod failed before its container ended ({}): {}",
        reason.unwrap_or("no reason given"),
        message.unwrap_or("no message given")
    )
}

fn disruption(pod: &Pod) -> String {
    let condition = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .find(|condition| condition.type_ == "DisruptionTarget");
    let why = condition
        .and_then(|condition| condition.reason.as_deref())
        .unwrap_or("no reason given");
    let words = condition
        .and_then(|condition| condition.message.as_deref())
        .unwrap_or_default();
    format!("the pod was taken away from its node ({why}): {words}")
}
