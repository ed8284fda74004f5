//! Runs that cannot work: each ends, says what is wrong and what to do, and goes when its time has come.

use std::sync::Arc;

use jangar_api::{
    agents::{agent::Agent, agent_provider::AgentProvider},
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use serde_json::{Value, json};

use super::{World, object};
use crate::decision::Sight;

/// What is wrong, and what is said about it.
struct Case {
    name: &'static str,
    /// Makes it wrong, and plays what the world does until the run would have to end.
    play: fn(&mut World),
    reason: Reason,
    /// Whether the spec is at fault, and not what became of it.
    invalid: bool,
    /// What the message names: the field or the object, its value, and the remedy.
    named: &'static [&'static str],
}

/// Lets the time pass that a reference has to appear.
fn wait_for_reference(world: &mut World) {
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Pending), "it may still come");
    world.now = world.wake_at.expect("the wait has an end");
}

fn agent(spec: &Value) -> Sight<Agent> {
    let mut agent = json!({"metadata": {"name": "fixer"}, "spec": {"providerRef": {"name": "scripted"}}});
    for (field, value) in spec.as_object().expect("an object") {
        agent["spec"][field] = value.clone();
    }
    Sight::Seen(Arc::new(object(agent)))
}

fn provider(spec: &Value) -> Sight<AgentProvider> {
    let provider = json!({"metadata": {"name": "scripted"}, "spec": spec});
    Sight::Seen(Arc::new(object(provider)))
}

#[expect(clippy::too_many_lines, reason = "it is read as a table")]
fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "a missing agent",
            play: |world| {
                world.observed.references.agent = Sight::Absent;
                wait_for_reference(world);
            },
            reason: Reason::MissingAgent,
            invalid: true,
            named: &["spec.agentRef.name is fixer", "no Agent", "create it"],
        },
        Case {
            name: "a missing provider",
            play: |world| {
                world.observed.references.provider = Some(Sight::Absent);
                wait_for_reference(world);
            },
            reason: Reason::MissingProvider,
            invalid: true,
            named: &[
                "spec.providerRef.name of Agent fixer is scripted",
                "no AgentProvider",
                "create it",
            ],
        },
        Case {
            name: "a missing spec",
            play: |world| {
                world.know_implementation(Sight::Absent);
                wait_for_reference(world);
            },
            reason: Reason::MissingImplementation,
            invalid: true,
            named: &[
                "spec.implementationSpecRef.name is mend-it",
                "no ImplementationSpec",
                "create it",
            ],
        },
        Case {
            name: "no spec at all",
            play: |world| {
                world.edit(|run| run.spec.implementation_spec_ref = None);
            },
            reason: Reason::MissingImplementation,
            invalid: true,
            named: &["set spec.implementationSpecRef or spec.implementation.inline"],
        },
        Case {
            name: "a bad template of an argument",
            play: |world| {
                world.observed.references.provider = Some(provider(
                    &json!({"binary": "/bin/true", "argsTemplate": ["fine", "{{ parameters.x"]}),
                ));
            },
            reason: Reason::InvalidTemplate,
            invalid: true,
            named: &["spec.argsTemplate[1] of AgentProvider", "scripted"],
        },
        Case {
            name: "a bad template of a variable",
            play: |world| {
                world.observed.references.provider = Some(provider(
                    &json!({"binary": "/bin/true", "envTemplate": {"A": "{{ }}"}}),
                ));
            },
            reason: Reason::InvalidTemplate,
            invalid: true,
            named: &["spec.envTemplate.A of AgentProvider", "scripted"],
        },
        Case {
            name: "a runtime that is not built",
            play: |world| {
                world.edit(|run| run.spec.runtime.type_ = "quantum".into());
            },
            reason: Reason::UnsupportedRuntime,
            invalid: true,
            named: &["spec.runtime.type is quantum", "use job"],
        },
        Case {
            name: "a system prompt that is too long",
            play: |world| {
                world.edit(|run| run.spec.system_prompt = Some("x".repeat(16_385)));
            },
            reason: Reason::SystemPromptTooLong,
            invalid: true,
            named: &[
                "spec.systemPrompt has 16385 characters",
                "16384",
                "systemPromptRef",
            ],
        },
        Case {
            name: "an Agent without a provider",
            play: |world| {
                world.observed.references.agent = agent(&json!({"providerRef": {"name": " "}}));
                world.observed.references.provider = None;
            },
            reason: Reason::MissingProviderRef,
            invalid: true,
            named: &["spec.providerRef.name of Agent fixer", "AgentProvider"],
        },
        Case {
            name: "a missing memory",
            play: |world| {
                world.edit(|run| run.spec.memory_ref = Some(object(json!({"name": "notes"}))));
                world.observed.references.memory = Some(Sight::Absent);
                wait_for_reference(world);
            },
            reason: Reason::MissingMemory,
            invalid: true,
            named: &["memoryRef.name", "notes", "no Memory", "create it"],
        },
        Case {
            name: "a text that is too long",
            play: |world| {
                let long = json!({"metadata": {"name": "mend-it"}, "spec": {"text": "x".repeat(131_073)}});
                world.know_implementation(Sight::Seen(Arc::new(object(long))));
            },
            reason: Reason::TextTooLarge,
            invalid: true,
            named: &[
                "ImplementationSpec mend-it.text has 131073 characters",
                "131072",
                "shorten it",
            ],
        },
        Case {
            name: "a secret that the agent does not allow",
            play: |world| {
                world.observed.references.agent = agent(&json!({"security": {"allowedSecrets": ["good"]}}));
                world.edit(|run| run.spec.secrets = vec!["bad".to_owned()]);
            },
            reason: Reason::SecretNotAllowed,
            invalid: true,
            named: &[
                "spec.secrets[0] is \"bad\"",
                "good",
                "spec.security.allowedSecrets",
            ],
        },
        Case {
            name: "a secret that no run may use",
            play: |world| {
                world.settings.policy.blocked_secrets.insert("root".to_owned());
                world.edit(|run| run.spec.secrets = vec!["root".to_owned()]);
            },
            reason: Reason::SecretBlocked,
            invalid: true,
            named: &["spec.secrets[0] is \"root\"", "use another Secret"],
        },
        Case {
            name: "work that lacks what it must have, and a memory that is not there",
            play: |world| {
                let work = json!({
                    "metadata": {"name": "mend-it"},
                    "spec": {"text": "Mend it.", "contract": {"requiredKeys": ["ticket"]}},
                });
                world.know_implementation(Sight::Seen(Arc::new(object(work))));
                world.edit(|run| run.spec.memory_ref = Some(object(json!({"name": "notes"}))));
            },
            reason: Reason::MissingRequiredMetadata,
            invalid: true,
            named: &["ticket"],
        },
        Case {
            name: "an image that cannot be had",
            play: |world| {
                let waiting = json!({"phase": "Pending", "containerStatuses": [{
                    "name": "agent-runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                }]});
                world
                    .settle()
                    .pod("mend-job", &waiting)
                    .wait(10)
                    .settle()
                    .wait(300)
                    .settle();
                world.pods_vanish();
            },
            reason: Reason::ImageUnavailable,
            invalid: false,
            named: &["ImagePullBackOff", "no such image", "check spec.workload.image"],
        },
        Case {
            name: "a program that is not in the image",
            play: |world| {
                let words = json!({"version": 1, "reason": "BinaryNotFound", "message": "/no/such/agent is not there"});
                world.settle().pod_ended("mend-job", 127, &words);
            },
            reason: Reason::JobFailed,
            invalid: false,
            named: &["127", "/no/such/agent", "check spec.binary of the AgentProvider"],
        },
    ]
}

/// A flaw of what the work is about ends the run as it marks the ImplementationSpec.
#[test]
fn a_run_with_a_flaw_in_its_work_ends_with_the_reason_of_the_flaw() {
    for (field, value, reason) in [
        ("text", json!(" "), Reason::MissingText),
        ("summary", json!("x".repeat(257)), Reason::SummaryTooLong),
        (
            "description",
            json!("x".repeat(131_073)),
            Reason::DescriptionTooLarge,
        ),
        (
            "acceptanceCriteria",
            json!(vec!["it works"; 51]),
            Reason::AcceptanceCriteriaTooLong,
        ),
    ] {
        let mut implementation = json!({"metadata": {"name": "mend-it"}, "spec": {"text": "Mend it."}});
        implementation["spec"][field] = value;
        let mut world = World::new();
        world.know_implementation(Sight::Seen(Arc::new(object(implementation))));
        world.settle();

        assert_eq!(world.phase(), Some(RunPhase::Failed), "{field}");
        let failed = world.condition(&ConditionType::Failed);
        assert_eq!(failed.reason, reason, "{field}: {}", failed.message);
        let place = format!("ImplementationSpec mend-it.{field} ");
        assert!(failed.message.contains(&place), "{}", failed.message);
    }
}

#[test]
fn a_run_that_cannot_work_ends_says_what_to_do_and_goes() {
    for Case {
        name,
        play,
        reason,
        invalid,
        named,
    } in cases()
    {
        let mut world = World::new();
        world.edit(|run| run.spec.ttl_seconds_after_finished = Some(60.into()));
        play(&mut world);
        world.settle();

        assert_eq!(world.phase(), Some(RunPhase::Failed), "{name}");
        let failed = world.condition(&ConditionType::Failed);
        assert_eq!(failed.reason, reason, "{name}: {}", failed.message);
        for part in named {
            assert!(
                failed.message.contains(part),
                "{name}: {part} is not in: {}",
                failed.message
            );
        }
        let status = world.status();
        let invalid_spec = status.common.condition(&ConditionType::InvalidSpec);
        let is_invalid = invalid_spec
            .is_some_and(|condition| condition.status == ConditionStatus::True && condition.reason == reason);
        assert_eq!(is_invalid, invalid, "{name}");
        assert!(status.finished_at.is_some(), "{name}");
        let told = world.notices.last().map(|notice| &notice.reason);
        assert_eq!(told, Some(&reason), "{name}");

        world.now = world.wake_at.expect("it is not kept for ever");
        world.settle();
        assert_eq!(
            world.deeds().last().map(String::as_str),
            Some("delete run mend"),
            "{name}"
        );
    }
}
