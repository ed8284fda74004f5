//! The rules of the history on SQLite, and what only SQLite has.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test that cannot go on has failed the test"
)]

mod rules;

use std::{fs, sync::Arc};

use jangar_store::Store;
use rules::Place;
use tempfile::TempDir;

async fn fresh() -> Place {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let kept = Arc::clone(&directory);
    Place {
        url: url(&directory),
        dump: Box::new(move || dump(&kept)),
        _keep: Box::new(directory),
    }
}

fn url(directory: &TempDir) -> String {
    format!("sqlite://{}/history.db", directory.path().display())
}

/// All files of the database: what was deleted may be in them as well.
fn dump(directory: &TempDir) -> Vec<u8> {
    let files = fs::read_dir(directory.path()).unwrap();
    files
        .flat_map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect()
}

rules::play_all! { fresh }

#[tokio::test]
async fn a_file_that_is_no_database_is_told_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let text = "these are words, and far more than the header of a database ".repeat(20);
    fs::write(&file, &text).unwrap();
    let error = Store::connect(rules::config(&url(&directory), &[]))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not a database"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_told_and_the_store_comes_up_when_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("later");
    let url = format!("sqlite://{}/history.db", missing.display());
    let store = Store::open(rules::config(&url, &[]));
    let error = store.ready().await.unwrap_err();
    assert!(
        error.is_down() && error.to_string().contains("unable to open"),
        "{error}"
    );
    fs::create_dir(&missing).unwrap();
    assert_eq!(store.ready().await.unwrap().schema, 4);
}
