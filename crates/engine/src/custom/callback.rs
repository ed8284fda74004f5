//! What an endpoint reports about the work it was given.

use jangar_api::{
    agents::agent_run_status::RunOutcome, phase::RunPhase, refs::ArtifactRef, values::FreeForm,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::decision::Uid;

/// The most characters of each text of a report. A status has to hold all of them.
const TEXT_MAX: usize = 4096;
/// The most artifacts of one report; a status lists fewer.
const ARTIFACTS_MAX: usize = 200;

/// A report that is known to be about this attempt of this run.
#[derive(Clone, Debug, PartialEq)]
pub struct Callback {
    pub run: Uid,
    pub attempt: u32,
    pub report: Report,
}

/// What an endpoint says.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    Progress(Progress),
    End(End),
}

/// How far the work has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// How the work ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    pub how: How,
    pub outcome: RunOutcome,
    pub artifacts: Vec<ArtifactRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Succeeded,
    Failed,
    Cancelled,
}

impl How {
    /// The phase of a run that ended so.
    pub const fn phase(self) -> RunPhase {
        match self {
            Self::Succeeded => RunPhase::Succeeded,
            Self::Failed => RunPhase::Failed,
            Self::Cancelled => RunPhase::Cancelled,
        }
    }
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The status of the run says so, or need not, and this is where the run stands.
    Recorded(RunPhase),
    /// Progress was reported a moment ago; this one was passed over.
    TooOften(RunPhase),
    /// The run had ended otherwise, for this reason.
    Ended(RunPhase, String),
    /// The run was deleted.
    Gone,
    /// It is about an attempt that is over.
    Superseded,
    /// It could not be recorded yet.
    Later,
}

/// What is sent. Unknown fields are refused: whoever sends one would wonder where it went.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    status: Word,
    #[serde(default)]
    percent: Option<u8>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    summary: Option<String>,
    #[serde(default)]
    commit: Option<String>,
    #[serde(default)]
    usage: Option<Map<String, Value>>,
    #[serde(default)]
    outputs: Option<Map<String, Value>>,
    #[serde(default)]
    artifacts: Vec<ArtifactRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Word {
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl Report {
    /// Reads a report from the body of a request. The error says what is wrong and what to do.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let body: Body = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let place = match error.path().to_string().as_str() {
                "." => String::new(),
                path => format!("{path}: "),
            };
            format!(
                "the body is no report ({place}{}): send a JSON object with status Running, Succeeded, Failed or Cancelled",
                error.inner()
            )
        })?;
        json.end()
            .map_err(|_| "the body goes on after the report: send one JSON object".to_owned())?;
        body.check()?;
        Ok(body.into_report())
    }
}

impl Body {
    fn check(&self) -> Result<(), String> {
        let texts = [
            ("reason", &self.reason),
            ("message", &self.message),
            ("summary", &self.summary),
            ("commit", &self.commit),
        ];
        for (field, text) in texts {
            let length = text.as_ref().map_or(0, |text| text.chars().count());
            if length > TEXT_MAX {
                return Err(format!(
                    "{field} has {length} characters, and {TEXT_MAX} are allowed: shorten it, and leave long texts where an \
                     artifact can name them"
                ));
            }
        }
        if self.percent.is_some_and(|percent| percent > 100) {
            return Err("percent is more than 100: give a whole number from 0 to 100".to_owned());
        }
        if self.artifacts.len() > ARTIFACTS_MAX {
            return Err(format!(
                "artifacts has {} entries, and {ARTIFACTS_MAX} are allowed: report fewer",
                self.artifacts.len()
            ));
        }
        let of_an_end = self.reason.is_some()
            || self.summary.is_some()
            || self.commit.is_some()
            || self.usage.is_some()
            || self.outputs.is_some()
            || !self.artifacts.is_empty();
        if self.status == Word::Running && of_an_end {
            return Err(
                "status is Running, which goes with message and percent only: report results with the end"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn into_report(self) -> Report {
        let how = match self.status {
            Word::Running => {
                return Report::Progress(Progress {
                    message: self.message,
                    percent: self.percent,
                });
            }
            Word::Succeeded => How::Succeeded,
            Word::Failed => How::Failed,
            Word::Cancelled => How::Cancelled,
        };
        Report::End(End {
            how,
            outcome: RunOutcome {
                exit_code: None,
                reason: self.reason,
                message: self.message,
                summary: self.summary,
                usage: self.usage.map(FreeForm),
                commit: self.commit,
                outputs: self.outputs.map(FreeForm),
            },
            artifacts: self.artifacts,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<Report, String> {
        Report::read(body.to_string().as_bytes())
    }

    #[test]
    fn a_report_is_progress_or_an_end() {
        assert_eq!(
            read(&json!({"status": "Running", "message": "half way", "percent": 50})),
            Ok(Report::Progress(Progress {
                message: Some("half way".to_owned()),
                percent: Some(50),
            }))
        );
        let Ok(Report::End(end)) = read(&json!({
            "status": "Succeeded", "summary": "mended", "outputs": {"answer": 42}, "artifacts": [{"name": "log"}],
        })) else {
            panic!("an end");
        };
        assert_eq!(end.how, How::Succeeded);
        assert_eq!(end.outcome.summary.as_deref(), Some("mended"));
        assert_eq!(end.artifacts.len(), 1);
    }

    #[test]
    fn a_bad_report_is_told_by_its_field() {
        let long = "x".repeat(TEXT_MAX + 1);
        let many: Vec<Value> = (0..=ARTIFACTS_MAX)
            .map(|number| json!({"name": number.to_string()}))
            .collect();
        for (body, word) in [
            (json!({}), "status"),
            (json!([]), "no report"),
            (json!({"status": "Done"}), "status"),
            (json!({"status": "Running", "percent": 101}), "percent"),
            (json!({"status": "Running", "percent": -1}), "percent"),
            (json!({"status": "Failed", "message": long}), "message"),
            (json!({"status": "Failed", "words": "x"}), "words"),
            (json!({"status": "Failed", "outputs": []}), "outputs"),
            (json!({"status": "Succeeded", "artifacts": many}), "artifacts"),
            (json!({"status": "Running", "summary": "x"}), "Running"),
        ] {
            let error = read(&body).unwrap_err();
            assert!(error.contains(word), "{body}: {error}");
        }
        for body in ["", "{", "{\"status\": \"Failed\"} {}", "\u{0}"] {
            assert!(Report::read(body.as_bytes()).is_err(), "{body:?}");
        }
    }
}
