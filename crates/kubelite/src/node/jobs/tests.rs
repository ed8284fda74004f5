//! Plans as tables: what is observed, and what is to be done about it.

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::{
    backoff::Ends,
    plan::{Effect, JobPlan, plan},
};

const START: &str = "2026-03-01T12:00:00Z";

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = START.parse().unwrap();
    start + jiff::SignedDuration::from_secs(seconds)
}

fn merge(into: &mut Value, from: &Value) {
    json_patch::merge(into, from);
}

/// A Job as the server stores it, with changes.
fn job(changes: &Value) -> Job {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "uid": "job-uid"},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "suspend": false,
            "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"labels": {"job-name": "j"}, "annotations": {"a": "b"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        },
        "status": {"startTime": START, "active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}},
    });
    merge(&mut job, changes);
    serde_json::from_value(job).unwrap()
}

/// A tracked, running pod, with changes.
fn pod(name: &str, changes: &Value) -> Pod {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("uid-{name}"), "creationTimestamp": START,
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": "Running"},
    });
    merge(&mut pod, changes);
    serde_json::from_value(pod).unwrap()
}

/// A pod that ended with this exit code at this second.
fn ended(name: &str, code: i32, second: i64) -> Pod {
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let state = json!({"terminated": {"exitCode": code, "finishedAt": at(second).to_string()}});
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    pod(
        name,
        &json!({"status": {"phase": phase, "containerStatuses": [container]}}),
    )
}

fn without_finalizer(mut pod: Pod) -> Pod {
    pod.metadata.finalizers = None;
    pod
}

fn terminating(name: &str) -> Pod {
    pod(
        name,
        &json!({"metadata": {"deletionTimestamp": at(30).to_string(), "deletionGracePeriodSeconds": 30}}),
    )
}

fn plan_at(second: i64, changes: &Value, pods: &[Pod]) -> JobPlan {
    plan(&job(changes), pods, &Ends::default(), at(second))
}

/// The effects in short, the statuses without what every one of them has.
fn short(plan: &JobPlan) -> Vec<Value> {
    let effect = |effect: &Effect| match effect {
        Effect::CreatePod(_) => json!("create"),
        Effect::DeletePod { pod, released } => {
            json!(format!(
                "{} {}",
                if *released { "release and delete" } else { "delete" },
                pod.name
            ))
        }
        Effect::ReleasePod(pod) => json!(format!("release {}", pod.name)),
        Effect::WriteStatus(status) => {
            let mut status = serde_json::to_value(status).unwrap();
            let map = status.as_object_mut().unwrap();
            map.retain(|name, value| match name.as_str() {
                "startTime" => value != START,
                "ready" | "terminating" => *value != 0,
                "uncountedTerminatedPods" => *value != json!({}),
                _ => true,
            });
            if let Some(Value::Array(conditions)) = map.get_mut("conditions") {
                for condition in conditions {
                    *condition = json!(format!(
                        "{}={} {}",
                        condition["type"].as_str().unwrap(),
                        condition["status"].as_str().unwrap(),
                        condition["reason"].as_str().unwrap_or_default()
                    ));
                }
            }
            status
        }
    };
    plan.effects.iter().map(effect).collect()
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": "because", "lastTransitionTime": START,
        "lastProbeTime": START,
    })
}

#[test]
fn new_job_starts_with_one_pod_made_from_its_template() {
    let plan = plan_at(3, &json!({"status": null}), &[]);
    let status = json!({"active": 1, "startTime": at(3).to_string()});
    assert_eq!(short(&plan), [json!("create"), status]);
    let Effect::CreatePod(pod) = &plan.effects[0] else {
        panic!("{plan:?}")
    };
    assert_eq!(
        serde_json::to_value(pod).unwrap(),
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "j-",
                "labels": {"job-name": "j"},
                "annotations": {"a": "b"},
                "finalizers": ["batch.kubernetes.io/job-tracking"],
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        })
    );
}

#[test]
fn steady_job_needs_nothing() {
    assert_eq!(
        plan_at(5, &json!({}), &[pod("a", &json!({}))]),
        JobPlan::default()
    );
}

#[test]
fn success_is_listed_then_released_then_counted_then_complete() {
    let done = ended("a", 0, 5);
    let plan = plan_at(5, &json!({}), std::slice::from_ref(&done));
    let listed = json!({
        "uncountedTerminatedPods": {"succeeded": ["uid-a"]},
        "conditions": ["SuccessCriteriaMet=True CompletionsReached"],
    });
    assert_eq!(short(&plan), [listed, json!("release a")]);

    let status = json!({"status": {
        "active": null, "uncountedTerminatedPods": {"succeeded": ["uid-a"]},
        "conditions": [condition("SuccessCriteriaMet", "CompletionsReached")],
    }});
    // After a crash before the release, only that is left to do.
    let plan = plan_at(6, &status, std::slice::from_ref(&done));
    assert_eq!(short(&plan), ["release a"]);

    let plan = plan_at(6, &status, &[without_finalizer(done)]);
    let complete = json!({
        "succeeded": 1,
        "completionTime": at(6).to_string(),
        "conditions": ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"],
    });
    assert_eq!(short(&plan), std::slice::from_ref(&complete));
    // It counts as well when the pod is gone by then.
    assert_eq!(short(&plan_at(6, &status, &[])), [complete]);
}

#[test]
fn failure_ends_the_job_for_the_reason_that_comes_first() {
    let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let restarting = json!({"status": {"containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 2}
    ]}});
    let cases = [
        (
            json!({"backoffLimit": 0}),
            ended("a", 1, 5),
            "BackoffLimitExceeded",
            vec![],
        ),
        (
            json!({"backoffLimit": 0, "podFailurePolicy": policy}),
            ended("a", 42, 5),
            "PodFailurePolicy",
            vec![],
        ),
        (
            json!({"activeDeadlineSeconds": 5}),
            pod("a", &json!({})),
            "DeadlineExceeded",
            vec![json!("delete a")],
        ),
        (
            json!({"completionMode": "Indexed"}),
            pod("a", &json!({})),
            "CompletionModeNotSupported",
            vec![json!("delete a")],
        ),
        (
            json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
            pod("a", &restarting),
            "BackoffLimitExceeded",
            vec![json!("delete a")],
        ),
    ];
    for (spec, pod, reason, mut expected) in cases {
        let plan = plan_at(5, &json!({ "spec": spec }), &[pod]);
        let mut status = json!({
            "uncountedTerminatedPods": {"failed": ["uid-a"]},
            "conditions": [format!("FailureTarget=True {reason}")],
        });
        if !expected.is_empty() {
            status["terminating"] = json!(1);
        }
        expected.extend([status, json!("release a")]);
        assert_eq!(short(&plan), expected, "{reason}");
    }
}

#[test]
fn failed_comes_only_after_the_last_pod_has_ended() {
    let status = json!({"status": {
        "active": null, "failed": 1, "terminating": 1, "conditions": [condition("FailureTarget", "DeadlineExceeded")],
    }});
    let waiting = plan_at(6, &status, &[without_finalizer(terminating("a"))]);
    assert_eq!(waiting.effects, []);
    let plan = plan_at(6, &status, &[without_finalizer(ended("a", 143, 6))]);
    let failed = json!({
        "failed": 1, "conditions": ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"],
    });
    assert_eq!(short(&plan), [failed]);
}

#[test]
fn failed_pod_is_replaced_after_a_delay_that_doubles() {
    let counted = |failed: i32| json!({"status": {"active": null, "failed": failed}});
    let one = [without_finalizer(ended("a", 1, 100))];
    let two = [
        without_finalizer(ended("a", 1, 100)),
        without_finalizer(ended("b", 1, 120)),
    ];
    let cases: [(&[Pod], i64, Option<i64>); 4] = [
        (&one, 109, Some(110)),
        (&one, 110, None),
        (&two, 139, Some(140)),
        (&two, 140, None),
    ];
    for (pods, now, wake) in cases {
        let plan = plan_at(now, &counted(number_of(pods)), pods);
        assert_eq!(plan.wake_at, wake.map(at), "{now}");
        let expected = if wake.is_none() {
            vec![json!("create"), json!({"active": 1, "failed": pods.len()})]
        } else {
            vec![]
        };
        assert_eq!(short(&plan), expected, "{now}");
    }
}

fn number_of(pods: &[Pod]) -> i32 {
    i32::try_from(pods.len()).unwrap()
}

#[test]
fn failure_is_remembered_when_its_pod_is_gone() {
    let first = plan_at(100, &json!({}), &[ended("a", 1, 100)]);
    let later = plan(
        &job(&json!({"status": {"active": null, "failed": 1}})),
        &[],
        &first.ends,
        at(105),
    );
    assert_eq!(later.wake_at, Some(at(110)));
    assert_eq!(later.effects, []);
}

#[test]
fn ignored_failure_is_released_without_being_counted() {
    let policy = json!({"spec": {"backoffLimit": 0, "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}
    ]}}});
    let plan = plan_at(100, &policy, &[ended("a", 7, 100)]);
    assert_eq!(short(&plan), [json!({}), json!("release a")]);
    assert_eq!(plan.wake_at, Some(at(110)));
}

#[test]
fn terminating_pod_counts_as_failed_and_is_replaced_before_it_has_ended() {
    let listed = json!({"terminating": 1, "uncountedTerminatedPods": {"failed": ["uid-a"]}});
    // It was told to end at second 0, which is when the delay begins.
    let soon = plan_at(5, &json!({}), &[terminating("a")]);
    assert_eq!(short(&soon), [listed.clone(), json!("release a")]);
    assert_eq!(soon.wake_at, Some(at(10)));
    let mut replaced = listed;
    replaced["active"] = json!(1);
    let then = plan_at(10, &json!({}), &[terminating("a")]);
    assert_eq!(short(&then), [json!("create"), replaced, json!("release a")]);
}

#[test]
fn job_that_replaces_only_ended_pods_waits_for_them() {
    let spec = json!({"spec": {"podReplacementPolicy": "Failed"}});
    let plan = plan_at(60, &spec, &[terminating("a")]);
    assert_eq!(short(&plan), [json!({"terminating": 1})]);
    assert_eq!(plan.wake_at, None);
}

#[test]
fn suspended_job_gives_up_its_pods_without_counting_them() {
    let ready = pod(
        "a",
        &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let plan = plan_at(
        9,
        &json!({"spec": {"suspend": true, "activeDeadlineSeconds": 5}}),
        &[ready],
    );
    let status = json!({"terminating": 1, "conditions": ["Suspended=True JobSuspended"]});
    assert_eq!(short(&plan), [json!("release and delete a"), status]);
    assert_eq!(plan.wake_at, None);
}

#[test]
fn resumed_job_starts_afresh_unless_its_deadline_has_passed() {
    let status = json!({"active": null, "conditions": [condition("Suspended", "JobSuspended")]});
    let plan = plan_at(
        9,
        &json!({"spec": {"activeDeadlineSeconds": 20}, "status": status}),
        &[],
    );
    let resumed =
        json!({"active": 1, "startTime": at(9).to_string(), "conditions": ["Suspended=False JobResumed"]});
    assert_eq!(short(&plan), [json!("create"), resumed]);
    let late = plan_at(
        20,
        &json!({"spec": {"activeDeadlineSeconds": 20}, "status": status}),
        &[],
    );
    let failing =
        json!({"conditions": ["Suspended=True JobSuspended", "FailureTarget=True DeadlineExceeded"]});
    assert_eq!(short(&late), [failing]);
}

#[test]
fn deleted_job_lets_its_pods_go_and_makes_no_more() {
    let deleting = json!({"metadata": {"deletionTimestamp": START}});
    let plan = plan_at(5, &deleting, &[pod("a", &json!({}))]);
    assert_eq!(short(&plan), ["release a"]);
    let plan = plan_at(5, &deleting, &[without_finalizer(terminating("a"))]);
    assert_eq!(short(&plan), [json!({"terminating": 1})]);
}

#[test]
fn finished_job_only_lets_late_pods_go() {
    let finished = json!({"status": {"conditions": [condition("Complete", "CompletionsReached")]}});
    let plan = plan_at(5, &finished, &[pod("a", &json!({}))]);
    assert_eq!(short(&plan), ["release a"]);
}

#[test]
fn job_of_another_controller_is_left_alone() {
    let other = json!({"spec": {"managedBy": "example.com/other"}, "status": null});
    assert_eq!(plan_at(5, &other, &[ended("a", 0, 5)]), JobPlan::default());
}

#[test]
fn surplus_pods_go_least_advanced_first() {
    let waiting = pod(
        "b",
        &json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}),
    );
    let plan = plan_at(
        5,
        &json!({"status": {"active": 2}}),
        &[pod("a", &json!({})), waiting],
    );
    assert_eq!(
        short(&plan),
        [
            json!("release and delete b"),
            json!({"active": 1, "terminating": 1})
        ]
    );
}

#[test]
fn wide_job_runs_as_many_pods_as_are_wanted() {
    let wide = |completions: Value, pods: &[Pod]| {
        let spec =
            json!({"spec": {"parallelism": 3, "completions": completions}, "status": {"active": null}});
        let effects = short(&plan_at(100, &spec, pods));
        effects.iter().filter(|effect| **effect == "create").count()
    };
    let success = [ended("a", 0, 5)];
    assert_eq!(wide(json!(5), &[]), 3);
    assert_eq!(wide(json!(2), &[]), 2);
    assert_eq!(wide(json!(3), &success), 2);
    assert_eq!(wide(Value::Null, &[]), 3);
    assert_eq!(wide(Value::Null, &success), 0);
}
