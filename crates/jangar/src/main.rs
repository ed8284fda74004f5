//! The server binary of Jangar: arguments and wiring, nothing else.

mod crds;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Crds(args) => crds::run(&args),
    }
}
