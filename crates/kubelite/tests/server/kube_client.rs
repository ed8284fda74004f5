//! What the client of kube-rs does beyond the plain verbs.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, ResourceExt,
    api::{
        DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent,
        WatchParams,
    },
    core::{GroupVersionKind, PartialObjectMeta, PartialObjectMetaExt},
    discovery::{Discovery, Scope, verbs},
    runtime::{WatchStreamExt, wait::delete::delete_and_finalize, watcher},
};
use serde_json::json;

use crate::{
    kube_runtime::{Gadget, config_map, config_maps, gadget, gadgets, soon, with_gadgets},
    support::TestServer,
};

#[tokio::test(start_paused = true)]
async fn entry_creates_what_is_absent_and_changes_what_is_there() {
    let server = TestServer::start().await;
    let api = config_maps(&server.client());
    let count = async || {
        let mut entry = api
            .entry("counter")
            .await
            .unwrap()
            .or_insert(|| config_map("counter"));
        let data = entry.get_mut().data.get_or_insert_default();
        let next = data.get("count").map_or(0, |count| count.parse::<u32>().unwrap()) + 1;
        data.insert("count".to_owned(), next.to_string());
        entry.commit(&PostParams::default()).await.unwrap();
        next
    };
    assert_eq!((count().await, count().await, count().await), (1, 2, 3));
    assert_eq!(api.get("counter").await.unwrap().data.unwrap()["count"], "3");
}

#[tokio::test(start_paused = true)]
async fn apply_owns_conflicts_and_forces_on_main_and_status() {
    let (_server, client) = with_gadgets().await;
    let api = gadgets(&client);
    let spec =
        |size: i64| json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "spec": { "size": size } });
    let status =
        |size: i64| json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "status": { "size": size } });
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let created = api.patch("a", &one, &Patch::Apply(spec(1))).await.unwrap();
    let shown = api
        .patch_status("a", &one, &Patch::Apply(status(5)))
        .await
        .unwrap();
    assert_eq!(
        (
            shown.spec.size,
            shown.status.unwrap().size,
            shown.metadata.generation
        ),
        (1, 5, Some(1))
    );
    assert_ne!(created.metadata.resource_version, shown.metadata.resource_version);

    for error in [
        api.patch("a", &two, &Patch::Apply(spec(2))).await.unwrap_err(),
        api.patch_status("a", &two, &Patch::Apply(status(6)))
            .await
            .unwrap_err(),
    ] {
        let kube::Error::Api(refused) = error else {
            panic!("{error}")
        };
        assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
        assert!(
            refused.message.contains("conflict with \"one\""),
            "{}",
            refused.message
        );
    }
    let taken = api
        .patch("a", &two.clone().force(), &Patch::Apply(spec(2)))
        .await
        .unwrap();
    let taken_status = api
        .patch_status("a", &two.force(), &Patch::Apply(status(6)))
        .await
        .unwrap();
    assert_eq!((taken.spec.size, taken_status.status.unwrap().size), (2, 6));
    let managers: Vec<String> = taken
        .managed_fields()
        .iter()
        .map(|entry| entry.manager.clone().unwrap_or_default())
        .collect();
    assert_eq!(managers, ["one", "two"], "one still owns the status");
}

#[tokio::test(start_paused = true)]
async fn delete_tells_of_objects_that_are_gone_and_of_objects_that_wait() {
    let (server, client) = with_gadgets().await;
    let api = gadgets(&client);
    let made = api.create(&PostParams::default(), &gadget("a", 1)).await.unwrap();
    let gone = api
        .delete("a", &DeleteParams::default())
        .await
        .unwrap()
        .right()
        .expect("a status");
    assert_eq!(gone.details.unwrap().uid, made.uid().unwrap());

    let mut held = gadget("b", 1);
    held.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    let waiting = tokio::spawn(delete_and_finalize_owned(api.clone(), "b"));
    server.settle().await;
    assert!(!waiting.is_finished());
    let free = json!({ "metadata": { "finalizers": null } });
    api.patch("b", &PatchParams::default(), &Patch::Merge(&free))
        .await
        .unwrap();
    soon(waiting).await.unwrap();

    api.create(&PostParams::default(), &gadget("c", 1)).await.unwrap();
    api.create(&PostParams::default(), &gadget("d", 1)).await.unwrap();
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
}

async fn delete_and_finalize_owned(api: Api<Gadget>, name: &str) {
    let options = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    delete_and_finalize(api, name, &options).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_enough_for_who_asks_for_no_more() {
    let (_server, client) = with_gadgets().await;
    let api = gadgets(&client);
    let made = api.create(&PostParams::default(), &gadget("a", 1)).await.unwrap();
    let partial = api.get_metadata("a").await.unwrap();
    assert_eq!(partial.uid(), made.uid());
    assert_eq!(partial.types.as_ref().unwrap().kind, "PartialObjectMetadata");
    let listed = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);

    let version = made.resource_version().unwrap();
    let mut events = api
        .watch_metadata(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let labels = ObjectMeta {
        labels: Some(BTreeMap::from([("colour".to_owned(), "blue".to_owned())])),
        ..ObjectMeta::default()
    };
    let patch = labels.into_request_partial::<Gadget>();
    let patched = api
        .patch_metadata("a", &PatchParams::apply("tests"), &Patch::Apply(&patch))
        .await
        .unwrap();
    assert_eq!(patched.labels()["colour"], "blue");
    match soon(events.try_next()).await.unwrap() {
        Some(WatchEvent::Modified(seen)) => assert_eq!(seen.resource_version(), patched.resource_version()),
        other => panic!("{other:?}"),
    }

    let partial: Api<PartialObjectMeta<Gadget>> = Api::default_namespaced(client);
    let mut stream = watcher(partial, watcher::Config::default())
        .applied_objects()
        .boxed();
    assert_eq!(
        soon(stream.try_next()).await.unwrap().unwrap().labels()["colour"],
        "blue"
    );
}

#[tokio::test(start_paused = true)]
async fn discovery_finds_the_same_in_both_of_its_ways() {
    let (_server, client) = with_gadgets().await;
    let plain = Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    for found in [&plain, &aggregated] {
        let gvk = GroupVersionKind::gvk("example.com", "v1", "Gadget");
        let (resource, capabilities) = found.resolve_gvk(&gvk).unwrap();
        assert_eq!(resource.plural, "gadgets");
        assert_eq!(capabilities.scope, Scope::Namespaced);
        assert!(capabilities.supports_operation(verbs::WATCH));
        assert_eq!(capabilities.subresources.len(), 1);
        assert!(
            found
                .resolve_gvk(&GroupVersionKind::gvk("", "v1", "Pod"))
                .is_some()
        );
        assert!(
            found
                .resolve_gvk(&GroupVersionKind::gvk("", "v1", "Service"))
                .is_none()
        );
    }
    let summary = |found: &Discovery| {
        let mut all = Vec::new();
        for group in found.groups_alphabetical() {
            for (resource, capabilities) in group.recommended_resources() {
                let mut verbs = capabilities.operations.clone();
                verbs.sort();
                all.push((resource.api_version, resource.kind, resource.plural, verbs));
            }
        }
        all.sort();
        all
    };
    assert_eq!(summary(&plain), summary(&aggregated));
    let version = client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));
}

#[tokio::test(start_paused = true)]
async fn of_two_that_want_a_lease_one_gets_it() {
    let server = TestServer::start().await;
    let api: Api<Lease> = Api::default_namespaced(server.client());
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some("leader".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some("one".to_owned()),
            ..LeaseSpec::default()
        }),
    };
    api.create(&PostParams::default(), &lease).await.unwrap();
    let second = api.create(&PostParams::default(), &lease).await.unwrap_err();
    assert!(matches!(second, kube::Error::Api(status) if status.reason == "AlreadyExists"));

    let seen = api.get("leader").await.unwrap();
    let claim = async |who: &str| {
        let mut mine = seen.clone();
        let spec = mine.spec.get_or_insert_default();
        spec.holder_identity = Some(who.to_owned());
        spec.lease_transitions = Some(1);
        api.replace("leader", &PostParams::default(), &mine).await
    };
    let (two, three) = futures::join!(claim("two"), claim("three"));
    assert_eq!(two.unwrap().spec.unwrap().holder_identity.as_deref(), Some("two"));
    let kube::Error::Api(lost) = three.unwrap_err() else {
        panic!("not an answer of the server")
    };
    assert!(lost.is_conflict(), "{lost:?}");
    assert_eq!(
        lost.message,
        "Operation cannot be fulfilled on leases.coordination.k8s.io \"leader\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
}
