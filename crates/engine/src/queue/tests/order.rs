//! Who is first.

use super::{Desk, Run, open, run, seconds};

/// With room for one at a time, the order in which runs start.
fn turns(runs: &[Run]) -> Vec<String> {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let mut desk = Desk::new(limits);
    for run in runs {
        desk.arrives(run);
    }
    let mut started = Vec::new();
    loop {
        let admitted = desk.admit(runs);
        let [name] = admitted.as_slice() else {
            assert!(admitted.is_empty(), "one at a time: {admitted:?}");
            return started;
        };
        let run = runs
            .iter()
            .find(|run| run.key.name == *name)
            .expect("a known run");
        started.push(name.clone());
        let at = desk.now;
        desk.pass(seconds(1));
        desk.ends(run, at);
    }
}

#[test]
fn larger_priority_is_first_whoever_came_first() {
    let runs = [
        run("low").priority(-1),
        run("old"),
        run("new").later(5),
        run("urgent").priority(7).later(9),
    ];
    assert_eq!(turns(&runs), ["urgent", "old", "new", "low"]);
}

#[test]
fn repositories_take_turns_and_a_run_without_one_counts_by_its_agent() {
    let runs = [
        run("a1").repository("team/a"),
        run("a2").repository("team/a").later(1),
        run("a3").repository("team/a").later(2),
        run("b1").repository("team/b").later(3),
        run("b2").repository("team/b").later(4),
        run("none1").later(5),
        run("none2").later(6),
    ];
    assert_eq!(turns(&runs), ["a1", "b1", "none1", "a2", "b2", "none2", "a3"]);
}

#[test]
fn runs_of_the_same_second_go_by_their_uid() {
    let runs = [run("b"), run("a"), run("c")];
    assert_eq!(turns(&runs), ["a", "b", "c"]);
}

#[test]
fn turns_are_read_from_objects_so_that_a_restart_changes_nothing() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [
        run("a1").repository("team/a"),
        run("a2").repository("team/a").later(1),
        run("b1").repository("team/b").later(2),
    ];
    let mut desk = Desk::new(limits.clone());
    for run in &runs {
        desk.arrives(run);
    }
    assert_eq!(desk.admit(&runs), ["a1"]);
    let admitted_at = desk.now;

    // Another process sees the same objects in another order.
    let mut other = Desk::new(limits);
    other.pass(seconds(30));
    for run in runs[1..].iter().rev() {
        other.arrives(run);
    }
    let now = other.now;
    other.index.put(&runs[0].key, runs[0].works(admitted_at), now);
    assert!(other.admit(&runs).is_empty(), "the slot is taken");
    other.ends(&runs[0], admitted_at);
    assert_eq!(other.admit(&runs), ["b1"]);
}

#[test]
fn run_without_room_holds_up_nobody_who_needs_other_slots() {
    let mut limits = open();
    limits.concurrency.agent = 1;
    let runs = [
        run("one"),
        run("two").priority(9),
        run("other").agent("helper").priority(-9).later(5),
    ];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    assert_eq!(desk.admit(&runs), ["one"]);
    desk.arrives(&runs[1]);
    desk.arrives(&runs[2]);
    assert_eq!(desk.admit(&runs), ["other"]);
    let at = desk.now;
    desk.ends(&runs[0], at);
    assert_eq!(desk.admit(&runs), ["two"]);
}

#[test]
fn run_that_does_not_ask_gives_its_slot_to_the_next() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [run("lacks-something"), run("ready").later(1)];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.arrives(&runs[1]);
    assert_eq!(desk.index.admit(desk.now).len(), 1);
    desk.index.decline(&runs[0].key, desk.now);
    assert_eq!(desk.admit(&runs), ["ready"]);
    assert!(!desk.index.contends(&runs[0].key));
    // It has what it lacked, and waits in its turn now.
    let now = desk.now;
    desk.index.ask(&runs[0].key, &runs[0].demand, Some("job"), now);
    assert!(desk.index.contends(&runs[0].key));
    desk.ends(&runs[1], now);
    assert_eq!(desk.admit(&runs), ["lacks-something"]);
}
