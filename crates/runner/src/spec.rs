//! What the runner is told to do: `agent-runner.json`, which is for it, and `run.json`, which is for the agent.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::reason::Reason;

/// Both files come from a ConfigMap, which Kubernetes bounds at 1 MiB.
const DOCUMENT_MAX_BYTES: u64 = 1024 * 1024;

/// Bound of the log file where the document names none. The end of a longer log is in the container's own log.
const LOG_MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Time between asking the agent to stop and killing it, where the document names none. Kubernetes gives a pod 30 s by
/// default; the rest is for writing the outcome.
const GRACE: Seconds = Seconds(Duration::from_secs(20));

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    #[error("cannot read {}: {source}; mount the file there, or name its place in {variable}", path.display())]
    Unreadable {
        path: PathBuf,
        variable: &'static str,
        source: io::Error,
    },
    #[error("{} is larger than {DOCUMENT_MAX_BYTES} bytes; pass large inputs as files of their own", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is not JSON: {source}", path.display())]
    NotJson {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}, field {field}: {problem}", path.display())]
    Field {
        path: PathBuf,
        field: String,
        problem: String,
    },
}

impl SpecError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Unreadable { .. } => Reason::SpecMissing,
            Self::TooLarge { .. } | Self::NotJson { .. } | Self::Field { .. } => Reason::SpecInvalid,
        }
    }
}

/// A file with JSON in it, read from where `variable` says or from its usual place.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn read(path: &Path, variable: &'static str) -> Result<Self, SpecError> {
        let path = path.to_owned();
        let unreadable = |path: PathBuf, source| SpecError::Unreadable {
            path,
            variable,
            source,
        };
        let mut bytes = Vec::new();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(unreadable(path, source)),
        };
        if let Err(source) = file.take(DOCUMENT_MAX_BYTES + 1).read_to_end(&mut bytes) {
            return Err(unreadable(path, source));
        }
        if bytes.len() as u64 > DOCUMENT_MAX_BYTES {
            return Err(SpecError::TooLarge { path });
        }
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self { path, value }),
            Err(source) => Err(SpecError::NotJson { path, source }),
        }
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T, SpecError> {
        serde_path_to_error::deserialize(&self.value)
            .map_err(|error| self.wrong(&error.path().to_string(), &error.inner().to_string()))
    }

    fn wrong(&self, field: &str, problem: &str) -> SpecError {
        SpecError::Field {
            path: self.path.clone(),
            field: if field == "." {
                "(the whole document)"
            } else {
                field
            }
            .to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// `agent-runner.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunnerSpec {
    /// Name of the AgentProvider.
    pub(crate) provider: String,
    #[serde(default)]
    pub(crate) provider_spec: ProviderSpec,
    #[serde(default)]
    pub(crate) payloads: Payloads,
    #[serde(default)]
    pub(crate) artifacts: Files,
    #[serde(default)]
    pub(crate) deadlines: Deadlines,
    /// Names of variables whose values are secrets, beside those whose names say so.
    #[serde(default)]
    pub(crate) secret_env: Vec<String>,
    /// Files whose content is secret, and directories of such files.
    #[serde(default)]
    pub(crate) secret_files: Vec<PathBuf>,
}

/// How the agent is started. Without a binary it is the built-in provider.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderSpec {
    pub(crate) binary: Option<String>,
    /// Arguments that the controller has rendered: they are taken as they are.
    pub(crate) args: Option<Vec<String>>,
    /// Arguments for the runner to render.
    pub(crate) args_template: Option<Vec<String>>,
    /// Variables that the controller has rendered.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Variables for the runner to render.
    #[serde(default)]
    pub(crate) env_template: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) input_files: Vec<InputFile>,
}

/// A file to write before the agent starts.
#[derive(Debug, Deserialize)]
pub(crate) struct InputFile {
    pub(crate) path: String,
    pub(crate) content: String,
}

/// Where the run document lies, for the agent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payloads {
    pub(crate) event_file_path: Option<String>,
}

/// Where the runner writes, and how much.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Files {
    pub(crate) status_path: Option<PathBuf>,
    pub(crate) log_path: Option<PathBuf>,
    pub(crate) log_max_bytes: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            status_path: None,
            log_path: None,
            log_max_bytes: LOG_MAX_BYTES,
        }
    }
}

/// How long the agent may take, counted from its start.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Deadlines {
    #[serde(rename = "softSeconds")]
    pub(crate) soft: Option<Seconds>,
    #[serde(rename = "hardSeconds")]
    pub(crate) hard: Option<Seconds>,
    #[serde(rename = "graceSeconds")]
    pub(crate) grace: Seconds,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            soft: None,
            hard: None,
            grace: GRACE,
        }
    }
}

/// A number of seconds, fractions allowed, that is not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Seconds(pub(crate) Duration);

impl TryFrom<f64> for Seconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|error| format!("{seconds} is no number of seconds: {error}"))
    }
}

impl RunnerSpec {
    pub(crate) fn new(document: &Document) -> Result<Self, SpecError> {
        let spec: Self = document.parse()?;
        if spec.provider.trim().is_empty() {
            return Err(document.wrong("provider", "is blank; it must name the AgentProvider"));
        }
        for (field, path) in [
            ("artifacts.statusPath", &spec.artifacts.status_path),
            ("artifacts.logPath", &spec.artifacts.log_path),
        ] {
            if path.as_ref().is_some_and(|path| !path.is_absolute()) {
                return Err(document.wrong(field, "must be an absolute path"));
            }
        }
        let provider = &spec.provider_spec;
        if provider.args.is_some() && provider.args_template.is_some() {
            return Err(document.wrong(
                "providerSpec.args",
                "stands beside argsTemplate; give the arguments once, rendered or as templates",
            ));
        }
        for name in provider.env.keys().chain(provider.env_template.keys()) {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(document.wrong(
                    "providerSpec.env",
                    "has a name that is empty or contains = or NUL",
                ));
            }
        }
        if let (Some(soft), Some(hard)) = (spec.deadlines.soft, spec.deadlines.hard)
            && hard < soft
        {
            return Err(document.wrong("deadlines.hardSeconds", "must not be before softSeconds"));
        }
        Ok(spec)
    }
}

/// What the runner itself reads of `run.json`; the rest is for the agent and for templates.
#[derive(Debug, Deserialize)]
pub(crate) struct RunSpec {
    /// What the agent is to leave behind.
    #[serde(default)]
    pub(crate) artifacts: Vec<DeclaredArtifact>,
}

impl RunSpec {
    pub(crate) fn new(document: &Document) -> Result<Self, SpecError> {
        if !document.value.is_object() {
            return Err(document.wrong(".", "must be an object"));
        }
        document.parse()
    }
}

/// One artifact as the provider declares it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DeclaredArtifact {
    pub(crate) name: String,
    pub(crate) path: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) url: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(value: Value) -> Document {
        Document {
            path: "agent-runner.json".into(),
            value,
        }
    }

    #[test]
    fn the_smallest_document_has_defaults() {
        let spec = RunnerSpec::new(&document(json!({"provider": "codex"}))).unwrap();

        assert_eq!(spec.artifacts.log_max_bytes, LOG_MAX_BYTES);
        assert_eq!(spec.deadlines.grace, GRACE);
        assert!(spec.provider_spec.binary.is_none());
    }

    #[test]
    fn a_mistake_names_the_file_the_field_and_the_problem() {
        for (value, expected) in [
            (json!({}), "field (the whole document): missing field `provider`"),
            (
                json!({"provider": 5}),
                "field provider: invalid type: integer `5`, expected a string",
            ),
            (
                json!({"provider": " "}),
                "field provider: is blank; it must name the AgentProvider",
            ),
            (
                json!({"provider": "p", "providerSpec": {"args": ["a", 1]}}),
                "field providerSpec.args[1]: invalid type: integer `1`, expected a string",
            ),
            (
                json!({"provider": "p", "providerSpec": {"args": [], "argsTemplate": []}}),
                "field providerSpec.args: stands beside argsTemplate; give the arguments once, rendered or as templates",
            ),
            (
                json!({"provider": "p", "providerSpec": {"env": {"A=B": ""}}}),
                "field providerSpec.env: has a name that is empty or contains = or NUL",
            ),
            (
                json!({"provider": "p", "artifacts": {"logPath": "log"}}),
                "field artifacts.logPath: must be an absolute path",
            ),
            (
                json!({"provider": "p", "deadlines": {"softSeconds": -1}}),
                "field deadlines.softSeconds: -1 is no number of seconds: \
                 cannot convert float seconds to Duration: value is negative",
            ),
            (
                json!({"provider": "p", "deadlines": {"softSeconds": 2, "hardSeconds": 1}}),
                "field deadlines.hardSeconds: must not be before softSeconds",
            ),
        ] {
            let message = RunnerSpec::new(&document(value.clone())).unwrap_err().to_string();
            assert_eq!(message, format!("agent-runner.json, {expected}"), "{value}");
        }
    }

    #[test]
    fn a_run_document_must_be_an_object() {
        let message = RunSpec::new(&document(json!([]))).unwrap_err().to_string();

        assert_eq!(
            message,
            "agent-runner.json, field (the whole document): must be an object"
        );
    }
}
