//! One corpus of requests for every API server that says it is Kubernetes.
//!
//! `tests/conformance/corpus` holds requests, one file for each area. A real cluster answered them once, and its answers are
//! kept beside them (`tests/conformance/answers`). kubelite must give the same, but for what
//! `docs/kubelite-differences.md` lists; and a real cluster must still give them, so that what is kept stays true.
//!
//! [`script`] reads a file, [`run`] plays it against a server, [`mask`] hides what no two servers have in common, [`compare`]
//! finds what differs, [`known`] reads the list of differences, and [`defect`] lists what is broken on purpose, to show that
//! the corpus would notice.

pub mod compare;
pub mod defect;
pub mod known;
pub mod mask;
pub mod run;
pub mod script;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    compare::Difference,
    run::{RunError, play},
    script::{Script, ScriptError},
};

const HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance");

/// What a server said to one request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answer {
    /// What the request is about, in the words of the corpus.
    pub title: String,
    pub status: u16,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
}

/// Why the corpus cannot be read or its answers cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Script { path: PathBuf, error: ScriptError },
    #[error("{}: {error}; JANGAR_RECORD=1 make conformance-tests writes it anew", path.display())]
    Answers { path: PathBuf, error: serde_json::Error },
}

/// The corpus, one script for each area, ordered by name.
pub fn corpus() -> Result<Vec<Script>, CorpusError> {
    let directory = Path::new(HOME).join("corpus");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).map_err(|error| file(&directory, error))? {
        paths.push(entry.map_err(|error| file(&directory, error))?.path());
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).map_err(|error| file(path, error))?;
        let area = path.file_stem().unwrap_or_default().to_string_lossy();
        Script::parse(&area, &text).map_err(|error| CorpusError::Script {
            path: path.clone(),
            error,
        })
    };
    paths.iter().map(read).collect()
}

/// The definition of the kind that most of the corpus is about, with `{{group}}` in place of its group.
pub(crate) fn widgets() -> &'static str {
    include_str!("../../../../tests/conformance/widgets.json")
}

/// What the real cluster said.
pub fn kept(area: &str) -> Result<Vec<Answer>, CorpusError> {
    let path = answers(area);
    let text = fs::read_to_string(&path).map_err(|error| file(&path, error))?;
    serde_json::from_str(&text).map_err(|error| CorpusError::Answers { path, error })
}

/// Keeps what the real cluster said.
pub fn keep(area: &str, said: &[Answer]) -> Result<(), CorpusError> {
    let path = answers(area);
    let mut text = serde_json::to_string_pretty(said).map_err(|error| CorpusError::Answers {
        path: path.clone(),
        error,
    })?;
    text.push('\n');
    let parent = path.parent().unwrap_or(&path);
    let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
    written.map_err(|error| file(&path, error))
}

fn answers(area: &str) -> PathBuf {
    Path::new(HOME).join("answers").join(format!("{area}.json"))
}

fn file(path: &Path, error: io::Error) -> CorpusError {
    CorpusError::File {
        path: path.to_owned(),
        error,
    }
}
