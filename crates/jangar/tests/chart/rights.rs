//! What the chart lets the controllers do is what the tests on a real cluster run them with.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::helm::{find, rendered, root};

/// Every right of a list of rules, one by one.
fn rights(rules: &Value) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().cloned().unwrap_or_default();
        all.iter()
            .filter_map(|each| each.as_str().map(str::to_owned))
            .collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().expect("there are rules") {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    all.insert(format!(
                        "{verb} {group}/{resource} {:?}",
                        texts(&rule["resourceNames"])
                    ));
                }
            }
        }
    }
    all
}

fn tested() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("tests/cluster/role.yaml")).expect("there is a role");
    let role: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    rights(&role["rules"])
}

#[test]
fn rights_are_those_that_the_tests_run_with() {
    let objects = rendered("{}");
    let mut found = BTreeSet::new();
    for name in ["agents-controllers", "agents-controllers-lease"] {
        let role = find(&objects, "Role", name).expect("there is a Role");
        let binding = find(&objects, "RoleBinding", name).expect("it is bound");
        assert_eq!(binding["roleRef"]["name"], name);
        assert_eq!(binding["subjects"][0]["name"], "agents-sa");
        found.extend(rights(&role["rules"]));
    }
    assert_eq!(
        found,
        tested(),
        "run `make generate`: charts/agents/files/controllers-role.yaml is made from tests/cluster/role.yaml"
    );
}

#[test]
fn without_forges_there_is_no_right_to_secrets() {
    let objects = rendered("controller: {vcsProviders: {enabled: false}}");
    let role = find(&objects, "Role", "agents-controllers").expect("there is a Role");
    let expected: BTreeSet<String> = tested()
        .into_iter()
        .filter(|right| {
            !["versioncontrolproviders", "secrets", "leases"]
                .iter()
                .any(|each| right.contains(each))
        })
        .collect();
    assert_eq!(rights(&role["rules"]), expected);
}

#[test]
fn an_install_for_named_namespaces_has_no_right_in_the_cluster() {
    let objects = rendered("controller: {namespaces: [a, b], leaderElection: {leaseName: own}}");
    assert!(
        objects
            .iter()
            .all(|object| !object["kind"].as_str().unwrap_or_default().starts_with("Cluster"))
    );
    let namespaces: Vec<&str> = objects
        .iter()
        .filter(|object| object["kind"] == "Role" && object["metadata"]["name"] == "agents-controllers")
        .filter_map(|object| object["metadata"]["namespace"].as_str())
        .collect();
    assert_eq!(namespaces, ["a", "b"]);
    let lease = find(&objects, "Role", "agents-controllers-lease").expect("there is a Role");
    assert_eq!(lease["metadata"]["namespace"], "agents");
    assert!(
        rights(&lease["rules"]).contains(r#"update coordination.k8s.io/leases ["own"]"#),
        "{lease}"
    );
}

#[test]
fn rights_in_the_cluster_are_the_same_ones() {
    let objects = rendered("rbac: {clusterScoped: true}\ncontroller: {namespaces: ['*']}");
    let role = objects
        .iter()
        .find(|object| {
            object["kind"] == "ClusterRole" && object["metadata"]["name"] == "agents-agents-controllers"
        })
        .expect("there is a ClusterRole");
    let lease = find(&objects, "Role", "agents-controllers-lease")
        .expect("the Lease is in one namespace all the same");
    let both: BTreeSet<String> = rights(&role["rules"])
        .into_iter()
        .chain(rights(&lease["rules"]))
        .collect();
    assert_eq!(both, tested());
}

/// It does at the end what the controllers did all along, and needs no more for it.
#[test]
fn the_uninstall_hook_has_no_right_that_controllers_do_not_have() {
    let objects = rendered("{}");
    for name in ["agents-release-jobs", "agents-release-jobs-lease"] {
        let role = find(&objects, "Role", name).expect("there is a Role");
        assert!(rights(&role["rules"]).is_subset(&tested()), "{role}");
        assert_eq!(role["metadata"]["annotations"]["helm.sh/hook"], "post-delete");
    }
}

#[test]
fn a_control_plane_beside_controllers_has_none_of_their_rights() {
    let objects = rendered("controlPlane: {enabled: true}\ndatabase: {url: x}");
    let pods = &find(&objects, "Deployment", "agents").expect("there is a control plane")["spec"]["template"]
        ["spec"];
    assert_eq!(pods["serviceAccountName"], "agents-control-plane");
    let bound = objects.iter().filter(|object| object["kind"] == "RoleBinding");
    for binding in bound {
        assert_ne!(binding["subjects"][0]["name"], "agents-control-plane");
    }
}
