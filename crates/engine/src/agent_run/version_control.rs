//! The repository of a run: what `vcs` decides, put to the run.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};

use super::outcome::Ending;
use super::{
    NextStatus, Situation,
    references::{Lacking, Remedy, Resolved, Unresolved},
    start, token,
};
use crate::{
    decision::{Rejection, TokenSight},
    vcs::{self, Credentials, Request, Resolution, Unclear, VcsStamp},
};

/// What the run gets of version control. A run that can go on without does so when it has waited for as long as for any
/// other object it refers to.
pub(super) fn resolve(situation: &Situation<'_>, resolved: &Resolved<'_>) -> Result<Resolution, Unresolved> {
    let before = situation.status.vcs.as_ref();
    let request = Request {
        run: situation.run,
        agent: resolved.agent,
        implementation: resolved.implementation,
        provider: situation.observed.references.vcs.as_ref(),
        keys: &situation.observed.keys,
        rival: situation.observed.branch_rival.as_deref(),
        head_before: before.and_then(|before| before.head_branch.as_deref()),
    };
    let answer =
        vcs::resolve(&request, situation.settings).and_then(|resolution| with_app(situation, resolution));
    match answer {
        Ok(resolution) => Ok(resolution),
        Err(Unclear::Ask(question)) => Err(Unresolved::Unsure(question)),
        Err(Unclear::Wrong(why)) => Err(Unresolved::Wrong(why)),
        Err(Unclear::Lacking {
            why, optional: true, ..
        }) if has_waited(situation, &why) => Ok(Resolution::Skipped(why)),
        Err(Unclear::Lacking {
            why, mend, watched, ..
        }) => Err(Unresolved::Lacking(Lacking {
            why,
            remedy: if mend { Remedy::Mend } else { Remedy::Create },
            watched,
        })),
    }
}

/// A run of a GitHub App has a Secret for its token, and waits for a forge that gives none.
fn with_app(situation: &Situation<'_>, resolution: Resolution) -> Result<Resolution, Unclear> {
    let Resolution::Ready(mut ready) = resolution else {
        return Ok(resolution);
    };
    if !matches!(ready.auth.credentials, Credentials::App(_)) {
        return Ok(Resolution::Ready(ready));
    }
    if let Some(TokenSight::Failed { message }) = &situation.observed.token {
        let policy = situation.run.spec.vcs_policy.as_ref();
        let problem = format!(
            "VersionControlProvider {}: no token of the GitHub App could be had ({message})",
            ready.provider
        );
        return Err(Unclear::Lacking {
            why: Rejection::new(Reason::VcsAuthUnavailable, problem),
            mend: true,
            watched: false,
            optional: policy.and_then(|policy| policy.required) != Some(true),
        });
    }
    let name = token::secret_name(&situation.observed.key.name, situation.attempt.current());
    ready.token_secret = Some(name.into());
    Ok(Resolution::Ready(ready))
}

/// Whether the run has waited for long enough, now or before an earlier attempt.
fn has_waited(situation: &Situation<'_>, why: &Rejection) -> bool {
    let skipped = situation.status.common.condition(&ConditionType::VcsSkipped);
    let before = skipped
        .is_some_and(|skipped| skipped.status == ConditionStatus::True && skipped.reason == why.reason);
    let since = start::waiting_since(situation, &why.reason);
    let grace = situation.settings.runs.reference_grace;
    let over = since.and_then(|since| since.checked_add(grace).ok());
    before || grace.is_zero() || over.is_some_and(|over| over <= situation.now)
}

/// Takes over what agent-runner says of the work. Whether it arrived is asked later, so that no forge holds up the end of a
/// run.
pub(super) fn report(next: &mut NextStatus<'_>, ending: &Ending) {
    let (Some(vcs), Some(reported)) = (&mut next.status.vcs, &ending.delivery) else {
        return;
    };
    let said = ending.report.message.as_deref();
    if let Some((status, why)) = reported.record(vcs, said) {
        next.delivered(status, &why);
    }
}

/// Puts into the status what the Job was made with.
pub(super) fn record(next: &mut NextStatus<'_>, stamp: Option<VcsStamp>) {
    let Some(stamp) = stamp else { return };
    if let Some(status) = stamp.status {
        next.status.vcs = Some(status);
    }
    next.version_control_skipped(
        stamp
            .skipped
            .map(|words| Rejection::new(words.reason, words.message))
            .as_ref(),
    );
    if let Some(words) = stamp.warning {
        next.warn(&words.reason, &words.message);
    }
}
