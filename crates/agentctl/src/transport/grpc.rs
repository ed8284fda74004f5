//! The control plane of Jangar, which acts with the caller's own token: no kubeconfig is needed.

mod connection;
mod gates;
mod request;
mod watching;

use std::pin::Pin;

use futures::{Stream, StreamExt as _, stream};
use jangar_api::Kind;
use jangar_proto::{
    ANSWER_MAX_BYTES, ByKind,
    v1::{
        ApplyRequest, CancelRequest, CreateObjectRequest, DeleteRequest, ExplainRequest, ExplainResponse,
        GetControlPlaneStatusRequest, GetControlPlaneStatusResponse, GetIdentityRequest, GetRequest,
        GetServerInfoRequest, GetServerInfoResponse, ListEventsRequest, ListRequest, ListRightsRequest,
        ListRunPodsRequest, Right, StreamAgentRunLogsRequest, StreamAgentRunLogsResponse,
        WatchObjectsRequest, agentctl_service_client::AgentctlServiceClient,
    },
};
use serde_json::Value;
use tonic::{
    Code, Request, Response, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use super::{
    Applied, ApplyOptions, BreaksOff, Changes, Identity, KeptLine, KeptLines, KeptPart, Lines, Listed,
    LogPart, LogTrouble, Narrow, RunRef, Submission, Submitted, Wish,
};
use crate::{
    config::Choices,
    error::Error,
    object::{Object, Remembered},
};

/// How many objects are asked for at once.
const PAGE: u32 = 500;
/// How many objects a list may have, as with Kubernetes.
const LIST_MAX: usize = 100_000;
/// Stands for every namespace.
const ALL_NAMESPACES: &str = "*";
/// How many Events of an object are asked for.
const EVENTS: u32 = 50;
/// The longest line of a log that is put together; the rest of a longer one stands in lines of its own.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// What is asked for with a list.
fn list_request(kind: Kind, namespace: Option<&str>, narrow: &Narrow<'_>) -> ListRequest {
    // The control plane has other words than agentctl for how objects stand that are no runs.
    let phase = narrow.phase.filter(|_| kind.is_run());
    ListRequest {
        namespace: namespace.unwrap_or(ALL_NAMESPACES).to_owned(),
        label_selector: narrow.selector.unwrap_or_default().to_owned(),
        phase: phase.unwrap_or_default().to_owned(),
        runtime: narrow.runtime.unwrap_or_default().to_owned(),
        ..ListRequest::default()
    }
}

/// A client of the control plane.
#[derive(Clone)]
pub struct Grpc {
    channel: Channel,
    address: String,
    token: MetadataValue<Ascii>,
}

impl std::fmt::Debug for Grpc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grpc")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Grpc {
    /// Prepares the way. Nothing is asked yet.
    pub fn connect(choices: &Choices) -> Result<Self, Error> {
        let token = connection::token(choices)?;
        let target = connection::Target::of(choices)?;
        Ok(Self {
            channel: target.channel(choices)?,
            address: target.address,
            token,
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    fn client(&self) -> AgentctlServiceClient<Channel> {
        AgentctlServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_MAX_BYTES)
    }

    fn asked<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        request
    }

    /// For `map_err`: what was being done when the control plane said no.
    fn failed(&self, doing: impl Into<String>) -> impl FnOnce(Status) -> Error {
        let (doing, address) = (doing.into(), self.address.clone());
        move |status| Error::Grpc {
            doing,
            address,
            status,
        }
    }

    async fn by_kind<Q: ByKind>(&self, kind: Kind, message: Q) -> Result<Q::Answer, Status> {
        let answer = jangar_proto::call(self.channel.clone(), &kind.info().kind, self.asked(message)).await?;
        Ok(answer.into_inner())
    }

    pub async fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        narrow: &Narrow<'_>,
    ) -> Result<Vec<Object>, Error> {
        let request = list_request(kind, namespace, narrow);
        let plural = &kind.info().plural;
        let listed = self.pages(kind, request, LIST_MAX).await?;
        if listed.more {
            return Err(Error::Validation(format!(
                "there are more than {LIST_MAX} {plural}: name a namespace with -n, or labels with -l"
            )));
        }
        let mut objects = listed.objects;
        // The order in which Kubernetes lists them.
        objects.sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
        Ok(objects)
    }

    /// The runs that the history has, the latest first.
    pub async fn list_history(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        wish: &Wish<'_>,
    ) -> Result<Listed, Error> {
        let request = ListRequest {
            namespace: namespace.unwrap_or(ALL_NAMESPACES).to_owned(),
            phase: wish.phase.unwrap_or_default().to_owned(),
            search: wish.search.unwrap_or_default().to_owned(),
            archived: true,
            ..ListRequest::default()
        };
        self.pages(kind, request, wish.limit.min(LIST_MAX)).await
    }

    /// Pages, one after the other, until there are so many objects.
    async fn pages(&self, kind: Kind, mut request: ListRequest, most: usize) -> Result<Listed, Error> {
        let mut objects = Vec::new();
        loop {
            let left = most.saturating_sub(objects.len());
            request.limit = u32::try_from(left).unwrap_or(PAGE).clamp(1, PAGE);
            let doing = format!("{} cannot be listed at {}", kind.info().plural, self.address);
            let page = self.by_kind(kind, request.clone()).await;
            let page = page.map_err(self.failed(doing))?;
            let document = self.read(&page.json)?;
            let items = document.get("items").and_then(Value::as_array);
            objects.extend(items.into_iter().flatten().cloned().map(Object::from_value));
            let more = !page.next_cursor.is_empty();
            if !more || objects.len() >= most {
                return Ok(Listed { objects, more });
            }
            request.cursor = page.next_cursor;
        }
    }

    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
        self.got(kind, namespace, name, false).await
    }

    /// A run, also if only the history has it.
    pub async fn get_or_remember(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
        self.got(kind, namespace, name, true).await
    }

    async fn got(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        archived_too: bool,
    ) -> Result<Object, Error> {
        let request = GetRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            archived_too,
        };
        let doing = format!("{} {name} cannot be read", kind.info().kind);
        let answer = self.by_kind(kind, request).await.map_err(self.failed(doing))?;
        let object = self.read(&answer.json)?;
        Ok(if answer.archived {
            let remembered = Remembered {
                cut: answer.cut,
                altered: answer.altered,
            };
            Object::from_history(object, remembered)
        } else {
            Object::from_value(object)
        })
    }

    pub async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Option<Object>, Error> {
        let word = &kind.info().kind;
        let request = CreateObjectRequest {
            namespace: namespace.to_owned(),
            // JSON is YAML.
            manifest_yaml: object.to_string(),
        };
        let answer = self.client().create_object(self.asked(request)).await;
        let answer = answer.map_err(|status| self.refused(word, "created", status))?;
        let answer = answer.into_inner();
        if answer.exists {
            return Ok(None);
        }
        self.object(&answer.json).map(Some)
    }

    /// An object that the API server will never take is for whoever wrote it to correct.
    fn refused(&self, word: &str, what: &str, status: Status) -> Error {
        if status.code() == Code::InvalidArgument {
            return Error::Validation(format!(
                "the API server refuses the {word}: {}; correct that field",
                status.message().trim_end_matches('.')
            ));
        }
        self.failed(format!("the {word} cannot be {what}"))(status)
    }

    /// Submits a run of an agent or of an orchestration: the control plane looks at budgets, Secrets and the queue, and remembers
    /// the key when the run is gone.
    pub async fn submit(&self, submission: &Submission<'_>) -> Result<Submitted, Error> {
        let word = &submission.kind.info().kind;
        let mut client = self.client();
        let answer = match submission.kind {
            Kind::OrchestrationRun => {
                let request = request::orchestration_run(submission);
                client.submit_orchestration_run(self.asked(request)).await
            }
            _ => {
                let request = request::agent_run(submission);
                client.submit_agent_run(self.asked(request)).await
            }
        };
        let answer = answer.map_err(|status| self.refused(word, "created", status))?;
        let answer = answer.into_inner();
        let run = self.object(&answer.resource_json)?;
        Ok(if answer.idempotent {
            Submitted::Before(run)
        } else {
            Submitted::Created(run)
        })
    }

    pub async fn cancel(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        reason: Option<&str>,
    ) -> Result<Object, Error> {
        let request = self.asked(CancelRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            reason: reason.unwrap_or_default().to_owned(),
        });
        let mut client = self.client();
        let answer = match kind {
            Kind::OrchestrationRun => client.cancel_orchestration_run(request).await,
            Kind::ToolRun => client.cancel_tool_run(request).await,
            _ => client.cancel_agent_run(request).await,
        };
        let doing = format!("{} {name} cannot be changed", kind.info().kind);
        let answer = answer.map_err(self.failed(doing))?;
        self.object(&answer.into_inner().json)
    }

    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
        let request = DeleteRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let doing = format!("{} {name} cannot be deleted", kind.info().kind);
        self.by_kind(kind, request)
            .await
            .map(drop)
            .map_err(self.failed(doing))
    }

    pub async fn apply(
        &self,
        object: &Value,
        namespace: &str,
        options: ApplyOptions,
    ) -> Result<(Object, Applied), Error> {
        let kind = request::applicable(object)?;
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (word, name) = (&kind.info().kind, text("/metadata/name"));
        let request = ApplyRequest {
            namespace: match text("/metadata/namespace") {
                "" => namespace.to_owned(),
                own => own.to_owned(),
            },
            manifest_yaml: object.to_string(),
            dry_run: options.dry_run,
            refuse_conflicts: !options.force,
        };
        let answer = self.by_kind(kind, request).await.map_err(|status| {
            if status.code() == Code::FailedPrecondition {
                return Error::Validation(format!(
                    "{word} {name} cannot be applied: {}; give --force-conflicts to take the fields over",
                    status.message().trim_end_matches('.')
                ));
            }
            self.refused(word, "applied", status)
        })?;
        let applied = match answer.outcome.as_str() {
            "created" => Applied::Created,
            "configured" => Applied::Configured,
            "unchanged" => Applied::Unchanged,
            _ => Applied::Somehow,
        };
        Ok((self.object(&answer.json)?, applied))
    }

    pub fn watch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&str>,
    ) -> Changes {
        watching::objects(
            self.clone(),
            WatchObjectsRequest {
                namespace: namespace.unwrap_or(ALL_NAMESPACES).to_owned(),
                kind: kind.info().kind.clone(),
                name: name.unwrap_or_default().to_owned(),
                label_selector: selector.unwrap_or_default().to_owned(),
            },
        )
    }

    pub async fn identity(&self) -> Result<Identity, Error> {
        let answer = self
            .client()
            .get_identity(self.asked(GetIdentityRequest {}))
            .await
            .map_err(self.failed("the control plane does not say who you are"))?
            .into_inner();
        Ok(Identity {
            user: answer.user,
            groups: answer.groups,
        })
    }

    /// What the caller may do there, of what people do with Jangar. A control plane of an older version does not say.
    pub async fn rights(&self, namespace: &str) -> Result<Option<Vec<Right>>, Error> {
        let request = ListRightsRequest {
            namespace: namespace.to_owned(),
        };
        match self.client().list_rights(self.asked(request)).await {
            Ok(answer) => Ok(Some(answer.into_inner().rights)),
            Err(status) if status.code() == Code::Unimplemented => Ok(None),
            Err(status) => Err(self.failed("the control plane does not say what you may do")(
                status,
            )),
        }
    }

    pub async fn events(&self, kind: Kind, object: &Object) -> Result<Vec<Object>, Error> {
        let request = ListEventsRequest {
            namespace: object.namespace().to_owned(),
            kind: kind.info().kind.clone(),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            limit: EVENTS,
        };
        let answer = self.client().list_events(self.asked(request)).await;
        let answer = answer.map_err(self.failed("events cannot be listed"))?;
        self.objects(&answer.into_inner().json)
    }

    pub async fn pods(&self, run: &RunRef, step: Option<&str>) -> Result<Vec<Object>, Error> {
        let request = ListRunPodsRequest {
            namespace: run.namespace.clone(),
            kind: run.kind.info().kind.clone(),
            name: run.name.clone(),
            step: step.unwrap_or_default().to_owned(),
        };
        let answer = self.client().list_run_pods(self.asked(request)).await;
        let doing = format!(
            "the pods of {} {} cannot be listed",
            run.kind.info().kind,
            run.name
        );
        let answer = answer.map_err(self.failed(doing))?;
        self.objects(&answer.into_inner().json)
    }

    pub fn watch_pods(&self, run: &RunRef, step: Option<&str>) -> Changes {
        watching::pods(self.clone(), run.clone(), step.map(str::to_owned))
    }

    /// What a pod of a run writes.
    pub async fn log(&self, run: &RunRef, pod: &str, part: &LogPart) -> Result<Lines, LogTrouble> {
        let request = StreamAgentRunLogsRequest {
            namespace: run.namespace.clone(),
            name: run.name.clone(),
            follow: part.follow,
            tail_lines: part.tail.unwrap_or_default(),
            pod: pod.to_owned(),
            container: part.container.clone().unwrap_or_default(),
            timestamps: true,
            since_seconds: part.since_seconds.unwrap_or_default(),
            since_time: part.since_time.map(|time| time.to_string()).unwrap_or_default(),
            ..StreamAgentRunLogsRequest::default()
        };
        let lines = match self.log_stream(run, request).await {
            Ok(lines) => lines,
            Err(status) => {
                return Err(match status.code() {
                    Code::NotFound => LogTrouble::Gone,
                    Code::Unavailable | Code::Unknown | Code::Internal => LogTrouble::Broken,
                    _ => LogTrouble::Refused(self.failed(unreadable(run))(status)),
                });
            }
        };
        let mut lines = lines.boxed().peekable();
        // What the history has of a pod that is gone has no times, by which lines are known: it is asked for by itself.
        if let Some(Ok(first)) = Pin::new(&mut lines).peek().await
            && first.archived
        {
            return Err(LogTrouble::Gone);
        }
        Ok(lines
            .map(|line| line.map(|line| line.message).map_err(|_| BreaksOff))
            .boxed())
    }

    /// What the history has of what the pods of a run wrote.
    pub async fn kept_log(&self, run: &RunRef, part: &KeptPart<'_>) -> Result<Option<KeptLines>, Error> {
        let request = StreamAgentRunLogsRequest {
            namespace: run.namespace.clone(),
            name: run.name.clone(),
            tail_lines: part.tail.unwrap_or_default(),
            pod: part.pod.unwrap_or_default().to_owned(),
            step: part.step.unwrap_or_default().to_owned(),
            archived: true,
            ..StreamAgentRunLogsRequest::default()
        };
        let lines = match self.log_stream(run, request).await {
            Ok(lines) => lines,
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(self.failed(unreadable(run))(status)),
        };
        let (this, doing) = (self.clone(), unreadable(run));
        let lines = lines.map(move |line| match line {
            Ok(line) => Ok(KeptLine {
                text: line.message,
                pod: line.pod,
                container: line.container,
                step: line.step,
                cut: line.cut,
            }),
            Err(status) => Err(this.failed(doing.clone())(status)),
        });
        Ok(Some(lines.boxed()))
    }

    async fn log_stream(
        &self,
        run: &RunRef,
        request: StreamAgentRunLogsRequest,
    ) -> Result<impl Stream<Item = Result<StreamAgentRunLogsResponse, Status>> + Send + use<>, Status> {
        let request = self.asked(request);
        let mut client = self.client();
        let answer = match run.kind {
            Kind::ToolRun => client.stream_tool_run_logs(request).await,
            _ => client.stream_agent_run_logs(request).await,
        };
        Ok(joined(answer?.into_inner()))
    }

    /// Why a run waits, or how it ended. Whether it is gone comes with it.
    pub async fn explain(&self, kind: Kind, namespace: &str, name: &str) -> Result<ExplainResponse, Error> {
        let request = self.asked(ExplainRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        let mut client = self.client();
        let answer = match kind {
            Kind::OrchestrationRun => client.explain_orchestration_run(request).await,
            _ => client.explain_agent_run(request).await,
        };
        let doing = format!("{} {name} cannot be explained", kind.info().kind);
        answer.map(Response::into_inner).map_err(self.failed(doing))
    }

    /// Which program answers.
    pub async fn server_info(&self) -> Result<GetServerInfoResponse, Error> {
        self.client()
            .get_server_info(self.asked(GetServerInfoRequest {}))
            .await
            .map(Response::into_inner)
            .map_err(self.failed(format!("{} does not answer", self.address)))
    }

    /// How the control plane is, and what it knows of the controllers.
    pub async fn status(&self, namespace: &str) -> Result<GetControlPlaneStatusResponse, Error> {
        let request = GetControlPlaneStatusRequest {
            namespace: namespace.to_owned(),
        };
        self.client()
            .get_control_plane_status(self.asked(request))
            .await
            .map(Response::into_inner)
            .map_err(self.failed("the control plane does not say how it is"))
    }

    fn read(&self, json: &str) -> Result<Value, Error> {
        serde_json::from_str(json).map_err(|error| {
            Error::Runtime(format!(
                "what the control plane at {} answers is no JSON: {error}",
                self.address
            ))
        })
    }

    fn object(&self, json: &str) -> Result<Object, Error> {
        self.read(json).map(Object::from_value)
    }

    fn objects(&self, json: &str) -> Result<Vec<Object>, Error> {
        let all = match self.read(json)? {
            Value::Array(all) => all,
            _ => Vec::new(),
        };
        Ok(all.into_iter().map(Object::from_value).collect())
    }
}

fn unreadable(run: &RunRef) -> String {
    format!("the log of {} {} cannot be read", run.kind.info().kind, run.name)
}

/// Whole lines: one that is longer than a message comes in several.
fn joined(
    parts: Streaming<StreamAgentRunLogsResponse>,
) -> impl Stream<Item = Result<StreamAgentRunLogsResponse, Status>> + Send {
    stream::try_unfold(parts, |mut parts| async move {
        let Some(mut line) = parts.message().await? else {
            return Ok(None);
        };
        while line.partial && line.message.len() < LINE_BYTES_MAX {
            let Some(next) = parts.message().await? else {
                break;
            };
            line.message.push_str(&next.message);
            line.partial = next.partial;
        }
        Ok::<_, Status>(Some((line, parts)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_looked_for_by_the_control_plane() {
        let narrow = Narrow {
            selector: Some("team=blue"),
            phase: Some("Failed"),
            runtime: Some("job"),
        };
        let runs = list_request(Kind::AgentRun, None, &narrow);
        assert_eq!(
            runs,
            ListRequest {
                namespace: "*".to_owned(),
                label_selector: "team=blue".to_owned(),
                phase: "Failed".to_owned(),
                runtime: "job".to_owned(),
                ..ListRequest::default()
            }
        );
        let agents = list_request(Kind::Agent, Some("team"), &narrow);
        assert_eq!(
            (agents.namespace.as_str(), agents.phase.as_str()),
            ("team", ""),
            "their phases are agentctl's own words"
        );
    }
}
