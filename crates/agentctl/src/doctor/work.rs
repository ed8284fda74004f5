//! What Jangar does: runs that wait, what is held, Jobs whose end is not recorded, gates.

use jangar_api::labels;
use jiff::Timestamp;

use super::{Finding, some, unread};
use crate::{
    approvals,
    clock::{Clock, short},
    object::Object,
    transport::Transport,
};

/// How long a run may stand without any controller having looked at it.
const UNSEEN_MAX_SECONDS: i64 = 60;
/// How long something that is being deleted may be held, and a Job that ended be waited for.
const STUCK_SECONDS: i64 = 300;

/// What waits, and whether somebody knows why.
pub(super) fn queue(runs: &[Object], clock: Clock) -> Finding {
    let waiting: Vec<&Object> = runs.iter().filter(|run| run.phase() == "Pending").collect();
    let unseen: Vec<String> = waiting
        .iter()
        .filter(|run| {
            run.conditions().next().is_none() && seconds_since(run.created(), clock) > UNSEEN_MAX_SECONDS
        })
        .map(|run| run.name().to_owned())
        .collect();
    if !unseen.is_empty() {
        return Finding::fail(
            "queue",
            format!("no controller has looked at what waits: {}", some(&unseen)),
            "agentctl status   # whether controllers run, and whether they look after this namespace",
        );
    }
    let mut gates = std::collections::BTreeMap::new();
    for run in &waiting {
        let reason = run
            .condition("Blocked")
            .map_or("about to start", |blocked| blocked.reason);
        *gates.entry(reason.to_owned()).or_insert(0_usize) += 1;
    }
    let told: Vec<String> = gates
        .iter()
        .map(|(gate, count)| format!("{count} {gate}"))
        .collect();
    match waiting.first() {
        None => Finding::ok("queue", "nothing waits"),
        Some(run) => Finding::ok(
            "queue",
            format!(
                "waiting: {}, by reason: {}; why: agentctl explain {}",
                waiting.len(),
                told.join(", "),
                run.name()
            ),
        ),
    }
}

/// Jobs that are to be kept for longer than their runs, and everything else that runs warn of.
pub(super) fn warned(runs: &[Object]) -> Vec<Finding> {
    let warning = |run: &&Object, reason: Option<&str>| {
        run.condition("Warning").is_some_and(|condition| {
            condition.status == "True" && reason.is_none_or(|reason| condition.reason == reason)
        })
    };
    let upside_down: Vec<String> = runs
        .iter()
        .filter(|run| warning(run, Some("JobOutlivesRun")))
        .map(|run| run.name().to_owned())
        .collect();
    let others: Vec<String> = runs
        .iter()
        .filter(|run| !run.has_ended() && warning(run, None) && !warning(run, Some("JobOutlivesRun")))
        .map(|run| run.name().to_owned())
        .collect();
    let mut findings = Vec::new();
    findings.push(if upside_down.is_empty() {
        Finding::ok("retention", "no Job is to be kept for longer than its run")
    } else {
        Finding::warn(
            "retention",
            format!("Jobs are to be kept for longer than their runs, with which they go: {}", some(&upside_down)),
            "raise JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS above JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS",
        )
    });
    if let Some(first) = others.first() {
        findings.push(Finding::warn(
            "warnings",
            format!("runs warn of something: {}", some(&others)),
            format!("agentctl explain {first}"),
        ));
    }
    findings
}

/// Objects that are to go, and do not.
pub(super) fn stuck(objects: &[Object], clock: Clock) -> Finding {
    let ours = |object: &Object| {
        object.finalizers().any(|name| {
            [
                labels::JOB_STATUS_FINALIZER,
                labels::RUNTIME_CLEANUP_FINALIZER,
                labels::ARCHIVE_FINALIZER,
            ]
            .contains(&name)
        })
    };
    let held: Vec<String> = objects
        .iter()
        .filter(|object| {
            let since = object.text("/metadata/deletionTimestamp");
            since.is_some() && seconds_since(since, clock) > STUCK_SECONDS && ours(object)
        })
        .map(|object| format!("{} {}", object.kind(), object.name()))
        .collect();
    if held.is_empty() {
        return Finding::ok("finalizers", "nothing that was deleted is held");
    }
    Finding::fail(
        "finalizers",
        format!(
            "deleted, and held for longer than {}: {}",
            short(STUCK_SECONDS),
            some(&held)
        ),
        "agentctl status   # if controllers run they will let go; if they are gone for good: jangar release-jobs",
    )
}

/// Jobs that are over and whose end nobody has recorded.
pub(super) fn uncaptured(jobs: &[Object], clock: Clock) -> Finding {
    let left: Vec<String> = jobs
        .iter()
        .filter(|job| {
            let ended = job.conditions().find(|condition| {
                matches!(condition.type_, "Complete" | "Failed") && condition.status == "True"
            });
            let held = job.finalizers().any(|name| name == labels::JOB_STATUS_FINALIZER);
            held && ended.is_some_and(|ended| seconds_since(ended.since, clock) > STUCK_SECONDS)
        })
        .map(|job| job.name().to_owned())
        .collect();
    if left.is_empty() {
        return Finding::ok("jobs", "every Job that ended is recorded");
    }
    Finding::fail(
        "jobs",
        format!("Jobs have ended, and their end is not recorded: {}", some(&left)),
        "agentctl status   # the controllers do not run, or cannot write: their log says why",
    )
}

pub(super) async fn gates(transport: &Transport, namespace: Option<&str>) -> Finding {
    match approvals::pending(transport, namespace, true).await {
        Ok(waiting) => match (waiting.gates.first(), waiting.unreadable.first()) {
            (None, None) => Finding::ok("approvals", "no gate waits"),
            (Some(first), _) => Finding::warn(
                "approvals",
                format!(
                    "gates that wait for a decision: {}; {} waits longest",
                    waiting.gates.len(),
                    first.run
                ),
                "agentctl approvals",
            ),
            (None, Some(words)) => Finding::warn(
                "approvals",
                format!("gates cannot be looked at: {words}"),
                "mend the field that is named, or delete the run",
            ),
        },
        Err(error) => unread("approvals", &error),
    }
}

fn seconds_since(time: Option<&str>, clock: Clock) -> i64 {
    let time: Option<Timestamp> = time.and_then(|time| time.parse().ok());
    time.map_or(0, |time| clock.now().as_second() - time.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::Level, *};

    fn clock() -> Clock {
        Clock::fixed_at(Some("2026-03-01T12:10:00Z"))
    }

    fn object(value: Value) -> Object {
        Object::from_value(value)
    }

    #[test]
    fn a_run_that_nobody_looks_at_is_found() {
        let run = |created: &str| {
            object(json!({"kind": "AgentRun", "metadata": {"name": "a", "creationTimestamp": created}}))
        };
        assert_eq!(queue(&[run("2026-03-01T12:00:00Z")], clock()).level, Level::Fail);
        assert_eq!(queue(&[run("2026-03-01T12:09:30Z")], clock()).level, Level::Ok);
    }

    #[test]
    fn what_is_held_for_long_is_found_and_what_others_hold_is_not() {
        let job = |finalizer: &str, since: &str| {
            object(
                json!({"kind": "Job", "metadata": {"name": "j", "finalizers": [finalizer], "deletionTimestamp": since}}),
            )
        };
        for ours in [
            labels::JOB_STATUS_FINALIZER,
            labels::RUNTIME_CLEANUP_FINALIZER,
            labels::ARCHIVE_FINALIZER,
        ] {
            let held = stuck(&[job(ours, "2026-03-01T12:00:00Z")], clock());
            assert_eq!(held.level, Level::Fail, "{ours}");
        }
        let ours = labels::JOB_STATUS_FINALIZER;
        assert_eq!(
            stuck(&[job(ours, "2026-03-01T12:09:00Z")], clock()).level,
            Level::Ok
        );
        assert_eq!(
            stuck(&[job("example.com/other", "2026-03-01T12:00:00Z")], clock()).level,
            Level::Ok
        );
    }

    #[test]
    fn a_job_whose_end_nobody_recorded_is_found() {
        let job = object(json!({
            "kind": "Job", "metadata": {"name": "j", "finalizers": [labels::JOB_STATUS_FINALIZER]},
            "status": {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}]},
        }));
        assert_eq!(uncaptured(&[job], clock()).level, Level::Fail);
    }
}
