//! The real API server takes the kinds of Jangar as they are in the chart.

use std::{fs, path::Path};

use jangar_testkit::cluster::{Bench, Failure, User, until};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};

const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/agents/crds");

fn definitions() -> Result<Vec<CustomResourceDefinition>, Failure> {
    let mut definitions = Vec::new();
    for entry in fs::read_dir(Path::new(DEFINITIONS))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let definition = serde_saphyr::from_str(&text);
        definitions.push(definition.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    Ok(definitions)
}

fn has(definition: &CustomResourceDefinition, condition: &str, status: &str) -> bool {
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|each| each.type_ == condition && each.status == status)
}

/// Gives every kind to the cluster, and returns the definitions as they are when it serves them.
pub(crate) async fn install() -> Result<Vec<CustomResourceDefinition>, Failure> {
    let admin = Bench::here()?.client(&User::Admin).await?;
    let api: Api<CustomResourceDefinition> = Api::all(admin);
    let definitions = definitions()?;
    for definition in &definitions {
        // Applied, because a bench that is reused has them from the last time.
        let parameters = PatchParams::apply("jangar-tests").force();
        api.patch(&definition.name_any(), &parameters, &Patch::Apply(definition))
            .await?;
    }
    let mut established = Vec::new();
    for definition in &definitions {
        let name = definition.name_any();
        let definition = until(&api, &name, "to be established", |definition| {
            has(definition, "Established", "True") && has(definition, "NamesAccepted", "True")
        });
        established.push(definition.await?);
    }
    Ok(established)
}

#[tokio::test]
async fn every_definition_is_accepted_and_established() -> Result<(), Failure> {
    let definitions = install().await?;

    assert_eq!(definitions.len(), 19);
    for definition in &definitions {
        let status = &definition.status;
        assert!(!has(definition, "NonStructuralSchema", "True"), "{status:?}");
    }
    Ok(())
}
