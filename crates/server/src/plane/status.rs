//! How the control plane is, and what there is in numbers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, stream};
use jangar_api::Kind;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::{
    Caller, ControlPlane, live,
    objects::{ListQuery, checked_namespace},
};
use crate::{
    refusal::{Refusal, Trouble},
    world::Filter,
};

pub const SERVICE: &str = "jangar";
/// How old what is told of the Lease may be: shorter than anybody needs to take the lead.
const LEASE_AGE: Duration = Duration::from_secs(2);

/// How often a stream looks whether the status is another one. Who reads it wants to know that something broke, not how often.
const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// When the Lease was read, and what it was.
pub(super) type KnownLease = (Instant, Result<Option<Lease>, Refusal>);

/// The status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatusDocument {
    pub service: String,
    pub generated_at: String,
    pub leader_election: LeaderElection,
    pub controllers: Vec<ControllerHealth>,
    pub runtime_adapters: Vec<Health>,
    pub database: Database,
    pub grpc: Grpc,
    pub tls: Tls,
    pub namespaces: Vec<NamespaceHealth>,
}

impl StatusDocument {
    /// Whether another one says the same, whenever it was made and however fast the database answered.
    fn is_as(&self, other: &Self) -> bool {
        let lasting = |status: &Self| {
            let mut status = status.clone();
            status.generated_at.clear();
            status.database.latency_ms = 0;
            for controller in &mut status.controllers {
                controller.last_checked_at.clear();
            }
            status
        };
        lasting(self) == lasting(other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeaderElection {
    pub enabled: bool,
    pub lease_name: String,
    pub lease_namespace: String,
    /// Who holds the Lease; absent if nobody does, or nobody here may know.
    pub holder: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ControllerHealth {
    pub name: String,
    pub enabled: bool,
    pub started: bool,
    pub crds_ready: bool,
    pub missing_crds: Vec<String>,
    pub last_checked_at: String,
    pub status: Word,
    pub message: String,
}

/// How something is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    Healthy,
    Degraded,
    Disabled,
    Unknown,
}

impl Word {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Disabled => "disabled",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Health {
    pub name: String,
    pub available: bool,
    pub status: Word,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Database {
    pub configured: bool,
    pub connected: bool,
    pub status: Word,
    pub message: String,
    pub latency_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Grpc {
    pub enabled: bool,
    pub address: String,
    pub status: Word,
    pub message: String,
}

/// How HTTP and gRPC are encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tls {
    pub enabled: bool,
    pub status: Word,
    /// Why the certificate in the files is not the one that callers are shown.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NamespaceHealth {
    pub namespace: String,
    pub status: Word,
    pub degraded_components: Vec<String>,
}

/// How many objects of a kind there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counted {
    pub total: usize,
    /// Of runs: how many are in each phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<BTreeMap<String, usize>>,
}

/// A controller, the kinds it cannot do without, and whether the settings want it.
type Row = (&'static str, &'static [Kind], bool);

impl ControlPlane {
    /// How everything is, for a namespace that the caller may look at.
    pub async fn status(&self, caller: &Caller, namespace: Option<&str>) -> Result<StatusDocument, Refusal> {
        let namespace = self.namespace(namespace)?;
        self.require_list(caller, Kind::AgentRun, Some(&namespace))
            .await?;
        let now = self.now();
        let (leader, led) = self.leader(now).await;
        let controllers = self.controllers(&namespace, led, now);
        let degraded: Vec<String> = controllers
            .iter()
            .filter(|controller| controller.status == Word::Degraded)
            .map(|controller| controller.name.clone())
            .collect();
        let database = self.database().await;
        Ok(StatusDocument {
            service: SERVICE.to_owned(),
            generated_at: now.to_string(),
            leader_election: leader,
            runtime_adapters: self.adapters(),
            grpc: self.grpc(),
            tls: self.tls(),
            namespaces: vec![NamespaceHealth {
                namespace,
                status: if degraded.is_empty() {
                    Word::Healthy
                } else {
                    Word::Degraded
                },
                degraded_components: degraded,
            }],
            controllers,
            database,
        })
    }

    /// The status of a namespace, and again whenever it has become another one. Whoever may not have it gets none, and still none
    /// is kept for whoever does not read: a change that was not read is told with the next.
    pub(crate) fn statuses(
        self: &Arc<Self>,
        caller: Caller,
        namespace: String,
    ) -> impl Stream<Item = StatusDocument> + Send + use<> {
        let plane = Arc::clone(self);
        let begun = (plane, caller, namespace, None::<StatusDocument>, true);
        stream::unfold(
            begun,
            |(plane, caller, namespace, mut told, mut first)| async move {
                loop {
                    if !std::mem::take(&mut first) {
                        tokio::time::sleep(STATUS_PERIOD).await;
                    }
                    // Apart, so that a stream is small while it waits.
                    let status = match Box::pin(plane.status(&caller, Some(&namespace))).await {
                        Ok(status) => status,
                        // Who may not have it at the beginning will not be asked about again and again.
                        Err(refusal)
                            if told.is_none()
                                && matches!(refusal.trouble, Trouble::Forbidden | Trouble::NotFound) =>
                        {
                            return None;
                        }
                        Err(_) => continue,
                    };
                    if told.as_ref().is_some_and(|told| told.is_as(&status)) {
                        continue;
                    }
                    told = Some(status.clone());
                    return Some((status, (plane, caller, namespace, told, first)));
                }
            },
        )
    }

    /// The Lease, no older than [`LEASE_AGE`], read once for all who ask meanwhile.
    async fn lease(&self) -> Result<Option<Lease>, Refusal> {
        let mut known = self.lease.lock().await;
        match &*known {
            Some((at, lease)) if at.elapsed() < LEASE_AGE => lease.clone(),
            _ => {
                let settings = &self.settings.lease;
                let leases: Api<Lease> = Api::namespaced(self.own.clone(), &settings.namespace);
                let lease = live(leases.get_opt(&settings.name)).await;
                *known = Some((Instant::now(), lease.clone()));
                lease
            }
        }
    }

    /// Who leads, and whether somebody surely does. `None`: nobody here may know.
    async fn leader(&self, now: Timestamp) -> (LeaderElection, Option<bool>) {
        let settings = &self.settings.lease;
        let lease = self.lease().await;
        let (holder, led) = match lease {
            Ok(lease) => {
                let spec = lease.and_then(|lease| lease.spec);
                let holder = spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let holder = holder.filter(|holder| !holder.is_empty());
                let renewed = spec.and_then(|spec| spec.renew_time).map(|time| time.0);
                let fresh = renewed.is_some_and(|at| {
                    now.duration_since(at).unsigned_abs() < settings.duration.saturating_mul(2)
                });
                let led = holder.is_some() && fresh;
                (holder, Some(led))
            }
            Err(_) => (None, None),
        };
        let election = LeaderElection {
            enabled: settings.enabled,
            lease_name: settings.name.clone(),
            lease_namespace: settings.namespace.clone(),
            holder,
        };
        (election, led)
    }

    fn controllers(&self, namespace: &str, led: Option<bool>, now: Timestamp) -> Vec<ControllerHealth> {
        const AGENTS: &[Kind] = &[
            Kind::Agent,
            Kind::AgentRun,
            Kind::AgentProvider,
            Kind::ImplementationSpec,
        ];
        const ORCHESTRATIONS: &[Kind] = &[Kind::Orchestration, Kind::OrchestrationRun, Kind::ApprovalPolicy];
        const TOOLS: &[Kind] = &[Kind::Tool, Kind::ToolRun];
        let rows: [Row; 3] = [
            ("agents-controller", AGENTS, self.settings.agents_enabled),
            (
                "orchestration-controller",
                ORCHESTRATIONS,
                self.settings.orchestrations_enabled,
            ),
            ("supporting-controller", TOOLS, self.settings.agents_enabled),
        ];
        let missing = self.world.missing_in(namespace);
        let stale = self.world.stale_in(namespace);
        // The first reason stands for all: they are mostly the same.
        let reason = |kinds: &[Kind], of: &BTreeMap<Kind, String>| {
            let why = kinds.iter().find_map(|kind| of.get(kind)).cloned();
            why.unwrap_or_default()
        };
        let plurals = |kinds: &[Kind], of: &BTreeMap<Kind, String>| -> Vec<String> {
            let found = kinds.iter().filter(|kind| of.contains_key(kind));
            found
                .map(|kind| format!("{}.{}", kind.info().plural, kind.info().group))
                .collect()
        };
        rows.into_iter()
            .map(|(name, kinds, enabled)| {
                let why_missing = reason(kinds, &missing);
                let missing = plurals(kinds, &missing);
                let old = plurals(kinds, &stale);
                let (status, message) = match (enabled, missing.is_empty(), led) {
                    (false, ..) => (Word::Disabled, "the settings switch it off".to_owned()),
                    (true, false, _) => (
                        Word::Degraded,
                        format!("not listed: {}: {why_missing}", missing.join(", ")),
                    ),
                    (true, true, _) if !old.is_empty() => (
                        Word::Degraded,
                        format!(
                            "what is told of {} may be old, because the watch fails: {}",
                            old.join(", "),
                            reason(kinds, &stale)
                        ),
                    ),
                    (true, true, Some(true)) => (Word::Healthy, String::new()),
                    (true, true, Some(false)) => (
                        Word::Degraded,
                        format!("nobody holds the Lease {}", self.settings.lease.name),
                    ),
                    (true, true, None) => (
                        Word::Unknown,
                        format!("the Lease {} cannot be read", self.settings.lease.name),
                    ),
                };
                ControllerHealth {
                    name: name.to_owned(),
                    enabled,
                    started: enabled && led == Some(true),
                    crds_ready: missing.is_empty(),
                    missing_crds: missing,
                    last_checked_at: now.to_string(),
                    status,
                    message,
                }
            })
            .collect()
    }

    fn adapters(&self) -> Vec<Health> {
        let custom = self.settings.custom.callback_url.is_some();
        [
            ("workflow", true, ""),
            ("job", true, ""),
            ("temporal", true, "asked when a run needs it"),
            (
                "custom",
                custom,
                if custom {
                    ""
                } else {
                    "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL is not set here"
                },
            ),
        ]
        .into_iter()
        .map(|(name, available, message)| Health {
            name: name.to_owned(),
            available,
            status: if available { Word::Healthy } else { Word::Unknown },
            message: message.to_owned(),
        })
        .collect()
    }

    /// Whether the database answered when it was asked last. Nobody waits for it here.
    pub async fn database(&self) -> Database {
        let (Some(history), Some(pulse)) = (&self.history, &self.pulse) else {
            return Database {
                configured: false,
                connected: false,
                status: Word::Disabled,
                message: "no database is configured, so that runs are forgotten when they are deleted"
                    .to_owned(),
                latency_ms: 0,
            };
        };
        match pulse.answer().await {
            Some(Ok(latency)) => Database {
                configured: true,
                connected: true,
                status: Word::Healthy,
                message: history.place().to_owned(),
                latency_ms: u64::try_from(latency.as_millis()).unwrap_or(u64::MAX),
            },
            Some(Err(error)) => Database {
                configured: true,
                connected: false,
                status: Word::Degraded,
                message: error,
                latency_ms: 0,
            },
            None => Database {
                configured: true,
                connected: false,
                status: Word::Unknown,
                message: "it has not answered yet".to_owned(),
                latency_ms: 0,
            },
        }
    }

    /// A certificate that is not renewed will be refused one day, by clients of gRPC as by others.
    fn grpc(&self) -> Grpc {
        let Tls { status, message, .. } = self.tls();
        let (status, message) = match (&self.grpc_address, status) {
            (None, _) => (Word::Disabled, String::new()),
            (Some(_), Word::Degraded) => (Word::Degraded, message),
            (Some(_), _) => (Word::Healthy, String::new()),
        };
        Grpc {
            enabled: self.grpc_address.is_some(),
            address: self.grpc_address.clone().unwrap_or_default(),
            status,
            message,
        }
    }

    fn tls(&self) -> Tls {
        let trouble = self.certificate.as_ref().map(|certificate| certificate.trouble());
        let (status, message) = match trouble {
            None => (Word::Disabled, "JANGAR_TLS_CERT_FILE is not set here".to_owned()),
            Some(None) => (Word::Healthy, String::new()),
            Some(Some(trouble)) => (Word::Degraded, trouble),
        };
        Tls {
            enabled: self.certificate.is_some(),
            status,
            message,
        }
    }

    /// How many objects there are of each kind that the caller may list, and in which phases runs are.
    pub async fn summary(
        &self,
        caller: &Caller,
        namespace: &str,
    ) -> Result<BTreeMap<String, Counted>, Refusal> {
        if namespace != super::objects::ALL_NAMESPACES {
            checked_namespace(namespace)?;
        }
        let query = ListQuery {
            namespace: namespace.to_owned(),
            ..ListQuery::default()
        };
        let filter: Filter = query.filter()?;
        let mut kinds = BTreeMap::new();
        let mut first = None;
        for kind in Kind::ALL {
            match self
                .require_list(caller, *kind, filter.namespace.as_deref())
                .await
            {
                Ok(()) => {}
                Err(refusal) => {
                    first.get_or_insert(refusal);
                    continue;
                }
            }
            let phases = self.world.phases(*kind, &filter);
            let total: usize = phases.values().sum();
            let counted = Counted {
                total,
                phases: kind.is_run().then_some(phases),
            };
            kinds.insert(kind.info().kind.clone(), counted);
        }
        match first {
            // Who may list nothing at all is told like everywhere else.
            Some(refusal) if kinds.is_empty() => Err(refusal),
            _ => Ok(kinds),
        }
    }
}
