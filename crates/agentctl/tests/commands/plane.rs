//! A control plane in the test's own process, for one namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use jangar_api::Kind;
use jangar_engine::settings::{Namespaces, Settings};
use jangar_server::{
    access::{Connection, Gatekeeper},
    grpc,
    history::{Database, History},
    metrics::Metrics,
    plane::{About, ControlPlane, Parts},
    world::{self, Filter, Watches, World},
};
use jangar_store::Store;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};

use crate::support::NOW;

/// Everything happens in this process. More means that something hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a control plane has besides a cluster.
#[derive(Default)]
pub(crate) struct Having {
    /// Where runs are remembered.
    pub(crate) history: Option<Store>,
    /// How it encrypts.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// Callers who speak TLS. Those who do not get no further.
struct Encrypted {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, from) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A control plane that answers.
pub(crate) struct Plane {
    pub(crate) address: String,
    world: Arc<World>,
    serving: JoinHandle<()>,
    _watches: Watches,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Plane {
    pub(crate) async fn start(own: &Client, anonymous: Client, namespace: &str, having: Having) -> Self {
        let mut settings = Settings {
            namespaces: Namespaces::These(BTreeSet::from([namespace.to_owned()])),
            ..Settings::default()
        };
        namespace.clone_into(&mut settings.lease.namespace);
        let metrics = Arc::new(Metrics::default());
        let world = Arc::new(World::new(
            settings.namespaces.clone(),
            "one".to_owned(),
            Arc::clone(&metrics),
        ));
        let watches = world::start(&world, own, true);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let plane = ControlPlane::new(Parts {
            world: Arc::clone(&world),
            gatekeeper: Gatekeeper::new(Connection::new(anonymous), own, None, Arc::clone(&metrics)),
            own: own.clone(),
            settings: Arc::new(settings),
            about: About {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                build_sha: String::new(),
                build_time: String::new(),
            },
            history: having
                .history
                .map(|store| Arc::new(Database(store)) as Arc<dyn History>),
            metrics,
            clock: Arc::new(|| NOW.parse().unwrap()),
            grpc_address: Some(address.clone()),
            certificate: None,
        });
        tokio::time::timeout(PATIENCE, world.complete()).await.unwrap();
        let router = grpc::router(plane).await.unwrap();
        let serving = match having.tls {
            None => tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
            Some(config) => {
                let acceptor = TlsAcceptor::from(config);
                let listener = Encrypted { listener, acceptor };
                tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })
            }
        };
        Self {
            address,
            world,
            serving,
            _watches: watches,
        }
    }

    /// Waits until the caches show what the API server has.
    pub(crate) async fn caught_up(&self, client: &Client, namespace: &str) {
        let waiting = async {
            while !self.is_caught_up(client, namespace).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }

    async fn is_caught_up(&self, client: &Client, namespace: &str) -> bool {
        for kind in Kind::ALL {
            let info = kind.info();
            let gvk = GroupVersionKind::gvk(&info.group, &info.version, &info.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, &info.plural);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            let listed = api.list(&ListParams::default()).await.unwrap();
            let there: BTreeMap<String, String> = listed
                .items
                .into_iter()
                .map(|object| {
                    let metadata = object.metadata;
                    (metadata.name.unwrap(), metadata.resource_version.unwrap())
                })
                .collect();
            let filter = Filter {
                namespace: Some(namespace.to_owned()),
                ..Filter::default()
            };
            let seen = self.world.list(*kind, &filter, None, usize::MAX);
            let seen: BTreeMap<String, String> = seen
                .iter()
                .map(|object| (object.name.clone(), object.version.clone()))
                .collect();
            if seen != there {
                return false;
            }
        }
        true
    }
}
