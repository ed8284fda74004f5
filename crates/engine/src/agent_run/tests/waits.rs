//! Everything that a run can wait for: it says why in its condition, and doing what the sentence says ends it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use jiff::ToSpan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    World, custom, object,
    workflows::{FIRST, done, workflow},
};
use crate::{
    custom::call::Purpose,
    decision::{KeyHolder, Keys, Occupant, Owner, Refusal, Sight},
    queue::{Answer, Demand, Scope},
    settings::AuthSecret,
    waiting::{Full, Gate, Waiting},
};

/// The run waits for this reason, and says what ends it.
fn assert_waits(world: &World, reason: &Reason, remedy: &str) {
    let blocked = world.condition(&ConditionType::Blocked);
    assert_eq!(
        (&blocked.status, &blocked.reason),
        (&ConditionStatus::True, reason)
    );
    assert!(blocked.message.contains(remedy), "{}", blocked.message);
}

/// The wait is over, and nothing says otherwise.
fn assert_runs(world: &World) {
    assert_eq!(world.phase(), Some(RunPhase::Running));
    let status = world.status();
    let blocked = status.common.condition(&ConditionType::Blocked);
    assert!(blocked.is_none_or(|blocked| blocked.status == ConditionStatus::False));
}

fn full(scope: Scope) -> Full {
    Full {
        scope,
        in_use: 5,
        limit: 5,
    }
}

fn at(gate: Gate) -> Answer {
    Answer::Waiting(Box::new(Waiting::at(gate)))
}

/// The pod of the run, in this state.
fn pending(world: &mut World, status: &Value) {
    world.settle();
    world.pod("mend-job", status);
    world.wait(60).settle();
}

fn works(world: &mut World) {
    world.pod("mend-job", &json!({"phase": "Running"})).settle();
    assert_runs(world);
}

#[test]
fn missing_reference_ends_when_it_is_created() {
    let mut world = World::new();
    let agent = world.observed.references.agent.clone();
    let provider = world.observed.references.provider.take();
    world.observed.references.agent = Sight::Absent;
    world.settle();
    let deadline = world.wake_at.expect("it does not wait for ever");
    let remedy = format!("create it before {deadline}");
    assert_waits(&world, &Reason::MissingAgent, &remedy);
    world.observed.references.agent = agent;
    world.observed.references.provider = provider;
    world.settle();
    assert_runs(&world);
}

#[test]
fn reference_that_cannot_be_read_ends_when_it_is_mended() {
    let mut world = World::new();
    let provider = world.observed.references.provider.take();
    world.observed.references.provider = Some(Sight::Illegible("spec.binary: wrong type".to_owned()));
    world.settle();
    assert_waits(&world, &Reason::UnreadableReference, "mend it before ");
    world.observed.references.provider = provider;
    world.settle();
    assert_runs(&world);
}

#[test]
fn missing_system_prompt_ends_when_it_is_created() {
    let mut world = World::new();
    let reference = json!({"kind": "ConfigMap", "name": "prompts", "key": "fixer"});
    world.edit(|run| run.spec.system_prompt_ref = Some(object(reference)));
    world.settle();
    assert_waits(&world, &Reason::MissingSystemPromptRef, "create it before ");
    let keys = Keys::Of([("fixer".to_owned(), "0".to_owned())].into());
    let holder = KeyHolder::ConfigMap("prompts".to_owned());
    world.key_holders.insert(holder, keys);
    world.wait(5).settle();
    assert_runs(&world);
}

#[test]
fn every_gate_of_the_queue_is_written_once_and_its_end_costs_no_write_of_its_own() {
    let agent = Scope::Agent {
        namespace: "agents".to_owned(),
        name: "fixer".to_owned(),
    };
    let gates = [
        (
            Gate::Concurrency(full(agent)),
            Reason::ConcurrencyLimit,
            "cancel one, or raise ",
        ),
        (
            Gate::Queue(full(Scope::Cluster)),
            Reason::QueueLimit,
            "cancel runs that wait",
        ),
        (
            Gate::Rate {
                full: full(Scope::Namespace("agents".to_owned())),
                window: Duration::from_mins(1),
            },
            Reason::RateLimit,
            "wait, or raise ",
        ),
    ];
    for (gate, reason, remedy) in gates {
        let mut world = World::new();
        world.answers.push_back(at(gate.clone()));
        world.settle();
        assert_eq!(world.phase(), Some(RunPhase::Pending));
        assert!(world.deeds().is_empty(), "nothing starts");
        assert_eq!(world.wake_at, None, "the queue wakes it");
        assert_waits(&world, &reason, remedy);
        // Others start and end meanwhile, and it is looked at again.
        let before = world.status();
        let mut later = gate;
        if let Gate::Concurrency(full) | Gate::Queue(full) | Gate::Rate { full, .. } = &mut later {
            full.in_use = 6;
        }
        world.answers.push_back(at(later));
        world.wait(30).settle();
        assert_eq!(world.status(), before, "a number in use is no change");
        // Its turn has come.
        let writes = world.statuses;
        world.settle();
        assert_eq!(
            world.statuses,
            writes + 1,
            "the end of the wait is part of what records the Job"
        );
        assert_runs(&world);
        assert!(world.status().admitted_at.is_some());
    }
}

#[test]
fn work_of_an_endpoint_is_handed_over_when_the_queue_lets_the_run_in() {
    let mut world = custom::world(&json!({"endpoint": custom::ENDPOINT}));
    world
        .answers
        .push_back(at(Gate::Concurrency(full(Scope::Cluster))));
    world.settle();
    assert_waits(&world, &Reason::ConcurrencyLimit, "cancel one");
    assert!(custom::calls(&world).is_empty());
    world.settle();
    assert_runs(&world);
    assert_eq!(custom::calls(&world).len(), 1);
    assert!(world.status().admitted_at.is_some());
}

#[test]
fn endpoint_that_can_be_reached_again_ends_the_wait() {
    let mut world = custom::called();
    custom::answer(
        &mut world,
        Purpose::Submit,
        1,
        custom::not_taken("no route to it"),
    );
    world.settle();
    let due = world.wake_at.expect("it is tried again");
    let remedy = format!("it is tried again at {due}: see that it can be reached");
    assert_waits(&world, &Reason::EndpointUnavailable, &remedy);
    world.now = due;
    world.settle();
    custom::answer(&mut world, Purpose::Submit, 2, custom::taken_with(None));
    world.settle();
    assert_runs(&world);
}

#[test]
fn run_that_is_let_in_at_once_is_written_once() {
    let mut world = World::new();
    world.begun("mend-job");
    assert_eq!(world.statuses, 1);
    assert_runs(&world);
    let status = world.status();
    assert_eq!(status.admitted_at, status.started_at);
}

#[test]
fn job_of_an_earlier_run_ends_the_wait_when_it_has_gone() {
    let mut world = World::new();
    world.settle().pod("mend-job", &json!({"phase": "Running"}));
    world.edit(|run| {
        run.metadata.uid = Some("run-2".to_owned());
        run.status = None;
    });
    world.settle();
    assert_waits(&world, &Reason::PreviousJobTerminating, "starts when it has gone");
    world.pods_vanish().settle();
    world.observed.jobs.clear();
    world.settle();
    assert_runs(&world);
}

#[test]
fn name_of_the_files_is_free_when_the_other_config_map_is_deleted() {
    for (kind, remedy) in [
        ("CronJob", "delete that ConfigMap, or submit"),
        ("AgentRun", "when it has gone"),
    ] {
        let mut world = World::new();
        let owner = Some(Owner {
            kind: kind.to_owned(),
            name: "mend".to_owned(),
        });
        world.observed.occupant = Some(Occupant {
            name: "mend-spec".to_owned(),
            owner,
        });
        world.settle();
        assert_waits(&world, &Reason::NameTaken, remedy);
        world.observed.occupant = None;
        world.wait(30).settle();
        assert_runs(&world);
    }
}

#[test]
fn job_that_was_not_let_in_is_tried_again() {
    for (code, words) in [
        (403, "exceeded quota"),
        (429, "too many requests"),
        (500, "failed calling webhook \"deny.example.com\""),
        (504, "request timed out"),
    ] {
        let mut world = World::new();
        world.observed.refusal = Some(Refusal {
            code,
            message: words.to_owned(),
        });
        world.settle();
        let told = format!("{words}; it is tried again every ");
        assert_waits(&world, &Reason::JobForbidden, &told);
        world.observed.refusal = None;
        world.wait(30).settle();
        assert_runs(&world);
    }
}

#[test]
fn pod_that_is_missing_or_does_not_start_says_why_until_it_does() {
    let mut world = World::new();
    world.settle().wait(60).settle();
    assert_waits(
        &world,
        &Reason::PodWaiting,
        "kubectl describe job mend-job shows why",
    );
    works(&mut world);

    let unplaced = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: untolerated taint"},
    ]});
    let mut world = World::new();
    pending(&mut world, &unplaced);
    assert_waits(&world, &Reason::PodWaiting, "untolerated taint");
    works(&mut world);

    let mut world = World::new();
    pending(&mut world, &json!({"phase": "Pending"}));
    assert_waits(
        &world,
        &Reason::PodWaiting,
        "kubectl describe pod mend-job-x shows",
    );
    works(&mut world);
}

#[test]
fn image_or_configuration_that_cannot_be_had_is_named_with_what_to_check() {
    for (cause, reason, remedy) in [
        (
            "ImagePullBackOff",
            Reason::ImageUnavailable,
            "check spec.workload.image",
        ),
        (
            "CreateContainerConfigError",
            Reason::ConfigurationUnavailable,
            "check the Secrets, ConfigMaps and volumes",
        ),
    ] {
        let mut world = World::new();
        let waiting = json!({"phase": "Pending", "containerStatuses": [{
            "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": cause, "message": "not found"}},
        }]});
        pending(&mut world, &waiting);
        assert_waits(&world, &reason, remedy);
        let told = world.now;
        assert_eq!(world.wake_at, Some(told + 5.minutes()), "it is given up then");
        works(&mut world);
    }
}

#[test]
fn image_that_cannot_be_had_is_named_with_who_names_it() {
    for (list, container, image, field) in [
        (
            "initContainerStatuses",
            "install-agent-runner",
            "jangar",
            "check JANGAR_IMAGE of the controllers,",
        ),
        (
            "containerStatuses",
            "agent-runner",
            "agent",
            "or JANGAR_AGENT_RUNNER_IMAGE",
        ),
    ] {
        let mut world = World::new();
        let mut status = json!({"phase": "Pending"});
        status[list] = json!([{
            "name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
        }]);
        pending(&mut world, &status);
        assert_waits(&world, &Reason::ImageUnavailable, field);
        let waiting = world.condition(&ConditionType::Blocked).message;
        let job = &world.observed.jobs["mend-job"];
        let pod = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.clone())
            .expect("a pod");
        let containers = pod
            .init_containers
            .unwrap_or_default()
            .into_iter()
            .chain(pod.containers);
        let named = containers
            .filter(|known| known.name == container)
            .find_map(|known| known.image);
        let named = named.expect("an image");
        assert!(named.contains(image), "{named}");
        assert!(
            waiting.contains(&format!("image {named} cannot be had")),
            "{waiting}"
        );
    }
}

#[test]
fn words_of_a_scheduler_that_change_are_written_once_a_minute() {
    let unplaced = |words: &str| json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": words}]});
    let mut world = World::new();
    pending(&mut world, &unplaced("0/6 nodes: 4 full"));
    assert_waits(&world, &Reason::PodWaiting, "4 full");
    let (writes, told) = (world.statuses, world.now);
    for words in ["5 full", "6 full", "3 full"] {
        world.pod("mend-job", &unplaced(words));
        world.wait(10).settle();
        assert_eq!(world.statuses, writes, "not at each change");
        assert_eq!(world.wake_at, Some(told + Duration::from_mins(1)));
    }
    world.wait(30).settle();
    assert_waits(&world, &Reason::PodWaiting, "3 full");
    assert_eq!((world.statuses, world.wake_at), (writes + 1, None));
    let told = world.now;
    for words in ["2 full", "1 full"] {
        world.pod("mend-job", &unplaced(words));
        world.wait(10).settle();
        assert_eq!(world.statuses, writes + 1, "nor in the minutes after the first");
        assert_eq!(world.wake_at, Some(told + Duration::from_mins(1)));
    }
    works(&mut world);
}

#[test]
fn time_between_two_attempts_is_a_wait_that_ends_by_itself() {
    let mut world = World::new();
    let config = json!({"backoffLimit": 1});
    world.edit(|run| run.spec.runtime.config = Some(object(config)));
    world.settle();
    world.pod_ended("mend-job", 1, &json!({})).settle();
    let due = world.wake_at.expect("the next attempt has its time");
    let status = world.status();
    let blocked = status.common.condition(&ConditionType::Blocked);
    assert!(blocked.is_none(), "InProgress says so already");
    let message = world.condition(&ConditionType::InProgress).message;
    assert!(
        message.contains(&format!("attempt 2 starts at {due}")),
        "{message}"
    );
    world.wait(10).settle();
    assert_eq!(
        world.deeds().last().map(String::as_str),
        Some("create mend-job-attempt-2")
    );
    assert_runs(&world);
}

#[test]
fn next_attempt_waits_for_its_turn_while_the_run_counts_as_running() {
    let mut world = World::new();
    let config = json!({"backoffLimit": 1});
    world.edit(|run| run.spec.runtime.config = Some(object(config)));
    world.settle();
    world.pod_ended("mend-job", 1, &json!({})).settle();
    let first = world.status().admitted_at;
    world
        .answers
        .push_back(at(Gate::Concurrency(full(Scope::Cluster))));
    world.wait(10).settle();
    assert_waits(&world, &Reason::ConcurrencyLimit, "cancel one");
    assert_eq!(world.phase(), Some(RunPhase::Running));
    world.wait(10).settle();
    assert_runs(&world);
    assert!(
        world.status().admitted_at > first,
        "its second Job was let in later"
    );
}

#[test]
fn duplicate_ends_as_cancelled_and_names_the_run_that_is_executed() {
    let mut world = World::new();
    world.answers.push_back(Answer::Duplicate {
        of: "first".to_owned(),
    });
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(world.status().canonical_run.as_deref(), Some("first"));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(
        (cancelled.status, cancelled.reason),
        (ConditionStatus::True, Reason::Duplicate)
    );
    assert!(world.deeds().is_empty());
    let before = world.status();
    world.wait(3600).settle();
    assert_eq!(world.status(), before, "an end stays");
}

#[test]
fn repository_of_the_run_is_on_its_job_in_lower_case() {
    let mut world = World::new();
    world.edit(|run| {
        run.spec
            .parameters
            .insert("repository".to_owned(), "Team/App".to_owned());
    });
    world.settle();
    let job: &Arc<_> = &world.observed.jobs["mend-job"];
    let annotations = job.metadata.annotations.as_ref().expect("annotations");
    assert_eq!(annotations[jangar_api::labels::REPOSITORY], "team/app");
}

#[test]
fn secret_that_the_pod_needs_is_waited_for_before_the_job_is_made() {
    let mounted = json!({"volumes": [
        {"type": "secret", "name": "v", "mountPath": "/v", "secretName": "typo"},
    ]});
    for workload in [Some(mounted), None] {
        let mut world = World::new();
        world.edit(|run| match workload {
            Some(workload) => run.spec.workload = Some(object(workload)),
            None => run.spec.secrets = vec!["typo".to_owned()],
        });
        world.settle();
        assert!(world.deeds().is_empty(), "no slot is taken for it");
        let words = "needs Secret typo, and there is none in this namespace: create it before";
        assert_waits(&world, &Reason::SecretNotFound, words);

        let mut in_vain = World::new();
        in_vain.observed = world.observed.clone();
        in_vain.wait(61).settle();
        let failed = in_vain.condition(&ConditionType::Failed);
        assert_eq!(failed.reason, Reason::SecretNotFound, "{}", failed.message);

        let holder = KeyHolder::Secret("typo".to_owned());
        world.key_holders.insert(holder, Keys::Of(BTreeMap::new()));
        world.now = world.wake_at.expect("it is looked for again");
        world.settle();
        assert_eq!(world.deeds(), ["create mend-job"]);
        assert_runs(&world);
    }
}

#[test]
fn key_that_the_pod_needs_is_named_and_a_secret_that_may_not_be_read_is_taken_to_be_there() {
    let holder = KeyHolder::Secret("login".to_owned());
    let auth = AuthSecret {
        name: "login".to_owned(),
        key: "auth.json".to_owned(),
        mount_path: "/login".to_owned(),
    };
    let mut world = World::new();
    world.settings.runner.auth_secret = Some(auth);
    world
        .key_holders
        .insert(holder.clone(), Keys::Of(BTreeMap::new()));
    world.settle();
    let words = "needs auth.json of Secret login, which has no such key: mend it before";
    assert_waits(&world, &Reason::SecretKeyMissing, words);

    world.key_holders.insert(holder, Keys::Forbidden);
    world.wait(5).settle();
    assert_eq!(world.deeds(), ["create mend-job"]);
}

#[test]
fn slot_is_asked_for_with_the_repository_wherever_that_is_named() {
    let issue = json!({"text": "Mend it.", "source": {"provider": "github", "externalId": "Team/App#7"}});
    let mapped =
        json!({"text": "Mend it.", "contract": {"mappings": [{"from": "project", "to": "repository"}]}});
    let custom = || custom::world(&json!({"endpoint": "https://agents.example.com/run"}));
    for (mut world, spec) in [
        (World::new(), &issue),
        (World::new(), &mapped),
        (custom(), &issue),
        (custom(), &mapped),
    ] {
        let spec = json!({"metadata": {"name": "mend-it"}, "spec": spec});
        world.know_implementation(Sight::Seen(Arc::new(object(spec))));
        world.edit(|run| {
            let project = ("project".to_owned(), "Team/App".to_owned());
            run.spec.parameters = [project].into();
        });
        let at_limit = Gate::Concurrency(full(Scope::Repository("team/app".to_owned())));
        world.answers.push_back(at(at_limit));
        world.settle();
        assert_eq!(world.slots, [Some("team/app".to_owned())]);
        let waiting = world.status().waiting.expect("it waits for a limit");
        assert_eq!(
            json!(waiting),
            json!({"scope": "repository", "name": "team/app", "limit": 5, "repository": "team/app"})
        );
        let demand = Demand::of("agents", world.run());
        assert_eq!(demand.lane.repository.as_deref(), Some("team/app"));

        world.slots.clear();
        world.settle();
        assert_eq!(world.status().waiting, None);
        assert!(world.slots.iter().all(|slot| slot.as_deref() == Some("team/app")));
    }
}

#[test]
fn each_step_asks_for_a_slot_of_its_own_repository() {
    let mut world = workflow(&json!([
        {"name": "plan", "parameters": {"repository": "Team/One"}},
        {"name": "build", "parameters": {"repository": "Team/Two"}},
    ]));
    world.settle();
    assert_eq!(world.slots, [Some("team/one".to_owned())]);
    world.pod_ended(FIRST, 0, &done(&json!({}))).settle();
    assert_eq!(world.slots.last(), Some(&Some("team/two".to_owned())));
}

#[test]
fn an_image_has_five_minutes_from_the_first_error_and_not_from_the_beginning_of_the_pull() {
    for (cause, reason) in [
        ("ErrImagePull", Reason::ImageUnavailable),
        ("CreateContainerConfigError", Reason::ConfigurationUnavailable),
    ] {
        let mut world = World::new();
        world.settle();
        let scheduled = Time(world.now);
        let waiting = |reason: &str| {
            json!({"phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}],
                "containerStatuses": [{
                    "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": reason}},
                }],
            })
        };
        world
            .pod("mend-job", &waiting("ContainerCreating"))
            .wait(600)
            .settle();
        assert_eq!(
            world.condition(&ConditionType::Blocked).reason,
            Reason::PodWaiting
        );
        world.pod("mend-job", &waiting(cause)).settle();
        assert_eq!(world.condition(&ConditionType::Blocked).reason, reason);
        world.wait(299).settle();
        assert_eq!(world.deeds(), ["create mend-job"], "{cause}");
        assert_eq!(world.wake_at, Some(world.now + 1.second()));
        world.wait(1).settle();
        assert!(world.deeds().len() > 1, "{cause}: {:?}", world.deeds());
    }
}
