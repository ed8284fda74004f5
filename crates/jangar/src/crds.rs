//! `jangar crds`: the definitions of the kinds, for `kubectl apply` and for the chart.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use jangar_api::{Kind, crd};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write one file for each kind into this directory, `<group>_<plural>.yaml`, instead of printing them all.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.dir {
        Some(dir) => write_files(dir),
        None => print(&mut io::stdout().lock()),
    }
}

/// One YAML document for each kind, in the order of the table of kinds.
fn print(out: &mut impl Write) -> Result<()> {
    for kind in Kind::ALL {
        write!(out, "---\n{}", manifest(*kind)?).context("failed to print the definitions")?;
    }
    out.flush().context("failed to print the definitions")
}

fn write_files(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    for kind in Kind::ALL {
        let path = dir.join(crd::file_name(*kind));
        fs::write(&path, manifest(*kind)?).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

fn manifest(kind: Kind) -> Result<String> {
    crd::manifest(kind).with_context(|| format!("failed to write the definition of {}", kind.info().kind))
}
