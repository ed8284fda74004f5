//! What holds for the Job as a whole. Each rule that has a module of its own is tested there.

mod credentials;
mod golden;
mod mounts;
mod pods;
mod precedence;
mod rejections;
mod runner_contract;
mod version_control;

use jangar_api::agents::{
    agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
    implementation_spec::ImplementationSpec, memory::Memory,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{BuiltJob, JobRequest, Place, build};
use crate::{decision::Rejection, settings::Settings, vcs::VersionControl};

/// A run with everything around it. What is large is boxed, so that tables of worlds can be written as arrays.
#[derive(Clone, Debug)]
struct World {
    run: Box<AgentRun>,
    agent: Box<Agent>,
    provider: Box<AgentProvider>,
    implementation: Box<ImplementationSpec>,
    memory: Option<Box<Memory>>,
    vcs: Option<Box<VersionControl>>,
    attempt: u32,
    settings: Box<Settings>,
}

impl World {
    /// As little as a run can be.
    fn minimal() -> Self {
        let mut settings = Settings::default();
        settings.runner.image = Some("registry.example/agent:1".to_owned());
        Self {
            run: Box::new(object(&json!({
                "metadata": {"name": "fix-1", "namespace": "agents", "uid": "uid-of-the-run"},
                "spec": {
                    "agentRef": {"name": "fixer"},
                    "implementationSpecRef": {"name": "fix-the-test"},
                    "runtime": {"type": "job"},
                },
            }))),
            agent: Box::new(object(&json!({
                "metadata": {"name": "fixer"},
                "spec": {"providerRef": {"name": "scripted"}},
            }))),
            provider: Box::new(object(&json!({
                "metadata": {"name": "scripted"},
                "spec": {"binary": "/bin/true"},
            }))),
            implementation: Box::new(object(&json!({
                "metadata": {"name": "fix-the-test"},
                "spec": {"text": "Make the test pass."},
            }))),
            memory: None,
            vcs: None,
            attempt: 1,
            settings: Box::new(settings),
        }
    }

    fn request(&self) -> JobRequest<'_> {
        JobRequest {
            run: &self.run,
            place: Place {
                step: 0,
                attempt: self.attempt,
            },
            step: None,
            agent: &self.agent,
            provider: &self.provider,
            implementation: &self.implementation.spec,
            implementation_ref: self.implementation.metadata.name.as_deref(),
            memory: self.memory.as_deref(),
            nats_auth: super::nats_auth(&self.agent, &self.settings),
            vcs: self.vcs.as_deref(),
            spec_hash: "hash-of-the-spec",
            admitted_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn build(&self) -> Result<BuiltJob, Rejection> {
        build(&self.request(), &self.settings)
    }

    fn built(&self) -> BuiltJob {
        self.build().expect("the Job is made")
    }

    fn pod(&self) -> PodSpec {
        self.built()
            .job
            .spec
            .expect("a spec")
            .template
            .spec
            .expect("a pod")
    }

    fn container(&self) -> Container {
        self.pod().containers.remove(0)
    }

    /// The content of one of the files that the pod finds.
    fn file(&self, item: &str) -> String {
        let built = self.built();
        if let Some(config_map) = built.config_map {
            return config_map.data.expect("data")[item].clone();
        }
        let template = built.job.spec.expect("a spec").template;
        let annotations = template
            .metadata
            .expect("metadata")
            .annotations
            .expect("annotations");
        annotations[&format!("agents.proompteng.ai/{item}")].clone()
    }

    fn document(&self, item: &str) -> Value {
        serde_json::from_str(&self.file(item)).expect("JSON")
    }

    /// The same, with fields of the run's spec replaced.
    fn with_run(mut self, fields: &Value) -> Self {
        self.run.spec = merged(&self.run.spec, fields);
        self
    }

    fn with_agent(mut self, fields: &Value) -> Self {
        self.agent.spec = merged(&self.agent.spec, fields);
        self
    }

    fn with_provider(mut self, fields: &Value) -> Self {
        self.provider.spec = merged(&self.provider.spec, fields);
        self
    }

    fn with_implementation(mut self, fields: &Value) -> Self {
        self.implementation.spec = merged(&self.implementation.spec, fields);
        self
    }

    fn with_config(self, config: &Value) -> Self {
        self.with_run(&json!({"runtime": {"type": "job", "config": config}}))
    }

    fn with_volumes(self, volumes: &Value) -> Self {
        self.with_run(&json!({"workload": {"volumes": volumes}}))
    }

    fn with_memory(mut self, secret: &str) -> Self {
        self.memory = Some(Box::new(object(&json!({
            "metadata": {"name": "notes", "namespace": "agents"},
            "spec": {"type": "postgres", "connection": {"secretRef": {"name": secret, "key": "url"}}},
        }))));
        self
    }

    /// The same for an operator who lets runs choose these service accounts and priority classes, and any security context.
    fn trusting(self, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.with_settings(|settings| {
            settings.policy.service_accounts_allowed.clone_from(&names);
            settings.policy.priority_classes_allowed = names;
            settings.policy.pod_security_restricted = false;
        })
    }

    fn with_settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}

/// An object from JSON, with its kind filled in.
fn object<K: kube::Resource<DynamicType = ()> + DeserializeOwned>(value: &Value) -> K {
    let mut value = value.clone();
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    serde_json::from_value(value).expect("a legal object")
}

/// A spec with some of its fields replaced.
fn merged<S: serde::Serialize + DeserializeOwned>(spec: &S, fields: &Value) -> S {
    let mut value = serde_json::to_value(spec).expect("serializes");
    let target = value.as_object_mut().expect("an object");
    target.extend(fields.as_object().expect("an object").clone());
    serde_json::from_value(value).expect("a legal spec")
}

/// A value of the types of Kubernetes as JSON, for comparison.
fn as_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("serializes")
}
