//! What the agent says of itself: the outcome file, which it may write before it ends.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::mask::Masker;

/// Far more than can be passed on; a file that is larger was written by mistake.
const REPORT_MAX_BYTES: u64 = 1024 * 1024;
/// Bounds of `usage`, so that it always fits into the termination message.
const USAGE_MAX_ENTRIES: usize = 16;
const USAGE_KEY_MAX_BYTES: usize = 40;
/// The shortest and longest names of a commit: what git abbreviates to, and SHA-256.
const COMMIT_BYTES: std::ops::RangeInclusive<usize> = 7..=64;

/// Why the outcome file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("is no file")]
    NotAFile,
    #[error("is larger than {REPORT_MAX_BYTES} bytes")]
    TooLarge,
    #[error("is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("field {field}: {problem}")]
    Field { field: String, problem: String },
}

/// What the agent reported.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    pub(crate) summary: Option<String>,
    pub(crate) usage: BTreeMap<String, Number>,
    pub(crate) outputs: Map<String, Value>,
    pub(crate) commit: Option<String>,
    /// Fields that mean nothing here. They are named in the log, so that a slip of the pen is found.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

impl Report {
    /// Reads the file. An agent that wrote none reported nothing, which is fine.
    pub(crate) fn read(path: &Path, masker: &Masker) -> Result<Self, ReportError> {
        match fs::metadata(path) {
            // Opening a pipe would wait for somebody to write to it.
            Ok(metadata) if !metadata.is_file() => return Err(ReportError::NotAFile),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(ReportError::Unreadable(error)),
        }
        let file = File::open(path).map_err(ReportError::Unreadable)?;
        let mut bytes = Vec::new();
        file.take(REPORT_MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(ReportError::Unreadable)?;
        if bytes.len() as u64 > REPORT_MAX_BYTES {
            return Err(ReportError::TooLarge);
        }
        Self::parse(&bytes).map(|report| report.masked(masker))
    }

    fn parse(bytes: &[u8]) -> Result<Self, ReportError> {
        let value: Value = serde_json::from_slice(bytes).map_err(ReportError::NotJson)?;
        let wrong = |field: &str, problem: &str| ReportError::Field {
            field: field.to_owned(),
            problem: problem.to_owned(),
        };
        if !value.is_object() {
            return Err(wrong("(the whole document)", "must be an object"));
        }
        // A null stands for a field that was left out.
        let value = without_nulls(value);
        let report: Self = serde_path_to_error::deserialize(&value)
            .map_err(|error| wrong(&error.path().to_string(), &error.inner().to_string()))?;
        if report.usage.len() > USAGE_MAX_ENTRIES {
            return Err(wrong(
                "usage",
                &format!("has more than {USAGE_MAX_ENTRIES} entries"),
            ));
        }
        if report.usage.keys().any(|key| key.len() > USAGE_KEY_MAX_BYTES) {
            return Err(wrong(
                "usage",
                &format!("has a key longer than {USAGE_KEY_MAX_BYTES} bytes"),
            ));
        }
        if let Some(commit) = &report.commit
            && !(COMMIT_BYTES.contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            return Err(wrong(
                "commit",
                "must be the name of a commit, 7 to 64 hexadecimal digits",
            ));
        }
        Ok(report)
    }

    fn masked(self, masker: &Masker) -> Self {
        Self {
            summary: self.summary.map(|summary| masker.text(&summary)),
            usage: self
                .usage
                .into_iter()
                .map(|(key, number)| (masker.text(&key), number))
                .collect(),
            outputs: masker.fields(self.outputs),
            commit: self.commit,
            unknown: self.unknown,
        }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let report = Report::parse(
            br#"{"summary": "done", "usage": {"inputTokens": 5, "costUsd": 0.25}, "outputs": {"pr": {"number": 7}},
                 "commit": "0123abc", "remarks": "?"}"#,
        )
        .unwrap();

        assert_eq!(report.summary.as_deref(), Some("done"));
        assert_eq!(report.usage.len(), 2);
        assert_eq!(report.outputs["pr"]["number"], 7);
        assert_eq!(report.unknown.keys().collect::<Vec<_>>(), ["remarks"]);
    }

    #[test]
    fn a_null_is_a_field_left_out() {
        let report =
            Report::parse(br#"{"summary": null, "usage": null, "outputs": null, "commit": null}"#).unwrap();

        assert!(report.summary.is_none() && report.usage.is_empty() && report.outputs.is_empty());
    }

    #[test]
    fn a_report_that_cannot_be_used_says_why() {
        let many: BTreeMap<String, u8> = (0..17).map(|n| (n.to_string(), 1)).collect();
        let many = serde_json::json!({ "usage": many }).to_string();
        for (text, expected) in [
            ("{", "is not JSON: EOF while parsing an object at line 1 column 1"),
            ("[]", "field (the whole document): must be an object"),
            (
                r#"{"commit": "main"}"#,
                "field commit: must be the name of a commit, 7 to 64 hexadecimal digits",
            ),
            (&many, "field usage: has more than 16 entries"),
        ] {
            assert_eq!(Report::parse(text.as_bytes()).unwrap_err().to_string(), expected);
        }
        for text in [
            r#"{"summary": 5}"#,
            r#"{"usage": {"a": "b"}}"#,
            r#"{"outputs": []}"#,
        ] {
            let error = Report::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(error, ReportError::Field { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn a_report_of_endless_depth_is_no_crash() {
        let deep = format!("{{\"outputs\": {{\"a\": {}", "[".repeat(100_000));

        assert!(matches!(
            Report::parse(deep.as_bytes()),
            Err(ReportError::NotJson(_))
        ));
    }

    #[test]
    fn no_file_is_no_report() {
        let directory = tempfile::tempdir().unwrap();

        let report = Report::read(&directory.path().join("outcome.json"), &Masker::default()).unwrap();

        assert!(report.summary.is_none());
    }
}
