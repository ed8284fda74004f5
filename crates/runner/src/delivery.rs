//! What becomes of the agent's commits: counted, pushed if the run may, and told.

use std::{thread, time::Duration};

use serde::Serialize;

use crate::{
    bounded::{BoundedError, WhenStopped},
    reason::Reason,
    repository::{Checkout, Repository},
};

/// How long one push may take.
const PUSH_MAX: Duration = Duration::from_mins(5);
/// How long a push may go on when the pod is told to stop. It fits into what the grace of the pod leaves.
const PUSH_AFTER_STOP: Duration = Duration::from_secs(15);
/// How long to wait before each further try of a push that the server did not answer. A server that is being restarted is
/// back by then, and one that is not will not be.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(5)];

/// What became of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    /// The server has the commits.
    Pushed,
    /// The run made no commit.
    NothingChanged,
    /// There are commits, and the run may not push.
    NotPushed,
    /// The server refused the commits.
    PushRejected,
    /// The server could not be reached, or did not let the run in.
    PushFailed,
}

impl State {
    /// Why the run fails, if it does: work that did not arrive is lost with the pod.
    pub(crate) const fn failure(self) -> Option<Reason> {
        match self {
            Self::Pushed | Self::NothingChanged | Self::NotPushed => None,
            Self::PushRejected => Some(Reason::PushRejected),
            Self::PushFailed => Some(Reason::PushFailed),
        }
    }
}

/// What the outcome says about the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// The last commit of the branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// How many commits the branch is ahead of the one that the work started from.
    pub(crate) commits_ahead: u32,
    /// The branch that the work started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
    /// The pull request for the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pull_request: Option<PullRequest>,
    /// What people should know about it.
    #[serde(skip)]
    pub(crate) message: Option<String>,
}

/// A pull request that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PullRequest {
    pub(crate) number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
}

/// Counts the commits of the agent and pushes them.
pub(crate) fn deliver(checkout: &Checkout) -> Delivery {
    let Checkout {
        repository,
        git,
        base_commit,
        head_before,
        ..
    } = checkout;
    let directory = &repository.directory;
    let local = |args: &[&str]| git.local(directory, args).ok().filter(|text| !text.is_empty());
    let reference = repository
        .head
        .as_ref()
        .map_or_else(|| "HEAD".to_owned(), |head| format!("refs/heads/{head}"));
    let commit = local(&[
        "rev-parse",
        "--verify",
        "--quiet",
        &format!("{reference}^{{commit}}"),
    ]);
    let range = base_commit
        .as_ref()
        .map_or_else(|| reference.clone(), |base| format!("{base}..{reference}"));
    let ahead = commit
        .as_ref()
        .and_then(|_| local(&["rev-list", "--count", &range])?.parse().ok())
        .unwrap_or(0);
    let delivery = |state, message| Delivery {
        state,
        branch: repository.head.clone(),
        commit: commit.clone(),
        commits_ahead: ahead,
        base: checkout.base.clone(),
        pull_request: None,
        message,
    };
    // What was on the branch before the run came to it is not its work.
    let is_of_others = commit == *head_before && !repository.goes_on;
    if ahead == 0 || is_of_others {
        let uncommitted = local(&["status", "--porcelain", "--untracked-files=normal"]);
        let message = uncommitted.map(|lines| {
            format!(
                "the agent left {} files that it changed and did not commit: they are not delivered",
                lines.lines().count()
            )
        });
        return delivery(State::NothingChanged, message);
    }
    if !repository.writes {
        return delivery(State::NotPushed, None);
    }
    if commit == *head_before {
        // An earlier attempt has pushed them, as far as anybody can tell.
        return delivery(State::Pushed, None);
    }
    match push(checkout, &reference) {
        Ok(()) => delivery(State::Pushed, None),
        Err((state, message)) => delivery(state, Some(message)),
    }
}

/// Pushes the branch, and never over commits of others.
fn push(checkout: &Checkout, reference: &str) -> Result<(), (State, String)> {
    let Repository {
        name, url, directory, ..
    } = &checkout.repository;
    let refspec = format!("{reference}:{reference}");
    let args = ["push", "--porcelain", "--no-verify", url, &refspec];
    let mut pauses = PAUSES.iter();
    loop {
        let when_stopped = WhenStopped::GoOnFor(PUSH_AFTER_STOP);
        let pushed = checkout.git.run(Some(directory), &args, PUSH_MAX, when_stopped);
        let Err(error) = pushed else {
            return Ok(());
        };
        if let Some(why) = rejection(&error) {
            let branch = reference.trim_start_matches("refs/heads/");
            return Err((
                State::PushRejected,
                format!("the server refused the push of {branch} to {name}: {why}"),
            ));
        }
        let worth_another_try = matches!(error, BoundedError::Failed(_)) && !is_unauthorised(&error);
        match pauses.next().filter(|_| worth_another_try) {
            Some(pause) => thread::sleep(*pause),
            None => {
                return Err((
                    State::PushFailed,
                    format!("git could not push to {name}: {error}"),
                ));
            }
        }
    }
}

/// What the server said to a push that it refused. `--porcelain` marks a branch that was not taken with an exclamation mark.
fn rejection(error: &BoundedError) -> Option<String> {
    let BoundedError::Failed(printed) = error else {
        return None;
    };
    let line = printed.stdout.lines().find(|line| line.starts_with('!'))?;
    let summary = line.rsplit('\t').next().unwrap_or(line).trim();
    if summary.contains("non-fast-forward") || summary.contains("fetch first") {
        return Some(format!(
            "{summary}: somebody else pushed to the branch; give the run a branch of its own with spec.parameters.head"
        ));
    }
    let said: Vec<&str> = printed
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("remote:"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    Some(if said.is_empty() {
        summary.to_owned()
    } else {
        format!("{summary}: {}", said.join("; "))
    })
}

/// Whether the server did not let us in, which another try does not change.
fn is_unauthorised(error: &BoundedError) -> bool {
    let words = error.to_string();
    [
        "Authentication failed",
        "403",
        "401",
        "Permission denied",
        "could not read Username",
    ]
    .iter()
    .any(|sign| words.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::Printed;

    fn failed(stdout: &str, stderr: &str) -> BoundedError {
        BoundedError::Failed(Printed {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        })
    }

    #[test]
    fn a_refused_branch_is_told_from_a_server_that_cannot_be_reached() {
        let hook = failed(
            "To https://h/a/b.git\n!\trefs/heads/x:refs/heads/x\t[remote rejected] (pre-receive hook declined)\nDone\n",
            "remote: no pushes on Fridays\nerror: failed to push some refs\n",
        );
        assert_eq!(
            rejection(&hook).as_deref(),
            Some("[remote rejected] (pre-receive hook declined): no pushes on Fridays")
        );
        let behind = failed("!\trefs/heads/x:refs/heads/x\t[rejected] (fetch first)\n", "");
        assert!(rejection(&behind).is_some_and(|words| words.contains("spec.parameters.head")));
        assert_eq!(
            rejection(&failed(
                "",
                "fatal: unable to access 'https://h/': Could not resolve host: h"
            )),
            None
        );
    }
}
