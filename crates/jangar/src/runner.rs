//! This program as agent-runner: on a laptop one file is enough.
//!
//! Started under the name `agent-runner`, or with that as its first argument, it is agent-runner. The init container of a
//! pod uses the second form to make a link in the pod, and the pod's container uses that link, which is the first form.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use jangar_engine::settings::{Install, RunnerSettings};

/// The image of runs that name none. Images are recorded and not pulled: a container is a process of this machine.
const IMAGE: &str = "localhost/this-machine";
const INSTALL_IMAGE: &str = concat!("localhost/jangar:", env!("CARGO_PKG_VERSION"));

/// Runs agent-runner if the program was started as such.
pub(crate) fn main(arguments: &[OsString]) -> Option<ExitCode> {
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let own_name = match arguments.get(1) {
        _ if called == Some(OsStr::new(agent_runner::NAME)) => 0,
        Some(first) if first == agent_runner::NAME => 1,
        _ => return None,
    };
    Some(agent_runner::main(arguments.iter().skip(own_name).cloned()))
}

/// The file of this program, which pods have to see.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .context("failed to find the file of this program, which pods run as agent-runner: was it moved or replaced?")
}

/// Lets pods take agent-runner from `program`, which is this one, and run without an image.
pub(crate) fn use_own(settings: &mut RunnerSettings, program: &Path) -> Result<()> {
    let path = program.to_str().with_context(|| {
        format!(
            "the path of this program, {}, is not UTF-8: move it",
            program.display()
        )
    })?;
    settings.install = Install {
        image: INSTALL_IMAGE.to_owned(),
        command: [path, agent_runner::NAME, "install", "--link"]
            .map(str::to_owned)
            .to_vec(),
    };
    settings.image.get_or_insert_with(|| IMAGE.to_owned());
    Ok(())
}
