//! How the pods of runs look unless a run says otherwise.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodSecurityContext, Toleration, TopologySpreadConstraint};

use crate::as_given::AsGiven;

/// How the pods of runs look. Every field but `install` can be replaced by the run's `spec.runtime.config` or workload.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerSettings {
    /// The image of runs that name none.
    pub image: Option<String>,
    /// How agent-runner gets into a pod; absent where the node shows it to every container at its place.
    pub install: Option<Install>,
    pub service_account: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<AsGiven<Toleration>>,
    pub topology_spread_constraints: Vec<AsGiven<TopologySpreadConstraint>>,
    pub affinity: Option<AsGiven<Affinity>>,
    /// Absent: the restricted one.
    pub pod_security_context: Option<AsGiven<PodSecurityContext>>,
    pub priority_class: Option<String>,
    pub scheduler_name: Option<String>,
    pub image_pull_secrets: Vec<String>,
    /// With what agents show who they are to the service of their model; absent, they bring their own.
    pub auth_secret: Option<AuthSecret>,
    /// With what agents show who they are to NATS; absent, they bring their own.
    pub nats_auth: Option<NatsAuth>,
    /// How many more attempts a failed Job gets.
    pub backoff_limit: u32,
    /// Who makes the pods of Jobs and says how they ended.
    pub job_controller: JobController,
    /// How long a finished Job is kept; absent, until its run is deleted.
    pub job_ttl_seconds: Option<u32>,
    /// How long archived logs are kept; it does not change how long the Job is.
    pub log_retention_seconds: u32,
}

/// Who looks after the Jobs of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobController {
    /// The Job controller of Kubernetes, as after every other Job.
    #[default]
    Kubernetes,
    /// We do, where Kubernetes leaves it to us. Each Job takes the API server half as many writes.
    Jangar,
}

/// A file with credentials that every pod finds in a directory it can write to: agents keep their state beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSecret {
    /// Name of the Secret, in the namespace of the run.
    pub name: String,
    /// The key of the file in the Secret, and its name in the directory.
    pub key: String,
    /// The directory.
    pub mount_path: String,
}

impl AuthSecret {
    /// The directory, without a slash at its end.
    pub fn directory(&self) -> &str {
        self.mount_path.trim_end_matches('/')
    }

    /// Where the file is.
    pub fn path(&self) -> String {
        format!("{}/{}", self.directory(), self.key)
    }
}

/// A Secret with a user and a password for NATS, in the namespace of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsAuth {
    pub secret: String,
    pub username_key: String,
    pub password_key: String,
}

/// The init container that puts agent-runner into the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// An image that carries agent-runner.
    pub image: String,
    /// The command that, given a directory as its last argument, puts agent-runner there.
    pub command: Vec<String>,
}

impl Install {
    /// Takes agent-runner from an image that has it on its path.
    pub fn from_image(image: String) -> Self {
        Self {
            image,
            command: vec!["agent-runner".to_owned(), "install".to_owned()],
        }
    }
}

impl Default for RunnerSettings {
    fn default() -> Self {
        Self {
            image: None,
            install: Some(Install::from_image("ghcr.io/proompteng/jangar:latest".to_owned())),
            service_account: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            topology_spread_constraints: Vec::new(),
            affinity: None,
            pod_security_context: None,
            priority_class: None,
            scheduler_name: None,
            image_pull_secrets: Vec::new(),
            auth_secret: None,
            nats_auth: None,
            backoff_limit: 0,
            job_controller: JobController::Kubernetes,
            job_ttl_seconds: Some(600),
            log_retention_seconds: 604_800,
        }
    }
}
