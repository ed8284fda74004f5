//! Objects in a redb file: one transaction per batch, durable before it is answered.
//!
//! Layout: the table `objects` maps `collection \0 namespace \0 name` to a CRC-32 (of key and JSON) followed by the JSON; the
//! table `meta` holds one record with the format, the newest revision, the number of objects and a CRC-32 of these.
//!
//! Every transaction commits in two phases. With one phase redb would take a damaged newest transaction for one that a
//! crash interrupted, and fall back to the transaction before it without a word; with two it refuses. The second sync
//! costs little, since a batch shares it.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};

use super::{
    Collection, Event, EventKind, Key,
    backend::{Backend, BackendError, Damage, OpenError, Stored},
};

const OBJECTS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
/// The one record of the table `meta`.
const RECORD: &str = "store";
const FORMAT: u32 = 1;
/// All objects are in memory already; redb's cache only has to hold the pages of the batch in flight and the inner pages
/// of the tree.
const CACHE_BYTES: usize = 64 << 20;
const CRC_BYTES: usize = 4;

/// Opens the database in a file that exists, with these settings. Tests put a failing disk in between.
pub(super) type OpenDatabase = fn(&Builder, &Path) -> Result<Database, DatabaseError>;

pub(super) fn open_file(builder: &Builder, path: &Path) -> Result<Database, DatabaseError> {
    builder.open(path)
}

#[derive(Debug)]
pub(super) struct Redb<O = OpenDatabase> {
    path: PathBuf,
    open: O,
    /// `None` after a failure: redb accepts nothing more then, and the next attempt opens the file anew.
    database: Option<Database>,
    committed: Record,
    /// The transaction that failed last, if the file has not been looked at since: part of the disk's answer may have been
    /// lost, so it may be in the file although its writers were told that it failed.
    doubtful: Option<Attempt>,
    /// Held as long as the store is open, so that no other process gets in while the file is reopened.
    _lock: File,
}

/// What the table `meta` says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Record {
    revision: u64,
    objects: u64,
}

#[derive(Debug)]
struct Attempt {
    rows: Vec<Row>,
    record: Record,
}

#[derive(Debug)]
struct Row {
    key: Vec<u8>,
    before: Option<Bytes>,
    after: Option<Bytes>,
}

impl<O: Fn(&Builder, &Path) -> Result<Database, DatabaseError>> Redb<O> {
    /// Opens the file, or makes it. Verifies its structure, not yet its rows.
    pub(super) fn open(path: &Path, open: O) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let lock = lock(path)?;
        if !path.try_exists().map_err(failed)? {
            create(path).map_err(|error| open_error(path, error))?;
        }
        // An empty file is what remains of a truncated one: a new file is never seen before it is complete.
        if path.metadata().map_err(failed)?.len() == 0 {
            return Err(OpenError::Damaged {
                path: path.to_owned(),
                what: "the file is empty".to_owned(),
            });
        }
        let repaired = Arc::new(AtomicBool::new(false));
        let mut builder = builder();
        builder.set_repair_callback({
            let repaired = Arc::clone(&repaired);
            move |_| repaired.store(true, Ordering::Relaxed)
        });
        let mut database = open(&builder, path).map_err(|error| open_error(path, error.into()))?;
        // After a crash redb has walked every page and compared checksums by now; after an orderly close it believes
        // the file. This makes it look there too, and so finds damage where no object lies, which would otherwise come
        // to light when a later write trusts it. What it can repair, the record of free pages, holds no objects.
        if !repaired.load(Ordering::Relaxed) {
            database
                .check_integrity()
                .map_err(|error| open_error(path, error.into()))?;
        }
        let committed = read_record(path, &database)?;
        let path = path.to_owned();
        Ok(Self {
            path,
            open,
            database: Some(database),
            committed,
            doubtful: None,
            _lock: lock,
        })
    }

    fn reopen(&mut self) -> Result<Database, redb::Error> {
        let database = (self.open)(&builder(), &self.path)?;
        let found =
            read_record(&self.path, &database).map_err(|error| redb::Error::Corrupted(error.to_string()))?;
        if let Some(attempt) = &self.doubtful
            && found == attempt.record
            && found != self.committed
        {
            // The failed transaction reached the disk after all. Its writers were told otherwise, so take it back; its
            // revisions stay used.
            let record = Record {
                revision: found.revision,
                objects: self.committed.objects,
            };
            let back = attempt
                .rows
                .iter()
                .rev()
                .map(|row| (&row.key, row.before.as_ref()));
            transact(&database, back, record)?;
            self.committed = record;
        } else if found != self.committed {
            return Err(redb::Error::Corrupted(
                "another program changed the file".to_owned(),
            ));
        }
        self.doubtful = None;
        Ok(database)
    }

    fn try_commit(&mut self, events: &[Event]) -> Result<(), redb::Error> {
        // Taken out while it is in use: on an error, or a panic, it is dropped and thereby closed.
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        let attempt = self.doubtful.insert(Attempt::new(events, self.committed));
        let rows = attempt.rows.iter().map(|row| (&row.key, row.after.as_ref()));
        transact(&database, rows, attempt.record)?;
        self.committed = attempt.record;
        self.doubtful = None;
        self.database = Some(database);
        Ok(())
    }
}

impl<O: Fn(&Builder, &Path) -> Result<Database, DatabaseError> + Send> Backend for Redb<O> {
    fn load(&mut self, visit: &mut dyn FnMut(Stored) -> Result<(), Damage>) -> Result<u64, OpenError> {
        let path = &self.path;
        let damaged = |Damage(what)| OpenError::Damaged {
            path: path.clone(),
            what,
        };
        let Some(database) = &self.database else {
            return Err(damaged(Damage(
                "the file was closed by an earlier failure".to_owned(),
            )));
        };
        let failed = |error: redb::Error| open_error(path, error);
        let transaction = database.begin_read().map_err(|error| failed(error.into()))?;
        let table = transaction
            .open_table(OBJECTS)
            .map_err(|error| failed(error.into()))?;
        let mut names = Names::default();
        let mut objects = 0;
        for row in table.iter().map_err(|error| failed(error.into()))? {
            let (key, value) = row.map_err(|error| failed(error.into()))?;
            objects += 1;
            if objects > self.committed.objects {
                break;
            }
            names
                .stored(key.value(), value.value())
                .and_then(&mut *visit)
                .map_err(damaged)?;
        }
        if objects != self.committed.objects {
            let expected = self.committed.objects;
            return Err(damaged(Damage(format!(
                "it should hold {expected} objects but does not"
            ))));
        }
        Ok(self.committed.revision)
    }

    fn commit(&mut self, events: &[Event]) -> Result<(), BackendError> {
        self.try_commit(events)
            .map_err(|error| BackendError(failure(&self.path, &error)))
    }
}

impl Attempt {
    fn new(events: &[Event], committed: Record) -> Self {
        let mut record = committed;
        let row = |event: &Event| {
            record.revision = event.revision;
            match event.kind {
                EventKind::Added => record.objects += 1,
                EventKind::Modified => {}
                EventKind::Deleted => record.objects = record.objects.saturating_sub(1),
            }
            Row {
                key: encode_key(&event.collection, &event.key),
                before: event.previous.as_ref().map(|object| object.json.clone()),
                after: (event.kind != EventKind::Deleted).then(|| event.object.json.clone()),
            }
        };
        let rows = events.iter().map(row).collect();
        Self { rows, record }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn transact<'a>(
    database: &Database,
    rows: impl Iterator<Item = (&'a Vec<u8>, Option<&'a Bytes>)>,
    record: Record,
) -> Result<(), redb::Error> {
    let transaction = begin(database)?;
    {
        let mut table = transaction.open_table(OBJECTS)?;
        for (key, json) in rows {
            match json {
                Some(json) => {
                    let mut place = table.insert_reserve(key.as_slice(), CRC_BYTES + json.len())?;
                    let (crc, rest) = place.as_mut().split_at_mut(CRC_BYTES);
                    crc.copy_from_slice(&checksum(&[key, json]));
                    rest.copy_from_slice(json);
                }
                None => {
                    table.remove(key.as_slice())?;
                }
            }
        }
        transaction
            .open_table(META)?
            .insert(RECORD, record.to_bytes().as_slice())?;
    }
    transaction.commit()?;
    Ok(())
}

fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

fn checksum(parts: &[&[u8]]) -> [u8; CRC_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().to_le_bytes()
}

impl Record {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = FORMAT.to_le_bytes().to_vec();
        bytes.extend(self.revision.to_le_bytes());
        bytes.extend(self.objects.to_le_bytes());
        bytes.extend(checksum(&[&bytes]));
        bytes
    }

    fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, OpenError> {
        let damaged = || OpenError::Damaged {
            path: path.to_owned(),
            what: "the record of its format and revision cannot be read".to_owned(),
        };
        let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(damaged)?;
        if checksum(&[body]) != *crc {
            return Err(damaged());
        }
        let (format, rest) = body.split_first_chunk::<4>().ok_or_else(damaged)?;
        let found = u32::from_le_bytes(*format);
        if found != FORMAT {
            return Err(OpenError::Format {
                path: path.to_owned(),
                found,
                supported: FORMAT,
            });
        }
        let (revision, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let objects: [u8; 8] = rest.try_into().map_err(|_| damaged())?;
        Ok(Self {
            revision: u64::from_le_bytes(*revision),
            objects: u64::from_le_bytes(objects),
        })
    }
}

fn read_record(path: &Path, database: &Database) -> Result<Record, OpenError> {
    let bytes = || -> Result<Option<Vec<u8>>, redb::Error> {
        let table = database.begin_read()?.open_table(META)?;
        Ok(table.get(RECORD)?.map(|record| record.value().to_vec()))
    };
    Record::from_bytes(
        path,
        &bytes()
            .map_err(|error| open_error(path, error))?
            .unwrap_or_default(),
    )
}

fn encode_key(collection: &Collection, key: &Key) -> Vec<u8> {
    [collection.as_str(), &key.namespace, &key.name]
        .join("\0")
        .into_bytes()
}

/// Decodes rows. Neighbours share their collection and mostly their namespace, so these are allocated once.
#[derive(Default)]
struct Names {
    collection: Option<Collection>,
    namespace: Option<Arc<str>>,
}

impl Names {
    fn stored(&mut self, key: &[u8], value: &[u8]) -> Result<Stored, Damage> {
        let place = || String::from_utf8_lossy(key).replace('\0', " ");
        let (crc, json) = value
            .split_first_chunk::<CRC_BYTES>()
            .ok_or_else(|| Damage(format!("the object {} is cut off", place())))?;
        if checksum(&[key, json]) != *crc {
            return Err(Damage(format!("the checksum of the object {} is wrong", place())));
        }
        let unreadable = || Damage(format!("the key {} cannot be read", place()));
        let text = str::from_utf8(key).map_err(|_| unreadable())?;
        let mut parts = text.split('\0');
        let (Some(collection), Some(namespace), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unreadable());
        };
        let collection = match &self.collection {
            Some(known) if known.as_str() == collection => known.clone(),
            _ => self.collection.insert(Collection(collection.into())).clone(),
        };
        let namespace = match &self.namespace {
            Some(known) if **known == *namespace => Arc::clone(known),
            _ => Arc::clone(self.namespace.insert(namespace.into())),
        };
        let key = Key {
            namespace,
            name: name.into(),
        };
        Ok(Stored {
            collection,
            key,
            json: Bytes::copy_from_slice(json),
        })
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Objects include secrets, so what is made here is for the owner alone.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = beside(path, ".lock");
    let failed = |source| OpenError::Io {
        path: lock.clone(),
        source,
    };
    let file = private(
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )
    .open(&lock)
    .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Makes an empty database under another name and moves it into place when it is complete, so that a crash on the way
/// leaves nothing that looks like a database.
fn create(path: &Path) -> Result<(), redb::Error> {
    let unfinished = beside(path, ".new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let file = private(OpenOptions::new().read(true).write(true).create_new(true)).open(&unfinished)?;
    let database = builder().create_file(file)?;
    transact(
        &database,
        std::iter::empty(),
        Record {
            revision: 0,
            objects: 0,
        },
    )?;
    drop(database);
    File::open(&unfinished)?.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()?;
    Ok(())
}

/// Whether a file is damaged or merely out of reach.
fn open_error(path: &Path, error: redb::Error) -> OpenError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::InUse { path },
        // Reading past the end, or contents that make no sense, are damage; a missing permission is not.
        redb::Error::Io(source)
            if !matches!(
                source.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
            ) =>
        {
            OpenError::Io { path, source }
        }
        other => OpenError::Damaged {
            path,
            what: other.to_string(),
        },
    }
}

/// A sentence for whoever made the write.
fn failure(path: &Path, error: &redb::Error) -> String {
    match error {
        redb::Error::Io(source) if source.kind() == io::ErrorKind::StorageFull => format!(
            "no space left on the device that holds {}: free some space and try again, reads go on meanwhile",
            path.display()
        ),
        redb::Error::Io(source) => format!("writing {} failed: {source}", path.display()),
        other => format!("writing {} failed: {other}", path.display()),
    }
}
