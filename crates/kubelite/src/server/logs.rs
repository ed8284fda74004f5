//! The `log` subresource of pods. The server itself runs nothing; whoever runs the pods supplies their output.

use std::fmt::Debug;

use axum::body::Body;
use futures::future::BoxFuture;

use crate::error::ApiError;

/// What a client asked of a pod's log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogRequest {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub since_seconds: Option<u64>,
    pub limit_bytes: Option<u64>,
}

/// Where the output of pods comes from.
pub trait PodLogs: Debug + Send + Sync {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<Body, ApiError>>;
}
