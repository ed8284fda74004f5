//! The store on disk: what survives, who may open it, and how writes share a transaction.

use std::{path::Path, process::Command};

use redb::{Database, TableDefinition};
use tempfile::{TempDir, tempdir};
use tokio::task::JoinSet;

use super::{
    super::{CommitError, Expect, Limits, OpenError, SnapshotError, Store},
    body, create, delete, gadgets, key, put, size_of, update, widgets,
};

fn place() -> (TempDir, std::path::PathBuf) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("objects.redb");
    (directory, path)
}

fn open(path: &Path) -> Store {
    Store::open(path, Limits::default()).unwrap()
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let (_directory, path) = place();
    let store = open(&path);
    let a = create(&store, "a", 1).await.unwrap();
    let a = update(&store, "a", a.revision, 2).await.unwrap();
    let b = create(&store, "b", 1).await.unwrap();
    store.commit(delete(&widgets(), "b", b.revision)).await.unwrap();
    let mut owned = body("g", 7);
    owned["metadata"]["ownerReferences"] =
        serde_json::json!([{"uid": "uid-a", "kind": "Widget", "name": "a"}]);
    let g = store
        .commit(put(&gadgets(), "g", Expect::Absent, owned))
        .await
        .unwrap();
    let (revision, stats) = (store.revision(), store.stats());
    drop(store);

    let store = open(&path);
    assert_eq!(store.revision(), revision);
    assert_eq!(store.get(&widgets(), &key("a")).unwrap().json, a.json);
    assert_eq!(store.get(&widgets(), &key("a")).unwrap().revision, a.revision);
    assert_eq!(store.get(&gadgets(), &key("g")).unwrap().json, g.json);
    assert!(store.get(&widgets(), &key("b")).is_none());
    assert_eq!(store.dependents("uid-a").len(), 1);
    assert_eq!(store.find_uid("uid-g").unwrap().1, key("g"));
    assert_eq!(
        (store.stats().objects, store.stats().bytes),
        (stats.objects, stats.bytes)
    );
    // History is not kept on disk, so a client from before the restart has to list again.
    assert_eq!(
        store.watch(&widgets(), revision - 1).unwrap_err(),
        SnapshotError::Expired { oldest: revision }
    );
    assert_eq!(
        store.snapshot(&gadgets(), Some(0)).unwrap_err(),
        SnapshotError::Expired { oldest: revision }
    );
    assert!(store.watch(&widgets(), revision).is_ok());
    assert!(create(&store, "c", 1).await.unwrap().revision > revision);
}

#[tokio::test]
async fn second_opener_is_told_that_the_file_is_in_use() {
    let (_directory, path) = place();
    let store = open(&path);
    let refused = Store::open(&path, Limits::default()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    create(&store, "a", 1).await.unwrap();
    store.close();
    assert!(open(&path).get(&widgets(), &key("a")).is_some());
}

#[tokio::test]
async fn close_commits_what_is_queued() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut writers = JoinSet::new();
    for index in 0..50 {
        let store = store.clone();
        writers.spawn(async move { create(&store, &format!("w{index}"), index).await });
    }
    // On one thread, each task has queued its write by the time this one runs again.
    tokio::task::yield_now().await;
    store.close();
    let answers = writers.join_all().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(create(&store, "late", 1).await.unwrap_err(), CommitError::Closed);
    drop(store);
    assert_eq!(open(&path).stats().objects, 50);
}

#[tokio::test]
async fn writes_that_wait_together_share_a_transaction() {
    let (_directory, path) = place();
    let store = open(&path);
    let mut writers = JoinSet::new();
    for index in 0..200 {
        let store = store.clone();
        writers.spawn(async move {
            create(&store, &format!("w{index}"), index)
                .await
                .unwrap()
                .revision
        });
    }
    let mut revisions = writers.join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=200).collect::<Vec<u64>>());
    let stats = store.stats();
    assert_eq!(stats.writes, 200);
    assert!(
        stats.transactions < 100 && stats.batch_writes_max > 2,
        "{stats:?}"
    );
}

#[tokio::test]
async fn of_many_writers_on_one_object_each_revision_is_won_once() {
    let (_directory, path) = place();
    let store = open(&path);
    create(&store, "a", 0).await.unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        writers.spawn(async move {
            let mut won = 0;
            while won < 5 {
                let current = store.get(&widgets(), &key("a")).unwrap();
                match update(&store, "a", current.revision, size_of(&current) + 1).await {
                    Ok(_) => won += 1,
                    Err(CommitError::Conflict { current: newer }) => assert!(newer > current.revision),
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    writers.join_all().await;
    assert_eq!(size_of(&store.get(&widgets(), &key("a")).unwrap()), 100);
}

#[tokio::test]
async fn queue_bounds_hold_back_writers_without_losing_any() {
    let (_directory, path) = place();
    let store = Store::open(
        &path,
        Limits {
            write_queue_bytes: 1,
            ..Limits::default()
        },
    )
    .unwrap();
    let mut writers = JoinSet::new();
    for index in 0..30 {
        let store = store.clone();
        writers.spawn(async move { create(&store, &format!("w{index}"), index).await.unwrap() });
    }
    assert_eq!(writers.join_all().await.len(), 30);
    assert_eq!(store.stats().batch_writes_max, 1);
}

#[cfg(unix)]
#[test]
fn file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, path) = place();
    let _store = open(&path);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{:?}",
            entry.path()
        );
    }
}

#[test]
fn remains_of_an_unfinished_creation_are_no_obstacle() {
    let (directory, path) = place();
    std::fs::write(directory.path().join("objects.redb.new"), b"half a database").unwrap();
    assert_eq!(open(&path).revision(), 0);
}

#[test]
fn missing_directory_and_foreign_format_are_told_apart_from_damage() {
    let (directory, path) = place();
    let missing = Store::open(&directory.path().join("no/such/file"), Limits::default()).unwrap_err();
    assert!(matches!(missing, OpenError::Io { .. }), "{missing}");

    drop(open(&path));
    let record: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    bytes.extend([0; 16]);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction
        .open_table(record)
        .unwrap()
        .insert("store", bytes.as_slice())
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let foreign = Store::open(&path, Limits::default()).unwrap_err();
    assert!(
        matches!(
            foreign,
            OpenError::Format {
                found: 2,
                supported: 1,
                ..
            }
        ),
        "{foreign}"
    );
}

/// The other process is this very test program, told to run one test only.
#[test]
fn another_process_is_kept_out() {
    const VARIABLE: &str = "KUBELITE_TEST_OPEN_STORE";
    if let Some(path) = std::env::var_os(VARIABLE) {
        let refused = Store::open(Path::new(&path), Limits::default()).unwrap_err();
        assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
        return;
    }
    let (_directory, path) = place();
    let _store = open(&path);
    let name = "store::tests::disk::another_process_is_kept_out";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(VARIABLE, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}
