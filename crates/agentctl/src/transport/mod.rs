//! The way to the cluster: the API server of the kubeconfig, or the control plane. Verbs know the operations of [`Transport`] and
//! nothing beyond it, so that each is written once, and says the same whatever answers.

pub mod grpc;
pub mod kube;
mod submission;

use futures::stream::BoxStream;
use jangar_api::{Kind, labels, names::label_value};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use self::submission::{Submission, Submitted};
use self::{
    grpc::Grpc,
    kube::{Kube, builtin},
};
use crate::{error::Error, object::Object};

/// Who asks, as the cluster knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

/// What became of something that is watched.
#[derive(Clone, Debug)]
pub enum Change {
    /// All that is there is told anew: whatever is not told until [`Change::Listed`] is gone.
    Relisting,
    /// It is there, like this.
    Seen(Object),
    /// It was deleted.
    Gone(Object),
    /// All that is there has been told.
    Listed,
    /// The line is disturbed. It is tried again, unless that cannot help.
    Trouble { words: String, hopeless: bool },
}

/// Changes as they come.
pub type Changes = BoxStream<'static, Change>;

/// What became of an object that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Created,
    Configured,
    Unchanged,
    /// Nobody knows how it was before: the caller may write it, and not read it.
    Somehow,
}

impl Applied {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Somehow => "applied",
        }
    }
}

/// How something is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    pub dry_run: bool,
    /// Takes fields over that belong to somebody else.
    pub force: bool,
}

/// Which objects are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Narrow<'a> {
    pub selector: Option<&'a str>,
    pub phase: Option<&'a str>,
    pub runtime: Option<&'a str>,
}

/// Which runs of the history are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish<'a> {
    pub phase: Option<&'a str>,
    /// Words that have to stand in it.
    pub search: Option<&'a str>,
    /// So many at most.
    pub limit: usize,
}

/// The first of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    pub objects: Vec<Object>,
    /// Whether there are more.
    pub more: bool,
}

/// A run that has pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl RunRef {
    /// By which labels its pods are found, or those of one step of its workflow.
    fn pod_selector(&self, step: Option<&str>) -> String {
        let key = match self.kind {
            Kind::ToolRun => labels::TOOL_RUN,
            _ => labels::AGENT_RUN,
        };
        let mut parts = vec![format!("{key}={}", label_value(&self.name))];
        parts.extend(step.map(|step| format!("{}={}", labels::STEP, label_value(step))));
        parts.join(",")
    }
}

/// Which part of a log is read. Each line comes with its time before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    pub container: Option<String>,
    pub follow: bool,
    pub tail: Option<u32>,
    pub since_seconds: Option<u32>,
    pub since_time: Option<Timestamp>,
}

/// Lines of a log as they come, until it ends.
pub type Lines = BoxStream<'static, Result<String, BreaksOff>>;

/// That a log goes on, and cannot be read further for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreaksOff;

/// Which part is read of what the history has of the logs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptPart<'a> {
    /// Absent: all that there are.
    pub pod: Option<&'a str>,
    pub step: Option<&'a str>,
    /// So many lines of each pod.
    pub tail: Option<u32>,
}

/// A line that the history has. No time stands before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptLine {
    pub text: String,
    pub pod: String,
    pub container: String,
    /// Of a workflow; empty elsewhere.
    pub step: String,
    /// Lines before it are missing.
    pub cut: bool,
}

/// Such lines, one pod after the other.
pub type KeptLines = BoxStream<'static, Result<KeptLine, Error>>;

/// Why a log cannot be read.
#[derive(Debug)]
pub enum LogTrouble {
    /// The pod is not there any more.
    Gone,
    /// The line broke. It can be tried again.
    Broken,
    Refused(Error),
}

/// What answers.
#[derive(Clone, Debug)]
pub enum Transport {
    /// The API server of Kubernetes.
    Kube(Kube),
    /// The control plane of Jangar.
    Grpc(Grpc),
}

impl Transport {
    /// That something is not as it has to be, with the code of whoever answers.
    pub fn trouble(&self, words: impl Into<String>) -> Error {
        match self {
            Self::Kube(_) => Error::Cluster(words.into()),
            Self::Grpc(_) => Error::Runtime(words.into()),
        }
    }

    /// Who answers, in words.
    pub const fn answering(&self) -> &'static str {
        match self {
            Self::Kube(_) => "the API server",
            Self::Grpc(_) => "the control plane",
        }
    }

    /// All objects of a kind, of one namespace or of all, by namespace and name.
    pub async fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        let narrow = Narrow {
            selector,
            ..Narrow::default()
        };
        self.list_narrow(kind, namespace, &narrow).await
    }

    /// The same of those that were asked for, as far as who answers can tell them apart: whoever asks has to look themselves.
    pub async fn list_narrow(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        narrow: &Narrow<'_>,
    ) -> Result<Vec<Object>, Error> {
        match self {
            // Kubernetes knows labels alone.
            Self::Kube(kube) => kube.list(kind, namespace, narrow.selector).await,
            Self::Grpc(grpc) => grpc.list(kind, namespace, narrow).await,
        }
    }

    /// The runs that the history has, the latest first, whether or not they are in the cluster any more.
    pub async fn list_history(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        wish: &Wish<'_>,
    ) -> Result<Listed, Error> {
        match self {
            Self::Kube(_) => Err(Error::Validation(
                "the history is the control plane's: give --grpc with --archived".to_owned(),
            )),
            Self::Grpc(grpc) => grpc.list_history(kind, namespace, wish).await,
        }
    }

    /// One object, which has to be there.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
        match self {
            Self::Kube(kube) => kube.get(kind, namespace, name).await,
            Self::Grpc(grpc) => grpc.get(kind, namespace, name).await,
        }
    }

    /// One object, if it is there.
    pub async fn find(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, Error> {
        found(self.get(kind, namespace, name).await)
    }

    /// Whether an object is gone that a list did not show: what answers lists may be a moment behind what was just made.
    pub async fn is_gone(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        matches!(self.find(kind, namespace, name).await, Ok(None))
    }

    /// A run that is gone from the cluster, if somebody remembers it: the control plane may.
    pub async fn remembered(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, Error> {
        match self {
            Self::Grpc(grpc) if kind.is_run() => found(grpc.get_or_remember(kind, namespace, name).await),
            Self::Kube(_) | Self::Grpc(_) => Ok(None),
        }
    }

    /// Creates an object; `None` if there is one of that name.
    pub async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Option<Object>, Error> {
        match self {
            Self::Kube(kube) => kube.create(kind, namespace, object).await,
            Self::Grpc(grpc) => grpc.create(kind, namespace, object).await,
        }
    }

    /// Makes a run, once for each key.
    pub async fn submit(&self, submission: &Submission<'_>) -> Result<Submitted, Error> {
        match self {
            Self::Kube(_) => {
                submission.without_policy()?;
                submission.create_once(self).await
            }
            // A submission has no room for a name or labels, so that the run is created as it was written.
            Self::Grpc(_) if submission.is_own || submission.kind == Kind::ToolRun => {
                submission.without_policy()?;
                submission.create_once(self).await
            }
            Self::Grpc(grpc) => grpc.submit(submission).await,
        }
    }

    /// Asks a run to stop.
    pub async fn cancel(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        reason: Option<&str>,
    ) -> Result<Object, Error> {
        match self {
            Self::Kube(kube) => {
                let mut spec = json!({"cancel": true});
                if let (Some(reason), Some(fields)) = (reason, spec.as_object_mut()) {
                    fields.insert("cancelReason".to_owned(), json!(reason));
                }
                kube.patch(kind, namespace, name, &json!({"spec": spec})).await
            }
            Self::Grpc(grpc) => grpc.cancel(kind, namespace, name, reason).await,
        }
    }

    /// Deletes an object.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
        match self {
            Self::Kube(kube) => kube.delete(kind, namespace, name).await,
            Self::Grpc(grpc) => grpc.delete(kind, namespace, name).await,
        }
    }

    /// Applies an object, in its own namespace or in the one given.
    pub async fn apply(
        &self,
        object: &Value,
        namespace: &str,
        options: ApplyOptions,
    ) -> Result<(Object, Applied), Error> {
        match self {
            Self::Kube(kube) => kube.apply(object, namespace, options).await,
            Self::Grpc(grpc) => grpc.apply(object, namespace, options).await,
        }
    }

    /// Follows the objects of a kind, or one by its name.
    pub fn watch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&str>,
    ) -> Changes {
        match self {
            Self::Kube(kube) => kube.watch(kind, namespace, name, selector),
            Self::Grpc(grpc) => grpc.watch(kind, namespace, name, selector),
        }
    }

    /// Who asks.
    pub async fn identity(&self) -> Result<Identity, Error> {
        match self {
            Self::Kube(kube) => kube.identity().await,
            Self::Grpc(grpc) => grpc.identity().await,
        }
    }

    /// The Events about an object.
    pub async fn events(&self, kind: Kind, object: &Object) -> Result<Vec<Object>, Error> {
        match self {
            Self::Kube(kube) => {
                let resource = builtin("", "v1", "Event", "events");
                let fields = format!("involvedObject.uid={}", object.uid());
                kube.list_any(&resource, Some(object.namespace()), None, Some(&fields))
                    .await
            }
            Self::Grpc(grpc) => grpc.events(kind, object).await,
        }
    }

    /// The pods of a run, or of one step of its workflow.
    pub async fn pods(&self, run: &RunRef, step: Option<&str>) -> Result<Vec<Object>, Error> {
        match self {
            Self::Kube(kube) => {
                let selector = run.pod_selector(step);
                kube.list_any(&pod_resource(), Some(&run.namespace), Some(&selector), None)
                    .await
            }
            Self::Grpc(grpc) => grpc.pods(run, step).await,
        }
    }

    /// Follows the pods of a run.
    pub fn watch_pods(&self, run: &RunRef, step: Option<&str>) -> Changes {
        match self {
            Self::Kube(kube) => {
                let selector = run.pod_selector(step);
                kube.watch_any(pod_resource(), Some(&run.namespace), None, Some(&selector))
            }
            Self::Grpc(grpc) => grpc.watch_pods(run, step),
        }
    }

    /// A pod of a run as it is now, if it is there.
    pub async fn find_pod(&self, run: &RunRef, pod: &Object) -> Result<Option<Object>, Error> {
        match self {
            Self::Kube(kube) => found(
                kube.get_any(&pod_resource(), Some(&run.namespace), pod.name())
                    .await,
            ),
            Self::Grpc(grpc) => match grpc.pods(run, None).await {
                Ok(pods) => Ok(pods.into_iter().find(|known| known.name() == pod.name())),
                // The run is gone, and its pods with it.
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            },
        }
    }

    /// What a container of a pod writes.
    pub async fn log(&self, run: &RunRef, pod: &str, part: &LogPart) -> Result<Lines, LogTrouble> {
        match self {
            Self::Kube(kube) => kube.log(&run.namespace, pod, part).await,
            Self::Grpc(grpc) => grpc.log(run, pod, part).await,
        }
    }

    /// What the history has of what the pods of a run wrote, if it has something.
    pub async fn kept_log(&self, run: &RunRef, part: &KeptPart<'_>) -> Result<Option<KeptLines>, Error> {
        match self {
            Self::Kube(_) => Ok(None),
            Self::Grpc(grpc) => grpc.kept_log(run, part).await,
        }
    }
}

fn found(object: Result<Object, Error>) -> Result<Option<Object>, Error> {
    match object {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn pod_resource() -> ::kube::api::ApiResource {
    builtin("", "v1", "Pod", "pods")
}
