//! What a Job carries for the run's status, so that a controller that finds it again knows as much as the one that made it.

use jangar_api::{agents::agent_run_status::ContractStatus, labels};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::vcs::VcsStamp;

/// What was known when the Job was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// How many attempts the run has in all.
    pub attempts_allowed: u32,
    pub system_prompt_hash: Option<String>,
    pub contract: Option<ContractStatus>,
    /// What was decided about version control; absent if nobody asked for it.
    pub vcs: Option<VcsStamp>,
}

impl Stamp {
    /// Writes it on a Job that is to be created.
    pub(super) fn put_on(&self, job: &mut Job) {
        let annotations = job.annotations_mut();
        annotations.insert(labels::ATTEMPTS.to_owned(), self.attempts_allowed.to_string());
        if let Some(hash) = &self.system_prompt_hash {
            annotations.insert(labels::SYSTEM_PROMPT_HASH.to_owned(), hash.clone());
        }
        if let Some(Ok(contract)) = self.contract.as_ref().map(serde_json::to_string) {
            annotations.insert(labels::CONTRACT.to_owned(), contract);
        }
        if let Some(Ok(vcs)) = self.vcs.as_ref().map(serde_json::to_string) {
            annotations.insert(labels::VERSION_CONTROL.to_owned(), vcs);
        }
    }

    /// Reads it from a Job. What is missing or makes no sense is what a plain run has.
    pub(super) fn of(job: &Job) -> Self {
        let annotation = |key: &str| job.annotations().get(key);
        Self {
            attempts_allowed: annotation(labels::ATTEMPTS)
                .and_then(|text| text.parse().ok())
                .unwrap_or(1),
            system_prompt_hash: annotation(labels::SYSTEM_PROMPT_HASH).cloned(),
            contract: annotation(labels::CONTRACT).and_then(|text| serde_json::from_str(text).ok()),
            vcs: annotation(labels::VERSION_CONTROL).and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}
