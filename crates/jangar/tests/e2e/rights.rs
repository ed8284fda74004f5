//! What the controllers may do: the Role of `tests/cluster/role.yaml`, given to a service account of the test's namespace.

use jangar_testkit::cluster::{Failure, Scene, User, until_list};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    batch::v1::Job,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::{Value, json};

/// Who the controllers are.
pub(crate) const ACCOUNT: &str = "jangar-controllers";

const ROLE: &str = include_str!("../../../../tests/cluster/role.yaml");

pub(crate) fn role() -> Result<Role, Failure> {
    Ok(serde_saphyr::from_str(ROLE)?)
}

/// Makes a service account that may do what the Role says, and waits until the API server knows.
pub(crate) async fn grant(scene: &Scene, account: &str, role: &Role) -> Result<(), Failure> {
    let parameters = PostParams::default();
    let role = Role {
        metadata: kube::api::ObjectMeta {
            name: Some(account.to_owned()),
            ..role.metadata.clone()
        },
        ..role.clone()
    };
    let object: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": account}}))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.name_any()},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scene.namespace()}],
    }))?;
    scene.api::<ServiceAccount>().create(&parameters, &object).await?;
    scene.api::<Role>().create(&parameters, &role).await?;
    scene.api::<RoleBinding>().create(&parameters, &binding).await?;
    let client = scene.client(&user(scene, account)).await?;
    let jobs: Api<Job> = Api::namespaced(client, scene.namespace());
    until_list(&jobs, "", "to be readable", |_| true).await?;
    Ok(())
}

/// A service account of the namespace, as the API server calls it.
pub(crate) fn user(scene: &Scene, account: &str) -> User {
    User::ServiceAccount {
        namespace: scene.namespace().to_owned(),
        name: account.to_owned(),
    }
}

/// A token of the account.
pub(crate) async fn token(scene: &Scene, account: &str) -> Result<String, Failure> {
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let accounts = scene.api::<ServiceAccount>();
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.ok_or("the API server gave no token")?.token)
}

/// A kubeconfig with a token of the account: what a pod with that account has.
pub(crate) async fn kubeconfig(scene: &Scene, account: &str, server: Option<&str>) -> Result<Value, Failure> {
    let token = token(scene, account).await?;
    Ok(scene.bench().kubeconfig_for(&token, server))
}
