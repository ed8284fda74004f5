use serde_json::json;

use super::*;
use crate::table::IncludeObject;

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

/// The cells of an object by the names of their columns.
fn row(kind: Builtin, object: &Value) -> Value {
    let columns = columns(kind).expect("a kind with a table");
    let table = serde_json::to_value(columns.object(object, IncludeObject::None, now())).expect("a table");
    let names = table["columnDefinitions"].as_array().expect("columns");
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(names.len(), cells.len(), "one cell for each column of {kind:?}");
    names
        .iter()
        .zip(cells)
        .map(|(name, cell)| (name["name"].as_str().expect("a name"), cell.clone()))
        .collect()
}

#[track_caller]
fn check(kind: Builtin, object: &Value, expected: &Value) {
    let row = row(kind, object);
    for (column, cell) in expected.as_object().expect("columns") {
        assert_eq!(&row[column], cell, "{column} of {object}");
    }
}

#[test]
fn columns_stand_in_the_order_of_kubernetes() {
    let listed: &[(Builtin, &[&str], &[&str])] = &[
        (
            Builtin::Pod,
            &["Name", "Ready", "Status", "Restarts", "Age"],
            &["IP", "Node", "Nominated Node", "Readiness Gates"],
        ),
        (
            Builtin::Job,
            &["Name", "Status", "Completions", "Duration", "Age"],
            &["Containers", "Images", "Selector"],
        ),
        (
            Builtin::Node,
            &["Name", "Status", "Roles", "Age", "Version"],
            &[
                "Internal-IP",
                "External-IP",
                "OS-Image",
                "Kernel-Version",
                "Container-Runtime",
            ],
        ),
        (Builtin::Namespace, &["Name", "Status", "Age"], &[]),
        (Builtin::ConfigMap, &["Name", "Data", "Age"], &[]),
        (Builtin::Secret, &["Name", "Type", "Data", "Age"], &[]),
        (Builtin::ServiceAccount, &["Name", "Age"], &[]),
        (
            Builtin::PersistentVolumeClaim,
            &[
                "Name",
                "Status",
                "Volume",
                "Capacity",
                "Access Modes",
                "StorageClass",
                "VolumeAttributesClass",
                "Age",
            ],
            &["VolumeMode"],
        ),
        (
            Builtin::CoreEvent,
            &["Last Seen", "Type", "Reason", "Object", "Message"],
            &["Subobject", "Source", "First Seen", "Count", "Name"],
        ),
        (Builtin::Lease, &["Name", "Holder", "Age"], &[]),
        (Builtin::CustomResourceDefinition, &["Name", "Created At"], &[]),
    ];
    for (kind, always, wide) in listed {
        let columns = columns(*kind).expect("a kind with a table");
        let object = json!({});
        let table =
            serde_json::to_value(columns.object(&object, IncludeObject::None, now())).expect("a table");
        let names = |priority: i64| -> Vec<&str> {
            let definitions = table["columnDefinitions"].as_array().expect("columns");
            let chosen = definitions.iter().filter(|column| column["priority"] == priority);
            chosen
                .map(|column| column["name"].as_str().expect("a name"))
                .collect()
        };
        assert_eq!(names(0), *always, "{kind:?}");
        assert_eq!(names(1), *wide, "{kind:?}");
    }
    assert!(columns(Builtin::TokenReview).is_none());
}

/// A pod with one container for each state, and one init container for each init state.
fn pod(phase: &str, states: &[Value], init_states: &[Value]) -> Value {
    let statuses = |prefix: &str, states: &[Value]| -> (Vec<Value>, Vec<Value>) {
        let name = |position| format!("{prefix}{position}");
        let containers = (0..states.len())
            .map(|position| json!({"name": name(position)}))
            .collect();
        let named = states.iter().enumerate().map(|(position, state)| {
            let mut status = state.clone();
            status["name"] = Value::from(name(position));
            status
        });
        (containers, named.collect())
    };
    let (containers, container_statuses) = statuses("c", states);
    let (init_containers, init_statuses) = statuses("i", init_states);
    json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": containers, "initContainers": init_containers},
        "status": {
            "phase": phase,
            "containerStatuses": container_statuses,
            "initContainerStatuses": init_statuses,
        },
    })
}

fn running() -> Value {
    json!({"ready": true, "state": {"running": {}}})
}

fn ended(exit_code: i64, reason: &str) -> Value {
    json!({"state": {"terminated": {"exitCode": exit_code, "reason": reason}}})
}

fn waiting(reason: &str) -> Value {
    json!({"state": {"waiting": {"reason": reason}}})
}

#[test]
fn the_status_of_a_pod_is_that_of_its_containers() {
    let signalled = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
    for (phase, states, ready, status) in [
        ("Pending", vec![], "0/0", "Pending"),
        (
            "Pending",
            vec![waiting("ContainerCreating")],
            "0/1",
            "ContainerCreating",
        ),
        ("Pending", vec![waiting("")], "0/1", "Pending"),
        ("Running", vec![running()], "1/1", "Running"),
        (
            "Running",
            vec![running(), waiting("CrashLoopBackOff")],
            "1/2",
            "CrashLoopBackOff",
        ),
        (
            "Running",
            vec![running(), ended(0, "Completed")],
            "1/2",
            "NotReady",
        ),
        ("Succeeded", vec![ended(0, "Completed")], "0/1", "Completed"),
        ("Failed", vec![ended(1, "Error")], "0/1", "Error"),
        (
            "Failed",
            vec![ended(0, "Completed"), ended(1, "Error")],
            "0/2",
            "Error",
        ),
        ("Failed", vec![ended(3, "")], "0/1", "ExitCode:3"),
        ("Failed", vec![signalled], "0/1", "Signal:9"),
        (
            "Running",
            vec![ended(137, "OOMKilled"), running()],
            "1/2",
            "OOMKilled",
        ),
    ] {
        check(
            Builtin::Pod,
            &pod(phase, &states, &[]),
            &json!({"Ready": ready, "Status": status}),
        );
    }
    let mut ready = pod("Running", &[running(), ended(0, "Completed")], &[]);
    ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    check(Builtin::Pod, &ready, &json!({"Status": "Running"}));
    let mut evicted = pod("Failed", &[], &[]);
    evicted["status"]["reason"] = json!("Evicted");
    check(Builtin::Pod, &evicted, &json!({"Status": "Evicted"}));
    let mut gated = pod("Pending", &[], &[]);
    gated["status"]["conditions"] = json!([{"type": "PodScheduled", "reason": "SchedulingGated"}]);
    check(Builtin::Pod, &gated, &json!({"Status": "SchedulingGated"}));
}

#[test]
fn init_containers_come_first() {
    let creating = [waiting("PodInitializing")];
    for (init, status) in [
        (vec![ended(0, "Completed")], "PodInitializing"),
        (
            vec![waiting("PodInitializing"), waiting("PodInitializing")],
            "Init:0/2",
        ),
        (vec![ended(0, "Completed"), running()], "Init:1/2"),
        (vec![waiting("ImagePullBackOff")], "Init:ImagePullBackOff"),
        (vec![ended(1, "Error")], "Init:Error"),
        (vec![ended(2, "")], "Init:ExitCode:2"),
    ] {
        check(
            Builtin::Pod,
            &pod("Pending", &creating, &init),
            &json!({"Status": status}),
        );
    }
    let mut initialized = pod("Running", &[running()], &[waiting("PodInitializing")]);
    initialized["status"]["conditions"] = json!([{"type": "Initialized", "status": "True"}]);
    check(
        Builtin::Pod,
        &initialized,
        &json!({"Ready": "1/1", "Status": "Init:0/1"}),
    );
}

#[test]
fn sidecars_count_as_containers() {
    let started = json!({"ready": true, "started": true, "restartCount": 2, "state": {"running": {}}});
    let mut sidecar = pod("Running", &[running()], &[started]);
    sidecar["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    check(
        Builtin::Pod,
        &sidecar,
        &json!({"Ready": "2/2", "Status": "Running", "Restarts": "2"}),
    );
}

#[test]
fn a_deleted_pod_is_terminating_unless_it_has_ended() {
    for (phase, reason, status) in [
        ("Running", "", "Terminating"),
        ("Succeeded", "", "Completed"),
        ("Running", "NodeLost", "Unknown"),
    ] {
        let end = if phase == "Succeeded" {
            ended(0, "Completed")
        } else {
            running()
        };
        let mut pod = pod(phase, &[end], &[]);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
        pod["status"]["reason"] = json!(reason);
        check(Builtin::Pod, &pod, &json!({"Status": status}));
    }
}

#[test]
fn restarts_say_when_the_last_one_was() {
    let restarted = |count: i64, finished: &str| {
        json!({
            "ready": true,
            "restartCount": count,
            "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": finished}},
        })
    };
    let states = [
        restarted(2, "2026-01-01T23:59:00Z"),
        restarted(1, "2026-01-01T23:00:00Z"),
    ];
    check(
        Builtin::Pod,
        &pod("Running", &states, &[]),
        &json!({"Restarts": "3 (60s ago)", "Age": "24h"}),
    );
    // Restarts of init containers are forgotten once they are done.
    let mut done = ended(0, "Completed");
    done["restartCount"] = json!(4);
    check(
        Builtin::Pod,
        &pod("Running", &[running()], &[done]),
        &json!({"Restarts": "0"}),
    );
    let mut failing = waiting("CrashLoopBackOff");
    failing["restartCount"] = json!(4);
    check(
        Builtin::Pod,
        &pod("Pending", &[], &[failing]),
        &json!({"Restarts": "4"}),
    );
}

#[test]
fn the_wide_columns_of_a_pod_say_none_for_nothing() {
    let none =
        json!({"IP": "<none>", "Node": "<none>", "Nominated Node": "<none>", "Readiness Gates": "<none>"});
    check(Builtin::Pod, &pod("Pending", &[], &[]), &none);
    let full = json!({
        "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "A"}, {"conditionType": "B"}]},
        "status": {
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}],
            "nominatedNodeName": "m",
            "conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}],
        },
    });
    let expected = json!({"IP": "10.0.0.1", "Node": "n", "Nominated Node": "m", "Readiness Gates": "1/2"});
    check(Builtin::Pod, &full, &expected);
}

#[test]
fn a_pod_that_has_ended_is_marked_so() {
    let columns = columns(Builtin::Pod).expect("pods have a table");
    for (phase, reason) in [
        ("Succeeded", json!("Succeeded")),
        ("Failed", json!("Failed")),
        ("Running", json!(null)),
    ] {
        let pod = pod(phase, &[], &[]);
        let table = serde_json::to_value(columns.object(&pod, IncludeObject::None, now())).expect("a table");
        assert_eq!(table["rows"][0]["conditions"][0]["reason"], reason, "{phase}");
    }
}

#[test]
fn jobs_show_how_far_they_are() {
    let job = json!({
        "metadata": {"name": "j", "creationTimestamp": "2026-01-01T23:50:00Z"},
        "spec": {
            "completions": 3,
            "selector": {"matchLabels": {"b": "2", "a": "1"}},
            "template": {"spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "k"}]}},
        },
        "status": {"succeeded": 1, "startTime": "2026-01-01T23:55:00Z"},
    });
    let expected = json!({
        "Name": "j", "Status": "Running", "Completions": "1/3", "Duration": "5m", "Age": "10m",
        "Containers": "x,y", "Images": "i,k", "Selector": "a=1,b=2",
    });
    check(Builtin::Job, &job, &expected);
    let ended = json!({
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:07Z",
            "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}],
        },
    });
    let expected =
        json!({"Status": "Complete", "Completions": "0/1", "Duration": "7s", "Selector": "<none>"});
    check(Builtin::Job, &ended, &expected);
    check(
        Builtin::Job,
        &json!({"spec": {"parallelism": 4}}),
        &json!({"Completions": "0/1 of 4", "Duration": ""}),
    );
    for (type_, deleting, status) in [
        ("Failed", true, "Failed"),
        ("Suspended", false, "Suspended"),
        ("Suspended", true, "Terminating"),
        ("FailureTarget", false, "FailureTarget"),
        ("SuccessCriteriaMet", false, "SuccessCriteriaMet"),
    ] {
        let deletion = deleting.then_some("2026-01-01T00:00:00Z");
        let job = json!({
            "metadata": {"deletionTimestamp": deletion},
            "status": {"conditions": [{"type": type_, "status": "True"}]},
        });
        check(Builtin::Job, &job, &json!({"Status": status}));
    }
}

#[test]
fn nodes_show_their_state_and_roles() {
    let node = json!({
        "metadata": {"labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "", "kubernetes.io/role": "control",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.35.8", "osImage": "Linux"},
        },
    });
    let expected = json!({
        "Status": "Ready,SchedulingDisabled", "Roles": "control,worker", "Version": "v1.35.8",
        "Internal-IP": "10.0.0.1", "External-IP": "<none>", "OS-Image": "Linux", "Kernel-Version": "<unknown>",
    });
    check(Builtin::Node, &node, &expected);
    check(
        Builtin::Node,
        &json!({}),
        &json!({"Status": "Unknown", "Roles": "<none>", "Age": "<unknown>"}),
    );
    let down = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    check(Builtin::Node, &down, &json!({"Status": "NotReady"}));
}

#[test]
fn small_kinds_show_what_they_hold() {
    let map = json!({"data": {"a": "1"}, "binaryData": {"b": "", "c": ""}});
    check(Builtin::ConfigMap, &map, &json!({"Data": 3}));
    check(
        Builtin::Secret,
        &json!({"type": "Opaque", "data": {"a": ""}}),
        &json!({"Type": "Opaque", "Data": 1}),
    );
    check(
        Builtin::Namespace,
        &json!({"status": {"phase": "Active"}}),
        &json!({"Status": "Active"}),
    );
    check(
        Builtin::Lease,
        &json!({"spec": {"holderIdentity": "me"}}),
        &json!({"Holder": "me"}),
    );
    check(Builtin::Lease, &json!({}), &json!({"Holder": ""}));
    let definition = json!({"metadata": {"name": "d", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    check(
        Builtin::CustomResourceDefinition,
        &definition,
        &json!({"Created At": "2026-01-01T00:00:00Z"}),
    );
    check(
        Builtin::ServiceAccount,
        &definition,
        &json!({"Name": "d", "Age": "24h"}),
    );
}

#[test]
fn claims_show_their_volume_once_they_have_one() {
    let pending = json!({
        "spec": {"storageClassName": "fast"},
        "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}},
    });
    let expected = json!({
        "Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": "", "StorageClass": "fast",
        "VolumeAttributesClass": "<unset>", "VolumeMode": "<unset>",
    });
    check(Builtin::PersistentVolumeClaim, &pending, &expected);
    let bound = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"volumeName": "v", "volumeMode": "Filesystem", "storageClassName": "fast"},
        "status": {
            "phase": "Bound",
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
        },
    });
    let expected = json!({
        "Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO,RWX", "StorageClass": "old",
        "VolumeMode": "Filesystem",
    });
    check(Builtin::PersistentVolumeClaim, &bound, &expected);
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check(
        Builtin::PersistentVolumeClaim,
        &deleting,
        &json!({"Status": "Terminating"}),
    );
}

#[test]
fn events_read_the_same_in_both_dresses() {
    let core = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"},
        "type": "Warning", "reason": "BackOff", "message": " again \n",
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2026-01-01T23:00:00Z", "lastTimestamp": "2026-01-01T23:59:00Z", "count": 5,
    });
    let new = json!({
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"},
        "type": "Warning", "reason": "BackOff", "note": " again \n",
        "deprecatedSource": {"component": "kubelet", "host": "n"},
        "deprecatedFirstTimestamp": "2026-01-01T23:00:00Z", "deprecatedLastTimestamp": "2026-01-01T23:59:00Z",
        "deprecatedCount": 5,
    });
    let expected = json!({
        "Last Seen": "60s", "Type": "Warning", "Reason": "BackOff", "Object": "pod/web",
        "Subobject": "spec.containers{c}", "Source": "kubelet, n", "Message": "again", "First Seen": "60m",
        "Count": 5, "Name": "e",
    });
    check(Builtin::CoreEvent, &core, &expected);
    check(Builtin::Event, &new, &expected);
    let single = json!({
        "regarding": {"kind": "Node"}, "eventTime": "2026-01-01T23:59:30.000000Z", "reportingController": "c",
        "firstTimestamp": null, "lastTimestamp": null,
    });
    let expected =
        json!({"Last Seen": "30s", "First Seen": "30s", "Count": 1, "Object": "node", "Source": "c"});
    check(Builtin::Event, &single, &expected);
    let mut series = single;
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-01-01T23:59:50.000000Z"});
    check(
        Builtin::Event,
        &series,
        &json!({"Last Seen": "10s", "First Seen": "30s", "Count": 9}),
    );
}
