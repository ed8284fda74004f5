//! Owners: what becomes of objects when what they belong to goes.

use kubelite::store::{Limits, Store};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, NAMESPACES, PODS, TestServer, config_map, name, pod, uid};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// A reference to an owner, from an object of the same namespace.
fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name(owner),
        "uid": uid(owner),
        "blockOwnerDeletion": blocks,
    })
}

impl TestServer {
    /// A ConfigMap that belongs to others.
    async fn dependent(&self, name: &str, owners: &[Value]) -> Value {
        let mut object = config_map(name);
        object["metadata"]["ownerReferences"] = owners.into();
        self.post(CONFIG_MAPS, &object).await.created()
    }

    async fn delete_by(&self, path: &str, propagation: &str) -> Value {
        let options =
            json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation });
        self.delete_with(path, &options).await.ok()
    }
}

#[tokio::test(start_paused = true)]
async fn background_deletion_takes_dependents_along_to_any_depth() {
    let server = TestServer::start().await;
    let owner = server.owner("owner").await;
    let child = server.dependent("child", &[owned_by(&owner, true)]).await;
    server.dependent("grandchild", &[owned_by(&child, false)]).await;
    server.owner("stranger").await;
    server.delete(&format!("{CONFIG_MAPS}/owner")).await.ok();
    server
        .get(&format!("{CONFIG_MAPS}/owner"))
        .await
        .fails(404, "NotFound");
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["stranger"]);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_waits_for_the_dependents_that_block() {
    let server = TestServer::start().await;
    let owner = server.owner("owner").await;
    let mut blocking = config_map("blocking");
    blocking["metadata"]["ownerReferences"] = json!([owned_by(&owner, true)]);
    blocking["metadata"]["finalizers"] = json!(["example.com/held"]);
    let blocking = server.post(CONFIG_MAPS, &blocking).await.created();
    server.dependent("quick", &[owned_by(&owner, true)]).await;
    server.dependent("below", &[owned_by(&blocking, true)]).await;
    let marked = server
        .delete_by(&format!("{CONFIG_MAPS}/owner"), "Foreground")
        .await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["blocking", "owner"]);
    let waiting = server.get(&format!("{CONFIG_MAPS}/blocking")).await.ok();
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    server.release("blocking").await;
    assert_eq!(server.remaining(CONFIG_MAPS).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_does_not_wait_for_dependents_that_do_not_block() {
    let server = TestServer::start().await;
    let owner = server.owner("owner").await;
    let mut held = config_map("held");
    held["metadata"]["ownerReferences"] = json!([owned_by(&owner, false)]);
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.post(CONFIG_MAPS, &held).await.created();
    server
        .delete_by(&format!("{CONFIG_MAPS}/owner"), "Foreground")
        .await;
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["held"]);
    let held = server.get(&format!("{CONFIG_MAPS}/held")).await.ok();
    assert!(
        held["metadata"]["deletionTimestamp"].is_string(),
        "it goes too, but nobody waits for it"
    );
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let server = TestServer::start().await;
    let owner = server.owner("owner").await;
    server.dependent("child", &[owned_by(&owner, true)]).await;
    let marked = server.delete_by(&format!("{CONFIG_MAPS}/owner"), "Orphan").await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["child"]);
    let child = server.get(&format!("{CONFIG_MAPS}/child")).await.ok();
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test(start_paused = true)]
async fn reference_that_leads_nowhere_is_no_reason_to_stay() {
    let server = TestServer::start().await;
    let owner = server.owner("owner").await;
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "other" } }))
        .await
        .created();
    let reference = |change: Value| {
        let mut reference = owned_by(&owner, false);
        reference
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        reference
    };
    let cases = [
        ("right", reference(json!({})), true),
        (
            "absent",
            reference(json!({ "uid": "4c8e2d9a-0000-4000-8000-000000000000" })),
            false,
        ),
        ("other-name", reference(json!({ "name": "somebody" })), false),
        ("other-kind", reference(json!({ "kind": "Secret" })), false),
        // Nobody can tell whether an owner of an unknown kind is there, so its dependents are left alone.
        (
            "unknown-kind",
            reference(json!({ "apiVersion": "apps/v1", "kind": "Deployment" })),
            true,
        ),
    ];
    for (name, reference, stays) in cases {
        server.dependent(name, &[reference]).await;
        assert_eq!(
            server.remaining(CONFIG_MAPS).await.contains(&name.to_owned()),
            stays,
            "{name}"
        );
    }
    // An owner in another namespace is none.
    let mut foreign = config_map("foreign");
    foreign["metadata"]["ownerReferences"] = json!([owned_by(&owner, false)]);
    server
        .post("/api/v1/namespaces/other/configmaps", &foreign)
        .await
        .created();
    assert_eq!(
        server.remaining("/api/v1/namespaces/other/configmaps").await,
        [] as [&str; 0]
    );
}

#[tokio::test(start_paused = true)]
async fn one_of_two_owners_is_enough_to_stay() {
    let server = TestServer::start().await;
    let (one, two) = (server.owner("one").await, server.owner("two").await);
    server
        .dependent("child", &[owned_by(&one, true), owned_by(&two, true)])
        .await;
    server.delete(&format!("{CONFIG_MAPS}/one")).await.ok();
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["child", "two"]);
    let child = server.get(&format!("{CONFIG_MAPS}/child")).await.ok();
    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([owned_by(&two, true)])
    );

    // An owner that waits for its dependents does not wait for one that another keeps.
    let three = server.owner("three").await;
    server
        .dependent("shared", &[owned_by(&two, true), owned_by(&three, true)])
        .await;
    server
        .delete_by(&format!("{CONFIG_MAPS}/three"), "Foreground")
        .await;
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["child", "shared", "two"]);
    server
        .delete_by(&format!("{CONFIG_MAPS}/two"), "Background")
        .await;
    assert_eq!(server.remaining(CONFIG_MAPS).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn job_leaves_its_pods_unless_told_otherwise() {
    let server = TestServer::start().await;
    for (propagation, left) in [
        (None, true),
        (Some("Background"), false),
        (Some("Foreground"), false),
    ] {
        let job = json!({
            "metadata": { "name": "job" },
            "spec": { "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "example.com/image:1" }],
            } } },
        });
        let job = server.post(JOBS, &job).await.created();
        let mut object = pod("worker");
        object["metadata"]["ownerReferences"] = json!([owned_by(&job, true)]);
        server.post(PODS, &object).await.created();
        let path = format!("{JOBS}/job");
        match propagation {
            None => server.delete(&path).await.ok(),
            Some(propagation) => server.delete_by(&path, propagation).await,
        };
        assert_eq!(server.remaining(JOBS).await, [] as [&str; 0], "{propagation:?}");
        assert_eq!(!server.remaining(PODS).await.is_empty(), left, "{propagation:?}");
        server.delete(&format!("{PODS}/worker")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_lost_track_of_changes_looks_at_everything_once() {
    // The garbage collector can follow two changes at a time; a hundred at once are too many for it.
    let limits = Limits {
        follow_events: 2,
        ..Limits::default()
    };
    let server = TestServer::on(Store::in_memory(limits)).await;
    let owner = server.owner("owner").await;
    for number in 0..100 {
        server
            .dependent(&format!("child-{number}"), &[owned_by(&owner, false)])
            .await;
    }
    server.delete(&format!("{CONFIG_MAPS}/owner")).await.ok();
    assert_eq!(server.remaining(CONFIG_MAPS).await, [] as [&str; 0]);
    // And it keeps following after that.
    let owner = server.owner("owner").await;
    server.dependent("child", &[owned_by(&owner, false)]).await;
    server.delete(&format!("{CONFIG_MAPS}/owner")).await.ok();
    assert_eq!(server.remaining(CONFIG_MAPS).await, [] as [&str; 0]);
}
