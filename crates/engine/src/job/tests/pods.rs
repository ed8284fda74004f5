//! Files, volumes and variables of the pod.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::{
    super::{
        files::{ANNOTATIONS_MAX_BYTES, CONFIG_MAP_MAX_BYTES},
        policy::run_secrets,
    },
    World, as_json,
};

fn mounted_at(world: &World, path: &str) -> Value {
    let mounts = world.container().volume_mounts.unwrap();
    as_json(&mounts.iter().find(|mount| mount.mount_path == path))
}

fn volume(world: &World, name: &str) -> Value {
    let volumes = world.pod().volumes.unwrap();
    as_json(&volumes.iter().find(|volume| volume.name == name))
}

/// The value of a variable of the container.
fn variable(world: &World, name: &str) -> Option<String> {
    let variables = world.container().env.unwrap();
    let mut found = variables.into_iter().filter(|variable| variable.name == name);
    let value = found.next().map(|variable| variable.value.unwrap());
    assert_eq!(found.next(), None, "{name} is there twice");
    value
}

fn with_input_of(bytes: usize) -> World {
    World::minimal().with_provider(&json!({
        "inputFiles": [{"path": "/etc/large", "content": "x".repeat(bytes)}],
    }))
}

#[test]
fn files_that_do_not_fit_into_annotations_are_in_a_config_map_of_the_run() {
    let small = World::minimal();
    let mut large = with_input_of(ANNOTATIONS_MAX_BYTES);

    assert_eq!(small.built().config_map, None);
    let built = large.built();
    let config_map = built.config_map.unwrap();
    let data = config_map.data.unwrap();
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["agent-runner.json", "input-0", "run.json"]
    );
    assert_eq!(data["run.json"], small.file("run.json"));
    assert_eq!(config_map.immutable, Some(true));
    let job = &built.job.metadata;
    assert_eq!(config_map.metadata.name.as_deref(), Some("fix-1-spec"));
    assert_eq!(config_map.metadata.namespace, job.namespace);
    assert_eq!(config_map.metadata.owner_references, job.owner_references);
    assert_eq!(config_map.metadata.labels, job.labels);
    assert_eq!(config_map.metadata.finalizers, None);
    let template = built.job.spec.unwrap().template;
    assert_eq!(template.metadata.unwrap().annotations, None);
    assert_eq!(
        volume(&large, "fix-1-spec-vol")["configMap"],
        json!({"name": "fix-1-spec", "items": [
            {"key": "run.json", "path": "run.json"},
            {"key": "agent-runner.json", "path": "agent-runner.json"},
            {"key": "input-0", "path": "input-0"},
        ]})
    );
    for path in ["/workspace/run.json", "/workspace/agent-runner.json"] {
        assert_eq!(mounted_at(&large, path), mounted_at(&small, path));
    }

    large.attempt = 2;
    let second = large.built().config_map.unwrap();
    assert_eq!(second.metadata.name.as_deref(), Some("fix-1-spec-attempt-2"));
    assert_eq!(
        volume(&large, "fix-1-spec-vol")["configMap"]["name"],
        "fix-1-spec-attempt-2"
    );
}

#[test]
fn the_longest_text_that_a_spec_may_have_fits() {
    let world = World::minimal().with_implementation(&json!({
        "text": "x".repeat(131_072), "description": "y".repeat(131_072),
    }));

    let bytes: usize = world
        .built()
        .config_map
        .unwrap()
        .data
        .unwrap()
        .values()
        .map(String::len)
        .sum();
    assert!(bytes <= CONFIG_MAP_MAX_BYTES, "{bytes}");
}

#[test]
fn a_volume_of_the_workload_takes_the_place_of_the_pods_own() {
    let world = World::minimal().with_volumes(&json!([
        {"name": "workspace", "type": "pvc", "mountPath": "/workspace/", "claimName": "checkout"},
        {"name": "home", "type": "emptyDir", "mountPath": "/home/agent"},
    ]));

    assert_eq!(
        mounted_at(&world, "/workspace"),
        json!({"name": "workspace", "mountPath": "/workspace"})
    );
    assert_eq!(mounted_at(&world, "/home/agent")["name"], "home");
    assert_eq!(volume(&world, "fix-1-workspace"), Value::Null);
    assert_eq!(volume(&world, "fix-1-home"), Value::Null);
}

#[test]
fn mounts_come_after_those_they_are_inside_of() {
    let world = World::minimal().with_volumes(&json!([
        {"name": "inner", "type": "emptyDir", "mountPath": "/workspace/lab/cache"},
        {"name": "outer", "type": "emptyDir", "mountPath": "/workspace/lab"},
    ]));
    let paths: Vec<String> = world
        .container()
        .volume_mounts
        .unwrap()
        .into_iter()
        .map(|mount| mount.mount_path)
        .collect();

    for (index, path) in paths.iter().enumerate() {
        let inside = format!("{path}/");
        assert!(
            !paths
                .iter()
                .take(index)
                .any(|earlier| earlier.starts_with(&inside)),
            "{path} is mounted over what is inside of it: {paths:?}"
        );
    }
}

#[test]
fn home_is_a_writable_directory_unless_somebody_chose_one() {
    let own = World::minimal();
    let agents = World::minimal().with_agent(&json!({"env": [{"name": "HOME", "value": "/root"}]}));
    let providers = World::minimal().with_provider(&json!({"envTemplate": {"HOME": "/data"}}));

    assert_eq!(variable(&own, "HOME").as_deref(), Some("/home/agent"));
    assert_eq!(mounted_at(&own, "/home/agent")["name"], "fix-1-home");
    for (world, expected) in [(agents, "/root"), (providers, "/data")] {
        assert_eq!(variable(&world, "HOME").as_deref(), Some(expected));
        assert_eq!(mounted_at(&world, "/home/agent"), Value::Null);
    }
}

#[test]
fn variables_have_one_value_and_ours_win() {
    let world = World::minimal()
        .with_agent(&json!({"env": [
            {"name": "A", "value": "first"}, {"name": "A", "value": "second"},
            {"name": "B", "value": "of the agent"},
            {"name": " ", "value": "nameless"},
            {"name": "AGENT_RUN_SPEC", "value": "/elsewhere"},
        ]}))
        .with_provider(&json!({"envTemplate": {
            "B": "of the provider",
            "AGENT_PROVIDER": "x", "AGENT_RUNNER_SPEC_PATH": "x", "AGENT_OUTCOME_PATH": "x",
            "CODEX_SYSTEM_PROMPT_PATH": "/its/own",
        }}));
    let names: Vec<String> = world
        .container()
        .env
        .unwrap()
        .into_iter()
        .map(|env| env.name)
        .collect();

    assert_eq!(
        names,
        [
            "AGENT_RUN_SPEC",
            "AGENT_RUNNER_SPEC_PATH",
            "HOME",
            "A",
            "B",
            "CODEX_SYSTEM_PROMPT_PATH",
            "AGENT_PROVIDER"
        ]
    );
    for (name, value) in [
        ("AGENT_RUN_SPEC", "/workspace/run.json"),
        ("AGENT_RUNNER_SPEC_PATH", "/workspace/agent-runner.json"),
        ("AGENT_PROVIDER", "scripted"),
        ("A", "second"),
        ("B", "of the provider"),
        ("CODEX_SYSTEM_PROMPT_PATH", "/its/own"),
    ] {
        assert_eq!(variable(&world, name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn each_secret_becomes_variables_once() {
    let world = World::minimal().with_run(&json!({"secrets": ["b", " a ", "", "b"]}));

    assert_eq!(run_secrets(&world.run), ["b", "a"]);
    assert_eq!(
        as_json(&world.container().env_from),
        json!([{"secretRef": {"name": "b"}}, {"secretRef": {"name": "a"}}])
    );
}

#[test]
fn a_system_prompt_in_a_spec_is_in_the_document_and_one_elsewhere_is_mounted() {
    // printf 'Be careful.' | sha256sum
    let hash = "489fb53a49997003c69fb9dce959bf0e843ba893a51a658e95ad4bb1fee0abbd";
    let inline = World::minimal().with_run(&json!({"systemPrompt": "Be careful."}));
    let elsewhere = World::minimal().with_run(&json!({
        "systemPromptRef": {"kind": "ConfigMap", "name": "prompts", "key": "careful"},
    }));

    assert_eq!(inline.document("run.json")["systemPrompt"], "Be careful.");
    assert_eq!(inline.built().system_prompt_hash.as_deref(), Some(hash));
    assert_eq!(variable(&inline, "CODEX_SYSTEM_PROMPT_PATH"), None);

    let path = "/workspace/.codex/system-prompt.txt";
    assert_eq!(elsewhere.document("run.json").get("systemPrompt"), None);
    assert_eq!(elsewhere.built().system_prompt_hash, None);
    assert_eq!(
        variable(&elsewhere, "CODEX_SYSTEM_PROMPT_PATH").as_deref(),
        Some(path)
    );
    assert_eq!(mounted_at(&elsewhere, path)["subPath"], "system-prompt.txt");
    assert_eq!(
        volume(&elsewhere, "fix-1-system-prompt")["configMap"],
        json!({"name": "prompts", "items": [{"key": "careful", "path": "system-prompt.txt"}]})
    );
}

#[test]
fn the_init_container_does_not_change_the_quality_of_service() {
    let same = json!({"cpu": "1", "memory": "1Gi"});
    let world = World::minimal().with_run(&json!({
        "workload": {"resources": {"requests": same, "limits": same}},
    }));
    let pod = world.pod();

    assert_eq!(
        pod.init_containers.unwrap()[0].resources,
        pod.containers[0].resources
    );
}

#[test]
fn where_the_node_brings_agent_runner_nothing_installs_it() {
    let mut world = World::minimal();
    let installed = world.pod();
    world.settings.runner.install = None;
    let pod = world.pod();

    assert_eq!(pod.init_containers, None);
    assert_eq!(pod.containers[0].command, installed.containers[0].command);
    let names = |pod: &PodSpec| -> Vec<String> {
        pod.volumes
            .iter()
            .flatten()
            .map(|volume| volume.name.clone())
            .collect()
    };
    let mut expected = names(&installed);
    expected.retain(|name| name != "fix-1-agent-runner");
    assert_eq!(names(&pod), expected);

    let in_its_way = json!([{"name": "v", "type": "emptyDir", "mountPath": "/opt/agent-runner"}]);
    assert!(
        world.with_volumes(&in_its_way).build().is_err(),
        "its place stays free"
    );
}
