//! Whether the work of a run arrived at its forge.
//!
//! What agent-runner said stands in the status when the run has ended. The forge is asked after that, by a controller of its
//! own: however slow it is, no run waits for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jangar_api::{
    agents::{
        agent_run::{AgentRun, AgentRunStatus, VcsMode},
        agent_run_status::{PullRequestStatus, VcsStatus},
        version_control_provider::{VersionControlProvider, VersionControlProviderSpec},
    },
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
    values::{Int32, Int64},
};
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    addresses::Addresses,
    auth::{AppKey, Auth, Credentials, StoredValue},
    resolve::pull_requests,
};
use crate::{
    conditions::{Conditions, touched},
    decision::{
        ApiCredentials, Decision, DeliveryAnswer, DeliveryQuery, Found, KeyHolder, Plan, Question, Rejection,
        Sight,
    },
    settings::Settings,
};

/// How long after the end of a run its forge is asked again if it could not answer.
const ASKED_FOR: Duration = Duration::from_mins(10);
/// The same for a forge that says when it will answer. GitHub counts requests by the hour.
const LIMITED_FOR: Duration = Duration::from_hours(2);
/// How long until it is asked again.
const AGAIN: Duration = Duration::from_secs(30);

/// What agent-runner says of the work, as it stands in the termination message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedDelivery {
    state: ReportedState,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    commit: Option<String>,
    #[serde(default)]
    commits_ahead: u32,
    #[serde(default)]
    pull_request: Option<ReportedPullRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ReportedPullRequest {
    number: u64,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum ReportedState {
    Pushed,
    NothingChanged,
    NotPushed,
    PushRejected,
    PushFailed,
}

impl ReportedDelivery {
    /// Puts what was reported into the status, and says what is known of the delivery. `said` is what agent-runner said of
    /// an error.
    pub(crate) fn record(
        &self,
        vcs: &mut VcsStatus,
        said: Option<&str>,
    ) -> Option<(ConditionStatus, Rejection)> {
        vcs.commit.clone_from(&self.commit);
        vcs.commits_ahead = Some(Int32::from(i32::try_from(self.commits_ahead).unwrap_or(i32::MAX)));
        if vcs.base_branch.is_none() {
            vcs.base_branch.clone_from(&self.base);
        }
        vcs.pull_request = self
            .pull_request
            .as_ref()
            .map(|open| pull_request(open.number, open.url.clone()));
        let branch = vcs.head_branch.as_deref().unwrap_or_default();
        let (status, reason, message) = match self.state {
            // Nobody promised to deliver anything.
            ReportedState::NotPushed => return None,
            _ if vcs.mode != Some(VcsMode::ReadWrite) => return None,
            ReportedState::Pushed => (
                ConditionStatus::Unknown,
                Reason::Progressing,
                format!(
                    "agent-runner pushed {} commits to {branch}; the forge is asked next",
                    self.commits_ahead
                ),
            ),
            ReportedState::NothingChanged => (
                ConditionStatus::False,
                Reason::NothingChanged,
                "the run ended without a commit, so that there was nothing to push".to_owned(),
            ),
            ReportedState::PushRejected => (
                ConditionStatus::False,
                Reason::PushRejected,
                said.unwrap_or("the forge refused the commits").to_owned(),
            ),
            ReportedState::PushFailed => (
                ConditionStatus::False,
                Reason::PushFailed,
                said.unwrap_or("the commits could not be sent").to_owned(),
            ),
        };
        Some((status, Rejection::new(reason, message)))
    }
}

fn pull_request(number: u64, url: Option<String>) -> PullRequestStatus {
    PullRequestStatus {
        number: i64::try_from(number).ok().map(Int64::from),
        url,
    }
}

/// What is known about a run that has ended.
#[derive(Clone, Debug)]
pub struct Observed {
    pub run: Arc<AgentRun>,
    /// The provider that the status names.
    pub provider: Sight<VersionControlProvider>,
    /// What forges said.
    pub answers: BTreeMap<DeliveryQuery, DeliveryAnswer>,
}

/// The name of the provider whose forge has to be asked, if one has.
pub fn is_due(run: &AgentRun) -> Option<&str> {
    let status = run.status.as_ref()?;
    let vcs = status.vcs.as_ref()?;
    let ended = status.phase.as_ref().is_some_and(RunPhase::is_terminal);
    let delivered = status.common.condition(&ConditionType::Delivered)?;
    let open = delivered.status == ConditionStatus::Unknown
        && matches!(delivered.reason, Reason::Progressing | Reason::DeliveryUnknown);
    // What a step of a workflow pushed elsewhere is not what `status.vcs` tells of.
    let pushed = vcs.mode == Some(VcsMode::ReadWrite) && vcs.commit.is_some();
    let due = ended && open && pushed && run.metadata.deletion_timestamp.is_none();
    vcs.provider.as_deref().filter(|_| due)
}

/// Asks the forge, and says what it has.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<AgentRunStatus> {
    let (Some(name), Some(before)) = (is_due(&observed.run), &observed.run.status) else {
        return Decision::Act(Plan::nothing());
    };
    let provider = match &observed.provider {
        Sight::Seen(provider) => provider,
        Sight::Unseen => return Decision::look(Question::VersionControlProvider(name.to_owned())),
        Sight::Absent | Sight::Illegible(_) => {
            let why = format!(
                "VersionControlProvider {name} is not there any more, so that its forge cannot be asked"
            );
            return written(observed, before, None, &unknown(why), None, now);
        }
    };
    let vcs = before.vcs.clone().unwrap_or_default();
    let query = match query(&provider.spec, &vcs, name, settings) {
        Ok(query) => query,
        Err(why) => return written(observed, before, None, &unknown(why), None, now),
    };
    match observed.answers.get(&query) {
        None => match rests_until(before).filter(|until| now < *until) {
            None => Decision::look(Question::Delivery(Box::new(query))),
            Some(until) => Decision::Act(Plan {
                wake_at: Some(until),
                ..Plan::nothing()
            }),
        },
        Some(DeliveryAnswer::Failed {
            message,
            passing,
            not_before,
        }) => {
            let asked_for = not_before.map_or(ASKED_FOR, |_| LIMITED_FOR);
            let until = before.finished_at.and_then(|at| at.0.checked_add(asked_for).ok());
            let again = now.checked_add(AGAIN).ok().max(*not_before);
            let again = again.filter(|again| *passing && until.is_some_and(|until| *again < until));
            let why = format!("the forge could not be asked whether the work arrived: {message}");
            written(observed, before, None, &unknown(why), again, now)
        }
        Some(DeliveryAnswer::Found(found)) => {
            let verdict = verdict(found, &query, pull_requests(&provider.spec));
            let vcs = recorded(found, vcs);
            written(observed, before, Some(vcs), &verdict, None, now)
        }
    }
}

/// Until when a forge that did not answer is left alone. Our own note of that is a change of the run, and must not lead to the
/// next question.
fn rests_until(status: &AgentRunStatus) -> Option<Timestamp> {
    let delivered = status.common.condition(&ConditionType::Delivered)?;
    let asked = delivered.reason == Reason::DeliveryUnknown;
    let since = delivered.last_transition_time.filter(|_| asked)?;
    since.0.checked_add(AGAIN).ok()
}

type Verdict = (ConditionStatus, Rejection);

fn unknown(message: String) -> Verdict {
    (
        ConditionStatus::Unknown,
        Rejection::new(Reason::DeliveryUnknown, message),
    )
}

fn verdict(found: &Found, query: &DeliveryQuery, wants_pull_request: bool) -> Verdict {
    let DeliveryQuery { repository, head, .. } = query;
    let base = query
        .base
        .as_deref()
        .unwrap_or("the branch that the work started from");
    let no = |reason, message: String| (ConditionStatus::False, Rejection::new(reason, message));
    let yes = |message: String| (ConditionStatus::True, Rejection::new(Reason::Delivered, message));
    if let Some((number, url)) = &found.merged {
        return yes(format!(
            "the work on branch {head} of {repository} was merged into {base} with pull request {number} ({url})"
        ));
    }
    let Some(commit) = &found.commit else {
        return no(
            Reason::BranchMissing,
            format!(
                "{repository} has no branch {head}, and no pull request with the work was merged: somebody deleted it after \
                 agent-runner had pushed it"
            ),
        );
    };
    if found.commits_ahead == Some(0) {
        return no(
            Reason::NothingChanged,
            format!("branch {head} of {repository} has no commit that {base} has not"),
        );
    }
    if found.pull_request.is_none() && wants_pull_request {
        return no(
            Reason::PullRequestMissing,
            format!(
                "branch {head} of {repository} is there, and no pull request from it to {base} is open: open one, or set \
                 spec.defaults.pullRequest.enabled of the VersionControlProvider to false"
            ),
        );
    }
    let request = found.pull_request.as_ref();
    let request = request
        .map(|(number, url)| format!(", pull request {number} ({url})"))
        .unwrap_or_default();
    let ahead = found
        .commits_ahead
        .map(|ahead| format!(", {ahead} commits ahead of {base}"))
        .unwrap_or_default();
    let short: String = commit.chars().take(12).collect();
    yes(format!(
        "branch {head} of {repository} is at {short}{ahead}{request}"
    ))
}

/// The status with what the forge has in the place of what was reported. Of what was merged the report tells more: the branch
/// may have gone on, or be gone, and is not ahead any more.
fn recorded(found: &Found, vcs: VcsStatus) -> VcsStatus {
    if let Some((number, url)) = &found.merged {
        return VcsStatus {
            pull_request: Some(pull_request(*number, Some(url.clone()))),
            ..vcs
        };
    }
    VcsStatus {
        commit: found.commit.clone().or(vcs.commit),
        commits_ahead: found
            .commits_ahead
            .map(|ahead| Int32::from(i32::try_from(ahead).unwrap_or(i32::MAX)))
            .or(vcs.commits_ahead),
        pull_request: found
            .pull_request
            .as_ref()
            .map(|(number, url)| pull_request(*number, Some(url.clone())))
            .or(vcs.pull_request),
        ..vcs
    }
}

/// The address of a forge's API, if the provider is well and there is one.
pub(crate) fn api_address(spec: &VersionControlProviderSpec, auth: &Auth) -> Option<String> {
    Addresses::of(spec, auth).ok()?.api
}

/// What to ask the forge, or why it cannot be asked.
fn query(
    spec: &VersionControlProviderSpec,
    vcs: &VcsStatus,
    name: &str,
    settings: &Settings,
) -> Result<DeliveryQuery, String> {
    let of = |what: String| format!("VersionControlProvider {name}: {what}");
    let auth = Auth::of(spec, &settings.vcs).map_err(|flaw| of(flaw.of_provider().message))?;
    let addresses = Addresses::of(spec, &auth).map_err(|why| of(why.message))?;
    let (Some(repository), Some(head)) = (&vcs.repository, &vcs.head_branch) else {
        return Err("status.vcs names no repository and branch".to_owned());
    };
    let credentials = match auth.credentials {
        Credentials::Token(StoredValue {
            holder: KeyHolder::Secret(secret),
            key,
            ..
        }) => Some(ApiCredentials::Token { secret, key }),
        Credentials::App(AppKey {
            app_id,
            installation_id,
            private_key:
                StoredValue {
                    holder: KeyHolder::Secret(secret),
                    key,
                    ..
                },
            ..
        }) => Some(ApiCredentials::App {
            app_id,
            installation_id,
            secret,
            key,
        }),
        Credentials::Token(_) | Credentials::App(_) | Credentials::Ssh { .. } | Credentials::None => None,
    };
    match (addresses.api, credentials) {
        (Some(api), Some(credentials)) if super::resolve::has_api(&spec.provider) => Ok(DeliveryQuery {
            forge: spec.provider.clone(),
            api,
            repository: repository.clone(),
            base: vcs.base_branch.clone(),
            head: head.clone(),
            commit: vcs.commit.clone().unwrap_or_default(),
            pull_request: vcs
                .pull_request
                .as_ref()
                .and_then(|open| open.number)
                .and_then(|number| u64::try_from(number.get()).ok()),
            credentials,
        }),
        _ => Err(of(format!(
            "agent-runner pushed to {head} of {repository}, and {} cannot be asked over an API with the credentials of this provider",
            spec.provider
        ))),
    }
}

fn written(
    observed: &Observed,
    before: &AgentRunStatus,
    vcs: Option<VcsStatus>,
    (status, Rejection { reason, message }): &Verdict,
    wake_at: Option<Timestamp>,
    now: Timestamp,
) -> Decision<AgentRunStatus> {
    let mut conditions = Conditions::of(&before.common, observed.run.metadata.generation, now);
    conditions.set(
        ConditionType::Delivered,
        status.clone(),
        reason.clone(),
        message.clone(),
    );
    let mut next = before.clone();
    next.common = conditions.into_status(&before.common);
    // What others say of the generation is for others to change.
    next.common.observed_generation = before.common.observed_generation;
    if vcs.is_some() {
        next.vcs = vcs;
    }
    Decision::Act(Plan {
        status: touched(before, next, |status| &mut status.common, now),
        wake_at,
        ..Plan::nothing()
    })
}
