//! What the server counts about itself, for `/metrics`.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::store::Stats;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct RequestLabels {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    pub(crate) code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct VerbLabels {
    pub(crate) verb: &'static str,
}

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) seconds: Family<VerbLabels, Histogram>,
    pub(crate) watches_opened: Counter,
    pub(crate) gc_failures: Counter,
    pub(crate) namespace_failures: Counter,
    pub(crate) crd_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            // From a tenth of a millisecond to about three seconds.
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0001, 2.0, 15))),
            watches_opened: Counter::default(),
            gc_failures: Counter::default(),
            namespace_failures: Counter::default(),
            crd_failures: Counter::default(),
        }
    }
}

impl Metrics {
    /// How many steps of housekeeping have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.gc_failures.get() + self.namespace_failures.get() + self.crd_failures.get()
    }

    /// The Prometheus text of these counters and of the store's.
    pub(crate) fn render(&self, stats: &Stats) -> String {
        let mut registry = Registry::default();
        registry.register("apiserver_request", "Requests answered", self.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to the answer's head",
            self.seconds.clone(),
        );
        registry.register(
            "kubelite_watches_opened",
            "Watches opened",
            self.watches_opened.clone(),
        );
        registry.register(
            "kubelite_gc_failures",
            "Failed steps of garbage collection",
            self.gc_failures.clone(),
        );
        registry.register(
            "kubelite_namespace_failures",
            "Failed steps of namespace deletion",
            self.namespace_failures.clone(),
        );
        registry.register(
            "kubelite_crd_failures",
            "Failed steps of the definition controller",
            self.crd_failures.clone(),
        );
        for (name, help, value) in gauges(stats) {
            let gauge: Gauge<u64, AtomicU64> = Gauge::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

/// What the store counts: by name, with what it means.
fn gauges(stats: &Stats) -> [(&'static str, &'static str, u64); 10] {
    [
        (
            "kubelite_revision",
            "The newest version in the store",
            stats.revision,
        ),
        ("kubelite_objects", "Stored objects", stats.objects),
        (
            "kubelite_object_bytes",
            "The JSON of all stored objects",
            stats.bytes,
        ),
        (
            "kubelite_history_events",
            "Events kept for watches to resume from",
            stats.history_events,
        ),
        (
            "kubelite_history_bytes",
            "What those events take",
            stats.history_bytes,
        ),
        (
            "kubelite_transactions",
            "Transactions made durable",
            stats.transactions,
        ),
        (
            "kubelite_transactions_failed",
            "Transactions that the disk refused",
            stats.transactions_failed,
        ),
        ("kubelite_writes", "Writes in those transactions", stats.writes),
        (
            "kubelite_batch_writes_max",
            "The most writes that one transaction held",
            stats.batch_writes_max,
        ),
        (
            "kubelite_watches_dropped",
            "Watches ended because they fell behind",
            stats.watches_dropped,
        ),
    ]
}
