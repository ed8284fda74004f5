//! What is known when a manifest is planned: the documents, and the cluster where it may be asked.

use std::sync::Arc;

use jangar_api::Kind;
use jangar_engine::decision::Sight;
use serde::de::DeserializeOwned;

use crate::{error::Error, manifest::Document, transport::Transport};

/// The documents, and the way to the cluster unless it is not to be asked.
pub(super) struct World<'a> {
    pub documents: &'a [Document],
    pub transport: Option<&'a Transport>,
    pub namespace: String,
}

impl World<'_> {
    /// An object that something refers to: of the documents, else of the cluster.
    pub(super) async fn sight<K: DeserializeOwned>(&self, kind: Kind, name: &str) -> Result<Sight<K>, Error> {
        let written = self
            .documents
            .iter()
            .find(|document| document.kind() == Some(kind) && document.name() == name);
        let value = match (written, self.transport) {
            (Some(document), _) => Some(document.value.clone()),
            (None, Some(transport)) => transport
                .find(kind, &self.namespace, name)
                .await?
                .map(|object| object.value().clone()),
            (None, None) => None,
        };
        Ok(match value.map(serde_json::from_value) {
            None => Sight::Absent,
            Some(Ok(object)) => Sight::Seen(Arc::new(object)),
            Some(Err(error)) => Sight::Illegible(error.to_string()),
        })
    }
}
