//! The way to the cluster. Verbs know this and nothing beyond it, so that what answers can be another thing.

pub mod kube;

use futures::stream::BoxStream;
use jangar_api::Kind;
use serde_json::Value;

use self::kube::Kube;
use crate::{error::Error, object::Object};

/// Who asks, as the cluster knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

/// What became of something that is watched.
#[derive(Clone, Debug)]
pub enum Change {
    /// All that is there is told anew: whatever is not told until [`Change::Listed`] is gone.
    Relisting,
    /// It is there, like this.
    Seen(Object),
    /// It was deleted.
    Gone(Object),
    /// All that is there has been told.
    Listed,
    /// The line is disturbed. It is tried again, unless that cannot help.
    Trouble { words: String, hopeless: bool },
}

/// Changes as they come.
pub type Changes = BoxStream<'static, Change>;

/// What became of an object that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Created,
    Configured,
    Unchanged,
}

impl Applied {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// How something is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    pub dry_run: bool,
    /// Takes fields over that belong to somebody else.
    pub force: bool,
}

/// What answers: the API server of Kubernetes.
#[derive(Debug)]
pub enum Transport {
    Kube(Kube),
}

impl Transport {
    /// What only Kubernetes itself can be asked for: pods, leases, rights.
    pub const fn kube(&self) -> &Kube {
        match self {
            Self::Kube(kube) => kube,
        }
    }

    /// All objects of a kind, of one namespace or of all.
    pub async fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        match self {
            Self::Kube(kube) => kube.list(kind, namespace, selector).await,
        }
    }

    /// One object, which has to be there.
    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
        match self {
            Self::Kube(kube) => kube.get(kind, namespace, name).await,
        }
    }

    /// One object, if it is there.
    pub async fn find(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Object>, Error> {
        match self.get(kind, namespace, name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates an object; `None` if there is one of that name.
    pub async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Option<Object>, Error> {
        match self {
            Self::Kube(kube) => kube.create(kind, namespace, object).await,
        }
    }

    /// Changes fields of an object by a merge patch.
    pub async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        match self {
            Self::Kube(kube) => kube.patch(kind, namespace, name, patch).await,
        }
    }

    /// Deletes an object.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
        match self {
            Self::Kube(kube) => kube.delete(kind, namespace, name).await,
        }
    }

    /// Follows the objects of a kind, or one by its name.
    pub fn watch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&str>,
    ) -> Changes {
        match self {
            Self::Kube(kube) => kube.watch(kind, namespace, name, selector),
        }
    }

    /// Who asks.
    pub async fn identity(&self) -> Result<Identity, Error> {
        match self {
            Self::Kube(kube) => kube.identity().await,
        }
    }
}
