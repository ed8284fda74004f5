//! HTTP: the routes, their envelopes, and the bounds that every request keeps.
//!
//! [`routes::ROUTES`] is the one table of all routes: what is served, what is counted and what [`openapi`] describes come from it.

mod answer;
mod approvals;
mod audit;
mod bodies;
mod control_plane;
mod extract;
mod memories;
mod objects;
pub mod openapi;
mod patience;
mod routes;
mod runs;
mod serve;
mod sse;
mod webhooks;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tokio::sync::Semaphore;

pub use self::serve::{Peer, Serving, Transport, serve};
use crate::{
    metrics::Protocol,
    plane::ControlPlane,
    refusal::{Refusal, Trouble},
};

/// How long a request may take until its answer begins. A stream goes on after that.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests at once whose answer has not begun. What is more is told to come back.
const REQUESTS_MAX: usize = 512;

/// The service for callers. `metrics` writes the metrics as text.
pub fn router(plane: Arc<ControlPlane>, metrics: Arc<dyn Fn() -> String + Send + Sync>) -> Router {
    let mut router = Router::new();
    for route in routes::ROUTES {
        router = router.route(route.path, (route.handler)());
    }
    let settings = &plane.settings.control_plane;
    if settings.metrics_enabled {
        let path = settings.metrics_path.clone();
        router = router.route(&path, control_plane::metrics(path.clone(), metrics));
    }
    let bounds = Bounds {
        plane: Arc::clone(&plane),
        places: Arc::new(Semaphore::new(REQUESTS_MAX)),
    };
    router
        .fallback(no_such_address)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(bounds, bounded))
        .with_state(plane)
}

#[derive(Clone)]
struct Bounds {
    plane: Arc<ControlPlane>,
    places: Arc<Semaphore>,
}

/// Bounds every request in number and time, and counts it.
async fn bounded(State(bounds): State<Bounds>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = routes::known(request.method(), path.as_ref().map(MatchedPath::as_str));
    let response = match bounds.places.try_acquire() {
        Err(_) => Refusal::unavailable("too many requests are under way").into_response(),
        Ok(_place) => match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Refusal::new(Trouble::TimedOut, "the request took longer than 30 s")
                .remedy("send it faster, or ask for less")
                .into_response(),
        },
    };
    let code = response.status().as_u16();
    let took = started.elapsed();
    bounds
        .plane
        .metrics
        .request(Protocol::Http, route.0, route.1, code, took);
    response
}

async fn no_such_address() -> Refusal {
    Refusal::new(Trouble::NotFound, "there is no such address").remedy("/openapi.json lists all of them")
}

async fn no_such_method() -> Refusal {
    Refusal::new(Trouble::MethodNotAllowed, "the address has no such method")
        .remedy("/openapi.json lists what it has")
}
