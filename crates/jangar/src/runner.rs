//! This program as agent-runner: on a laptop one file is enough.
//!
//! Started under the name `agent-runner`, or with that as its first argument, it is agent-runner. The node shows the program
//! that pods are started with to every container under that name, at the place where an init container would put it elsewhere.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::ExitCode,
};

use jangar_engine::{job, settings::RunnerSettings};

/// The image of runs that name none. Images are recorded and not pulled: a container is a process of this machine.
const IMAGE: &str = "localhost/this-machine";

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

/// Lets pods run without an image, and without an init container, because the node brings agent-runner.
pub(crate) fn use_own(settings: &mut RunnerSettings) {
    settings.install = None;
    settings.image.get_or_insert_with(|| IMAGE.to_owned());
}

/// What the node shows to every container: `program` as agent-runner.
pub(crate) fn provided(program: &Path) -> BTreeMap<PathBuf, PathBuf> {
    BTreeMap::from([(PathBuf::from(job::RUNNER), program.to_owned())])
}
