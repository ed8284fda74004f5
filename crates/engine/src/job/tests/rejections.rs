//! What a run cannot have, with the words it is told so.

use jangar_api::reason::Reason;
use serde_json::{Value, json};

use super::{
    super::{check_agent, check_run},
    World,
};

/// Each world with the reason it is refused for and what the message says.
pub(super) type Cases = Vec<(World, Reason, &'static str)>;

pub(super) fn check(cases: Cases) {
    for (world, reason, message) in cases {
        let rejection = world.build().expect_err(message);
        assert_eq!(rejection.message, message);
        assert_eq!(rejection.reason, reason, "{message}");
    }
}

/// Takes one mistake away.
type Mend = fn(World) -> World;

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn parameters_are_bounded() {
    let many: serde_json::Map<String, Value> =
        (0..101).map(|index| (format!("p{index}"), json!("x"))).collect();
    let hundred: serde_json::Map<String, Value> = many.clone().into_iter().take(100).collect();

    World::minimal().with_run(&json!({"parameters": hundred})).built();
    World::minimal()
        .with_run(&json!({"parameters": {"fits": "x".repeat(2048)}}))
        .built();
    check(vec![
        (
            World::minimal().with_run(&json!({"parameters": many})),
            Reason::ParametersTooLarge,
            "spec.parameters has 101 entries, and 100 are allowed: take some out, or join them",
        ),
        (
            World::minimal().with_run(&json!({"parameters": {"body": "é".repeat(1025)}})),
            Reason::ParameterValueTooLarge,
            "spec.parameters.body has 2050 bytes, and 2048 are allowed: put long texts into the implementation",
        ),
    ]);
}

#[test]
fn labels_follow_the_policy() {
    let world = |labels: Value| {
        let mut world = World::minimal().with_settings(|settings| {
            settings.policy.labels_required = strings(&["team", "cost-center"]);
            settings.policy.labels_denied = strings(&["internal.example/*"]);
            settings.policy.labels_allowed = strings(&["team", "cost-*", "internal.example/*"]);
        });
        world.run.metadata.labels = serde_json::from_value(labels).unwrap();
        world
    };

    world(json!({"team": "a", "cost-center": "b"})).built();
    check(vec![
        (
            world(json!({"team": " "})),
            Reason::MissingRequiredLabels,
            "metadata.labels lacks team, cost-center, which every run must have: set it when you create the run",
        ),
        (
            world(json!({"team": "a", "cost-center": "b", "internal.example/x": "c"})),
            Reason::LabelBlocked,
            "metadata.labels has internal.example/x, which no run may have (it matches internal.example/*): take it out",
        ),
        (
            world(json!({"team": "a", "cost-center": "b", "fun": "c"})),
            Reason::LabelNotAllowed,
            "metadata.labels has fun, and runs may only have labels that match team, cost-*, internal.example/*: take it out",
        ),
    ]);
}

#[test]
fn images_follow_the_policy() {
    let world = |image: &str| {
        World::minimal()
            .with_run(&json!({"workload": {"image": image}}))
            .with_settings(|settings| {
                settings.policy.images_denied = strings(&["*:latest"]);
                settings.policy.images_allowed = strings(&["registry.example/*"]);
            })
    };

    world("registry.example/agent:2").built();
    check(vec![
        (
            World::minimal().with_settings(|settings| settings.runner.image = None),
            Reason::MissingWorkloadImage,
            "spec.workload.image is not set, and the controllers have no image for runs without one: set it, or \
             JANGAR_AGENT_RUNNER_IMAGE for all runs",
        ),
        (
            world("registry.example/agent:latest"),
            Reason::ImageBlocked,
            "spec.workload.image is \"registry.example/agent:latest\", which no run may use (it matches *:latest): choose \
             another image",
        ),
        (
            world("elsewhere.example/agent:2"),
            Reason::ImageNotAllowed,
            "spec.workload.image is \"elsewhere.example/agent:2\", and runs may only use images that match \
             registry.example/*: choose one of those",
        ),
        (
            World::minimal().with_settings(|settings| {
                settings.policy.images_allowed = strings(&["other.example/*"]);
            }),
            Reason::ImageNotAllowed,
            "JANGAR_AGENT_RUNNER_IMAGE is \"registry.example/agent:1\", and runs may only use images that match \
             other.example/*: choose one of those",
        ),
    ]);
}

#[test]
fn a_setting_of_the_wrong_form_is_refused_by_name() {
    let config = |config: Value| World::minimal().with_config(&config);
    let reason = Reason::InvalidRuntimeConfig;
    check(vec![
        (
            config(json!({"serviceAccount": 5})),
            reason.clone(),
            "spec.runtime.config.serviceAccount is 5: it must be a text",
        ),
        (
            config(json!({"backoffLimit": "3"})),
            reason.clone(),
            "spec.runtime.config.backoffLimit is \"3\": it must be a number, without quotes",
        ),
        (
            config(json!({"nodeSelector": ["a"]})),
            reason.clone(),
            "spec.runtime.config.nodeSelector is [\"a\"]: it must be an object of texts; {} clears the default",
        ),
        (
            config(json!({"nodeSelector": {"gpu": true}})),
            reason.clone(),
            "spec.runtime.config.nodeSelector.gpu is true: it must be a text: put it in quotes",
        ),
        (
            config(json!({"tolerations": {"key": "gpu"}})),
            reason.clone(),
            "spec.runtime.config.tolerations is {\"key\":\"gpu\"}: it must be a list; [] clears the default",
        ),
        (
            config(json!({"tolerations": [{}, "gpu"]})),
            reason.clone(),
            "spec.runtime.config.tolerations[1] is \"gpu\": it must be an object; {} clears the default",
        ),
        (
            config(json!({"topologySpreadConstraints": [{"maxSkew": "1"}]})),
            reason.clone(),
            "spec.runtime.config.topologySpreadConstraints[0] is {\"maxSkew\":\"1\"}: it cannot be read: maxSkew: \
             invalid type: string \"1\", expected i32",
        ),
        (
            config(json!({"topologySpreadConstraints": [{"maxSkew": 1}]})),
            reason.clone(),
            "spec.runtime.config.topologySpreadConstraints[0] is {\"maxSkew\":1}: it cannot be read: topologyKey: the key of a \
             label of nodes is required",
        ),
        (
            config(json!({"podSecurityContext": "restricted"})),
            reason.clone(),
            "spec.runtime.config.podSecurityContext is \"restricted\": it must be an object; {} clears the default",
        ),
        (
            config(json!({"imagePullSecrets": [{"secret": "a"}]})),
            reason,
            "spec.runtime.config.imagePullSecrets[0] is {\"secret\":\"a\"}: it must be the name of a Secret, or an object with \
             a name",
        ),
    ]);
}

#[test]
fn a_long_value_is_not_repeated_as_a_whole() {
    let world = World::minimal().with_config(&json!({"tolerations": "x".repeat(10_000)}));
    let message = world.build().unwrap_err().message;

    assert!(message.len() < 250, "{message}");
}

#[test]
fn secrets_must_be_allowed_by_the_agent() {
    let restricted =
        || World::minimal().with_agent(&json!({"security": {"allowedSecrets": ["keys", "notes-db"]}}));
    let mounted = json!([{"name": "v", "type": "secret", "mountPath": "/v", "secretName": "root-ca"}]);

    restricted().with_run(&json!({"secrets": ["keys"]})).built();
    restricted().with_memory("notes-db").built();
    World::minimal().with_run(&json!({"secrets": ["any"]})).built();
    check(vec![
        (
            restricted().with_run(&json!({"secrets": ["keys", "root-ca"]})),
            Reason::SecretNotAllowed,
            "spec.secrets[1] is \"root-ca\", and Agent \"fixer\" allows only keys, notes-db: use one of those, or add it to \
             spec.security.allowedSecrets of the Agent",
        ),
        (
            restricted().with_volumes(&mounted),
            Reason::SecretNotAllowed,
            "spec.workload.volumes[0].secretName is \"root-ca\", and Agent \"fixer\" allows only keys, notes-db: use one of \
             those, or add it to spec.security.allowedSecrets of the Agent",
        ),
        (
            restricted().with_config(&json!({"imagePullSecrets": ["root-ca"]})),
            Reason::SecretNotAllowed,
            "spec.runtime.config.imagePullSecrets[0] is \"root-ca\", and Agent \"fixer\" allows only keys, notes-db: use one of \
             those, or add it to spec.security.allowedSecrets of the Agent",
        ),
        (
            restricted().with_memory("root-ca"),
            Reason::SecretNotAllowed,
            "spec.connection.secretRef.name of Memory \"notes\" is \"root-ca\", and Agent \"fixer\" allows only keys, \
             notes-db: use one of those, or add it to spec.security.allowedSecrets of the Agent",
        ),
        (
            World::minimal()
                .with_run(&json!({"secrets": ["keys"]}))
                .with_memory("notes-db"),
            Reason::SecretNotAllowed,
            "spec.connection.secretRef.name of Memory \"notes\" is \"notes-db\", and spec.secrets of the run has only keys: \
             add it there",
        ),
    ]);
}

#[test]
fn blocked_secrets_are_for_no_run() {
    let blocking = |name: &str| {
        let name = name.to_owned();
        World::minimal().with_settings(|settings| settings.policy.blocked_secrets = [name].into())
    };
    let mounted = json!([{"name": "v", "type": "secret", "mountPath": "/v", "secretName": "b"}]);
    check(vec![
        (
            blocking("b").with_run(&json!({"secrets": ["a", "b"]})),
            Reason::SecretBlocked,
            "spec.secrets[1] is \"b\", which no run may use (JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS): use another Secret",
        ),
        (
            blocking("b").with_volumes(&mounted),
            Reason::SecretBlocked,
            "spec.workload.volumes[0].secretName is \"b\", which no run may use \
             (JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS): use another Secret",
        ),
        (
            blocking("b").with_memory("b"),
            Reason::SecretBlocked,
            "spec.connection.secretRef.name of Memory \"notes\" is \"b\", which no run may use \
             (JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS): use another Secret",
        ),
        (
            blocking("b").with_config(&json!({"imagePullSecrets": ["b"]})),
            Reason::SecretBlocked,
            "spec.runtime.config.imagePullSecrets[0] is \"b\", which no run may use \
             (JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS): use another Secret",
        ),
    ]);
}

#[test]
fn what_a_run_says_about_its_pod_must_be_allowed_by_the_operator() {
    let world = || {
        World::minimal().with_settings(|settings| {
            settings.policy.service_accounts_allowed = strings(&["builder"]);
            settings.policy.priority_classes_allowed = strings(&["batch"]);
            settings.policy.pod_security_restricted = true;
            // What the operator chose for all is not checked.
            settings.runner.service_account = Some("runner".to_owned());
            settings.runner.priority_class = Some("high".to_owned());
        })
    };
    world().built();
    let tame = json!({"runAsNonRoot": true, "runAsUser": 7, "seccompProfile": {"type": "RuntimeDefault"}});
    world()
        .with_config(&json!({
            "serviceAccount": "builder", "priorityClassName": "batch", "podSecurityContext": tame,
        }))
        .built();
    let loose = json!({"podSecurityContext": {"runAsUser": 0}});
    World::minimal()
        .with_settings(|settings| settings.policy.pod_security_restricted = false)
        .with_config(&loose)
        .built();
    check(vec![
        (
            world().with_config(&json!({"serviceAccount": "admin"})),
            Reason::ServiceAccountNotAllowed,
            "spec.runtime.config.serviceAccount is \"admin\", and runs may only choose builder \
             (JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED): choose one of those, or leave it out",
        ),
        (
            world().with_config(&json!({"priorityClassName": "system-node-critical"})),
            Reason::PriorityClassNotAllowed,
            "spec.runtime.config.priorityClassName is \"system-node-critical\", and runs may only choose batch \
             (JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED): choose one of those, or leave it out",
        ),
        (
            world().with_config(&loose),
            Reason::PodSecurityNotAllowed,
            "spec.runtime.config.podSecurityContext runs as root (runAsUser is 0), and runs have to keep to the Pod Security \
             Standard restricted (JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED): change it, or leave it out",
        ),
    ]);
}

#[test]
fn nobody_gets_more_than_others_by_asking_for_it_alone() {
    let loose = json!({"podSecurityContext": {}});
    check(vec![
        (
            World::minimal().with_config(&json!({"serviceAccount": "admin"})),
            Reason::ServiceAccountNotAllowed,
            "spec.runtime.config.serviceAccount is \"admin\", and nobody lets runs of Agent \"fixer\" choose it: leave it out, or \
             add it to spec.security.allowedServiceAccounts of the Agent or to JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
        ),
        (
            World::minimal().with_config(&json!({"priorityClassName": "system-node-critical"})),
            Reason::PriorityClassNotAllowed,
            "spec.runtime.config.priorityClassName is \"system-node-critical\", and runs may choose none: leave it out, or have it \
             added to JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED",
        ),
        (
            World::minimal().with_config(&loose),
            Reason::PodSecurityNotAllowed,
            "spec.runtime.config.podSecurityContext does not say runAsNonRoot: true, and runs have to keep to the Pod Security \
             Standard restricted (JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED): change it, or leave it out",
        ),
    ]);
    // What they would have anyway may be named, and what the Agent or the operator allows.
    World::minimal()
        .with_config(&json!({"serviceAccount": "default"}))
        .built();
    let configured = || {
        World::minimal().with_settings(|settings| {
            settings.runner.service_account = Some("runner".to_owned());
            settings.runner.priority_class = Some("batch".to_owned());
        })
    };
    configured()
        .with_config(&json!({"serviceAccount": "runner", "priorityClassName": "batch"}))
        .built();
    let named = json!({"security": {"allowedServiceAccounts": ["builder"]}});
    World::minimal()
        .with_agent(&named)
        .with_config(&json!({"serviceAccount": "builder"}))
        .built();
}

#[test]
fn what_the_agent_does_not_allow_is_known_before_the_implementation() {
    let world = World::minimal()
        .with_run(&json!({"secrets": ["forbidden"]}))
        .with_agent(&json!({"security": {"allowedSecrets": ["other"]}}));
    let early = check_agent(&world.run, &world.agent, &world.settings).unwrap_err();
    assert_eq!(early.reason, Reason::SecretNotAllowed);
    assert_eq!(Err(early), world.build());
}

#[test]
fn service_accounts_must_be_allowed_by_the_agent() {
    let restricted =
        || World::minimal().with_agent(&json!({"security": {"allowedServiceAccounts": ["builder"]}}));

    restricted()
        .with_config(&json!({"serviceAccount": "builder"}))
        .built();
    check(vec![
        (
            restricted().with_config(&json!({"serviceAccount": "admin"})),
            Reason::ServiceAccountNotAllowed,
            "the pod would use the service account \"admin\", and Agent \"fixer\" allows only builder: name one of those in \
             spec.runtime.config.serviceAccount, or add it to spec.security.allowedServiceAccounts of the Agent",
        ),
        (
            restricted(),
            Reason::ServiceAccountNotAllowed,
            "the pod would use the service account \"default\", and Agent \"fixer\" allows only builder: name one of those in \
             spec.runtime.config.serviceAccount, or add it to spec.security.allowedServiceAccounts of the Agent",
        ),
    ]);
}

#[test]
fn contracts_must_make_sense_and_be_fulfilled() {
    let contract = |contract: Value| World::minimal().with_implementation(&json!({"contract": contract}));
    let mut inline = contract(json!({"requiredKeys": ["head"]}));
    inline.implementation.metadata.name = None;
    check(vec![
        (
            contract(json!({"requiredKeys": ["head", " "]})),
            Reason::InvalidContract,
            "ImplementationSpec \"fix-the-test\" spec.contract.requiredKeys[1] is blank: give it a name or take it out",
        ),
        (
            contract(json!({"mappings": [{"from": "a", "to": ""}]})),
            Reason::InvalidContract,
            "ImplementationSpec \"fix-the-test\" spec.contract.mappings[0].to is blank: give it a name or take it out",
        ),
        (
            contract(json!({"requiredKeys": ["head", "prompt", "base"]})),
            Reason::MissingRequiredMetadata,
            "the run does not say head, base, which ImplementationSpec \"fix-the-test\" spec.contract.requiredKeys asks for: \
             set it in spec.parameters",
        ),
        (
            inline,
            Reason::MissingRequiredMetadata,
            "the run does not say head, which spec.implementation.inline.contract.requiredKeys asks for: set it in \
             spec.parameters",
        ),
    ]);
}

#[test]
fn system_prompts_are_bounded_and_their_secrets_listed() {
    let reference = |kind: &str, name: &str, key: &str| json!({"kind": kind, "name": name, "key": key});
    let of_run = |reference: Value| World::minimal().with_run(&json!({"systemPromptRef": reference}));
    let allowed = json!({"security": {"allowedSecrets": ["keys"]}});

    World::minimal()
        .with_run(&json!({"systemPrompt": "é".repeat(16_384)}))
        .built();
    of_run(reference("Secret", "prompts", "p"))
        .with_run(&json!({"secrets": ["prompts"]}))
        .built();
    check(vec![
        (
            World::minimal().with_run(&json!({"systemPrompt": "x".repeat(16_385)})),
            Reason::SystemPromptTooLong,
            "spec.systemPrompt has 16385 characters, and 16384 are allowed: put it into a ConfigMap and name that in \
             systemPromptRef",
        ),
        (
            World::minimal().with_agent(&json!({"defaults": {"systemPrompt": "x".repeat(16_385)}})),
            Reason::SystemPromptTooLong,
            "spec.defaults.systemPrompt of Agent \"fixer\" has 16385 characters, and 16384 are allowed: put it into a \
             ConfigMap and name that in systemPromptRef",
        ),
        (
            of_run(reference("Drawer", "prompts", "p")),
            Reason::InvalidSystemPromptRef,
            "spec.systemPromptRef has the kind \"Drawer\": it takes kind (Secret or ConfigMap), name and key",
        ),
        (
            of_run(reference("ConfigMap", "prompts", " ")),
            Reason::InvalidSystemPromptRef,
            "spec.systemPromptRef has no key: it takes kind (Secret or ConfigMap), name and key",
        ),
        (
            World::minimal()
                .with_agent(&json!({"defaults": {"systemPromptRef": reference("Secret", "prompts", "p")}})),
            Reason::SecretNotAllowed,
            "spec.defaults.systemPromptRef of Agent \"fixer\" is the Secret \"prompts\", which the run does not list: add it \
             to spec.secrets of the run",
        ),
        (
            of_run(reference("Secret", "prompts", "p"))
                .with_run(&json!({"secrets": ["prompts"]}))
                .with_agent(&allowed),
            Reason::SecretNotAllowed,
            "spec.secrets[0] is \"prompts\", and Agent \"fixer\" allows only keys: use one of those, or add it to \
             spec.security.allowedSecrets of the Agent",
        ),
    ]);
}

#[test]
fn providers_must_have_a_binary_and_templates_that_can_be_rendered() {
    let provider = |fields: Value| World::minimal().with_provider(&fields);
    check(vec![
        (
            provider(json!({"binary": " "})),
            Reason::MissingBinary,
            "spec.binary of AgentProvider \"scripted\" is blank: name the program that is the agent",
        ),
        (
            provider(json!({"argsTemplate": ["{{ agent.name }}", "{{ agent.name"]})),
            Reason::InvalidTemplate,
            "spec.argsTemplate[1] of AgentProvider \"scripted\": \"{{ agent.name\" opens {{ at character 1 and never closes it: \
             add }}",
        ),
        (
            provider(json!({"envTemplate": {"MODEL": "a {{}}"}})),
            Reason::InvalidTemplate,
            "spec.envTemplate.MODEL of AgentProvider \"scripted\": \"a {{}}\" has {{}} at character 3, which is no path: write \
             names of letters, digits, _ and -, with dots between them, for example {{ parameters.repository }}",
        ),
    ]);
}

#[test]
fn what_is_too_large_for_kubernetes_is_refused() {
    let large = "x".repeat(1_000_000);
    let files =
        World::minimal().with_provider(&json!({"inputFiles": [{"path": "/large", "content": large}]}));
    let rejection = files.build().unwrap_err();
    assert_eq!(rejection.reason, Reason::InputsTooLarge);
    assert!(
        rejection
            .message
            .contains("(AgentProvider \"scripted\" spec.inputFiles[0] 1000000, agent-runner.json "),
        "{}",
        rejection.message
    );

    let variables =
        World::minimal().with_agent(&json!({"env": [{"name": "LARGE", "value": "x".repeat(1 << 20)}]}));
    let rejection = variables.build().unwrap_err();
    assert_eq!(rejection.reason, Reason::InputsTooLarge);
    assert!(
        rejection.message.ends_with(
            "bytes, and 1048576 are allowed: shorten spec.envTemplate of the AgentProvider or spec.env of the Agent, and let \
             the agent read large values from /workspace/run.json"
        ),
        "{}",
        rejection.message
    );
}

#[test]
fn a_run_that_came_from_nowhere_is_refused() {
    let mut world = World::minimal();
    world.run.metadata.uid = None;

    assert_eq!(world.build().unwrap_err().reason, Reason::SubmitFailed);
}

#[test]
fn what_is_wrong_with_the_run_itself_is_known_before_its_references() {
    let world = World::minimal();
    assert_eq!(check_run(&world.run, &world.settings), Ok(()));
    for world in [
        world
            .clone()
            .with_run(&json!({"parameters": {"body": "x".repeat(3000)}})),
        world
            .clone()
            .with_settings(|settings| settings.policy.labels_required = strings(&["team"])),
        world
            .clone()
            .with_settings(|settings| settings.runner.image = None),
        world.with_config(&json!({"affinity": []})),
    ] {
        let early = check_run(&world.run, &world.settings).unwrap_err();
        assert_eq!(Err(early), world.build());
    }
}

#[test]
fn the_first_of_several_mistakes_is_named_in_a_fixed_order() {
    let everything = World::minimal()
        .with_run(&json!({
            "parameters": {"body": "x".repeat(3000)},
            "secrets": ["forbidden"],
            "systemPrompt": "x".repeat(20_000),
            "runtime": {"type": "job", "config": {"affinity": []}},
        }))
        .with_agent(&json!({"security": {
            "allowedSecrets": ["other"], "allowedServiceAccounts": ["other"],
        }}))
        .with_implementation(&json!({"contract": {"requiredKeys": ["head"]}}))
        .with_provider(&json!({"argsTemplate": ["{{"]}))
        .with_settings(|settings| {
            settings.policy.labels_required = strings(&["team"]);
            settings.runner.image = None;
            settings.policy.blocked_secrets = ["forbidden".to_owned()].into();
        });
    // Each step mends what was named, which shows the next.
    let mends: [(Reason, Mend); 9] = [
        (Reason::ParameterValueTooLarge, |world| {
            world.with_run(&json!({"parameters": {}}))
        }),
        (Reason::MissingRequiredLabels, |world| {
            world.with_settings(|settings| settings.policy.labels_required.clear())
        }),
        (Reason::MissingWorkloadImage, |world| {
            world.with_settings(|settings| settings.runner.image = Some("i".to_owned()))
        }),
        (Reason::InvalidRuntimeConfig, |world| {
            world.with_config(&json!({}))
        }),
        (Reason::SecretNotAllowed, |world| {
            world.with_agent(&json!({"security": {"allowedServiceAccounts": ["other"]}}))
        }),
        (Reason::ServiceAccountNotAllowed, |world| {
            world.with_agent(&json!({"security": {}}))
        }),
        (Reason::MissingRequiredMetadata, |world| {
            world.with_implementation(&json!({"contract": {}}))
        }),
        (Reason::SecretBlocked, |world| {
            world.with_run(&json!({"secrets": []}))
        }),
        (Reason::SystemPromptTooLong, |world| {
            world.with_run(&json!({"systemPrompt": "short"}))
        }),
    ];
    let mut world = everything;
    for (reason, mend) in mends {
        assert_eq!(world.build().unwrap_err().reason, reason);
        world = mend(world);
    }
    assert_eq!(world.build().unwrap_err().reason, Reason::InvalidTemplate);
}
