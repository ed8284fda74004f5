//! What has to be in the API server before anything else: the kinds of Jangar, and a namespace.

use std::time::Duration;

use anyhow::{Context, Result};
use jangar_api::Kind;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_crd_established},
};

const MANAGER: &str = "jangar";
/// Establishing a definition takes milliseconds; a minute means that something is broken.
const ESTABLISH_TIMEOUT: Duration = Duration::from_mins(1);

/// Applies the definitions of all kinds and waits until they are served.
pub(super) async fn install(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    for kind in Kind::ALL {
        let crd = kind.crd();
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("failed to install {name}"))?;
        let established = await_condition(api.clone(), &name, is_crd_established());
        tokio::time::timeout(ESTABLISH_TIMEOUT, established)
            .await
            .with_context(|| format!("{name} was not established within a minute"))??;
    }
    Ok(())
}

/// Makes the namespace if there is none.
pub(super) async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let api: Api<Namespace> = Api::all(client.clone());
    api.patch(
        name,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(&namespace),
    )
    .await
    .with_context(|| format!("failed to make the namespace {name}; choose another one with --namespace"))?;
    Ok(())
}
