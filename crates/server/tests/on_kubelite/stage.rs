//! A control plane, an API server, and people with different rights.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body as AnswerBody};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use jangar_api::Kind;
use jangar_engine::settings::{Namespaces, Settings};
use jangar_server::{
    access::{Connection, Gatekeeper, Token as Bearer},
    history::{Database, History},
    metrics::Metrics,
    plane::{About, ControlPlane, Parts},
    world::{self, Watches, World},
};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    client::Body,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use kubelite::{
    clock::{Ids, TokioClock},
    server::{Config, Server, Token, User},
    store::{Limits, Store},
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt, service_fn};

pub(crate) const NAMESPACE: &str = "agents";
/// A namespace that exists, and that only the administrator may see.
pub(crate) const HIDDEN: &str = "hidden";
pub(crate) const BREAK_GLASS: &str = "break-glass-in-an-emergency";
pub(crate) const START: &str = "2026-03-01T12:00:00Z";
/// Everything happens in this process. More means that something hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// What people may do, as RBAC would say it.
fn may(user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
    let reads = matches!(verb, "get" | "list" | "watch");
    match user {
        "admin" | "own" => true,
        "reader" => namespace == NAMESPACE && reads,
        "clerk" => namespace == NAMESPACE && reads && resource != "pods",
        "submitter" => namespace == NAMESPACE && (reads || matches!(verb, "create" | "patch" | "delete")),
        "approver" | "stranger" => {
            namespace == NAMESPACE && (reads || (verb == "approve" && resource == "orchestrationruns"))
        }
        _ => false,
    }
}

/// A request that arrived: who sent it, and what it was.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) user: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
}

type Requests = Arc<Mutex<Vec<Arrived>>>;
/// What the account of the control plane itself may not do, all of a sudden: verbs and resources.
type Denied = Arc<Mutex<Vec<(&'static str, &'static str)>>>;
/// How many of the next answers to who creates an AgentRun get lost on their way.
type Lost = Arc<AtomicUsize>;

/// A line to the API server that keeps to the rights. Without a `user`, the token of each request says who sends it.
fn line(
    router: Router,
    user: Option<&'static str>,
    requests: Requests,
    denied: Denied,
    lost: Lost,
) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (router, requests) = (router.clone(), Arc::clone(&requests));
        let (denied, lost) = (Arc::clone(&denied), Arc::clone(&lost));
        async move {
            let user = user.map_or_else(|| user_of(&request), str::to_owned);
            requests.lock().unwrap().push(Arrived {
                user: user.clone(),
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or("").to_owned(),
            });
            if request.uri().path().ends_with("/selfsubjectaccessreviews") && !user.is_empty() {
                return Ok::<_, BoxError>(reviewed(&user, request).await);
            }
            if let Some((verb, resource, namespace)) = asked(&request)
                && !user.is_empty()
                && (!may(&user, verb, &resource, &namespace)
                    || (user == "own" && denied.lock().unwrap().contains(&(verb, resource.as_str()))))
            {
                return Ok(forbidden(&user, verb, &resource, &namespace));
            }
            let is_create = request.method() == Method::POST && request.uri().path().ends_with("/agentruns");
            let answer = router.oneshot(request).await?;
            let loses = |left: usize| left.checked_sub(1);
            if is_create
                && lost
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, loses)
                    .is_ok()
            {
                return Err("the connection broke before the answer".into());
            }
            Ok(answer)
        }
    });
    Client::new(service, NAMESPACE)
}

/// The tokens of the test are the names of their users. One that is not known is left to the API server.
fn user_of(request: &Request<Body>) -> String {
    let value = request.headers().get(header::AUTHORIZATION);
    let token = value.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer token-of-"));
    token.unwrap_or_default().to_owned()
}

async fn reviewed(user: &str, request: Request<Body>) -> Response<AnswerBody> {
    let bytes = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&bytes).unwrap();
    let of = |field: &str| {
        let found = review.pointer(&format!("/spec/resourceAttributes/{field}"));
        found.and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let allowed = if review.pointer("/spec/nonResourceAttributes").is_some() {
        user == "admin"
    } else {
        may(user, &of("verb"), &of("resource"), &of("namespace"))
    };
    review["status"] = json!({"allowed": allowed});
    answer(StatusCode::CREATED, &review)
}

fn forbidden(user: &str, verb: &str, resource: &str, namespace: &str) -> Response<AnswerBody> {
    let message = format!("User {user:?} cannot {verb} resource {resource:?} in the namespace {namespace:?}");
    answer(
        StatusCode::FORBIDDEN,
        &json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message,
                "reason": "Forbidden", "code": 403}),
    )
}

fn answer(status: StatusCode, body: &Value) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::from(body.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// What a request asks of the API server.
fn asked(request: &Request<Body>) -> Option<(&'static str, String, String)> {
    let path = request.uri().path();
    let rest = path.split_once("/namespaces/")?.1;
    let mut parts = rest.split('/');
    let namespace = parts.next()?.to_owned();
    let resource = parts.next()?.to_owned();
    let named = parts.next().is_some();
    let verb = match *request.method() {
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        Method::DELETE => "delete",
        _ if named => "get",
        _ => "list",
    };
    Some((verb, resource, namespace))
}

/// A control plane with everything around it.
pub(crate) struct Stage {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) http: Router,
    pub(crate) admin: Client,
    pub(crate) requests: Requests,
    pub(crate) denied: Denied,
    pub(crate) lost: Lost,
    anonymous: Client,
    own: Client,
    settings: Arc<Settings>,
    _server: Server,
    _watches: Watches,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::build(change, None).await
    }

    /// With a history.
    pub(crate) async fn remembering(store: &jangar_store::Store) -> Self {
        Self::build(|_| {}, Some(Arc::new(Database(store.clone())))).await
    }

    async fn build(change: impl FnOnce(&mut Settings), history: Option<Arc<dyn History>>) -> Self {
        let known = ["admin", "reader", "clerk", "submitter", "approver", "stranger"];
        let token = |name: &&str| {
            let user = User {
                name: (*name).to_owned(),
                uid: String::new(),
                groups: vec!["people".to_owned()],
            };
            Token::new(&format!("token-of-{name}"), user)
        };
        let server = Server::start(Config {
            clock: Arc::new(TokioClock::starting_at(START.parse().unwrap())),
            ids: Ids::seeded(7),
            tokens: known.iter().map(token).collect(),
            ..Config::new(Store::in_memory(Limits::default()))
        })
        .await
        .unwrap();
        let (requests, denied, lost) = (Requests::default(), Denied::default(), Lost::default());
        let admin = Client::new(server.local(User::system("admin")), NAMESPACE);
        install(&admin).await;
        let own = line(
            server.local(User::system("own")),
            Some("own"),
            Arc::clone(&requests),
            Arc::clone(&denied),
            Arc::clone(&lost),
        );
        let anonymous = line(
            server.router(),
            None,
            Arc::clone(&requests),
            Arc::clone(&denied),
            Arc::clone(&lost),
        );
        let mut settings = Settings {
            namespaces: Namespaces::These(BTreeSet::from([NAMESPACE, HIDDEN].map(str::to_owned))),
            ..Settings::default()
        };
        change(&mut settings);
        let settings = Arc::new(settings);
        let (plane, watches) = plane(&own, &anonymous, &settings, "one", history);
        tokio::time::timeout(PATIENCE, plane.world.complete())
            .await
            .unwrap();
        Self {
            http: jangar_server::http::router(Arc::clone(&plane), Arc::new(|| "# EOF\n".to_owned())),
            plane,
            admin,
            requests,
            denied,
            lost,
            anonymous,
            own,
            settings,
            _server: server,
            _watches: watches,
        }
    }

    /// Another replica, with caches of its own.
    pub(crate) async fn replica(&self) -> (Router, Watches) {
        let (plane, watches) = plane(&self.own, &self.anonymous, &self.settings, "two", None);
        plane.world.complete().await;
        let router = jangar_server::http::router(plane, Arc::new(|| "# EOF\n".to_owned()));
        (router, watches)
    }

    /// Creates an object, and waits until the caches show it.
    pub(crate) async fn create(&self, kind: Kind, namespace: &str, manifest: Value) -> Value {
        let info = kind.info();
        let mut manifest = manifest;
        manifest["apiVersion"] = json!(format!("{}/{}", info.group, info.version));
        manifest["kind"] = json!(info.kind);
        let status = manifest.get("status").cloned();
        let object: DynamicObject = serde_json::from_value(manifest).unwrap();
        let api = self.api(kind, namespace);
        let mut made = api.create(&PostParams::default(), &object).await.unwrap();
        let name = made.metadata.name.clone().unwrap();
        if let Some(status) = status {
            let patch = json!({"status": status});
            made = api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .unwrap();
        }
        let version = made.metadata.resource_version.clone().unwrap();
        self.eventually(|| {
            let seen = self.plane.world.get(kind, namespace, &name);
            seen.is_some_and(|seen| seen.version == version)
        })
        .await;
        serde_json::to_value(&made).unwrap()
    }

    pub(crate) fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let info = kind.info();
        let gvk = GroupVersionKind::gvk(&info.group, &info.version, &info.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &info.plural);
        Api::namespaced_with(self.admin.clone(), namespace, &resource)
    }

    /// Waits until the caches have caught up.
    pub(crate) async fn eventually(&self, is: impl Fn() -> bool) {
        let waiting = async {
            while !is() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }

    /// How many requests of this kind have arrived.
    pub(crate) fn arrived(&self, is: impl Fn(&Arrived) -> bool) -> usize {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .filter(|arrived| is(arrived))
            .count()
    }

    pub(crate) async fn get(&self, user: &str, path: &str) -> (StatusCode, Value) {
        call(&self.http, request(Method::GET, user, path, None, None)).await
    }

    pub(crate) async fn post(
        &self,
        user: &str,
        path: &str,
        key: Option<&str>,
        body: Value,
    ) -> (StatusCode, Value) {
        call(&self.http, request(Method::POST, user, path, key, Some(body))).await
    }
}

fn plane(
    own: &Client,
    anonymous: &Client,
    settings: &Arc<Settings>,
    epoch: &str,
    history: Option<Arc<dyn History>>,
) -> (Arc<ControlPlane>, Watches) {
    let metrics = Arc::new(Metrics::default());
    let namespaces = settings.namespaces.clone();
    let world = Arc::new(World::new(namespaces, epoch.to_owned(), Arc::clone(&metrics)));
    let watches = world::start(&world, own, true);
    let gatekeeper = Gatekeeper::new(
        Connection::new(anonymous.clone()),
        own,
        Some(&Bearer::new(BREAK_GLASS)),
        Arc::clone(&metrics),
    );
    let plane = ControlPlane::new(Parts {
        world,
        gatekeeper,
        own: own.clone(),
        settings: Arc::clone(settings),
        about: About {
            version: "1.2.3".to_owned(),
            build_sha: "abc".to_owned(),
            build_time: String::new(),
        },
        history,
        metrics,
        clock: Arc::new(|| START.parse().unwrap()),
        grpc_address: Some("127.0.0.1:50051".to_owned()),
        certificate: None,
    });
    (plane, watches)
}

/// The definition of a kind. Reading all nineteen schemas takes a second for each test, so that most kinds take anything here; what
/// schemas refuse is not the business of the control plane.
fn definition(kind: Kind) -> CustomResourceDefinition {
    let crd = kind.crd();
    if matches!(
        kind,
        Kind::Agent | Kind::ImplementationSource | Kind::ImplementationSpec
    ) {
        return crd;
    }
    let mut json = serde_json::to_value(&crd).unwrap();
    json["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json["spec"]["versions"][0]["selectableFields"] = json!([]);
    serde_json::from_value(json).unwrap()
}

async fn install(admin: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for kind in Kind::ALL {
        let crd = definition(*kind);
        let name = crd.metadata.name.clone().unwrap();
        definitions.create(&PostParams::default(), &crd).await.unwrap();
        await_condition(definitions.clone(), &name, is_crd_established())
            .await
            .unwrap();
    }
    for name in [NAMESPACE, HIDDEN] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
}

/// A request of a user; an empty one sends no token.
pub(crate) fn request(
    method: Method,
    user: &str,
    path: &str,
    key: Option<&str>,
    body: Option<Value>,
) -> Request<AnswerBody> {
    let mut request = Request::builder().method(method).uri(path);
    if !user.is_empty() {
        let token = if user == BREAK_GLASS {
            user.to_owned()
        } else {
            format!("token-of-{user}")
        };
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    match body {
        Some(body) => request
            .header(header::CONTENT_TYPE, "application/json")
            .body(AnswerBody::from(body.to_string())),
        None => request.body(AnswerBody::empty()),
    }
    .unwrap()
}

/// The status and the JSON of an answer.
pub(crate) async fn call(router: &Router, request: Request<AnswerBody>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    (status, body)
}

pub(crate) fn agent(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"providerRef": {"name": "p"}}})
}

pub(crate) fn agent_run(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"agentRef": {"name": "coder"}, "runtime": {"type": "job"}, "idempotencyKey": format!("key-{name}"),
                 "implementation": {"inline": {"text": "do it"}}},
    })
}
