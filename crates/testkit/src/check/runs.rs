//! What must hold for a run at each change of it.

use jangar_api::{phase::RunPhase, reason::Reason};
use kubelite::store::Object;
use serde_json::Value;

use crate::node::{Ending, Work};

/// What the rules look at in a run.
#[derive(Clone, Debug)]
pub struct RunView {
    pub name: String,
    pub uid: String,
    /// How many steps it has, if it is a workflow.
    pub steps: u32,
    pub phase: RunPhase,
    pub finished_at: Option<String>,
    /// Why it ended as it did.
    pub reason: Option<String>,
    /// The controllers have taken it on.
    pub accepted: bool,
    /// Its cancel was given up with pods still alive.
    pub cancel_timed_out: bool,
    /// What it says that it waits for.
    pub blocked: Option<String>,
    /// The repository and the branch that it writes to.
    pub branch: Option<(String, String)>,
    pub deleting: bool,
}

impl RunView {
    pub fn of(object: &Object) -> Self {
        let value = object.value();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let status = &value["status"];
        let conditions = || status["conditions"].as_array().into_iter().flatten();
        let steps = value["spec"]["workflow"]["steps"].as_array();
        let vcs = &status["vcs"];
        let writes = vcs["mode"] == "read-write";
        let branch = text(&vcs["repository"]).zip(text(&vcs["headBranch"]));
        let blocked = conditions()
            .find(|condition| condition["type"] == "Blocked" && condition["status"] == "True")
            .and_then(|condition| text(&condition["reason"]));
        let is_end = |condition: &&Value| {
            let ends = ["Succeeded", "Failed", "Cancelled"];
            condition["status"] == "True" && ends.iter().any(|end| condition["type"] == *end)
        };
        let cancelled = conditions().find(|condition| condition["type"] == "Cancelled");
        Self {
            name: text(&value["metadata"]["name"]).unwrap_or_default(),
            uid: object.meta.uid.clone(),
            steps: steps.and_then(|steps| steps.len().try_into().ok()).unwrap_or(0),
            phase: text(&status["phase"]).map_or(RunPhase::Pending, |phase| RunPhase::from(phase.as_str())),
            finished_at: text(&status["finishedAt"]),
            reason: conditions().find(is_end).and_then(|end| text(&end["reason"])),
            accepted: conditions()
                .any(|condition| condition["type"] == "Accepted" && condition["status"] == "True"),
            cancel_timed_out: cancelled
                .is_some_and(|condition| condition["reason"] == Reason::CancelTimedOut.as_str()),
            blocked,
            branch: branch.filter(|_| writes),
            deleting: object.meta.deleting,
        }
    }
}

/// The rules that a change of a run breaks.
pub fn broken(before: Option<&RunView>, after: &RunView, works: &[Work]) -> Vec<String> {
    let mut found = Vec::new();
    let name = &after.name;
    if let Some(before) = before.filter(|before| before.phase.is_terminal()) {
        if before.phase != after.phase {
            let (was, is) = (before.phase.as_str(), after.phase.as_str());
            found.push(format!("run {name} had ended as {was} and became {is}"));
        } else if before.finished_at != after.finished_at {
            found.push(format!("run {name} had ended, and ended again at another time"));
        }
    }
    if after.phase.is_terminal() && after.finished_at.is_none() {
        found.push(format!("run {name} has ended, and does not say when"));
    }
    if let Some(wait) = after.blocked.as_ref().filter(|_| after.phase.is_terminal()) {
        found.push(format!("run {name} has ended, and still waits for {wait}"));
    }
    if after.phase == RunPhase::Succeeded && !has_done_its_work(after, works) {
        found.push(format!(
            "run {name} says that it succeeded, but no work of its own has"
        ));
    }
    found
}

/// Another run that writes to the branch of this one while both are under way.
pub(super) fn on_one_branch<'a>(
    others: impl IntoIterator<Item = &'a RunView>,
    run: &RunView,
) -> Option<String> {
    let (repository, head) = run.branch.as_ref().filter(|_| !run.phase.is_terminal())?;
    let rival = others
        .into_iter()
        .find(|other| other.uid != run.uid && !other.phase.is_terminal() && other.branch == run.branch)?;
    let (one, two) = (&rival.name, &run.name);
    Some(format!(
        "runs {one} and {two} both write to {head} of {repository}"
    ))
}

/// Whether work that was started for this very run ended well, and for each of its steps.
pub(super) fn has_done_its_work(run: &RunView, works: &[Work]) -> bool {
    let ended_well = |step: u32| {
        works.iter().any(|work| {
            matches!(work.ended, Some((_, Ending::Exited(0))))
                && work.assignment.run_uid == run.uid
                && work.assignment.step == step
        })
    };
    match run.steps {
        0 => ended_well(0),
        steps => (1..=steps).all(ended_well),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::node::Assignment;

    fn view(phase: RunPhase, finished_at: Option<&str>) -> RunView {
        RunView {
            name: "one".to_owned(),
            uid: "u1".to_owned(),
            steps: 0,
            phase,
            finished_at: finished_at.map(str::to_owned),
            reason: None,
            accepted: true,
            cancel_timed_out: false,
            blocked: None,
            branch: None,
            deleting: false,
        }
    }

    fn work(run_uid: &str, code: i32) -> Work {
        Work {
            assignment: Assignment {
                run: "one".to_owned(),
                run_uid: run_uid.to_owned(),
                step: 0,
                attempt: 1,
                job_uid: "j".to_owned(),
            },
            pod: "p".to_owned(),
            pod_uid: "p".to_owned(),
            started: Instant::now(),
            ended: Some((Instant::now(), Ending::Exited(code))),
        }
    }

    #[test]
    fn an_end_is_for_good() {
        let before = view(RunPhase::Failed, Some("1"));
        assert!(broken(Some(&before), &before, &[]).is_empty());
        assert_eq!(
            broken(Some(&before), &view(RunPhase::Running, Some("1")), &[]).len(),
            1
        );
        assert_eq!(
            broken(Some(&before), &view(RunPhase::Failed, Some("2")), &[]).len(),
            1
        );
        assert_eq!(broken(None, &view(RunPhase::Failed, None), &[]).len(), 1);
    }

    #[test]
    fn an_end_leaves_no_wait_behind() {
        let waiting = |phase| RunView {
            blocked: Some("RateLimit".to_owned()),
            ..view(phase, Some("1"))
        };
        assert!(broken(None, &waiting(RunPhase::Pending), &[]).is_empty());
        assert!(broken(None, &waiting(RunPhase::Failed), &[])[0].contains("still waits for RateLimit"));
    }

    #[test]
    fn a_branch_has_one_run_at_a_time() {
        let on = |uid: &str, phase, head: &str| RunView {
            uid: uid.to_owned(),
            branch: Some(("example/adder".to_owned(), head.to_owned())),
            ..view(phase, None)
        };
        let one = on("u1", RunPhase::Running, "fix");
        assert_eq!(on_one_branch([&one], &one), None);
        assert_eq!(
            on_one_branch([&one], &on("u2", RunPhase::Running, "fix-two")),
            None
        );
        assert_eq!(on_one_branch([&one], &on("u2", RunPhase::Failed, "fix")), None);
        assert!(on_one_branch([&one], &on("u2", RunPhase::Running, "fix")).is_some());
    }

    #[test]
    fn success_needs_work_of_every_step() {
        let done = RunView {
            steps: 2,
            ..view(RunPhase::Succeeded, Some("1"))
        };
        let of_step = |step| {
            let mut work = work("u1", 0);
            work.assignment.step = step;
            work
        };
        assert!(broken(None, &done, &[of_step(1), of_step(2)]).is_empty());
        assert_eq!(broken(None, &done, &[of_step(2)]).len(), 1);
    }

    #[test]
    fn success_needs_work_of_the_run_itself() {
        let done = view(RunPhase::Succeeded, Some("1"));
        assert!(broken(None, &done, &[work("u1", 0)]).is_empty());
        assert_eq!(broken(None, &done, &[work("u1", 1), work("u2", 0)]).len(), 1);
    }
}
