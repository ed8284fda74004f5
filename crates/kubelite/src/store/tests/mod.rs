//! Tests of the store as a whole.

mod basics;
mod damage;
mod disk;
mod following;
mod full_disk;
mod model;

use serde_json::{Value, json};

use super::{Change, Collection, CommitError, Expect, Key, Object, Store, Write};

fn widgets() -> Collection {
    Collection::new("example.com", "widgets")
}

fn gadgets() -> Collection {
    Collection::new("example.com", "gadgets")
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

fn body(name: &str, size: i64) -> Value {
    json!({"kind": "Widget", "metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {"size": size}})
}

fn put(collection: &Collection, name: &str, expect: Expect, value: Value) -> Write {
    Write {
        collection: collection.clone(),
        key: key(name),
        expect,
        change: Change::Put(value),
    }
}

fn delete(collection: &Collection, name: &str, revision: u64) -> Write {
    let (expect, change) = (Expect::Revision(revision), Change::Delete(body(name, -1)));
    Write {
        collection: collection.clone(),
        key: key(name),
        expect,
        change,
    }
}

async fn create(store: &Store, name: &str, size: i64) -> Result<Object, CommitError> {
    store
        .commit(put(&widgets(), name, Expect::Absent, body(name, size)))
        .await
}

async fn update(store: &Store, name: &str, revision: u64, size: i64) -> Result<Object, CommitError> {
    store
        .commit(put(
            &widgets(),
            name,
            Expect::Revision(revision),
            body(name, size),
        ))
        .await
}

fn size_of(object: &Object) -> i64 {
    object.value()["spec"]["size"].as_i64().unwrap()
}
