//! What the control plane says of itself and of the controllers, for `status`.

use jangar_proto::v1::{GetControlPlaneStatusResponse, LeaderElectionStatus};

use crate::{error::Error, status::Part, transport::grpc::Grpc};

/// The parts of Jangar, as the control plane sees them.
pub async fn parts(grpc: &Grpc, namespace: &str) -> Result<Vec<Part>, Error> {
    let info = grpc.server_info().await?;
    let status = grpc.status(namespace).await?;
    let mut parts = vec![Part::everywhere(
        "control-plane",
        "healthy",
        format!("{} at {}", info.version, grpc.address()),
    )];
    parts.extend(of(&status));
    Ok(parts)
}

fn of(status: &GetControlPlaneStatusResponse) -> Vec<Part> {
    let mut parts = Vec::new();
    for space in &status.namespaces {
        let message = match space.degraded_components.as_slice() {
            [] => String::new(),
            degraded => format!("degraded: {}", degraded.join(", ")),
        };
        parts.push(Part::of(&space.namespace, "namespace", &space.status, message));
    }
    if let Some(leader) = &status.leader_election {
        let (word, message) = leading(leader, status);
        parts.push(Part::of(&leader.lease_namespace, "leader", word, message));
    }
    for controller in &status.controllers {
        parts.push(Part::everywhere(
            &controller.name,
            &controller.status,
            controller.message.clone(),
        ));
    }
    for adapter in &status.runtime_adapters {
        let component = format!("runtime/{}", adapter.name);
        parts.push(Part::everywhere(
            &component,
            &adapter.status,
            adapter.message.clone(),
        ));
    }
    if let Some(database) = &status.database {
        parts.push(Part::everywhere(
            "database",
            &database.status,
            database.message.clone(),
        ));
    }
    parts
}

/// Whether somebody leads, and who.
pub fn leading(
    leader: &LeaderElectionStatus,
    status: &GetControlPlaneStatusResponse,
) -> (&'static str, String) {
    let works = status.controllers.iter().any(|controller| controller.started);
    match (leader.holder.as_str(), works) {
        ("", _) if !leader.enabled => ("disabled", "no leader is elected".to_owned()),
        ("", _) => (
            "degraded",
            format!("nobody holds the Lease {}", leader.lease_name),
        ),
        (holder, true) => ("healthy", format!("{holder} leads")),
        (holder, false) => ("degraded", format!("{holder} led, and has been silent since")),
    }
}

#[cfg(test)]
mod tests {
    use jangar_proto::v1::ControllerStatus;

    use super::*;

    fn told(holder: &str, started: bool) -> &'static str {
        let status = GetControlPlaneStatusResponse {
            controllers: vec![ControllerStatus {
                started,
                ..ControllerStatus::default()
            }],
            ..GetControlPlaneStatusResponse::default()
        };
        let leader = LeaderElectionStatus {
            enabled: true,
            holder: holder.to_owned(),
            ..LeaderElectionStatus::default()
        };
        leading(&leader, &status).0
    }

    #[test]
    fn a_leader_that_is_silent_does_not_lead() {
        assert_eq!(told("one", true), "healthy");
        assert_eq!(told("one", false), "degraded");
        assert_eq!(told("", false), "degraded");
    }
}
