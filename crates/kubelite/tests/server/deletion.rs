//! Deletion: finalizers, grace, owners, namespaces and definitions.

use kubelite::store::{Limits, Store};
use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, MERGE, NAMESPACES, PODS, TestServer, WIDGETS, condition, config_map,
    definition, name, names, pod, sized, uid, version, widget,
};

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
    async fn owner(&self, name: &str) -> Value {
        self.post(CONFIG_MAPS, &config_map(name)).await.created()
    }

    /// A ConfigMap that belongs to others.
    async fn dependent(&self, name: &str, owners: &[Value]) -> Value {
        let mut object = config_map(name);
        object["metadata"]["ownerReferences"] = owners.into();
        self.post(CONFIG_MAPS, &object).await.created()
    }

    async fn held(&self, name: &str) -> Value {
        let mut object = config_map(name);
        object["metadata"]["finalizers"] = json!(["example.com/held"]);
        self.post(CONFIG_MAPS, &object).await.created()
    }

    async fn release(&self, name: &str) {
        let patch = json!({ "metadata": { "finalizers": null } });
        self.patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &patch)
            .await
            .ok();
    }

    async fn remaining(&self, path: &str) -> Vec<String> {
        self.settle().await;
        let list = self.get(path).await.ok();
        names(&list).into_iter().map(ToOwned::to_owned).collect()
    }

    async fn delete_by(&self, path: &str, propagation: &str) -> Value {
        let options =
            json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation });
        self.delete_with(path, &options).await.ok()
    }
}

#[tokio::test(start_paused = true)]
async fn object_that_nothing_holds_is_gone_at_once() {
    let server = TestServer::start().await;
    let made = server.owner("a").await;
    let answer = server.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    assert_eq!(
        answer,
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": { "name": "a", "kind": "configmaps", "uid": uid(&made) },
        })
    );
    server
        .get(&format!("{CONFIG_MAPS}/a"))
        .await
        .fails(404, "NotFound");
    let message = server
        .delete(&format!("{CONFIG_MAPS}/a"))
        .await
        .fails(404, "NotFound");
    assert_eq!(message, "configmaps \"a\" not found");
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_removed() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    let mut object = widget("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    let made = server.post(WIDGETS, &object).await.created();
    let path = format!("{WIDGETS}/a");
    let watch = server
        .watch(&format!(
            "{WIDGETS}?resourceVersion={}&timeoutSeconds=100",
            version(&made)
        ))
        .await;

    let marked = server.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = server.delete(&path).await.ok();
    assert_eq!(again, marked, "asking again changes nothing");
    let changed = server
        .patch(&path, MERGE, &json!({ "spec": { "size": 2 } }))
        .await
        .ok();
    assert_eq!(
        changed["metadata"]["deletionTimestamp"],
        marked["metadata"]["deletionTimestamp"]
    );

    let more =
        json!({ "metadata": { "finalizers": ["example.com/one", "example.com/two", "example.com/three"] } });
    let message = server.patch(&path, MERGE, &more).await.fails(422, "Invalid");
    assert_eq!(
        message,
        "Widget.example.com \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
         object is being deleted, found new finalizers []string{\"example.com/three\"}"
    );
    let one = json!({ "metadata": { "finalizers": ["example.com/two"] } });
    server.patch(&path, MERGE, &one).await.ok();
    let mut last = server.get(&path).await.ok();
    last["metadata"]["finalizers"] = json!([]);
    let gone = server.put(&path, &last).await.ok();
    assert_eq!(gone["metadata"].get("finalizers"), None);
    server.get(&path).await.fails(404, "NotFound");
    assert_eq!(
        watch.summaries().await,
        ["MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"]
    );
}

#[tokio::test(start_paused = true)]
async fn pod_on_a_node_gets_its_grace_and_others_do_not() {
    let server = TestServer::start().await;
    server.post(PODS, &pod("pending")).await.created();
    let gone = server.delete(&format!("{PODS}/pending")).await.ok();
    assert_eq!(gone["kind"], "Pod", "a pod is shown as it was, not as a status");
    server
        .get(&format!("{PODS}/pending"))
        .await
        .fails(404, "NotFound");

    let mut object = pod("running");
    object["spec"]["nodeName"] = "node".into();
    let path = format!("{PODS}/running");
    let made = server.post(PODS, &object).await.created();
    let seconds = |pod: &Value, field: &str| -> i64 {
        pod["metadata"][field]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_second()
    };
    let marked = server.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(
        seconds(&marked, "deletionTimestamp") - seconds(&made, "creationTimestamp"),
        30
    );
    let shorter = server
        .delete_with(&path, &json!({ "gracePeriodSeconds": 5 }))
        .await
        .ok();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert_eq!(
        seconds(&shorter, "deletionTimestamp") - seconds(&made, "creationTimestamp"),
        5
    );
    let longer = server
        .delete_with(&path, &json!({ "gracePeriodSeconds": 60 }))
        .await
        .ok();
    assert_eq!(longer, shorter, "grace is never prolonged");
    server
        .delete_with(&path, &json!({ "gracePeriodSeconds": 0 }))
        .await
        .ok();
    server.get(&path).await.fails(404, "NotFound");
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
async fn namespace_goes_after_everything_in_it() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "doomed" } }))
        .await
        .created();
    let inside = "/api/v1/namespaces/doomed/configmaps";
    server.post(inside, &config_map("free")).await.created();
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.post(inside, &held).await.created();
    server
        .post("/apis/example.com/v1/namespaces/doomed/widgets", &widget("w"))
        .await
        .created();

    let path = format!("{NAMESPACES}/doomed");
    let answer = server.delete(&path).await.ok();
    assert_eq!(
        (&answer["kind"], &answer["status"]["phase"]),
        (&json!("Namespace"), &json!("Terminating"))
    );
    let refused = server.post(inside, &config_map("late")).await;
    assert_eq!(
        refused.body["details"]["causes"],
        json!([{
            "reason": "NamespaceTerminating",
            "message": "namespace doomed is being terminated",
            "field": "metadata.namespace",
        }])
    );
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "configmaps \"late\" is forbidden: unable to create new content in namespace doomed because it is being \
         terminated"
    );
    assert_eq!(server.remaining(inside).await, ["held"]);
    assert_eq!(
        server
            .remaining("/apis/example.com/v1/namespaces/doomed/widgets")
            .await,
        [] as [&str; 0]
    );

    let waiting = server.get(&path).await.ok();
    let says = |type_: &str| {
        let condition = condition(&waiting, type_).unwrap_or_else(|| panic!("no {type_}: {waiting}"));
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    };
    let triple = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(
        says("NamespaceContentRemaining"),
        triple(
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
    );
    assert_eq!(
        says("NamespaceFinalizersRemaining"),
        triple(
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances"
        )
    );
    assert_eq!(
        says("NamespaceDeletionContentFailure"),
        triple(
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization"
        )
    );
    assert_eq!(
        server.delete(&path).await.ok(),
        waiting,
        "asking again changes nothing"
    );

    let free = json!({ "metadata": { "finalizers": null } });
    server.patch(&format!("{inside}/held"), MERGE, &free).await.ok();
    server.settle().await;
    server.get(&path).await.fails(404, "NotFound");
    let message = server
        .post(inside, &config_map("late"))
        .await
        .fails(404, "NotFound");
    assert_eq!(message, "namespaces \"doomed\" not found");
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "doomed" } }))
        .await
        .created();
    assert_eq!(server.remaining(inside).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn definition_goes_after_its_objects_and_is_served_no_more() {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    server.post(WIDGETS, &widget("free")).await.created();
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.post(WIDGETS, &held).await.created();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let marked = server.delete(&path).await.ok();
    assert_eq!(
        marked["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(server.remaining(WIDGETS).await, ["held"]);
    let waiting = server.get(&path).await.ok();
    assert_eq!(
        condition(&waiting, "Terminating").map(|condition| &condition["status"]),
        Some(&json!("True"))
    );
    assert_eq!(
        server
            .post(WIDGETS, &widget("late"))
            .await
            .fails(403, "Forbidden"),
        "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );

    let free = json!({ "metadata": { "finalizers": null } });
    server.patch(&format!("{WIDGETS}/held"), MERGE, &free).await.ok();
    server.settle().await;
    server.get(&path).await.fails(404, "NotFound");
    let gone = server.get(WIDGETS).await;
    assert_eq!((gone.code, gone.text.as_str()), (404, "404 page not found\n"));
    assert!(!server.get("/apis").await.text.contains("example.com"));

    // The same definition again begins with nothing.
    server.define(definition(&sized())).await;
    assert_eq!(server.remaining(WIDGETS).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn preconditions_name_the_object_that_is_meant() {
    let server = TestServer::start().await;
    let made = server.owner("a").await;
    let path = format!("{CONFIG_MAPS}/a");
    let other = json!({ "preconditions": { "uid": "somebody" } });
    assert_eq!(
        server.delete_with(&path, &other).await.fails(409, "Conflict"),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (somebody) does not match the \
             UID in record ({}). The object might have been deleted and then recreated",
            uid(&made)
        )
    );
    let older = json!({ "preconditions": { "resourceVersion": "1" } });
    assert_eq!(
        server.delete_with(&path, &older).await.fails(409, "Conflict"),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match \
             the ResourceVersion in record ({}). The object might have been modified",
            version(&made)
        )
    );
    let right =
        json!({ "preconditions": { "uid": uid(&made), "resourceVersion": version(&made).to_string() } });
    server.delete_with(&path, &right).await.ok();
}

#[tokio::test(start_paused = true)]
async fn impossible_delete_options_are_refused_as_kubernetes_refuses_them() {
    let server = TestServer::start().await;
    server.owner("a").await;
    let cases = [
        (
            json!({ "propagationPolicy": "x" }),
            "propagationPolicy: Unsupported value: \"x\": supported values: \"Foreground\", \"Background\", \"Orphan\", \
             \"nil\"",
        ),
        (
            json!({ "propagationPolicy": "Orphan", "orphanDependents": true }),
            "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        ),
    ];
    for (options, message) in cases {
        let answer = server
            .delete_with(&format!("{CONFIG_MAPS}/a"), &options)
            .await
            .fails(422, "Invalid");
        assert_eq!(
            answer,
            format!("DeleteOptions.meta.k8s.io \"\" is invalid: {message}")
        );
    }
    server.get(&format!("{CONFIG_MAPS}/a")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn collection_is_deleted_as_far_as_it_is_selected() {
    let server = TestServer::start().await;
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({ "colour": colour });
        server.post(CONFIG_MAPS, &object).await.created();
    }
    let before = server.version().await;
    let list = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=colour%3Dred&dryRun=All"))
        .await
        .ok();
    assert_eq!(
        (names(&list), &list["kind"]),
        (vec!["a", "c"], &json!("ConfigMapList"))
    );
    assert_eq!(server.version().await, before, "a dry run leaves no trace");
    let list = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=colour%3Dred"))
        .await
        .ok();
    assert_eq!(names(&list), ["a", "c"]);
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["b"]);

    server.held("d").await;
    server.delete(CONFIG_MAPS).await.ok();
    assert_eq!(server.remaining(CONFIG_MAPS).await, ["d"]);
    server.release("d").await;
    assert_eq!(server.remaining(CONFIG_MAPS).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_a_deletion_shows_what_would_happen() {
    let server = TestServer::start().await;
    let free = server.owner("free").await;
    server.held("held").await;
    let before = server.version().await;
    let answer = server
        .delete(&format!("{CONFIG_MAPS}/free?dryRun=All"))
        .await
        .ok();
    assert_eq!(
        (&answer["status"], &answer["details"]["uid"]),
        (&json!("Success"), &free["metadata"]["uid"])
    );
    let answer = server
        .delete_with(&format!("{CONFIG_MAPS}/held"), &json!({ "dryRun": ["All"] }))
        .await
        .ok();
    assert!(answer["metadata"]["deletionTimestamp"].is_string());
    let answer = server
        .delete(&format!("{NAMESPACES}/kube-public?dryRun=All"))
        .await
        .ok();
    assert_eq!(answer["status"]["phase"], "Terminating");
    server.settle().await;
    assert_eq!(server.version().await, before);
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
