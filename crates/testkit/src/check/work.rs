//! What must hold for the work that really started, at every moment.

use std::collections::BTreeMap;

use jangar_api::phase::RunPhase;

use super::runs::RunView;
use crate::node::Work;

/// The rules that the work so far breaks.
pub fn broken<'a>(works: &[Work], runs: impl IntoIterator<Item = &'a RunView>) -> Vec<String> {
    let mut found = Vec::new();
    let mut by_attempt: BTreeMap<(&str, u32, u32), Vec<&Work>> = BTreeMap::new();
    let mut by_name: BTreeMap<&str, Vec<&Work>> = BTreeMap::new();
    for work in works {
        let assignment = &work.assignment;
        if assignment.run_uid.is_empty() {
            found.push(format!("pod {} works for no run", work.pod));
        }
        by_attempt
            .entry((&assignment.run_uid, assignment.step, assignment.attempt))
            .or_default()
            .push(work);
        by_name.entry(&assignment.run).or_default().push(work);
    }
    for ((_, step, attempt), works) in by_attempt {
        if let [first, second, ..] = works.as_slice() {
            let step = if step == 0 {
                String::new()
            } else {
                format!("step {step} of ")
            };
            found.push(format!(
                "attempt {attempt} of {step}run {} was done twice, in pods {} and {}",
                first.assignment.run, first.pod, second.pod
            ));
        }
    }
    for (run, works) in by_name {
        for pair in works.windows(2) {
            if let [first, second] = pair
                && first.ended.is_none_or(|(end, _)| end > second.started)
            {
                found.push(format!(
                    "pods {} and {} worked for run {run} at the same time",
                    first.pod, second.pod
                ));
            }
        }
    }
    let ended = |run: &&RunView| run.phase.is_terminal() && !run.cancel_timed_out;
    for run in runs.into_iter().filter(ended) {
        // Whoever gives up on an endpoint cannot take the work away from it; only a cancel waits until it has stopped.
        let given_up = |work: &Work| work.is_outside() && run.phase == RunPhase::Failed;
        let working = works
            .iter()
            .filter(|work| work.is_running() && work.assignment.run_uid == run.uid && !given_up(work));
        for work in working {
            let (name, phase) = (&run.name, run.phase.as_str());
            found.push(format!(
                "run {name} is {phase}, and pod {} still works for it",
                work.pod
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::node::{Assignment, Ending};

    /// Work of `run` (its UID is its name and a digit) between two seconds.
    fn work(run_uid: &str, attempt: u32, origin: Instant, start: u64, end: Option<u64>) -> Work {
        let at = |seconds| origin + Duration::from_secs(seconds);
        Work {
            assignment: Assignment {
                run: run_uid.trim_end_matches(char::is_numeric).to_owned(),
                run_uid: run_uid.to_owned(),
                step: 0,
                attempt,
                job_uid: String::new(),
            },
            pod: format!("{run_uid}-{attempt}-{start}"),
            pod_uid: format!("{run_uid}-{attempt}-{start}"),
            started: at(start),
            ended: end.map(|end| (at(end), Ending::Exited(0))),
        }
    }

    fn run(uid: &str, phase: RunPhase) -> RunView {
        RunView {
            name: "run".to_owned(),
            uid: uid.to_owned(),
            steps: 0,
            phase,
            finished_at: Some(String::new()),
            reason: None,
            accepted: true,
            cancel_timed_out: false,
            blocked: None,
            branch: None,
            deleting: false,
        }
    }

    #[test]
    fn an_attempt_is_done_once() {
        let origin = Instant::now();
        let once = [
            work("run1", 1, origin, 0, Some(5)),
            work("run1", 2, origin, 6, Some(9)),
        ];
        assert!(broken(&once, &[]).is_empty());
        let twice = [
            work("run1", 1, origin, 0, Some(5)),
            work("run1", 1, origin, 6, Some(9)),
        ];
        assert!(broken(&twice, &[])[0].contains("done twice"));
    }

    #[test]
    fn each_step_has_a_first_attempt_of_its_own() {
        let origin = Instant::now();
        let mut steps = [
            work("run1", 1, origin, 0, Some(5)),
            work("run1", 1, origin, 6, Some(9)),
        ];
        for (number, work) in (1..).zip(&mut steps) {
            work.assignment.step = number;
        }
        assert!(broken(&steps, &[]).is_empty());
    }

    #[test]
    fn one_pod_at_a_time_works_for_a_name() {
        let origin = Instant::now();
        let overlapping = [
            work("run1", 1, origin, 0, Some(5)),
            work("run2", 1, origin, 4, Some(9)),
        ];
        assert!(broken(&overlapping, &[])[0].contains("at the same time"));
        let endless = [
            work("run1", 1, origin, 0, None),
            work("run1", 2, origin, 4, Some(9)),
        ];
        assert!(broken(&endless, &[])[0].contains("at the same time"));
    }

    #[test]
    fn nothing_works_for_a_run_that_has_ended() {
        let working = [work("run1", 1, Instant::now(), 0, None)];
        assert!(broken(&working, &[run("run1", RunPhase::Running)]).is_empty());
        assert!(broken(&working, &[run("run2", RunPhase::Failed)]).is_empty());
        assert!(broken(&working, &[run("run1", RunPhase::Cancelled)])[0].contains("still works"));
        let given_up = RunView {
            cancel_timed_out: true,
            ..run("run1", RunPhase::Cancelled)
        };
        assert!(broken(&working, &[given_up]).is_empty());
    }

    #[test]
    fn work_for_nobody_is_found() {
        let mut lost = work("run1", 1, Instant::now(), 0, Some(1));
        lost.assignment = Assignment::default();
        assert!(broken(&[lost], &[])[0].contains("no run"));
    }
}
