//! What the chart lets the workloads do is what the tests on a real cluster run them with, and what callers need is what it grants them.

use std::collections::BTreeSet;

use jangar_api::Kind;
use jangar_server::plane::approvals::APPROVE_VERB;
use serde_json::{Value, json};

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

fn role_of(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("tests/cluster").join(file)).expect("there is a role");
    let role: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    rights(&role["rules"])
}

/// What the controllers are tested with, as far as it is not for Jobs that they look after themselves.
fn tested() -> BTreeSet<String> {
    let of_jobs = |right: &String| {
        ["jobs/status", "jobs/finalizers"]
            .iter()
            .any(|each| right.contains(each))
    };
    role_of("role.yaml")
        .into_iter()
        .filter(|right| !of_jobs(right))
        .collect()
}

/// The rights of Roles by their names, which are all bound to this account.
fn bound_to(objects: &[Value], account: &str, names: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in names {
        let role = find(objects, "Role", name).expect("there is a Role");
        let binding = find(objects, "RoleBinding", name).expect("it is bound");
        assert_eq!(binding["roleRef"]["name"], *name);
        assert_eq!(binding["subjects"][0]["name"], account);
        found.extend(rights(&role["rules"]));
    }
    found
}

const CONTROLLERS: [&str; 2] = ["agents-controllers", "agents-controllers-lease"];
const CONTROL_PLANE: [&str; 2] = ["agents-control-plane", "agents-control-plane-lease"];

#[test]
fn rights_are_those_that_the_tests_run_with() {
    let objects = rendered("controller: {jobController: jangar}");
    for (account, names, file) in [
        ("agents-sa", CONTROLLERS, "role.yaml"),
        ("agents-control-plane", CONTROL_PLANE, "control-plane-role.yaml"),
    ] {
        assert_eq!(
            bound_to(&objects, account, &names),
            role_of(file),
            "run `make generate`: charts/agents/files has copies of tests/cluster/{file}"
        );
    }
}

/// An admin of a namespace could not give these rights, having none of them.
#[test]
fn how_jobs_stand_is_written_only_where_jangar_looks_after_them() {
    let objects = rendered("{}");
    assert_eq!(bound_to(&objects, "agents-sa", &CONTROLLERS), tested());
    assert!(tested().is_subset(&role_of("role.yaml")));
    assert_ne!(tested(), role_of("role.yaml"));
}

/// It reads every kind, records decisions about gates, and sees who leads: docs/control-plane.md. All else it does with the
/// tokens of its callers.
#[test]
fn the_control_plane_reads_every_kind_and_writes_decisions_alone() {
    let mut expected = BTreeSet::from([
        "patch orchestration.proompteng.ai/orchestrationruns/status []".to_owned(),
        r#"get coordination.k8s.io/leases ["jangar-controller-leader"]"#.to_owned(),
    ]);
    for info in Kind::ALL.iter().map(|kind| kind.info()) {
        for verb in ["get", "list", "watch"] {
            expected.insert(format!("{verb} {}/{} []", info.group, info.plural));
        }
    }
    assert_eq!(role_of("control-plane-role.yaml"), expected);
}

/// At the end of an uninstall nothing of the release is left: neither its account nor its bindings.
#[test]
fn the_last_job_has_an_account_and_rights_that_are_there_when_it_runs() {
    let hook = |object: &&Value| object["metadata"]["annotations"]["helm.sh/hook"] == "post-delete";
    for (rbac, account, expected) in [
        (true, true, Some("agents-release-jobs")),
        (true, false, Some("mine")),
        (false, false, Some("mine")),
        (false, true, None),
    ] {
        let values = format!("rbac: {{create: {rbac}}}\nserviceAccount: {{create: {account}, name: mine}}\n");
        let objects = rendered(&values);
        let hooks: Vec<&Value> = objects.iter().filter(hook).collect();
        let of_kind = |kind: &str| hooks.iter().filter(|hook| hook["kind"] == kind).count();
        let job = hooks.iter().find(|hook| hook["kind"] == "Job");
        let used = job.map(|job| &job["spec"]["template"]["spec"]["serviceAccountName"]);
        assert_eq!(used.and_then(Value::as_str), expected, "{values}");
        assert_eq!(
            of_kind("ServiceAccount"),
            usize::from(rbac && account),
            "{values}"
        );
        assert_eq!(of_kind("Role"), if rbac { 2 } else { 0 }, "{values}");
        for binding in hooks.iter().filter(|hook| hook["kind"] == "RoleBinding") {
            assert_eq!(binding["subjects"][0]["name"].as_str(), expected, "{values}");
        }
    }
}

/// The pod of a run leaves it to its account whether there is a token.
#[test]
fn an_account_of_runs_has_a_token_if_it_has_rights() {
    for rbac in [false, true] {
        let objects = rendered(&format!(
            "runnerServiceAccount: {{create: true, rbac: {{create: {rbac}}}}}"
        ));
        let account = find(&objects, "ServiceAccount", "agents-runner").expect("there is an account");
        assert_eq!(account["automountServiceAccountToken"], rbac);
        assert_eq!(find(&objects, "RoleBinding", "agents-runner").is_some(), rbac);
    }
}

#[test]
fn without_forges_secrets_are_looked_at_and_never_written() {
    let objects = rendered("controller: {vcsProviders: {enabled: false}}");
    let role = find(&objects, "Role", "agents-controllers").expect("there is a Role");
    let expected: BTreeSet<String> = tested()
        .into_iter()
        .filter(|right| {
            !["versioncontrolproviders", "secrets", "leases"]
                .iter()
                .any(|each| right.contains(each))
        })
        .chain(["get /secrets []".to_owned()])
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
    for (workload, verb) in [("agents-controllers", "update"), ("agents-control-plane", "get")] {
        let namespaces: Vec<&str> = objects
            .iter()
            .filter(|object| object["kind"] == "Role" && object["metadata"]["name"] == workload)
            .filter_map(|object| object["metadata"]["namespace"].as_str())
            .collect();
        assert_eq!(namespaces, ["a", "b"], "{workload}");
        let lease = find(&objects, "Role", &format!("{workload}-lease")).expect("there is a Role");
        assert_eq!(lease["metadata"]["namespace"], "agents");
        let right = format!(r#"{verb} coordination.k8s.io/leases ["own"]"#);
        assert!(rights(&lease["rules"]).contains(&right), "{lease}");
    }
}

#[test]
fn rights_in_the_cluster_are_the_same_ones() {
    let objects =
        rendered("rbac: {clusterScoped: true}\ncontroller: {namespaces: ['*'], jobController: jangar}");
    for (workload, file) in [
        ("agents-controllers", "role.yaml"),
        ("agents-control-plane", "control-plane-role.yaml"),
    ] {
        let role =
            find(&objects, "ClusterRole", &format!("agents-{workload}")).expect("there is a ClusterRole");
        let lease = find(&objects, "Role", &format!("{workload}-lease"))
            .expect("the Lease is in one namespace all the same");
        let both: BTreeSet<String> = rights(&role["rules"])
            .into_iter()
            .chain(rights(&lease["rules"]))
            .collect();
        assert_eq!(both, role_of(file), "{workload}");
    }
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
fn a_control_plane_beside_controllers_has_an_account_of_its_own() {
    let objects = rendered("{}");
    let account = |name: &str| {
        find(&objects, "Deployment", name).expect("there is a Deployment")["spec"]["template"]["spec"]
            ["serviceAccountName"]
            .clone()
    };
    assert_eq!(account("agents"), "agents-control-plane");
    assert_eq!(account("agents-controllers"), "agents-sa");
    assert!(find(&objects, "ServiceAccount", "agents-control-plane").is_some());
}

#[test]
fn a_control_plane_that_does_the_work_of_controllers_has_the_rights_of_both() {
    let objects = rendered("controllers: {enabled: false}");
    let pod = &find(&objects, "Deployment", "agents").expect("there is a control plane")["spec"]["template"]
        ["spec"];
    assert_eq!(pod["serviceAccountName"], "agents-sa");
    let arguments = pod["containers"][0]["args"].as_array().expect("it has arguments");
    assert!(
        arguments.contains(&Value::from("--with-controllers")),
        "{arguments:?}"
    );
    bound_to(&objects, "agents-sa", &CONTROLLERS);
    bound_to(&objects, "agents-sa", &CONTROL_PLANE);
}

/// A Secret that is not named cannot be read, whatever a source says.
#[test]
fn webhooks_bring_the_rights_they_need_and_no_other_secrets() {
    let objects = rendered("controlPlane: {webhooks: {enabled: true, secrets: [forge]}}");
    let with = bound_to(&objects, "agents-control-plane", &CONTROL_PLANE);
    let without = role_of("control-plane-role.yaml");
    let more: Vec<&str> = with.difference(&without).map(String::as_str).collect();
    assert_eq!(
        more,
        [
            "create agents.proompteng.ai/implementationspecs []",
            r#"get /secrets ["forge"]"#,
            "patch agents.proompteng.ai/implementationsources/status []",
            "patch agents.proompteng.ai/implementationspecs []",
            "patch agents.proompteng.ai/implementationspecs/status []",
        ]
    );
}

#[test]
fn without_a_control_plane_there_are_no_rights_for_one() {
    let objects = rendered("controlPlane: {enabled: false}");
    for kind in ["Role", "RoleBinding", "ServiceAccount"] {
        assert!(find(&objects, kind, "agents-control-plane").is_none(), "{kind}");
    }
}

/// Roles for people are bound by somebody else: the chart cannot know who they are.
#[test]
fn roles_for_people_grow_from_seeing_to_starting_and_deciding() {
    let objects = rendered("rbac: {userRoles: {create: true}}");
    let role = |name: &str| {
        assert!(find(&objects, "RoleBinding", name).is_none(), "{name} is bound");
        rights(&find(&objects, "Role", name).expect("there is a Role")["rules"])
    };
    let [viewer, submitter, approver] = ["agents-viewer", "agents-submitter", "agents-approver"].map(role);
    for info in Kind::ALL.iter().map(|kind| kind.info()) {
        let right = format!("list {}/{} []", info.group, info.plural);
        assert!(viewer.contains(&right), "{right}");
    }
    let reading = ["get ", "list ", "watch "];
    for right in &viewer {
        assert!(reading.iter().any(|verb| right.starts_with(verb)), "{right}");
        assert!(!right.contains("secrets "), "{right}");
    }
    assert!(submitter.is_superset(&viewer) && approver.is_superset(&viewer));
    assert!(submitter.contains("create agents.proompteng.ai/agentruns []"));
    let decides = format!("{APPROVE_VERB} orchestration.proompteng.ai/orchestrationruns []");
    assert_eq!(
        approver.difference(&viewer).collect::<Vec<_>>(),
        [&decides],
        "whoever decides need not start anything"
    );
    assert!(!submitter.contains(&decides));
    assert!(find(&rendered("{}"), "Role", "agents-viewer").is_none());
}

#[test]
fn roles_for_people_are_aggregated_only_where_that_is_asked_for() {
    let values = "rbac: {clusterScoped: true, userRoles: {create: true, aggregate: true}}";
    let objects = rendered(values);
    let labels = |objects: &[Value]| {
        let role = find(objects, "ClusterRole", "agents-agents-submitter").expect("there is a ClusterRole");
        let labels = role["metadata"]["labels"]
            .as_object()
            .expect("it has labels")
            .clone();
        let aggregated = labels.into_iter().map(|(key, _)| key);
        aggregated
            .filter(|key| key.contains("aggregate"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        labels(&objects),
        [
            "rbac.authorization.k8s.io/aggregate-to-admin",
            "rbac.authorization.k8s.io/aggregate-to-edit"
        ]
    );
    let plain = rendered("rbac: {clusterScoped: true, userRoles: {create: true}}");
    assert!(labels(&plain).is_empty());
}

/// What a policy says is shown on a real API server by `tests/chart/installed.sh`.
#[test]
fn policy_about_creators_is_there_only_if_asked_for_and_frees_the_programs_of_the_release() {
    let of = |values: &str| {
        let objects = rendered(values);
        let binding = find(
            &objects,
            "ValidatingAdmissionPolicyBinding",
            "agents-agents-creator",
        )
        .cloned();
        let policy = find(&objects, "ValidatingAdmissionPolicy", "agents-agents-creator").cloned();
        policy.zip(binding)
    };
    assert!(of("{}").is_none());
    let (policy, binding) = of("rbac: {creatorPolicy: {create: true}}").expect("there is a policy");
    let condition = policy["spec"]["matchConditions"][0]["expression"].to_string();
    assert!(
        condition.contains("'system:serviceaccount:agents:agents-sa'"),
        "{condition}"
    );
    let namespaces = "/spec/matchResources/namespaceSelector/matchExpressions/0/values";
    assert_eq!(binding.pointer(namespaces), Some(&json!(["agents"])));

    let everywhere =
        "{rbac: {clusterScoped: true, creatorPolicy: {create: true}}, controller: {namespaces: ['*']}}";
    let (_, binding) = of(everywhere).expect("there is a policy");
    assert_eq!(
        binding.pointer(namespaces),
        None,
        "every namespace is looked after"
    );
}
