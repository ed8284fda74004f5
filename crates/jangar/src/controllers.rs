//! `jangar controllers`: the controllers for a cluster, the one of the kubeconfig or the one this runs in.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use axum::Router;
use jangar_controllers::{Controllers, Setup, clock::SystemClock, lease::Identity};
use jangar_engine::settings::{DEFAULT_TEMPORAL_ADDRESS, Settings};
use jangar_store::Store;
use kube::{Client, Config, config::AuthInfo};

use crate::{
    callbacks::{self, Callbacks},
    history,
    leading::{self, Standby},
    probes::{self, Instruments, Probes},
    readiness::{Part, Readiness},
    settings,
    signals::StopRequests,
};

/// How long a connection may be silent while an answer is expected. The API server ends a watch of ours after a minute, so one
/// that works is never silent for longer.
const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// What is missing before they have.
pub(crate) const NOT_STARTED: &str = "the controllers have not started yet";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where /healthz, /readyz and /metrics are served; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))]
    listen: SocketAddr,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut stop = StopRequests::listen()?;
    let settings = settings::read([])?;
    let listener = probes::bind(args.listen, "--listen").await?;
    let instruments = Instruments::new(Readiness::new([(Part::Controllers, NOT_STARTED)]));
    let _probes = Probes::start(listener, instruments.clone(), Router::new())?;
    let history = history::of_environment()?;
    let running = Running::start(client().await?, settings, &instruments, history).await?;
    running.until(&mut stop).await
}

/// The controllers of this process.
pub(crate) struct Running {
    controllers: Controllers,
    _callbacks: Option<Callbacks>,
}

impl Running {
    /// Starts them, and has the instruments follow whether they are ready.
    pub(crate) async fn start(
        client: Client,
        mut settings: Settings,
        instruments: &Instruments,
        history: Option<Store>,
    ) -> Result<Self> {
        let temporal = &mut settings.temporal.address;
        temporal.get_or_insert_with(|| DEFAULT_TEMPORAL_ADDRESS.to_owned());
        let identity = Identity::new(identity(|name| std::env::var(name).ok(), rand::random()))
            .context("HOSTNAME and JANGAR_POD_UID cannot be used as the name of this process")?;
        let outside = callbacks::outside(&settings.custom, &settings.temporal, &identity, None, history)?;
        let callbacks = match &settings.custom.callback_url {
            Some(_) => Some(Callbacks::start(settings.custom.callback_listen, Arc::clone(&outside)).await?),
            None => None,
        };
        history::follow(&outside, instruments.readiness.clone());
        let controllers = jangar_controllers::start(Setup {
            client,
            // Another client has connections of its own.
            lease_client: self::client().await?,
            settings: Arc::new(settings),
            clock: Arc::new(SystemClock),
            identity,
            registry: &mut instruments.registry(),
            outside,
        });
        leading::follow(controllers.state(), instruments.readiness.clone(), Standby::Ready);
        Ok(Self {
            controllers,
            _callbacks: callbacks,
        })
    }

    /// Waits for a request to stop, and stops them.
    pub(crate) async fn until(self, stop: &mut StopRequests) -> Result<()> {
        tokio::select! {
            () = leading::ended(self.controllers.state()) => bail!("the controllers ended by themselves; the log says why"),
            () = stop.next() => {}
        }
        tracing::info!("stopping: writes in flight end, then the lease is released");
        tokio::select! {
            () = self.controllers.stop() => {}
            () = stop.next() => tracing::warn!("stopped at the second request: others wait until the lease has run out"),
        }
        Ok(())
    }
}

/// The cluster of the kubeconfig, else the one this runs in.
pub(crate) async fn client() -> Result<Client> {
    of(config().await?)
}

/// The same, for nobody: each request needs a token of its own.
pub(crate) async fn anonymous() -> Result<Client> {
    let mut config = config().await?;
    config.auth_info = AuthInfo::default();
    of(config)
}

fn of(config: Config) -> Result<Client> {
    Client::try_from(config).context("failed to use the configuration of the cluster")
}

async fn config() -> Result<Config> {
    let mut config = Config::infer()
        .await
        .context("failed to find a cluster: set KUBECONFIG to a kubeconfig, or run inside a cluster")?;
    // The controllers decide themselves what is tried again and when: a request that the client repeats on its own could
    // outlast the lease.
    config.default_retry = false;
    // Otherwise a request on a connection that something on the way has forgotten would wait for ever.
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    tracing::info!(cluster = %config.cluster_url, namespace = config.default_namespace, "using the cluster");
    Ok(config)
}

/// Tells this process from others: the name of the pod, and what is unique about it.
fn identity(variable: impl Fn(&str) -> Option<String>, random: u64) -> String {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let host = set("HOSTNAME").unwrap_or_else(|| "jangar".to_owned());
    let unique = set("JANGAR_POD_UID").unwrap_or_else(|| format!("{random:016x}"));
    format!("{host}_{unique}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_pods_or_unique_by_chance() {
        let pod = |name: &str| match name {
            "HOSTNAME" => Some("agents-controllers-7d9".to_owned()),
            "JANGAR_POD_UID" => Some("0b1c".to_owned()),
            _ => None,
        };
        assert_eq!(identity(pod, 1), "agents-controllers-7d9_0b1c");
        assert_eq!(identity(|_| None, 1), "jangar_0000000000000001");
        assert_eq!(identity(|_| Some(" ".to_owned()), 2), "jangar_0000000000000002");
    }
}
