//! Values that cannot be meant are refused before anything is rendered, in words that say what to change.

use crate::helm::Helm;

/// A values file, and what is said about it.
type Case = (&'static str, &'static str);

/// What the schema refuses.
const SCHEMA: &[Case] = &[
    ("replicas: 2", "additional properties 'replicas' not allowed"),
    (
        "controller: {concurrency: {perAgents: 1}}",
        "at '/controller/concurrency': additional properties 'perAgents' not allowed",
    ),
    (
        "controller: {concurrency: {perAgent: many}}",
        "at '/controller/concurrency/perAgent': got string, want integer",
    ),
    (
        "controller: {concurrency: {perAgent: 0}}",
        "at '/controller/concurrency/perAgent': minimum: got 0, want 1",
    ),
    (
        "controller: {queue: {cluster: 1.5}}",
        "at '/controller/queue/cluster': got number, want integer",
    ),
    (
        "controller: {jobTtlSecondsAfterFinished: 29}",
        "at '/controller/jobTtlSecondsAfterFinished'",
    ),
    (
        "controller: {jobTtlSecondsAfterFinished: 604801}",
        "at '/controller/jobTtlSecondsAfterFinished': maximum",
    ),
    (
        "controller: {namespaces: [Upper]}",
        "at '/controller/namespaces/0'",
    ),
    (
        "controller: {leaderElection: {enabled: 'no'}}",
        "at '/controller/leaderElection/enabled': got string, want boolean",
    ),
    (
        "controller: {vcsProviders: {deprecatedTokenTypes: {github: [password]}}}",
        "at '/controller/vcsProviders/deprecatedTokenTypes/github/0'",
    ),
    (
        "controller: {defaultWorkload: {topologySpreadConstraints: {}}}",
        "at '/controller/defaultWorkload/topologySpreadConstraints': got object, want array",
    ),
    (
        "controller: {defaultWorkload: {topologySpreadConstraints: [zone]}}",
        "at '/controller/defaultWorkload/topologySpreadConstraints/0': got string, want object",
    ),
    (
        "controlPlane: {enabled: 'yes'}",
        "at '/controlPlane/enabled': got string, want boolean",
    ),
    (
        "controlPlane: {replicaCount: 0}",
        "at '/controlPlane/replicaCount': minimum",
    ),
    (
        "controlPlane: {port: 8080}",
        "at '/controlPlane': additional properties 'port' not allowed",
    ),
    (
        "controlPlane: {env: {vars: {A: {b: c}}}}",
        "at '/controlPlane/env/vars/A': got object",
    ),
    (
        "rbac: {userRoles: {create: [viewer]}}",
        "at '/rbac/userRoles/create': got array, want boolean",
    ),
    (
        "metrics: {prometheusRule: {approvalsWaitFor: soon}}",
        "at '/metrics/prometheusRule/approvalsWaitFor'",
    ),
    (
        "controller: {authSecret: {mountPath: /home/../root}}",
        "at '/controller/authSecret/mountPath'",
    ),
    (
        "controller: {authSecret: {mountPath: '/a:b'}}",
        "at '/controller/authSecret/mountPath'",
    ),
    (
        "controller: {leaderElection: {leaseName: ''}}",
        "at '/controller/leaderElection/leaseName'",
    ),
    (
        "database: {secretRef: {name: Upper}}",
        "at '/database/secretRef/name'",
    ),
    ("logging: {level: jangar=loud}", "at '/logging/level'"),
    (
        "podDisruptionBudget: {minAvailable: most}",
        "at '/podDisruptionBudget/minAvailable'",
    ),
    ("service: {type: ExternalName}", "at '/service/type'"),
    ("grpc: {serviceType: LoadBalancer}", "at '/grpc/serviceType'"),
    ("grpc: {port: 70000}", "at '/grpc/port': maximum"),
    ("image: {pullPolicy: Sometimes}", "at '/image/pullPolicy'"),
    ("image: {digest: abc}", "at '/image/digest'"),
    ("env: {vars: {A: [1]}}", "at '/env/vars/A': got array"),
    ("env: {extra: [{name: A}]}", "missing property 'value'"),
    (
        "progressiveDelivery: {provider: flagger}",
        "at '/progressiveDelivery/provider'",
    ),
    (
        "progressiveDelivery: {crdCheck: sometimes}",
        "at '/progressiveDelivery/crdCheck'",
    ),
    (
        "progressiveDelivery: {canarySteps: [{setWeight: 900}]}",
        "at '/progressiveDelivery/canarySteps/0/setWeight': maximum",
    ),
    (
        "progressiveDelivery: {canarySteps: [{setWeight: 10, pause: {}}]}",
        "at '/progressiveDelivery/canarySteps/0': maxProperties",
    ),
    (
        "progressiveDelivery: {canarySteps: [{wait: 5}]}",
        "additional properties 'wait' not allowed",
    ),
    (
        "progressiveDelivery: {canarySteps: [{pause: {duration: soon}}]}",
        "at '/progressiveDelivery/canarySteps/0/pause/duration'",
    ),
    (
        "progressiveDelivery: {canarySteps: [{setCanaryScale: {weight: 5}}]}",
        "setCanaryScale needs a traffic router",
    ),
    (
        "progressiveDelivery: {maxSurge: some}",
        "at '/progressiveDelivery/maxSurge'",
    ),
    (
        "controller: {jobController: us}",
        "at '/controller/jobController': value must be one of",
    ),
    (
        "networkPolicy: {enabled: true, policyTypes: []}",
        "at '/networkPolicy/policyTypes': minItems",
    ),
    ("fullnameOverride: a.b", "at '/fullnameOverride'"),
    ("fullnameOverride: 1a", "at '/fullnameOverride'"),
    ("nameOverride: a.b", "at '/nameOverride'"),
    ("agentComms: {enabled: true}", "agentComms was left out"),
    ("workflowRuntime: {native: {}}", "workflowRuntime was left out"),
    (
        "argocdHooks: {image: {repository: kubectl}}",
        "argocdHooks.image was left out",
    ),
];

/// What contradicts itself.
const CONTRADICTIONS: &[Case] = &[
    (
        "controlPlane: {enabled: false}\ncontrollers: {enabled: false}",
        "so nothing would run: set one of them to true",
    ),
    (
        "controller: {jobTtlSeconds: 77}",
        "controller.jobTtlSecondsAfterFinished is 600 and controller.jobTtlSeconds is 77, and they are one value",
    ),
    (
        "controller: {jobTtlSecondsAfterFinished: null, jobTtlSeconds: 77, jobTTLSeconds: 78}",
        "controller.jobTtlSeconds is 77 and controller.jobTTLSeconds is 78",
    ),
    (
        "controller: {agentRunRetentionSeconds: 60}",
        "a Job would be kept for 600 s (controller.jobTtlSecondsAfterFinished) and its run for 60 s",
    ),
    (
        "controller: {agentRunRetentionSeconds: 3600}",
        "archived logs would be kept for 604800 s (controller.logRetentionSeconds) and their run for 3600 s",
    ),
    (
        "controller: {logRetentionSeconds: 60}",
        "its archived logs for 60 s (controller.logRetentionSeconds)",
    ),
    (
        "controller: {namespaces: ['*']}",
        "controller.namespaces has *, which needs rights in the whole cluster: set rbac.clusterScoped to true",
    ),
    (
        "orchestrationController: {namespaces: ['*']}",
        "orchestrationController.namespaces has *",
    ),
    (
        "supportingController: {namespaces: ['*']}",
        "supportingController.namespaces has *",
    ),
    (
        "orchestrationController: {namespaces: [elsewhere]}",
        "orchestrationController.namespaces has elsewhere, which controller.namespaces does not have",
    ),
    (
        "controller: {namespaces: [a]}\nsupportingController: {namespaces: [a, b]}",
        "supportingController.namespaces has b, which controller.namespaces does not have",
    ),
    (
        "rbac: {clusterScoped: true}\ncontroller: {namespaces: ['*', a]}",
        "controller.namespaces has * beside other names",
    ),
    (
        "rbac: {clusterScoped: true}\ncontroller: {namespaces: ['*']}\nrunnerServiceAccount: {create: true}",
        "make the account yourself where runs are",
    ),
    (
        "controller: {leaderElection: {renewDeadlineSeconds: 30}}",
        "each must be less than the next",
    ),
    (
        "controller: {leaderElection: {enabled: false}}\ncontrollers: {replicaCount: 2}",
        "so two pods would both write",
    ),
    (
        "controller: {leaderElection: {enabled: false}}\nprogressiveDelivery: {enabled: true}",
        "so two pods would both write",
    ),
    (
        "controlPlane: {enabled: false}\ndatabase: {secretRef: {name: db}}",
        "so nobody would make its tables: set controllers.env.vars.JANGAR_MIGRATIONS to auto",
    ),
    (
        "database: {caSecret: {name: ca}}",
        "database.caSecret.name is set and there is no database",
    ),
    (
        "controlPlane: {webhooks: {enabled: true}}",
        "so no delivery could be known: set controlPlane.webhooks.secrets",
    ),
    (
        "rbac: {userRoles: {create: true, aggregate: true}}",
        "rbac.userRoles.aggregate needs ClusterRoles: set rbac.clusterScoped to true",
    ),
    (
        "rbac: {clusterScoped: true, userRoles: {aggregate: true}}",
        "set rbac.userRoles.create to true",
    ),
    (
        "controlPlane: {env: {vars: {JANGAR_GRPC_PORT: 50052}}}",
        "use grpc.port",
    ),
    (
        "database: {createSecret: {enabled: true}}",
        "database.createSecret.enabled makes a Secret from database.url, which is empty",
    ),
    (
        "database: {url: x, secretRef: {name: db}}",
        "database.url and database.secretRef.name both say where the database is",
    ),
    (
        "runtime: {agentRunnerImage: a}\nrunner: {image: {repository: b}}",
        "both name the image of runs: set one of them",
    ),
    (
        "autoscaling: {enabled: true, minReplicas: 4}",
        "autoscaling.minReplicas is 4 and maxReplicas is 3",
    ),
    (
        "controllers: {autoscaling: {enabled: true, minReplicas: 4}}",
        "controllers.autoscaling.minReplicas is 4",
    ),
    (
        "podDisruptionBudget: {enabled: true, minAvailable: 2, maxUnavailable: 1}",
        "Kubernetes takes one of them",
    ),
    (
        "podDisruptionBudget: {enabled: true, minAvailable: ''}",
        "both minAvailable and maxUnavailable are empty",
    ),
    (
        "minReadySeconds: 600",
        "controlPlane has to make progress within 600 s",
    ),
    (
        "minReadySeconds: 60\nprogressiveDelivery: {enabled: true, progressDeadlineSeconds: 60}",
        "controllers has to make progress within 60 s",
    ),
    (
        "autoscaling: {enabled: true}\ncontrolPlane: {enabled: false}",
        "autoscaling.enabled is true and controlPlane.enabled is false",
    ),
    (
        "controllers: {enabled: false, autoscaling: {enabled: true}}",
        "controllers.autoscaling.enabled is true and controllers.enabled is false",
    ),
    (
        "podLabels: {app.kubernetes.io/name: other}",
        "podLabels has app.kubernetes.io/name, by which",
    ),
    (
        "podLabels: {agents.proompteng.ai/rollout-role: canary}",
        "podLabels has agents.proompteng.ai/rollout-role",
    ),
    (
        "extraVolumes: [{name: pod, volume: {emptyDir: {}}}]",
        "extraVolumes has pod, and there is a volume of that name already",
    ),
    (
        "controlPlane: {tls: {secret: {name: t}}}\nextraVolumes: [{name: tls, volume: {emptyDir: {}}}]",
        "extraVolumes has tls",
    ),
    (
        "extraVolumes: [{name: a, volume: {emptyDir: {}}}, {name: a, volume: {emptyDir: {}}}]",
        "extraVolumes has a,",
    ),
    (
        "controlPlane: {enabled: false, webhooks: {enabled: true, secrets: [forge]}}",
        "so nobody would take a delivery",
    ),
    (
        "metrics: {enabled: false, prometheusRule: {enabled: true}}",
        "metrics.prometheusRule.enabled is true and metrics.enabled is false",
    ),
    (
        "metrics: {enabled: false, dashboards: {enabled: true}}",
        "metrics.dashboards.enabled is true and metrics.enabled is false",
    ),
    ("podSecurityAdmission: {enabled: true}", "so set both or neither"),
    (
        "env: {vars: {JANGAR_GRPC_ENABLED: 0}}",
        "which the Service follows: use grpc.enabled",
    ),
    (
        "controlPlane: {env: {vars: {JANGAR_GRPC_ADDRESS: '0.0.0.0:6000'}}}",
        "the Service leads to port 50051: use grpc.port",
    ),
    (
        "controlPlane: {env: {vars: {JANGAR_TLS_CERT_FILE: /tls.crt}}}",
        "use controlPlane.tls.secret.name",
    ),
    (
        "env: {vars: {JANGAR_CUSTOM_RUNTIME_CALLBACK_URL: 'https://a'}}",
        "use controller.customRuntime.callbackUrl",
    ),
    ("resourceQuota: {enabled: true}", "resourceQuota.hard is empty"),
    ("limitRange: {enabled: true}", "limitRange.limits is empty"),
    (
        "metrics: {enabled: false, serviceMonitor: {enabled: true}}",
        "metrics.serviceMonitor.enabled needs a Service",
    ),
    (
        "controller: {customRuntime: {callbackUrl: 'https://a'}}",
        "set controller.customRuntime.keySecret.name",
    ),
    (
        "controller: {customRuntime: {keySecret: {name: a}}}",
        "so nobody would use the key",
    ),
    (
        "env: {extra: [{name: A, value: b}], secrets: [{name: A, secretName: c}]}",
        "A is named more than once in env.extra, env.secrets and env.config",
    ),
    (
        "env: {extra: [{name: JANGAR_POD_UID, value: b}]}",
        "JANGAR_POD_UID in env.extra, env.secrets or env.config is not for you to set",
    ),
    (
        "env: {vars: {JANGAR_AGENTS_CONTROLLER_NAMESPACES: other}}",
        "which other objects of this chart would not follow: use controller.namespaces",
    ),
    (
        "controllers: {env: {vars: {JANGAR_LEADER_ELECTION_LEASE_NAME: other}}}",
        "use controller.leaderElection.leaseName",
    ),
    ("env: {vars: {'A-B': c}}", "is no name of a variable"),
    (
        "progressiveDelivery: {enabled: true, components: {controlPlane: false, controllers: false}}",
        "progressiveDelivery.enabled is true for no component",
    ),
    (
        "progressiveDelivery: {enabled: true, components: {controlPlane: false}}\ncontrollers: {enabled: false}",
        "set progressiveDelivery.components.controlPlane to true",
    ),
    (
        "progressiveDelivery: {enabled: true, crdCheck: always}",
        "install Argo Rollouts first, or set progressiveDelivery.crdCheck to never",
    ),
    (
        "progressiveDelivery: {enabled: true, maxSurge: 0}",
        "are both 0, so nothing could ever change",
    ),
    (
        "progressiveDelivery: {enabled: true, maxSurge: 0, maxUnavailable: 1}",
        "controllers has a single pod",
    ),
    (
        "progressiveDelivery: {enabled: true, canarySteps: [{pause: {}}]}",
        "canarySteps[0] waits before any weight is set",
    ),
    (
        "progressiveDelivery: {enabled: true, canarySteps: [{setWeight: 0}, {analysis: {templates: []}}]}",
        "canarySteps[1] waits before any weight is set",
    ),
    (
        "versionControlProvider: {enabled: true}",
        "set versionControlProvider.auth.token.secretRef.name",
    ),
    (
        "versionControlProvider: {enabled: true, auth: {method: app}}",
        "set versionControlProvider.auth.app.appId",
    ),
    (
        "versionControlProvider: {enabled: true, auth: {method: ssh}}",
        "set versionControlProvider.auth.ssh.privateKeySecretRef.name",
    ),
    (
        "argocdHooks: {enabled: true}",
        "give argocdHooks.smoke.agentRun a metadata.name and a spec",
    ),
];

fn refused(helm: Helm, cases: &[Case]) {
    for (values, words) in cases {
        match helm.template(values, &[]) {
            Ok(_) => panic!("{values}: it was rendered"),
            Err(said) => assert!(said.contains(words), "{values}: {words:?} is not in\n{said}"),
        }
    }
}

#[test]
fn the_schema_names_the_value_and_what_is_wrong_with_it() {
    refused(Helm::Three, SCHEMA);
}

#[test]
fn values_that_contradict_each_other_are_refused_with_a_remedy() {
    refused(Helm::Three, CONTRADICTIONS);
}

/// One of each kind is enough: the schema and the templates are the same files.
#[test]
fn helm_four_refuses_the_same() {
    refused(Helm::Four, &SCHEMA[..3]);
    refused(Helm::Four, &CONTRADICTIONS[..3]);
}

/// An upgrade installs no kinds, so that without them nothing would ever be looked after.
#[test]
fn an_upgrade_of_a_cluster_without_the_kinds_is_refused() {
    let cluster = ["--is-upgrade", "--api-versions", "apps/v1/Deployment"];
    let with = [
        &cluster[..],
        &["--api-versions", "agents.proompteng.ai/v1alpha1/AgentRun"],
    ]
    .concat();
    for helm in [Helm::Three, Helm::Four] {
        let said = helm.template("{}", &cluster).expect_err("the kinds are missing");
        assert!(
            said.contains("does not have the kinds of Jangar: kubectl apply --server-side --force-conflicts"),
            "{said}"
        );
        assert!(helm.template("{}", &with).is_ok());
    }
}

/// It would refuse every Job.
#[test]
fn jobs_of_our_own_are_refused_where_kubernetes_does_not_know_them() {
    let own = "controller: {jobController: jangar}";
    for helm in [Helm::Three, Helm::Four] {
        let said = helm
            .template(own, &["--kube-version", "1.29.3"])
            .expect_err("it is too old");
        assert!(said.contains("leave it at kubernetes"), "{said}");
        assert!(helm.template(own, &["--kube-version", "1.30.0"]).is_ok());
        assert!(helm.template("{}", &["--kube-version", "1.29.3"]).is_ok());
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let said = Helm::Three
        .template(
            "controller: {namespaces: ['*'], logRetentionSeconds: 60}\ndatabase: {caSecret: {name: ca}}",
            &[],
        )
        .expect_err("three things are wrong");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("- ")).count(),
        3,
        "{said}"
    );
}

/// A name that the chart does not use in this release is as good as any other.
#[test]
fn a_volume_may_have_a_name_that_the_chart_leaves_free() {
    let values = "extraVolumes: [{name: tls, volume: {emptyDir: {}}}]";
    let said = Helm::Three.template(values, &[]);
    assert!(said.is_ok(), "{said:?}");
}

#[test]
fn one_name_of_a_value_alone_is_as_good_as_another() {
    for values in [
        "controller: {jobTtlSecondsAfterFinished: null, jobTTLSeconds: 77}",
        "controller: {jobTtlSecondsAfterFinished: 77, jobTtlSeconds: 77}",
    ] {
        let text = Helm::Three.template(values, &[]).expect("it renders");
        assert!(
            text.contains("name: JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS\n          value: \"77\""),
            "{text}"
        );
    }
}
