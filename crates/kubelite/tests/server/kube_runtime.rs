//! What kube-rs brings, unchanged: controllers, watchers, finalizers, event recorders and the rest.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Pod, Secret},
        events::v1::Event as KubeEvent,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt,
    api::{
        DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy, WatchEvent,
        WatchParams,
    },
    core::{GroupVersionKind, PartialObjectMeta, PartialObjectMetaExt},
    discovery::{Discovery, Scope, verbs},
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        events::{Event, EventType, Recorder, Reporter},
        finalizer::{self, finalizer},
        reflector::{self, ObjectRef},
        wait::{await_condition, conditions, delete::delete_and_finalize},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::TestServer;

#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus",
    shortname = "gd"
)]
struct GadgetSpec {
    size: i64,
    #[serde(default)]
    secret: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct GadgetStatus {
    size: i64,
    #[serde(default)]
    password: String,
}

/// Longer than anything here takes, in a time that does not pass while there is work.
const PATIENCE: Duration = Duration::from_secs(120);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it never happened")
}

/// A server that knows gadgets, established as a kube-rs program does it.
async fn with_gadgets() -> (TestServer, Client) {
    let server = TestServer::start().await;
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .patch(
            Gadget::crd_name(),
            &PatchParams::apply("tests"),
            &Patch::Apply(Gadget::crd()),
        )
        .await
        .unwrap();
    soon(await_condition(
        definitions,
        Gadget::crd_name(),
        conditions::is_crd_established(),
    ))
    .await
    .unwrap();
    (server, client)
}

fn gadget(name: &str, size: i64) -> Gadget {
    Gadget::new(
        name,
        GadgetSpec {
            size,
            secret: String::new(),
        },
    )
}

fn gadgets(client: &Client) -> Api<Gadget> {
    Api::default_namespaced(client.clone())
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::default_namespaced(client.clone())
}

/// Mirrors a gadget into a ConfigMap that it owns, and the content of the secret that it names into its status.
async fn mirror(gadget: Arc<Gadget>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let name = gadget.name_any();
    let mirrored = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![gadget.controller_owner_ref(&()).unwrap()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "size".to_owned(),
            gadget.spec.size.to_string(),
        )])),
        ..ConfigMap::default()
    };
    let apply = PatchParams::apply("mirror").force();
    config_maps(&client)
        .patch(&name, &apply, &Patch::Apply(&mirrored))
        .await?;
    let secrets: Api<Secret> = Api::default_namespaced((*client).clone());
    let secret = if gadget.spec.secret.is_empty() {
        None
    } else {
        secrets.get_opt(&gadget.spec.secret).await?
    };
    let password = secret.and_then(|secret| secret.data?.get("password").map(|bytes| bytes.0.clone()));
    let status = GadgetStatus {
        size: gadget.spec.size,
        password: String::from_utf8(password.unwrap_or_default()).unwrap(),
    };
    let patch = json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "status": status });
    gadgets(&client)
        .patch_status(&name, &apply, &Patch::Apply(&patch))
        .await?;
    Ok(Action::await_change())
}

fn start_mirror(client: &Client) -> tokio::task::JoinHandle<()> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let mapper = |secret: Secret| {
        // The gadgets that use a secret are named on it.
        let users = secret.labels().get("gadget").cloned();
        users.map(|name| ObjectRef::<Gadget>::new(&name).within("default"))
    };
    let controller = Controller::new(gadgets(client), watcher::Config::default())
        .owns(config_maps(client), watcher::Config::default())
        .watches(secrets, watcher::Config::default(), mapper)
        .run(
            mirror,
            |_, _, _| Action::requeue(Duration::from_secs(5)),
            Arc::new(client.clone()),
        );
    tokio::spawn(controller.for_each(|result| async move {
        result.expect("a reconcile failed");
    }))
}

fn has_status(size: i64, password: &str) -> impl Fn(Option<&Gadget>) -> bool {
    let expected = GadgetStatus {
        size,
        password: password.to_owned(),
    };
    move |gadget| gadget.and_then(|gadget| gadget.status.as_ref()) == Some(&expected)
}

#[tokio::test(start_paused = true)]
async fn controller_reconciles_its_objects_what_they_own_and_what_they_use() {
    let (server, client) = with_gadgets().await;
    let controller = start_mirror(&client);
    let api = gadgets(&client);
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &gadget(name, 3))
            .await
            .unwrap();
    }
    for name in ["a", "b", "c"] {
        soon(await_condition(api.clone(), name, has_status(3, "")))
            .await
            .unwrap();
    }

    // What is owned is put right again.
    let (maps, drift) = (config_maps(&client), json!({ "data": { "size": "9" } }));
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&drift))
        .await
        .unwrap();
    let right = |map: Option<&ConfigMap>| {
        map.and_then(|map| map.data.as_ref())
            .is_some_and(|data| data.get("size").is_some_and(|size| size == "3"))
    };
    soon(await_condition(maps.clone(), "a", right)).await.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    soon(await_condition(maps.clone(), "b", right)).await.unwrap();

    // What is used is looked at again when it changes.
    let used = json!({ "spec": { "secret": "s" } });
    api.patch("c", &PatchParams::default(), &Patch::Merge(&used))
        .await
        .unwrap();
    let secret: Secret = serde_json::from_value(
        json!({ "metadata": { "name": "s", "labels": { "gadget": "c" } }, "stringData": { "password": "xyzzy" } }),
    )
    .unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    soon(await_condition(api.clone(), "c", has_status(3, "xyzzy")))
        .await
        .unwrap();

    // Once everything is as it should be, the controller rests: applying the same thing again is no change.
    server.settle().await;
    let rest = server.version().await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(server.version().await, rest);

    // What is owned goes with its owner.
    delete_and_finalize(api, "a", &DeleteParams::default())
        .await
        .unwrap();
    server.settle().await;
    assert!(maps.get_opt("a").await.unwrap().is_none());
    controller.abort();
}

/// The next events of a watcher, as kube-rs prints them, and what is left of it.
async fn take<S>(stream: &mut S, count: usize) -> Vec<String>
where
    S: Stream<Item = watcher::Result<watcher::Event<ConfigMap>>> + Unpin,
{
    let mut seen = Vec::new();
    for _ in 0..count {
        let event = soon(stream.try_next()).await.unwrap().expect("the watcher ended");
        seen.push(event.to_string());
    }
    seen
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test(start_paused = true)]
async fn watcher_lists_and_then_follows_in_each_of_its_ways() {
    let ways = [
        ("pages", watcher::Config::default().page_size(2)),
        (
            "one list from the cache",
            watcher::Config::default().any_semantic(),
        ),
        ("a streamed list", watcher::Config::default().streaming_lists()),
    ];
    for (way, config) in ways {
        let server = TestServer::start().await;
        let api = config_maps(&server.client());
        for name in ["a", "b", "c"] {
            api.create(&PostParams::default(), &config_map(name))
                .await
                .unwrap();
        }
        let mut stream = watcher(api.clone(), config).default_backoff().boxed();
        let first = take(&mut stream, 5).await;
        assert_eq!(
            first,
            ["Init", "InitApply(a)", "InitApply(b)", "InitApply(c)", "InitDone"],
            "{way}"
        );
        api.create(&PostParams::default(), &config_map("d"))
            .await
            .unwrap();
        api.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(take(&mut stream, 2).await, ["Apply(d)", "Delete(a)"], "{way}");

        // Its watches end after some minutes and are opened again where they left off.
        tokio::time::timeout(Duration::from_hours(3), stream.next())
            .await
            .expect_err("something happened");
        api.create(&PostParams::default(), &config_map("e"))
            .await
            .unwrap();
        assert_eq!(take(&mut stream, 1).await, ["Apply(e)"], "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn watcher_that_fell_out_of_the_history_starts_over() {
    let server = TestServer::with_history(4).await;
    let api = config_maps(&server.client());
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let mut stream = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .boxed();
    assert_eq!(take(&mut stream, 3).await, ["Init", "InitApply(a)", "InitDone"]);
    for number in 0..20 {
        let change = json!({ "data": { "number": number.to_string() } });
        api.patch("a", &PatchParams::default(), &Patch::Merge(&change))
            .await
            .unwrap();
    }
    // The watcher has to notice, list and go on, without an endless loop of errors.
    let again = loop {
        match soon(stream.next()).await.expect("the watcher ended") {
            Ok(event) if event.to_string() == "Init" => break event,
            Ok(_) | Err(watcher::Error::WatchError(_)) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert!(matches!(again, watcher::Event::Init));
    assert_eq!(take(&mut stream, 2).await, ["InitApply(a)", "InitDone"]);
}

#[tokio::test(start_paused = true)]
async fn reflector_holds_what_the_server_holds() {
    let server = TestServer::start().await;
    let api = config_maps(&server.client());
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let (reader, writer) = reflector::store();
    let follow = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let task = tokio::spawn(follow.touched_objects().for_each(|_| async {}));
    soon(reader.wait_until_ready()).await.unwrap();
    api.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    server.settle().await;
    let names: Vec<String> = reader.state().iter().map(|map| map.name_any()).collect();
    assert_eq!(names, ["b"]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_added_waits_for_the_cleanup_and_is_removed() {
    const FINALIZER: &str = "example.com/cleanup";
    let (_server, client) = with_gadgets().await;
    let api = gadgets(&client);
    let run = async |gadget: Gadget| {
        let api = api.clone();
        let mut did = "nothing";
        let seen = &mut did;
        finalizer(&api, FINALIZER, Arc::new(gadget), async |event| {
            *seen = match event {
                finalizer::Event::Apply(_) => "apply",
                finalizer::Event::Cleanup(_) => "cleanup",
            };
            Ok::<_, std::convert::Infallible>(Action::await_change())
        })
        .await
        .unwrap();
        did
    };
    let fresh = api.create(&PostParams::default(), &gadget("a", 1)).await.unwrap();
    assert_eq!(run(fresh).await, "nothing");
    let finalized = api.get("a").await.unwrap();
    assert_eq!(finalized.finalizers(), [FINALIZER]);
    assert_eq!(run(finalized).await, "apply");

    let deleted = api.delete("a", &DeleteParams::default()).await.unwrap();
    let waiting = deleted.left().expect("the object waits for its finalizer");
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert_eq!(run(waiting).await, "cleanup");
    assert!(api.get_opt("a").await.unwrap().is_none());

    // With another finalizer already there the helper takes another way.
    let mut other = gadget("b", 1);
    other.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    let other = api.create(&PostParams::default(), &other).await.unwrap();
    assert_eq!(run(other).await, "nothing");
    assert_eq!(
        api.get("b").await.unwrap().finalizers(),
        ["example.com/other", FINALIZER]
    );
    api.delete("b", &DeleteParams::default()).await.unwrap();
    assert_eq!(run(api.get("b").await.unwrap()).await, "cleanup");
    assert_eq!(api.get("b").await.unwrap().finalizers(), ["example.com/other"]);
}

#[tokio::test(start_paused = true)]
async fn recorder_that_publishes_twice_makes_a_series() {
    let (_server, client) = with_gadgets().await;
    let regarding = gadgets(&client)
        .create(&PostParams::default(), &gadget("a", 1))
        .await
        .unwrap();
    let reporter = Reporter {
        controller: "tests".to_owned(),
        instance: Some("tests-0".to_owned()),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Normal,
        reason: "Mirrored".to_owned(),
        note: Some("made a copy".to_owned()),
        action: "Mirror".to_owned(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder
            .publish(&event, &regarding.object_ref(&()))
            .await
            .unwrap();
    }
    let events: Api<KubeEvent> = Api::default_namespaced(client.clone());
    let found = events.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].series.as_ref().unwrap().count, 3);
    assert_eq!(found[0].reporting_controller.as_deref(), Some("tests"));

    // The same object in the core group, where kubectl looks for it.
    let core: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let fields = format!("involvedObject.uid={}", regarding.uid().unwrap());
    let same = core
        .list(&ListParams::default().fields(&fields))
        .await
        .unwrap()
        .items;
    assert_eq!(same.len(), 1);
    assert_eq!(same[0].message.as_deref(), Some("made a copy"));
    assert_eq!(same[0].involved_object.name.as_deref(), Some("a"));
}

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

#[tokio::test(start_paused = true)]
async fn condition_of_a_pod_is_awaited() {
    let server = TestServer::start().await;
    let api: Api<Pod> = Api::default_namespaced(server.client());
    let pod: Pod = serde_json::from_value(crate::support::pod("a")).unwrap();
    api.create(&PostParams::default(), &pod).await.unwrap();
    let waiting = tokio::spawn({
        let api = api.clone();
        async move {
            await_condition(api, "a", conditions::is_pod_running())
                .await
                .unwrap()
        }
    });
    server.settle().await;
    assert!(!waiting.is_finished());
    let running = json!({ "status": { "phase": "Running" } });
    api.patch_status("a", &PatchParams::default(), &Patch::Merge(&running))
        .await
        .unwrap();
    assert!(soon(waiting).await.unwrap().is_some());
}
