//! What a run left behind, within the bounds of a status.

use jangar_api::{reason::Reason, refs::ArtifactRef};

use super::NextStatus;
use crate::{decision::Rejection, settings::RunSettings};

/// The most characters of an address.
const URL_MAX: usize = 2048;

/// Adds what the agent reported to what the status lists already. Of too many, the last are kept. The error is that the
/// limits were exceeded and the settings make that a failure.
pub(super) fn record(
    next: &mut NextStatus<'_>,
    reported: &[ArtifactRef],
    settings: &RunSettings,
) -> Result<(), Rejection> {
    if reported.is_empty() {
        return Ok(());
    }
    let mut listed = std::mem::take(&mut next.status.artifacts);
    listed.retain(|known| !reported.iter().any(|new| new.name == known.name));
    listed.extend_from_slice(reported);
    let (kept, limited) = within_limits(listed, settings.artifacts_max);
    next.status.artifacts = kept;
    next.artifacts_limited(limited.as_ref());
    match limited {
        Some(exceeded) if settings.artifacts_strict => {
            next.artifacts_exceeded(&exceeded);
            Err(exceeded)
        }
        Some(_) | None => Ok(()),
    }
}

/// The artifacts that may be listed, and the first thing that was wrong with the others.
fn within_limits(listed: Vec<ArtifactRef>, max: usize) -> (Vec<ArtifactRef>, Option<Rejection>) {
    let mut limited: Option<Rejection> = None;
    let mut note = |reason: Reason, message: String| {
        limited.get_or_insert(Rejection::new(reason, message));
    };
    let mut kept: Vec<ArtifactRef> = Vec::with_capacity(listed.len());
    for mut artifact in listed {
        if artifact.name.trim().is_empty() {
            note(
                Reason::MissingName,
                "an artifact without a name was left out".to_owned(),
            );
            continue;
        }
        if let Some(url) = &artifact.url {
            if url.starts_with("data:") {
                note(
                    Reason::InlineUrlDisallowed,
                    format!("the data: address of artifact {} was left out", artifact.name),
                );
                artifact.url = None;
            } else if url.chars().count() > URL_MAX {
                note(
                    Reason::UrlTooLong,
                    format!(
                        "the address of artifact {} has more than {URL_MAX} characters and was left out",
                        artifact.name
                    ),
                );
                artifact.url = None;
            }
        }
        kept.push(artifact);
    }
    let excess = kept.len().saturating_sub(max);
    if excess > 0 {
        note(
            Reason::TooManyArtifacts,
            format!(
                "{} artifacts were reported, and the last {max} are listed",
                kept.len()
            ),
        );
        kept.drain(..excess);
    }
    (kept, limited)
}
