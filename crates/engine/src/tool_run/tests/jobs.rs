//! The Job that a run is given.

use jangar_api::labels;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::World;

fn started(tool: &Value, runtime: &Value) -> World {
    let mut world = World::new().with_tool(tool);
    world.edit(|run| {
        run.spec.runtime = serde_json::from_value(runtime.clone()).expect("settings");
        run.spec
            .parameters
            .insert("path".to_owned(), "$(HOME)/src".to_owned());
    });
    world.settle();
    world
}

fn pod(world: &World) -> PodSpec {
    let job = world.created.first().expect("a Job").job.clone();
    job.spec.expect("a spec").template.spec.expect("a pod")
}

#[test]
fn the_whole_job() {
    let tool = json!({
        "image": "linter:1", "command": ["lint"], "args": ["--path", "{{ parameters.path }}", "{{ toolRun.name }}"],
        "env": [{"name": "TOOL", "value": "{{ tool.name }}"}],
        "serviceAccount": "linter", "workingDir": "/src", "secrets": ["token"], "timeoutSeconds": 60,
        "ttlSecondsAfterFinished": 120, "resources": {"limits": {"memory": "64Mi"}},
    });
    let mut world = started(&tool, &json!({}));
    let job = &world.created.remove(0).job;
    insta::assert_snapshot!(serde_json::to_string_pretty(job).expect("JSON"));
}

#[test]
fn a_constraint_without_a_selector_spreads_the_runs_of_tools() {
    let spread = |selector: Value| {
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
        });
        if !selector.is_null() {
            constraint["labelSelector"] = selector;
        }
        let runtime = json!({"config": {"topologySpreadConstraints": [constraint]}});
        let world = started(&json!({"image": "linter:1", "command": ["lint"]}), &runtime);
        let constraints = pod(&world).topology_spread_constraints.expect("one");
        serde_json::to_value(&constraints[0].label_selector).expect("JSON")
    };
    let all = json!({"matchExpressions": [{"key": labels::TOOL_RUN, "operator": "Exists"}]});
    assert_eq!(spread(Value::Null), all);
    assert_eq!(spread(json!({})), all);
    let own = json!({"matchLabels": {"team": "a"}});
    assert_eq!(spread(own.clone()), own);
}

#[test]
fn what_a_run_says_about_its_pod_goes_before_the_settings_and_an_empty_list_clears_them() {
    let mut world = World::new();
    world
        .settings
        .runner
        .node_selector
        .insert("pool".to_owned(), "agents".to_owned());
    world.settings.runner.priority_class = Some("low".to_owned());
    world.settle();
    let by_settings = pod(&world);
    assert_eq!(
        by_settings.node_selector.expect("that of the settings")["pool"],
        "agents"
    );
    assert_eq!(by_settings.priority_class_name.as_deref(), Some("low"));

    let mut world = World::new();
    world
        .settings
        .runner
        .node_selector
        .insert("pool".to_owned(), "agents".to_owned());
    world.settings.policy.priority_classes_allowed = vec!["high".to_owned()];
    let runtime = json!({"config": {"nodeSelector": {}, "priorityClassName": "high"}});
    world.edit(|run| run.spec.runtime = serde_json::from_value(runtime).expect("settings"));
    world.settle();
    let own = pod(&world);
    assert_eq!(own.node_selector, None);
    assert_eq!(own.priority_class_name.as_deref(), Some("high"));
}

#[test]
fn a_token_of_the_cluster_is_only_for_those_who_ask_for_an_account() {
    let plain = started(&json!({"image": "a", "command": ["b"]}), &Value::Null);
    let pod = pod(&plain);
    assert_eq!(
        (pod.automount_service_account_token, pod.service_account_name),
        (Some(false), None)
    );
}

#[test]
fn the_largest_parameters_there_can_be_go_into_a_config_map() {
    let mut world = World::new();
    world.edit(|run| {
        for index in 0..100 {
            run.spec.parameters.insert(format!("p{index}"), "x".repeat(2048));
        }
    });
    world.settle();
    assert_eq!(
        world.deeds,
        ["files lint-spec", "create lint-job"],
        "annotations have no room for them"
    );
}
