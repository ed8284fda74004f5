//! Placeholder of the shape of the Events, until they are merged.

use jangar_engine::decision::Notice;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;

use crate::lease::Gate;

#[derive(Clone, Debug)]
pub struct Reporter;

impl Reporter {
    pub fn new(client: Client, identity: String) -> Self {
        let _ = (client, identity);
        Self
    }

    pub async fn publish(&self, gate: &Gate, about: &ObjectReference, notice: &Notice) {
        let _ = (gate, about, notice);
    }
}
