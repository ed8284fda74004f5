//! `jangar control-plane`: HTTP and gRPC for people and programs, for a cluster or, in `jangar up`, for the embedded one.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use axum::Router;
use jangar_engine::settings::{Settings, TlsFiles};
use jangar_server::{
    access::{Connection, Gatekeeper, Token},
    grpc,
    history::{Database, History},
    http::{self, Serving, Transport},
    metrics::Metrics,
    plane::{About, ControlPlane, Parts},
    tls::{self, Certificate},
    world::{self, Watches, World},
};
use jangar_store::Store;
use kube::Client;
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};

use crate::{
    BadInput, controllers, history,
    probes::{self, Instruments, Probes},
    readiness::{Part, Readiness},
    settings,
    signals::StopRequests,
};

/// What is missing before requests can be answered.
pub(crate) const NOT_FILLED: &str =
    "the caches of the control plane are not filled yet; its own /ready says which";
/// Where `jangar up` answers HTTP, if nobody else does.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
/// Nobody gives a pod more time than this to end.
const LINGER_MAX_SECONDS: u64 = 3_600;
/// What is missing once the program is told to end.
const ENDING: &str = "the control plane is about to end";
/// How long changes that are under way, and their records, have at the end.
const SETTLING: Duration = Duration::from_secs(3);
/// Whoever guesses a token has to guess at least this much.
const TOKEN_MIN_CHARS: usize = 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where HTTP is answered; port 0 picks a free one. JANGAR_GRPC_* says where gRPC is.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    listen: SocketAddr,
    /// Where /healthz, /readyz and /metrics are served to whoever asks; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8082)))]
    probes_listen: SocketAddr,
    /// How many seconds to go on answering after a request to stop, while /readyz says no: a cluster needs a moment to send callers elsewhere.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=LINGER_MAX_SECONDS))]
    linger: u64,
    /// Run the controllers in this process as well.
    #[arg(long)]
    with_controllers: bool,
    /// The file with the certificate that encrypts HTTP and gRPC, as PEM; goes before JANGAR_TLS_CERT_FILE.
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The file with the key of that certificate, as PEM; goes before JANGAR_TLS_KEY_FILE.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
}

/// How the control plane reaches the API server.
pub(crate) struct Clients {
    /// Its own account: reads, and records approvals.
    pub(crate) own: Client,
    /// Nobody: each request carries the token of a caller.
    pub(crate) anonymous: Client,
}

/// Where it is reached.
#[derive(Debug)]
pub(crate) struct Listeners {
    http: TcpListener,
    grpc: Option<TcpListener>,
}

impl Listeners {
    /// Exactly where it is said.
    async fn bind(listen: SocketAddr, settings: &Settings) -> Result<Self> {
        let grpc = match settings.control_plane.grpc() {
            Some(address) => Some(probes::bind(address, "JANGAR_GRPC_ADDRESS").await?),
            None => None,
        };
        Ok(Self {
            http: probes::bind(listen, "--listen").await?,
            grpc,
        })
    }

    /// Where it is usual, or anywhere if that is taken: on one machine there may be several.
    pub(crate) async fn bind_somewhere(listen: Option<SocketAddr>, settings: &Settings) -> Result<Self> {
        let http = match listen {
            Some(listen) => probes::bind(listen, "--control-plane-listen").await?,
            None => usual_or_free(USUAL).await?,
        };
        let grpc = match settings.control_plane.grpc() {
            Some(address) => Some(usual_or_free(address).await?),
            None => None,
        };
        Ok(Self { http, grpc })
    }
}

async fn usual_or_free(usual: SocketAddr) -> Result<TcpListener> {
    match TcpListener::bind(usual).await {
        Ok(listener) => Ok(listener),
        Err(error) => {
            tracing::debug!(%usual, %error, "another port is used");
            probes::bind(SocketAddr::new(usual.ip(), 0), "--control-plane-listen").await
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut stop = StopRequests::listen()?;
    let mut settings = settings::read([])?;
    if let Some((certificate, key)) = args.tls_cert_file.zip(args.tls_key_file) {
        settings.control_plane.tls = Some(TlsFiles { certificate, key });
    }
    let listeners = Listeners::bind(args.listen, &settings).await?;
    let probes = probes::bind(args.probes_listen, "--probes-listen").await?;
    let instruments = Instruments::new(Readiness::new([(Part::Caches, NOT_FILLED)]));
    let _probes = Probes::start(probes, instruments.clone(), Router::new())?;
    let clients = Clients {
        own: controllers::client().await?,
        anonymous: controllers::anonymous().await?,
    };
    let history = history::of_environment()?;
    let running = if args.with_controllers {
        instruments
            .readiness
            .missing(Part::Controllers, controllers::NOT_STARTED);
        let (client, history) = (clients.own.clone(), history.clone());
        Some(controllers::Running::start(client, settings.clone(), &instruments, history).await?)
    } else {
        None
    };
    let control_plane = start(clients, Arc::new(settings), listeners, &instruments, history).await?;
    tracing::info!(
        address = %control_plane.address(),
        grpc = control_plane.grpc_address().map(tracing::field::display),
        scheme = control_plane.scheme(),
        "the control plane answers"
    );
    let end = match running {
        Some(controllers) => controllers.until(&mut stop).await,
        None => {
            stop.next().await;
            Ok(())
        }
    };
    instruments.readiness.missing(Part::Stay, ENDING);
    if args.linger > 0 {
        tracing::info!(
            seconds = args.linger,
            "about to stop: callers are answered while they are sent elsewhere"
        );
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.linger)) => {}
            () = stop.next() => tracing::warn!("stopping at the second request, though callers may still be sent here"),
        }
    }
    tracing::info!("stopping: requests under way end, and streams with them");
    tokio::select! {
        () = control_plane.stop() => {}
        () = stop.next() => tracing::warn!("stopped at the second request: requests were cut off"),
    }
    end
}

/// A control plane that answers. Dropping it ends it.
pub(crate) struct Running {
    http: Serving,
    grpc: Option<Serving>,
    plane: Arc<ControlPlane>,
    scheme: &'static str,
    _filling: Background,
    _certificate: Option<tls::Following>,
    _watches: Watches,
}

/// Work beside the answering. Dropping it ends it.
struct Background(JoinHandle<()>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Running {
    /// Where HTTP is answered.
    pub(crate) fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Where gRPC is answered, if it is.
    pub(crate) fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(Serving::address)
    }

    /// How addresses of HTTP begin here.
    pub(crate) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Lets the requests end that are under way, but not for ever.
    pub(crate) async fn stop(self) {
        let Self {
            http, grpc, plane, ..
        } = self;
        plane.close();
        let grpc = async move {
            if let Some(grpc) = grpc {
                grpc.stop().await;
            }
        };
        tokio::join!(http.stop(), grpc);
        // What callers began who have hung up since, and the entries of the audit.
        if timeout(SETTLING, plane.settled()).await.is_err() {
            tracing::warn!("some changes were not recorded in the database in time: the log has them");
        }
    }
}

/// Starts to answer. It is ready when the instruments say so.
pub(crate) async fn start(
    clients: Clients,
    settings: Arc<Settings>,
    listeners: Listeners,
    instruments: &Instruments,
    history: Option<Store>,
) -> Result<Running> {
    let break_glass = break_glass(|name| std::env::var(name).ok())?;
    let metrics = Arc::new(Metrics::register(&mut instruments.registry()));
    let certificate = certificate(settings.control_plane.tls.as_ref(), &metrics).await?;
    let transport = transport(certificate.as_ref(), &metrics)?;
    let epoch = format!("{:016x}", rand::random::<u64>());
    let world = Arc::new(World::new(
        settings.namespaces.clone(),
        epoch,
        Arc::clone(&metrics),
    ));
    let watches = world::start(&world, &clients.own, settings.runs.cancel_enabled);
    let gatekeeper = Gatekeeper::new(
        Connection::new(clients.anonymous),
        &clients.own,
        break_glass.as_ref(),
        Arc::clone(&metrics),
    );
    let grpc_address = match &listeners.grpc {
        Some(listener) => Some(listener.local_addr()?.to_string()),
        None => None,
    };
    let plane = ControlPlane::new(Parts {
        world: Arc::clone(&world),
        gatekeeper,
        own: clients.own,
        settings,
        about: about(|name| std::env::var(name).ok()),
        history: history.map(|store| Arc::new(Database(store)) as Arc<dyn History>),
        metrics,
        clock: Arc::new(jiff::Timestamp::now),
        grpc_address,
        certificate: certificate.clone(),
    });
    let readiness = instruments.readiness.clone();
    let filling = Background(tokio::spawn(async move {
        world.complete().await;
        readiness.there(Part::Caches);
    }));
    let texts = instruments.clone();
    let text = move || {
        texts
            .text()
            .unwrap_or_else(|error| format!("# the metrics cannot be written: {error}\n"))
    };
    let grpc = match listeners.grpc {
        Some(listener) => {
            let router = grpc::router(Arc::clone(&plane))
                .await
                .context("failed to describe the contract of gRPC")?;
            Some(http::serve(listener, router, transport.clone())?)
        }
        None => None,
    };
    let router = http::router(Arc::clone(&plane), Arc::new(text));
    Ok(Running {
        scheme: if certificate.is_some() { "https" } else { "http" },
        http: http::serve(listeners.http, router, transport)?,
        grpc,
        plane,
        _filling: filling,
        _certificate: certificate.map(|certificate| certificate.follow(tls::LOOK_EVERY)),
        _watches: watches,
    })
}

/// What callers are shown, if anything is.
async fn certificate(files: Option<&TlsFiles>, metrics: &Arc<Metrics>) -> Result<Option<Arc<Certificate>>> {
    let Some(files) = files else { return Ok(None) };
    let loaded = Certificate::load(files.clone(), Arc::clone(metrics)).await;
    let certificate = loaded.map_err(|error| {
        BadInput(format!(
            "the control plane has no certificate to show: {error}; correct JANGAR_TLS_CERT_FILE and JANGAR_TLS_KEY_FILE, or \
             --tls-cert-file and --tls-key-file"
        ))
    })?;
    Ok(Some(certificate))
}

fn transport(certificate: Option<&Arc<Certificate>>, metrics: &Arc<Metrics>) -> Result<Transport> {
    let config = certificate.map(Certificate::server_config).transpose()?;
    Ok(Transport {
        tls: config.map(Arc::new),
        metrics: Arc::clone(metrics),
    })
}

/// The break-glass token. It is a secret, so that nothing repeats it.
fn break_glass(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Token>> {
    let Some(secret) = variable("JANGAR_GRPC_TOKEN").filter(|secret| !secret.trim().is_empty()) else {
        return Ok(None);
    };
    let secret = secret.trim();
    if secret.chars().count() < TOKEN_MIN_CHARS || !secret.chars().all(|c| c.is_ascii_graphic()) {
        bail!(BadInput(format!(
            "JANGAR_GRPC_TOKEN has fewer than {TOKEN_MIN_CHARS} characters, or some that no header can carry: make one with \
             `openssl rand -hex 32`"
        )));
    }
    tracing::warn!("JANGAR_GRPC_TOKEN is set: whoever has it acts as the control plane itself");
    Ok(Some(Token::new(secret)))
}

fn about(variable: impl Fn(&str) -> Option<String>) -> About {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    About {
        version: set("JANGAR_VERSION").unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
        build_sha: set("JANGAR_BUILD_SHA").unwrap_or_default(),
        build_time: set("JANGAR_BUILD_TIME").unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_can_be_guessed_is_refused_and_never_repeated() {
        let of = |secret: &'static str| break_glass(move |_| Some(secret.to_owned()));
        assert!(of(" ").unwrap().is_none());
        assert!(of("0123456789abcdef").unwrap().is_some());
        let error = of("secret").unwrap_err();
        assert!(error.is::<BadInput>());
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
