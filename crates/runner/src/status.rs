//! Writes what came of a run: the status file, in full, and the termination message.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    artifacts::Artifact, delivery::Delivery, outcome::Outcome, process::Exit, root::Root, tee::LogEnd,
};

/// Where Kubernetes looks for the termination message of a container, if it was told nothing else.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Where the termination message goes.
#[derive(Clone, Debug)]
pub(crate) enum Termination {
    /// Named by a variable: the file is made if there is none.
    Named(PathBuf),
    /// Made by the node for this container: if it is not there, something is wrong.
    Made(PathBuf),
    /// The usual place, which exists in a pod and nowhere else.
    Usual,
}

impl Termination {
    /// Where it goes if it was named, or if it was not.
    pub(crate) fn new(named: Option<&str>, root: &Root) -> Self {
        match named {
            Some(path) => Self::Named(root.place(Path::new(path))),
            None if root.is_directory() => Self::Made(root.place(Path::new(TERMINATION_LOG))),
            None => Self::Usual,
        }
    }

    /// Writes the message in place: in a pod the file is a mount, which cannot be replaced.
    pub(crate) fn write(&self, message: &str) -> io::Result<()> {
        let (path, create) = match self {
            Self::Named(path) => (path.as_path(), true),
            Self::Made(path) => (path.as_path(), false),
            Self::Usual if !Path::new(TERMINATION_LOG).exists() => return Ok(()),
            Self::Usual => (Path::new(TERMINATION_LOG), false),
        };
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .create(create)
            .open(path)
            .and_then(|mut file| file.write_all(message.as_bytes()))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

/// What the status file says of the run as a whole.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Running,
    Succeeded,
    Failed,
}

/// The status file. Everything in it has been masked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status<'a> {
    pub(crate) provider: Option<&'a str>,
    #[serde(rename = "status")]
    pub(crate) state: State,
    pub(crate) binary: Option<&'a str>,
    pub(crate) args: &'a [String],
    pub(crate) started_at: String,
    #[serde(flatten)]
    pub(crate) end: Option<End<'a>>,
    pub(crate) artifacts: Artifacts<'a>,
}

/// What is known once the run has ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct End<'a> {
    pub(crate) exit_code: u8,
    pub(crate) signal: Option<&'static str>,
    pub(crate) reason: &'static str,
    pub(crate) message: Option<&'a str>,
    pub(crate) finished_at: String,
    pub(crate) duration_ms: u64,
    pub(crate) summary: Option<&'a str>,
    pub(crate) usage: &'a std::collections::BTreeMap<String, serde_json::Number>,
    pub(crate) commit: Option<&'a str>,
    pub(crate) vcs: Option<&'a Delivery>,
    pub(crate) outputs: &'a Map<String, Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Artifacts<'a> {
    pub(crate) status_path: &'a Path,
    pub(crate) log_path: &'a Path,
    /// Whether the log file lacks the end of the output.
    pub(crate) log_cut: bool,
    #[serde(rename = "outputArtifacts")]
    pub(crate) present: &'a [Artifact],
    pub(crate) missing: &'a [String],
}

impl<'a> End<'a> {
    pub(crate) fn new(
        outcome: &'a Outcome,
        outputs: &'a Map<String, Value>,
        exit: Option<Exit>,
        finished_at: String,
        duration_ms: u64,
    ) -> Self {
        Self {
            exit_code: outcome.exit_code,
            signal: match exit {
                Some(Exit::Signal(number)) => signal_hook::low_level::signal_name(number.into()),
                Some(Exit::Code(_)) | None => None,
            },
            reason: outcome.reason.as_str(),
            message: outcome.message(),
            finished_at,
            duration_ms,
            summary: outcome.summary.as_deref(),
            usage: &outcome.usage,
            commit: outcome.commit.as_deref(),
            vcs: outcome.vcs.as_ref(),
            outputs,
        }
    }
}

impl Artifacts<'_> {
    pub(crate) fn is_cut(end: LogEnd) -> bool {
        match end {
            LogEnd::Whole => false,
            LogEnd::Cut | LogEnd::Broken => true,
        }
    }
}

/// Writes the status file in one step, so that nobody reads half of it.
pub(crate) fn write(path: &Path, status: &Status<'_>) -> io::Result<()> {
    let mut json = serde_json::to_vec_pretty(status)?;
    json.push(b'\n');
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let half = path.with_extension("json.part");
    fs::write(&half, json)?;
    fs::rename(&half, path)
}
