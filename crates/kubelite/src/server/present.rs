//! The shape of an answer: objects as they are, as rows of a table, or as metadata alone.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    error::ApiError,
    negotiate::{Encoding, MetaVersion, Shape},
    request::Query,
    server::{
        read::{Page, list_metadata},
        registry::Served,
    },
    store::Object,
    table::{self, IncludeObject, Printer},
};

/// Turns objects of one kind into what a client asked for.
#[derive(Debug)]
pub(crate) struct Presenter {
    served: Served,
    shape: Shape,
    include: IncludeObject,
    /// Made on first use; a watch sends its columns only once.
    printer: Option<Printer>,
    columns_sent: bool,
}

impl Presenter {
    pub(crate) fn new(served: Served, shape: Shape, query: &Query) -> Result<Self, ApiError> {
        let include = IncludeObject::parse(query.first("includeObject").unwrap_or(""))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        Ok(Self { served, shape, include, printer: None, columns_sent: false })
    }

    /// A stored object.
    pub(crate) fn stored(&mut self, object: &Object, encoding: Encoding, now: Timestamp) -> Result<Bytes, ApiError> {
        if let (Shape::Object, Encoding::Json, Some(raw)) = (self.shape, encoding, self.served.raw(object)) {
            return Ok(raw.clone());
        }
        let value = self.served.present(object);
        self.unsaved(&value, encoding, now)
    }

    /// An object that is not stored, or not any more.
    pub(crate) fn unsaved(&mut self, object: &Value, encoding: Encoding, now: Timestamp) -> Result<Bytes, ApiError> {
        let shaped = self.shape_one(object, now);
        Ok(encoding.encode(&shaped)?.into())
    }

    fn shape_one(&mut self, object: &Value, now: Timestamp) -> Value {
        match self.shape {
            Shape::Object => object.clone(),
            Shape::PartialObjectMetadata(version) | Shape::PartialObjectMetadataList(version) => {
                partial(object, version)
            }
            Shape::Table(version) => {
                let metadata = json!({ "resourceVersion": object.pointer("/metadata/resourceVersion") });
                self.table(std::slice::from_ref(object), &metadata, version, now, true)
            }
        }
    }

    /// A page of a list.
    pub(crate) fn page(&mut self, page: &Page, encoding: Encoding, now: Timestamp) -> Result<Bytes, ApiError> {
        if self.shape == Shape::Object && encoding == Encoding::Json {
            return Ok(self.raw_page(page));
        }
        let objects: Vec<Value> = page.objects.iter().map(|object| self.served.present(object)).collect();
        let metadata = list_metadata(page);
        let value = match self.shape {
            Shape::Object => json!({
                "kind": self.served.resource.list_kind,
                "apiVersion": self.served.api_version(),
                "metadata": metadata,
                "items": objects,
            }),
            Shape::PartialObjectMetadata(version) | Shape::PartialObjectMetadataList(version) => {
                let items: Vec<Value> = objects.iter().map(|object| partial(object, version)).collect();
                json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": version.api_version(),
                    "metadata": metadata,
                    "items": items,
                })
            }
            Shape::Table(version) => self.table(&objects, &metadata, version, now, true),
        };
        Ok(encoding.encode(&value)?.into())
    }

    /// A list put together from the stored bytes, which is what most of a busy server's work would otherwise be.
    fn raw_page(&self, page: &Page) -> Bytes {
        let head = json!({
            "kind": self.served.resource.list_kind,
            "apiVersion": self.served.api_version(),
            "metadata": list_metadata(page),
        })
        .to_string();
        let size: usize = page.objects.iter().map(|object| object.json.len() + 1).sum();
        let mut bytes = BytesMut::with_capacity(head.len() + size + 16);
        bytes.put_slice(&head.as_bytes()[..head.len() - 1]);
        bytes.put_slice(b",\"items\":[");
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
        bytes.freeze()
    }

    /// The object of a watch event.
    pub(crate) fn watched(&mut self, object: &Object, now: Timestamp) -> Bytes {
        if let (Shape::Object, Some(raw)) = (self.shape, self.served.raw(object)) {
            return raw.clone();
        }
        let value = self.served.present(object);
        let shaped = match self.shape {
            Shape::Table(version) => {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                let metadata = json!({ "resourceVersion": object.revision.to_string() });
                self.table(std::slice::from_ref(&value), &metadata, version, now, with_columns)
            }
            Shape::Object | Shape::PartialObjectMetadata(_) | Shape::PartialObjectMetadataList(_) => {
                self.shape_one(&value, now)
            }
        };
        shaped.to_string().into()
    }

    /// The object of a bookmark: nothing but a version.
    pub(crate) fn bookmark(&mut self, metadata: &Value) -> Value {
        match self.shape {
            Shape::Object => json!({
                "kind": self.served.resource.kind,
                "apiVersion": self.served.api_version(),
                "metadata": metadata,
            }),
            Shape::PartialObjectMetadata(version) | Shape::PartialObjectMetadataList(version) => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": version.api_version(),
                "metadata": metadata,
            }),
            Shape::Table(version) => {
                let object = json!({
                    "kind": self.served.resource.kind,
                    "apiVersion": self.served.api_version(),
                    "metadata": metadata,
                });
                let rows = json!([{ "cells": [], "object": partial(&object, version) }]);
                json!({
                    "kind": "Table",
                    "apiVersion": version.api_version(),
                    "metadata": { "resourceVersion": metadata["resourceVersion"] },
                    "columnDefinitions": null,
                    "rows": rows,
                })
            }
        }
    }

    fn table(
        &mut self,
        objects: &[Value],
        metadata: &Value,
        version: MetaVersion,
        now: Timestamp,
        with_columns: bool,
    ) -> Value {
        let served = &self.served;
        let printer = self.printer.get_or_insert_with(|| Printer::of(&served.resource, served.version()));
        table::render(printer, objects, metadata, version.api_version(), self.include, now, with_columns)
    }
}

fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": object.get("metadata"),
    })
}
