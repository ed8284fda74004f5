//! From documents to objects: by server-side apply, as `kubectl apply --server-side` does it.

use anyhow::{Context, Result};
use kube::{
    Api, Client, Discovery,
    api::{ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective},
    core::{Status, discovery::Scope},
    discovery::verbs,
};

use super::{Document, Mistake, Mistakes, all};

/// Who the fields of the manifests belong to.
const MANAGER: &str = "jangar-up";

/// A document and where its object lives.
struct Target<'a> {
    document: &'a Document,
    api: Api<DynamicObject>,
    namespace: Option<String>,
}

/// Applies the documents, in their order but namespaces first, and says what was applied. Objects of a namespace go to
/// `namespace` unless they name one.
pub(crate) async fn apply(client: &Client, namespace: &str, documents: &[Document]) -> Result<Vec<String>> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let kinds = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .context("failed to ask which kinds there are")?;
    let mut targets = all(documents
        .iter()
        .map(|document| target(client, &kinds, namespace, document)))?;
    targets.sort_by_key(|target| !target.document.is_namespace());
    check(&targets).await?;
    let mut applied = Vec::new();
    for target in &targets {
        patch(target, &params()).await.with_context(|| {
            format!(
                "failed to apply {} after it was found good",
                target.document.origin
            )
        })?;
        applied.push(format!("{} {}", target.document.kind.kind, target.document.name));
    }
    Ok(applied)
}

/// Finds the kind of a document among those that are served.
fn target<'a>(
    client: &Client,
    kinds: &Discovery,
    namespace: &str,
    document: &'a Document,
) -> Result<Target<'a>, Mistake> {
    let gvk = &document.kind;
    let found = kinds
        .resolve_gvk(gvk)
        .filter(|(_, can)| can.supports_operation(verbs::PATCH));
    let Some((resource, can)) = found else {
        return Err(document.mistake(unknown(kinds, document)));
    };
    let namespace = match can.scope {
        Scope::Namespaced => Some(document.namespace.clone().unwrap_or_else(|| namespace.to_owned())),
        Scope::Cluster => None,
    };
    Ok(Target {
        document,
        api: api(client, &resource, namespace.as_deref()),
        namespace,
    })
}

fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Says that there is no such kind, and which there are instead.
fn unknown(kinds: &Discovery, document: &Document) -> String {
    let gvk = &document.kind;
    let asked = format!("kind: {} of {} is not served here", gvk.kind, gvk.api_version());
    let mut there: Vec<String> = kinds
        .get(&gvk.group)
        .map(|group| group.versioned_resources(&gvk.version))
        .unwrap_or_default()
        .into_iter()
        .filter(|(_, can)| can.supports_operation(verbs::PATCH))
        .map(|(resource, _)| resource.kind)
        .collect();
    there.sort();
    if there.is_empty() {
        format!(
            "{asked}, and nothing of apiVersion {} is; `kubectl api-resources` lists what is",
            gvk.api_version()
        )
    } else {
        format!("{asked}; write one of {}", there.join(", "))
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply(MANAGER).force()
    }
}

async fn patch(target: &Target<'_>, params: &PatchParams) -> kube::Result<DynamicObject> {
    let Document { name, value, .. } = target.document;
    target.api.patch(name, params, &Patch::Apply(value)).await
}

/// Lets the server look at every document without keeping any of them.
async fn check(targets: &[Target<'_>]) -> Result<()> {
    let dry = PatchParams {
        dry_run: true,
        ..params()
    };
    let mut results = Vec::new();
    for target in targets {
        results.push(match patch(target, &dry).await {
            Ok(_) => Ok(()),
            // The document that makes the namespace is not applied yet, so this one cannot be looked at yet.
            Err(kube::Error::Api(status)) if status.code == 404 && makes_namespace(targets, target) => Ok(()),
            Err(kube::Error::Api(status)) => Err(target.document.mistake(words(&status))),
            Err(error) => {
                return Err(error).with_context(|| format!("failed to check {}", target.document.origin));
            }
        });
    }
    all::<()>(results)
        .map(drop)
        .map_err(|mistakes: Mistakes| mistakes.into())
}

/// Whether one of the documents makes the namespace of this one.
fn makes_namespace(targets: &[Target<'_>], of: &Target<'_>) -> bool {
    targets
        .iter()
        .any(|target| target.document.is_namespace() && of.namespace.as_ref() == Some(&target.document.name))
}

/// What the server says of a document, which names the field, and what can be done.
fn words(status: &Status) -> String {
    let remedy = match status.code {
        404 => "make the namespace by a document of its own, or leave metadata.namespace out",
        400 | 422 => "correct that field",
        _ => "see whether the object can be changed at all",
    };
    format!("{}; {remedy}", status.message.trim_end_matches('.'))
}
