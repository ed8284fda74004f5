//! Single writes and reads, on the store that keeps nothing.

use serde_json::json;

use super::{
    super::{CommitError, Expect, Key, Limits, SnapshotError, Store},
    body, create, delete, gadgets, key, put, size_of, update, widgets,
};

#[tokio::test]
async fn revision_is_global_and_written_into_the_object() {
    let store = Store::in_memory(Limits::default());
    assert_eq!(store.revision(), 0);
    let first = create(&store, "a", 1).await.unwrap();
    let second = store
        .commit(put(&gadgets(), "a", Expect::Absent, body("a", 2)))
        .await
        .unwrap();
    assert_eq!((first.revision, second.revision, store.revision()), (1, 2, 2));
    assert_eq!(second.value()["metadata"]["resourceVersion"], "2");
    assert_eq!(store.get(&widgets(), &key("a")).unwrap().json, first.json);
    assert_eq!(store.collections(), [gadgets(), widgets()]);
}

#[tokio::test]
async fn write_that_expects_another_state_is_refused_and_changes_nothing() {
    let store = Store::in_memory(Limits::default());
    let first = create(&store, "a", 1).await.unwrap();
    let second = update(&store, "a", first.revision, 2).await.unwrap();
    let absent = put(&widgets(), "b", Expect::Revision(1), body("b", 1));
    let delete_of_absent = delete(&widgets(), "b", 1);
    assert_eq!(create(&store, "a", 3).await.unwrap_err(), CommitError::Exists);
    assert_eq!(
        update(&store, "a", first.revision, 3).await.unwrap_err(),
        CommitError::Conflict { current: 2 }
    );
    assert_eq!(
        store
            .commit(delete(&widgets(), "a", first.revision))
            .await
            .unwrap_err(),
        CommitError::Conflict { current: 2 }
    );
    assert_eq!(store.commit(absent).await.unwrap_err(), CommitError::NotFound);
    assert_eq!(
        store.commit(delete_of_absent).await.unwrap_err(),
        CommitError::NotFound
    );
    assert_eq!(store.revision(), second.revision);
    assert_eq!(size_of(&store.get(&widgets(), &key("a")).unwrap()), 2);
}

#[tokio::test]
async fn deletion_has_its_own_revision() {
    let store = Store::in_memory(Limits::default());
    let created = create(&store, "a", 1).await.unwrap();
    let deleted = store
        .commit(delete(&widgets(), "a", created.revision))
        .await
        .unwrap();
    assert_eq!(
        (
            deleted.revision,
            deleted.value()["metadata"]["resourceVersion"].as_str()
        ),
        (2, Some("2"))
    );
    assert!(store.get(&widgets(), &key("a")).is_none());
    assert!(store.collections().is_empty());
}

#[tokio::test]
async fn older_snapshot_shows_what_was_then() {
    let store = Store::in_memory(Limits::default());
    let a = create(&store, "a", 1).await.unwrap();
    let b = create(&store, "b", 1).await.unwrap();
    let held = store.snapshot(&widgets(), None).unwrap();
    let a2 = update(&store, "a", a.revision, 2).await.unwrap();
    store.commit(delete(&widgets(), "b", b.revision)).await.unwrap();
    create(&store, "b", 3).await.unwrap();
    update(&store, "a", a2.revision, 3).await.unwrap();

    let seen = |at: u64| -> Vec<(String, i64)> {
        let snapshot = store.snapshot(&widgets(), Some(at)).unwrap();
        assert_eq!(snapshot.revision, at);
        snapshot
            .iter(None, None)
            .map(|(key, object)| (key.name.to_string(), size_of(object)))
            .collect()
    };
    let named = |pairs: &[(&str, i64)]| -> Vec<(String, i64)> {
        pairs
            .iter()
            .map(|(name, size)| ((*name).to_owned(), *size))
            .collect()
    };
    assert_eq!(seen(0), named(&[]));
    assert_eq!(seen(1), named(&[("a", 1)]));
    assert_eq!(seen(2), named(&[("a", 1), ("b", 1)]));
    assert_eq!(seen(3), named(&[("a", 2), ("b", 1)]));
    assert_eq!(seen(4), named(&[("a", 2)]));
    assert_eq!(seen(5), named(&[("a", 2), ("b", 3)]));
    assert_eq!(seen(6), named(&[("a", 3), ("b", 3)]));
    assert_eq!(
        store.snapshot(&widgets(), Some(7)).unwrap_err(),
        SnapshotError::Future { current: 6 }
    );
    assert_eq!(
        (held.revision, held.len(), size_of(held.get(&key("a")).unwrap())),
        (2, 2, 1)
    );
}

#[tokio::test]
async fn pages_of_a_snapshot_follow_one_another() {
    let store = Store::in_memory(Limits::default());
    for (namespace, name) in [("b", "x"), ("a", "y"), ("a", "x"), ("a-b", "x"), ("", "z")] {
        let mut write = put(&widgets(), name, Expect::Absent, body(name, 1));
        write.key = Key::new(namespace, name);
        store.commit(write).await.unwrap();
    }
    let snapshot = store.snapshot(&widgets(), None).unwrap();
    let list = |namespace: Option<&str>, after: Option<Key>| -> Vec<String> {
        snapshot
            .iter(namespace, after.as_ref())
            .map(|(key, _)| format!("{}/{}", key.namespace, key.name))
            .collect()
    };
    assert_eq!(list(None, None), ["/z", "a/x", "a/y", "a-b/x", "b/x"]);
    assert_eq!(list(None, Some(Key::new("a", "x"))), ["a/y", "a-b/x", "b/x"]);
    assert_eq!(list(Some("a"), None), ["a/x", "a/y"]);
    assert_eq!(list(Some("a"), Some(Key::new("a", "x"))), ["a/y"]);
    assert_eq!(list(Some("a"), Some(Key::new("", "z"))), ["a/x", "a/y"]);
    assert_eq!(list(Some("a"), Some(Key::new("b", "x"))), [""; 0]);
    assert_eq!(list(Some("c"), None), [""; 0]);
    assert!(store.snapshot(&gadgets(), None).unwrap().is_empty());
}

#[tokio::test]
async fn dependents_follow_the_owner_references() {
    let store = Store::in_memory(Limits::default());
    let owned = |name: &str, owners: &[&str]| {
        let mut value = body(name, 1);
        let owners: Vec<_> = owners
            .iter()
            .map(|uid| json!({"uid": uid, "kind": "Box", "name": "x"}))
            .collect();
        value["metadata"]["ownerReferences"] = json!(owners);
        value
    };
    let names = |uid: &str| -> Vec<String> {
        store
            .dependents(uid)
            .into_iter()
            .map(|(_, key, _)| key.name.to_string())
            .collect()
    };
    let a = store
        .commit(put(&widgets(), "a", Expect::Absent, owned("a", &["o1", "o2"])))
        .await
        .unwrap();
    let b = store
        .commit(put(&gadgets(), "b", Expect::Absent, owned("b", &["o2"])))
        .await
        .unwrap();
    assert_eq!(
        (names("o1"), names("o2"), names("o3")),
        (vec!["a".into()], vec!["b".into(), "a".into()], vec![])
    );
    let a = store
        .commit(put(
            &widgets(),
            "a",
            Expect::Revision(a.revision),
            owned("a", &["o2", "o3"]),
        ))
        .await
        .unwrap();
    assert_eq!(
        (names("o1").len(), names("o2").len(), names("o3").len()),
        (0, 2, 1)
    );
    assert_eq!(store.find_uid("uid-b").unwrap().2.json, b.json);
    store.commit(delete(&widgets(), "a", a.revision)).await.unwrap();
    assert_eq!((names("o2"), names("o3").len()), (vec!["b".to_owned()], 0));
    assert!(store.find_uid("uid-a").is_none());
}

#[tokio::test]
async fn recreated_object_is_found_by_its_new_uid_only() {
    let store = Store::in_memory(Limits::default());
    let first = create(&store, "a", 1).await.unwrap();
    store
        .commit(delete(&widgets(), "a", first.revision))
        .await
        .unwrap();
    let mut value = body("a", 2);
    value["metadata"]["uid"] = json!("uid-2");
    store
        .commit(put(&widgets(), "a", Expect::Absent, value))
        .await
        .unwrap();
    assert!(store.find_uid("uid-a").is_none());
    assert_eq!(store.find_uid("uid-2").unwrap().1, key("a"));
}

#[tokio::test]
async fn closed_store_refuses_writes_and_serves_reads() {
    let store = Store::in_memory(Limits::default());
    create(&store, "a", 1).await.unwrap();
    store.close();
    store.close();
    assert_eq!(create(&store, "b", 1).await.unwrap_err(), CommitError::Closed);
    assert!(store.get(&widgets(), &key("a")).is_some());
}

#[tokio::test]
async fn stats_count_what_is_there() {
    let store = Store::in_memory(Limits::default());
    let a = create(&store, "a", 1).await.unwrap();
    let b = create(&store, "b", 1).await.unwrap();
    let a = update(&store, "a", a.revision, 1_000_000).await.unwrap();
    let stats = store.stats();
    assert_eq!(
        (
            stats.objects,
            stats.writes,
            stats.transactions,
            stats.history_events
        ),
        (2, 3, 3, 3)
    );
    assert_eq!(stats.bytes, (a.json.len() + b.json.len()) as u64);
    store.commit(delete(&widgets(), "a", a.revision)).await.unwrap();
    store.commit(delete(&widgets(), "b", b.revision)).await.unwrap();
    assert_eq!((store.stats().objects, store.stats().bytes), (0, 0));
}
