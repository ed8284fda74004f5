//! A forge that says what a test tells it to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::Response,
};
use jangar_forge::{Forge, Kind, Patience, Token};
use serde_json::Value;

use crate::schemas::misfit;

pub(crate) const TOKEN: &str = "a-token-of-the-forge";

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    /// Method and path, with the query.
    pub(crate) line: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

/// What is answered next.
pub(crate) struct Say {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    /// Whether it may be what no forge publishes.
    pub(crate) unpublished: bool,
}

pub(crate) fn say(status: u16, body: &Value) -> Say {
    Say {
        status,
        headers: Vec::new(),
        body: body.to_string(),
        unpublished: false,
    }
}

/// Says what no forge publishes: what becomes of that is tested as well.
pub(crate) fn say_unpublished(status: u16, body: &str) -> Say {
    Say {
        status,
        headers: Vec::new(),
        body: body.to_owned(),
        unpublished: true,
    }
}

impl Say {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Say>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// What it plays; the App is GitHub's.
    kind: Arc<Mutex<Option<Kind>>>,
}

/// The forge. Its answers are given in order, one for each request.
pub(crate) struct Played {
    pub(crate) url: String,
    script: Script,
}

impl Played {
    pub(crate) async fn new(answers: Vec<Say>) -> Self {
        let script = Script::default();
        script.answers.lock().unwrap().extend(answers);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, script }
    }

    /// Forgets what was asked and what is left to be said, and says this from now on.
    pub(crate) fn then(&self, answers: Vec<Say>) {
        self.script.asked.lock().unwrap().clear();
        *self.script.answers.lock().unwrap() = answers.into();
    }

    pub(crate) fn forge(&self, kind: Kind) -> Forge {
        *self.script.kind.lock().unwrap() = Some(kind);
        // Pauses of no length: what is tested is whether there is another try, and not how long it takes.
        let patience = Patience {
            pauses: vec![Duration::ZERO; 2],
            rate_limit_max: Duration::ZERO,
        };
        Forge::new(kind, &self.url, "example/adder", Token::new(TOKEN), patience).unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.script.asked.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1024 * 1024).await.unwrap();
    script.asked.lock().unwrap().push(Asked {
        line: format!("{} {}", parts.method, parts.uri),
        authorization: parts.headers["authorization"].to_str().unwrap().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    });
    let Some(next) = script.answers.lock().unwrap().pop_front() else {
        return Response::builder()
            .status(500)
            .body(Body::from("the test has no more answers"))
            .unwrap();
    };
    if (200..300).contains(&next.status) && !next.unpublished {
        let kind = script.kind.lock().unwrap().unwrap_or(Kind::Github);
        let path = parts.uri.path().trim_start_matches("/api");
        let said: Value = serde_json::from_str(&next.body).unwrap();
        if let Some(misfit) = misfit(kind, parts.method.as_str(), path, next.status, &said) {
            let words = format!("the test would say what no forge does: {misfit}");
            return Response::builder().status(418).body(Body::from(words)).unwrap();
        }
    }
    let mut response = Response::builder().status(next.status);
    for (name, value) in next.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(next.body)).unwrap()
}
