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
        definitions
            .push(serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?);
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

#[tokio::test]
async fn every_definition_is_accepted_and_established() -> Result<(), Failure> {
    let admin = Bench::here()?.client(&User::Admin).await?;
    let api: Api<CustomResourceDefinition> = Api::all(admin);
    let definitions = definitions()?;
    assert_eq!(definitions.len(), 19);

    for definition in &definitions {
        // Applied, because a bench that is reused has them from the last time.
        let parameters = PatchParams::apply("jangar-tests").force();
        api.patch(&definition.name_any(), &parameters, &Patch::Apply(definition))
            .await?;
    }

    for definition in &definitions {
        let definition = until(&api, &definition.name_any(), "to be established", |definition| {
            has(definition, "Established", "True") && has(definition, "NamesAccepted", "True")
        })
        .await?;
        assert!(
            !has(&definition, "NonStructuralSchema", "True"),
            "{:?}",
            definition.status
        );
    }
    Ok(())
}
