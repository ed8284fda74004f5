//! CustomResourceDefinitions: how a definition becomes a served kind, and how its objects go when it is deleted.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    builtin::{self, Endpoint},
    clock,
    discovery::compare_versions,
    error::ApiError,
    field::{FieldError, FieldPath},
    resource::{ALL_VERBS, Resource, Scope, SelectableField, Version},
    schema,
    server::{Core, delete::CRD_CLEANUP, metadata, target::Target},
    store::{Collection, Event, EventKind, Key, Object},
    table::Column,
};

const MANAGER: &str = "kube-apiserver";

fn definitions() -> Collection {
    Collection::new("apiextensions.k8s.io", "customresourcedefinitions")
}

impl Core {
    /// Serves what the stored definitions say, before the first request is answered.
    pub(crate) fn load_definitions(&self) {
        let Ok(snapshot) = self.store.snapshot(&definitions(), None) else {
            return;
        };
        for (_, object) in snapshot.iter(None, None) {
            let definition = object.value();
            if has_condition(&definition, "Established", "True") {
                self.serve(&definition, object.revision);
            }
        }
    }

    /// An object can only be created while its definition is there to stay.
    pub(crate) fn check_definition(&self, target: &Target, object: &Value) -> Result<(), ApiError> {
        let resource = &target.served.resource;
        if !resource.is_custom() {
            return Ok(());
        }
        let key = Key::new("", &format!("{}.{}", resource.plural, resource.group));
        let definition = self.store.get(&definitions(), &key);
        if definition.is_some_and(|definition| definition.meta.deleting) {
            let subject = target.subject_named(metadata::text(object, "name"));
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(subject, why));
        }
        Ok(())
    }

    pub(super) async fn visit_all_definitions(&self) {
        let Ok(snapshot) = self.store.snapshot(&definitions(), None) else {
            return;
        };
        for (key, object) in snapshot.iter(None, None) {
            self.visit_definition(key, object).await;
        }
    }

    pub(super) async fn visit_definition_of(&self, event: &Event) {
        if event.collection == definitions() {
            match event.kind {
                EventKind::Added | EventKind::Modified => {
                    self.visit_definition(&event.key, &event.object).await;
                }
                EventKind::Deleted => self.stop_serving(&event.key.name),
            }
        } else if event.kind == EventKind::Deleted {
            // The last object of a terminating definition may just have gone.
            if let Some(name) = self.definition_of(&event.collection) {
                let key = Key {
                    namespace: "".into(),
                    name: name.as_str().into(),
                };
                if let Some(object) = self
                    .store
                    .get(&definitions(), &key)
                    .filter(|object| object.meta.deleting)
                {
                    self.visit_definition(&key, &object).await;
                }
            }
        }
    }

    async fn visit_definition(&self, key: &Key, object: &Object) {
        let definition = object.value();
        let result = if object.meta.deleting && object.meta.finalizers.iter().any(|f| f == CRD_CLEANUP) {
            self.delete_instances(key, &definition).await
        } else if object.meta.deleting {
            Ok(())
        } else {
            self.establish(key, object, &definition).await
        };
        if let Err(error) = result {
            tracing::warn!(definition = %key.name, %error, "could not bring the definition forward");
            self.metrics.crd_failures.inc();
        }
    }

    /// Accepts the names, serves the kind, and only then says so in the status.
    async fn establish(&self, key: &Key, object: &Object, definition: &Value) -> Result<(), ApiError> {
        let others: Vec<Value> = match self.store.snapshot(&definitions(), None) {
            Ok(snapshot) => snapshot
                .iter(None, None)
                .map(|(_, other)| other.value())
                .collect(),
            Err(_) => Vec::new(),
        };
        let conflict = builtin::name_conflict(definition, &others);
        let now = clock::seconds(self.clock.now());
        let status = builtin::crd_status(definition, conflict.as_ref(), &now);
        if conflict.is_none() {
            self.serve(definition, object.revision);
        }
        if definition.get("status") == Some(&status) {
            return Ok(());
        }
        let Some(served) = self.registry().of_collection(&definitions()) else {
            return Ok(());
        };
        let mut target = Target::new(served, "", &key.name);
        target.endpoint = Endpoint::Status;
        let uid = object.meta.uid.clone();
        self.amend(&target, MANAGER, |live| {
            // Another definition of that name gets its own visit.
            if metadata::text(live, "uid") == uid {
                metadata::root(live).insert("status".to_owned(), status.clone());
            }
        })
        .await
    }

    async fn delete_instances(&self, key: &Key, definition: &Value) -> Result<(), ApiError> {
        let collection = Collection::new(
            text(definition, "/spec/group"),
            text(definition, "/spec/names/plural"),
        );
        if let Some(served) = self.registry().of_collection(&collection)
            && let Ok(snapshot) = self.store.snapshot(&collection, None)
        {
            self.delete_all(&served, &snapshot, None).await?;
        }
        let empty = self
            .store
            .snapshot(&collection, None)
            .is_ok_and(|after| after.iter(None, None).next().is_none());
        if !empty {
            return Ok(());
        }
        let Some(served) = self.registry().of_collection(&definitions()) else {
            return Ok(());
        };
        self.drop_finalizer(&Target::new(served, "", &key.name), CRD_CLEANUP)
            .await
    }

    fn serve(&self, definition: &Value, revision: u64) {
        match resource_of(definition, revision) {
            Ok(resource) => self.serve_custom(metadata::text(definition, "name"), resource),
            // A definition is checked when it is written, so this one came from another version of the program.
            Err(errors) => tracing::error!(
                definition = metadata::text(definition, "name"),
                error = errors.first().map(ToString::to_string),
                "a stored definition cannot be served"
            ),
        }
    }
}

/// The structural and CEL rules that every version's schema must keep. A schema that all versions share is named by the
/// place where Kubernetes keeps it internally.
pub(crate) fn check_schemas(definition: &Value) -> Vec<FieldError> {
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let schema_of = |version: &'_ Value| version.pointer("/schema/openAPIV3Schema").cloned();
    let shared = versions
        .windows(2)
        .all(|pair| schema_of(&pair[0]) == schema_of(&pair[1]));
    let mut errors = Vec::new();
    for (position, version) in versions.iter().enumerate() {
        if shared && position > 0 {
            break;
        }
        let path = if shared {
            FieldPath::new("spec.validation.openAPIV3Schema")
        } else {
            FieldPath::new("spec.versions")
                .index(position)
                .child("schema")
                .child("openAPIV3Schema")
        };
        if let Some(openapi) = version.pointer("/schema/openAPIV3Schema") {
            let has_status = version.pointer("/subresources/status").is_some();
            errors.extend(schema::structural::check(openapi, has_status, &path));
        }
    }
    errors
}

/// The served kind that a definition describes. `revision` is the definition's own version: objects stored before it may
/// lack its defaults.
fn resource_of(definition: &Value, revision: u64) -> Result<Resource, Vec<FieldError>> {
    let names = "/spec/names";
    let name = |field: &str| text(definition, &format!("{names}/{field}")).to_owned();
    let group = text(definition, "/spec/group").to_owned();
    let (kind, plural) = (name("kind"), name("plural"));
    let or = |given: String, fallback: String| if given.is_empty() { fallback } else { given };
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let versions: Result<Vec<Version>, _> = versions
        .into_iter()
        .flatten()
        .map(|version| version_of(definition, version, revision))
        .collect();
    Ok(Resource {
        collection: Collection::new(&group, &plural),
        list_kind: or(name("listKind"), format!("{kind}List")),
        singular: or(name("singular"), kind.to_lowercase()),
        short_names: texts(definition, "/spec/names/shortNames")
            .into_iter()
            .map(ToOwned::to_owned)
            .collect(),
        categories: texts(definition, "/spec/names/categories")
            .into_iter()
            .map(ToOwned::to_owned)
            .collect(),
        scope: if text(definition, "/spec/scope") == "Cluster" {
            Scope::Cluster
        } else {
            Scope::Namespaced
        },
        group,
        kind,
        plural,
        versions: versions?,
        builtin: None,
        verbs: ALL_VERBS,
    })
}

fn version_of(definition: &Value, version: &Value, revision: u64) -> Result<Version, Vec<FieldError>> {
    let none = Value::Null;
    let openapi = version.pointer("/schema/openAPIV3Schema").unwrap_or(&none);
    let schema = schema::parse::parse(openapi)?;
    let rules = schema::rules::compile(&schema)?;
    let flag = |field: &str| version.get(field).and_then(Value::as_bool).unwrap_or(false);
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let selectable = version.get("selectableFields").and_then(Value::as_array);
    Ok(Version {
        name: text(version, "/name").to_owned(),
        served: flag("served"),
        storage: flag("storage"),
        schema: Arc::new(schema),
        rules: Arc::new(rules),
        openapi: Arc::new(openapi.clone()),
        has_status: version.pointer("/subresources/status").is_some(),
        has_scale: version.pointer("/subresources/scale").is_some(),
        columns: columns.into_iter().flatten().map(column_of).collect(),
        selectable: selectable
            .into_iter()
            .flatten()
            .map(|field| SelectableField {
                path: text(field, "/jsonPath").trim_start_matches('.').to_owned(),
            })
            .collect(),
        deprecation_warning: flag("deprecated").then(|| {
            let given = text(version, "/deprecationWarning");
            if given.is_empty() {
                deprecation_warning(definition, text(version, "/name"))
            } else {
                given.to_owned()
            }
        }),
        since_revision: revision,
    })
}

/// What is said of a deprecated version that has no text of its own: it names the best version to use instead.
fn deprecation_warning(definition: &Value, deprecated: &str) -> String {
    let (group, kind) = (
        text(definition, "/spec/group"),
        text(definition, "/spec/names/kind"),
    );
    let flag = |version: &Value, field: &str| version.get(field).and_then(Value::as_bool).unwrap_or(false);
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    // The order puts the better version first.
    let better = versions
        .into_iter()
        .flatten()
        .filter(|version| flag(version, "served") && !flag(version, "deprecated"))
        .map(|version| text(version, "/name"))
        .filter(|name| compare_versions(name, deprecated).is_lt())
        .min_by(|one, other| compare_versions(one, other));
    match better {
        Some(better) => format!("{group}/{deprecated} {kind} is deprecated; use {group}/{better} {kind}"),
        None => format!("{group}/{deprecated} {kind} is deprecated"),
    }
}

fn column_of(column: &Value) -> Column {
    let own = |field: &str| text(column, field).to_owned();
    Column {
        name: own("/name"),
        type_: own("/type"),
        format: own("/format"),
        description: own("/description"),
        priority: column
            .get("priority")
            .and_then(Value::as_i64)
            .and_then(|p| i32::try_from(p).ok())
            .unwrap_or(0),
        json_path: own("/jsonPath"),
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn texts<'v>(value: &'v Value, pointer: &str) -> Vec<&'v str> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn has_condition(definition: &Value, type_: &str, status: &str) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == type_ && condition["status"] == status)
}
