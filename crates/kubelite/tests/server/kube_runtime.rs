//! What kube-rs brings, unchanged: controllers, watchers, finalizers, event recorders and the rest.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Pod, Secret},
        events::v1::Event as KubeEvent,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
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
pub(crate) struct GadgetSpec {
    pub(crate) size: i64,
    #[serde(default)]
    secret: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub(crate) struct GadgetStatus {
    pub(crate) size: i64,
    #[serde(default)]
    password: String,
}

/// Longer than anything here takes, in a time that does not pass while there is work.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it never happened")
}

/// A server that knows gadgets, established as a kube-rs program does it.
pub(crate) async fn with_gadgets() -> (TestServer, Client) {
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

pub(crate) fn gadget(name: &str, size: i64) -> Gadget {
    Gadget::new(
        name,
        GadgetSpec {
            size,
            secret: String::new(),
        },
    )
}

pub(crate) fn gadgets(client: &Client) -> Api<Gadget> {
    Api::default_namespaced(client.clone())
}

pub(crate) fn config_maps(client: &Client) -> Api<ConfigMap> {
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

pub(crate) fn config_map(name: &str) -> ConfigMap {
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
