//! Objects as a person applies them.

use kube::{Api, Client, Resource, api::PostParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub(crate) async fn create<K>(client: &Client, object: Value) -> K
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    let api: Api<K> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &object).await.unwrap()
}
