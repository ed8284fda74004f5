//! What must hold when nothing happens any more: nothing is left over, and nothing is stuck.

use std::collections::BTreeMap;

use jangar_api::{
    labels::{self, JOB_STATUS_FINALIZER},
    phase::RunPhase,
};
use kubelite::store::{Object, Store};
use serde_json::Value;

use super::{
    orchestrations,
    runs::{RunView, has_done_its_work},
};
use crate::{
    node::Work,
    world::{self, objects},
};

/// That it began, and how it ended. That a Job was gone, or a token could not be renewed, is told beside it.
const EVENTS_MAX: usize = 2;
const BESIDE: [&str; 4] = [
    "JobMissing",
    "WorkflowJobMissing",
    "WorkflowJobDeleted",
    "VcsAuthUnavailable",
];

/// The rules that the world breaks at rest. If somebody set the clock, an endpoint may have had no time to report.
pub fn broken(store: &Store, works: &[Work], clock_was_set: bool) -> Vec<String> {
    let mut found = Vec::new();
    let runs = world::all_runs();
    let runs = runs.iter().flat_map(|kind| objects(store, kind));
    let runs: Vec<RunView> = runs.map(|run| RunView::of(&run)).collect();
    let jobs = objects(store, &world::jobs());
    let unfinished = |uid: &str| runs.iter().any(|run| run.uid == uid && !run.phase.is_terminal());
    for run in &runs {
        if run.deleting {
            found.push(format!("run {} is deleted, and does not go", run.name));
        }
        let outside = works
            .iter()
            .any(|work| work.is_outside() && work.assignment.run_uid == run.uid);
        let had_no_time = clock_was_set && outside;
        if run.phase == RunPhase::Failed && !had_no_time && has_done_its_work(run, works) {
            found.push(format!(
                "run {} says that it failed, but its work ended well",
                run.name
            ));
        }
    }
    found.extend(orchestrations::broken_at_rest(store));
    for job in &jobs {
        let name = name(job);
        if job.meta.deleting {
            found.push(format!("job {name} is deleted, and does not go"));
        }
        let owner = job.meta.owners.iter().find(|owner| owner.controller);
        if is_held(job) && !owner.is_some_and(|owner| unfinished(&owner.uid)) {
            found.push(format!("job {name} is held for a run that has ended or is gone"));
        }
    }
    found.extend(pods_left_over(store, &jobs, &unfinished));
    // The only Secrets that carry the label of a run are those with its tokens.
    for secret in objects(store, &world::secrets()) {
        let labelled = secret.value()["metadata"]["labels"][labels::AGENT_RUN].is_string();
        let owner = secret.meta.owners.iter().find(|owner| owner.controller);
        if labelled && !owner.is_some_and(|owner| unfinished(&owner.uid)) {
            found.push(format!(
                "token {} is left of a run that has ended or is gone",
                name(&secret)
            ));
        }
    }
    for map in objects(store, &world::config_maps()) {
        let owner = map.meta.owners.iter().find(|owner| owner.controller);
        if owner.is_some_and(|owner| !runs.iter().any(|run| run.uid == owner.uid)) {
            found.push(format!("ConfigMap {} is left of a run that is gone", name(&map)));
        }
    }
    found.extend(too_many_events(store));
    for work in works.iter().filter(|work| work.is_running()) {
        if !unfinished(&work.assignment.run_uid) {
            found.push(format!(
                "pod {} still works for a run that has ended or is gone",
                work.pod
            ));
        }
    }
    found
}

/// Pods that live, or are held, for a run that has ended or is gone.
fn pods_left_over(store: &Store, jobs: &[Object], unfinished: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for pod in objects(store, &world::pods()) {
        let owner = pod.meta.owners.iter().find(|owner| owner.controller);
        let job = jobs
            .iter()
            .find(|job| owner.is_some_and(|owner| owner.uid == job.meta.uid));
        let run = job.and_then(|job| job.meta.owners.iter().find(|owner| owner.controller));
        if run.is_some_and(|run| unfinished(&run.uid)) {
            continue;
        }
        let phase = pod.value()["status"]["phase"].as_str().map(str::to_owned);
        if !matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            found.push(format!(
                "pod {} lives for a run that has ended or is gone",
                name(&pod)
            ));
        }
        if is_held(&pod) {
            found.push(format!(
                "pod {} is held for a run that has ended or is gone",
                name(&pod)
            ));
        }
    }
    found
}

/// Runs about which more was told than may be. Events are told by runs' UIDs: those of a deleted run stay.
fn too_many_events(store: &Store) -> Vec<String> {
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in objects(store, &world::events()) {
        let event = event.value();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of_run = matches!(event["regarding"]["kind"].as_str(), Some("AgentRun" | "ToolRun"));
        if of_run && !BESIDE.contains(&word(&event["reason"]).as_str()) {
            let of_run = told.entry(word(&event["regarding"]["uid"])).or_default();
            of_run.push(format!(
                "{} {}",
                word(&event["regarding"]["name"]),
                word(&event["reason"])
            ));
        }
    }
    let too_many = told.into_values().filter(|told| told.len() > EVENTS_MAX);
    too_many
        .map(|told| format!("more than {EVENTS_MAX} Events: {}", told.join(", ")))
        .collect()
}

/// Whether the finalizer is there that keeps a Job, or a pod, until its end is recorded.
fn is_held(object: &Object) -> bool {
    let mut finalizers = object.meta.finalizers.iter();
    finalizers.any(|finalizer| finalizer == JOB_STATUS_FINALIZER)
}

fn name(object: &Object) -> String {
    let value = object.value();
    value["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
