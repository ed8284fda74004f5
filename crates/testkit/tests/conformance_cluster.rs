//! A real cluster gives the answers that are kept, so that kubelite is held to what is true.
//!
//! With `JANGAR_RECORD=1` the answers are written anew. `cargo test` leaves this file out, because it needs a cluster:
//! `make conformance-tests` boots one.

use std::{env, fmt::Write as _};

use futures::{StreamExt, stream};
use jangar_testkit::{
    cluster::{Bench, Failure, User, until_gone},
    conformance::{Script, compare::differences, corpus, keep, kept, play, run::GROUPS},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::json;

/// Much of a script is waiting. More at once would wait for the two cores of a small machine.
const AT_ONCE: usize = 4;

#[tokio::test]
async fn a_real_cluster_gives_the_answers_that_are_kept() -> Result<(), Failure> {
    let bench = Bench::here()?;
    let client = bench.client(&User::Admin).await?;
    let mut scripts = corpus()?;
    let mut words = String::new();
    if let Err(no_node) = bench.real_node() {
        scripts.retain(|script| !script.needs_node);
        let _ = writeln!(words, "pods: {no_node}");
    }
    // The garbage collector of a cluster stands still while kinds come and go, so those who need it are played first.
    let (with_kinds, without): (Vec<_>, Vec<_>) = scripts.into_iter().partition(|script| script.needs_kind);
    for scripts in [without, with_kinds] {
        words += &play_all(&client, &scripts).await?;
    }
    remove_kinds(&client).await?;
    assert!(
        words.is_empty(),
        "JANGAR_RECORD=1 make conformance-tests writes the answers anew\n{words}"
    );
    Ok(())
}

/// A cluster that stays up does not keep the kinds of the corpus, also not those of a run that was interrupted.
async fn remove_kinds(client: &Client) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut kinds = api.list(&ListParams::default()).await?.items;
    kinds.retain(|kind| kind.spec.group.ends_with(GROUPS));
    for kind in &kinds {
        let_go(client, kind).await?;
        api.delete(&kind.name_any(), &DeleteParams::default()).await?;
    }
    for kind in &kinds {
        until_gone(&api, &kind.name_any()).await?;
    }
    Ok(())
}

/// Takes the finalizers from what there is of a kind, which would hold up its end.
async fn let_go(client: &Client, kind: &CustomResourceDefinition) -> Result<(), Failure> {
    let Some(version) = kind.spec.versions.iter().find(|version| version.served) else {
        return Ok(());
    };
    let (group, names) = (&kind.spec.group, &kind.spec.names);
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(group, &version.name, &names.kind),
        &names.plural,
    );
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    for object in objects.list(&ListParams::default()).await? {
        if object.finalizers().is_empty() {
            continue;
        }
        let api = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => objects.clone(),
        };
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match api
            .patch(&object.name_any(), &PatchParams::default(), &patch)
            .await
        {
            // Its namespace is on the way out as well, and may be quicker.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// What is wrong with the answers, as sentences.
async fn play_all(client: &Client, scripts: &[Script]) -> Result<String, Failure> {
    let run = format!("{:06x}", rand::random::<u32>() >> 8);
    let played = stream::iter(scripts.iter().enumerate())
        .map(|(index, script)| {
            let (client, run) = (client.clone(), format!("{run}{index:02}"));
            async move { (script, play(&client, script, &run).await) }
        })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;

    let mut words = String::new();
    for (script, answers) in played {
        match answers {
            Err(error) => {
                let _ = writeln!(words, "{error}");
            }
            Ok(answers) if env::var_os("JANGAR_RECORD").is_some() => keep(&script.area, &answers)?,
            Ok(answers) => {
                for difference in differences(&script.area, &kept(&script.area)?, &answers) {
                    let _ = writeln!(words, "{difference}");
                }
            }
        }
    }
    Ok(words)
}
