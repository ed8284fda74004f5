//! What every file of `charts/agents/ci` renders to, and what holds of all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::helm::{Helm, env_of, find, objects, rendered, values_files, workload};

/// Helm 4 puts an empty line at the end of a document, which is no difference.
fn normal(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.join("\n")
}

#[test]
fn each_values_file_renders_to_what_was_agreed() {
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        for (name, values) in values_files() {
            let text = Helm::Three.template(&values, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            insta::assert_snapshot!(name, normal(&text));
        }
    });
}

#[test]
fn both_helms_render_the_same() {
    for (name, values) in values_files() {
        let [three, four] = [Helm::Three, Helm::Four].map(|helm| {
            helm.template(&values, &[])
                .unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        assert_eq!(normal(&three), normal(&four), "{name}");
    }
}

#[test]
fn no_variable_is_there_twice_and_no_number_is_a_float() {
    for (name, values) in values_files() {
        for object in rendered(&values) {
            if !["Deployment", "Rollout"].contains(&object["kind"].as_str().unwrap_or_default()) {
                continue;
            }
            let variables = env_of(&object);
            let names: BTreeSet<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names.len(), variables.len(), "{name}: {variables:?}");
            for (variable, value) in &variables {
                let value = value.as_deref().unwrap_or_default();
                assert!(
                    !value.contains("e+") || value.parse::<f64>().is_err(),
                    "{name}: {variable} is {value}"
                );
            }
        }
    }
}

#[test]
fn every_pod_keeps_to_the_restricted_standard() {
    for (name, values) in values_files() {
        for object in rendered(&values) {
            let pod = &object["spec"]["template"]["spec"];
            let Some(containers) = pod["containers"].as_array() else {
                continue;
            };
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_eq!(
                pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
                "{name}"
            );
            assert_eq!(pod["enableServiceLinks"], false, "{name}");
            for container in containers {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            }
        }
    }
}

#[test]
fn an_image_of_a_component_takes_over_no_digest_of_another_repository() {
    let digest = format!("sha256:{}", "0".repeat(64));
    for (own, expected) in [
        ("{}", format!("registry.example.com/jangar:1@{digest}")),
        (
            "{repository: other.example.com/jangar}",
            "other.example.com/jangar:1".to_owned(),
        ),
        ("{tag: '2'}", "registry.example.com/jangar:2".to_owned()),
    ] {
        let values = format!(
            "image: {{repository: registry.example.com/jangar, tag: '1', digest: '{digest}'}}\ncontrollers: {{image: {own}}}\n"
        );
        let objects = rendered(&values);
        let deployment =
            find(&objects, "Deployment", "agents-controllers").expect("the controllers are a Deployment");
        assert_eq!(
            deployment["spec"]["template"]["spec"]["containers"][0]["image"], expected,
            "{own}"
        );
    }
}

/// The directory of the image is named beside that of the ConfigMap: the variable replaces what would be found without it.
#[test]
fn further_authorities_are_mounted_where_the_variable_points() {
    let objects = rendered("trustedCertificates: {configMap: authorities}");
    for name in ["agents", "agents-controllers"] {
        let deployment = find(&objects, "Deployment", name).expect("there is a Deployment");
        let pod = &deployment["spec"]["template"]["spec"];
        let volume = pod["volumes"]
            .as_array()
            .expect("there are volumes")
            .iter()
            .find(|volume| volume["configMap"]["name"] == "authorities")
            .expect("it is a volume");
        let mount = pod["containers"][0]["volumeMounts"]
            .as_array()
            .expect("there are mounts")
            .iter()
            .find(|mount| mount["name"] == volume["name"])
            .expect("it is mounted");
        let path = mount["mountPath"].as_str().expect("somewhere");
        let variable = ("SSL_CERT_DIR".to_owned(), Some(format!("/etc/ssl/certs:{path}")));
        assert!(env_of(deployment).contains(&variable), "{name}");
    }
    assert!(
        !env_of(find(&rendered("{}"), "Deployment", "agents").expect("there is one"))
            .iter()
            .any(|(name, _)| name == "SSL_CERT_DIR")
    );
}

/// Two pods that both write would be worse than none for a moment.
#[test]
fn without_a_lease_the_pod_that_writes_is_gone_before_the_next_one_comes() {
    let off = "controller: {leaderElection: {enabled: false}}\n";
    for (values, writer, other) in [
        (off.to_owned(), "agents-controllers", Some("agents")),
        (format!("{off}controllers: {{enabled: false}}\n"), "agents", None),
    ] {
        let objects = rendered(&values);
        let strategy = |name| &workload(&objects, name)["spec"]["strategy"];
        assert_eq!(*strategy(writer), json!({"type": "Recreate"}), "{values}");
        if let Some(other) = other {
            assert_eq!(strategy(other)["type"], "RollingUpdate", "{values}");
        }
    }
    let with = rendered("{}");
    assert_eq!(
        workload(&with, "agents-controllers")["spec"]["strategy"]["type"],
        "RollingUpdate"
    );
}

/// Without controllers of their own there may be no other image than that of the control plane.
#[test]
fn what_is_started_beside_the_workloads_has_the_image_of_the_one_that_does_the_work() {
    for (values, expected) in [
        (
            "controllers: {image: {repository: a}}\ncontrolPlane: {image: {repository: b}}\n",
            "a:0.10.0",
        ),
        (
            "controllers: {enabled: false, image: {repository: a}}\ncontrolPlane: {image: {repository: b}}\n",
            "b:0.10.0",
        ),
    ] {
        let objects = rendered(values);
        let job = find(&objects, "Job", "agents-release-jobs").expect("there is a hook");
        assert_eq!(
            job["spec"]["template"]["spec"]["containers"][0]["image"], expected,
            "{values}"
        );
        let variable = ("JANGAR_IMAGE".to_owned(), Some(expected.to_owned()));
        assert!(
            env_of(workload(&objects, "agents")).contains(&variable),
            "{values}"
        );
    }
}

/// Neither the Service nor a policy of the control plane may take the last Job for one of its pods.
#[test]
fn no_selector_finds_the_pod_of_the_last_job() {
    let objects = rendered("networkPolicy: {enabled: true}");
    let job = find(&objects, "Job", "agents-release-jobs").expect("there is a hook");
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    for selector in objects.iter().flat_map(|object| {
        let spec = &object["spec"];
        [
            &spec["selector"],
            &spec["selector"]["matchLabels"],
            &spec["podSelector"]["matchLabels"],
        ]
    }) {
        let all = selector.as_object().into_iter().flatten();
        let named: Vec<_> = all.filter(|(_, value)| value.is_string()).collect();
        assert!(
            named.is_empty() || named.iter().any(|(key, value)| labels[*key] != **value),
            "{selector} finds {labels}"
        );
    }
}

/// Callers are sent elsewhere only some time after a pod was told to end; whatever it does then has to fit into the time that it has: 5 s
/// for requests under way, and with controllers 11 s for their writes.
#[test]
fn the_control_plane_answers_for_a_while_that_fits_into_its_end() {
    for (grace, expected) in [(30, "5"), (300, "5"), (10, "2"), (0, "0")] {
        let objects = rendered(&format!("terminationGracePeriodSeconds: {grace}"));
        let pod = &workload(&objects, "agents")["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"]
            .as_array()
            .expect("there are arguments");
        let at = arguments.iter().position(|argument| argument == "--linger");
        assert_eq!(arguments[at.expect("it lingers") + 1], expected, "{grace}");
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
    }
}

#[test]
fn a_budget_is_made_only_for_a_workload_with_more_than_one_pod() {
    let objects = rendered(
        "podDisruptionBudget: {enabled: true}\ncontrollers: {replicaCount: 2}\ncontrolPlane: {enabled: true}\ndatabase: {url: x}\n",
    );
    assert!(find(&objects, "PodDisruptionBudget", "agents-controllers").is_some());
    assert!(find(&objects, "PodDisruptionBudget", "agents").is_none());
}

#[test]
fn a_policy_opens_every_port_that_a_pod_has() {
    let everything = &values_files()["everything"];
    let objects = rendered(everything);
    for name in ["agents", "agents-controllers"] {
        let policy = find(&objects, "NetworkPolicy", name).expect("there is a policy");
        let open: BTreeSet<&str> = policy["spec"]["ingress"][0]["ports"]
            .as_array()
            .expect("it has ports")
            .iter()
            .filter_map(|port| port["port"].as_str())
            .collect();
        let deployment = find(&objects, "Deployment", name).expect("there is a Deployment");
        let served: BTreeSet<&str> = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
            .as_array()
            .expect("it has ports")
            .iter()
            .filter_map(|port| port["name"].as_str())
            .collect();
        assert_eq!(open, served, "{name}");
        assert_eq!(
            policy["spec"]["podSelector"], deployment["spec"]["selector"],
            "{name}"
        );
    }
}

/// What the pods speak to by default, and what the values themselves say of it.
#[test]
fn a_policy_lets_out_what_the_values_name() {
    let ordinary = ["UDP 53", "TCP 53", "TCP 443", "TCP 6443"];
    for (values, of_both, of_controllers) in [
        ("{}", &["TCP 5432"][..], &["TCP 7233"][..]),
        (
            "kubernetesApi: {port: 8443}\nenv: {vars: {TEMPORAL_ADDRESS: 'temporal.example.com:7234'}}\n\
             database: {url: 'postgres://user:1234@db.example.com:6432/jangar?sslmode=require'}",
            &["TCP 8443", "TCP 5432", "TCP 6432"],
            &["TCP 7233", "TCP 7234"],
        ),
        (
            "controllers: {env: {vars: {TEMPORAL_ADDRESS: '[::1]:7235'}}}\nnetworkPolicy: {databasePort: 5000}\n\
             database: {url: 'postgres://user:1234@db/jangar', createSecret: {enabled: true}}",
            &["TCP 5000"],
            &["TCP 7233", "TCP 7235"],
        ),
        (
            "database: {url: 'postgresql://db:6432', createSecret: {enabled: true}}",
            &["TCP 5432", "TCP 6432"],
            &["TCP 7233"],
        ),
    ] {
        let mut values: Value = serde_saphyr::from_str(values).expect("it is YAML");
        values["networkPolicy"]["enabled"] = true.into();
        let objects = rendered(&values.to_string());
        for (name, more) in [("agents", &[][..]), ("agents-controllers", of_controllers)] {
            let policy = find(&objects, "NetworkPolicy", name).expect("there is a policy");
            let open: BTreeSet<String> = policy["spec"]["egress"]
                .as_array()
                .expect("something may go out")
                .iter()
                .flat_map(|rule| rule["ports"].as_array().cloned().unwrap_or_default())
                .map(|port| {
                    format!(
                        "{} {}",
                        port["protocol"].as_str().unwrap_or_default(),
                        port["port"]
                    )
                })
                .collect();
            let expected = ordinary.iter().chain(of_both).chain(more);
            assert_eq!(
                open,
                expected.map(ToString::to_string).collect(),
                "{name}: {values}"
            );
        }
    }
}

/// What the run itself says counts, also if that is to be kept for good; and no run goes before its Job.
#[test]
fn the_run_of_argo_cd_is_kept_as_it_says_itself_and_no_shorter_than_its_job() {
    for (own, values, expected) in [
        ("", "", 600),
        ("", "ttlSecondsAfterFinished: 900, ", 900),
        ("", "ttlSecondsAfterFinished: 0, ", 0),
        (", ttlSecondsAfterFinished: 60", "", 60),
        (", ttlSecondsAfterFinished: 0", "", 0),
    ] {
        let objects = rendered(&format!(
            "argocdHooks: {{enabled: true, {values}smoke: {{agentRun: {{metadata: {{name: smoke}}, spec: {{agentRef: {{name: a}}{own}}}}}}}}}"
        ));
        let run = find(&objects, "AgentRun", "smoke").expect("there is a run");
        assert_eq!(run["spec"]["ttlSecondsAfterFinished"], expected, "{own} {values}");
    }
}

#[test]
fn every_service_finds_pods_that_have_its_port() {
    for (name, values) in values_files() {
        let objects = rendered(&values);
        for service in objects.iter().filter(|object| object["kind"] == "Service") {
            let selector = &service["spec"]["selector"];
            let found: Vec<&Value> = objects
                .iter()
                .filter(|object| {
                    object["spec"]["selector"]["matchLabels"] == *selector
                        && !object["spec"]["template"].is_null()
                })
                .collect();
            assert_eq!(found.len(), 1, "{name}: {}", service["metadata"]["name"]);
            let ports = &found[0]["spec"]["template"]["spec"]["containers"][0]["ports"];
            let target = &service["spec"]["ports"][0]["targetPort"];
            assert!(
                ports
                    .as_array()
                    .is_some_and(|ports| ports.iter().any(|port| port["name"] == *target)),
                "{name}: {}",
                service["metadata"]["name"]
            );
        }
    }
}

/// A cluster is known by its kinds. Where it lacks one of the Prometheus operator, what needs it is left out and not refused.
#[test]
fn what_the_cluster_has_no_kind_for_is_left_out() {
    let values = &values_files()["high-availability"];
    let kinds = |arguments: &[&str]| -> Vec<String> {
        let text = Helm::Three.template(values, arguments).expect("it renders");
        let all = objects(&text);
        all.iter()
            .filter_map(|object| object["kind"].as_str())
            .filter(|kind| ["ServiceMonitor", "PrometheusRule"].contains(kind))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        kinds(&["--api-versions", "apps/v1/Deployment"]),
        Vec::<String>::new()
    );
    assert_eq!(
        kinds(&[
            "--api-versions",
            "apps/v1/Deployment",
            "--api-versions",
            "monitoring.coreos.com/v1/ServiceMonitor"
        ]),
        ["ServiceMonitor", "ServiceMonitor"]
    );
    assert_eq!(kinds(&[]).len(), 3);
}
