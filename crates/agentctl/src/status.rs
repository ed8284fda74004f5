//! `status`: whether the parts of Jangar are there and well.

use jangar_api::{Kind, labels};
use serde_json::{Value, json};

use crate::{
    approvals,
    clock::Clock,
    control_plane,
    error::Error,
    object::Object,
    output::{self, Cell, Table},
    resource::RUNS,
    session::Session,
    transport::{
        Transport,
        kube::{Kube, builtin},
    },
};

/// How long a Lease counts that does not say it itself.
const LEASE_SECONDS: i64 = 30;

/// One line of the report.
#[derive(Debug)]
pub struct Part {
    pub component: String,
    pub namespace: String,
    pub status: String,
    pub message: String,
}

impl Part {
    /// A part that belongs to a namespace.
    pub fn of(namespace: &str, component: &str, status: &str, message: impl Into<String>) -> Self {
        Self {
            component: component.to_owned(),
            namespace: namespace.to_owned(),
            status: status.to_owned(),
            message: message.into(),
        }
    }

    /// A part of the whole.
    pub fn everywhere(component: &str, status: &str, message: impl Into<String>) -> Self {
        Self::of("", component, status, message)
    }
}

pub async fn status(session: &mut Session) -> Result<(), Error> {
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let mut parts = match &transport {
        Transport::Kube(kube) => of_cluster(kube, &namespace, session.clock).await?,
        Transport::Grpc(grpc) => control_plane::parts(grpc, &namespace).await?,
    };
    parts.push(match runs(&transport, &namespace).await {
        Ok(message) => Part::of(&namespace, "runs", "healthy", message),
        Err(error) => Part::of(&namespace, "runs", "unknown", error.to_string()),
    });
    if let Ok(pending) = approvals::pending(&transport, Some(&namespace), true).await {
        let message = match pending.gates.len() {
            0 => "none waits".to_owned(),
            count => format!("waiting: {count}; agentctl approvals lists them"),
        };
        parts.push(Part::of(&namespace, "approvals", "healthy", message));
    }
    show(session, &parts)
}

/// What Jangar stands on, as Kubernetes itself tells it.
async fn of_cluster(kube: &Kube, namespace: &str, clock: Clock) -> Result<Vec<Part>, Error> {
    let version = kube.version().await?;
    let mut parts = vec![Part::everywhere(
        "kubernetes",
        "healthy",
        format!("{version} at {}", kube.server()),
    )];
    let space = kube
        .get_any(&builtin("", "v1", "Namespace", "namespaces"), None, namespace)
        .await;
    parts.push(match space {
        Ok(_) => Part::of(namespace, "namespace", "healthy", ""),
        Err(error) if error.is_not_found() => {
            Part::of(namespace, "namespace", "missing", "there is no such namespace")
        }
        Err(error) => Part::of(namespace, "namespace", "unknown", error.to_string()),
    });
    let (served, missing) = served_kinds(kube).await?;
    let all = Kind::ALL.len();
    parts.push(match missing.as_slice() {
        [] => Part::everywhere("kinds", "healthy", format!("{served} of {all} served")),
        missing => Part::everywhere(
            "kinds",
            "degraded",
            format!("{served} of {all} served; missing: {}", missing.join(", ")),
        ),
    });
    parts.extend(deployments(kube, namespace).await);
    let (status, message) = Lease::read(kube, namespace).await.told(clock);
    parts.push(Part::of(namespace, "controllers", status, message));
    Ok(parts)
}

fn show(session: &mut Session, parts: &[Part]) -> Result<(), Error> {
    let format = session.format();
    if output::is_for_programs(&format) {
        let all: Vec<Value> = parts
            .iter()
            .map(|part| {
                json!({
                    "component": part.component, "namespace": part.namespace, "status": part.status, "message": part.message,
                })
            })
            .collect();
        return output::value(session, &Value::Array(all));
    }
    let mut table = Table::new(["COMPONENT", "NAMESPACE", "STATUS", "MESSAGE"]);
    for part in parts {
        table.push(vec![
            Cell::plain(&part.component),
            Cell::plain(&part.namespace),
            Cell::word(&part.status),
            Cell::plain(&part.message),
        ]);
    }
    output::show_table(session, &table)
}

/// How many of our kinds are served, and which are not. What is served is known to everybody, whatever their rights.
pub async fn served_kinds(kube: &Kube) -> Result<(usize, Vec<String>), Error> {
    let mut missing = Vec::new();
    let mut groups = std::collections::BTreeMap::new();
    for kind in Kind::ALL {
        let info = kind.info();
        let version = format!("{}/{}", info.group, info.version);
        if !groups.contains_key(&version) {
            let served = match kube.client().list_api_group_resources(&version).await {
                Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
                Err(error) if crate::error::status_code(&error) == Some(404) => Vec::new(),
                Err(error) => {
                    return Err(Error::kube(format!("what is served of {version} cannot be read"))(error));
                }
            };
            groups.insert(version.clone(), served);
        }
        if !groups
            .get(&version)
            .is_some_and(|served: &Vec<String>| served.contains(&info.plural))
        {
            missing.push(info.kind.clone());
        }
    }
    Ok((Kind::ALL.len() - missing.len(), missing))
}

/// The Deployments of the chart.
async fn deployments(kube: &Kube, namespace: &str) -> Vec<Part> {
    let resource = builtin("apps", "v1", "Deployment", "deployments");
    let found = kube
        .list_any(
            &resource,
            Some(namespace),
            Some("app.kubernetes.io/name=agents"),
            None,
        )
        .await;
    // An embedded cluster has no Deployments, and not everybody may read them: the Lease tells more.
    let found = found.unwrap_or_default();
    found
        .iter()
        .map(|deployment| deployment_part(deployment, namespace))
        .collect()
}

fn deployment_part(deployment: &Object, namespace: &str) -> Part {
    let number = |place: &str| {
        deployment
            .value()
            .pointer(place)
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let (wanted, ready) = (number("/spec/replicas"), number("/status/readyReplicas"));
    let status = if ready >= wanted { "healthy" } else { "degraded" };
    let component = format!("deployment/{}", deployment.name());
    Part::of(
        namespace,
        &component,
        status,
        format!("{ready} of {wanted} ready"),
    )
}

/// What the Lease of the controllers says.
#[derive(Debug)]
pub enum Lease {
    /// Somebody holds it.
    Held {
        holder: String,
        renewed: Option<String>,
        seconds: i64,
    },
    /// It is there, and nobody holds it.
    Free,
    Absent,
    Unknown(String),
}

impl Lease {
    pub async fn read(kube: &Kube, namespace: &str) -> Self {
        let resource = builtin("coordination.k8s.io", "v1", "Lease", "leases");
        let lease = match kube
            .get_any(&resource, Some(namespace), labels::LEADER_LEASE)
            .await
        {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return Self::Absent,
            Err(error) => return Self::Unknown(error.to_string()),
        };
        match lease.text("/spec/holderIdentity") {
            Some(holder) if !holder.is_empty() => Self::Held {
                holder: holder.to_owned(),
                renewed: lease.text("/spec/renewTime").map(str::to_owned),
                seconds: lease
                    .value()
                    .pointer("/spec/leaseDurationSeconds")
                    .and_then(Value::as_i64)
                    .unwrap_or(LEASE_SECONDS),
            },
            _ => Self::Free,
        }
    }

    /// Whether the holder has renewed it in time, by our clock.
    pub fn is_fresh(&self, clock: Clock) -> bool {
        let Self::Held { renewed, seconds, .. } = self else {
            return false;
        };
        let renewed: Option<jiff::Timestamp> = renewed.as_ref().and_then(|text| text.parse().ok());
        renewed.is_some_and(|renewed| clock.now().as_second() - renewed.as_second() <= *seconds)
    }

    fn told(&self, clock: Clock) -> (&'static str, String) {
        match self {
            Self::Held { holder, renewed, .. } => {
                let age = renewed
                    .as_ref()
                    .and_then(|renewed| clock.age(renewed))
                    .unwrap_or_default();
                if self.is_fresh(clock) {
                    ("healthy", format!("{holder} leads, renewed {age} ago"))
                } else {
                    ("degraded", format!("{holder} led, and has been silent for {age}"))
                }
            }
            Self::Free => ("degraded", "nobody leads: no controllers run".to_owned()),
            Self::Absent => (
                "missing",
                format!(
                    "there is no Lease {}: no controllers have run here",
                    labels::LEADER_LEASE
                ),
            ),
            Self::Unknown(words) => ("unknown", words.clone()),
        }
    }
}

/// How many runs there are, by phase.
async fn runs(transport: &Transport, namespace: &str) -> Result<String, Error> {
    let mut counts = std::collections::BTreeMap::new();
    for kind in RUNS {
        for run in transport.list(kind, Some(namespace), None).await? {
            *counts.entry(run.phase().to_owned()).or_insert(0_usize) += 1;
        }
    }
    if counts.is_empty() {
        return Ok("none".to_owned());
    }
    let told: Vec<String> = counts
        .iter()
        .map(|(phase, count)| format!("{count} {phase}"))
        .collect();
    Ok(told.join(", "))
}
