//! Makes the Job of one attempt.
use jangar_api::agents::{
    agent::Agent, agent_provider::AgentProvider, agent_run::AgentRun,
    implementation_spec::ImplementationSpecSpec, memory::Memory,
};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};

use crate::{decision::Rejection, settings::RunnerSettings};

/// Everything the Job of an attempt is made from.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest<'a> {
    pub run: &'a AgentRun,
    /// Counted from one.
    pub attempt: u32,
    pub agent: &'a Agent,
    pub provider: &'a AgentProvider,
    pub implementation: &'a ImplementationSpecSpec,
    /// The name of the ImplementationSpec, where the run refers to one.
    pub implementation_ref: Option<&'a str>,
    pub memory: Option<&'a Memory>,
    /// Hash of the run's spec, by which a Job is recognised as this run's own.
    pub spec_hash: &'a str,
    /// When the run was let in; stamped on the Job.
    pub admitted_at: Timestamp,
}

/// A Job, and the ConfigMap it needs if its files are large.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltJob {
    pub job: Job,
    pub config_map: Option<ConfigMap>,
    pub system_prompt_hash: Option<String>,
    pub contract: Option<jangar_api::agents::agent_run_status::ContractStatus>,
}

/// Makes the Job, or says what is wrong with what it is made from.
pub fn build(request: &JobRequest<'_>, settings: &crate::settings::Settings) -> Result<BuiltJob, Rejection> {
    let _ = (request, settings);
    Err(Rejection::new(jangar_api::reason::Reason::SubmitFailed, ""))
}

pub const CONTAINER: &str = "agent-runner";
pub fn name(run: &str, attempt: u32) -> jangar_api::names::DnsLabel {
    jangar_api::names::DnsLabel::join(
        run,
        &if attempt <= 1 {
            "job".to_owned()
        } else {
            format!("job-attempt-{attempt}")
        },
    )
}
pub fn ttl_seconds(_: &AgentRun, settings: &RunnerSettings) -> Result<Option<u32>, Rejection> {
    Ok(settings.job_ttl_seconds)
}
pub fn attempts_allowed(_: &AgentRun, _: &Agent, settings: &RunnerSettings) -> Result<u32, Rejection> {
    Ok(1 + settings.backoff_limit)
}
