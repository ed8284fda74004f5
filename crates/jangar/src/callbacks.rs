//! Where endpoints that do the work of runs report: the route, and the key that their tokens are signed with.

use std::{fs, net::SocketAddr, path::Path as FilePath, sync::Arc, time::Duration};

use anyhow::Result;
use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{
        HeaderMap, HeaderValue,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jangar_controllers::{
    lease::Identity,
    outside::{BODY_MAX_BYTES, BadBody, Outside, Reception, http::HttpEndpoints, token::Signer},
};
use jangar_engine::{
    decision::Key,
    settings::{CustomSettings, TemporalSettings},
};
use jangar_store::Store;
use jangar_temporal::Server;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

use crate::{BadInput, history, probes};

/// How long the body of a report may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// The way to endpoints and back, to the Temporal server, and into history. Without an address for callbacks there is none back,
/// and without one of a server there is none to it, and runs are told so. With a history it has to be called within a tokio runtime.
pub(crate) fn outside(
    settings: &CustomSettings,
    temporal: &TemporalSettings,
    identity: &Identity,
    own_key: Option<&str>,
    history: Option<Store>,
) -> Result<Arc<Outside>, BadInput> {
    let reception = match &settings.callback_url {
        None => None,
        Some(url) => Some(Reception {
            url: url.clone(),
            signer: signer(settings.key_file.as_deref(), own_key)?,
        }),
    };
    let endpoints = HttpEndpoints::new(settings.open_networks.clone());
    let mut outside = Outside::new(identity.as_str(), Arc::new(endpoints), reception);
    if let Some(address) = &temporal.address {
        let server = Server::new(address, temporal).map_err(|error| BadInput(error.to_string()))?;
        outside = outside.with_temporal(Arc::new(server));
    }
    if let Some(store) = history {
        history::sweep(store.clone());
        outside = outside.with_archive(history::archive(store));
    }
    Ok(Arc::new(outside))
}

fn signer(key_file: Option<&FilePath>, own_key: Option<&str>) -> Result<Signer, BadInput> {
    let bad = |path: &FilePath, error: &dyn std::fmt::Display| {
        let path = path.display();
        BadInput(format!(
            "JANGAR_CUSTOM_RUNTIME_KEY_FILE is {path}, which cannot be used: {error}"
        ))
    };
    match (key_file, own_key) {
        (Some(path), _) => {
            let key = fs::read(path).map_err(|error| bad(path, &error))?;
            Signer::new(&key).map_err(|error| bad(path, &error))
        }
        (None, Some(key)) => Signer::new(key.as_bytes()).map_err(|error| BadInput(error.to_string())),
        (None, None) => Err(BadInput(
            "JANGAR_CUSTOM_RUNTIME_CALLBACK_URL is set, and callbacks need a key that their tokens are signed with: set \
             JANGAR_CUSTOM_RUNTIME_KEY_FILE to a file of at least 32 random bytes, which only this program can read"
                .to_owned(),
        )),
    }
}

/// The route of the callbacks.
pub(crate) fn router(outside: Arc<Outside>) -> Router {
    Router::new()
        .route("/callbacks/agentruns/{namespace}/{name}", post(receive))
        .with_state(outside)
}

async fn receive(
    State(outside): State<Arc<Outside>>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let run = Key { namespace, name };
    let answer = outside
        .callback(jiff::Timestamp::now(), &run, &headers, read(body))
        .await;
    let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = (answer.status, [content_type], format!("{}\n", answer.body)).into_response();
    if let Some(seconds) = answer.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

async fn read(body: Body) -> Result<Vec<u8>, BadBody> {
    let bounded = Limited::new(body, BODY_MAX_BYTES).collect();
    match timeout(BODY_PATIENCE, bounded).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BadBody::TooLarge),
        Ok(Err(_)) | Err(_) => Err(BadBody::Broken),
    }
}

/// A server for callbacks alone, so that whoever reaches it reaches neither probes nor metrics. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Callbacks {
    task: JoinHandle<()>,
}

impl Callbacks {
    pub(crate) async fn start(listen: SocketAddr, outside: Arc<Outside>) -> Result<Self> {
        let listener: TcpListener = probes::bind(listen, "JANGAR_CUSTOM_RUNTIME_CALLBACK_LISTEN").await?;
        tracing::info!(address = %listener.local_addr()?, "callbacks are served");
        Ok(Self {
            task: tokio::spawn(probes::serve(listener, router(outside))),
        })
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, StatusCode};
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    fn settings(key_file: Option<&FilePath>) -> CustomSettings {
        CustomSettings {
            callback_url: Some("http://127.0.0.1:1".to_owned()),
            key_file: key_file.map(FilePath::to_owned),
            ..CustomSettings::default()
        }
    }

    fn identity() -> Identity {
        Identity::new("tester").unwrap()
    }

    #[test]
    fn a_key_that_is_missing_or_too_short_stops_the_start_and_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let short = directory.path().join("short");
        fs::write(&short, "secret").unwrap();
        for (file, word) in [
            (None, "JANGAR_CUSTOM_RUNTIME_KEY_FILE"),
            (Some(directory.path().join("none")), "none"),
            (Some(short), "6 bytes"),
        ] {
            let error = outside(
                &settings(file.as_deref()),
                &TemporalSettings::default(),
                &identity(),
                None,
                None,
            )
            .unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let nowhere = TemporalSettings::default();
        assert!(outside(&CustomSettings::default(), &nowhere, &identity(), None, None).is_ok());
        let keyless = TemporalSettings {
            address: Some("127.0.0.1:1".to_owned()),
            api_key_file: Some(directory.path().join("none")),
            ..nowhere
        };
        let error = outside(&CustomSettings::default(), &keyless, &identity(), None, None).unwrap_err();
        assert!(error.to_string().contains("TEMPORAL_API_KEY_FILE"), "{error}");
    }

    async fn answer(request: Request<Body>) -> (StatusCode, Value) {
        let nowhere = TemporalSettings::default();
        let key = "k".repeat(32);
        let outside = outside(&settings(None), &nowhere, &identity(), Some(&key), None).unwrap();
        let response = router(outside).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_bad_request_is_told_what_is_wrong_with_it() {
        let signer = Signer::new("k".repeat(32).as_bytes()).unwrap();
        let subject = jangar_controllers::outside::token::Subject {
            run: Key {
                namespace: "agents".to_owned(),
                name: "mend".to_owned(),
            },
            uid: jangar_engine::decision::Uid("u".to_owned()),
            attempt: 1,
        };
        let hour = jiff::SignedDuration::from_hours(1);
        let token = signer.sign(&subject, jiff::Timestamp::now() + hour);
        let old = signer.sign(&subject, jiff::Timestamp::now() - hour);
        let request = |token: &str, content_type: &str, body: String| {
            Request::post("/callbacks/agentruns/agents/mend")
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", content_type)
                .body(Body::from(body))
                .unwrap()
        };
        let end = || "{\"status\": \"Succeeded\"}".to_owned();
        let bare = Request::post("/callbacks/agentruns/agents/mend")
            .body(Body::empty())
            .unwrap();
        for (request, status, word) in [
            (bare, StatusCode::UNAUTHORIZED, "Authorization"),
            (
                request("nonsense", "application/json", end()),
                StatusCode::UNAUTHORIZED,
                "none of this run",
            ),
            (
                request(&old, "application/json", end()),
                StatusCode::UNAUTHORIZED,
                "expired",
            ),
            (
                request(&token, "text/plain", end()),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type",
            ),
            (
                request(&token, "application/json", "{}".to_owned()),
                StatusCode::BAD_REQUEST,
                "status",
            ),
            (
                request(&token, "application/json", " ".repeat(BODY_MAX_BYTES + 1)),
                StatusCode::PAYLOAD_TOO_LARGE,
                "65536",
            ),
            (
                request(&token, "application/json; charset=utf-8", end()),
                StatusCode::SERVICE_UNAVAILABLE,
                "another process",
            ),
        ] {
            let (found, body) = answer(request).await;
            assert_eq!(found, status, "{body}");
            assert!(
                body["message"].as_str().is_some_and(|text| text.contains(word)),
                "{body}"
            );
        }
        let get = Request::get("/callbacks/agentruns/agents/mend")
            .body(Body::empty())
            .unwrap();
        assert_eq!(answer(get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
}
