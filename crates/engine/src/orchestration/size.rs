//! How large the object of a run can become: its own fields, the steps that it keeps, and all that its status may say.
//!
//! A run that was accepted must always be able to record how its steps ended, so that this is known before it starts. Everything
//! that is not a list of steps has a bound of its own, and what steps report has what is left.

use jangar_api::{
    names::DnsLabel,
    orchestration::{
        Step, StepKind,
        orchestration_run::{CancelReceipt, ResourceRef, StepStatus},
    },
    phase::StepPhase,
    reason::Reason,
    step::StepProgress,
    values::{Int32, Timestamp},
};
use serde::Serialize;

use super::read::RETRIES_MAX;

/// The most bytes of a run. etcd takes half as much again, and the rest is for what the API server writes beside.
pub const OBJECT_MAX_BYTES: usize = 1024 * 1024;
/// The most bytes of all messages of the steps together; the whole is in the children.
pub const MESSAGES_MAX_BYTES: usize = 64 * 1024;
/// The most bytes of all decisions about gates together.
pub const APPROVALS_MAX_BYTES: usize = 24 * 1024;
/// The most bytes of one message of a condition, and of all conditions: the same one stands in several of them.
pub const CONDITION_MAX_BYTES: usize = 2 * 1024;
const CONDITIONS_MAX_BYTES: usize = 20 * 1024;
/// The most bytes that the values of all gates that wait have together.
pub const SHOWN_MAX_BYTES: usize = 16 * 1024;
/// The most bytes that the outputs of all steps have together, and the least that there is always room for.
pub const OUTPUTS_MAX_BYTES: usize = 128 * 1024;
pub const OUTPUTS_MIN_BYTES: usize = 16 * 1024;
/// What a run may gain besides its status: labels, and who owns which field.
const GROWTH_BYTES: usize = 4 * 1024;
/// All that does not depend on the steps.
const FIXED_BYTES: usize =
    MESSAGES_MAX_BYTES + APPROVALS_MAX_BYTES + CONDITIONS_MAX_BYTES + SHOWN_MAX_BYTES + GROWTH_BYTES;

/// The run that keeps the steps.
#[derive(Clone, Copy, Debug)]
pub struct Keeper<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// What it has of its own: metadata and spec.
    pub bytes: usize,
}

/// What is taken for a run while there is only a definition. One with longer names or more parameters is looked at when it
/// starts.
pub(super) const TYPICAL: Keeper<'static> = Keeper {
    namespace: "a-namespace",
    name: "the-name-of-a-run",
    bytes: 32 * 1024,
};

/// How many bytes a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// For the steps as they were written.
    pub steps: usize,
    /// For what becomes of them, without what they report.
    pub statuses: usize,
    /// For everything else.
    pub rest: usize,
}

impl Need {
    pub fn of(steps: &[Step], keeper: Keeper<'_>) -> Self {
        Self {
            steps: json_bytes(&steps),
            statuses: steps.iter().map(|step| largest(step, keeper)).sum(),
            rest: FIXED_BYTES + keeper.bytes,
        }
    }

    const fn total(self) -> usize {
        self.steps + self.statuses + self.rest
    }

    /// Why the run would be too large, if it would.
    pub fn excess(self) -> Option<String> {
        let least = self.total() + OUTPUTS_MIN_BYTES;
        (least > OBJECT_MAX_BYTES).then(|| {
            format!(
                "the steps have {} bytes, what becomes of them up to {}, and the rest of a run up to {}, together more than the \
                 {OBJECT_MAX_BYTES} of an object: shorten the steps, or put some of them into an Orchestration of their own",
                self.steps,
                self.statuses,
                self.rest + OUTPUTS_MIN_BYTES
            )
        })
    }

    /// How many bytes there are for what all steps report.
    pub fn outputs(self) -> usize {
        let left = OBJECT_MAX_BYTES.saturating_sub(self.total());
        left.clamp(OUTPUTS_MIN_BYTES, OUTPUTS_MAX_BYTES)
    }
}

/// The most that a status says of a step, apart from words and outputs: it was attempted to the last, and cancelled.
fn largest(step: &Step, keeper: Keeper<'_>) -> usize {
    let attempt = RETRIES_MAX + 1;
    let (kind, api_version) = match &step.kind {
        StepKind::ToolRun => ("ToolRun", "tools.proompteng.ai/v1alpha1"),
        StepKind::SubOrchestration => ("OrchestrationRun", "orchestration.proompteng.ai/v1alpha1"),
        _ => ("AgentRun", "agents.proompteng.ai/v1alpha1"),
    };
    let child = ResourceRef {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(DnsLabel::child(keeper.name, step.name.trim(), attempt).into()),
        namespace: Some(keeper.namespace.to_owned()),
        uid: Some("00000000-0000-0000-0000-000000000000".to_owned()),
    };
    let receipt = CancelReceipt {
        step: step.name.clone(),
        resource_ref: Some(short(&child)),
        asked_at: Some(LONGEST_TIME),
        gone_at: Some(LONGEST_TIME),
        result: Some(Reason::CancelTimedOut.to_string()),
    };
    let status = StepStatus {
        name: step.name.clone(),
        kind: step.kind.clone(),
        progress: StepProgress {
            phase: Some(StepPhase::Cancelled),
            attempt: i32::try_from(attempt).ok().map(Int32::from),
            started_at: Some(LONGEST_TIME),
            finished_at: Some(LONGEST_TIME),
            last_transition_time: Some(LONGEST_TIME),
            ..StepProgress::default()
        },
        reason: Some(Reason::DependencyCancelled),
        caused_by: None,
        message: Some(String::new()),
        resource_ref: Some(child),
        waits_for: None,
        outputs: Some(jangar_api::values::FreeForm::default()),
        extra: std::collections::BTreeMap::new(),
    };
    // Each stands in a list.
    json_bytes(&status) + json_bytes(&receipt) + 2
}

/// Times have milliseconds, and are never longer than this one.
const LONGEST_TIME: Timestamp = Timestamp(jiff::Timestamp::constant(1_234_567_890, 123_000_000));

/// An object by its kind and name. The rest stands in the step.
pub(crate) fn short(object: &ResourceRef) -> ResourceRef {
    ResourceRef {
        kind: object.kind.clone(),
        name: object.name.clone(),
        ..ResourceRef::default()
    }
}

/// How many bytes something has as JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    json_text(value).len()
}

/// Something as JSON: data with text for keys, which always becomes that.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// As much of a text as has this many bytes in JSON.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    let mut left = bytes;
    let fits = |letter: &char| {
        let needed = match letter {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            letter if letter.is_control() => 6,
            letter => letter.len_utf8(),
        };
        let room = left.checked_sub(needed);
        left = room.unwrap_or(0);
        room.is_some()
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_what_it_has_in_json() {
        for (text, bytes, expected) in [
            ("abc", 2, "ab"),
            ("abc", 3, "abc"),
            ("äb", 2, "ä"),
            ("\"b", 2, "\""),
            ("a\u{1}b", 6, "a"),
        ] {
            assert_eq!(cut(text, bytes), expected, "{text:?}");
            assert!(json_bytes(&cut(text, bytes)) <= bytes + 2);
        }
    }
}
