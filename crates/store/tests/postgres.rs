//! The rules of the history on a real Postgres, and what only a server has: it can be away, and it can be listened to.
//!
//! One server for nearly all of it, with a database for each test; those that end it have their own. `make postgres-tests` finds
//! or brings a Postgres and names the directory of its programs in `JANGAR_TEST_POSTGRES`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

mod rules;
mod server;

use std::{
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use jangar_store::{Error, Kept, PageRequest, RunFilter, Store};
use rules::{Place, now, object, record};
use server::{PASSWORD, Server};
use sqlx::{Connection, PgConnection};

/// The server that most tests share. It ends with this process.
fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start_for_all)
}

async fn fresh() -> Place {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Starting takes seconds, in which the other tests of this thread have nothing to do either.
    let server = shared();
    let name = format!("history_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    server.create_database(&name).await;
    let url = server.url("127.0.0.1", &name);
    let dumped = url.clone();
    Place {
        url,
        dump: Box::new(move || dump(&dumped)),
        _keep: Box::new(()),
    }
}

fn dump(url: &str) -> Vec<u8> {
    let output = Command::new(server::program("pg_dump"))
        .arg(url)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

rules::play_all! { fresh }

/// Without this, waiting for a server that is away would be most of what these tests do.
const HASTY: &[(&str, &str)] = &[("PGCONNECT_TIMEOUT_MS", "400")];

/// What only a broken store takes longer for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks again as long as the database counts as down: a machine that is busy may take longer than the hasty like.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..100 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_down(), "{error}"),
        }
    }
    ask().await.unwrap()
}

#[tokio::test]
async fn a_server_that_ends_in_the_middle_is_told_and_found_again_when_it_is_back() {
    let mut server = Server::start();
    let url = server.url("127.0.0.1", "postgres");
    let store = Store::open(rules::config(&url, HASTY));
    let write = async |number| store.record(&record(&object("team", number)), now()).await;
    patiently(async || write(1).await).await;

    server.stop();
    let error = write(2).await.unwrap_err();
    assert!(error.is_down(), "{error}");
    // The first error may still be the end of a connection; from then on it is that nobody answers.
    let error = store.run("team-1").await.unwrap_err();
    assert!(
        error.is_down() && error.to_string().contains("refused"),
        "{error}"
    );
    assert!(!error.to_string().contains(PASSWORD), "{error}");
    // Whoever starts now starts all the same, and is told why when it asks.
    let late = Store::open(rules::config(&url, HASTY));
    let all = async || late.runs(&RunFilter::default(), &PageRequest::default()).await;
    let error = all().await.unwrap_err();
    assert!(
        error.is_down() && error.to_string().contains("refused"),
        "{error}"
    );

    server.start_again();
    assert_eq!(patiently(async || write(2).await).await, Kept::Written);
    assert_eq!(
        patiently(all).await.items.len(),
        2,
        "what was written before is there"
    );
}

#[tokio::test]
async fn whoever_writes_at_once_each_run_is_in_the_piece_of_its_place() {
    const PIECES: &str = "SELECT COUNT(*) FROM jangar_pieces";
    const ASTRAY: &str = "SELECT COUNT(*) FROM jangar_runs AS runs LEFT JOIN jangar_piece_words AS words USING (place) \
                          WHERE words.piece IS DISTINCT FROM \
                          (SELECT number FROM jangar_pieces WHERE begins <= runs.place ORDER BY begins DESC LIMIT 1)";
    let place = fresh().await;
    place.divide_into_pieces_of_three().await;
    let store = place.store().await;
    let writers = (0..4_i64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..25 {
                let records: Vec<_> = [number * 8 + writer, number * 8 + 7 - writer]
                    .map(|number| record(&object("team", number)))
                    .into();
                store.record_all(&records, now()).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert!(place.meddle(PIECES).await > Some(2));
    assert_eq!(place.meddle(ASTRAY).await, Some(0));
}

#[tokio::test]
async fn connections_that_somebody_ends_are_replaced() {
    let place = fresh().await;
    let store = place.store().await;
    store.record(&record(&object("team", 1)), now()).await.unwrap();
    place
        .meddle(
            "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    assert!(store.run("team-1").await.unwrap().is_some());
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told() {
    let url = shared().url("127.0.0.1", "nowhere");
    let error = Store::connect(rules::config(&url, &[])).await.unwrap_err();
    assert!(
        error.is_down() && error.to_string().contains(r#""nowhere" does not exist"#),
        "{error}"
    );
}

#[tokio::test]
async fn a_pool_that_is_in_use_says_so() {
    let place = fresh().await;
    place.store().await.close().await;
    let hasty = [("JANGAR_DB_POOL_SIZE", "1"), ("PGCONNECT_TIMEOUT_MS", "400")];
    let store = Store::open(place.config(&hasty));
    patiently(async || store.ready().await).await;
    // Somebody holds the table, so that a read waits with the only connection.
    let mut holder = PgConnection::connect(&place.url).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE jangar_runs")
        .execute(&mut holder)
        .await
        .unwrap();
    // Whoever is slow to give the connection back keeps this waiting as well.
    let waiting = patiently(async || store.run("team-1").await);
    let in_use = async {
        loop {
            // Until the other has taken the connection, there is one.
            let Err(error) = store.ready().await else {
                continue;
            };
            assert!(error.is_down(), "{error}");
            if error.to_string().contains("all 1 connections were in use") {
                break;
            }
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    };
    let both = Box::pin(async { tokio::join!(waiting, in_use) });
    let both = tokio::time::timeout(PATIENCE, both).await;
    let (found, ()) = both.expect("a pool that is in use says so");
    assert_eq!(found, None);
}

#[tokio::test]
async fn encryption_is_as_strict_as_it_was_asked_for() {
    let server = shared();
    let authority = server.authority().display().to_string();
    let stranger = server.other_authority().display().to_string();
    let connect = async |host: &str, mode: &str, authority: Option<&str>| {
        let url = format!("{}?sslmode={mode}", server.url(host, "postgres"));
        let variables: Vec<_> = authority
            .map(|path| ("JANGAR_DB_CA_CERT", path))
            .into_iter()
            .collect();
        Store::connect(rules::config(&url, &variables)).await.map(drop)
    };
    for (host, mode, authority) in [
        ("localhost", "verify-full", Some(authority.as_str())),
        ("127.0.0.1", "verify-ca", Some(&authority)),
        ("127.0.0.1", "require", Some(&authority)),
        ("127.0.0.1", "require", None),
        ("127.0.0.1", "disable", None),
    ] {
        let said = connect(host, mode, authority).await;
        assert!(said.is_ok(), "{host} {mode}: {said:?}");
    }
    for (host, mode, authority) in [
        ("127.0.0.1", "verify-full", Some(authority.as_str())),
        ("localhost", "verify-full", Some(&stranger)),
        ("localhost", "verify-ca", Some(&stranger)),
        ("localhost", "require", Some(&stranger)),
        ("localhost", "verify-full", None),
    ] {
        let error = connect(host, mode, authority).await.expect_err(mode);
        assert!(
            error.is_down() && error.to_string().contains("certificate"),
            "{host} {mode}: {error}"
        );
    }
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_it_is_required() {
    let server = Server::without_encryption();
    let url = format!("{}?sslmode=require", server.url("127.0.0.1", "postgres"));
    let error = Store::connect(rules::config(&url, &[])).await.unwrap_err();
    assert!(
        error.is_down() && error.to_string().contains("does not support TLS"),
        "{error}"
    );
    let url = server.url("127.0.0.1", "postgres");
    assert!(
        Store::connect(rules::config(&url, &[])).await.is_ok(),
        "on this machine it is not"
    );
}
