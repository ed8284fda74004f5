//! Placeholder of the shape of the metrics, until they are merged.

use prometheus_client::registry::Registry;

use crate::caches::CachedKind;

#[derive(Debug)]
pub struct Metrics;

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let _ = registry;
        Self
    }

    pub fn reconciled(&self, controller: &'static str, outcome: &'static str) {
        let _ = (controller, outcome);
    }

    pub fn backlog(&self, controller: &'static str, keys: usize) {
        let _ = (controller, keys);
    }

    pub fn barrier_expired(&self, controller: &'static str) {
        let _ = controller;
    }

    pub fn unreadable(&self, kind: CachedKind) {
        let _ = kind;
    }

    pub fn watch_failed(&self, kind: CachedKind) {
        let _ = kind;
    }
}
