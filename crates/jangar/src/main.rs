//! The server binary of Jangar: arguments and wiring, nothing else.

mod callbacks;
mod control_plane;
mod controllers;
mod crds;
mod demo;
mod embedded;
mod history;
mod lanes;
mod leading;
mod logging;
mod manifests;
mod pod_program;
mod probes;
mod readiness;
mod release_jobs;
mod runner;
mod settings;
mod signals;
mod up;

use std::{ffi::OsString, io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use kubelite::node::executor::shim_main;

/// Objects pass through here as trees of small allocations, by several threads at once:
/// docs/decisions/0013-what-makes-a-run-cheap.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for what was asked wrongly: arguments, settings, manifests. The same as for a bad command line.
const EXIT_BAD_INPUT: u8 = 2;
/// What a server tells about its work, unless asked for more: what an operator wants to find in the log afterwards.
const LOG_OF_A_SERVER: &str = "info";
/// What is told to a person who looks on: only what needs attention.
const LOG_OF_A_TOOL: &str = "warn";

/// What was asked for cannot work as it was written. The message names what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(String);

/// Jangar runs coding agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "jangar", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers for the cluster of the kubeconfig, or the one this runs in. Settings come from JANGAR_* variables.
    Controllers(controllers::Args),
    /// Answer HTTP and gRPC for the cluster of the kubeconfig, or the one this runs in. Settings come from JANGAR_* variables.
    ControlPlane(control_plane::Args),
    /// Print the CustomResourceDefinitions, or write them to files.
    Crds(crds::Args),
    /// Let the Jobs of runs go that Jangar holds until their end is recorded: before it is uninstalled.
    ReleaseJobs(release_jobs::Args),
    /// Serve an embedded Kubernetes with Jangar in it, on this machine, until stopped.
    Up(up::Args),
    /// Show in a minute what works today, on the embedded Kubernetes API in a temporary directory.
    Demo,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // A pod's processes are started by this very program, in other roles and before it has a second thread.
    if let Some(code) = shim_main(arguments.clone()).or_else(|| runner::main(&arguments)) {
        return code;
    }
    match command(Cli::parse_from(arguments).command) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to tell where standard error is closed.
            let _ = writeln!(std::io::stderr(), "Error: {error:#}");
            if error.is::<BadInput>() || error.is::<manifests::Mistakes>() {
                ExitCode::from(EXIT_BAD_INPUT)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn command(command: Command) -> Result<ExitCode> {
    match command {
        Command::Controllers(args) => with_settings(LOG_OF_A_SERVER, controllers::run(args))?,
        Command::ControlPlane(args) => with_settings(LOG_OF_A_SERVER, control_plane::run(args))?,
        Command::Crds(args) => crds::run(&args)?,
        Command::ReleaseJobs(args) => return with_settings(LOG_OF_A_TOOL, release_jobs::run(args)),
        Command::Up(args) => with_settings(LOG_OF_A_TOOL, up::run(args))?,
        Command::Demo => {
            logging::start(LOG_OF_A_TOOL)?;
            return run(demo::run());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn with_settings<T>(log: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    logging::start_before_settings(log);
    run(work)
}

fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
