//! The calls of the server.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jangar_controllers::outside::{Temporal, Waited};
use jangar_engine::{
    decision::{Key, Uid},
    settings::TemporalSettings,
    temporal::call::{Closed, Means, Start, StartAnswer, Stop, StopAnswer, Workflow},
};
use temporalio_client::grpc::WorkflowService;
use temporalio_common::protos::{
    temporal::api::{
        common::v1::{Memo, Payload, Payloads, WorkflowExecution, WorkflowType},
        enums::v1::{
            HistoryEventFilterType, TaskQueueType, WorkflowExecutionStatus, WorkflowIdConflictPolicy,
            WorkflowIdReusePolicy,
        },
        errordetails::v1::WorkflowExecutionAlreadyStartedFailure,
        taskqueue::v1::TaskQueue,
        workflow::v1::WorkflowExecutionInfo,
        workflowservice::v1::{
            DescribeTaskQueueRequest, DescribeWorkflowExecutionRequest, GetWorkflowExecutionHistoryRequest,
            RequestCancelWorkflowExecutionRequest, StartWorkflowExecutionRequest,
            TerminateWorkflowExecutionRequest,
        },
    },
    utilities::decode_status_detail,
};
use tonic::{Code, IntoRequest, Request, Status};

use crate::{
    closed::{self, ENCODING, JSON, Last},
    connection::{BadSettings, Connector, IDENTITY},
    words::{Meaning, meaning},
};

/// How long the server has for a call. The controllers count on it that no start arrives minutes later.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it has for a wait; it answers by itself after some twenty seconds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(40);
/// How often a workflow goes on as another execution before the wait is begun anew.
const EXECUTIONS_MAX: usize = 100;
/// As long as a history has no more events, no worker has ever answered for the workflow.
const UNANSWERED_EVENTS: i64 = 2;
/// The memo by which a workflow tells which run it works for.
const MEMO_UID: &str = "agentRunUid";
const MEMO_NAME: &str = "agentRun";

/// A Temporal server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Connector>);

impl Server {
    /// The server at this address. It is not asked for anything yet; what the settings name is read.
    pub fn new(address: &str, settings: &TemporalSettings) -> Result<Self, BadSettings> {
        Ok(Self(Arc::new(Connector::new(address, settings)?)))
    }

    async fn service(&self) -> Result<Box<dyn WorkflowService>, String> {
        Ok(self.0.connection().await?.workflow_service())
    }

    /// What an error means. A key that is not taken any more is read again for the next call.
    async fn meaning(&self, workflow: &Workflow, status: &Status) -> Meaning {
        if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) {
            self.0.forget().await;
        }
        meaning(&self.0, workflow, status)
    }

    async fn started(self, run: Key, uid: Uid, workflow: Workflow, start: Start) -> StartAnswer {
        let mut service = match self.service().await {
            Ok(service) => service,
            Err(words) => return StartAnswer::NotTaken { words },
        };
        let request = request(start_request(&run, &uid, &workflow, start), CALL_TIMEOUT);
        let status = match service.start_workflow_execution(request).await {
            Ok(started) => {
                let run_id = started.into_inner().run_id;
                return StartAnswer::Started { run_id };
            }
            Err(status) => status,
        };
        if status.code() != Code::AlreadyExists {
            return self.meaning(&workflow, &status).await.into();
        }
        let taken = decode_status_detail::<WorkflowExecutionAlreadyStartedFailure>(status.details());
        if let Some(taken) = taken.filter(|taken| taken.start_request_id == uid.0) {
            return StartAnswer::Started { run_id: taken.run_id };
        }
        self.occupied(&mut *service, &workflow, &uid, &status).await
    }

    /// Somebody's workflow has the id. It is ours all the same if it has gone on as another execution since.
    async fn occupied(
        &self,
        service: &mut dyn WorkflowService,
        workflow: &Workflow,
        uid: &Uid,
        status: &Status,
    ) -> StartAnswer {
        let found = match describe(service, workflow, None).await {
            Ok(found) => found,
            // Asked again, it is found, or it is gone.
            Err(status) => {
                let words = self.0.unreachable(status.message());
                return StartAnswer::Unclear { words };
            }
        };
        let told = found.memo.as_ref().and_then(|memo| memo.fields.get(MEMO_UID));
        if told.is_some_and(|told| *told == payload(&uid.0)) {
            return StartAnswer::Started {
                run_id: first_execution(&found),
            };
        }
        StartAnswer::Occupied {
            words: status.message().to_owned(),
        }
    }

    async fn waited(self, workflow: Workflow, task_queue: String) -> Waited {
        let silent = |words: String| Waited::Silent { words };
        let mut service = match self.service().await {
            Ok(service) => service,
            Err(words) => return silent(words),
        };
        let mut execution = workflow.run_id.clone();
        for _ in 0..EXECUTIONS_MAX {
            let status = match last_event(&mut *service, &workflow, execution.clone()).await {
                Ok(Some(Last::GoesOn { run_id })) => {
                    execution = Some(run_id);
                    continue;
                }
                Ok(Some(Last::Closed(closed))) => return Waited::Closed(closed),
                Ok(None) => {
                    return Waited::Open {
                        note: self.nobody_works(&mut *service, &workflow, &task_queue).await,
                    };
                }
                // The time of the call was up before the server's own.
                Err(status) if status.code() == Code::DeadlineExceeded => return Waited::Open { note: None },
                Err(status) => status,
            };
            if status.code() != Code::NotFound {
                let (Meaning::Refused(words) | Meaning::NotTaken(words) | Meaning::Unclear(words)) =
                    self.meaning(&workflow, &status).await;
                return silent(words);
            }
            // The execution that it began with may have been forgotten while a later one works.
            match describe(&mut *service, &workflow, None).await {
                Ok(found) if goes_on(&found, &workflow, execution.as_deref()) => {
                    execution = Some(run_id_of(&found));
                }
                Ok(_) => return vanished(&status),
                Err(again) if again.code() == Code::NotFound => return vanished(&again),
                Err(again) => return silent(self.0.unreachable(again.message())),
            }
        }
        Waited::Open { note: None }
    }

    /// Why a workflow does not go on that no worker has ever answered for.
    async fn nobody_works(
        &self,
        service: &mut dyn WorkflowService,
        workflow: &Workflow,
        task_queue: &str,
    ) -> Option<String> {
        // What cannot be found out now is asked again after the next wait.
        let found = describe(service, workflow, None).await.ok()?;
        if found.history_length > UNANSWERED_EVENTS {
            return None;
        }
        let asked = DescribeTaskQueueRequest {
            namespace: workflow.namespace.clone(),
            task_queue: Some(queue(task_queue)),
            task_queue_type: TaskQueueType::Workflow.into(),
            ..DescribeTaskQueueRequest::default()
        };
        let queue = service.describe_task_queue(request(asked, CALL_TIMEOUT)).await;
        queue.ok()?.into_inner().pollers.is_empty().then(|| {
            format!(
                "no worker polls task queue {task_queue} in Temporal namespace {}: start one, or cancel the run and correct \
                 spec.runtime.config.taskQueue",
                workflow.namespace
            )
        })
    }

    async fn stopped(self, workflow: Workflow, stop: Stop) -> StopAnswer {
        let mut service = match self.service().await {
            Ok(service) => service,
            Err(words) => return StopAnswer::NotTaken { words },
        };
        let execution = Some(execution(&workflow, None));
        let first = workflow.run_id.clone().unwrap_or_default();
        let told = match stop.means {
            Means::Cancel => {
                let asked = RequestCancelWorkflowExecutionRequest {
                    namespace: workflow.namespace.clone(),
                    workflow_execution: execution,
                    identity: IDENTITY.to_owned(),
                    // The same for every repetition: the workflow is asked once.
                    request_id: format!("{}-cancel", workflow.id),
                    first_execution_run_id: first,
                    reason: stop.reason,
                    ..RequestCancelWorkflowExecutionRequest::default()
                };
                let told = service.request_cancel_workflow_execution(request(asked, CALL_TIMEOUT));
                told.await.map(|_| ())
            }
            Means::Terminate => {
                let asked = TerminateWorkflowExecutionRequest {
                    namespace: workflow.namespace.clone(),
                    workflow_execution: execution,
                    reason: stop.reason,
                    identity: IDENTITY.to_owned(),
                    first_execution_run_id: first,
                    ..TerminateWorkflowExecutionRequest::default()
                };
                let told = service.terminate_workflow_execution(request(asked, CALL_TIMEOUT));
                told.await.map(|_| ())
            }
        };
        let status = match told {
            Ok(()) => return StopAnswer::Told,
            Err(status) => status,
        };
        if status.code() != Code::NotFound {
            return self.meaning(&workflow, &status).await.into();
        }
        // The server says the same of one that has ended and of one that never was.
        match describe(&mut *service, &workflow, workflow.run_id.clone()).await {
            Ok(_) => StopAnswer::Told,
            Err(again) if again.code() == Code::NotFound => StopAnswer::NotFound,
            Err(again) => self.meaning(&workflow, &again).await.into(),
        }
    }
}

impl Temporal for Server {
    fn start(
        &self,
        run: &Key,
        uid: &Uid,
        workflow: Workflow,
        start: Start,
    ) -> BoxFuture<'static, StartAnswer> {
        Box::pin(self.clone().started(run.clone(), uid.clone(), workflow, start))
    }

    fn wait(&self, workflow: Workflow, task_queue: String) -> BoxFuture<'static, Waited> {
        Box::pin(self.clone().waited(workflow, task_queue))
    }

    fn stop(&self, workflow: Workflow, stop: Stop) -> BoxFuture<'static, StopAnswer> {
        Box::pin(self.clone().stopped(workflow, stop))
    }
}

fn request<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = message.into_request();
    request.set_timeout(timeout);
    request
}

fn start_request(run: &Key, uid: &Uid, workflow: &Workflow, start: Start) -> StartWorkflowExecutionRequest {
    let time = |time: Option<Duration>| time.and_then(|time| time.try_into().ok());
    let input = Payload {
        metadata: [(ENCODING.to_owned(), JSON.to_vec())].into(),
        data: start.argument.to_string().into_bytes(),
        ..Payload::default()
    };
    StartWorkflowExecutionRequest {
        namespace: workflow.namespace.clone(),
        workflow_id: workflow.id.clone(),
        workflow_type: Some(WorkflowType {
            name: start.workflow_type,
        }),
        task_queue: Some(queue(&start.task_queue)),
        input: Some(Payloads {
            payloads: vec![input],
        }),
        workflow_execution_timeout: time(start.timeouts.execution),
        workflow_run_timeout: time(start.timeouts.run),
        workflow_task_timeout: time(start.timeouts.task),
        identity: IDENTITY.to_owned(),
        // By this the server tells whose start it was.
        request_id: uid.0.clone(),
        workflow_id_reuse_policy: WorkflowIdReusePolicy::RejectDuplicate.into(),
        workflow_id_conflict_policy: WorkflowIdConflictPolicy::Fail.into(),
        memo: Some(Memo {
            fields: [
                (MEMO_UID.to_owned(), payload(&uid.0)),
                (MEMO_NAME.to_owned(), payload(&run.to_string())),
            ]
            .into(),
        }),
        ..StartWorkflowExecutionRequest::default()
    }
}

fn payload(text: &str) -> Payload {
    Payload {
        metadata: [(ENCODING.to_owned(), JSON.to_vec())].into(),
        data: serde_json::Value::from(text).to_string().into_bytes(),
        ..Payload::default()
    }
}

fn queue(name: &str) -> TaskQueue {
    TaskQueue {
        name: name.to_owned(),
        ..TaskQueue::default()
    }
}

/// One execution of a workflow, or the last one.
fn execution(workflow: &Workflow, run_id: Option<String>) -> WorkflowExecution {
    WorkflowExecution {
        workflow_id: workflow.id.clone(),
        run_id: run_id.unwrap_or_default(),
    }
}

/// The last event of an execution, if it comes within some time.
async fn last_event(
    service: &mut dyn WorkflowService,
    workflow: &Workflow,
    run_id: Option<String>,
) -> Result<Option<Last>, Status> {
    let asked = GetWorkflowExecutionHistoryRequest {
        namespace: workflow.namespace.clone(),
        execution: Some(execution(workflow, run_id)),
        wait_new_event: true,
        history_event_filter_type: HistoryEventFilterType::CloseEvent.into(),
        skip_archival: true,
        ..GetWorkflowExecutionHistoryRequest::default()
    };
    let answer = service
        .get_workflow_execution_history(request(asked, WAIT_TIMEOUT))
        .await?;
    let history = answer.into_inner().history.unwrap_or_default();
    let event = history.events.into_iter().next_back();
    Ok(event.and_then(|event| event.attributes).and_then(closed::read))
}

async fn describe(
    service: &mut dyn WorkflowService,
    workflow: &Workflow,
    run_id: Option<String>,
) -> Result<WorkflowExecutionInfo, Status> {
    let asked = DescribeWorkflowExecutionRequest {
        namespace: workflow.namespace.clone(),
        execution: Some(execution(workflow, run_id)),
    };
    let answer = service
        .describe_workflow_execution(request(asked, CALL_TIMEOUT))
        .await?;
    Ok(answer.into_inner().workflow_execution_info.unwrap_or_default())
}

fn run_id_of(found: &WorkflowExecutionInfo) -> String {
    let execution = found.execution.as_ref();
    execution
        .map(|execution| execution.run_id.clone())
        .unwrap_or_default()
}

/// The execution that a workflow began with, as far as the server tells.
fn first_execution(found: &WorkflowExecutionInfo) -> String {
    if found.first_run_id.is_empty() {
        run_id_of(found)
    } else {
        found.first_run_id.clone()
    }
}

/// Whether what was found is a later execution of the same workflow.
fn goes_on(found: &WorkflowExecutionInfo, workflow: &Workflow, asked: Option<&str>) -> bool {
    let ours = workflow
        .run_id
        .as_ref()
        .is_none_or(|first| *first == first_execution(found));
    let known = found.status != i32::from(WorkflowExecutionStatus::Unspecified);
    ours && known && asked != Some(run_id_of(found).as_str())
}

fn vanished(status: &Status) -> Waited {
    Waited::Closed(Closed::Vanished {
        words: status.message().to_owned(),
    })
}
