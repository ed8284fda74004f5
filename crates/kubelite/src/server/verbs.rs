//! Create, update and patch: each decides what the new object is, and leaves the rest to `write`.

use serde_json::Value;

use crate::{
    apply::{self, Reset},
    body::{self, Decoded},
    builtin::{Builtin, Endpoint},
    clock,
    error::{ApiError, Reason},
    field::{FieldError, FieldPath},
    patch::{self, PatchKind},
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
        if metadata::text(&object, "name").is_empty() && metadata::text(&object, "generateName").is_empty() {
            let missing =
                FieldError::required(FieldPath::new("metadata.name"), "name or generateName is required");
            return Err(ApiError::invalid(self.target.subject_named(""), &[missing]));
        }
        self.prepare_new(&mut object)?;
        self.track(None, &mut object);
        self.insert(object).await
    }

    /// `PUT`: a whole object in place of the stored one.
    pub(crate) async fn update(
        &self,
        body: Decoded,
        warnings: &mut Vec<String>,
    ) -> Result<Written, ApiError> {
        let mut object = self.take_in(body, warnings)?;
        self.check_address(&mut object)?;
        let absent =
            self.core.store.get(&self.target.served.resource.collection, &self.target.key()).is_none();
        if absent && self.creates_on_update() {
            if !metadata::text(&object, "uid").is_empty() {
                return Err(ApiError::conflict(self.target.subject(), gone_precondition(&object)));
            }
            metadata::of(&mut object).remove("resourceVersion");
            self.prepare_new(&mut object)?;
            self.track(None, &mut object);
            return self.insert(object).await;
        }
        self.until_stored(Ownership::Track, |live| {
            self.check_version(&object, live)?;
            Ok(object.clone())
        })
        .await
    }

    fn creates_on_update(&self) -> bool {
        matches!(
            self.target.served.resource.builtin,
            Some(Builtin::Lease | Builtin::CoreEvent | Builtin::Event)
        )
    }

    /// An update names the version it was made from, where the kind demands it, and the object it means.
    fn check_version(&self, new: &Value, live: &Value) -> Result<(), ApiError> {
        let uid = metadata::text(new, "uid");
        let live_uid = metadata::text(live, "uid");
        if !uid.is_empty() && uid != live_uid {
            return Err(ApiError::conflict(
                self.target.subject(),
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {live_uid}"),
            ));
        }
        let version = metadata::text(new, "resourceVersion");
        if version.is_empty() {
            let needed = match self.target.served.resource.builtin {
                Some(kind) => matches!(kind, Builtin::Lease | Builtin::CustomResourceDefinition),
                None => true,
            };
            if !needed {
                return Ok(());
            }
            let missing = FieldError::invalid(
                FieldPath::new("metadata.resourceVersion"),
                0,
                "must be specified for an update",
            );
            return Err(ApiError::invalid(self.target.subject(), &[missing]));
        }
        if version == metadata::text(live, "resourceVersion") {
            return Ok(());
        }
        if version.parse::<u64>().is_err() {
            let wrong = FieldError::invalid(
                FieldPath::new("metadata.resourceVersion"),
                version,
                "must be an unsigned integer",
            );
            return Err(ApiError::invalid(self.target.subject(), &[wrong]));
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
            return self.apply(body).await;
        }
        self.until_stored(Ownership::Track, |live| {
            let patched = match kind {
                PatchKind::Json => patch::json::apply(live.clone(), body)?,
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
            let mut new = self.take_in(Decoded { value: patched, duplicates: Vec::new() }, warnings)?;
            self.check_address(&mut new)?;
            Ok(new)
        })
        .await
    }

    /// A patch cannot turn an object into one of another kind.
    fn check_kind(&self, patched: &Value, live: &Value) -> Result<(), ApiError> {
        for field in ["apiVersion", "kind"] {
            if patched.get(field) != live.get(field) {
                let given = patched.get(field).map(ToString::to_string).unwrap_or_default();
                let expected = live.get(field).map(ToString::to_string).unwrap_or_default();
                return Err(ApiError::bad_request(format!(
                    "the {field} in the data ({given}) does not match the expected {field} ({expected})"
                )));
            }
        }
        Ok(())
    }

    /// Server-side apply: creates what is absent, merges into what is there.
    async fn apply(&self, body: &[u8]) -> Result<Written, ApiError> {
        let served = &self.target.served;
        let decoded =
            body::decode_object(body, body::Format::Yaml, &served.resource, &served.version().name)?;
        // Neither pruned nor defaulted: what the schema does not know is an error of its own, and the applier owns what it
        // said, not what it left open.
        let mut applied = decoded.value;
        self.check_address(&mut applied)?;
        // Creating may lose to another creator; then there is something to merge into.
        let present =
            self.core.store.get(&self.target.served.resource.collection, &self.target.key()).is_some();
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
            let mut merged = self.merge_applied(Some(live), &applied)?;
            self.fill_defaults(&mut merged);
            Ok(merged)
        })
        .await
    }

    async fn apply_new(&self, applied: &Value) -> Result<Written, ApiError> {
        if self.target.endpoint != Endpoint::Main {
            return Err(ApiError::not_found(self.target.subject()));
        }
        if !metadata::text(applied, "uid").is_empty() {
            return Err(ApiError::conflict(self.target.subject(), gone_precondition(applied)));
        }
        let mut object = self.merge_applied(None, applied)?;
        self.fill_defaults(&mut object);
        self.prepare_new(&mut object)?;
        self.insert(object).await
    }

    fn merge_applied(&self, live: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
        let time = clock::seconds(self.core.clock.now());
        let api_version = self.target.served.api_version();
        let version = self.target.served.version();
        apply::apply(
            live,
            applied,
            &version.schema,
            self.writer(&api_version, &time),
            Reset::of(self.target.endpoint.subresource(), version.has_status),
            self.options.force,
        )
        .map_err(ApiError::from)
    }
}

fn gone_precondition(object: &Value) -> String {
    format!(
        "Precondition failed: UID in precondition: {}, UID in object meta: ",
        metadata::text(object, "uid")
    )
}
