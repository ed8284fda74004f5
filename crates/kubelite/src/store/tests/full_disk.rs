//! A disk that fails in the middle of a transaction: the write fails with a reason, reads go on, and once there is space
//! again writes succeed and the file holds exactly what was acknowledged.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    ops::Bound,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use redb::{BackendError, Builder, Database, DatabaseError, StorageBackend, backends::FileBackend};
use tempfile::tempdir;

use super::{
    super::{CommitError, Limits, OpenError, Store, backend::Backend, redb::Redb},
    create, delete, key, size_of, update, widgets,
};

const PLENTY: u64 = u64::MAX;

/// What the disk can still take.
#[derive(Debug)]
struct Space {
    bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Space {
    fn set(&self, bytes: u64, syncs: u64) {
        self.bytes.store(bytes, Ordering::SeqCst);
        self.syncs.store(syncs, Ordering::SeqCst);
    }

    fn take(counter: &AtomicU64, amount: u64) -> io::Result<()> {
        let taken = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            PLENTY => Some(PLENTY),
            left => left.checked_sub(amount),
        });
        taken.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

#[derive(Debug)]
struct SmallDisk {
    file: FileBackend,
    space: Arc<Space>,
}

impl StorageBackend for SmallDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Space::take(&self.space.syncs, 1)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Space::take(&self.space.bytes, data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

fn open(path: &Path, space: &Arc<Space>) -> Result<Store, OpenError> {
    let (file, space) = (path.to_owned(), Arc::clone(space));
    Store::threaded(Limits::default(), path.to_owned(), move || {
        let database = move |builder: &Builder, path: &Path| -> Result<Database, DatabaseError> {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let disk = SmallDisk {
                file: FileBackend::new(file)?,
                space: Arc::clone(&space),
            };
            builder.create_with_backend(disk)
        };
        let backend: Box<dyn Backend> = Box::new(Redb::open(&file, database)?);
        Ok(backend)
    })
}

fn contents(store: &Store) -> BTreeMap<String, (i64, u64)> {
    let snapshot = store.snapshot(&widgets(), None).unwrap();
    let read = snapshot.iter(None, None);
    read.map(|(key, object)| (key.name.to_string(), (size_of(object), object.revision)))
        .collect()
}

/// Fills the disk after `bytes` more bytes or `syncs` more syncs, writes until that shows, and checks what must hold.
/// Returns whether the disk failed at all.
async fn survive(bytes: u64, syncs: u64) -> bool {
    let directory = tempdir().unwrap();
    let path = directory.path().join("objects.redb");
    let space = Arc::new(Space {
        bytes: PLENTY.into(),
        syncs: PLENTY.into(),
    });
    let store = open(&path, &space).unwrap();
    let kept = create(&store, "kept", 1).await.unwrap();
    let gone = create(&store, "gone", 1).await.unwrap();
    let mut expected = contents(&store);
    let mut watch = store.watch(&widgets(), store.revision()).unwrap();

    space.set(bytes, syncs);
    let answers = [
        update(&store, "kept", kept.revision, 2).await,
        store.commit(delete(&widgets(), "gone", gone.revision)).await,
        create(&store, "new", 1).await,
        create(&store, "newer", 1).await,
    ];
    let mut newest = 0;
    for (name, answer) in ["kept", "gone", "new", "newer"].into_iter().zip(&answers) {
        match answer {
            Ok(object) if name == "gone" => {
                expected.remove(name);
                newest = object.revision;
            }
            Ok(object) => {
                expected.insert(name.to_owned(), (size_of(object), object.revision));
                newest = object.revision;
            }
            Err(CommitError::Storage(why)) => {
                assert!(
                    why.contains("no space left") && why.contains("objects.redb"),
                    "{why}"
                );
            }
            Err(other) => panic!("{name}: {other}"),
        }
    }
    let failed = answers.iter().any(Result::is_err);
    assert_eq!(
        contents(&store),
        expected,
        "reads show what was acknowledged, bytes {bytes}, syncs {syncs}"
    );
    assert_eq!(failed, store.stats().transactions_failed > 0);

    space.set(PLENTY, PLENTY);
    let after = create(&store, "after", 3).await.unwrap();
    assert!(after.revision > newest && after.revision > gone.revision);
    expected.insert("after".to_owned(), (3, after.revision));
    assert_eq!(contents(&store), expected);
    let mut last = gone.revision;
    while last < after.revision {
        for event in watch.next().await.unwrap().events {
            assert!(event.revision > last);
            last = event.revision;
        }
    }
    drop(store);

    let store = Store::open(&path, Limits::default()).unwrap();
    assert_eq!(
        contents(&store),
        expected,
        "after a restart, bytes {bytes}, syncs {syncs}"
    );
    assert!(store.revision() >= after.revision);
    failed
}

#[tokio::test]
async fn disk_that_fills_up_anywhere_in_a_transaction_loses_nothing() {
    let mut failures = 0;
    for pages in 0..40 {
        // Also in the middle of what is written at once.
        failures += u32::from(survive(pages * 4096 + pages % 3 * 100, PLENTY).await);
    }
    assert!(failures > 10, "only {failures} runs hit the limit");
}

/// A sync that fails leaves open what reached the disk. The store has told the writer that it failed, so it must not
/// come back, even where all of it is in the file.
#[tokio::test]
async fn transaction_whose_sync_failed_is_taken_back() {
    for syncs in 0..8 {
        assert!(survive(PLENTY, syncs).await, "{syncs}");
    }
}

#[tokio::test]
async fn nothing_that_failed_can_be_conflicted_with() {
    let directory = tempdir().unwrap();
    let space = Arc::new(Space {
        bytes: PLENTY.into(),
        syncs: PLENTY.into(),
    });
    let store = open(&directory.path().join("objects.redb"), &space).unwrap();
    space.set(0, PLENTY);
    assert!(matches!(
        create(&store, "a", 1).await,
        Err(CommitError::Storage(_))
    ));
    assert!(matches!(
        create(&store, "a", 1).await,
        Err(CommitError::Storage(_))
    ));
    assert!(store.get(&widgets(), &key("a")).is_none());
    space.set(PLENTY, PLENTY);
    let created = create(&store, "a", 2).await.unwrap();
    assert_eq!(
        created.revision, 3,
        "the revisions of failed writes are never used again"
    );
}
