//! Placeholder of the shape of leader election, until it is merged.

use std::sync::Arc;

use jangar_engine::settings::LeaseSettings;
use kube::Client;
use thiserror::Error;

use crate::clock::Clock;

#[derive(Debug)]
pub struct Elector;

impl Elector {
    pub fn new(client: Client, settings: LeaseSettings, identity: String, clock: Arc<dyn Clock>) -> Self {
        let _ = (client, settings, identity, clock);
        Self
    }

    pub async fn lead(&self) -> Leadership {
        Leadership
    }
}

#[derive(Debug)]
pub struct Leadership;

impl Leadership {
    pub fn gate(&self) -> Gate {
        Gate
    }

    pub async fn lost(&mut self) {
        std::future::pending::<()>().await;
    }

    pub async fn release(self) {}
}

#[derive(Clone, Debug)]
pub struct Gate;

impl Gate {
    pub async fn write<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
        request.await.map_err(WriteError::Api)
    }
}

#[derive(Debug, Error)]
pub enum WriteError {
    #[error("not leading")]
    NotLeading,
    #[error("timed out")]
    TimedOut,
    #[error(transparent)]
    Api(kube::Error),
}
