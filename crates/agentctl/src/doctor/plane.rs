//! What the control plane can be asked: itself, its clock, its database, and whoever leads.

use jangar_proto::v1::{DatabaseStatus, GetControlPlaneStatusResponse};
use jiff::Timestamp;

use super::{
    Finding,
    cluster::{Lacking, rights_found, skew},
    some,
};
use crate::{clock::Clock, control_plane::leading, error::Error, transport::grpc::Grpc};

/// Everything that the control plane says by itself.
pub(super) async fn look(grpc: &Grpc, namespace: &str, clock: Clock) -> Result<Vec<Finding>, Error> {
    let info = grpc.server_info().await?;
    let before = clock.now();
    let status = grpc.status(namespace).await?;
    let after = clock.now();
    let mut findings = vec![Finding::ok(
        "server",
        format!("Jangar {} at {}", info.version, grpc.address()),
    )];
    findings.push(match status.generated_at.parse::<Timestamp>() {
        Ok(theirs) => skew(before, theirs, after, "the control plane"),
        Err(_) => Finding::skip("clock", "the control plane does not say what time it is"),
    });
    findings.push(Finding::ok("namespace", namespace));
    findings.push(kinds(&status));
    findings.extend(rights(grpc, namespace).await?);
    findings.push(leader(&status));
    findings.push(database(status.database.as_ref()));
    Ok(findings)
}

/// What the caller may not do, as Kubernetes told the control plane.
async fn rights(grpc: &Grpc, namespace: &str) -> Result<Vec<Finding>, Error> {
    let Some(rights) = grpc.rights(namespace).await? else {
        let identity = grpc.identity().await?;
        return Ok(vec![Finding::skip(
            "rights",
            format!(
                "you are {}; this control plane is too old to say what you may do: agentctl --kube doctor",
                identity.user
            ),
        )]);
    };
    let lacking: Vec<Lacking> = rights
        .into_iter()
        .filter(|right| !right.allowed)
        .map(|right| Lacking {
            resource: match right.subresource.as_str() {
                "" => right.resource,
                subresource => format!("{}/{subresource}", right.resource),
            },
            verb: right.verb,
            purpose: right.purpose,
        })
        .collect();
    Ok(rights_found(&lacking, namespace))
}

fn kinds(status: &GetControlPlaneStatusResponse) -> Finding {
    let mut missing: Vec<String> = status
        .controllers
        .iter()
        .flat_map(|controller| controller.missing_crds.clone())
        .collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Finding::ok("kinds", "all that the controllers need are served");
    }
    Finding::fail(
        "kinds",
        format!(
            "not served, or not readable by the control plane: {}",
            some(&missing)
        ),
        "kubectl apply --server-side --force-conflicts -f charts/agents/crds   # of the release that you run",
    )
}

fn leader(status: &GetControlPlaneStatusResponse) -> Finding {
    let Some(leader) = &status.leader_election else {
        return Finding::skip("leader", "the control plane does not say who leads");
    };
    let unreadable = status.controllers.iter().any(|row| row.status == "unknown");
    match leading(leader, status) {
        ("degraded", _) if unreadable => Finding::warn(
            "leader",
            format!("the control plane may not read the Lease {}", leader.lease_name),
            format!(
                "kubectl create role leases -n {} --verb=get --resource=leases   # then bind it to its account",
                leader.lease_namespace
            ),
        ),
        ("degraded", message) => Finding::fail(
            "leader",
            format!("{message}: nothing is looked after"),
            format!(
                "kubectl -n {} get pods -l app.kubernetes.io/name=agents   # and read their logs",
                leader.lease_namespace
            ),
        ),
        (_, message) => Finding::ok("leader", message),
    }
}

fn database(database: Option<&DatabaseStatus>) -> Finding {
    match database {
        None => Finding::skip("database", "the control plane says nothing about one"),
        Some(known) if !known.configured => Finding::ok("database", known.message.clone()),
        Some(known) if known.connected => Finding::ok(
            "database",
            format!("{} answers in {} ms", known.message, known.latency_ms),
        ),
        Some(known) => Finding::fail(
            "database",
            format!(
                "it does not answer ({}): finished runs are kept in the cluster until it does",
                known.message
            ),
            "check DATABASE_URL of the control plane, and that the database runs",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn a_database_that_is_configured_has_to_answer() {
        let state = |configured, connected| {
            let known = DatabaseStatus {
                configured,
                connected,
                ..DatabaseStatus::default()
            };
            database(Some(&known)).level
        };
        assert_eq!(state(false, false), Level::Ok);
        assert_eq!(database(None).level, Level::Skip);
        assert_eq!(state(true, true), Level::Ok);
        assert_eq!(state(true, false), Level::Fail);
    }
}
