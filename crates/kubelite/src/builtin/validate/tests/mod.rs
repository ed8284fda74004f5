//! One case per rule, with the message as Kubernetes words it.

mod definition;

use serde_json::{Value, json};

use super::{
    super::{decode, default, prepare_create},
    *,
};

/// A change to a spec or an object that is good otherwise.
type Change = fn(&mut Value);

/// An object as it is when validation sees it.
fn prepared(builtin: Builtin, mut object: Value) -> Value {
    decode(builtin, &mut object).unwrap_or_else(|error| panic!("{error}"));
    default(builtin, &mut object);
    prepare_create(builtin, &mut object);
    object
}

fn created(builtin: Builtin, object: Value) -> Vec<String> {
    validate_create(builtin, &prepared(builtin, object))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn updated(builtin: Builtin, old: &Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut new = old.clone();
    change(&mut new);
    validate_update(builtin, Endpoint::Main, &new, old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn status_updated(builtin: Builtin, old: &Value, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut new = old.clone();
    change(&mut new);
    validate_update(builtin, Endpoint::Status, &new, old)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    change(&mut pod["spec"]);
    pod
}

fn job(change: impl FnOnce(&mut Value)) -> Value {
    let mut job = json!({
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    change(&mut job["spec"]);
    job
}

#[test]
fn good_objects_pass() {
    let good = [
        (Builtin::Pod, pod(|_| {})),
        (Builtin::Job, job(|_| {})),
        (Builtin::CustomResourceDefinition, definition::definition(|_| {})),
        (Builtin::Namespace, json!({"metadata": {"name": "n"}})),
        (Builtin::Node, json!({"metadata": {"name": "n.example"}})),
        (
            Builtin::ConfigMap,
            json!({"metadata": {"name": "c"}, "data": {"a": "b"}}),
        ),
        (
            Builtin::Secret,
            json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
        ),
        (Builtin::ServiceAccount, json!({"metadata": {"name": "s"}})),
        (
            Builtin::Lease,
            json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 15}}),
        ),
        (
            Builtin::PersistentVolumeClaim,
            json!({"metadata": {"name": "c"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}),
        ),
        (
            Builtin::CoreEvent,
            json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"}}),
        ),
    ];
    for (builtin, object) in good {
        assert_eq!(created(builtin, object), Vec::<String>::new(), "{builtin:?}");
    }
}

#[test]
fn names_follow_the_rule_of_their_kind() {
    assert_eq!(
        created(Builtin::Namespace, json!({"metadata": {"name": "a.b"}})),
        ["metadata.name: Invalid value: \"a.b\": must not contain dots"]
    );
    assert_eq!(
        created(Builtin::ConfigMap, json!({"metadata": {"name": "A"}})),
        [
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        ]
    );
    assert_eq!(
        created(Builtin::Lease, json!({"metadata": {}})),
        ["metadata.name: Required value: name or generateName is required"]
    );
}

#[test]
fn pod_rules() {
    let cases: [(Change, &str); 13] = [
        (
            |spec| spec["containers"] = json!([]),
            "spec.containers: Required value",
        ),
        (
            |spec| spec["containers"] = json!([{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            |spec| spec["containers"][0]["image"] = json!(""),
            "spec.containers[0].image: Required value",
        ),
        (
            |spec| spec["containers"][0]["image"] = json!(" i"),
            "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
        ),
        (
            |spec| spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            |spec| spec["volumes"] = json!([{"name": "v"}, {"name": "v"}]),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            |spec| spec["volumes"] = json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            |spec| spec["containers"][0]["env"] = json!([{"name": "a=b"}]),
            "spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ),
        (
            |spec| spec["restartPolicy"] = json!("Sometimes"),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            |spec| {
                spec["containers"][0]["resources"] =
                    json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1000m"}});
            },
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            |spec| spec["containers"][0]["resources"] = json!({"requests": {"memory": "-1"}}),
            "spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            |spec| spec["containers"][0]["ports"] = json!([{"containerPort": 70000}]),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            |spec| spec["containers"][0]["livenessProbe"] = json!({}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(created(Builtin::Pod, pod(change)), [expected]);
    }
}

#[test]
fn pod_placement_rules() {
    let cases: [(Change, &str); 6] = [
        (
            |spec| spec["tolerations"] = json!([{"operator": "Equal"}]),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]);
            },
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, DoNotSchedule}\"",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] =
                    json!([{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
            },
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([
                    {"maxSkew": 1, "minDomains": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
                ]);
            },
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ),
        (
            |spec| {
                spec["topologySpreadConstraints"] = json!([
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"]},
                ]);
            },
            "spec.topologySpreadConstraints[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
        ),
        (
            |spec| spec["activeDeadlineSeconds"] = json!(0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(created(Builtin::Pod, pod(change)), [expected]);
    }
}

#[test]
fn pod_may_change_only_in_a_few_places() {
    let old = prepared(
        Builtin::Pod,
        pod(|spec| spec["tolerations"] = json!([{"operator": "Exists", "key": "a"}])),
    );
    let allowed: [fn(&mut Value); 4] = [
        |new| new["spec"]["containers"][0]["image"] = json!("other"),
        |new| new["spec"]["activeDeadlineSeconds"] = json!(10),
        |new| {
            new["spec"]["tolerations"] =
                json!([{"operator": "Exists", "key": "a"}, {"operator": "Exists", "key": "b"}]);
        },
        |new| new["metadata"]["labels"] = json!({"a": "b"}),
    ];
    for change in allowed {
        assert_eq!(updated(Builtin::Pod, &old, change), Vec::<String>::new());
    }
    let refused: [(Change, &str); 4] = [
        (
            |new| new["spec"]["nodeName"] = json!("other"),
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ),
        (
            |new| new["spec"]["tolerations"] = json!([]),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            |new| {
                let extra = new["spec"]["containers"][0].clone();
                new["spec"]["containers"] = json!([extra.clone(), extra]);
                new["spec"]["containers"][1]["name"] = json!("d");
            },
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            |new| new["spec"]["schedulingGates"] = json!([{"name": "example.com/g"}]),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/g'",
        ),
    ];
    for (change, expected) in refused {
        assert_eq!(updated(Builtin::Pod, &old, change), [expected]);
    }
}

#[test]
fn container_that_ended_for_good_stays_ended() {
    let mut old = prepared(Builtin::Pod, pod(|spec| spec["restartPolicy"] = json!("Never")));
    old["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 1}}}]);
    let revive = |new: &mut Value| new["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    assert_eq!(
        status_updated(Builtin::Pod, &old, revive),
        ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    );
    old["spec"]["restartPolicy"] = json!("OnFailure");
    assert_eq!(status_updated(Builtin::Pod, &old, revive), Vec::<String>::new());
}

#[test]
fn job_rules() {
    let cases: [(Change, &str); 10] = [
        (
            |spec| spec["template"]["spec"]["restartPolicy"] = json!("Always"),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            |spec| spec["backoffLimit"] = json!(-1),
            "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            |spec| spec["ttlSecondsAfterFinished"] = json!(-1),
            "spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            |spec| {
                spec["podReplacementPolicy"] = json!("TerminatingOrFailed");
                spec["podFailurePolicy"] = json!({"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
            },
            "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\"",
        ),
        (
            |spec| {
                spec["template"]["spec"]["restartPolicy"] = json!("OnFailure");
                spec["podFailurePolicy"] = json!({"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
            },
            "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified",
        ),
        (
            |spec| {
                spec["podFailurePolicy"] = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0]}}]});
            },
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            |spec| spec["podFailurePolicy"] = json!({"rules": [{"action": "Ignore"}]}),
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            |spec| {
                spec["podFailurePolicy"] =
                    json!({"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "A"}]}]});
            },
            "spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
        ),
        (
            |spec| spec["completionMode"] = json!("Indexed"),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            |spec| spec["template"]["spec"]["containers"][0]["image"] = json!(""),
            "spec.template.spec.containers[0].image: Required value",
        ),
    ];
    for (change, expected) in cases {
        let mut object = job(change);
        if object["spec"]["completionMode"] == "Indexed" {
            // Without it, the default of one completion would hide the mistake.
            object["spec"]["parallelism"] = json!(1);
        }
        assert_eq!(created(Builtin::Job, object), [expected]);
    }
}

#[test]
fn job_keeps_what_its_pods_were_made_from() {
    let old = prepared(Builtin::Job, job(|_| {}));
    let refused: [(Change, &str); 3] = [
        (
            |new| new["spec"]["completions"] = json!(2),
            "spec.completions: Invalid value: 2: field is immutable",
        ),
        (
            |new| new["spec"]["selector"]["matchLabels"] = json!({"job-name": "j"}),
            "spec.selector: Invalid value: {\"matchLabels\":{\"job-name\":\"j\"}}: field is immutable",
        ),
        (
            |new| new["spec"]["completionMode"] = json!("Indexed"),
            "spec.completionMode: Invalid value: \"Indexed\": field is immutable",
        ),
    ];
    for (change, expected) in refused {
        assert_eq!(updated(Builtin::Job, &old, change), [expected]);
    }
    let errors = updated(Builtin::Job, &old, |new| {
        new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x");
    });
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with("spec.template: Invalid value: {")
            && errors[0].ends_with(": field is immutable")
    );
    for change in [
        (|new| new["spec"]["suspend"] = json!(true)) as fn(&mut Value),
        |new| new["spec"]["parallelism"] = json!(0),
        |new| new["spec"]["ttlSecondsAfterFinished"] = json!(1),
        |new| new["spec"]["activeDeadlineSeconds"] = json!(1),
    ] {
        assert_eq!(updated(Builtin::Job, &old, change), Vec::<String>::new());
    }
}

#[test]
fn suspended_job_may_be_told_where_its_pods_go() {
    let old = prepared(Builtin::Job, job(|spec| spec["suspend"] = json!(true)));
    let place = |new: &mut Value| {
        new["spec"]["suspend"] = json!(false);
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
        new["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {}});
        new["spec"]["template"]["metadata"]["labels"]["extra"] = json!("x");
    };
    assert_eq!(updated(Builtin::Job, &old, place), Vec::<String>::new());
}

#[test]
fn job_status_moves_forward_only() {
    let running = {
        let mut job = prepared(Builtin::Job, job(|_| {}));
        job["status"] = json!({"active": 1, "startTime": "2024-05-01T12:00:00Z"});
        job
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let complete = |new: &mut Value| {
        new["status"] = json!({
            "succeeded": 1, "startTime": "2024-05-01T12:00:00Z", "completionTime": "2024-05-01T12:01:00Z",
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
    };
    assert_eq!(
        status_updated(Builtin::Job, &running, complete),
        Vec::<String>::new()
    );
    assert_eq!(
        status_updated(Builtin::Job, &running, |new| {
            complete(new);
            new["status"]["conditions"] = json!([condition("Complete")]);
        }),
        [
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        ]
    );
    assert_eq!(
        status_updated(Builtin::Job, &running, |new| {
            new["status"]["conditions"] = json!([condition("FailureTarget"), condition("Failed")]);
        }),
        ["status.active: Invalid value: 1: active>0 is invalid for finished job"]
    );
    let mut finished = running.clone();
    complete(&mut finished);
    assert_eq!(
        status_updated(Builtin::Job, &finished, |new| {
            new["status"]["conditions"] = json!([condition("SuccessCriteriaMet")]);
            new["status"]["completionTime"] = Value::Null;
        }),
        ["status.conditions: Invalid value: cannot disable the terminal Complete=True condition"]
    );
}

#[test]
fn data_rules() {
    assert_eq!(
        created(
            Builtin::ConfigMap,
            json!({"metadata": {"name": "c"}, "data": {"a": "x"}, "binaryData": {"a": "eA=="}})
        ),
        ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
    );
    assert_eq!(
        created(
            Builtin::ConfigMap,
            json!({"metadata": {"name": "c"}, "data": {"a": "x".repeat(1024 * 1024 + 1)}})
        ),
        ["<nil>: Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        created(
            Builtin::Secret,
            json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}})
        ),
        ["data[tls.key]: Required value"]
    );
    let frozen = prepared(
        Builtin::ConfigMap,
        json!({"metadata": {"name": "c"}, "data": {"a": "x"}, "immutable": true}),
    );
    assert_eq!(
        updated(Builtin::ConfigMap, &frozen, |new| new["data"]["a"] = json!("y")),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    let secret = prepared(Builtin::Secret, json!({"metadata": {"name": "s"}}));
    assert_eq!(
        updated(Builtin::Secret, &secret, |new| new["type"] = json!("other")),
        ["type: Invalid value: \"other\": field is immutable"]
    );
}

#[test]
fn small_kinds_have_their_rules() {
    assert_eq!(
        created(
            Builtin::Lease,
            json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}})
        ),
        ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]
    );
    assert_eq!(
        created(Builtin::PersistentVolumeClaim, json!({"metadata": {"name": "c"}})),
        [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value"
        ]
    );
    let claim = prepared(
        Builtin::PersistentVolumeClaim,
        json!({"metadata": {"name": "c"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
    );
    assert_eq!(
        updated(
            Builtin::PersistentVolumeClaim,
            &claim,
            |new| new["spec"]["resources"]["requests"]["storage"] = json!("2Gi")
        ),
        [
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        ]
    );
    let namespace = prepared(Builtin::Namespace, json!({"metadata": {"name": "n"}}));
    assert_eq!(
        status_updated(Builtin::Namespace, &namespace, |new| new["status"]["phase"] =
            json!("Terminating")),
        [
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
        ]
    );
    assert_eq!(
        created(Builtin::TokenReview, json!({"spec": {}})),
        ["spec.token: Required value"]
    );
}

#[test]
fn event_rules_depend_on_the_api() {
    let old_style =
        json!({"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "other"}});
    assert_eq!(
        created(Builtin::CoreEvent, old_style),
        ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
    );
    let new_style = json!({
        "metadata": {"name": "e", "namespace": "n"}, "eventTime": "2024-05-01T12:00:00.000000Z",
        "regarding": {"namespace": "n"}, "reason": "Ran", "action": "Run", "type": "Normal",
        "reportingController": "example.com/c", "reportingInstance": "c-0", "note": "text",
    });
    assert_eq!(created(Builtin::Event, new_style.clone()), Vec::<String>::new());
    let mut without_action = new_style.clone();
    without_action["action"] = json!("");
    assert_eq!(
        created(Builtin::Event, without_action),
        ["action: Required value"]
    );
    let mut wrong_type = new_style.clone();
    wrong_type["type"] = json!("Odd");
    assert_eq!(
        created(Builtin::Event, wrong_type),
        ["type: Invalid value: \"\": has invalid value: Odd"]
    );
    let stored = prepared(Builtin::Event, new_style);
    assert_eq!(
        updated(Builtin::Event, &stored, |new| new["note"] = json!("changed")),
        ["message: Invalid value: \"changed\": field is immutable"]
    );
    assert_eq!(
        updated(Builtin::Event, &stored, |new| {
            new["series"] = json!({"count": 2, "lastObservedTime": "2024-05-01T12:00:01.000000Z"});
        }),
        Vec::<String>::new()
    );
}
