//! The client against a real Temporal server: what is started, how its end is heard, and what the server says to the rest.
//!
//! One server for all of it, because it takes seconds to start; those that are killed or want certificates have their own.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

use std::{
    fs,
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use jangar_controllers::outside::{Temporal, Waited};
use jangar_engine::{
    decision::{Key, Uid},
    settings::TemporalSettings,
    temporal::call::{Closed, Means, Returned, Start, StartAnswer, Stop, StopAnswer, Timeouts, Workflow},
};
use jangar_temporal::Server;
use jangar_testkit::temporal_server::{Encryption, TASK_QUEUE, TemporalServer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

/// Only a broken server takes that long for anything.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server that most tests share. It ends with this process.
fn shared() -> &'static TemporalServer {
    static SERVER: OnceLock<TemporalServer> = OnceLock::new();
    SERVER.get_or_init(TemporalServer::start)
}

fn client(server: &TemporalServer) -> Server {
    Server::new(&server.address(), &TemporalSettings::default()).unwrap()
}

fn key() -> Key {
    Key {
        namespace: "agents".to_owned(),
        name: "mend".to_owned(),
    }
}

fn workflow(id: &str) -> Workflow {
    Workflow {
        namespace: "default".to_owned(),
        id: id.to_owned(),
        run_id: None,
    }
}

fn start(behaviour: &str) -> Start {
    Start {
        number: 1,
        workflow_type: "Agent".to_owned(),
        task_queue: TASK_QUEUE.to_owned(),
        timeouts: Timeouts::default(),
        argument: json!({"parameters": {"behaviour": behaviour}}),
    }
}

/// Starts a workflow whose run has the same UID as it has an id.
async fn begin(client: &Server, id: &str, start: Start) -> Workflow {
    match begun(client, id, id, start).await {
        StartAnswer::Started { run_id } => Workflow {
            run_id: Some(run_id),
            ..workflow(id)
        },
        other => panic!("{id} is not started: {other:?}"),
    }
}

async fn begun(client: &Server, id: &str, uid: &str, start: Start) -> StartAnswer {
    let uid = Uid(uid.to_owned());
    client.start(&key(), &uid, workflow(id), start).await
}

/// How a workflow ended, however often the server has to be asked.
async fn end(client: &Server, workflow: &Workflow) -> Closed {
    let begin = Instant::now();
    loop {
        match client.wait(workflow.clone(), TASK_QUEUE.to_owned()).await {
            Waited::Closed(closed) => return closed,
            other => assert!(begin.elapsed() < PATIENCE, "{workflow:?}: {other:?}"),
        }
    }
}

async fn stop(client: &Server, workflow: &Workflow, means: Means) -> StopAnswer {
    let stop = Stop {
        number: 1,
        means,
        reason: "a test".to_owned(),
    };
    client.stop(workflow.clone(), stop).await
}

fn result(closed: Closed) -> Value {
    match closed {
        Closed::Completed(Returned::Json(value)) => value,
        other => panic!("it did not complete: {other:?}"),
    }
}

#[tokio::test]
async fn a_workflow_gets_its_argument_and_its_result_comes_back() {
    let client = client(shared());
    let argument = start("succeed").argument;
    let begun = begin(&client, "succeeds", start("succeed")).await;
    let result = result(end(&client, &begun).await);
    assert_eq!(result["summary"], "mended");
    assert_eq!(result["outputs"]["received"], argument);
}

#[tokio::test]
async fn a_failure_comes_back_with_its_type_and_message() {
    let client = client(shared());
    let begun = begin(&client, "fails", start("fail")).await;
    assert_eq!(
        end(&client, &begun).await,
        Closed::Failed {
            kind: Some("TestsRed".to_owned()),
            message: "two tests are red".to_owned(),
        }
    );
}

#[tokio::test]
async fn a_second_start_for_the_same_run_finds_the_first_also_when_it_has_ended() {
    let client = client(shared());
    let first = begin(&client, "twice", start("work")).await;
    let second = begin(&client, "twice", start("work")).await;
    assert_eq!(first, second);
    shared().ask("finish", "twice");
    end(&client, &first).await;
    let third = begin(&client, "twice", start("work")).await;
    assert_eq!(first, third);
    assert_eq!(shared().ask("status", "twice"), "Completed");
}

#[tokio::test]
async fn an_id_that_somebody_else_has_is_not_taken_over() {
    let client = client(shared());
    shared().ask("start", "foreign");
    let answer = begun(&client, "foreign", "ours", start("work")).await;
    assert!(matches!(answer, StartAnswer::Occupied { .. }), "{answer:?}");
    begin(&client, "another run's", start("work")).await;
    let answer = begun(&client, "another run's", "ours", start("work")).await;
    assert!(matches!(answer, StartAnswer::Occupied { .. }), "{answer:?}");
}

#[tokio::test]
async fn a_cancelled_workflow_is_told_once_and_closes_as_cancelled() {
    let client = client(shared());
    let begun = begin(&client, "cancelled", start("work")).await;
    assert_eq!(stop(&client, &begun, Means::Cancel).await, StopAnswer::Told);
    assert_eq!(end(&client, &begun).await, Closed::Canceled { words: None });
    // It has ended already, and whoever asks again is not told that it never was.
    assert_eq!(stop(&client, &begun, Means::Cancel).await, StopAnswer::Told);
    assert_eq!(stop(&client, &begun, Means::Terminate).await, StopAnswer::Told);
    assert_eq!(
        stop(&client, &workflow("never started"), Means::Cancel).await,
        StopAnswer::NotFound
    );
}

#[tokio::test]
async fn a_workflow_that_works_on_can_complete_or_be_terminated() {
    let client = client(shared());
    let deaf = begin(&client, "deaf", start("finish anyway")).await;
    assert_eq!(stop(&client, &deaf, Means::Cancel).await, StopAnswer::Told);
    shared().ask("finish", "deaf");
    assert_eq!(result(end(&client, &deaf).await)["summary"], "mended");

    let stubborn = begin(&client, "stubborn", start("finish anyway")).await;
    assert_eq!(stop(&client, &stubborn, Means::Cancel).await, StopAnswer::Told);
    assert_eq!(stop(&client, &stubborn, Means::Terminate).await, StopAnswer::Told);
    let words = Some("a test".to_owned());
    assert_eq!(end(&client, &stubborn).await, Closed::Terminated { words });
}

#[tokio::test]
async fn a_termination_by_somebody_else_and_a_timeout_are_heard() {
    let client = client(shared());
    let begun = begin(&client, "terminated", start("work")).await;
    shared().ask("terminate", "terminated");
    let words = Some("a test wants it".to_owned());
    assert_eq!(end(&client, &begun).await, Closed::Terminated { words });

    let late = Start {
        timeouts: Timeouts {
            execution: Some(Duration::from_secs(1)),
            ..Timeouts::default()
        },
        ..start("work")
    };
    let begun = begin(&client, "late", late).await;
    assert_eq!(end(&client, &begun).await, Closed::TimedOut);
}

#[tokio::test]
async fn a_workflow_that_goes_on_as_another_execution_is_followed_and_found_again() {
    let client = client(shared());
    let begun = begin(&client, "goes on", start("continue as new")).await;
    assert_eq!(result(end(&client, &begun).await)["summary"], "mended");
    let again = begin(&client, "goes on", start("continue as new")).await;
    assert_eq!(begun, again, "the first execution is what it is known by");
}

#[tokio::test]
async fn a_queue_that_nobody_polls_and_a_workflow_that_never_was_are_told() {
    let client = client(shared());
    let idle = Start {
        task_queue: "nobody".to_owned(),
        ..start("work")
    };
    let begun = begin(&client, "idle", idle).await;
    let waited = client.wait(begun, "nobody".to_owned()).await;
    let Waited::Open { note: Some(note) } = waited else {
        panic!("it is not told: {waited:?}");
    };
    assert!(note.contains("nobody") && note.contains("taskQueue"), "{note}");
    let closed = end(&client, &workflow("never was")).await;
    assert!(matches!(closed, Closed::Vanished { .. }), "{closed:?}");
}

#[tokio::test]
async fn what_the_server_refuses_is_told_by_its_field() {
    let client = client(shared());
    let elsewhere = Workflow {
        namespace: "nowhere".to_owned(),
        ..workflow("refused")
    };
    let uid = Uid("refused".to_owned());
    let answer = client.start(&key(), &uid, elsewhere, start("work")).await;
    let StartAnswer::Refused { words } = answer else {
        panic!("it is not refused: {answer:?}");
    };
    assert!(
        words.contains("spec.runtime.config.namespace") && words.contains("nowhere"),
        "{words}"
    );

    let unqueued = Start {
        task_queue: String::new(),
        ..start("work")
    };
    let answer = begun(&client, "unqueued", "unqueued", unqueued).await;
    let StartAnswer::Refused { words } = answer else {
        panic!("it is not refused: {answer:?}");
    };
    assert!(words.contains("spec.runtime.config"), "{words}");
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_goes_on_and_nothing_is_started_twice() {
    let mut server = TemporalServer::start();
    let client = client(&server);
    let begun = begin(&client, "survivor", start("work")).await;
    server.kill();
    let waited = client.wait(begun.clone(), TASK_QUEUE.to_owned()).await;
    assert!(matches!(waited, Waited::Silent { .. }), "{waited:?}");
    let answer = begun_again(&client, "survivor").await;
    assert!(
        matches!(answer, StartAnswer::Unclear { .. } | StartAnswer::NotTaken { .. }),
        "{answer:?}"
    );
    let answer = stop(&client, &begun, Means::Cancel).await;
    assert!(matches!(answer, StopAnswer::NotTaken { .. }), "{answer:?}");
    server.restart();
    let again = begin(&client, "survivor", start("work")).await;
    assert_eq!(begun, again);
    server.ask("finish", "survivor");
    assert_eq!(result(end(&client, &begun).await)["summary"], "mended");
}

async fn begun_again(client: &Server, id: &str) -> StartAnswer {
    begun(client, id, id, start("work")).await
}

/// An authority, and a certificate and a key of it, as files.
fn certificates(directory: &Path) -> Encryption {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let own_key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&own_key, &authority).unwrap();
    let file = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    Encryption {
        certificate: file("own.pem", own.pem()),
        key: file("own.key", own_key.serialize_pem()),
        authority: file("authority.pem", authority.pem()),
    }
}

#[tokio::test]
async fn a_server_that_wants_certificates_gets_them_and_refuses_who_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let encryption = certificates(directory.path());
    let server = TemporalServer::encrypted(encryption.clone());
    let mut settings = TemporalSettings {
        server_ca_file: Some(encryption.authority),
        server_name: Some("localhost".to_owned()),
        ..TemporalSettings::default()
    };
    let stranger = Server::new(&server.address(), &settings).unwrap();
    let answer = begun(&stranger, "strange", "strange", start("succeed")).await;
    assert!(
        matches!(answer, StartAnswer::NotTaken { .. } | StartAnswer::Unclear { .. }),
        "{answer:?}"
    );
    settings.client_cert_file = Some(encryption.certificate);
    settings.client_key_file = Some(encryption.key);
    let client = Server::new(&server.address(), &settings).unwrap();
    let begun = begin(&client, "encrypted", start("succeed")).await;
    assert_eq!(result(end(&client, &begun).await)["summary"], "mended");
}
