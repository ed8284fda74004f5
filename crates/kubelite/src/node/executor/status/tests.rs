use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn exit(code: i32) -> Exit {
    Exit {
        cause: Cause::Exited,
        code,
        signal: None,
        message: String::new(),
        started_at: Some(at(1)),
        finished_at: at(2),
    }
}

fn record(name: &str, role: Role, attempts: u32, state: ContainerState) -> Record {
    Record {
        attempts,
        state,
        ..Record::new(name, role)
    }
}

fn ended_with(code: i32) -> ContainerState {
    ContainerState::Terminated(exit(code))
}

const RUNNING: fn() -> ContainerState = || ContainerState::Running { since: at(1) };

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {
            "restartPolicy": policy,
            "initContainers": [{"name": "i", "image": "init"}],
            "containers": [{"name": "a", "image": "one"}, {"name": "b", "image": "two"}]
        }
    }))
    .unwrap()
}

fn render(policy: &str, records: &[Record], course: &Course) -> Value {
    let view = View {
        pod: &pod(policy),
        records,
        course,
        seen_at: at(0),
        now: at(9),
        host_ip: "127.0.0.1",
        unsandboxed: None,
    };
    status(&view, &mut Transitions::new())
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array().unwrap();
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
        .unwrap()
}

#[test]
fn phase_follows_from_containers_and_policy() {
    let init = || record("i", Role::Init, 1, ended_with(0));
    let main = |state| record("a", Role::Main, 1, state);
    let again = |state| Record {
        last: Some(exit(1)),
        ..record("a", Role::Main, 2, state)
    };
    let delay = std::time::Duration::from_secs(10);
    for (policy, records, phase) in [
        (
            "Never",
            vec![
                record("i", Role::Init, 1, RUNNING()),
                main(ContainerState::Waiting),
            ],
            "Pending",
        ),
        (
            "Never",
            vec![
                record("i", Role::Init, 1, ended_with(1)),
                main(ContainerState::Waiting),
            ],
            "Failed",
        ),
        (
            "Always",
            vec![
                record("i", Role::Init, 1, ended_with(1)),
                main(ContainerState::Waiting),
            ],
            "Pending",
        ),
        ("Never", vec![init(), main(ContainerState::Starting)], "Pending"),
        (
            "Never",
            vec![init(), main(RUNNING()), main(ended_with(1))],
            "Running",
        ),
        (
            "Never",
            vec![init(), main(RUNNING()), main(ContainerState::Waiting)],
            "Pending",
        ),
        (
            "Never",
            vec![init(), main(ended_with(0)), main(ended_with(0))],
            "Succeeded",
        ),
        (
            "Never",
            vec![init(), main(ended_with(0)), main(ended_with(1))],
            "Failed",
        ),
        ("OnFailure", vec![init(), main(ended_with(1))], "Running"),
        ("OnFailure", vec![init(), main(ended_with(0))], "Succeeded"),
        ("Always", vec![init(), main(ended_with(0))], "Running"),
        (
            "Always",
            vec![init(), again(ContainerState::BackOff { until: at(99), delay })],
            "Running",
        ),
    ] {
        let status = render(policy, &records, &Course::Open);
        assert_eq!(status["phase"], phase, "{policy} {records:?}");
    }
}

#[test]
fn a_pod_that_is_ended_fails_unless_all_of_it_succeeded() {
    let records = |code| {
        vec![
            record("a", Role::Main, 1, ended_with(0)),
            record("b", Role::Main, 1, ended_with(code)),
        ]
    };
    assert_eq!(
        render("Always", &records(0), &Course::Ending)["phase"],
        "Succeeded"
    );
    assert_eq!(
        render("Always", &records(143), &Course::Ending)["phase"],
        "Failed"
    );
    let never_started = vec![record("a", Role::Main, 0, ContainerState::Waiting)];
    assert_eq!(
        render("Never", &never_started, &Course::Ending)["phase"],
        "Failed"
    );
    let verdict = Course::Failing(Verdict {
        reason: "DeadlineExceeded",
        message: "too long".to_owned(),
        disruption: false,
    });
    let live = vec![record("a", Role::Main, 1, RUNNING())];
    assert_eq!(
        render("Never", &live, &verdict)["phase"],
        "Running",
        "not over while a process lives"
    );
    let status = render("Never", &records(143), &verdict);
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("DeadlineExceeded"))
    );
}

#[test]
fn a_pod_that_the_node_ends_for_its_own_sake_says_so_from_the_beginning() {
    let course = |disruption| {
        Course::Failing(Verdict {
            reason: "Terminated",
            message: "the node goes down".to_owned(),
            disruption,
        })
    };
    let live = [record("a", Role::Main, 1, RUNNING())];
    let status = render("Never", &live, &course(true));
    let found = condition(&status, "DisruptionTarget");
    assert_eq!(
        (&found["status"], &found["reason"], &found["message"]),
        (
            &json!("True"),
            &json!("TerminationByKubelet"),
            &json!("the node goes down")
        )
    );
    let own_fault = render("Never", &live, &course(false));
    let conditions = own_fault["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .all(|condition| condition["type"] != "DisruptionTarget")
    );
}

#[test]
fn conditions_are_the_kubelets() {
    let init = record("i", Role::Init, 1, RUNNING());
    let waiting = |name| record(name, Role::Main, 0, ContainerState::Waiting);
    let status = render("Never", &[init, waiting("a"), waiting("b")], &Course::Open);
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized["reason"], "ContainersNotInitialized");
    assert_eq!(initialized["message"], "containers with incomplete status: [i]");
    let ready = condition(&status, "Ready");
    assert_eq!(ready["status"], "False");
    assert_eq!(ready["message"], "containers with unready status: [a b]");
    assert_eq!(condition(&status, "PodReadyToStartContainers")["status"], "True");

    let done = |name| record(name, Role::Main, 1, ended_with(0));
    let status = render(
        "Never",
        &[record("i", Role::Init, 1, ended_with(0)), done("a"), done("b")],
        &Course::Open,
    );
    for (kind, value, reason) in [
        ("Initialized", "True", json!("PodCompleted")),
        ("Ready", "False", json!("PodCompleted")),
        ("ContainersReady", "False", json!("PodCompleted")),
        ("PodScheduled", "True", Value::Null),
        ("PodReadyToStartContainers", "False", Value::Null),
    ] {
        let condition = condition(&status, kind);
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!(value), &reason),
            "{kind}"
        );
    }
}

#[test]
fn a_condition_keeps_its_time_while_it_does_not_change() {
    let mut transitions = Transitions::new();
    let pod = pod("Never");
    let mut time = |records: &[Record], now| {
        let view = View {
            pod: &pod,
            records,
            course: &Course::Open,
            seen_at: at(0),
            now: at(now),
            host_ip: "",
            unsandboxed: None,
        };
        let status = status(&view, &mut transitions);
        condition(&status, "Ready")["lastTransitionTime"].clone()
    };
    let running = [record("a", Role::Main, 1, RUNNING())];
    let first = time(&running, 10);
    assert_eq!(time(&running, 20), first);
    assert_ne!(time(&[record("a", Role::Main, 1, ended_with(0))], 30), first);
}

#[test]
fn containers_show_their_state_and_the_one_before() {
    let delay = std::time::Duration::from_secs(10);
    let back_off = Record {
        last: Some(exit(3)),
        ..record(
            "a",
            Role::Main,
            2,
            ContainerState::BackOff { until: at(99), delay },
        )
    };
    let running = Record {
        last: Some(exit(3)),
        ..record("b", Role::Main, 2, RUNNING())
    };
    let status = render("Always", &[back_off, running], &Course::Open);
    let [a, b] = [0, 1].map(|index| &status["containerStatuses"][index]);
    assert_eq!(a["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(
        a["state"]["waiting"]["message"],
        "back-off 10s restarting failed container=a pod=p_ns(u)"
    );
    assert_eq!(a["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(a["lastState"]["terminated"]["containerID"], "kubelite://u.a.1");
    assert_eq!(a["restartCount"], 1);
    assert_eq!(
        (&b["ready"], &b["started"], &b["image"]),
        (&json!(true), &json!(true), &json!("two"))
    );
    assert_eq!(b["containerID"], "kubelite://u.b.1");
    assert_eq!(b["lastState"]["terminated"]["containerID"], "kubelite://u.b.0");
}

#[test]
fn ends_are_named_by_their_cause() {
    for (cause, code, reason) in [
        (Cause::Exited, 0, "Completed"),
        (Cause::Exited, 143, "Error"),
        (Cause::StartFailed, 128, "StartError"),
        (Cause::Lost, 137, "ContainerStatusUnknown"),
    ] {
        assert_eq!(exit_reason(&Exit { cause, ..exit(code) }), reason);
    }
}
