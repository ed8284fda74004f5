//! A real cluster behind the recorder. `tests/cluster/bench.sh run` names it in `KUBECONFIG`.

use std::{fmt::Debug, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, Version, header};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Node, ServiceAccount},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Config, Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
    config::AuthInfo,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde::de::DeserializeOwned;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    fixture::{ManualClock, TOKEN},
    running::Behind,
};

/// A cluster that is well does this in a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(50);
/// Those that the script makes.
const NAMESPACE: &str = "lab";
const NODE: &str = "shelf";
/// The kind that the script makes, and in how many versions.
const KIND: &str = "gadgets.toys.example.com";
const KIND_VERSIONS: usize = 2;
/// How each of them looks among all kinds.
const DISCOVERED: &str = r#""resource":"gadgets""#;
const DISCOVERY_PAUSE: Duration = Duration::from_millis(100);
/// Every namespace of a cluster has them.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";
/// How often the node is said to be well. A cluster gives a node up that has not been heard of for 40 seconds, and deletes its
/// pods.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Where kubelets keep theirs.
const NODE_LEASES: &str = "kube-node-lease";

#[derive(Clone)]
pub(crate) struct Cluster {
    admin: Client,
    /// For requests with a token of their own.
    stranger: Client,
    /// Speaks for the node of the script, which has no kubelet.
    heart: Arc<JoinSet<()>>,
}

impl Behind for Cluster {
    /// The clock of a cluster is its own.
    async fn start(_: Arc<ManualClock>) -> Self {
        let config = Config::infer()
            .await
            .expect("KUBECONFIG names a cluster: run `make conformance-tests`");
        let mut without_identity = config.clone();
        without_identity.auth_info = AuthInfo::default();
        let admin = Client::try_from(config).expect("a client");
        let mut heart = JoinSet::new();
        heart.spawn(beat(admin.clone()));
        Self {
            admin,
            heart: Arc::new(heart),
            stranger: Client::try_from(without_identity).expect("a client"),
        }
    }

    fn service(&self) -> Router {
        let cluster = self.clone();
        Router::new().fallback(async move |request: extract::Request| cluster.clone().pass(request).await)
    }

    async fn stop(self) {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NODE_LEASES);
        drop(self.heart);
        leases
            .delete(NODE, &DeleteParams::default())
            .await
            .expect("the lease of the node can be deleted");
    }
}

impl Cluster {
    async fn pass(self, mut request: extract::Request) -> Response {
        let is_ours = request
            .headers()
            .get(header::AUTHORIZATION)
            .is_some_and(|value| value.as_bytes() == format!("Bearer {TOKEN}").as_bytes());
        let client = if is_ours {
            request.headers_mut().remove(header::AUTHORIZATION);
            &self.admin
        } else {
            &self.stranger
        };
        request.headers_mut().remove(header::HOST);
        let written = Written::by(&request);
        // kubectl speaks HTTP/2 to us, and the client of the cluster does not.
        *request.version_mut() = Version::HTTP_11;
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX)
            .await
            .expect("a request of kubectl");
        let sent = client
            .send(http::Request::from_parts(parts, kube::client::Body::from(body)))
            .await;
        match sent {
            Ok(answer) => {
                if answer.status().is_success() {
                    timeout(PATIENCE, self.settle(written))
                        .await
                        .expect("a cluster does what follows from a write");
                }
                let mut answer = answer.map(Body::new);
                without_hops(answer.headers_mut());
                answer
            }
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }

    /// kubelite has done what follows from a write when it answers, and a cluster does it a little later.
    async fn settle(&self, written: Option<Written>) {
        match written {
            None => {}
            Some(Written::Kind) => {
                let kinds: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
                await_condition(kinds, KIND, is_crd_established())
                    .await
                    .expect("a watch");
                while self.discovered().await.matches(DISCOVERED).count() < KIND_VERSIONS {
                    sleep(DISCOVERY_PAUSE).await;
                }
            }
            Some(Written::Namespace) => {
                self.until("default", |account: &ServiceAccount| {
                    account.metadata.uid.is_some()
                })
                .await;
                self.until(ROOT_CERTIFICATES, |map: &ConfigMap| map.metadata.uid.is_some())
                    .await;
            }
            Some(Written::RootCertificates) => {
                self.until(ROOT_CERTIFICATES, |map: &ConfigMap| {
                    map.metadata.deletion_timestamp.is_none()
                })
                .await;
            }
            Some(Written::Node) => {
                let nodes: Api<Node> = Api::all(self.admin.clone());
                await_condition(nodes, NODE, |node: Option<&Node>| {
                    node.is_none_or(is_tainted_as_it_is)
                })
                .await
                .expect("a watch");
            }
        }
    }

    /// The kinds of the cluster, as kubectl asks for them.
    async fn discovered(&self) -> String {
        let request = http::Request::get("/apis")
            .header(
                header::ACCEPT,
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            )
            .body(Vec::new())
            .expect("a request");
        self.admin
            .request_text(request)
            .await
            .expect("a cluster tells its kinds")
    }

    async fn until<K>(&self, name: &str, holds: impl Fn(&K) -> bool + Send)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<K> = Api::namespaced(self.admin.clone(), NAMESPACE);
        await_condition(api, name, |object: Option<&K>| object.is_some_and(&holds))
            .await
            .expect("a watch");
    }
}

/// Renews the lease of the node for as long as somebody waits for it.
async fn beat(admin: Client) {
    let leases: Api<Lease> = Api::namespaced(admin, NODE_LEASES);
    loop {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(NODE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(NODE.to_owned()),
                lease_duration_seconds: Some(40),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let params = PatchParams::apply("kubectl-suite").force();
        leases
            .patch(NODE, &params, &Patch::Apply(&lease))
            .await
            .expect("the lease of the node can be renewed");
        sleep(HEARTBEAT).await;
    }
}

/// What a request writes that a cluster answers with more writes.
#[derive(Clone, Copy)]
enum Written {
    Kind,
    Namespace,
    RootCertificates,
    Node,
}

impl Written {
    fn by(request: &extract::Request) -> Option<Self> {
        let dry = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("dryRun"));
        if dry || request.method() == Method::GET {
            return None;
        }
        match request.uri().path() {
            "/api/v1/namespaces" => Some(Self::Namespace),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => Some(Self::Kind),
            "/api/v1/namespaces/lab/configmaps/kube-root-ca.crt" => Some(Self::RootCertificates),
            "/api/v1/nodes/shelf" | "/api/v1/nodes/shelf/status" => Some(Self::Node),
            _ => None,
        }
    }
}

/// Whether its taints say what the node says of itself.
fn is_tainted_as_it_is(node: &Node) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    let has = |key: &str| taints.iter().any(|taint| taint.key == key);
    has("node.kubernetes.io/unschedulable") == spec.unschedulable.unwrap_or_default()
        && !has("node.kubernetes.io/not-ready")
}

/// These headers are about the connection to the cluster, not about the answer.
fn without_hops(headers: &mut HeaderMap) {
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
}
