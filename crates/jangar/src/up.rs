//! `jangar up`: everything in one process, on this machine, until stopped.

use std::{
    io::Write,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Result, anyhow};
use kubelite::{
    node::{
        self,
        executor::{Isolation, SandboxPolicy},
    },
    server::User,
};

use crate::{
    callbacks, control_plane,
    embedded::{self, Directory, Embedded, Options},
    history,
    lanes::{Lane, Weight},
    manifests,
    probes::{self, Probes},
    readiness::Part,
    settings,
    signals::StopRequests,
};

/// More processes than one machine is good for.
const PODS_MAX: i64 = 1000;

/// The endpoints that runs may name unless the settings say otherwise: every one with a certificate, and those of this machine.
const LOCAL_ENDPOINTS: &str = "https://*,http://localhost,http://127.0.0.1,http://[::1]";
const LOCAL_NETWORKS: &str = "127.0.0.0/8,::1";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where objects, certificates and the kubeconfig are kept; belongs to one process at a time.
    #[arg(long, value_name = "DIR", default_value = ".jangar")]
    data_dir: PathBuf,
    /// Where /healthz, /readyz, /metrics and callbacks of endpoints are served; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    listen: SocketAddr,
    /// Where the Kubernetes API listens; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7443)))]
    api_listen: SocketAddr,
    /// Where the control plane answers HTTP. Absent: 127.0.0.1:8090, or a free port if that one is taken.
    #[arg(long, value_name = "ADDRESS")]
    control_plane_listen: Option<SocketAddr>,
    /// The namespace to create and to put into the kubeconfig.
    #[arg(long, default_value = "agents")]
    namespace: String,
    /// Manifests to apply at every start, in YAML or JSON, each with as many documents as you like.
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,
    /// Run pods as plain processes where the kernel refuses to keep them apart from this machine.
    #[arg(long)]
    unsandboxed: bool,
    /// Directories and files of a hidden place, such as your home, that pods may see all the same, read-only.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    expose: Vec<PathBuf>,
    /// How many pods may run at once; the rest wait.
    #[arg(long, value_name = "N", default_value_t = node::Config::default().pods, value_parser = clap::value_parser!(u32).range(1..=PODS_MAX))]
    pods: u32,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    // From the beginning: a request to stop that comes too early for us must not leave pods running.
    let mut stop = StopRequests::listen()?;
    let manifests = manifests::read(&args.files)?;
    // There is nobody else here, so every namespace is ours, and what a person applies anywhere is looked after.
    let mut settings = settings::read([
        ("JANGAR_AGENTS_CONTROLLER_NAMESPACES", "*"),
        ("JANGAR_RBAC_CLUSTER_SCOPED", "true"),
        ("JANGAR_LEADER_ELECTION_LEASE_NAMESPACE", &args.namespace),
        // Whoever may create a run here may do all that this machine's user may, so its own endpoints are no secret.
        ("JANGAR_CUSTOM_RUNTIME_ALLOWED_ENDPOINTS", LOCAL_ENDPOINTS),
        ("JANGAR_CUSTOM_RUNTIME_OPEN_NETWORKS", LOCAL_NETWORKS),
    ])?;
    // Before any address: another `up` on this directory has taken those as well, and only the directory tells who it is.
    let directory = Directory::claim(&args.data_dir)?;
    let instruments = Embedded::instruments();
    instruments
        .readiness
        .missing(Part::Caches, control_plane::NOT_FILLED);
    let listener = probes::bind(args.listen, "--listen").await?;
    let url = callback_url(listener.local_addr()?);
    settings.custom.callback_url.get_or_insert(url);
    let identity = embedded::identity()?;
    let key = directory.callback_key()?;
    let store = history::of_environment_or(directory.path())?;
    let outside = callbacks::outside(
        &settings.custom,
        &settings.temporal,
        &identity,
        Some(&key),
        Some(store.clone()),
    )?;
    history::follow(&outside, instruments.readiness.clone());
    let probes = Probes::start(
        listener,
        instruments.clone(),
        callbacks::router(Arc::clone(&outside)),
    )?;
    let listeners = control_plane::Listeners::bind_somewhere(args.control_plane_listen, &settings).await?;
    let shared = Arc::new(settings.clone());
    let options = Options {
        directory,
        api_listen: args.api_listen,
        namespace: args.namespace,
        user: User::system("admin"),
        sandbox: if args.unsandboxed {
            SandboxPolicy::Preferred
        } else {
            SandboxPolicy::Required
        },
        exposed: args.expose,
        pods: args.pods,
        settings,
        manifests,
        identity,
        outside,
    };
    // Readers, however many, take from those who work only what these leave.
    let lane = Lane::open("control-plane", Weight::Light)?;
    let embedded = Embedded::start(options, &instruments).await?;
    warn_of(embedded.isolation());
    let started = async {
        let clients = embedded.control_plane_clients();
        control_plane::start(clients, shared, listeners, &instruments, Some(store)).await
    };
    let started = lane.run(started).await;
    let control_plane = match started {
        Ok(control_plane) => control_plane,
        Err(error) => {
            // Pods that were found again must not go on unattended.
            embedded.stop(stop.next()).await?;
            return Err(error);
        }
    };
    let ready = async {
        instruments.readiness.complete().await;
        announce(&embedded, &probes, &control_plane)?;
        std::future::pending::<Result<()>>().await
    };
    let end = tokio::select! {
        result = ready => result,
        () = embedded.controllers_ended() => Err(anyhow!("the controllers ended by themselves; the log says why")),
        () = stop.next() => Ok(()),
    };
    // A second request does not wait for anything that can be left or killed.
    embedded.stop(stop.next()).await.and(end)
}

/// Under which address an endpoint on this machine reaches what listens here.
fn callback_url(listen: SocketAddr) -> String {
    let mut address = listen;
    if listen.ip().is_unspecified() {
        address.set_ip(match listen {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}

fn warn_of(isolation: &Isolation) {
    match isolation {
        Isolation::Sandboxed => {}
        Isolation::Unsandboxed { reason } => {
            tracing::warn!(reason, "pods run as plain processes of this machine");
        }
        Isolation::Refused { reason } => tracing::warn!(
            reason,
            "pods will not start, because they cannot be kept apart from this machine; --unsandboxed starts them all the same"
        ),
    }
}

/// The one line that says that everything works now.
fn announce(embedded: &Embedded, probes: &Probes, control_plane: &control_plane::Running) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "ready: Kubernetes API on https://{}, probes and metrics on http://{}; control plane on {}://{}{}; use it with KUBECONFIG={}",
        embedded.address(),
        probes.address(),
        control_plane.scheme(),
        control_plane.address(),
        control_plane
            .grpc_address()
            .map(|address| format!(" and gRPC on {address}"))
            .unwrap_or_default(),
        embedded.kubeconfig().display()
    )?;
    out.flush()?;
    Ok(())
}
