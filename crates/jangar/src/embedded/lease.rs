//! The Lease of the controllers in this process.

use anyhow::{Context, Result};
use jangar_controllers::lease::Identity;
use jangar_engine::settings::LeaseSettings;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};

/// What the identities of such controllers begin with. No other process can have one: it would be the name of a host, and
/// those have no slash.
const PREFIX: &str = "jangar-up/";

/// The identity of the controllers of one start.
pub(crate) fn identity() -> Result<Identity> {
    Ok(Identity::new(format!("{PREFIX}{:016x}", rand::random::<u64>()))?)
}

/// Frees the Lease if the process that had the data directory before was killed while it led.
///
/// In general nobody may do that: something of a dead leader may still be on its way to the API server. Here the API server
/// died with it, and that we have the directory proves that both are dead.
pub(super) async fn free(client: &Client, settings: &LeaseSettings) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    let failed = || {
        format!(
            "failed to look at the Lease {}/{}",
            settings.namespace, settings.name
        )
    };
    let Some(mut lease) = leases.get_opt(&settings.name).await.with_context(failed)? else {
        return Ok(());
    };
    if let Some(spec) = &mut lease.spec
        && let Some(holder) = spec.holder_identity.take_if(|holder| holder.starts_with(PREFIX))
    {
        tracing::info!(
            holder,
            "the process before this one was killed; its lease is free"
        );
        leases
            .replace(&settings.name, &PostParams::default(), &lease)
            .await
            .with_context(failed)?;
    }
    Ok(())
}
