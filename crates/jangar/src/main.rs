//! The server binary of Jangar: arguments and wiring, nothing else.

mod crds;
mod demo;
mod embedded;
mod up;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use kubelite::node::executor::shim_main;

/// Jangar runs coding agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "jangar", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the CustomResourceDefinitions, or write them to files.
    Crds(crds::Args),
    /// Serve the embedded Kubernetes API with Jangar's kinds, until stopped.
    Up(up::Args),
    /// Show in a minute what works today, on the embedded Kubernetes API in a temporary directory.
    Demo,
}

fn main() -> ExitCode {
    // A pod's processes are started by this very program, under another name and before it has a second thread.
    if let Some(code) = shim_main(std::env::args_os()) {
        return code;
    }
    match command(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell where standard error is closed.
            let _ = writeln!(std::io::stderr(), "Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command(command: Command) -> Result<()> {
    match command {
        Command::Crds(args) => crds::run(&args),
        Command::Up(args) => run(up::run(args)),
        Command::Demo => run(demo::run()),
    }
}

fn run(work: impl Future<Output = Result<()>>) -> Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
