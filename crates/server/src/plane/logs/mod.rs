//! What the pods of a run write, read with the caller's token. When the pods are gone, history has the ends of their logs, for callers
//! who may read logs in that namespace.

mod following;
mod lines;

use futures::{AsyncBufRead, AsyncReadExt};
use jangar_api::{Kind, labels, names::label_value};
use jangar_store::LogTailInfo;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::following::{Line, Origin, Said};
use super::{Caller, ControlPlane, live, runs::Run};
use crate::{
    access::Question,
    history::History,
    refusal::{Refusal, Trouble, shown},
    world::text,
};

/// The most lines of one answer.
pub const TAIL_MAX: u32 = 5_000;
pub const TAIL_DEFAULT: u32 = 500;
/// The most bytes of one answer, whatever the lines are like.
const LOG_MAX_BYTES: usize = 4 * 1024 * 1024;
/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;
/// A run has a pod for each attempt; the latest so many are looked at.
const PODS_MAX: usize = 20;

/// Which part of the log is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Absent: the newest one.
    pub pod: Option<String>,
    /// Absent: the one that does the work.
    pub container: Option<String>,
    /// Of this step of a workflow.
    pub step: Option<String>,
    /// Of what history has: this attempt.
    pub attempt: Option<u32>,
    /// Only what history has.
    pub archived: bool,
    /// 0: as the server likes.
    pub tail_lines: u32,
    /// The time before each line.
    pub timestamps: bool,
    /// Only what is younger than so many seconds.
    pub since_seconds: Option<u32>,
    /// Only what was written then or later.
    pub since_time: Option<Timestamp>,
}

impl LogQuery {
    fn tail(&self) -> Result<u32, Refusal> {
        match self.tail_lines {
            0 => Ok(TAIL_DEFAULT),
            lines if lines <= TAIL_MAX => Ok(lines),
            lines => Err(
                Refusal::field("tailLines", lines, "more than 5000 are not sent at once")
                    .remedy("give a number from 1 to 5000, or follow the log"),
            ),
        }
    }
}

/// What one container wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    pub pod: String,
    pub container: String,
    pub text: String,
    /// Only the end is there.
    pub cut: bool,
    /// It comes from the history: the pod is gone.
    pub archived: bool,
    /// The other pods of the run, the newest first.
    pub pods: Vec<String>,
}

impl LogQuery {
    fn wants(&self, tail: &LogTailInfo) -> bool {
        self.pod.as_ref().is_none_or(|pod| *pod == tail.pod)
            && self.step.as_ref().is_none_or(|step| *step == tail.step)
            && self
                .attempt
                .is_none_or(|attempt| i64::from(attempt) == tail.attempt)
    }
}

/// The last bytes of what a reader has, in whole lines if there are any, and whether something before them is missing.
async fn end_of(reader: impl AsyncBufRead, bytes: usize) -> std::io::Result<(String, bool)> {
    let mut reader = std::pin::pin!(reader);
    let (mut kept, mut cut) = (Vec::new(), false);
    let mut read = vec![0; READ_BYTES];
    loop {
        let count = reader.read(&mut read).await?;
        if count == 0 {
            break;
        }
        kept.extend(read.iter().take(count));
        // Rarely, so that what stays is not moved for each little that comes.
        if kept.len() > 2 * bytes {
            kept.drain(..kept.len() - bytes);
            cut = true;
        }
    }
    if kept.len() > bytes {
        kept.drain(..kept.len() - bytes);
        cut = true;
    }
    let text = String::from_utf8_lossy(&kept);
    let whole = match text.split_once('\n') {
        Some((_, lines)) if cut && !lines.is_empty() => lines,
        _ => &text,
    };
    Ok((whole.to_owned(), cut))
}

/// The last lines of a text, and whether there were more.
fn last_lines(text: &str, lines: u32) -> (&str, bool) {
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    let body = text.strip_suffix('\n').unwrap_or(text);
    let before = body.rmatch_indices('\n').nth(lines.saturating_sub(1));
    match before {
        Some((at, _)) => (text.get(at + 1..).unwrap_or_default(), true),
        None => (text, false),
    }
}

/// A container whose log is read.
struct Source {
    pods: Api<Pod>,
    pod: String,
    container: String,
    all: Vec<String>,
}

impl ControlPlane {
    /// The end of what a run wrote.
    pub async fn log(&self, caller: &Caller, run: &Run, query: &LogQuery) -> Result<Log, Refusal> {
        let lines = query.tail()?;
        let source = match self.source(caller, run, query).await {
            Ok(source) => source,
            Err(refusal) if refusal.trouble == Trouble::NotFound => {
                return self.archived_log(caller, run, query, lines, refusal).await;
            }
            Err(refusal) => return Err(refusal),
        };
        let params = LogParams {
            container: Some(source.container.clone()),
            // One more than is wanted tells whether there are more. The API server cuts off the end of what is too long, so that it is left to
            // us, who want the end.
            tail_lines: Some(i64::from(lines) + 1),
            ..LogParams::default()
        };
        let (text, cut) = live(async {
            let reader = source.pods.log_stream(&source.pod, &params).await?;
            end_of(reader, LOG_MAX_BYTES)
                .await
                .map_err(kube::Error::ReadEvents)
        })
        .await?;
        let (text, more) = last_lines(&text, lines);
        Ok(Log {
            cut: cut || more,
            pod: source.pod,
            container: source.container,
            text: text.to_owned(),
            archived: false,
            pods: source.all,
        })
    }

    /// The last lines that history has of a log. `gone` is the answer if it has none.
    async fn archived_log(
        &self,
        caller: &Caller,
        run: &Run,
        query: &LogQuery,
        lines: u32,
        gone: Refusal,
    ) -> Result<Log, Refusal> {
        let (history, tails) = self.archived_logs(caller, run, query, gone.clone()).await?;
        // The latest: that is where a run ended.
        let Some(wanted) = tails.last() else {
            return Err(gone);
        };
        let kept = history.log(wanted).await;
        let kept = kept.map_err(|error| error.refusal("the pods are gone"))?;
        let log = kept.ok_or(gone)?;
        let (text, shortened) = last_lines(&log.text, lines);
        Ok(Log {
            pod: log.info.pod,
            container: log.info.container,
            text: text.to_owned(),
            cut: log.info.cut || shortened,
            archived: true,
            pods: tails.into_iter().rev().map(|tail| tail.pod).collect(),
        })
    }

    /// Which of the logs that are asked for history has, those that ended first before the others, and at least one. `gone` is the answer
    /// if it has none.
    async fn archived_logs(
        &self,
        caller: &Caller,
        run: &Run,
        query: &LogQuery,
        gone: Refusal,
    ) -> Result<(std::sync::Arc<dyn History>, Vec<LogTailInfo>), Refusal> {
        let Some(history) = &self.history else {
            return Err(gone);
        };
        let document = run.document();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        // Kubernetes asks for this right when it is the one to give a log out.
        let question = Question::Logs { namespace };
        self.gatekeeper.require(&caller.identity, &question).await?;
        let uid = text(document, "/metadata/uid").unwrap_or_default();
        let kept = history.logs(&uid).await;
        let mut kept = kept.map_err(|error| error.refusal("the pods are gone"))?;
        kept.retain(|tail| query.wants(tail));
        if kept.is_empty() {
            let phase = text(document, "/status/phase").unwrap_or_default();
            let ended = matches!(phase.as_str(), "Succeeded" | "Failed" | "Cancelled");
            // One that has not begun may have a log yet.
            return Err(match run {
                Run::Live(_) if !ended => gone,
                _ => gone.remedy(
                    "history has no log of it either: its pods went before they could be read, or the time that logs are \
                     kept is over",
                ),
            });
        }
        Ok((std::sync::Arc::clone(history), kept))
    }

    async fn source(&self, caller: &Caller, run: &Run, query: &LogQuery) -> Result<Source, Refusal> {
        let label = pod_label(run.kind())?;
        let document = run.document();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        let name = text(document, "/metadata/name").unwrap_or_default();
        if query.archived {
            return Err(Refusal::new(
                Trouble::NotFound,
                format!(
                    "the history has no such log of {} {namespace}/{name}",
                    run.kind().info().kind
                ),
            ));
        }
        if let Run::Archived { .. } = run {
            // Pods that carry its name now would be those of another run.
            return Err(Refusal::new(
                Trouble::NotFound,
                format!(
                    "{} {namespace}/{name} is gone from the cluster",
                    run.kind().info().kind
                ),
            ));
        }
        let pods: Api<Pod> = Api::namespaced(caller.identity.client(), &namespace);
        let mut selector = vec![format!("{label}={}", label_value(&name))];
        selector.extend(
            query
                .step
                .as_ref()
                .map(|step| format!("{}={}", labels::STEP, label_value(step))),
        );
        let params = ListParams::default().labels(&selector.join(","));
        let mut found = live(pods.list(&params)).await?.items;
        found.sort_by_key(|pod| std::cmp::Reverse(pod.creation_timestamp()));
        found.truncate(PODS_MAX);
        let pod = match &query.pod {
            Some(wanted) => found.iter().find(|pod| pod.name_any() == *wanted),
            None => found.first(),
        };
        let pod = pod.ok_or_else(|| {
            let which = query
                .pod
                .as_deref()
                .map(|pod| format!(" {}", shown(pod)))
                .unwrap_or_default();
            Refusal::new(
                Trouble::NotFound,
                format!("{} {namespace}/{name} has no pod{which}", run.kind().info().kind),
            )
            .remedy("a run that has not started has none yet, and one that has ended may have none any more")
        })?;
        let containers: Vec<String> = pod
            .spec
            .iter()
            .flat_map(|spec| spec.containers.iter().map(|container| container.name.clone()))
            .collect();
        let container = match &query.container {
            Some(wanted) => containers.iter().find(|name| *name == wanted),
            None => containers.first(),
        };
        let container = container.cloned().ok_or_else(|| {
            Refusal::field(
                "container",
                query.container.clone().unwrap_or_default(),
                "the pod has no such container",
            )
            .remedy(format!("name one of {}", containers.join(", ")))
        })?;
        Ok(Source {
            pod: pod.name_any(),
            container,
            all: found.iter().map(ResourceExt::name_any).collect(),
            pods,
        })
    }
}

/// The label by which the pods of a run are found.
pub(super) fn pod_label(kind: Kind) -> Result<&'static str, Refusal> {
    match kind {
        Kind::AgentRun => Ok(labels::AGENT_RUN),
        Kind::ToolRun => Ok(labels::TOOL_RUN),
        _ => Err(Refusal::new(
            Trouble::BadRequest,
            "an orchestration has no pods of its own: its steps have",
        )
        .remedy("ask for the log of the run that status.stepStatuses[].resourceRef names")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_a_log_that_is_too_long_the_end_is_given_in_whole_lines() {
        let all = |text: &'static str, bytes| end_of(futures::io::Cursor::new(text), bytes);
        assert_eq!(
            all("one\ntwo\n", 8).await.unwrap(),
            ("one\ntwo\n".to_owned(), false)
        );
        assert_eq!(all("one\ntwo\n", 6).await.unwrap(), ("two\n".to_owned(), true));
        assert_eq!(all("endless", 3).await.unwrap(), ("ess".to_owned(), true));
    }

    #[test]
    fn of_a_log_that_is_kept_the_last_lines_are_given() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(last_lines(text, 2), ("two\nthree\n", true));
        assert_eq!(last_lines(text, 3), (text, false));
        assert_eq!(last_lines(text, u32::MAX), (text, false));
        assert_eq!(last_lines("one\ntwo", 1), ("two", true));
        assert_eq!(last_lines("", 5), ("", false));
    }
}
