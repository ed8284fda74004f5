//! A damaged file either still gives exactly the right objects or is refused. Never wrong objects, never a panic.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use tempfile::{TempDir, tempdir};

use super::{
    super::{Expect, Key, Limits, OpenError, Store},
    body, create, delete, put, update, widgets,
};

type Contents = BTreeMap<Key, Bytes>;

/// The super-header of a redb file: its flags and the two commit slots.
const HEADER_BYTES: usize = 320;
/// The byte whose lowest bit says which of the two commit slots counts.
const SLOT_CHOICE: usize = 9;

fn contents(store: &Store) -> Contents {
    let snapshot = store.snapshot(&widgets(), None).unwrap();
    snapshot
        .iter(None, None)
        .map(|(key, object)| (key.clone(), object.json.clone()))
        .collect()
}

struct Fixture {
    directory: TempDir,
    /// The file after an orderly close.
    closed: Vec<u8>,
    /// The file as a crash would leave it.
    crashed: Vec<u8>,
    expected: Contents,
    /// The objects before the last transaction.
    before_last: Contents,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempdir().unwrap();
        let path = directory.path().join("origin");
        let store = Store::open(&path, Limits::default()).unwrap();
        for index in 0..40_i64 {
            let mut value = body(&format!("w{index}"), index);
            // From far less than a page to several pages.
            value["data"] = "0123456789abcdef"
                .repeat(usize::try_from(index * index).unwrap())
                .into();
            store
                .commit(put(&widgets(), &format!("w{index}"), Expect::Absent, value))
                .await
                .unwrap();
        }
        for index in 1..10_u64 {
            let name = format!("w{index}");
            let updated = update(&store, &name, index + 1, 100).await.unwrap();
            if index % 2 == 0 {
                store
                    .commit(delete(&widgets(), &name, updated.revision))
                    .await
                    .unwrap();
            }
        }
        let before_last = contents(&store);
        create(&store, "last", 1).await.unwrap();
        let expected = contents(&store);
        let crashed = std::fs::read(&path).unwrap();
        store.close();
        let closed = std::fs::read(&path).unwrap();
        Self {
            directory,
            closed,
            crashed,
            expected,
            before_last,
        }
    }

    fn open(&self, bytes: &[u8]) -> Result<Store, OpenError> {
        let path: PathBuf = self.directory.path().join("damaged");
        std::fs::write(&path, bytes).unwrap();
        Store::open(&path, Limits::default())
    }

    /// Whether the file was refused. Anything but a refusal or the right objects fails the test.
    fn refused(&self, bytes: &[u8], what: &str) -> bool {
        match self.open(bytes) {
            Ok(store) => {
                assert!(contents(&store) == self.expected, "{what}: wrong objects");
                false
            }
            Err(error @ OpenError::Damaged { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains("damaged is damaged") && text.contains("Restore the file"),
                    "{text}"
                );
                true
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

/// Positions all over a file: every byte of the header, and two in every page, one of them where redb keeps the page's
/// own structure. The pages beyond what is in use are left out: they are many and hold nothing.
fn positions(file: &[u8]) -> impl Iterator<Item = usize> {
    let used = file
        .chunks(4096)
        .enumerate()
        .skip(1)
        .filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    let pages =
        used.flat_map(|(page, _)| [page * 37 % 64, 64 + page * 911 % 4000].map(|at| page * 4096 + at));
    (0..HEADER_BYTES).chain(pages)
}

#[tokio::test]
async fn flipped_bytes_of_a_closed_file_are_found_or_harmless() {
    let fixture = Fixture::new().await;
    let mut refused = 0;
    for (turn, at) in positions(&fixture.closed).enumerate() {
        let mut bytes = fixture.closed.clone();
        bytes[at] ^= 1 << (turn % 8);
        refused += u32::from(fixture.refused(&bytes, &format!("byte {at} of the closed file")));
    }
    assert!(refused > 100, "only {refused} damages were found");
}

#[tokio::test]
async fn flipped_bytes_of_a_crashed_file_are_found_or_harmless() {
    let fixture = Fixture::new().await;
    assert!(!fixture.refused(&fixture.crashed, "the crashed file itself"));
    let mut refused = 0;
    for (turn, at) in positions(&fixture.crashed)
        .enumerate()
        .filter(|(_, at)| *at != SLOT_CHOICE)
    {
        let mut bytes = fixture.crashed.clone();
        bytes[at] ^= 1 << (turn % 8);
        refused += u32::from(fixture.refused(&bytes, &format!("byte {at} of the crashed file")));
    }
    assert!(refused > 100, "only {refused} damages were found");
}

/// The one bit that nothing can vouch for: in a file that was not closed it chooses between the last transaction and the
/// one before, and a crash in the middle of a commit leaves it the same way. It must never give anything else.
#[tokio::test]
async fn slot_choice_of_a_crashed_file_gives_one_transaction_or_the_other() {
    let fixture = Fixture::new().await;
    for bit in 0..8 {
        let mut bytes = fixture.crashed.clone();
        bytes[SLOT_CHOICE] ^= 1 << bit;
        match fixture.open(&bytes) {
            Ok(store) => {
                let found = contents(&store);
                assert!(
                    found == fixture.expected || found == fixture.before_last,
                    "bit {bit}"
                );
            }
            Err(error) => assert!(matches!(error, OpenError::Damaged { .. }), "bit {bit}: {error}"),
        }
        let mut bytes = fixture.closed.clone();
        bytes[SLOT_CHOICE] ^= 1 << bit;
        fixture.refused(&bytes, &format!("bit {bit} of the closed file's choice"));
    }
}

#[tokio::test]
async fn cut_or_overwritten_files_are_refused() {
    let fixture = Fixture::new().await;
    for file in [&fixture.closed, &fixture.crashed] {
        let len = file.len();
        for cut in [
            0,
            1,
            9,
            100,
            HEADER_BYTES,
            4095,
            4096,
            8192,
            len / 4,
            len / 2,
            len - 4096,
            len - 1,
        ] {
            assert!(
                fixture.refused(&file[..cut], &format!("cut to {cut} of {len}")),
                "cut to {cut} of {len}"
            );
        }
        for start in (4096..len).step_by(len / 20) {
            let mut bytes = file.clone();
            let end = (start + 5000).min(len);
            bytes[start..end].fill(0);
            fixture.refused(&bytes, &format!("zeroes from {start}"));
        }
    }
    assert!(fixture.refused(b"this is not a database", "a text file"));
    assert!(fixture.refused(&[0; 10_000], "zeroes"));
}

#[test]
fn damage_names_the_file() {
    let error = OpenError::Damaged {
        path: Path::new("some/file").to_owned(),
        what: "it is cut off".to_owned(),
    };
    assert!(
        error
            .to_string()
            .starts_with("some/file is damaged: it is cut off."),
        "{error}"
    );
}
