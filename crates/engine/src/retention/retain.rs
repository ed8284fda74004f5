//! Whether a person wants to keep a run: `agents.proompteng.ai/retain`, as a label or as an annotation.

use std::time::Duration;

use jangar_api::labels;
use jiff::Timestamp;
use kube::ResourceExt;

/// The longest piece of a value that a message repeats. A label has at most 63 characters, an annotation many more.
const QUOTE_MAX_CHARS: usize = 63;

/// What is said about keeping a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retain {
    /// Nothing, or `false`: it goes when its time has come.
    No,
    Yes,
    /// Something that is neither yes nor no. Whoever wrote it meant something by it, and what is deleted cannot be brought
    /// back, so the run is kept.
    Unclear(String),
}

impl Retain {
    /// What a run says. If its label and its annotation differ, the one that keeps it counts.
    pub fn of(run: &impl ResourceExt) -> Self {
        let said = [run.labels(), run.annotations()].map(|keys| {
            keys.get(labels::RETAIN)
                .map_or(Self::No, |value| Self::read(value))
        });
        if said.contains(&Self::Yes) {
            return Self::Yes;
        }
        let unclear = said.into_iter().find(|said| matches!(said, Self::Unclear(_)));
        unclear.unwrap_or(Self::No)
    }

    /// What deserves attention about it, in words for whoever wrote it.
    pub fn remark(&self) -> Option<String> {
        match self {
            Self::Unclear(value) => Some(format!(
                "{} is {value:?}, which is neither \"true\" nor \"false\", so that the run is kept: write one of them",
                labels::RETAIN
            )),
            Self::No | Self::Yes => None,
        }
    }

    fn read(value: &str) -> Self {
        match value {
            "true" => Self::Yes,
            "false" => Self::No,
            other => Self::Unclear(other.chars().take(QUOTE_MAX_CHARS).collect()),
        }
    }
}

/// When a run that ended at this time may be deleted, if ever.
pub(crate) fn kept_until(
    run: &impl ResourceExt,
    finished: Option<Timestamp>,
    kept: Option<Duration>,
) -> Option<Timestamp> {
    match Retain::of(run) {
        Retain::Yes | Retain::Unclear(_) => return None,
        Retain::No => {}
    }
    finished?.checked_add(kept?).ok()
}

#[cfg(test)]
mod tests {
    use jangar_api::agents::agent_run::AgentRun;
    use serde_json::json;

    use super::*;

    fn said(label: Option<&str>, annotation: Option<&str>) -> Retain {
        let keys = |value: Option<&str>| value.map(|value| json!({labels::RETAIN: value}));
        let run: AgentRun = serde_json::from_value(json!({
            "metadata": {"name": "r", "labels": keys(label), "annotations": keys(annotation)},
            "spec": {"agentRef": {"name": "a"}, "runtime": {"type": "job"}},
        }))
        .expect("a run");
        Retain::of(&run)
    }

    #[test]
    fn true_keeps_false_does_not_and_anything_else_keeps_in_doubt() {
        assert_eq!(said(None, None), Retain::No);
        assert_eq!(said(Some("true"), None), Retain::Yes);
        assert_eq!(said(None, Some("true")), Retain::Yes);
        assert_eq!(said(Some("false"), None), Retain::No);
        for value in ["", "True", "yes", "1", " true"] {
            assert_eq!(said(None, Some(value)), Retain::Unclear(value.to_owned()));
        }
    }

    #[test]
    fn of_a_label_and_an_annotation_the_one_that_keeps_counts() {
        assert_eq!(said(Some("false"), Some("true")), Retain::Yes);
        assert_eq!(said(Some("yes"), Some("true")), Retain::Yes);
        assert_eq!(
            said(Some("yes"), Some("false")),
            Retain::Unclear("yes".to_owned())
        );
    }
}
