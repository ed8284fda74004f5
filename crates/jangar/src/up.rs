//! `jangar up`: the embedded Kubernetes API with Jangar's kinds, on this machine, until stopped.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Result;
use kubelite::node::executor::{Isolation, SandboxPolicy};
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
    /// Run pods as plain processes where the kernel refuses to keep them apart from this machine.
    #[arg(long)]
    unsandboxed: bool,
    /// The namespace to create and to put into the kubeconfig.
    #[arg(long, default_value = "agents")]
    namespace: String,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let sandbox = if args.unsandboxed {
        SandboxPolicy::Preferred
    } else {
        SandboxPolicy::Required
    };
    let embedded = Embedded::start(&args.data_dir, args.api_listen, &args.namespace, sandbox).await?;
    match embedded.isolation() {
        Isolation::Sandboxed => {}
        Isolation::Unsandboxed { reason } => {
            writeln!(
                std::io::stderr(),
                "pods run as plain processes of this machine: {reason}"
            )?;
        }
        Isolation::Refused { reason } => writeln!(
            std::io::stderr(),
            "pods will not start, because they cannot be kept apart from this machine: {reason}; --unsandboxed starts them \
             all the same"
        )?,
    }
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
    embedded
        .stop(async {
            // A second request does not wait for the pods' grace.
            terminate.recv().await;
        })
        .await
}
