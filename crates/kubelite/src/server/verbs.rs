//! Create, update and patch: each decides what the new object is, and leaves the rest to `write`.

use serde_json::Value;

use crate::{
    apply::{self, Reset},
    body::{self, Decoded},
    builtin::{Builtin, Endpoint},
    clock,
    defects::Defect,
    error::{ApiError, Reason, Subject},
    field::{FieldError, FieldPath},
    patch::{self, PatchKind},
    request::FieldValidation,
    server::{
        metadata,
        write::{MODIFIED, Ownership, WriteContext, Written},
    },
};

impl WriteContext<'_> {
    /// `POST`: a new object from a body.
    pub(crate) async fn create(
        &self,
        body: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<Written, ApiError> {
        let mut object = self.take_in(body, warnings)?;
        self.check_address(&mut object)?;
        self.track_new(&mut object);
        self.prepare_new(&mut object)?;
        warn_of_finalizers(&object, warnings);
        self.insert(object).await
    }

    /// `PUT`: a whole object in place of the stored one.
    pub(crate) async fn update(
        &self,
        body: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<Written, ApiError> {
        let mut object = self.take_in(body, warnings)?;
        self.check_named_address(&mut object)?;
        let absent = self
            .core
            .store
            .get(&self.target.served.resource.collection, &self.target.key())
            .is_none();
        let builtin = self.target.served.resource.builtin;
        if absent && builtin.is_some_and(Builtin::creates_on_update) {
            if !metadata::text(&object, "uid").is_empty() {
                return Err(ApiError::conflict(
                    self.target.subject(),
                    gone_precondition(&object),
                ));
            }
            metadata::of(&mut object).remove("resourceVersion");
            self.track_new(&mut object);
            self.prepare_new(&mut object)?;
            return self.insert(object).await;
        }
        self.until_stored(Ownership::Track, |live| {
            self.check_version(&object, live)?;
            Ok(object.clone())
        })
        .await
    }

    /// An update names the version it was made from, where the kind demands it, and the object it means.
    fn check_version(&self, new: &Value, live: &Value) -> Result<(), ApiError> {
        let builtin = self.target.served.resource.builtin;
        let uid = metadata::text(new, "uid");
        let live_uid = metadata::text(live, "uid");
        if !uid.is_empty() && uid != live_uid {
            return Err(ApiError::conflict(
                self.target.subject(),
                self.wrong_uid(uid, live_uid),
            ));
        }
        let version = metadata::text(new, "resourceVersion");
        if version.is_empty() {
            if builtin.is_some_and(Builtin::allows_unconditional_update) {
                return Ok(());
            }
            let missing = FieldError::invalid(
                FieldPath::new("metadata.resourceVersion"),
                0,
                "must be specified for an update",
            );
            // Here Kubernetes names the resource where it otherwise names the kind.
            let subject = Subject {
                kind: &self.target.served.resource.plural,
                ..self.target.subject()
            };
            return Err(ApiError::invalid(subject, &[missing]));
        }
        if version == metadata::text(live, "resourceVersion") || self.has(Defect::Versions) {
            return Ok(());
        }
        if version.parse::<u64>().is_err() {
            let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            return Err(ApiError::new(Reason::Unknown, why));
        }
        Err(ApiError::conflict(self.target.subject(), MODIFIED))
    }

    /// `PATCH` of each type.
    pub(crate) async fn patch(
        &self,
        kind: PatchKind,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Written, ApiError> {
        if kind == PatchKind::Apply {
            return self.apply(body, warnings).await;
        }
        self.until_stored(Ownership::Track, |live| {
            let patched = match kind {
                PatchKind::Json => patch::json::apply(live.clone(), body)?,
                PatchKind::Merge if self.has(Defect::Nulls) => {
                    patch::merge::apply_without_nulls(live.clone(), body)?
                }
                PatchKind::Merge => patch::merge::apply(live.clone(), body)?,
                PatchKind::Strategic | PatchKind::Apply => {
                    patch::strategic::apply(live.clone(), body, &self.target.served.version().schema)?
                }
            };
            self.check_kind(&patched, live)?;
            let version = metadata::text(&patched, "resourceVersion");
            if !version.is_empty() && version != metadata::text(live, "resourceVersion") {
                return Err(ApiError::conflict(self.target.subject(), MODIFIED));
            }
            // Another attempt reports the same things again.
            warnings.clear();
            let mut new = self
                .take_in_change(
                    Decoded {
                        value: patched,
                        duplicates: Vec::new(),
                    },
                    live,
                    warnings,
                )
                .map_err(|error| bad_result(error, body))?;
            self.check_named_address(&mut new)?;
            warn_of_finalizers(&new, warnings);
            Ok(new)
        })
        .await
    }

    /// A patch cannot turn an object into one of another kind.
    fn check_kind(&self, patched: &Value, live: &Value) -> Result<(), ApiError> {
        let served = &self.target.served;
        let text =
            |object: &Value, field: &str| object.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        let (given, expected) = (text(patched, "apiVersion"), text(live, "apiVersion"));
        if given != expected {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        let kind = text(patched, "kind");
        if kind != served.resource.kind {
            return Err(body::wrong_kind(
                &kind,
                &served.resource,
                &served.version().name,
                patched,
            ));
        }
        Ok(())
    }

    fn wrong_uid(&self, wanted: &str, found: &str) -> String {
        let resource = &self.target.served.resource;
        let group = if resource.is_custom() {
            format!("{}/", resource.group)
        } else {
            String::new()
        };
        format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{}/{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            resource.plural, self.target.namespace, self.target.name
        )
    }

    /// Server-side apply: creates what is absent, merges into what is there.
    async fn apply(&self, body: &[u8], warnings: &mut Vec<String>) -> Result<Written, ApiError> {
        let decoded = body::decode(body, body::Format::Yaml).map_err(|error| {
            ApiError::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: {error}"
            ))
        })?;
        let duplicates: Vec<String> = decoded
            .duplicates
            .iter()
            .map(|path| format!("duplicate field {path:?}"))
            .collect();
        match self.options.field_validation {
            FieldValidation::Strict if !duplicates.is_empty() => {
                let text = format!("error strict decoding YAML: {}", duplicates.join(", "));
                return Err(ApiError::bad_request(text));
            }
            FieldValidation::Strict | FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(duplicates),
        }
        // Neither pruned nor defaulted: what the schema does not know is an error of its own, and the applier owns what it
        // said, not what it left open.
        let applied = decoded.value;
        if applied.is_object() {
            self.check_address(&mut applied.clone())?;
        }
        // Creating may lose to another creator; then there is something to merge into.
        let present = self
            .core
            .store
            .get(&self.target.served.resource.collection, &self.target.key())
            .is_some();
        if !present {
            match self.apply_new(&applied).await {
                Err(error) if error.reason == Reason::AlreadyExists => {}
                other => return other,
            }
        }
        self.until_stored(Ownership::Decided, |live| {
            let version = metadata::text(&applied, "resourceVersion");
            if !version.is_empty() && version != metadata::text(live, "resourceVersion") {
                return Err(ApiError::conflict(self.target.subject(), MODIFIED));
            }
            self.merge_applied(Some(live), &applied)
        })
        .await
    }

    async fn apply_new(&self, applied: &Value) -> Result<Written, ApiError> {
        if self.target.endpoint != Endpoint::Main {
            return Err(ApiError::not_found(self.target.subject()));
        }
        if !metadata::text(applied, "uid").is_empty() {
            return Err(ApiError::conflict(
                self.target.subject(),
                gone_precondition(applied),
            ));
        }
        let mut object = self.merge_applied(None, applied)?;
        self.prepare_new(&mut object)?;
        self.insert(object).await
    }

    fn merge_applied(&self, live: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
        let time = clock::seconds(self.core.clock.now());
        let api_version = self.target.served.api_version();
        let version = self.target.served.version();
        let mut merged = apply::apply(
            live,
            applied,
            &version.schema,
            self.writer(&api_version, &time),
            Reset::of(self.target.endpoint.subresource(), version.has_status),
            self.options.force || self.has(Defect::Conflicts),
        )?;
        self.check_address(&mut merged)?;
        // What is unknown in the result was there before, so nobody needs to hear of it.
        self.take_in(
            Decoded {
                value: merged,
                duplicates: Vec::new(),
            },
            &mut Vec::new(),
        )
    }
}

/// A patch whose result cannot be decoded is an invalid patch, in the words of Kubernetes.
fn bad_result(error: ApiError, patch: &[u8]) -> ApiError {
    if error.reason != Reason::BadRequest {
        return error;
    }
    let why = error
        .message
        .split_once(": ")
        .map_or(error.message.as_str(), |(_, why)| why);
    let wrong = FieldError::invalid(FieldPath::new("patch"), String::from_utf8_lossy(patch), why);
    ApiError::invalid(
        Subject {
            group: "",
            resource: "",
            kind: "",
            name: "",
        },
        &[wrong],
    )
}

/// Finalizers without a domain are accepted, with a warning.
fn warn_of_finalizers(object: &Value, warnings: &mut Vec<String>) {
    let known = ["orphan", "foregroundDeletion", "kubernetes"];
    for finalizer in metadata::finalizers(object) {
        if !finalizer.contains('/') && !known.contains(&finalizer) {
            warnings.push(format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental \
                 conflicts with other finalizer writers"
            ));
        }
    }
}

fn gone_precondition(object: &Value) -> String {
    format!(
        "Precondition failed: UID in precondition: {}, UID in object meta: ",
        metadata::text(object, "uid")
    )
}
