//! What the pods of a run write, and the Events about an object. Both are read with the caller's token. When the pods are gone, history
//! has the ends of their logs, for callers who may read logs in that namespace.

use futures::{
    AsyncBufReadExt, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use jangar_api::{Kind, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Caller, ControlPlane, live, runs::Run};
use crate::{
    access::Question,
    refusal::{Refusal, Trouble, shown},
    world::text,
};

/// The most lines of one answer.
pub const TAIL_MAX: u32 = 5_000;
pub const TAIL_DEFAULT: u32 = 500;
/// The most bytes of one answer, whatever the lines are like.
const LOG_MAX_BYTES: i64 = 4 * 1024 * 1024;
/// The most Events of one answer.
pub const EVENTS_MAX: u32 = 200;
pub const EVENTS_DEFAULT: u32 = 25;
/// A run has a pod for each attempt; the latest so many are looked at.
const PODS_MAX: usize = 20;

/// Which part of the log is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Absent: the newest one.
    pub pod: Option<String>,
    /// Absent: the one that does the work.
    pub container: Option<String>,
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

/// A log that is read line by line.
pub struct Following {
    pub pod: String,
    pub container: String,
    pub lines: BoxStream<'static, Result<String, Refusal>>,
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following")
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
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
            tail_lines: Some(i64::from(lines)),
            limit_bytes: Some(LOG_MAX_BYTES),
            ..LogParams::default()
        };
        let text = live(source.pods.logs(&source.pod, &params)).await?;
        Ok(Log {
            cut: text.lines().count() >= usize::try_from(lines).unwrap_or(usize::MAX),
            pod: source.pod,
            container: source.container,
            text,
            archived: false,
            pods: source.all,
        })
    }

    /// What a run writes, line by line, until its container ends; what it wrote, if its pods are gone.
    pub async fn follow_log(
        &self,
        caller: &Caller,
        run: &Run,
        query: &LogQuery,
        follow: bool,
    ) -> Result<Following, Refusal> {
        let source = match self.source(caller, run, query).await {
            Ok(source) => source,
            Err(refusal) if refusal.trouble == Trouble::NotFound => {
                let lines = match query.tail_lines {
                    0 => u32::MAX,
                    lines => lines,
                };
                let log = self.archived_log(caller, run, query, lines, refusal).await?;
                let lines: Vec<_> = log.text.lines().map(|line| Ok(line.to_owned())).collect();
                return Ok(Following {
                    pod: log.pod,
                    container: log.container,
                    lines: stream::iter(lines).boxed(),
                });
            }
            Err(refusal) => return Err(refusal),
        };
        let params = LogParams {
            container: Some(source.container.clone()),
            follow,
            tail_lines: (query.tail_lines > 0).then_some(i64::from(query.tail_lines)),
            timestamps: query.timestamps,
            since_seconds: query.since_seconds.map(i64::from),
            since_time: query.since_time,
            ..LogParams::default()
        };
        let reader = live(source.pods.log_stream(&source.pod, &params)).await?;
        let lines = reader
            .lines()
            .map_err(|error| Refusal::unavailable(format!("the log broke off: {error}")));
        Ok(Following {
            pod: source.pod,
            container: source.container,
            lines: lines.boxed(),
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
        let Some(history) = &self.history else {
            return Err(gone);
        };
        let document = run.document();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        // Kubernetes asks for this right when it is the one to give a log out.
        let question = Question::Logs { namespace };
        self.gatekeeper.require(&caller.identity, &question).await?;
        let uid = text(document, "/metadata/uid").unwrap_or_default();
        let kept = history.log(&uid, query.pod.as_deref()).await;
        let kept = kept.map_err(|error| error.refusal("the pods are gone"))?;
        let Some(log) = kept else {
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
        };
        let (text, shortened) = last_lines(&log.text, lines);
        Ok(Log {
            pod: log.pod,
            container: log.container,
            text: text.to_owned(),
            cut: log.cut || shortened,
            archived: true,
            pods: log.pods,
        })
    }

    async fn source(&self, caller: &Caller, run: &Run, query: &LogQuery) -> Result<Source, Refusal> {
        let label = pod_label(run.kind())?;
        let document = run.document();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        let name = text(document, "/metadata/name").unwrap_or_default();
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
        let params = ListParams::default().labels(&format!("{label}={name}"));
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

    /// The Events about an object, the latest first.
    pub async fn events(
        &self,
        caller: &Caller,
        namespace: &str,
        kind: &str,
        name: &str,
        uid: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Value>, Refusal> {
        let limit = match limit {
            0 => EVENTS_DEFAULT,
            limit if limit <= EVENTS_MAX => limit,
            _ => {
                return Err(
                    Refusal::field("limit", limit, "more than 200 are not listed at once")
                        .remedy("give a number from 1 to 200"),
                );
            }
        };
        let mut fields = vec![
            format!("involvedObject.kind={kind}"),
            format!("involvedObject.name={name}"),
        ];
        fields.extend(uid.map(|uid| format!("involvedObject.uid={uid}")));
        let events: Api<Event> = Api::namespaced(caller.identity.client(), namespace);
        let params = ListParams::default().fields(&fields.join(","));
        let mut found = live(events.list(&params)).await?.items;
        found.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found.iter().map(told).collect())
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

fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.max(micro)
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn told(event: &Event) -> Value {
    json!({
        "name": event.name_any(),
        "namespace": event.namespace(),
        "type": event.type_,
        "reason": event.reason,
        "action": event.action,
        "count": event.count.or_else(|| event.series.as_ref().and_then(|series| series.count)),
        "message": event.message,
        "firstTimestamp": event.first_timestamp,
        "lastTimestamp": last_seen(event).map(|at| at.to_string()),
        "eventTime": event.event_time,
        "involvedObject": event.involved_object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
