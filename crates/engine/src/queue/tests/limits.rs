//! What is told to those who wait, and that limits hold.

use jangar_api::reason::Reason;
use jiff::Timestamp;

use super::{Desk, Run, key, open, run, seconds};
use crate::{
    queue::{Answer, Index, Scope, Told, Unseen, facts::Stands},
    settings::{LimitSettings, RepositoryLimits},
    waiting::{Full, Gate, Waiting},
};

fn ask(index: &mut Index, run: &Run, now: Timestamp) -> Answer {
    index.ask(&run.key, &run.demand, Some("job"), now)
}

/// What the run is told, which has to be that it waits.
fn told(desk: &mut Desk, run: &Run) -> Waiting {
    match ask(&mut desk.index, run, desk.now) {
        Answer::Waiting(waiting) => *waiting,
        other => panic!("{} does not wait: {other:?}", run.key),
    }
}

/// A desk at which two runs of the same everything have arrived, and the first works.
fn crowded(limits: LimitSettings) -> (Desk, [Run; 2]) {
    let runs = [
        run("one").repository("team/a"),
        run("two").repository("team/a").later(1),
    ];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.admit(&runs);
    desk.arrives(&runs[1]);
    (desk, runs)
}

fn repositories(default: u32) -> RepositoryLimits {
    RepositoryLimits {
        default: Some(default),
        ..RepositoryLimits::default()
    }
}

/// Makes one limit small.
type Tighten = fn(&mut LimitSettings);

#[test]
fn every_limit_on_what_is_under_way_is_named_and_clears_when_it_no_longer_holds() {
    let agent = Scope::Agent {
        namespace: "agents".to_owned(),
        name: "fixer".to_owned(),
    };
    let cases: [(Scope, Tighten); 4] = [
        (agent, |limits| limits.concurrency.agent = 1),
        (Scope::Repository("team/a".to_owned()), |limits| {
            limits.concurrency.repositories = Some(repositories(1));
        }),
        (Scope::Namespace("agents".to_owned()), |limits| {
            limits.concurrency.namespace = 1;
        }),
        (Scope::Cluster, |limits| limits.concurrency.cluster = 1),
    ];
    for (scope, tighten) in cases {
        let mut limits = open();
        tighten(&mut limits);
        let (mut desk, runs) = crowded(limits);
        let waiting = told(&mut desk, &runs[1]);
        let full = Full {
            scope: scope.clone(),
            in_use: 1,
            limit: 1,
        };
        assert_eq!(waiting.gate, Gate::Concurrency(full), "{scope}");
        assert_eq!(waiting.reason(), Reason::ConcurrencyLimit);
        assert!(
            waiting.to_string().contains("cancel one, or raise JANGAR_"),
            "{waiting}"
        );
        // One of them ends, as the sentence says.
        let at = desk.now;
        desk.ends(&runs[0], at);
        assert_eq!(desk.admit(&runs), ["two"], "{scope}");
    }
}

#[test]
fn slot_is_held_until_the_pod_is_gone_whatever_the_phase_says() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let (mut desk, runs) = crowded(limits);
    let at = desk.now;
    let mut over = runs[0].ended(at);
    over.slots[0].hold = crate::queue::facts::Hold::Pod;
    desk.index.put(&runs[0].key, over, at);
    assert!(desk.admit(&runs).is_empty(), "the run has ended, its pod has not");
    // The run is deleted, and its Job is still there.
    let mut left = runs[0].ended(at);
    left.run = None;
    left.slots[0].hold = crate::queue::facts::Hold::Pod;
    left.slots[0].lane.agent = "what-the-label-says".to_owned();
    desk.index.put(&runs[0].key, left, at);
    assert!(desk.admit(&runs).is_empty());
    desk.index.put(&runs[0].key, crate::queue::Facts::default(), at);
    assert_eq!(desk.admit(&runs), ["two"]);
    desk.index.put(&runs[1].key, crate::queue::Facts::default(), at);
    assert_eq!(desk.index.in_use(&Scope::Cluster), 0);
    assert_eq!(desk.index.in_use(&runs[0].demand.lane.agent_scope()), 0);
}

#[test]
fn rate_counts_starts_within_any_window_and_time_alone_lets_the_next_in() {
    let mut limits = open();
    limits.rate.window = seconds(60);
    limits.rate.namespace = Some(2);
    let runs: Vec<Run> = (0..5_u64)
        .map(|index| run(&format!("r{index}")).later(index))
        .collect();
    let mut desk = Desk::new(limits);
    for run in &runs {
        desk.arrives(run);
    }
    assert_eq!(desk.admit(&runs), ["r0", "r1"]);
    let waiting = told(&mut desk, &runs[2]);
    assert_eq!(waiting.reason(), Reason::RateLimit);
    // That those have ended changes nothing.
    let at = desk.now;
    desk.ends(&runs[0], at);
    desk.ends(&runs[1], at);
    assert!(desk.admit(&runs).is_empty());
    assert_eq!(desk.index.next_look(), Some(at + seconds(60)));
    desk.pass(seconds(59));
    assert!(desk.admit(&runs).is_empty());
    desk.pass(seconds(1));
    assert_eq!(desk.admit(&runs), ["r2", "r3"]);
    desk.pass(seconds(60));
    assert_eq!(desk.admit(&runs), ["r4"]);
    assert_eq!(desk.index.next_look(), None, "nobody waits");
}

#[test]
fn start_that_did_not_come_about_costs_nothing_of_the_rate() {
    let mut limits = open();
    limits.rate.cluster = Some(1);
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.arrives(&runs[1]);
    assert_eq!(desk.index.admit(desk.now).len(), 1);
    desk.index.decline(&runs[0].key, desk.now);
    assert_eq!(desk.admit(&runs), ["two"]);
}

#[test]
fn clock_that_was_set_back_does_not_shut_the_gate_for_as_long() {
    let mut limits = open();
    limits.rate.cluster = Some(1);
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.admit(&runs);
    desk.arrives(&runs[1]);
    desk.now -= seconds(3600);
    assert_eq!(desk.admit(&runs), ["two"]);
}

#[test]
fn beyond_the_queue_limit_a_run_is_told_so_moves_up_and_starts_in_its_turn() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    limits.queue.namespace = Some(2);
    let runs: Vec<Run> = (0..5_u64)
        .map(|index| run(&format!("r{index}")).later(index))
        .collect();
    let mut desk = Desk::new(limits);
    for run in &runs {
        desk.arrives(run);
    }
    assert_eq!(desk.admit(&runs), ["r0"]);
    let reasons: Vec<Reason> = runs[1..]
        .iter()
        .map(|run| told(&mut desk, run).reason())
        .collect();
    let (place, none) = (Reason::ConcurrencyLimit, Reason::QueueLimit);
    assert_eq!(reasons, [place.clone(), place, none.clone(), none]);
    assert_eq!(desk.index.told()[&Told::Queue], 2);
    let at = desk.now;
    desk.ends(&runs[0], at);
    assert_eq!(desk.admit(&runs), ["r1"]);
    // One place is free, and exactly the next is told.
    assert_eq!(desk.index.promoted().into_iter().collect::<Vec<_>>(), [key("r3")]);
    assert_eq!(told(&mut desk, &runs[3]).reason(), Reason::ConcurrencyLimit);
    assert_eq!(told(&mut desk, &runs[4]).reason(), Reason::QueueLimit);
    for index in 1..4 {
        let at = desk.now;
        desk.ends(&runs[index], at);
        assert_eq!(desk.admit(&runs), [format!("r{}", index + 1)], "the queue drains");
    }
    assert!(desk.index.told().values().all(|count| *count == 0));
}

#[test]
fn full_queue_never_keeps_a_run_from_slots_that_are_free() {
    let mut limits = open();
    limits.concurrency.namespace = 1;
    limits.queue.cluster = Some(2);
    let mut runs: Vec<Run> = (0..6_u64)
        .map(|index| run(&format!("r{index}")).later(index))
        .collect();
    runs.push(run("elsewhere").namespace("other").later(60));
    let mut desk = Desk::new(limits);
    for run in &runs {
        desk.arrives(run);
    }
    assert_eq!(desk.admit(&runs), ["r0", "elsewhere"]);
}

#[test]
fn reservation_counts_until_the_job_is_seen() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    let granted = ask(&mut desk.index, &runs[0], desk.now);
    assert_eq!(granted, Answer::Granted { at: desk.now });
    let unseen = desk.index.unseen(&runs[0].key);
    assert_eq!(unseen, Some(Unseen::Job("job".to_owned())));
    desk.arrives(&runs[1]);
    assert!(matches!(
        ask(&mut desk.index, &runs[1], desk.now),
        Answer::Waiting(_)
    ));
    // It asks again after an error, and has what it had.
    desk.pass(seconds(5));
    assert_eq!(ask(&mut desk.index, &runs[0], desk.now), granted);
    // Its run is gone, and nobody knows whether the Job was made.
    desk.index
        .put(&runs[0].key, crate::queue::Facts::default(), desk.now);
    assert!(desk.admit(&runs).iter().all(|name| name != "two"));
    // A look at the API server shows that it was not.
    desk.index.decline(&runs[0].key, desk.now);
    assert_eq!(desk.admit(&runs), ["two"]);
}

#[test]
fn status_that_is_seen_before_the_job_does_not_free_the_slot() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.arrives(&runs[1]);
    assert!(matches!(
        ask(&mut desk.index, &runs[0], desk.now),
        Answer::Granted { .. }
    ));
    // One watch is ahead of the other.
    let mut early = runs[0].works(desk.now);
    early.slots.clear();
    desk.index.put(&runs[0].key, early, desk.now);
    assert!(desk.index.admit(desk.now).is_empty());
    desk.works(&runs[0]);
    assert_eq!(desk.index.in_use(&Scope::Cluster), 1);
}

#[test]
fn pod_that_has_ended_and_is_gone_does_not_take_the_slot_again() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let (mut desk, runs) = crowded(limits);
    let at = desk.now;
    let mut facts = runs[0].works(at);
    facts.slots[0].hold = crate::queue::facts::Hold::Over;
    desk.index.put(&runs[0].key, facts.clone(), at);
    assert_eq!(desk.admit(&runs), ["two"]);
    // Its Job is still there, and has no pod.
    facts.slots[0].hold = crate::queue::facts::Hold::Job;
    desk.index.put(&runs[0].key, facts, at);
    assert_eq!(desk.index.in_use(&Scope::Cluster), 1);
}

#[test]
fn next_attempt_needs_a_slot_of_its_own() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.admit(&runs);
    desk.arrives(&runs[1]);
    // The first attempt failed.
    let at = desk.now;
    let mut between = runs[0].ended(at);
    between.run.as_mut().expect("a run").stands = Stands::Apart;
    desk.index.put(&runs[0].key, between, at);
    assert_eq!(desk.admit(&runs), ["two"], "nothing is kept free meanwhile");
    let answer = desk
        .index
        .ask(&runs[0].key, &runs[0].demand, Some("job-2"), desk.now);
    assert!(matches!(answer, Answer::Waiting(_)));
    desk.pass(seconds(1));
    desk.ends(&runs[1], at);
    let granted = desk.index.admit(desk.now);
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].key, runs[0].key);
}

#[test]
fn slot_of_a_run_without_a_job_counts_until_its_status_is_seen() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [run("one"), run("two").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    let granted = desk.index.ask(&runs[0].key, &runs[0].demand, None, desk.now);
    assert_eq!(granted, Answer::Granted { at: desk.now });
    assert_eq!(desk.index.unseen(&runs[0].key), Some(Unseen::Run));
    desk.arrives(&runs[1]);
    // The watch is late, and shows it as it was.
    desk.arrives(&runs[0]);
    assert!(desk.admit(&runs).is_empty());
    desk.works(&runs[0]);
    assert_eq!(desk.index.unseen(&runs[0].key), None);
    assert_eq!(desk.index.in_use(&Scope::Cluster), 1);
}

#[test]
fn run_that_knows_its_repository_when_it_asks_waits_for_a_slot_of_that() {
    let mut limits = open();
    limits.concurrency.repositories = Some(repositories(1));
    let unknown = [run("one"), run("two").later(1)];
    let known = unknown.clone().map(|run| run.repository("team/a"));
    let mut desk = Desk::new(limits);
    for run in &unknown {
        desk.arrives(run);
    }
    assert_eq!(desk.index.admit(desk.now).len(), 2, "nothing keeps them yet");
    let at = desk.now;
    assert_eq!(ask(&mut desk.index, &known[0], at), Answer::Granted { at });
    let waiting = told(&mut desk, &known[1]);
    assert_eq!(
        waiting.gate.scope(),
        Some(&Scope::Repository("team/a".to_owned()))
    );
    assert_eq!(desk.index.in_use(&Scope::Cluster), 1, "it gave back what it had");
    desk.arrives(&unknown[1]);
    assert!(desk.index.admit(at).is_empty(), "its objects do not know better");
    desk.works(&known[0]);
    desk.ends(&known[0], at);
    let granted = desk.index.admit(at);
    assert_eq!(granted.len(), 1);
    assert_eq!(desk.index.in_use(&Scope::Repository("team/a".to_owned())), 1);
}

#[test]
fn slot_of_a_repository_is_taken_although_the_pod_was_seen_before_its_job() {
    let mut limits = open();
    limits.concurrency.repositories = Some(repositories(1));
    let unknown = [run("one"), run("two").later(1)];
    let known = unknown.clone().map(|run| run.repository("team/a"));
    let mut desk = Desk::new(limits);
    desk.arrives(&unknown[0]);
    let at = desk.now;
    assert_eq!(ask(&mut desk.index, &known[0], at), Answer::Granted { at });
    // Neither the pod nor the run tells which repository it is.
    let mut pod = unknown[0].slot(at, true);
    pod.admitted_at = None;
    let early = unknown[0].facts(Stands::Contends, None, vec![pod]);
    desk.index.put(&unknown[0].key, early, at);
    let with_job = unknown[0].facts(Stands::Apart, None, vec![known[0].slot(at, true)]);
    desk.index.put(&unknown[0].key, with_job, at);
    assert_eq!(desk.index.in_use(&Scope::Repository("team/a".to_owned())), 1);
    desk.arrives(&unknown[1]);
    told(&mut desk, &known[1]);
    // The Job goes before its pod does.
    let mut pod = unknown[0].slot(at, true);
    pod.admitted_at = None;
    let late = unknown[0].facts(Stands::Apart, None, vec![pod]);
    desk.index.put(&unknown[0].key, late, at);
    assert!(
        desk.index.admit(at).is_empty(),
        "the pod works on the same repository"
    );
}

#[test]
fn run_is_told_again_when_its_limit_bites_no_more_and_another_does() {
    let mut limits = open();
    limits.concurrency.agent = 1;
    limits.rate.cluster = Some(2);
    let runs = [run("one"), run("two").later(1), run("other").agent("helper")];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.arrives(&runs[2]);
    assert_eq!(desk.admit(&runs).len(), 2);
    desk.arrives(&runs[1]);
    assert_eq!(told(&mut desk, &runs[1]).reason(), Reason::ConcurrencyLimit);
    assert!(desk.index.outdated(9).is_empty());
    let began = desk.now;
    desk.pass(seconds(5));
    desk.ends(&runs[0], began);
    assert!(desk.admit(&runs).is_empty(), "as many have started as may");
    assert!(desk.index.outdated(0).is_empty());
    assert_eq!(desk.index.outdated(9), [runs[1].key.clone()].into());
    assert_eq!(told(&mut desk, &runs[1]).reason(), Reason::RateLimit);
    assert!(desk.index.outdated(9).is_empty(), "it knows");
    assert_eq!(desk.index.told()[&Told::Rate], 1);
    assert_eq!(desk.index.told()[&Told::Agent], 0);
}
