//! The repository of a run: what `vcs` decides, put to the run. A workflow has one for each of its steps, which may be the
//! same: a step goes on with the branch of the one before unless it has one of its own.

use std::collections::BTreeSet;

use jangar_api::{
    agents::{
        agent::Agent,
        agent_run::{AgentRun, AgentRunStatus},
        agent_run_status::VcsStatus,
        implementation_spec::ImplementationSpecSpec,
    },
    condition::{ConditionStatus, ConditionType},
    reason::Reason,
};

use super::{
    NextStatus, References, Situation,
    outcome::Ending,
    references::{Lacking, Resolved, Unresolved},
    start,
    steps::{self, Earlier},
    task::{Description, Task},
};
use crate::{
    decision::{Rejection, Sight, TokenSight},
    job::{self, Place},
    life,
    vcs::{self, Begun, Credentials, Request, Resolution, Unclear, VcsStamp, WantedBranch},
    waiting::Remedy,
};

/// The names of the VersionControlProviders that a run needs, for all its steps and for what it has begun, as far as what it
/// refers to is known.
pub fn providers_needed(run: &AgentRun, references: &References) -> BTreeSet<String> {
    let agent: Option<&Agent> = references.agent.seen().map(AsRef::as_ref);
    let begun = run.status.as_ref().and_then(|status| status.vcs.as_ref());
    tasks(run)
        .filter_map(|task| reference(run, task, references, agent))
        .chain(begun.and_then(|vcs| vcs.provider.as_deref()))
        .map(str::to_owned)
        .collect()
}

/// The branches that a run would take for its steps, of those whose providers want to know whether others work on them.
pub fn wanted_branches(run: &AgentRun, references: &References) -> BTreeSet<WantedBranch> {
    if references.vcs.is_empty() {
        return BTreeSet::new();
    }
    let unwritten = AgentRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&unwritten);
    let agent: Option<&Agent> = references.agent.seen().map(AsRef::as_ref);
    let wanted = |task: Task<'_>| {
        let work = work(run, task, references)?;
        let provider = references.vcs.get(reference(run, task, references, agent)?)?;
        let reports = steps::reported(task, status);
        // What an earlier step has yet to report decides nothing now.
        let parameters = steps::parameters(task, run, Earlier::Ran(&reports)).ok()?;
        vcs::wanted_branch(&task.run(run, parameters), work, provider.seen()?)
    };
    tasks(run).filter_map(wanted).collect()
}

fn tasks(run: &AgentRun) -> impl Iterator<Item = Task<'_>> {
    life::first_task(run).onwards(run)
}

/// What a task is about, as far as it is known.
fn work<'a>(
    run: &'a AgentRun,
    task: Task<'a>,
    references: &'a References,
) -> Option<&'a ImplementationSpecSpec> {
    match task.description(run) {
        Description::Inline(implementation, _) => Some(&implementation.inline),
        Description::Reference(reference, _) => {
            let object = references.implementations.get(reference.name.trim())?.seen()?;
            Some(&object.spec)
        }
        Description::Nowhere => None,
    }
}

/// The provider that a task comes to, as far as that is known.
fn reference<'a>(
    run: &'a AgentRun,
    task: Task<'a>,
    references: &'a References,
    agent: Option<&'a Agent>,
) -> Option<&'a str> {
    vcs::reference(run, work(run, task, references), agent)
}

/// What a task gets of version control; `run` is the run as the task sees it. A run that can go on without does so when it has
/// waited for as long as for any other object it refers to.
pub(super) fn resolve(
    situation: &Situation<'_>,
    task: Task<'_>,
    run: &AgentRun,
    resolved: &Resolved<'_>,
    earlier: Earlier<'_>,
) -> Result<Resolution, Unresolved> {
    if matches!(earlier, Earlier::NotRun) && steps::awaits_reports(task) {
        // Its repository and its branch may be among what it gets from the steps before it.
        return Ok(Resolution::Unasked);
    }
    let providers = &situation.observed.references.vcs;
    let provider = vcs::reference(run, Some(resolved.implementation), Some(resolved.agent))
        .and_then(|name| providers.get(name));
    let wanted = provider
        .and_then(Sight::seen)
        .and_then(|provider| vcs::wanted_branch(run, resolved.implementation, provider));
    let rival = wanted.and_then(|branch| situation.observed.branch_rivals.get(&branch));
    let request = Request {
        run,
        agent: resolved.agent,
        implementation: resolved.implementation,
        provider,
        keys: &situation.observed.keys,
        rival: rival.map(String::as_str),
        begun: situation.status.vcs.as_ref().and_then(|vcs| begun(task, vcs)),
    };
    let place = Place {
        step: task.number(),
        attempt: situation.attempt.current(),
    };
    let answer = vcs::resolve(&request, situation.settings)
        .and_then(|resolution| with_app(situation, place, resolution));
    match answer {
        Ok(resolution) => Ok(resolution),
        Err(Unclear::Ask(question)) => Err(Unresolved::Unsure(BTreeSet::from([question]))),
        Err(Unclear::Wrong(why)) => Err(Unresolved::Wrong(why)),
        // Whether a later step has to go on without is seen when it starts.
        Err(Unclear::Lacking {
            why, optional: true, ..
        }) if matches!(earlier, Earlier::NotRun) || has_waited(situation, &why) => {
            Ok(Resolution::Skipped(why))
        }
        Err(Unclear::Lacking {
            why, mend, watched, ..
        }) => Err(Unresolved::Lacking(Lacking {
            why,
            remedy: if mend { Remedy::Mend } else { Remedy::Create },
            watched,
        })),
    }
}

/// The branch that the run has worked on already.
fn begun<'a>(task: Task<'_>, before: &'a VcsStatus) -> Option<Begun<'a>> {
    let head = before.head_branch.as_deref()?;
    match task {
        Task::Whole => Some(Begun::Attempt(head)),
        Task::Step(_) => Some(Begun::Step {
            repository: before.repository.as_deref()?,
            head,
        }),
    }
}

/// A run of a GitHub App has a Secret for its token, and waits for a forge that gives none.
fn with_app(situation: &Situation<'_>, place: Place, resolution: Resolution) -> Result<Resolution, Unclear> {
    let Resolution::Ready(mut ready) = resolution else {
        return Ok(resolution);
    };
    if !matches!(ready.auth.credentials, Credentials::App(_)) {
        return Ok(Resolution::Ready(ready));
    }
    let secret: String = job::token_name(&situation.observed.key.name, place).into();
    if let Some(TokenSight::Failed { message, .. }) = situation.observed.tokens.get(&secret) {
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
    ready.token_secret = Some(secret);
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

/// Puts into the status what the Job of a task was made with.
pub(super) fn record(next: &mut NextStatus<'_>, task: Task<'_>, stamp: Option<VcsStamp>) {
    let Some(stamp) = stamp else { return };
    next.version_control_skipped(skipped(task, &stamp).as_ref());
    if let Some(status) = stamp.status {
        go_to(next, status);
    }
    if let Some(words) = stamp.warning {
        next.warn(&words.reason, &words.message);
    }
}

/// Why a task goes on without version control, if it does.
pub(super) fn skipped(task: Task<'_>, stamp: &VcsStamp) -> Option<Rejection> {
    let words = stamp.skipped.as_ref()?;
    Some(task.says_why(Rejection::new(words.reason.clone(), words.message.clone())))
}

/// The run works on this from here on. What a step before it has pushed to the same branch stays known; what one has pushed
/// elsewhere is not asked for any more, and the status says so.
fn go_to(next: &mut NextStatus<'_>, status: VcsStatus) {
    let Some(before) = next.status.vcs.take() else {
        next.status.vcs = Some(status);
        return;
    };
    let place = |vcs: &VcsStatus| (vcs.repository.clone(), vcs.head_branch.clone(), vcs.mode.clone());
    if place(&before) == place(&status) {
        next.status.vcs = Some(VcsStatus {
            base_branch: status.base_branch.clone().or(before.base_branch),
            commit: before.commit,
            commits_ahead: before.commits_ahead,
            pull_request: before.pull_request,
            ..status
        });
        return;
    }
    if next.expects_delivery() {
        let message = format!(
            "an earlier step pushed to {} of {}, and the run went on elsewhere: that forge is not asked",
            before.head_branch.unwrap_or_default(),
            before.repository.unwrap_or_default()
        );
        let why = Rejection::new(Reason::DeliveryUnknown, message);
        next.delivered(ConditionStatus::Unknown, &why);
    }
    next.status.vcs = Some(status);
}
