//! Deletion: finalizers, grace, owners, namespaces and definitions.

use serde_json::{Value, json};

use crate::support::{
    CONFIG_MAPS, DEFINITIONS, MERGE, NAMESPACES, PODS, TestServer, WIDGETS, condition, config_map,
    definition, names, pod, sized, uid, version, widget,
};

impl TestServer {
    pub(crate) async fn owner(&self, name: &str) -> Value {
        self.post(CONFIG_MAPS, &config_map(name)).await.created()
    }

    async fn held(&self, name: &str) -> Value {
        let mut object = config_map(name);
        object["metadata"]["finalizers"] = json!(["example.com/held"]);
        self.post(CONFIG_MAPS, &object).await.created()
    }

    pub(crate) async fn release(&self, name: &str) {
        let patch = json!({ "metadata": { "finalizers": null } });
        self.patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, &patch)
            .await
            .ok();
    }

    pub(crate) async fn remaining(&self, path: &str) -> Vec<String> {
        self.settle().await;
        let list = self.get(path).await.ok();
        names(&list).into_iter().map(ToOwned::to_owned).collect()
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

const DOOMED: &str = "/api/v1/namespaces/doomed";
const INSIDE: &str = "/api/v1/namespaces/doomed/configmaps";

/// A server with a namespace that is being deleted and holds on to one of its objects.
async fn with_doomed_namespace() -> TestServer {
    let server = TestServer::start().await;
    server.define(definition(&sized())).await;
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "doomed" } }))
        .await
        .created();
    server.post(INSIDE, &config_map("free")).await.created();
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    server.post(INSIDE, &held).await.created();
    let widgets = "/apis/example.com/v1/namespaces/doomed/widgets";
    server.post(widgets, &widget("w")).await.created();
    let answer = server.delete(DOOMED).await.ok();
    assert_eq!(
        (&answer["kind"], &answer["status"]["phase"]),
        (&json!("Namespace"), &json!("Terminating"))
    );
    assert_eq!(server.remaining(INSIDE).await, ["held"]);
    assert_eq!(server.remaining(widgets).await, [] as [&str; 0]);
    server
}

#[tokio::test(start_paused = true)]
async fn namespace_goes_after_everything_in_it() {
    let server = with_doomed_namespace().await;
    let refused = server.post(INSIDE, &config_map("late")).await;
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
    let free = json!({ "metadata": { "finalizers": null } });
    server.patch(&format!("{INSIDE}/held"), MERGE, &free).await.ok();
    server.settle().await;
    server.get(DOOMED).await.fails(404, "NotFound");
    let message = server
        .post(INSIDE, &config_map("late"))
        .await
        .fails(404, "NotFound");
    assert_eq!(message, "namespaces \"doomed\" not found");
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "doomed" } }))
        .await
        .created();
    assert_eq!(server.remaining(INSIDE).await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn namespace_says_what_it_waits_for() {
    let server = with_doomed_namespace().await;
    let waiting = server.get(DOOMED).await.ok();
    let cases = [
        (
            "NamespaceDeletionDiscoveryFailure",
            (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
        ),
        (
            "NamespaceDeletionContentFailure",
            (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 1 resource instances",
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            (
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances",
            ),
        ),
    ];
    for (type_, expected) in cases {
        let condition = condition(&waiting, type_).unwrap_or_else(|| panic!("no {type_}: {waiting}"));
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        assert_eq!(
            (text("status"), text("reason"), text("message")),
            expected,
            "{type_}"
        );
    }
    assert_eq!(
        server.delete(DOOMED).await.ok(),
        waiting,
        "asking again changes nothing"
    );
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
        .delete(&format!("{NAMESPACES}/kube-node-lease?dryRun=All"))
        .await
        .ok();
    assert_eq!(answer["status"]["phase"], "Terminating");
    server.settle().await;
    assert_eq!(server.version().await, before);
}
