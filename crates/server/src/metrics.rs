//! What the control plane counts. Every label comes from a closed list: a kind, a route of the table, a method of the contract.

use std::{sync::atomic::AtomicU64, time::Duration};

use jangar_api::Kind;
use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

/// From what a look into a cache takes to the longest that a request may.
const SECONDS: [f64; 9] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Defines an enum together with the words that its variants have as values of a label.
macro_rules! label_values {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),+ }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
                use std::fmt::Write as _;
                encoder.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
    };
}

label_values! {
    /// What was asked about a caller, and how it was answered.
    Review {
        IdentityKnown = "identity_known",
        IdentityAsked = "identity_asked",
        AccessKnown = "access_known",
        AccessAsked = "access_asked",
        Unknown = "unknown_token",
        Refused = "refused",
    }
}

label_values! {
    /// What a watch delivered.
    WatchEvent {
        Listed = "listed",
        Applied = "applied",
        Deleted = "deleted",
        Failed = "failed",
    }
}

label_values! {
    /// How a client gets its answer.
    Protocol {
        Http = "http",
        Grpc = "grpc",
    }
}

label_values! {
    /// Why something that was promised is not there.
    Loss {
        Audit = "audit",
        Stream = "stream_behind",
        SlowClient = "slow_client",
        Unreadable = "unreadable_object",
        History = "history",
        Webhook = "webhook_status",
    }
}

label_values! {
    /// What is done with the history.
    HistoryAccess {
        Read = "read",
        Write = "write",
    }
}

label_values! {
    /// What came of it.
    HistoryResult {
        Done = "done",
        Refused = "refused",
        Failed = "failed",
    }
}

label_values! {
    /// What came of a delivery of a webhook, for one source.
    Webhook {
        Synced = "synced",
        Outdated = "outdated",
        Deduplicated = "deduplicated",
        Ignored = "ignored",
        Refused = "refused",
        Retried = "retried",
        Failed = "failed",
        Full = "queue_full",
    }
}

label_values! {
    /// What became of a certificate that was found in the files.
    CertificateLoad {
        Loaded = "loaded",
        Failed = "failed",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    protocol: Protocol,
    method: &'static str,
    route: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    protocol: Protocol,
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: &'static str,
    event: WatchEvent,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    result: Review,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: Protocol,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    what: Loss,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HistoryLabels {
    access: HistoryAccess,
    result: HistoryResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccessLabels {
    access: HistoryAccess,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    outcome: CertificateLoad,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MutationLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    provider: &'static str,
    outcome: Webhook,
}

/// The counters of one control plane.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    streams: Family<ProtocolLabels, Gauge>,
    reviews: Family<ReviewLabels, Counter>,
    identities: Gauge,
    watch_events: Family<WatchLabels, Counter>,
    stale_watches: Gauge,
    objects: Family<KindLabels, Gauge>,
    waiting: Gauge,
    approvals: Gauge,
    oldest_approval: Gauge,
    losses: Family<LossLabels, Counter>,
    mutations: Family<MutationLabels, Counter>,
    webhooks: Family<WebhookLabels, Counter>,
    database_up: Gauge,
    database_latency: Gauge<f64, AtomicU64>,
    history: Family<HistoryLabels, Counter>,
    history_seconds: Family<AccessLabels, Histogram, fn() -> Histogram>,
    certificates: Family<CertificateLabels, Counter>,
    certificate_outdated: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            streams: Family::default(),
            reviews: Family::default(),
            identities: Gauge::default(),
            watch_events: Family::default(),
            stale_watches: Gauge::default(),
            objects: Family::default(),
            waiting: Gauge::default(),
            approvals: Gauge::default(),
            oldest_approval: Gauge::default(),
            losses: Family::default(),
            mutations: Family::default(),
            webhooks: Family::default(),
            database_up: Gauge::default(),
            database_latency: Gauge::default(),
            history: Family::default(),
            history_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            certificates: Family::default(),
            certificate_outdated: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Puts all of them into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let registry = registry.sub_registry_with_prefix("jangar_control_plane");
        registry.register("requests", "Requests that were answered", all.requests.clone());
        registry.register(
            "request_seconds",
            "How long answers took; of a stream, its beginning",
            all.seconds.clone(),
        );
        registry.register("streams", "Streams that are open", all.streams.clone());
        registry.register("reviews", "Questions about callers", all.reviews.clone());
        registry.register(
            "identities",
            "Callers that are remembered",
            all.identities.clone(),
        );
        registry.register("watch_events", "What watches delivered", all.watch_events.clone());
        registry.register(
            "stale_watches",
            "Watches that have failed for more than a minute, so that what is told of their objects may be old",
            all.stale_watches.clone(),
        );
        registry.register("cached_objects", "Objects in the caches", all.objects.clone());
        registry.register(
            "waiting_runs",
            "AgentRuns that wait for their turn",
            all.waiting.clone(),
        );
        registry.register(
            "waiting_approvals",
            "Gates that wait for people",
            all.approvals.clone(),
        );
        registry.register_with_unit(
            "oldest_approval_timestamp",
            "Since when the gate waits that has waited longest, in seconds since 1970; 0 without one",
            Unit::Seconds,
            all.oldest_approval.clone(),
        );
        registry.register("losses", "What was promised and is not there", all.losses.clone());
        registry.register("mutations", "What was changed for callers", all.mutations.clone());
        registry.register("webhooks", "Deliveries of webhooks", all.webhooks.clone());
        registry.register(
            "database_up",
            "Whether the database answered when last asked; 0 without one",
            all.database_up.clone(),
        );
        registry.register_with_unit(
            "database_latency",
            "How long the database took when it answered last",
            Unit::Seconds,
            all.database_latency.clone(),
        );
        registry.register(
            "history_requests",
            "What was asked of the history, and what came of it",
            all.history.clone(),
        );
        registry.register(
            "history_request_seconds",
            "How long the history took",
            all.history_seconds.clone(),
        );
        registry.register(
            "certificate_loads",
            "Certificates that were found in the files of TLS",
            all.certificates.clone(),
        );
        registry.register(
            "certificate_outdated",
            "Whether the files of TLS hold what cannot be used, so that an older certificate is shown",
            all.certificate_outdated.clone(),
        );
        all
    }

    pub(crate) fn request(
        &self,
        protocol: Protocol,
        method: &'static str,
        route: &'static str,
        code: u16,
        took: Duration,
    ) {
        let labels = RequestLabels {
            protocol,
            method,
            route,
            code,
        };
        self.requests.get_or_create(&labels).inc();
        let labels = RouteLabels { protocol, route };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// One more stream, until the guard is dropped.
    pub(crate) fn stream(&self, protocol: Protocol) -> StreamGuard {
        let open = self.streams.get_or_create_owned(&ProtocolLabels { protocol });
        open.inc();
        StreamGuard(open)
    }

    pub(crate) fn review(&self, result: Review) {
        self.reviews.get_or_create(&ReviewLabels { result }).inc();
    }

    pub(crate) fn identities(&self, count: usize) {
        self.identities.set(whole(count));
    }

    pub(crate) fn watch_event(&self, kind: Kind, event: WatchEvent) {
        let kind = &kind.info().kind;
        self.watch_events
            .get_or_create(&WatchLabels { kind, event })
            .inc();
    }

    pub(crate) fn stale_watches(&self, count: usize) {
        self.stale_watches.set(whole(count));
    }

    pub(crate) fn objects(&self, kind: Kind, count: usize) {
        let kind = &kind.info().kind;
        self.objects.get_or_create(&KindLabels { kind }).set(whole(count));
    }

    pub(crate) fn waiting(&self, count: usize) {
        self.waiting.set(whole(count));
    }

    /// So many gates wait, the first of them since then.
    pub(crate) fn approvals(&self, waiting: usize, oldest: Option<Timestamp>) {
        self.approvals.set(whole(waiting));
        self.oldest_approval.set(oldest.map_or(0, Timestamp::as_second));
    }

    pub(crate) fn loss(&self, what: Loss) {
        self.losses.get_or_create(&LossLabels { what }).inc();
    }

    pub(crate) fn mutation(&self, action: &'static str, outcome: &'static str) {
        self.mutations
            .get_or_create(&MutationLabels { action, outcome })
            .inc();
    }

    pub(crate) fn webhook(&self, provider: &'static str, outcome: Webhook) {
        self.webhooks
            .get_or_create(&WebhookLabels { provider, outcome })
            .inc();
    }

    /// How long the database took; absent if it did not answer.
    pub(crate) fn database(&self, took: Option<Duration>) {
        self.database_up.set(i64::from(took.is_some()));
        if let Some(took) = took {
            self.database_latency.set(took.as_secs_f64());
        }
    }

    pub(crate) fn history(&self, access: HistoryAccess, result: HistoryResult, took: Duration) {
        self.history
            .get_or_create(&HistoryLabels { access, result })
            .inc();
        self.history_seconds
            .get_or_create(&AccessLabels { access })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn certificate(&self, outcome: CertificateLoad) {
        self.certificates
            .get_or_create(&CertificateLabels { outcome })
            .inc();
        self.certificate_outdated
            .set(i64::from(outcome == CertificateLoad::Failed));
    }
}

#[cfg(test)]
impl Metrics {
    pub(crate) fn certificates_counted(&self, outcome: CertificateLoad) -> u64 {
        self.certificates
            .get_or_create(&CertificateLabels { outcome })
            .get()
    }

    pub(crate) fn losses_counted(&self, what: Loss) -> u64 {
        self.losses.get_or_create(&LossLabels { what }).get()
    }

    pub(crate) fn streams_open(&self, protocol: Protocol) -> i64 {
        self.streams.get_or_create(&ProtocolLabels { protocol }).get()
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A stream that is counted as open.
#[derive(Debug)]
pub(crate) struct StreamGuard(Gauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
