//! `jangar up`: the embedded Kubernetes API with Jangar's kinds, on this machine, until stopped.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

use crate::embedded::Embedded;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where objects, certificates and the kubeconfig are kept.
    #[arg(long, value_name = "DIR", default_value = ".jangar")]
    data_dir: PathBuf,
    /// Where the Kubernetes API listens; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7443)))]
    api_listen: SocketAddr,
    /// The namespace to create and to put into the kubeconfig.
    #[arg(long, default_value = "agents")]
    namespace: String,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let embedded = Embedded::start(&args.data_dir, args.api_listen, &args.namespace).await?;
    writeln!(
        std::io::stdout(),
        "ready: Kubernetes API on https://{}; use it with KUBECONFIG={}",
        embedded.address(),
        embedded.kubeconfig().display()
    )?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupt = tokio::signal::ctrl_c() => interrupt?,
    }
    embedded.stop().await
}
