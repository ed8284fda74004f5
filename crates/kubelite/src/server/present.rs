//! The shape of an answer: objects as they are, as rows of a table, or as metadata alone.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    defects::{Defect, Defects},
    error::ApiError,
    negotiate::{Encoding, MetaVersion, Shape},
    request::Query,
    server::{read::Page, registry::Served},
    store::Object,
    table::{self, CompiledColumns, IncludeObject, Table},
};

/// Turns objects of one kind into what a client asked for.
#[derive(Debug)]
pub(crate) struct Presenter {
    served: Served,
    form: Form,
    include: IncludeObject,
    /// A watch sends its columns only once.
    columns_sent: bool,
}

/// What objects become, ready to be made.
#[derive(Debug)]
enum Form {
    Object,
    Metadata(MetaVersion),
    Table(MetaVersion, CompiledColumns),
}

impl Form {
    fn new(shape: Shape, served: &Served) -> Self {
        match shape {
            Shape::Object => Self::Object,
            Shape::PartialObjectMetadata(version) | Shape::PartialObjectMetadataList(version) => {
                Self::Metadata(version)
            }
            Shape::Table(version) => {
                let columns = served.resource.builtin.and_then(table::builtin::columns);
                Self::Table(
                    version,
                    columns.unwrap_or_else(|| CompiledColumns::custom(&served.version().columns)),
                )
            }
        }
    }
}

impl Presenter {
    pub(crate) fn new(
        served: Served,
        shape: Shape,
        query: &Query,
        defects: Defects,
    ) -> Result<Self, ApiError> {
        let wanted = query
            .first("includeObject")
            .filter(|_| !defects.has(Defect::IncludeObject));
        let include = IncludeObject::parse(wanted.unwrap_or(""))?;
        let form = Form::new(shape, &served);
        Ok(Self {
            served,
            form,
            include,
            columns_sent: false,
        })
    }

    /// A stored object.
    pub(crate) fn stored(
        &self,
        object: &Object,
        encoding: Encoding,
        now: Timestamp,
    ) -> Result<Bytes, ApiError> {
        if let (Form::Object, Encoding::Json, Some(raw)) = (&self.form, encoding, self.served.raw(object)) {
            return Ok(raw.clone());
        }
        let value = self.served.present(object);
        self.unsaved(&value, encoding, now)
    }

    /// An object that is not stored, or not any more.
    pub(crate) fn unsaved(
        &self,
        object: &Value,
        encoding: Encoding,
        now: Timestamp,
    ) -> Result<Bytes, ApiError> {
        let bytes = match &self.form {
            Form::Object => encoding.encode(object)?,
            Form::Metadata(version) => encoding.encode(&partial(object, *version))?,
            Form::Table(version, columns) => {
                encoding.encode(&dressed(&columns.object(object, self.include, now), *version))?
            }
        };
        Ok(bytes.into())
    }

    /// A page of a list.
    pub(crate) fn page(&self, page: &Page, encoding: Encoding, now: Timestamp) -> Result<Bytes, ApiError> {
        if matches!(self.form, Form::Object) && encoding == Encoding::Json {
            return self.raw_page(page);
        }
        let objects: Vec<Value> = page
            .objects
            .iter()
            .map(|object| self.served.present(object))
            .collect();
        let value = match &self.form {
            Form::Object => json!({
                "kind": self.served.resource.list_kind,
                "apiVersion": self.served.api_version(),
                "metadata": page.metadata,
                "items": objects,
            }),
            Form::Metadata(version) => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": version.api_version(),
                "metadata": page.metadata,
                "items": objects.iter().map(|object| partial(object, *version)).collect::<Vec<_>>(),
            }),
            Form::Table(version, columns) => dressed(
                &columns.list(&objects, page.metadata.clone(), self.include, now),
                *version,
            ),
        };
        Ok(encoding.encode(&value)?.into())
    }

    /// A list put together from the stored bytes, which need not be parsed and written again.
    fn raw_page(&self, page: &Page) -> Result<Bytes, ApiError> {
        let kind = json!(self.served.resource.list_kind);
        let api_version = json!(self.served.api_version());
        let mut metadata = serde_json::to_value(&page.metadata).map_err(ApiError::internal)?;
        if self.served.resource.is_custom() && page.metadata.continue_token.is_empty() {
            // Go writes lists of custom resources from a map, and there this member is always set.
            metadata["continue"] = "".into();
        }
        let size: usize = page.objects.iter().map(|object| object.json.len() + 1).sum();
        let mut bytes = BytesMut::with_capacity(size + 512);
        let head = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata},"items":["#);
        bytes.put_slice(head.as_bytes());
        for (position, object) in page.objects.iter().enumerate() {
            if position > 0 {
                bytes.put_u8(b',');
            }
            match self.served.raw(object) {
                Some(raw) => bytes.put_slice(raw),
                None => bytes.put_slice(self.served.present(object).to_string().as_bytes()),
            }
        }
        bytes.put_slice(b"]}\n");
        Ok(bytes.freeze())
    }

    /// The object of a watch event.
    pub(crate) fn watched(&mut self, object: &Object, now: Timestamp) -> Bytes {
        if let (Form::Object, Some(raw)) = (&self.form, self.served.raw(object)) {
            return raw.clone();
        }
        let value = self.served.present(object);
        self.event_object(&value, now)
    }

    /// The object of a bookmark: nothing but a version.
    pub(crate) fn bookmark(&mut self, metadata: &Value, now: Timestamp) -> Bytes {
        let object = json!({
            "kind": self.served.resource.kind,
            "apiVersion": self.served.api_version(),
            "metadata": metadata,
        });
        self.event_object(&object, now)
    }

    fn event_object(&mut self, object: &Value, now: Timestamp) -> Bytes {
        let shaped = match &self.form {
            Form::Object => return object.to_string().into(),
            Form::Metadata(version) => partial(object, *version),
            Form::Table(version, columns) => {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                dressed(&columns.event(object, self.include, now, with_columns), *version)
            }
        };
        shaped.to_string().into()
    }
}

fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object.get("metadata"),
    })
}

/// A table in the version that the client knows.
fn dressed(table: &Table<'_>, version: MetaVersion) -> Value {
    // A table is made of strings, numbers and JSON values, so this cannot fail.
    let mut value = serde_json::to_value(table).unwrap_or_default();
    value["apiVersion"] = version.api_version().into();
    value
}
