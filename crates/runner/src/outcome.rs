//! The outcome in the form the controller reads: one line of JSON that Kubernetes will keep whole.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Number, Value};

use crate::{
    artifacts::Artifact,
    delivery::Delivery,
    reason::{EXIT_RUNNER, Reason},
};

/// Kubernetes keeps this much of a container's termination message and cuts the rest off.
pub(crate) const TERMINATION_MESSAGE_MAX_BYTES: usize = 4096;

/// Bound of the runner's own message. With usage at its bounds and every byte escaped, the whole still fits.
const MESSAGE_MAX_BYTES: usize = 640;

/// What stands where text was cut.
const CUT_MARK: &str = "…";

/// The version of the format, for controllers of another version.
const VERSION: u8 = 1;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    version: u8,
    pub(crate) exit_code: u8,
    pub(crate) reason: Reason,
    /// What went wrong, for people. Absent when nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) usage: BTreeMap<String, Number>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<Artifact>,
    /// How many artifacts were left out here; the status file has them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts_omitted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// What became of the work on the repository, if the run has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vcs: Option<Delivery>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) outputs: Map<String, Value>,
}

/// The outputs do not fit, whatever else is left out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the outputs take {bytes} bytes, and at most {room} fit into the termination message; write large results to an artifact and \
     report its path"
)]
pub(crate) struct OutputsTooLarge {
    bytes: usize,
    room: usize,
}

/// How much is told of each artifact, from everything to nothing.
const DETAILS: [fn(&mut Outcome); 4] = [
    |_| {},
    |outcome| {
        for artifact in &mut outcome.artifacts {
            artifact.url = None;
            artifact.key = None;
            artifact.bytes = None;
        }
        if let Some(open) = outcome.vcs.as_mut().and_then(|vcs| vcs.pull_request.as_mut()) {
            open.url = None;
        }
    },
    |outcome| {
        for artifact in &mut outcome.artifacts {
            artifact.path = None;
        }
    },
    |outcome| {
        outcome.artifacts_omitted = Some(outcome.artifacts.len());
        outcome.artifacts.clear();
        if let Some(vcs) = &mut outcome.vcs {
            vcs.base = None;
        }
    },
];

impl Outcome {
    pub(crate) fn new(reason: Reason, exit_code: u8, message: Option<&str>) -> Self {
        Self {
            version: VERSION,
            exit_code,
            reason,
            message: message.map(plain),
            summary: None,
            usage: BTreeMap::new(),
            artifacts: Vec::new(),
            artifacts_omitted: None,
            commit: None,
            vcs: None,
            outputs: Map::new(),
        }
    }

    /// The same run, which failed after all.
    pub(crate) fn failed(mut self, reason: Reason, message: &str) -> Self {
        self.reason = reason;
        self.exit_code = reason.own_exit_code().unwrap_or(EXIT_RUNNER);
        self.message = Some(plain(message));
        self
    }

    /// The same run, with something that did not keep it from succeeding.
    pub(crate) fn noted(mut self, message: &str) -> Self {
        self.message = Some(plain(message));
        self
    }

    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The outcome of a run whose outputs do not fit: a success becomes a failure, and a failure stays what it was.
    pub(crate) fn without_outputs(mut self, problem: &str) -> Self {
        self.outputs = Map::new();
        if self.reason == Reason::Completed {
            self.reason = Reason::OutputsTooLarge;
            self.exit_code = EXIT_RUNNER;
        }
        self.message = Some(plain(&match self.message {
            Some(message) => format!("{message}; {problem}"),
            None => problem.to_owned(),
        }));
        self
    }

    /// The termination message. What is too much is cut: first the summary, then what is told of each artifact. Outputs are
    /// never cut, because half an output would be taken for a whole one.
    pub(crate) fn compact(&self) -> Result<String, OutputsTooLarge> {
        let mut outcome = self.clone();
        let mut shortest = String::new();
        for reduce in DETAILS {
            reduce(&mut outcome);
            if let Some(text) = outcome.with_summary_cut() {
                return Ok(text);
            }
            shortest = outcome.with_summary_until(0);
        }
        let bytes = size_of(&self.outputs);
        Err(OutputsTooLarge {
            bytes,
            room: TERMINATION_MESSAGE_MAX_BYTES.saturating_sub(shortest.len().saturating_sub(bytes)),
        })
    }

    /// The JSON with as much of the summary as fits, or none if not even the mark in its place does.
    fn with_summary_cut(&self) -> Option<String> {
        let whole = self.json();
        if whole.len() <= TERMINATION_MESSAGE_MAX_BYTES {
            return Some(whole);
        }
        let summary = self.summary.as_deref()?;
        if self.with_summary_until(0).len() > TERMINATION_MESSAGE_MAX_BYTES {
            return None;
        }
        let ends: Vec<usize> = summary
            .char_indices()
            .map(|(index, _)| index)
            .take_while(|index| *index <= TERMINATION_MESSAGE_MAX_BYTES)
            .collect();
        // A longer beginning never makes shorter JSON, so the longest that fits can be searched for.
        let fitting =
            ends.partition_point(|end| self.with_summary_until(*end).len() <= TERMINATION_MESSAGE_MAX_BYTES);
        let end = ends.get(fitting.checked_sub(1)?)?;
        Some(self.with_summary_until(*end))
    }

    fn with_summary_until(&self, end: usize) -> String {
        let mut outcome = self.clone();
        if let Some(summary) = &mut outcome.summary {
            summary.truncate(end);
            summary.push_str(CUT_MARK);
        }
        outcome.json()
    }

    fn json(&self) -> String {
        // Every key is a string and every value comes from JSON, so there is nothing that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn size_of(outputs: &Map<String, Value>) -> usize {
    serde_json::to_string(outputs).map_or(0, |text| text.len())
}

/// One line of bounded length: a control character would take six bytes in JSON and garble a terminal.
fn plain(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    cut(&line, MESSAGE_MAX_BYTES)
}

/// The beginning of `text`, at most `max` bytes with the mark, cut between characters.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max.saturating_sub(CUT_MARK.len()));
    format!("{}{CUT_MARK}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::delivery::{PullRequest, State};

    fn outcome() -> Outcome {
        let mut outcome = Outcome::new(Reason::Completed, 0, None);
        outcome.commit = Some("0123456789abcdef".to_owned());
        outcome.usage.insert("inputTokens".to_owned(), 5.into());
        outcome
    }

    fn artifact(n: usize, url: usize) -> Artifact {
        Artifact {
            name: format!("artifact-{n}"),
            path: Some(format!("/workspace/out/file-{n}")),
            key: None,
            url: Some("u".repeat(url)),
            bytes: Some(1),
        }
    }

    fn compacted(outcome: &Outcome) -> Value {
        let text = outcome.compact().unwrap();
        assert!(
            text.len() <= TERMINATION_MESSAGE_MAX_BYTES,
            "{} bytes",
            text.len()
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_fits_is_told_whole() {
        let mut outcome = outcome();
        outcome.summary = Some("done".to_owned());
        outcome.artifacts = vec![artifact(1, 3)];
        outcome.outputs = Map::from_iter([("pr".to_owned(), json!(7))]);

        assert_eq!(
            compacted(&outcome),
            json!({
                "version": 1, "exitCode": 0, "reason": "Completed", "summary": "done",
                "usage": {"inputTokens": 5},
                "artifacts": [{"name": "artifact-1", "path": "/workspace/out/file-1", "url": "uuu", "bytes": 1}],
                "commit": "0123456789abcdef", "outputs": {"pr": 7},
            })
        );
    }

    #[test]
    fn the_summary_is_cut_first_between_characters() {
        for unit in ["a", "ä", "✓", "🦀", "\"", "\u{1}"] {
            let mut outcome = outcome();
            outcome.summary = Some(unit.repeat(5000));
            outcome.artifacts = vec![artifact(1, 100)];

            let value = compacted(&outcome);

            let summary = value["summary"].as_str().unwrap();
            assert!(summary.ends_with(CUT_MARK), "{unit:?}");
            assert!(
                summary
                    .trim_end_matches(CUT_MARK)
                    .chars()
                    .all(|c| unit.contains(c)),
                "{unit:?}"
            );
            let length = outcome.compact().unwrap().len();
            assert!(
                length > TERMINATION_MESSAGE_MAX_BYTES - 8,
                "{unit:?} leaves {length}"
            );
            assert_eq!(value["artifacts"][0]["bytes"], 1, "{unit:?}");
        }
    }

    #[test]
    fn artifacts_lose_their_details_after_the_summary() {
        let told = |count: usize, url: usize| {
            let mut outcome = outcome();
            outcome.summary = Some("s".repeat(100));
            outcome.artifacts = (0..count).map(|n| artifact(n, url)).collect();
            compacted(&outcome)
        };

        let without_urls = told(20, 500);
        assert_eq!(
            without_urls["artifacts"][19],
            json!({"name": "artifact-19", "path": "/workspace/out/file-19"})
        );
        assert_eq!(told(100, 0)["artifacts"][99], json!({"name": "artifact-99"}));
        let counted = told(1000, 0);
        assert_eq!(counted["artifactsOmitted"], 1000);
        assert!(counted.get("artifacts").is_none());
    }

    #[test]
    fn outputs_are_never_cut() {
        let mut outcome = outcome();
        outcome.summary = Some("s".repeat(5000));
        outcome.artifacts = (0..100).map(|n| artifact(n, 100)).collect();
        outcome.outputs = Map::from_iter([("text".to_owned(), json!("x".repeat(3800)))]);
        assert_eq!(
            compacted(&outcome)["outputs"]["text"].as_str().unwrap().len(),
            3800
        );

        outcome.outputs = Map::from_iter([("text".to_owned(), json!("x".repeat(4000)))]);
        let error = outcome.compact().unwrap_err();

        assert_eq!(error.bytes, 4011);
        let room = error.room;
        outcome.outputs =
            Map::from_iter([("text".to_owned(), json!("x".repeat(4000 - (error.bytes - room))))]);
        assert!(outcome.compact().is_ok(), "the room that is told is there");
        outcome.outputs =
            Map::from_iter([("text".to_owned(), json!("x".repeat(4001 - (error.bytes - room))))]);
        assert!(outcome.compact().is_err(), "and no more");
    }

    #[test]
    fn without_outputs_everything_always_fits() {
        let mut outcome = Outcome::new(Reason::HardDeadlineExceeded, 255, Some(&"\"".repeat(10_000)));
        outcome.commit = Some("f".repeat(64));
        outcome.vcs = Some(Delivery {
            state: State::NothingChanged,
            branch: Some("b".repeat(200)),
            commit: Some("f".repeat(64)),
            commits_ahead: u32::MAX,
            base: Some("b".repeat(200)),
            pull_request: Some(PullRequest {
                number: u64::MAX,
                url: Some("u".repeat(2000)),
            }),
            message: None,
        });
        outcome.usage = (0..16)
            .map(|n| {
                (
                    format!("{n:\"<40}"),
                    Number::from_f64(-1.234_567_890_123_456_7e-300).unwrap(),
                )
            })
            .collect();
        outcome.artifacts = (0..1000).map(|n| artifact(n, 0)).collect();
        outcome.summary = Some("\u{1}".repeat(10_000));

        assert!(outcome.compact().is_ok());
    }

    #[test]
    fn a_message_is_one_line() {
        let outcome = Outcome::new(Reason::AgentFailed, 1, Some("one\ntwo\u{1b}[31m"));

        assert_eq!(outcome.message(), Some("one two [31m"));
    }
}
