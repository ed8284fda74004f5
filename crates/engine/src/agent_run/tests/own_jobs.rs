//! Jobs that Kubernetes leaves to us: their pods are made here, and what became of them is told.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    labels::{JOB_CONTROLLER, JOB_STATUS_FINALIZER},
    phase::RunPhase,
    reason::Reason,
};
use k8s_openapi::{
    api::{batch::v1::JobStatus, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::World;
use crate::{
    decision::{Effect, PodSight, Refusal, Uid},
    settings::JobController,
};

const JOB: &str = "mend-job";
const POD: &str = "mend-job-job1";

fn world() -> World {
    let mut world = World::new();
    world.settings.runner.job_controller = JobController::Jangar;
    world
}

/// A run whose pod works, and which says so.
fn at_work() -> World {
    let mut world = world();
    world.begun(JOB);
    world
}

fn pod_of(world: &World) -> Pod {
    let sight = world.observed.pods.values().next().expect("it has a pod");
    sight.pods().first().expect("it has a pod").as_ref().clone()
}

fn change_pod(world: &mut World, change: impl FnOnce(&mut Pod)) {
    let mut pod = pod_of(world);
    change(&mut pod);
    let pods = PodSight::Cached(vec![pod.into()]);
    world.observed.pods.insert(Uid("job-1".to_owned()), pods);
}

fn is_held(pod: &Pod) -> bool {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|name| name == JOB_STATUS_FINALIZER)
}

fn told(world: &World) -> JobStatus {
    world.observed.jobs[JOB].status.clone().unwrap_or_default()
}

fn conditions(world: &World) -> Vec<(String, String)> {
    let conditions = told(world).conditions.unwrap_or_default();
    conditions
        .into_iter()
        .map(|condition| (condition.type_, condition.reason.unwrap_or_default()))
        .collect()
}

#[test]
fn the_pod_of_a_job_is_made_from_its_template_and_held() {
    let mut world = world();
    world.settle();

    assert_eq!(world.deeds(), ["create mend-job", "create mend-job-job1"]);
    let job = world.observed.jobs[JOB].as_ref();
    let spec = job.spec.clone().expect("a Job has a spec");
    assert_eq!(spec.managed_by.as_deref(), Some(JOB_CONTROLLER));
    let pod = pod_of(&world);
    assert_eq!(pod.spec, spec.template.spec);
    let template = spec.template.metadata.unwrap_or_default();
    assert_eq!(pod.metadata.labels, template.labels);
    assert_eq!(pod.metadata.annotations, template.annotations);
    assert!(is_held(&pod));
    let owner = &pod.metadata.owner_references.expect("its Job owns it")[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("job-1", Some(true)));
    assert_eq!(owner.block_owner_deletion, Some(true));
}

#[test]
fn a_job_is_left_to_kubernetes_unless_the_settings_say_otherwise() {
    let mut world = World::new();
    world.settle();

    assert_eq!(world.deeds(), ["create mend-job"]);
    let spec = world.observed.jobs[JOB].spec.clone().expect("a Job has a spec");
    assert_eq!(spec.managed_by, None);
}

/// It would be made from what we can read of the Job, which is not all of it.
#[test]
fn a_job_with_fields_that_our_types_do_not_know_is_left_to_kubernetes() {
    let mut world = world();
    world.edit(|run| {
        let config = json!({"tolerations": [{"key": "spot", "ofTomorrow": true}]});
        run.spec.runtime.config = serde_json::from_value(config).expect("a config");
    });
    world.settle();

    assert_eq!(world.deeds(), ["create mend-job"]);
}

/// An API server that does not know the field drops it.
#[test]
fn a_job_that_the_api_server_did_not_leave_to_us_is_left_to_kubernetes() {
    let mut world = world();
    world.settle();
    world.observed.pods.clear();
    world.change_job(JOB, |job, _| job.spec.get_or_insert_default().managed_by = None);
    world.wait(3).settle();

    assert_eq!(world.deeds().len(), 2, "no pod is made beside that of Kubernetes");
}

#[test]
fn a_job_tells_that_its_pod_is_there_when_its_run_does() {
    let mut world = world();
    world.settle();
    assert_eq!(told(&world), JobStatus::default(), "it may be over in a moment");
    world.pod(JOB, &json!({"phase": "Running"})).settle();

    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(world.deeds()[2..], ["tell mend-job"]);
    let told = told(&world);
    assert_eq!(told.active, Some(1));
    assert_eq!(told.start_time, pod_of(&world).metadata.creation_timestamp);
}

#[test]
fn a_job_that_went_well_says_so_before_it_is_let_go() {
    let mut world = at_work();
    world.wait(60).pod_ended(JOB, 0, &json!({})).settle();

    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
    let expected = [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "CompletionsReached"),
    ];
    assert_eq!(
        conditions(&world),
        expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    let told = told(&world);
    assert_eq!(
        (told.active, told.succeeded, told.failed),
        (Some(0), Some(1), None)
    );
    assert_eq!(told.completion_time, Some(Time(world.now)));
    assert!(!world.is_held(JOB));
    assert!(!is_held(&pod_of(&world)));
}

#[test]
fn a_job_that_failed_says_why() {
    let disrupted =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    for (conditions_of_pod, reason) in [
        (json!([]), "BackoffLimitExceeded"),
        (disrupted, "PodFailurePolicy"),
    ] {
        let mut world = at_work();
        world.settings.runner.backoff_limit = 0;
        world.pod_ended(JOB, 3, &json!({}));
        change_pod(&mut world, |pod| {
            let status = pod.status.get_or_insert_default();
            status.conditions = serde_json::from_value(conditions_of_pod).expect("conditions");
        });
        world.settle();

        let said: Vec<_> = conditions(&world);
        assert_eq!(
            said,
            [("FailureTarget", reason), ("Failed", reason)].map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        assert_eq!(told(&world).failed, Some(1));
        assert!(!is_held(&pod_of(&world)));
    }
}

/// A status is written in one go, and its parts have to agree: nothing ends before it begins.
#[test]
fn a_pod_that_ends_in_the_second_in_which_it_was_made_does_not_end_before_it_began() {
    let mut world = world();
    world.settle().pod_ended(JOB, 0, &json!({})).settle();

    let told = told(&world);
    let (start, end) = (
        told.start_time.expect("a start"),
        told.completion_time.expect("an end"),
    );
    assert!(start.0 <= end.0, "{start:?} {end:?}");
}

/// Somebody took our finalizer from it and deleted it. What it did may have been done.
#[test]
fn a_pod_that_was_taken_away_is_not_made_again() {
    let mut told = at_work();
    told.pods_vanish().settle();
    let mut untold = world();
    untold.settle().pods_vanish();
    untold.observed.lost_pods.insert(Uid("job-1".to_owned()));
    untold.settle();

    for mut world in [told, untold] {
        // A request of ours may still be on its way.
        world.wait(15).settle();
        assert_eq!(
            world
                .deeds()
                .iter()
                .filter(|deed| *deed == &format!("create {POD}"))
                .count(),
            1
        );
        assert_eq!(world.phase(), Some(RunPhase::Failed));
        let succeeded = world.condition(&ConditionType::Succeeded);
        assert_eq!(succeeded.reason, Reason::JobMissing);
        assert!(
            succeeded.message.contains("somebody took the finalizer"),
            "{}",
            succeeded.message
        );
        assert!(!world.is_held(JOB));
    }
}

/// A cache that does not show it proves nothing.
#[test]
fn a_pod_that_a_cache_does_not_show_is_looked_for_before_it_counts_as_gone() {
    let mut world = at_work();
    let uid = Uid("job-1".to_owned());
    let sight = world.observed.pods.remove(&uid).expect("its pod");
    world.hidden_pods.insert(uid, sight.pods().to_vec());
    world.settle();

    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_pod_that_a_quota_keeps_out_is_waited_for_and_tried_again() {
    let mut world = world();
    world.settle().pods_vanish();
    world.observed.refusal = Some(Refusal {
        code: 403,
        message: "exceeded quota".to_owned(),
    });
    world.wait(20).settle();

    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.status, ConditionStatus::True);
    assert!(
        blocked
            .message
            .contains("does not let the pod of the run in: exceeded quota"),
        "{}",
        blocked.message
    );
    assert!(
        world.wake_at.is_some_and(|at| at > world.now),
        "no event tells when there is room"
    );
    world.observed.refusal = None;
    world.wait(30).settle();
    assert_eq!(
        world.deeds()[1..3],
        [format!("create {POD}"), format!("create {POD}")]
    );
}

#[test]
fn a_pod_that_the_api_server_never_takes_ends_the_run() {
    let mut world = world();
    world.settle().pods_vanish();
    world.observed.refusal = Some(Refusal {
        code: 422,
        message: "spec.containers: Required value".to_owned(),
    });
    world.settle();
    // A request of ours may still be on its way.
    world.wait(15).settle();

    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let succeeded = world.condition(&ConditionType::Succeeded);
    assert!(
        succeeded.message.contains("spec.containers: Required value"),
        "{}",
        succeeded.message
    );
}

#[test]
fn the_pod_of_a_cancelled_run_is_let_go_when_its_job_is_deleted() {
    let mut world = at_work();
    world.edit(|run| run.spec.stop.cancel = true);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert!(!is_held(&pod_of(&world)), "Kubernetes could not remove it");
    world.pods_vanish().settle();

    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert!(!world.is_held(JOB));
}

#[test]
fn no_pod_is_made_for_a_run_that_is_being_stopped() {
    let stopped = |stop: fn(&mut World)| {
        let mut world = world();
        world.round();
        world.round();
        assert_eq!(
            world.deeds(),
            ["create mend-job"],
            "its Job is there, and no pod yet"
        );
        stop(&mut world);
        world.settle();
        world.deeds()
    };
    let cancelled = stopped(|world| {
        world.edit(|run| run.spec.stop.cancel = true);
    });
    let deleted = stopped(|world| world.observed.run = None);
    let job_deleted = stopped(|world| {
        world.change_job(JOB, |job, now| job.metadata.deletion_timestamp = Some(Time(now)));
    });
    for deeds in [cancelled, deleted, job_deleted] {
        assert!(!deeds.contains(&format!("create {POD}")), "{deeds:?}");
    }
}

/// Whoever deletes a Job and wants its pod to live on, or takes the Job away by force, does not leave a pod that can never go.
#[test]
fn a_pod_whose_job_is_gone_is_let_go() {
    let mut world = at_work();
    world.job_robbed(JOB);
    world.observed.run = None;
    world.settle();

    assert!(!is_held(&pod_of(&world)));
}

#[test]
fn a_pod_that_was_not_let_go_with_its_job_is_let_go_later() {
    let mut world = at_work();
    world.pod_ended(JOB, 0, &json!({})).settle();
    change_pod(&mut world, |pod| {
        pod.metadata.finalizers = Some(vec![JOB_STATUS_FINALIZER.to_owned()]);
    });
    world.settle();

    assert_eq!(world.deeds().last(), Some(&format!("release {POD}")));
}

/// What is told of a Job, and what is done to its pods, in the order in which it is done.
#[test]
fn a_job_tells_its_end_before_its_pod_may_go() {
    let mut world = at_work();
    world.pod_ended(JOB, 0, &json!({})).settle();

    let Some(Effect::ReleaseJob {
        kept: Some(settlement),
        ..
    }) = world.done.last()
    else {
        panic!("the Job is let go last: {:?}", world.deeds());
    };
    let settlement: Value = serde_json::to_value(settlement).expect("a plan can be printed");
    assert_eq!(settlement["status"]["succeeded"], 1);
    assert_eq!(settlement["pods"][0]["pod"]["name"], POD);
}

/// Whatever our clock says: the API server refuses an end before the start, and another start.
#[test]
fn a_job_that_began_ahead_of_our_clock_ends_no_sooner_than_it_began() {
    let mut world = at_work();
    let start = told(&world).start_time;
    world.wait(-3600).pod_ended(JOB, 0, &json!({})).settle();

    let told = told(&world);
    assert_eq!(told.start_time, start);
    assert_eq!(told.completion_time, start);
}

/// It would count as work that is under way, for ever.
#[test]
fn a_job_whose_pod_is_gone_says_that_it_failed_before_the_next_attempt() {
    let mut world = world();
    world.edit(|run| {
        let workflow = json!({"steps": [{"name": "only", "onJobMissing": "Retry", "retries": 1}]});
        run.spec.workflow = serde_json::from_value(workflow).expect("a workflow");
        run.spec.runtime = serde_json::from_value(json!({"type": "workflow"})).expect("a runtime");
    });
    world.settle();
    let (job, uid) = {
        let (name, job) = world.observed.jobs.iter().next().expect("its first Job");
        (name.clone(), job.metadata.uid.clone().expect("a UID"))
    };
    world.pod(&job, &json!({"phase": "Running"})).settle();
    world.observed.pods.insert(Uid(uid), PodSight::Cached(Vec::new()));
    world.settle().wait(15).settle();

    let first = world.observed.jobs[&job].status.clone().unwrap_or_default();
    let conditions = first.conditions.unwrap_or_default();
    let said: Vec<_> = conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(said, ["FailureTarget", "Failed"], "{:?}", world.deeds());
    assert_eq!((first.active, first.failed), (Some(0), Some(1)));
    assert!(!world.is_held(&job));
    assert_eq!(world.observed.jobs.len(), 2, "{:?}", world.deeds());
}

/// Somebody took our finalizer from it, so that nobody lets it go. Without an end it would be kept for ever.
#[test]
fn a_job_that_is_not_held_any_more_says_how_it_ended_all_the_same() {
    let mut world = at_work();
    world.change_job(JOB, |job, _| job.metadata.finalizers = None);
    world.pod_ended(JOB, 0, &json!({})).settle();

    assert_eq!(told(&world).succeeded, Some(1));
    assert!(!is_held(&pod_of(&world)));
}

/// It may be all that tells how the attempt went.
#[test]
fn a_pod_that_works_is_not_let_go_because_its_job_was() {
    let mut world = at_work();
    world.change_job(JOB, |job, _| job.metadata.finalizers = None);
    world.settle();

    assert!(is_held(&pod_of(&world)));
}

/// Whoever deletes a run and not what it made wants that to go on.
#[test]
fn the_job_of_a_run_that_was_deleted_without_it_gets_its_pod_and_its_end() {
    let mut world = world();
    world.round();
    world.round();
    assert_eq!(
        world.deeds(),
        ["create mend-job"],
        "its Job is there, and no pod yet"
    );
    world.observed.run = None;
    world.change_job(JOB, |job, _| job.metadata.owner_references = None);
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "create mend-job-job1"]);
    assert!(world.is_held(JOB), "nobody else would say how it ended");
    world.pod_ended(JOB, 0, &json!({})).settle();

    assert_eq!(told(&world).succeeded, Some(1));
    assert!(!world.is_held(JOB));
    assert!(!is_held(&pod_of(&world)));
}

#[test]
fn a_suspended_job_gets_no_pod_before_it_goes_on() {
    let mut world = world();
    world.round();
    world.round();
    world.change_job(JOB, |job, _| {
        job.spec.get_or_insert_default().suspend = Some(true);
    });
    world.wait(20).settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::PodWaiting
    );
    world.change_job(JOB, |job, _| {
        job.spec.get_or_insert_default().suspend = Some(false);
    });
    world.settle();

    assert_eq!(world.deeds()[1], format!("create {POD}"));
}

/// The agent has to stop, whether or not the API server takes what is told of its Job.
#[test]
fn the_pod_of_a_deleted_run_is_deleted_before_anything_is_told() {
    let mut world = world();
    world.settle();
    world.observed.run = None;
    world.change_job(JOB, |job, now| job.metadata.deletion_timestamp = Some(Time(now)));
    world.settle();

    assert_eq!(
        world.deeds()[2..],
        [
            format!("delete {POD}"),
            format!("tell {JOB}"),
            format!("release {POD}")
        ]
    );
}

/// No watch tells of its end: its label is gone.
#[test]
fn a_pod_that_no_cache_shows_is_looked_at_again_without_an_event() {
    let mut world = at_work();
    let uid = Uid("job-1".to_owned());
    let sight = world.observed.pods.remove(&uid).expect("its pod");
    world.hidden_pods.insert(uid, sight.pods().to_vec());
    world.settle();

    assert!(world.wake_at.is_some_and(|at| at > world.now));
}
