//! How a body becomes a stored object: the steps that create, update, patch and apply share.
//!
//! The order is that of a Kubernetes API server: decode, report unknown fields, prune, default, fill in metadata, track who
//! owns which field, validate, commit. Everything up to the commit is computed from the body and the stored object alone.

use serde_json::{Value, json};

use crate::{
    apply,
    body::Decoded,
    builtin::{self, Builtin, Endpoint},
    clock,
    defects::Defect,
    error::{ApiError, Cause, Reason},
    field::{FieldError, FieldPath},
    names::NameRule,
    request::{FieldValidation, WriteOptions},
    schema,
    server::{Core, delete::removable, metadata, target::Target},
    store::{Change, CommitError, Expect, Object, Write},
};

/// How often a write that is not bound to a version is tried again after losing to another writer. Each loss means that
/// somebody else made progress, so only extreme contention on one object gets here.
const COMMIT_ATTEMPTS_MAX: usize = 100;
/// How long a lost write waits for the winner to become durable before it looks again.
pub(crate) const WINNER_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// A write request: everything but the body.
#[derive(Debug)]
pub(crate) struct WriteContext<'a> {
    pub(crate) core: &'a Core,
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions,
    /// The field manager: the query parameter, else the first word of the user agent.
    pub(crate) manager: &'a str,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Final,
    pub(crate) created: bool,
}

/// An object as the caller gets to see it.
#[derive(Debug)]
pub(crate) enum Final {
    Stored(Object),
    /// A dry run ends before the commit.
    Unsaved(Value),
}

impl WriteContext<'_> {
    /// Whether this server is wrong on purpose.
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.core.defects.has(defect)
    }

    /// Turns a body into a clean object of the target's kind, defaults filled in.
    pub(crate) fn take_in(&self, body: Decoded, warnings: &mut Vec<String>) -> Result<Value, ApiError> {
        let mut object = self.inspect(body, warnings)?;
        self.fill_defaults(&mut object);
        Ok(object)
    }

    /// As `take_in` for what came of the stored object. The `spec` of a pod, and that of a Job whose status is written, is mostly
    /// the stored one. It has been through all this then, and is by far the larger part.
    pub(crate) fn take_in_change(
        &self,
        mut body: Decoded,
        live: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value, ApiError> {
        let may_be_skipped = match self.target.served.resource.builtin {
            Some(Builtin::Pod) => true,
            Some(Builtin::Job) => self.target.endpoint == Endpoint::Status,
            _ => false,
        };
        if !may_be_skipped || body.value.get("spec") != live.get("spec") {
            return self.take_in(body, warnings);
        }
        let spec = metadata::root(&mut body.value).remove("spec");
        let mut object = self.take_in(body, warnings)?;
        if let Some(spec) = spec {
            metadata::root(&mut object).insert("spec".to_owned(), spec);
        }
        Ok(object)
    }

    /// Reports and drops unknown fields, and refuses values of a type that cannot be decoded.
    pub(crate) fn inspect(&self, body: Decoded, warnings: &mut Vec<String>) -> Result<Value, ApiError> {
        let Decoded {
            value: mut object,
            duplicates,
        } = body;
        if self.options.field_validation == FieldValidation::Ignore || self.has(Defect::FieldValidation) {
            self.coerce(&mut object, None)?;
        } else {
            let mut unknown = Vec::new();
            self.coerce(&mut object, Some(&mut unknown))?;
            let mut problems: Vec<String> = duplicates
                .into_iter()
                .map(|path| format!("duplicate field {path:?}"))
                .collect();
            problems.extend(unknown.into_iter().map(|path| format!("unknown field {path:?}")));
            self.report_unknown(problems, warnings)?;
        }
        Ok(object)
    }

    /// Drops what the schema does not know, and brings what it knows into the one form in which it is stored. A value of the
    /// wrong type cannot even be decoded in metadata and in built-in kinds; elsewhere it is invalid later.
    fn coerce(&self, object: &mut Value, mut unknown: Option<&mut Vec<String>>) -> Result<(), ApiError> {
        let served = &self.target.served;
        if served.resource.builtin.is_some() || !self.has(Defect::Pruning) {
            schema::prune::prune(object, &served.version().schema, true, unknown.as_deref_mut());
        }
        if let Some(kind) = served.resource.builtin {
            builtin::decode(kind, object).map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        if self.has(Defect::Annotations) {
            metadata::of(object).remove("annotations");
        }
        let metadata = metadata::root(object).entry("metadata").or_insert(Value::Null);
        schema::meta::coerce_object_meta(metadata, unknown)
            .map_err(|error| ApiError::bad_request(self.cannot_be_handled(&error)))
    }

    /// What Kubernetes says of a body that it cannot decode.
    fn cannot_be_handled(&self, why: &dyn std::fmt::Display) -> String {
        let served = &self.target.served;
        let kind = &served.resource.kind;
        format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {why}",
            served.version().name
        )
    }

    fn report_unknown(&self, problems: Vec<String>, warnings: &mut Vec<String>) -> Result<(), ApiError> {
        if problems.is_empty() {
            return Ok(());
        }
        if self.options.field_validation == FieldValidation::Warn {
            warnings.extend(problems);
            return Ok(());
        }
        let text = format!("strict decoding error: {}", problems.join(", "));
        Err(ApiError::bad_request(self.cannot_be_handled(&text)))
    }

    pub(crate) fn fill_defaults(&self, object: &mut Value) {
        match self.target.served.resource.builtin {
            Some(kind) => builtin::default(kind, object),
            None if self.has(Defect::Defaults) => {}
            None => schema::default::default_in_place(object, &self.target.served.version().schema),
        }
    }

    /// As `check_address`, for a body that must itself say which object it means.
    pub(crate) fn check_named_address(&self, object: &mut Value) -> Result<(), ApiError> {
        if metadata::text(object, "name").is_empty() {
            return Err(ApiError::bad_request(
                "the name of the object (based on URL) was undeterminable: name must be provided",
            ));
        }
        self.check_address(object)
    }

    /// Names and namespaces in the body must be those of the URL.
    pub(crate) fn check_address(&self, object: &mut Value) -> Result<(), ApiError> {
        let given = metadata::text(object, "namespace").to_owned();
        if self.target.namespace.is_empty() {
            // Cluster-scoped: a namespace in the body means nothing.
            metadata::of(object).remove("namespace");
        } else if given.is_empty() {
            metadata::set(object, "namespace", self.target.namespace.as_str());
        } else if given != self.target.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let name = metadata::text(object, "name").to_owned();
        if !self.target.name.is_empty() {
            if name.is_empty() {
                metadata::set(object, "name", self.target.name.as_str());
            } else if name != self.target.name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    self.target.name
                )));
            }
        }
        Ok(())
    }

    /// Fills in what the server decides about a new object, and validates it.
    pub(crate) fn prepare_new(&self, object: &mut Value) -> Result<(), ApiError> {
        let now = clock::seconds(self.core.clock.now());
        let resource = &self.target.served.resource;
        if !metadata::text(object, "resourceVersion").is_empty() && !self.has(Defect::VersionOfNew) {
            return Err(ApiError::new(
                Reason::Unknown,
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let prefix = metadata::text(object, "generateName").to_owned();
        if metadata::text(object, "name").is_empty() && !prefix.is_empty() {
            metadata::set(object, "name", self.core.ids.generated_name(&prefix));
        }
        metadata::set(object, "uid", self.core.ids.uid());
        metadata::set(object, "creationTimestamp", now.as_str());
        match resource.builtin {
            Some(kind) => builtin::prepare_create(kind, object),
            None => {
                metadata::set(object, "generation", 1);
                if self.target.served.version().has_status {
                    metadata::root(object).remove("status");
                }
            }
        }
        self.core.check_namespace(self.target, object)?;
        self.core.check_definition(self.target, object)?;
        let errors = self.validate_new(object);
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(
            self.target.subject_named(metadata::text(object, "name")),
            &errors,
        ))
    }

    fn validate_new(&self, object: &Value) -> Vec<FieldError> {
        let version = self.target.served.version();
        let none = Value::Null;
        let metadata = object.get("metadata").unwrap_or(&none);
        let path = FieldPath::new("metadata");
        let namespaced = !self.target.namespace.is_empty();
        match self.target.served.resource.builtin {
            Some(Builtin::CustomResourceDefinition) if self.has(Defect::Definitions) => Vec::new(),
            Some(kind) => {
                // Each built-in kind has a rule of its own for names, and asks it itself.
                let mut errors =
                    schema::meta::check_object_meta(metadata, NameRule::PathSegment, namespaced, &path);
                if kind == Builtin::CustomResourceDefinition {
                    errors.extend(super::crd::check_schemas(object));
                }
                extend_with_new(&mut errors, builtin::validate_create(kind, object));
                errors
            }
            None => {
                let errors =
                    schema::meta::check_object_meta(metadata, NameRule::Subdomain, namespaced, &path);
                let defects = self.core.defects;
                schema::check_custom_resource(object, None, &version.schema, &version.rules, errors, defects)
            }
        }
    }

    /// Carries over what an update may not change, counts the generation, tracks ownership, and validates.
    pub(crate) fn prepare_change(
        &self,
        new: &mut Value,
        old: &Value,
        ownership: Ownership,
    ) -> Result<(), ApiError> {
        match self.target.served.resource.builtin {
            Some(kind) => builtin::prepare_update(kind, self.target.endpoint, new, old),
            None => self.prepare_custom(new, old),
        }
        carry_over(new, old);
        if ownership == Ownership::Track {
            self.track(Some(old), new);
        }
        let errors = self.validate_change(new, old);
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(self.target.subject(), &errors))
    }

    /// Splits status from the rest, as the endpoint demands, and counts the generation.
    fn prepare_custom(&self, new: &mut Value, old: &Value) {
        let has_status = self.target.served.version().has_status;
        if self.target.endpoint == Endpoint::Status {
            // The status endpoint changes nothing but the status.
            metadata::reset_but_status(new, old);
        } else if has_status {
            metadata::carry_top(new, old, "status");
        }
        let before = metadata::number(old, "generation").unwrap_or(1);
        let changed = !same_but_metadata_and_status(new, old, has_status);
        metadata::set(new, "generation", if changed { before + 1 } else { before });
    }

    fn validate_change(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let version = self.target.served.version();
        let none = Value::Null;
        let (metadata, old_metadata) = (
            new.get("metadata").unwrap_or(&none),
            old.get("metadata").unwrap_or(&none),
        );
        let path = FieldPath::new("metadata");
        let namespaced = !self.target.namespace.is_empty();
        let mut errors = schema::meta::check_object_meta(metadata, NameRule::PathSegment, namespaced, &path);
        let update = schema::meta::check_object_meta_update(metadata, old_metadata, &path);
        errors.extend(update.iter().cloned());
        match self.target.served.resource.builtin {
            Some(Builtin::ConfigMap) if self.has(Defect::Immutability) => errors,
            Some(kind) => {
                let changes_spec =
                    self.target.endpoint == Endpoint::Main && new.get("spec") != old.get("spec");
                if kind == Builtin::CustomResourceDefinition && changes_spec {
                    errors.extend(super::crd::check_schemas(new));
                }
                extend_with_new(
                    &mut errors,
                    builtin::validate_update(kind, self.target.endpoint, new, old),
                );
                errors
            }
            None => {
                // Kubernetes asks about the metadata twice, for all kinds and for this one, and lists the causes twice too.
                errors.extend(update);
                let defects = self.core.defects;
                schema::check_custom_resource(
                    new,
                    Some(old),
                    &version.schema,
                    &version.rules,
                    errors,
                    defects,
                )
            }
        }
    }

    /// Who is writing, for `managedFields`.
    pub(crate) fn writer<'w>(&'w self, api_version: &'w str, time: &'w str) -> apply::Writer<'w> {
        apply::Writer {
            manager: self.manager,
            api_version,
            subresource: self.target.endpoint.subresource(),
            time,
        }
    }

    /// Gives a new object its owner, before the server fills in anything of its own.
    pub(crate) fn track_new(&self, object: &mut Value) {
        // What only the server sets is not the client's to own.
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
        ] {
            metadata::of(object).remove(field);
        }
        if self.target.served.version().has_status {
            metadata::root(object).remove("status");
        }
        // Some members are always there in Go's types, so that nobody owns their mere presence.
        let skeleton = self.target.served.resource.builtin.map(|kind| {
            let mut empty = json!({});
            // Nothing in an empty object can be of a wrong type.
            let _ = builtin::decode(kind, &mut empty);
            empty
        });
        self.track(skeleton.as_ref(), object);
    }

    fn track(&self, live: Option<&Value>, new: &mut Value) {
        let time = clock::seconds(self.core.clock.now());
        let api_version = self.target.served.api_version();
        apply::track_update(
            live,
            new,
            &self.target.served.version().schema,
            self.writer(&api_version, &time),
        );
    }

    /// Stores a new object.
    pub(crate) async fn insert(&self, object: Value) -> Result<Written, ApiError> {
        let name = metadata::text(&object, "name").to_owned();
        let mut target = self.target.clone();
        target.name = name;
        if self.options.dry_run && !self.has(Defect::DryRun) {
            if self
                .core
                .store
                .get(&target.served.resource.collection, &target.key())
                .is_some()
            {
                return Err(ApiError::already_exists(target.subject()));
            }
            return Ok(Written {
                object: Final::Unsaved(object),
                created: true,
            });
        }
        let write = Write {
            collection: target.served.resource.collection.clone(),
            key: target.key(),
            expect: Expect::Absent,
            change: Change::Put(target.served.to_storage(object)),
        };
        let stored = self.core.store.commit(write).await.map_err(|error| {
            match self
                .core
                .store
                .get(&target.served.resource.collection, &target.key())
            {
                Some(found) if error == CommitError::Exists && found.meta.deleting => {
                    let mut error = ApiError::already_exists(target.subject());
                    error.message = format!("object is being deleted: {}", error.message);
                    error
                }
                _ => commit_error(error, &target),
            }
        })?;
        Ok(Written {
            object: Final::Stored(stored),
            created: true,
        })
    }

    /// Stores a changed object over the one it was computed from; `None` when somebody else was faster.
    pub(crate) async fn replace(&self, old: &Object, new: Value) -> Result<Option<Written>, ApiError> {
        let finished = metadata::is_deleting(&new)
            && metadata::finalizers(&new).is_empty()
            && metadata::number(&new, "deletionGracePeriodSeconds").unwrap_or(0) == 0
            && removable(self.target, &new);
        if self.options.dry_run && !self.has(Defect::DryRun) {
            return Ok(Some(Written {
                object: Final::Unsaved(new),
                created: false,
            }));
        }
        let new = self.target.served.to_storage(new);
        let write = Write {
            collection: self.target.served.resource.collection.clone(),
            key: self.target.key(),
            expect: Expect::Revision(old.revision),
            change: if finished {
                Change::Delete(new)
            } else {
                Change::Put(new)
            },
        };
        match self.core.store.commit(write).await {
            Ok(stored) => Ok(Some(Written {
                object: Final::Stored(stored),
                created: false,
            })),
            Err(CommitError::Conflict { current }) => {
                // The winner may not be durable yet, and reading before it is would only lose again. If it never becomes
                // durable, the next attempt finds the old state and may win.
                let _ = tokio::time::timeout(WINNER_WAIT, self.core.store.wait_for(current)).await;
                Ok(None)
            }
            Err(CommitError::NotFound) => Ok(None),
            Err(error) => Err(commit_error(error, self.target)),
        }
    }

    /// Computes a new object from the current one until the result is stored. A result equal to what is there is not written.
    pub(crate) async fn until_stored<F>(
        &self,
        ownership: Ownership,
        mut attempt: F,
    ) -> Result<Written, ApiError>
    where
        F: FnMut(&Value) -> Result<Value, ApiError>,
    {
        for _ in 0..COMMIT_ATTEMPTS_MAX {
            let Some(old) = self
                .core
                .store
                .get(&self.target.served.resource.collection, &self.target.key())
            else {
                return Err(ApiError::not_found(self.target.subject()));
            };
            let live = self.target.served.present(&old);
            let mut new = attempt(&live)?;
            self.prepare_change(&mut new, &live, ownership)?;
            apply::keep_times_of_noop(&live, &mut new);
            if new == live {
                return Ok(Written {
                    object: Final::Stored(old),
                    created: false,
                });
            }
            if let Some(written) = self.replace(&old, new).await? {
                return Ok(written);
            }
        }
        Err(ApiError::conflict(self.target.subject(), MODIFIED))
    }
}

fn commit_error(error: CommitError, target: &Target) -> ApiError {
    match error {
        CommitError::Exists => ApiError::already_exists(target.subject()),
        CommitError::NotFound => ApiError::not_found(target.subject()),
        CommitError::Conflict { .. } => ApiError::conflict(target.subject(), MODIFIED),
        other => storage_error(&other),
    }
}

/// Whether `managedFields` of a changed object still have to be computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ownership {
    /// An ordinary write: what it changed belongs to its manager.
    Track,
    /// Server-side apply has decided already.
    Decided,
}

pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A failure of the storage below, as the caller sees it.
pub(crate) fn storage_error(error: &CommitError) -> ApiError {
    match error {
        CommitError::TooLarge { .. } => ApiError::new(Reason::RequestEntityTooLarge, error.to_string()),
        CommitError::Closed => ApiError::new(Reason::ServiceUnavailable, error.to_string()),
        // The object is at fault, not the disk.
        CommitError::Invalid(_) => ApiError::bad_request(error.to_string()),
        _ => ApiError::internal(error).with_cause(Cause {
            reason: "StorageUnavailable".to_owned(),
            message: error.to_string(),
            field: String::new(),
        }),
    }
}

/// Adds what was not found before.
fn extend_with_new(errors: &mut Vec<FieldError>, more: Vec<FieldError>) {
    for error in more {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
}

/// Puts back what no update may change.
fn carry_over(new: &mut Value, old: &Value) {
    if metadata::text(new, "uid").is_empty() {
        metadata::carry(new, old, "uid");
    }
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "selfLink",
        "resourceVersion",
    ] {
        metadata::carry(new, old, field);
    }
    if metadata::number(new, "deletionGracePeriodSeconds").is_none() {
        metadata::carry(new, old, "deletionGracePeriodSeconds");
    }
}

/// Whether two objects differ only in `metadata` and, where it has an endpoint of its own, `status`.
fn same_but_metadata_and_status(one: &Value, two: &Value, split_status: bool) -> bool {
    let (Value::Object(one), Value::Object(two)) = (one, two) else {
        return one == two;
    };
    let counts = |field: &str| field != "metadata" && !(split_status && field == "status");
    one.iter()
        .all(|(field, value)| !counts(field) || two.get(field) == Some(value))
        && two.keys().all(|field| !counts(field) || one.contains_key(field))
}
