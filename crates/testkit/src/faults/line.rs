//! The line of one process to the API: every request of its client goes through here.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, body::Body};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::sync::oneshot;
use tower::{BoxError, Service, ServiceExt};

use super::{
    Trouble,
    watched::watched,
    wire::{Order, Process, Wire},
};
use crate::trace::fingerprint;

/// A service for `kube::Client::new`.
#[derive(Clone, Debug)]
pub struct Line {
    wire: Arc<Wire>,
    process: Arc<Process>,
    api: Router,
}

impl Line {
    pub fn new(wire: Arc<Wire>, process: Arc<Process>, api: Router) -> Self {
        Self { wire, process, api }
    }
}

impl Service<Request<kube::client::Body>> for Line {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    /// What was sent is on its way even if the process does not wait for the answer, so it has a task of its own.
    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let line = self.clone();
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let response = line.send(request).await;
            line.process.passes().await;
            // An error means that nobody waits any more.
            let _gave_up = answer.send(response);
        });
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(broken())) })
    }
}

/// A request in short.
struct Sent {
    method: Method,
    target: String,
    plural: String,
    watches: bool,
    print: u32,
}

impl Sent {
    fn of(request: &Request<Bytes>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self {
            method: request.method().clone(),
            target: request.uri().to_string(),
            plural: plural(request.uri().path()).to_owned(),
            watches: query
                .split('&')
                .any(|pair| matches!(pair, "watch=true" | "watch=1")),
            print: fingerprint(request.body()),
        }
    }

    fn makes_a_job(&self) -> bool {
        self.method == Method::POST && self.plural == "jobs"
    }

    /// Whether it is one of the writes that are numbered. Leases are renewed all the time.
    fn counts(&self) -> bool {
        self.method != Method::GET && self.plural != "leases"
    }
}

/// The resource that a path is about: `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME`, or `/api/VERSION/…`.
fn plural(path: &str) -> &str {
    let mut parts = path.trim_start_matches('/').split('/');
    let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
    let mut parts = parts.skip(skipped);
    match parts.next() {
        Some("namespaces") => parts.nth(1).unwrap_or("namespaces"),
        other => other.unwrap_or_default(),
    }
}

impl Line {
    async fn send(&self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, body.collect().await?.to_bytes());
        let sent = Sent::of(&request);
        let mut waited = self.process.passes().await;
        self.wire.travel().await;
        waited |= self.process.passes().await;
        let response = if waited && sent.makes_a_job() {
            Err(self.lost(&sent))
        } else if sent.counts() {
            self.write(&sent, request).await
        } else {
            self.deliver(&sent, request).await
        };
        self.wire.travel().await;
        response
    }

    /// Carries a request out.
    async fn deliver(&self, sent: &Sent, request: Request<Bytes>) -> Result<Response<Body>, BoxError> {
        if sent.makes_a_job() && self.wire.forbids_jobs() {
            let words = "exceeded quota: agents, requested: count/jobs.batch=1";
            return Ok(self.refuse(sent, StatusCode::FORBIDDEN, "Forbidden", words));
        }
        let response = self.api.clone().oneshot(request.map(Body::from)).await?;
        self.note(sent, response.status().as_str());
        if !sent.watches || response.status() != StatusCode::OK {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let (wire, process) = (Arc::clone(&self.wire), Arc::clone(&self.process));
        Ok(Response::from_parts(
            head,
            watched(wire, process, sent.plural.clone(), body),
        ))
    }

    /// Carries a write out, with what goes wrong about it.
    async fn write(&self, sent: &Sent, request: Request<Bytes>) -> Result<Response<Body>, BoxError> {
        let (number, troubles) = self.wire.count();
        let fate = fate(&self.wire, &self.process, number, troubles);
        match fate {
            Some(trouble) => self.suffer(trouble, sent, request).await,
            None => self.deliver(sent, request).await,
        }
    }

    async fn suffer(
        &self,
        trouble: Trouble,
        sent: &Sent,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, BoxError> {
        match trouble {
            Trouble::CrashBefore => self.crash().await,
            Trouble::CrashAfter => {
                self.deliver(sent, request).await?;
                self.crash().await
            }
            Trouble::LostAnswer => {
                self.deliver(sent, request).await?;
                Err(broken())
            }
            Trouble::NoAnswer => {
                self.deliver(sent, request).await?;
                std::future::pending().await
            }
            Trouble::GatewayTimeout => {
                self.deliver(sent, request).await?;
                let words = "the server did not answer in time";
                Ok(refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout", words))
            }
            Trouble::NotSent => {
                self.note(sent, "not sent");
                Err(broken())
            }
            Trouble::Late(by) => {
                self.note(sent, "on its way");
                let line = self.clone();
                let late = Sent::of(&request);
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    // Nobody waits for the answer.
                    let _unheard = line.deliver(&late, request).await;
                });
                Err(broken())
            }
            Trouble::Conflict => Ok(self.refuse(
                sent,
                StatusCode::CONFLICT,
                "Conflict",
                "the object has been modified",
            )),
            Trouble::Busy => {
                let code = StatusCode::TOO_MANY_REQUESTS;
                let mut response = self.refuse(sent, code, "TooManyRequests", "too many requests");
                response
                    .headers_mut()
                    .insert(RETRY_AFTER, HeaderValue::from_static("1"));
                Ok(response)
            }
            Trouble::Broken => {
                let code = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(self.refuse(sent, code, "InternalError", "something broke"))
            }
            Trouble::Takeover(time) => {
                self.process.freeze_for(time);
                self.wire.order(Order::Rival);
                if self.process.passes().await && sent.makes_a_job() {
                    return Err(self.lost(sent));
                }
                self.deliver(sent, request).await
            }
            Trouble::Freeze(..)
            | Trouble::Skip(..)
            | Trouble::Lag(..)
            | Trouble::Expire
            | Trouble::DeleteJob(_)
            | Trouble::DeletePod(_)
            | Trouble::ClockForward(_)
            | Trouble::ClockBack(_) => self.deliver(sent, request).await,
        }
    }

    /// A process that was cut off for so long has lost its connections. Of all its writes only one that makes a Job must not come
    /// after that, because nothing would fence it off once the Job that another process made is gone: docs/simulation.md says so.
    fn lost(&self, sent: &Sent) -> BoxError {
        self.note(sent, "lost with its connection");
        broken()
    }

    /// Answers with an error in place of the API server, which never sees the write.
    fn refuse(&self, sent: &Sent, code: StatusCode, reason: &str, message: &str) -> Response<Body> {
        self.note(sent, &format!("{}, not carried out", code.as_str()));
        refusal(code, reason, message)
    }

    async fn crash(&self) -> Result<Response<Body>, BoxError> {
        self.process.kill();
        self.wire.order(Order::Restart);
        std::future::pending().await
    }

    fn note(&self, sent: &Sent, outcome: &str) {
        let Sent {
            method,
            target,
            print,
            ..
        } = sent;
        self.wire.trace.note(
            &self.process.name,
            format_args!("{method} {target} #{print:08x}: {outcome}"),
        );
    }
}

/// What goes wrong about a write itself, the first of all that is planned for it. The rest is set in motion beside it.
pub(super) fn fate(wire: &Wire, process: &Process, number: u32, troubles: Vec<Trouble>) -> Option<Trouble> {
    let mut fate = None;
    for trouble in troubles {
        wire.trace
            .note(&process.name, format_args!("write {number}: {trouble}"));
        if !happens_beside(wire, process, trouble) {
            fate.get_or_insert(trouble);
        }
    }
    fate
}

/// Sets in motion what does not concern the write itself; says whether that is all.
fn happens_beside(wire: &Wire, process: &Process, trouble: Trouble) -> bool {
    match trouble {
        Trouble::Freeze(which, time) => process.hold(which, time, false),
        Trouble::Skip(which, time) => process.hold(which, time, true),
        Trouble::Lag(which, by) => process.lag(which, by),
        Trouble::Expire => process.expire(),
        Trouble::DeleteJob(after) => wire.order(Order::DeleteJob(after)),
        Trouble::DeletePod(after) => wire.order(Order::DeletePod(after)),
        Trouble::ClockForward(_) | Trouble::ClockBack(_) => {
            if let Some(by) = trouble.jump() {
                wire.order(Order::SetClock(by));
            }
        }
        Trouble::CrashBefore
        | Trouble::CrashAfter
        | Trouble::LostAnswer
        | Trouble::NoAnswer
        | Trouble::GatewayTimeout
        | Trouble::NotSent
        | Trouble::Late(_)
        | Trouble::Conflict
        | Trouble::Busy
        | Trouble::Broken
        | Trouble::Takeover(_) => return false,
    }
    true
}

fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::TimedOut, "the connection broke").into()
}

fn refusal(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "details": {"retryAfterSeconds": 1}, "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_of_a_path_is_found() {
        for (path, expected) in [
            ("/api/v1/namespaces/agents/pods/a", "pods"),
            ("/api/v1/namespaces/agents", "namespaces"),
            ("/apis/batch/v1/namespaces/agents/jobs", "jobs"),
            (
                "/apis/coordination.k8s.io/v1/namespaces/agents/leases/l",
                "leases",
            ),
            ("/apis/agents.proompteng.ai/v1alpha1/agentruns", "agentruns"),
            ("/api/v1/pods", "pods"),
            ("/version", ""),
        ] {
            assert_eq!(plural(path), expected, "{path}");
        }
    }
}
