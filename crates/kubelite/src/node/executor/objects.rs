//! The ConfigMaps, Secrets and claims that a pod refers to.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PersistentVolumeClaim, Pod, Secret, Volume, VolumeProjection,
};
use kube::{Api, Client};

/// What a pod can refer to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Claim,
}

/// An object in the namespace of the pod that refers to it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Reference {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

impl Reference {
    fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
        }
    }
}

/// Why a container's surroundings cannot be described yet, in the words of the kubelet where it has any.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("configmap {name:?} not found")]
    NoConfigMap { name: String },
    #[error("secret {name:?} not found")]
    NoSecret { name: String },
    #[error("persistentvolumeclaim {name:?} not found")]
    NoClaim { name: String },
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    NoMapKey {
        namespace: String,
        name: String,
        key: String,
    },
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    NoSecretKey {
        namespace: String,
        name: String,
        key: String,
    },
    #[error("references non-existent config key: {key}")]
    NoItem { key: String },
    #[error("unsupported fieldPath or resource: {path}")]
    UnknownField { path: String },
    #[error("variable {name} has a source that this node does not support")]
    UnknownSource { name: String },
    #[error("variable {name} holds a character that no environment can")]
    EnvUnfit { name: String },
    #[error("the environment has {bytes} bytes, more than the {max} that a process can be given")]
    EnvTooLarge { bytes: usize, max: usize },
    #[error(
        "volume {name:?} is of a kind that this node does not have; it has configMap, secret, emptyDir, downwardAPI, \
         projected and persistentVolumeClaim"
    )]
    UnknownVolume { name: String },
    #[error("container mounts volume {name:?}, which the pod does not have")]
    NoVolume { name: String },
    #[error("path {path:?} leaves its volume")]
    PathLeavesVolume { path: String },
    #[error("container has runAsNonRoot and runAsUser 0")]
    RootNotAllowed,
    #[error("the API server did not answer: {message}")]
    Unavailable { message: String },
}

/// What was found of the objects that were asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    namespace: String,
    config_maps: BTreeMap<String, ConfigMap>,
    secrets: BTreeMap<String, Secret>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
}

impl Objects {
    pub(crate) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..Self::default()
        }
    }

    /// Reads them live, so that what a pod gets is at least as new as the pod.
    pub(crate) async fn fetch(
        client: &Client,
        namespace: &str,
        references: &BTreeSet<Reference>,
    ) -> Result<Self, ConfigError> {
        let mut objects = Self::new(namespace);
        let unavailable = |error: kube::Error| ConfigError::Unavailable {
            message: error.to_string(),
        };
        for Reference { kind, name } in references {
            match kind {
                Kind::ConfigMap => {
                    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                    if let Some(map) = api.get_opt(name).await.map_err(unavailable)? {
                        objects.config_maps.insert(name.clone(), map);
                    }
                }
                Kind::Secret => {
                    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                    if let Some(secret) = api.get_opt(name).await.map_err(unavailable)? {
                        objects.secrets.insert(name.clone(), secret);
                    }
                }
                Kind::Claim => {
                    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
                    if let Some(claim) = api.get_opt(name).await.map_err(unavailable)? {
                        objects.claims.insert(name.clone(), claim);
                    }
                }
            }
        }
        Ok(objects)
    }

    #[cfg(test)]
    pub(crate) fn with_config_map(mut self, name: &str, map: ConfigMap) -> Self {
        self.config_maps.insert(name.to_owned(), map);
        self
    }

    #[cfg(test)]
    pub(crate) fn with_secret(mut self, name: &str, secret: Secret) -> Self {
        self.secrets.insert(name.to_owned(), secret);
        self
    }

    /// `None` only if it is optional.
    pub(crate) fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<&ConfigMap>, ConfigError> {
        match self.config_maps.get(name) {
            None if optional != Some(true) => Err(ConfigError::NoConfigMap {
                name: name.to_owned(),
            }),
            found => Ok(found),
        }
    }

    /// `None` only if it is optional.
    pub(crate) fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&Secret>, ConfigError> {
        match self.secrets.get(name) {
            None if optional != Some(true) => Err(ConfigError::NoSecret {
                name: name.to_owned(),
            }),
            found => Ok(found),
        }
    }

    pub(crate) fn claim(&self, name: &str) -> Result<&PersistentVolumeClaim, ConfigError> {
        self.claims.get(name).ok_or_else(|| ConfigError::NoClaim {
            name: name.to_owned(),
        })
    }

    pub(crate) fn missing_map_key(&self, name: &str, key: &str) -> ConfigError {
        ConfigError::NoMapKey {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(crate) fn missing_secret_key(&self, name: &str, key: &str) -> ConfigError {
        ConfigError::NoSecretKey {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// What the environment of a container refers to.
pub(crate) fn env_references(container: &Container) -> BTreeSet<Reference> {
    let mut references = BTreeSet::new();
    for from in container.env_from.iter().flatten() {
        if let Some(map) = &from.config_map_ref {
            references.insert(Reference::new(Kind::ConfigMap, &map.name));
        }
        if let Some(secret) = &from.secret_ref {
            references.insert(Reference::new(Kind::Secret, &secret.name));
        }
    }
    for source in container
        .env
        .iter()
        .flatten()
        .filter_map(|env| env.value_from.as_ref())
    {
        if let Some(key) = &source.config_map_key_ref {
            references.insert(Reference::new(Kind::ConfigMap, &key.name));
        }
        if let Some(key) = &source.secret_key_ref {
            references.insert(Reference::new(Kind::Secret, &key.name));
        }
    }
    references
}

/// What the volumes of a pod refer to.
pub(crate) fn volume_references(pod: &Pod) -> BTreeSet<Reference> {
    let mut references = BTreeSet::new();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        references.extend(of_volume(volume));
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        references.extend(sources.flat_map(of_projection));
    }
    references
}

fn of_volume(volume: &Volume) -> impl Iterator<Item = Reference> {
    let map = volume.config_map.as_ref();
    let secret = volume
        .secret
        .as_ref()
        .and_then(|secret| secret.secret_name.as_ref());
    let claim = volume.persistent_volume_claim.as_ref();
    map.map(|map| Reference::new(Kind::ConfigMap, &map.name))
        .into_iter()
        .chain(secret.map(|name| Reference::new(Kind::Secret, name)))
        .chain(claim.map(|claim| Reference::new(Kind::Claim, &claim.claim_name)))
}

fn of_projection(source: &VolumeProjection) -> impl Iterator<Item = Reference> {
    let map = source.config_map.as_ref();
    let secret = source.secret.as_ref();
    map.map(|map| Reference::new(Kind::ConfigMap, &map.name))
        .into_iter()
        .chain(secret.map(|secret| Reference::new(Kind::Secret, &secret.name)))
}
