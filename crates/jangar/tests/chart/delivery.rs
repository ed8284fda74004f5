//! Progressive delivery: a Rollout in place of a Deployment, and nothing else that changes.

use serde_json::{Value, json};

use crate::helm::{Helm, find, objects, rendered, values_files, workload};

const BASE: &str = "controlPlane: {enabled: true}\ndatabase: {url: x}\nreplicaCount: 2\ncontrollers: {replicaCount: 2}\n\
                    podDisruptionBudget: {enabled: true}\nnetworkPolicy: {enabled: true}\n";
const ON: &str = "progressiveDelivery: {enabled: true}\n";

/// The lines below `template:` of a workload, as they are written.
fn template_text(rendered: &str, kind: &str, name: &str) -> String {
    let document = rendered
        .split("\n---\n")
        .find(|document| {
            document.contains(&format!("kind: {kind}\n")) && document.contains(&format!("\n  name: {name}\n"))
        })
        .unwrap_or_else(|| panic!("no {kind} {name}"));
    document
        .split_once("\n  template:\n")
        .expect("it has a template")
        .1
        .trim_end()
        .to_owned()
}

#[test]
fn pods_of_both_kinds_are_the_same_byte_for_byte() {
    let off = Helm::Three.template(BASE, &[]).expect("it renders");
    let on = Helm::Three
        .template(&format!("{BASE}{ON}"), &[])
        .expect("it renders");
    for name in ["agents", "agents-controllers"] {
        assert_eq!(
            template_text(&off, "Deployment", name),
            template_text(&on, "Rollout", name),
            "{name}"
        );
        let [before, after] =
            [&off, &on].map(|text| workload(&objects(text), name)["spec"]["selector"].clone());
        assert_eq!(before, after, "{name}");
    }
    assert!(!on.contains("kind: Deployment\n"));
}

#[test]
fn nothing_else_changes() {
    let others = |values: &str| -> Vec<Value> {
        let all = rendered(values);
        all.into_iter()
            .filter(|object| object["kind"] != "Deployment" && object["kind"] != "Rollout")
            .collect()
    };
    assert_eq!(others(BASE), others(&format!("{BASE}{ON}")));
}

#[test]
fn each_component_is_switched_by_itself_and_its_autoscaler_follows() {
    let values = format!(
        "{BASE}autoscaling: {{enabled: true, minReplicas: 2}}\nprogressiveDelivery: {{enabled: true, components: {{controllers: false}}}}\n"
    );
    let objects = rendered(&values);
    assert!(find(&objects, "Rollout", "agents").is_some());
    assert!(find(&objects, "Deployment", "agents-controllers").is_some());
    let scaler = find(&objects, "HorizontalPodAutoscaler", "agents").expect("there is an autoscaler");
    assert_eq!(
        scaler["spec"]["scaleTargetRef"],
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "agents"})
    );
    // An autoscaler and a number of replicas would fight.
    assert!(find(&objects, "Rollout", "agents").expect("there is one")["spec"]["replicas"].is_null());
}

#[test]
fn the_defaults_add_one_pod_and_wait_for_a_person() {
    let objects = rendered(ON);
    let spec = &find(&objects, "Rollout", "agents-controllers").expect("there is a Rollout")["spec"];
    let canary = &spec["strategy"]["canary"];
    assert_eq!(canary["steps"], json!([{"setWeight": 25}, {"pause": {}}]));
    assert_eq!(
        (&canary["maxSurge"], &canary["maxUnavailable"]),
        (&json!(1), &json!(0))
    );
    // With either of these, Rollouts would rewrite the selectors of Services.
    assert!(canary["stableService"].is_null() && canary["canaryService"].is_null());
    assert_eq!(spec["rollbackWindow"], json!({"revisions": 3}));
}

#[test]
fn a_pod_finds_its_role_in_a_file_that_follows_the_label() {
    let objects = rendered(ON);
    let spec = &find(&objects, "Rollout", "agents-controllers").expect("there is a Rollout")["spec"];
    let canary = &spec["strategy"]["canary"];
    assert_eq!(
        canary["canaryMetadata"]["labels"]["agents.proompteng.ai/rollout-role"],
        "canary"
    );
    let pod = &spec["template"]["spec"];
    let item = &pod["volumes"][0]["downwardAPI"]["items"][0];
    assert_eq!(
        item["fieldRef"]["fieldPath"],
        "metadata.labels['agents.proompteng.ai/rollout-role']"
    );
    let mount = pod["containers"][0]["volumeMounts"][0]["mountPath"]
        .as_str()
        .expect("it is mounted");
    let file = format!("{mount}/{}", item["path"].as_str().expect("it has a path"));
    let env = crate::helm::env_of(find(&objects, "Rollout", "agents-controllers").expect("there is one"));
    assert!(env.contains(&("JANGAR_ROLLOUT_ROLE_FILE".to_owned(), Some(file))));
}

/// A cluster is asked only where there is one; it is known by the kinds it serves.
#[test]
fn a_cluster_without_rollouts_is_refused_and_no_cluster_is_not() {
    let cluster = ["--api-versions", "apps/v1/Deployment"];
    let with = [
        "--api-versions",
        "apps/v1/Deployment",
        "--api-versions",
        "argoproj.io/v1alpha1/Rollout",
    ];
    for helm in [Helm::Three, Helm::Four] {
        assert!(helm.template(ON, &[]).is_ok());
        assert!(helm.template(ON, &with).is_ok());
        assert!(helm.template("{}", &cluster).is_ok());
        let said = helm.template(ON, &cluster).expect_err("the kind is missing");
        assert!(said.contains("install Argo Rollouts first"), "{said}");
        assert!(
            helm.template("progressiveDelivery: {enabled: true, crdCheck: never}", &cluster)
                .is_ok()
        );
    }
}

#[test]
fn the_command_of_the_seed_finds_a_rollout() {
    for helm in [Helm::Three, Helm::Four] {
        let text = helm
            .run(
                &[
                    "template",
                    "agents",
                    "charts/agents",
                    "--set",
                    "progressiveDelivery.enabled=true",
                ],
                "",
            )
            .expect("it renders");
        assert!(text.lines().any(|line| line == "kind: Rollout"), "{text}");
    }
}

#[test]
fn the_notes_name_commands_that_work_for_the_kind() {
    let notes = |values: &str| -> String {
        // Helm 3 shows notes of a dry run only; without a cluster that is `--dry-run=client`.
        let arguments = [
            "install",
            "agents",
            "charts/agents",
            "--dry-run=client",
            "--namespace",
            "agents",
            "--values",
            "-",
        ];
        let said = Helm::Four
            .run(&arguments, values)
            .unwrap_or_else(|error| panic!("{error}"));
        said.split_once("NOTES:").expect("there are notes").1.to_owned()
    };
    let deployment = notes("{}");
    assert!(
        deployment.contains("rollout status deployment/agents-controllers"),
        "{deployment}"
    );
    let rollout = notes(ON);
    assert!(!rollout.contains("rollout status"), "{rollout}");
    assert!(
        rollout.contains(r#"'{"status":{"pauseConditions":null}}'"#),
        "{rollout}"
    );
}

#[test]
fn values_files_show_both_ways() {
    for name in ["rollouts", "rollouts-of-controllers"] {
        let objects = rendered(&values_files()[name]);
        assert!(
            find(&objects, "Rollout", "agents-controllers").is_some(),
            "{name}"
        );
    }
}
