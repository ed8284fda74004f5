//! Objects of any kind: list, get, apply, create, delete.

use std::sync::Arc;

use futures::future::BoxFuture;
use jangar_api::{Kind, labels::CREATED_BY};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Caller, ControlPlane, FIELD_MANAGER, create::sign, cursor, live};
use crate::{
    access::Question,
    audit::Deed,
    refusal::{Refusal, Trouble},
    world::{Filter, Object, Selector, resource, text},
};

/// The most objects of one page.
pub const PAGE_MAX: usize = 500;
/// About how many bytes a page has at most, unless one object alone has more: what a client that reads slowly costs.
pub const PAGE_MAX_BYTES: usize = 8 * 1024 * 1024;
/// How many there are if the caller does not say.
pub const PAGE_DEFAULT: usize = 100;
/// The most words of a search, which is the longest that people write.
const WORDS_MAX: usize = 16;
/// Stands for every namespace.
pub const ALL_NAMESPACES: &str = "*";

/// What a caller wants to see of a kind. Empty texts say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// `*` is every one.
    pub namespace: String,
    pub label_selector: String,
    pub phase: String,
    pub runtime: String,
    pub subject: String,
    pub search: String,
    /// 0: as the server likes.
    pub limit: u32,
    pub cursor: String,
}

impl ListQuery {
    pub(crate) fn filter(&self) -> Result<Filter, Refusal> {
        let given = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let words: Vec<String> = self.search.split_whitespace().map(str::to_lowercase).collect();
        if words.len() > WORDS_MAX {
            return Err(
                Refusal::field("search", &self.search, "it has more than 16 words")
                    .remedy("search for fewer words"),
            );
        }
        Ok(Filter {
            namespace: given(&self.namespace).filter(|namespace| namespace != ALL_NAMESPACES),
            selector: Selector::parse("labelSelector", &self.label_selector)?,
            phase: given(&self.phase),
            runtime: given(&self.runtime),
            subject: given(&self.subject),
            words,
        })
    }

    pub(super) fn limit(&self) -> Result<usize, Refusal> {
        match usize::try_from(self.limit).unwrap_or(usize::MAX) {
            0 => Ok(PAGE_DEFAULT),
            limit if limit <= PAGE_MAX => Ok(limit),
            _ => Err(
                Refusal::field("limit", self.limit, "more than 500 are not listed at once")
                    .remedy("give a number from 1 to 500, and go on with the cursor"),
            ),
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page {
    pub objects: Vec<Arc<Object>>,
    /// Where the next part begins; absent at the end.
    pub next: Option<String>,
}

impl Page {
    /// As a List document of Kubernetes.
    pub fn document(&self, kind: Kind) -> Value {
        let items: Vec<&Value> = self.objects.iter().map(|object| &object.json).collect();
        list_document(kind, &items, self.next.as_deref().unwrap_or_default())
    }
}

/// A List document of Kubernetes.
pub(crate) fn list_document<T: Serialize>(kind: Kind, items: &[T], next: &str) -> Value {
    let info = kind.info();
    json!({
        "apiVersion": format!("{}/{}", info.group, info.version),
        "kind": format!("{}List", info.kind),
        "metadata": {"continue": next},
        "items": items,
    })
}

/// Cuts a page to its bounds; whether something was beyond them.
fn shorten(objects: &mut Vec<Arc<Object>>, limit: usize) -> bool {
    let mut bytes = 0;
    let fits = objects.iter().enumerate().take_while(|(number, object)| {
        bytes += object.bytes;
        *number < limit && (*number == 0 || bytes <= PAGE_MAX_BYTES)
    });
    let fits = fits.count();
    let more = objects.len() > fits;
    objects.truncate(fits);
    more
}

/// How an object is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applying {
    /// The API server looks at it, and keeps nothing.
    pub dry_run: bool,
    /// Fields of others are left to them. Otherwise they are taken over.
    pub refuse_conflicts: bool,
    /// Whether the object is read first, to say what became of it.
    pub compare: bool,
    /// Under which name the fields stand; absent: that of the control plane.
    pub manager: Option<&'static str>,
}

/// What became of an object that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    Configured,
    Unchanged,
}

impl Outcome {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }

    /// By the versions before and after.
    fn of(before: Option<&DynamicObject>, after: &DynamicObject) -> Self {
        match before {
            None => Self::Created,
            Some(before) if before.metadata.resource_version == after.metadata.resource_version => {
                Self::Unchanged
            }
            Some(_) => Self::Configured,
        }
    }
}

/// An object that was applied.
#[derive(Clone, Debug)]
pub struct Applied {
    pub object: Object,
    /// Absent: nobody asked, or the caller may not read it.
    pub outcome: Option<Outcome>,
}

/// Checks a namespace that somebody wrote.
pub fn checked_namespace(namespace: &str) -> Result<(), Refusal> {
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let legal = !namespace.is_empty()
        && namespace.len() <= 63
        && namespace.starts_with(small)
        && namespace.ends_with(small)
        && namespace.chars().all(|c| small(c) || c == '-');
    if legal {
        Ok(())
    } else {
        Err(
            Refusal::field("namespace", namespace, "this is no name of a namespace")
                .remedy("use lower-case letters, digits and dashes, at most 63"),
        )
    }
}

/// Checks a name that somebody wrote, before it becomes part of an address.
pub fn checked_name(field: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::missing(field).remedy(format!("give {field}")));
    }
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let legal = name.len() <= 253
        && name.starts_with(small)
        && name.ends_with(small)
        && name.chars().all(|c| small(c) || c == '-' || c == '.');
    if legal {
        Ok(())
    } else {
        Err(Refusal::field(field, name, "this is no name of an object")
            .remedy("use lower-case letters, digits, dashes and dots, at most 253"))
    }
}

impl ControlPlane {
    /// The namespace that a request names, or the one that is meant without.
    pub fn namespace(&self, given: Option<&str>) -> Result<String, Refusal> {
        let given = given.map(str::trim).filter(|given| !given.is_empty());
        let namespace = given.unwrap_or_else(|| self.default_namespace());
        checked_namespace(namespace)?;
        Ok(namespace.to_owned())
    }

    /// A page of the objects of a kind that the caller may list.
    pub async fn list(&self, caller: &Caller, kind: Kind, query: &ListQuery) -> Result<Page, Refusal> {
        let filter = query.filter()?;
        let limit = query.limit()?;
        let after = match query.cursor.as_str() {
            "" => None,
            text => Some(cursor::decode(kind, &filter, text)?),
        };
        self.require_list(caller, kind, filter.namespace.as_deref())
            .await?;
        let mut objects = self.world.list(kind, &filter, after.as_ref(), limit + 1);
        let more = shorten(&mut objects, limit);
        let next = objects
            .last()
            .filter(|_| more)
            .map(|last| cursor::encode(kind, &filter, &last.place()));
        Ok(Page { objects, next })
    }

    /// That the caller may list a kind, and that the caches have it.
    pub(super) async fn require_list(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: Option<&str>,
    ) -> Result<(), Refusal> {
        if let Some(namespace) = namespace {
            checked_namespace(namespace)?;
        }
        let question = Question::list(kind, namespace.unwrap_or_default());
        self.gatekeeper.require(&caller.identity, &question).await?;
        match namespace {
            Some(namespace) if !self.world.covers(namespace) => Err(self.not_covered(namespace)),
            _ => Ok(()),
        }
    }

    pub(super) fn not_covered(&self, namespace: &str) -> Refusal {
        let _ = self;
        Refusal::new(
            Trouble::NotFound,
            format!("namespace {namespace} is not looked after by this control plane"),
        )
        .named("namespace")
        .remedy("add it to JANGAR_AGENTS_CONTROLLER_NAMESPACES, or name another one")
    }

    /// One object that the caller may get.
    pub async fn get(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Object>, Refusal> {
        checked_namespace(namespace)?;
        checked_name("name", name)?;
        let question = Question::get(kind, namespace, name);
        self.gatekeeper.require(&caller.identity, &question).await?;
        match self.seen(kind, namespace, name).await? {
            Some(object) => Ok(object),
            None => Err(Refusal::not_found(&kind.info().kind, namespace, name)),
        }
    }

    /// The object as the cache has it. A cache may be late, so that an object is missing is concluded from a live read alone.
    pub(super) async fn seen(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Object>>, Refusal> {
        if let Some(object) = self.world.get(kind, namespace, name) {
            return Ok(Some(object));
        }
        if !self.world.covers(namespace) {
            return Ok(None);
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.own.clone(), namespace, &resource(kind));
        let found = live(api.get_opt(name)).await?;
        Ok(found.map(|object| Arc::new(self.read(kind, object))))
    }

    pub(super) fn read(&self, kind: Kind, object: DynamicObject) -> Object {
        Object::read(kind, object, self.settings.runs.cancel_enabled)
    }

    /// Applies a manifest of this kind, as the caller.
    pub async fn apply(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
    ) -> Result<Object, Refusal> {
        self.apply_if(caller, kind, namespace, manifest, Box::pin(async { Ok(()) }))
            .await
    }

    /// The same if something lets it, whose refusal is recorded like any other.
    pub async fn apply_if(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
        check: BoxFuture<'static, Result<(), Refusal>>,
    ) -> Result<Object, Refusal> {
        let how = Applying::default();
        let applied = self
            .applied(caller, kind, namespace, manifest, how, check)
            .await?;
        Ok(applied.object)
    }

    /// Applies a manifest of this kind, as the caller, in the way that they want.
    pub async fn apply_as(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
        how: Applying,
    ) -> Result<Applied, Refusal> {
        self.applied(caller, kind, namespace, manifest, how, Box::pin(async { Ok(()) }))
            .await
    }

    async fn applied(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
        how: Applying,
        check: BoxFuture<'static, Result<(), Refusal>>,
    ) -> Result<Applied, Refusal> {
        let (namespace, name, mut manifest) = addressed(kind, namespace, manifest)?;
        let name = name.ok_or_else(|| {
            Refusal::missing("metadata.name")
                .remedy("give the object a name: an object is applied by its name")
        })?;
        let deed = Deed {
            action: "object.applied",
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(caller.identity.client(), &namespace, &resource(kind));
        let before = if how.compare {
            // Who may write and not read is not told, and is not kept from writing.
            live(api.get_opt(&name)).await.ok()
        } else {
            None
        };
        let params = PatchParams {
            dry_run: how.dry_run,
            force: !how.refuse_conflicts,
            ..PatchParams::apply(how.manager.unwrap_or(FIELD_MANAGER))
        };
        let (plane, maker) = (Arc::clone(self), caller.clone());
        let work = async move {
            check.await?;
            if kind.is_run() {
                plane
                    .admit_run(&maker, kind, &namespace, &name, &mut manifest)
                    .await?;
            }
            let patch = Patch::Apply(&manifest);
            live(api.patch(&name, &params, &patch)).await
        };
        let after = if how.dry_run {
            // Nothing is done, so that nothing is recorded.
            work.await?
        } else {
            self.audited(caller, deed, work).await?
        };
        Ok(Applied {
            outcome: before.map(|before| Outcome::of(before.as_ref(), &after)),
            object: self.read(kind, after),
        })
    }

    /// What holds of a run that is applied: it says who made it, and there is room for it if it is new.
    async fn admit_run(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        name: &str,
        manifest: &mut Value,
    ) -> Result<(), Refusal> {
        // Whoever may not write it learns nothing of what there is, neither of the run nor of the queue.
        let patch = Question::on("patch", kind, namespace, name);
        self.gatekeeper.require(&caller.identity, &patch).await?;
        // Who made a run may not let it pass its gates, so that nobody else writes who that is.
        let there = self.seen(kind, namespace, name).await?;
        let maker = match &there {
            None => Some(caller.identity.user.clone()),
            Some(run) => run
                .json
                .pointer("/metadata/annotations")
                .and_then(|annotations| text(annotations.get(CREATED_BY)?, "")),
        };
        sign(manifest, maker.as_deref())?;
        if kind == Kind::AgentRun && there.is_none() {
            let create = Question::on("create", kind, namespace, "");
            self.gatekeeper.require(&caller.identity, &create).await?;
            self.has_room(namespace, manifest)?;
        }
        Ok(())
    }

    /// Creates an object of this kind, as the caller.
    pub async fn create(
        &self,
        caller: &Caller,
        action: &'static str,
        kind: Kind,
        namespace: &str,
        manifest: Value,
    ) -> Result<Object, Refusal> {
        let (namespace, name, manifest) = addressed(kind, namespace, manifest)?;
        let deed = Deed {
            action,
            kind,
            namespace: namespace.clone(),
            name: name.unwrap_or_default(),
        };
        let work = create(caller.identity.client(), kind, namespace, manifest);
        let object = self.audited(caller, deed, work).await?;
        Ok(self.read(kind, object))
    }

    /// The same for whoever keeps the record themselves.
    pub(super) async fn create_unrecorded(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
    ) -> Result<Object, Refusal> {
        let (namespace, _, manifest) = addressed(kind, namespace, manifest)?;
        let object = create(caller.identity.client(), kind, namespace, manifest).await?;
        Ok(self.read(kind, object))
    }

    /// Deletes an object, as the caller. What it owns goes after it.
    pub async fn delete(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Refusal> {
        checked_namespace(namespace)?;
        checked_name("name", name)?;
        let deed = Deed {
            action: "object.deleted",
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(caller.identity.client(), namespace, &resource(kind));
        let name = name.to_owned();
        let work = async move { live(api.delete(&name, &DeleteParams::background())).await };
        let deleted = self.audited(caller, deed, work).await?;
        Ok(deleted.left().map(|object| self.read(kind, object)))
    }
}

async fn create(
    client: Client,
    kind: Kind,
    namespace: String,
    manifest: Value,
) -> Result<DynamicObject, Refusal> {
    let object: DynamicObject = serde_json::from_value(manifest)
        .map_err(|error| Refusal::new(Trouble::BadRequest, format!("the object cannot be read: {error}")))?;
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource(kind));
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    live(api.create(&params, &object)).await
}

/// Where a manifest belongs: its own words have to agree with what was asked for.
fn addressed(
    kind: Kind,
    namespace: &str,
    mut manifest: Value,
) -> Result<(String, Option<String>, Value), Refusal> {
    checked_namespace(namespace)?;
    let info = kind.info();
    let api_version = format!("{}/{}", info.group, info.version);
    if !manifest.is_object() {
        return Err(Refusal::new(Trouble::BadRequest, "the manifest is no object")
            .remedy(format!("send one object of kind {}", info.kind)));
    }
    for (field, expected) in [("apiVersion", &api_version), ("kind", &info.kind)] {
        let found = manifest.get(field).cloned().unwrap_or(Value::Null);
        match found.as_str() {
            Some(found) if found == expected => {}
            _ => {
                return Err(
                    Refusal::field(field, &found, "this is another kind than is asked for")
                        .remedy(format!("it has to be {expected}")),
                );
            }
        }
    }
    let given = manifest.pointer("/metadata/namespace").cloned();
    match given.as_ref().and_then(Value::as_str) {
        Some(given) if given != namespace => {
            return Err(Refusal::field(
                "metadata.namespace",
                given,
                "the request is for another namespace",
            )
            .remedy(format!(
                "make it {namespace}, or ask for the namespace that the manifest names"
            )));
        }
        _ => {}
    }
    let name = manifest
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    if let Some(name) = &name {
        checked_name("metadata.name", name)?;
    }
    if let Some(object) = manifest.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        match metadata.as_object_mut() {
            Some(metadata) => {
                metadata.insert("namespace".to_owned(), json!(namespace));
                // Who applies an object that was read before sends these along; the API server refuses them.
                metadata.remove("managedFields");
            }
            None => {
                return Err(Refusal::missing("metadata.name").remedy("give the object a name"));
            }
        }
        // Controllers write it, never who applies.
        object.remove("status");
    }
    Ok((namespace.to_owned(), name, manifest))
}

#[cfg(test)]
mod tests;
