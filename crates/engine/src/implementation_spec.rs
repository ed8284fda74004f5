//! ImplementationSpec: whether it describes a piece of work.

use std::sync::Arc;

use jangar_api::{
    agents::implementation_spec::{ImplementationSpec, ImplementationSpecSpec, ImplementationSpecStatus},
    reason::Reason,
};
use jiff::Timestamp;

use crate::{
    conditions::touched,
    decision::{Decision, Plan, Rejection},
    validity,
};

/// The most characters of `text` and `description`. The API server holds new objects to it; an inline implementation and
/// objects that are older than the rule are held to it here.
const TEXT_MAX: usize = 131_072;
/// The most characters of `summary`.
const SUMMARY_MAX: usize = 256;
/// The most acceptance criteria.
const ACCEPTANCE_CRITERIA_MAX: usize = 50;

/// What is known about an ImplementationSpec.
#[derive(Clone, Debug)]
pub struct Observed {
    pub spec: Arc<ImplementationSpec>,
}

/// Says whether it can be worked on. `syncedAt` is set once, when it is first seen.
pub fn plan(observed: &Observed, now: Timestamp) -> Decision<ImplementationSpecStatus> {
    let spec = &observed.spec;
    let before = spec.status.clone().unwrap_or_default();
    let mut next = before.clone();
    next.common = validity::report(
        &before.common,
        spec.metadata.generation,
        check(&spec.spec, "spec"),
        now,
    );
    next.synced_at = before.synced_at.or(Some(jangar_api::values::Timestamp(now)));
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

/// Whether an implementation can be worked on; `at` is where it stands, for messages.
pub fn check(spec: &ImplementationSpecSpec, at: &str) -> Result<(), Rejection> {
    if spec.text.trim().is_empty() {
        return Err(Rejection::new(
            Reason::MissingText,
            format!("{at}.text is blank: describe what is to be done"),
        ));
    }
    bounded(&spec.text, TEXT_MAX, Reason::TextTooLarge, at, "text")?;
    let summary = spec.summary.as_deref().unwrap_or_default();
    bounded(summary, SUMMARY_MAX, Reason::SummaryTooLong, at, "summary")?;
    let description = spec.description.as_deref().unwrap_or_default();
    bounded(
        description,
        TEXT_MAX,
        Reason::DescriptionTooLarge,
        at,
        "description",
    )?;
    let criteria = spec.acceptance_criteria.len();
    if criteria > ACCEPTANCE_CRITERIA_MAX {
        return Err(Rejection::new(
            Reason::AcceptanceCriteriaTooLong,
            format!(
                "{at}.acceptanceCriteria has {criteria} entries, and {ACCEPTANCE_CRITERIA_MAX} are allowed: join some of them"
            ),
        ));
    }
    let Some(contract) = &spec.contract else {
        return Ok(());
    };
    let invalid = |field: String| {
        Rejection::new(
            Reason::InvalidContract,
            format!("{at}.contract.{field} is blank: name a key, or leave the entry out"),
        )
    };
    if let Some(blank) = contract
        .required_keys
        .iter()
        .position(|key| key.trim().is_empty())
    {
        return Err(invalid(format!("requiredKeys[{blank}]")));
    }
    for (position, mapping) in contract.mappings.iter().enumerate() {
        for (field, value) in [("from", &mapping.from), ("to", &mapping.to)] {
            if value.trim().is_empty() {
                return Err(invalid(format!("mappings[{position}].{field}")));
            }
        }
    }
    Ok(())
}

fn bounded(text: &str, max: usize, reason: Reason, at: &str, field: &str) -> Result<(), Rejection> {
    let length = text.chars().count();
    if length <= max {
        return Ok(());
    }
    Err(Rejection::new(
        reason,
        format!("{at}.{field} has {length} characters, and {max} are allowed: shorten it"),
    ))
}
