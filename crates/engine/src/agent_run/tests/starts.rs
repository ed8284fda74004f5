//! From a new run to a working pod.

use std::collections::BTreeMap;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{World, object};
use crate::{
    decision::{Effect, KeyHolder, Keys, Occupant, Owner, Question, Refusal, Sight},
    settings::NatsAuth,
};

#[test]
fn a_new_run_gets_its_job_and_then_says_so() {
    let mut world = World::new();
    world.begun("mend-job");
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Running));
    let status = world.status();
    let reference = status.runtime_ref.expect("the Job is recorded");
    assert_eq!(reference.0["name"], json!("mend-job"));
    assert_eq!(reference.0["uid"], json!("job-1"));
    assert!(status.spec_hash.is_some());
    assert_eq!(
        world.condition(&ConditionType::Succeeded).status,
        ConditionStatus::Unknown
    );
    let told: Vec<_> = world.notices.iter().map(|notice| &notice.reason).collect();
    assert_eq!(told, [&Reason::Submitted]);
    assert!(world.questions.is_empty(), "a start needs no live read");
}

#[test]
fn a_run_that_works_is_left_alone() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Running"}))
        .settle();
    let before = world.status();
    world.wait(3600).settle();
    assert_eq!(world.status(), before);
    assert_eq!(world.deeds().len(), 1);
    assert_eq!(world.wake_at, None, "its pod will tell");
}

#[test]
fn a_job_that_was_made_before_a_crash_is_adopted() {
    let mut world = World::new();
    world.begun("mend-job");
    // The status was never written.
    world.edit(|run| run.status = None).settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_run_is_silent_only_while_its_job_cannot_go_away_unseen() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.statuses, 0, "its pod is about to start");
    // As if the clock had been an hour ahead when the Job was made.
    world.wait(-3600).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));

    let mut world = World::new();
    world.settle();
    world.change_job("mend-job", |job, _| job.metadata.finalizers = None);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_spec_that_is_changed_before_anything_was_told_stops_the_job_and_begins_no_other() {
    for enforced in [true, false] {
        let mut world = World::new();
        world.settings.runs.immutability_enforced = enforced;
        world.settle();
        // It becomes another kind of run, whose first Job would have another name.
        world.edit(|run| {
            run.spec.runtime.type_ = "workflow".into();
            run.spec.workflow = Some(object(json!({"steps": [{"name": "one"}, {"name": "two"}]})));
        });
        world.settle();
        assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"], "{enforced}");
        assert_ne!(world.phase(), Some(RunPhase::Failed), "its pod may still come");
    }
}

#[test]
fn a_job_of_somebody_else_is_not_taken_for_our_own() {
    let mut world = World::new();
    let foreign = object(
        json!({"metadata": {"name": "mend-job", "uid": "other", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "CronJob", "name": "mend", "uid": "cron", "controller": true},
        ]}}),
    );
    world
        .observed
        .jobs
        .insert("mend-job".to_owned(), std::sync::Arc::new(foreign));
    world.settle();
    assert!(world.deeds().is_empty());
    assert_eq!(world.condition(&ConditionType::Failed).reason, Reason::NameTaken);
}

#[test]
fn a_run_waits_for_the_job_of_an_earlier_run_of_its_name() {
    let mut world = World::new();
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world.edit(|run| {
        run.metadata.uid = Some("run-2".to_owned());
        run.status = None;
    });
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::PreviousJobTerminating
    );
    world.pods_vanish().settle();
    assert!(!world.is_held("mend-job"));
    world.observed.jobs.clear();
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn what_a_cache_does_not_show_is_asked_for() {
    let mut world = World::new();
    world.observed.references.agent = Sight::Unseen;
    world.observed.references.provider = None;
    world.settle();
    assert_eq!(world.questions, [Question::Agent("fixer".to_owned())]);
    assert!(world.deeds().is_empty());
    assert_eq!(world.phase(), Some(RunPhase::Pending));
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::MissingAgent
    );
}

#[test]
fn a_missing_reference_has_its_grace_and_then_fails_the_run() {
    let mut world = World::new();
    world.know_implementation(Sight::Absent);
    world.settle();
    let blocked = world.status();
    let deadline = world.wake_at.expect("the wait has an end");
    world.wait(59).settle();
    assert_eq!(world.status(), blocked, "waiting writes nothing");
    assert_eq!(world.wake_at, Some(deadline));
    world.wait(1).settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::MissingImplementation);
    assert!(invalid.message.contains("mend-it"), "{}", invalid.message);
    assert!(world.status().finished_at.is_some());
}

#[test]
fn a_reference_that_appears_in_time_lets_the_run_start() {
    let mut world = World::new();
    let provider = world.observed.references.provider.replace(Sight::Absent);
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Pending));
    world.observed.references.provider = provider;
    world.wait(30).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn a_runtime_that_is_not_built_is_refused_and_named() {
    let mut world = World::new();
    world.edit(|run| run.spec.runtime.type_ = "shell".into()).settle();
    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::UnsupportedRuntime);
    assert!(invalid.message.contains("shell"), "{}", invalid.message);
}

#[test]
fn a_job_that_the_api_server_refuses_fails_the_run_with_its_words() {
    let mut world = World::new();
    world.observed.refusal = Some(Refusal {
        code: 422,
        message: "spec.template.spec.topologySpreadConstraints[0]: duplicate".to_owned(),
    });
    world.settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::JobRejected);
    assert!(failed.message.contains("duplicate"));
}

#[test]
fn a_quota_makes_the_run_wait_and_try_again() {
    let mut world = World::new();
    world.observed.refusal = Some(Refusal {
        code: 403,
        message: "exceeded quota: jobs".to_owned(),
    });
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::JobForbidden
    );
    assert!(world.wake_at.is_some());
    world.observed.refusal = None;
    world.wait(30).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_pod_that_cannot_be_placed_shows_the_words_of_the_scheduler() {
    let mut world = World::new();
    world.settle().pod(
        "mend-job",
        &json!({"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
        }]}),
    );
    world.wait(4).settle();
    assert_eq!(world.statuses, 0, "a quick start costs no write");
    assert!(world.wake_at.is_some());
    world.wait(1).settle();
    assert_eq!(world.statuses, 1, "that it has a Job, and what its pod lacks");
    assert_eq!(world.phase(), Some(RunPhase::Running));
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::PodWaiting);
    assert!(blocked.message.contains("0/3 nodes are available"));
    world.pod("mend-job", &json!({"phase": "Running"})).settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).status,
        ConditionStatus::False
    );
}

#[test]
fn an_image_that_cannot_be_had_fails_the_run_after_its_pod_is_gone() {
    let mut world = World::new();
    let waiting = json!({"phase": "Pending", "containerStatuses": [{
        "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }]});
    world
        .settle()
        .pod("mend-job", &waiting)
        .wait(10)
        .settle()
        .wait(299)
        .settle();
    assert_eq!(
        world.condition(&ConditionType::Blocked).reason,
        Reason::ImageUnavailable
    );
    world.wait(1).settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    assert_eq!(world.phase(), Some(RunPhase::Running), "its pod is still there");
    // A warning is for people: something else may be worth one meanwhile.
    world.edit(|run| run.status.as_mut().expect("a status").common.conditions.clear());
    world.pods_vanish().settle();
    let failed = world.condition(&ConditionType::Failed);
    assert_eq!(failed.reason, Reason::ImageUnavailable);
    assert!(failed.message.contains("no such image"));
    assert!(!world.is_held("mend-job"));
}

#[test]
fn an_accepted_spec_that_was_changed_stops_the_run() {
    let mut world = World::new();
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world
        .edit(|run| run.spec.agent_ref.name = "somebody-else".to_owned())
        .settle();
    assert_eq!(world.deeds(), ["create mend-job", "stop mend-job"]);
    world.pods_vanish().settle();
    assert_eq!(
        world.condition(&ConditionType::Failed).reason,
        Reason::SpecImmutableViolation
    );
}

#[test]
fn a_changed_spec_is_only_warned_about_where_that_is_set() {
    let mut world = World::new();
    world.settings.runs.immutability_enforced = false;
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world
        .edit(|run| run.spec.agent_ref.name = "somebody-else".to_owned())
        .settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(
        world.condition(&ConditionType::Warning).reason,
        Reason::SpecImmutableViolation
    );
}

#[test]
fn the_job_carries_what_keeps_it_from_vanishing_or_running_twice() {
    let mut world = World::new();
    world.settle();
    let job = &world.observed.jobs["mend-job"];
    assert!(world.is_held("mend-job"));
    let spec = job.spec.as_ref().expect("a spec");
    assert_eq!(spec.backoff_limit, Some(0));
    assert_eq!(spec.ttl_seconds_after_finished, None);
    assert_eq!(spec.pod_replacement_policy.as_deref(), Some("Failed"));
    let owner = &job.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("run-1", Some(true)));
    let created: Option<&Time> = job.metadata.creation_timestamp.as_ref();
    assert!(created.is_some());
}

#[test]
fn the_two_wordings_of_one_trouble_are_one_write() {
    let mut world = World::new();
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": reason}},
        }]})
    };
    world
        .settle()
        .pod("mend-job", &waiting("ErrImagePull"))
        .wait(20)
        .settle();
    let told = world.status();
    world
        .pod("mend-job", &waiting("ImagePullBackOff"))
        .wait(20)
        .settle();
    assert_eq!(world.status(), told);
}

#[test]
fn the_time_before_a_pod_had_a_node_does_not_count_against_its_image() {
    let mut world = World::new();
    world.settle().wait(600);
    let scheduled = Time(world.now);
    world.pod(
        "mend-job",
        &json!({"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}],
            "containerStatuses": [{
                "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ErrImagePull"}},
            }],
        }),
    );
    world.settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
    assert!(world.wake_at.is_some());
}

#[test]
fn what_a_run_waited_for_is_not_said_of_it_any_more_when_it_works() {
    let mut world = World::new();
    world
        .settle()
        .pod("mend-job", &json!({"phase": "Pending"}))
        .wait(20)
        .settle();
    assert_eq!(
        world.condition(&ConditionType::Progressing).reason,
        Reason::PodWaiting
    );
    world.pod("mend-job", &json!({"phase": "Running"})).settle();
    let status = world.status();
    let waiting = status.common.conditions.iter().filter(|condition| {
        condition.reason == Reason::PodWaiting && condition.status == ConditionStatus::True
    });
    assert_eq!(waiting.count(), 0, "{status:#?}");
}

#[test]
fn an_attempt_that_was_made_is_not_made_again_when_the_status_forgot_it() {
    let mut world = World::new();
    world.settings.runner.backoff_limit = 1;
    world
        .settle()
        .pod_ended("mend-job", 1, &json!({"version": 1}))
        .settle();
    world.now = world.wake_at.expect("a retry has its time");
    world
        .settle()
        .pod("mend-job-attempt-2", &json!({"phase": "Running"}));
    world.observed.jobs.remove("mend-job");
    world
        .edit(|run| run.status.as_mut().expect("a status").runtime_ref = None)
        .settle();
    assert!(!world.observed.jobs.contains_key("mend-job"));
    assert_eq!(world.deeds().len(), 3);
}

#[test]
fn a_reference_that_cannot_be_read_is_named_with_its_field_and_waited_for() {
    let mut world = World::new();
    let mended = world.observed.references.agent.clone();
    let words = "spec.env[0].value: invalid type: integer `5`, expected a string";
    world.observed.references.agent = Sight::Illegible(words.to_owned());
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Pending));
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::UnreadableReference);
    for part in ["spec.agentRef.name", "Agent fixer", words, "mend it before"] {
        assert!(blocked.message.contains(part), "{}", blocked.message);
    }
    assert!(world.questions.is_empty(), "it is known to be there");

    world.observed.references.agent = mended;
    world.wait(30).settle();
    assert_eq!(world.phase(), Some(RunPhase::Running));
}

#[test]
fn a_reference_that_stays_illegible_ends_the_run_after_its_grace() {
    let mut world = World::new();
    world.observed.references.provider = Some(Sight::Illegible("spec.binary: missing".to_owned()));
    world.settle();
    world.now = world.wake_at.expect("the grace has an end");
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::UnreadableReference);
    assert!(
        invalid.message.contains("AgentProvider scripted"),
        "{}",
        invalid.message
    );
}

#[test]
fn files_of_somebody_else_are_named_and_waited_for() {
    for (owner, part) in [
        (None, "delete that ConfigMap"),
        (Some(("Deployment", "web")), "belongs to Deployment web"),
        (Some(("AgentRun", "mend")), "an earlier run of this name"),
    ] {
        let mut world = World::new();
        world.observed.occupant = Some(Occupant {
            name: "mend-spec".to_owned(),
            owner: owner.map(|(kind, name)| Owner {
                kind: kind.to_owned(),
                name: name.to_owned(),
            }),
        });
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Pending));
        let blocked = world.condition(&ConditionType::Blocked);
        assert_eq!(blocked.reason, Reason::NameTaken);
        assert!(blocked.message.contains("mend-spec"), "{}", blocked.message);
        assert!(blocked.message.contains(part), "{}", blocked.message);

        world.now = world.wake_at.expect("it is looked for again");
        world.observed.occupant = None;
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Running));
    }
}

fn keys(names: &[&str]) -> Keys {
    let hash = |name: &&str| ((*name).to_owned(), format!("hash of {name}"));
    Keys::Of(names.iter().map(hash).collect::<BTreeMap<_, _>>())
}

/// A run whose system prompt is kept in a ConfigMap.
fn prompted() -> (World, KeyHolder) {
    let mut world = World::new();
    world.edit(|run| {
        run.spec.system_prompt_ref = Some(object(
            json!({"kind": "ConfigMap", "name": "prompts", "key": "careful"}),
        ));
    });
    (world, KeyHolder::ConfigMap("prompts".to_owned()))
}

#[test]
fn a_system_prompt_that_is_not_there_is_waited_for_and_its_hash_is_recorded() {
    for (there, part) in [
        (None, "ConfigMap prompts, which does not exist"),
        (
            Some(keys(&["hasty"])),
            "careful of ConfigMap prompts, which has no such key",
        ),
    ] {
        let (mut world, holder) = prompted();
        world.key_holders.extend(there.map(|keys| (holder.clone(), keys)));
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Pending));
        let blocked = world.condition(&ConditionType::Blocked);
        assert_eq!(blocked.reason, Reason::MissingSystemPromptRef);
        assert!(blocked.message.contains(part), "{}", blocked.message);
        assert!(world.deeds().is_empty());

        world.key_holders.insert(holder, keys(&["careful"]));
        world.now = world.wake_at.expect("nothing tells when it comes");
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Running));
        assert_eq!(
            world.status().system_prompt_hash.as_deref(),
            Some("hash of careful")
        );
    }
}

#[test]
fn a_system_prompt_that_does_not_come_ends_the_run_after_its_grace() {
    let (mut world, _) = prompted();
    world.settle();
    while world.phase() == Some(RunPhase::Pending) {
        world.now = world.wake_at.expect("the grace has an end");
        world.settle();
    }
    assert_eq!(world.phase(), Some(RunPhase::Failed));
    let invalid = world.condition(&ConditionType::InvalidSpec);
    assert_eq!(invalid.reason, Reason::MissingSystemPromptRef);
    assert!(world.status().finished_at.is_some());
}

#[test]
fn a_system_prompt_that_we_may_not_look_at_is_left_to_the_pod() {
    let (mut world, holder) = prompted();
    world.key_holders.insert(holder, Keys::Forbidden);
    world.begun("mend-job");
    assert_eq!(world.phase(), Some(RunPhase::Running));
    assert_eq!(world.status().system_prompt_hash, None);
}

#[test]
fn the_user_for_nats_is_given_only_if_the_secret_has_both_of_its_keys() {
    for (there, given) in [
        (keys(&["username", "password"]), true),
        (keys(&["username"]), false),
        (Keys::Absent, false),
        (Keys::Forbidden, false),
    ] {
        let mut world = World::new();
        world.settings.runner.nats_auth = Some(NatsAuth {
            secret: "nats".to_owned(),
            username_key: "username".to_owned(),
            password_key: "password".to_owned(),
        });
        world
            .key_holders
            .insert(KeyHolder::Secret("nats".to_owned()), there);
        world.begun("mend-job");
        assert_eq!(world.phase(), Some(RunPhase::Running));
        let Effect::CreateJob(job) = &world.done[0] else {
            panic!("{:?}", world.done);
        };
        let text = serde_json::to_string(job).expect("JSON");
        assert_eq!(text.contains("NATS_PASSWORD"), given);
    }
}

fn waiting(reason: &str, message: &str) -> serde_json::Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }]})
}

#[test]
fn what_a_node_says_while_it_starts_a_pod_is_passed_on() {
    let mut world = World::new();
    let words = "MountVolume.SetUp failed for volume \"keys\" : secret \"keys\" not found";
    world
        .settle()
        .pod("mend-job", &waiting("ContainerCreating", words))
        .wait(10)
        .settle();
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(blocked.reason, Reason::PodWaiting);
    assert!(blocked.message.contains(words), "{}", blocked.message);
}

#[test]
fn a_configuration_that_is_not_there_is_not_called_an_image() {
    for reason in ["CreateContainerConfigError", "CreateContainerError"] {
        let mut world = World::new();
        let words = "secret \"keys\" not found";
        world
            .settle()
            .pod("mend-job", &waiting(reason, words))
            .wait(10)
            .settle()
            .wait(299)
            .settle();
        let blocked = world.condition(&ConditionType::Blocked);
        assert_eq!(blocked.reason, Reason::ConfigurationUnavailable);
        assert!(blocked.message.contains(words), "{}", blocked.message);
        assert!(!blocked.message.contains("image"), "{}", blocked.message);
        world.wait(1).settle().pods_vanish().settle();
        let failed = world.condition(&ConditionType::Failed);
        // The word that is public for both; the message tells them apart.
        assert_eq!(failed.reason, Reason::ImageUnavailable);
        assert_eq!(failed.message, blocked.message);
    }
}

#[test]
fn run_that_a_constraint_of_its_own_does_not_count_is_warned_and_goes_on() {
    let zone = |labels: &Value| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels},
        }]})
    };
    let labels = |agent: &str| json!({"agents.proompteng.ai/agent": agent});
    for (labels, warned) in [(labels("fixer"), false), (labels("fixre"), true)] {
        let mut world = World::new();
        world.edit(|run| run.spec.runtime.config = Some(object(zone(&labels))));
        world.begun("mend-job");
        assert_eq!(world.phase(), Some(RunPhase::Running));
        let status = world.status();
        let warning = status.common.condition(&ConditionType::Warning);
        let told = warning.is_some_and(|warning| warning.reason == Reason::SpreadCountsOthers);
        assert_eq!(told, warned, "{labels}: {warning:?}");
    }
}
