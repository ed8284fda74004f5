//! One execution for each idempotency key.

use super::{Desk, Run, open, run};
use crate::queue::{Answer, Facts};

fn ask(desk: &mut Desk, run: &Run) -> Answer {
    desk.index.ask(&run.key, &run.demand, Some("job"), desk.now)
}

fn duplicate_of(name: &str) -> Answer {
    Answer::Duplicate { of: name.to_owned() }
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Answer::Granted { .. })
}

#[test]
fn oldest_run_of_a_key_is_executed_whichever_asks_first() {
    let runs = [
        run("first").idempotent("k"),
        run("second").idempotent("k").later(1),
        run("other-key").idempotent("l").later(2),
        run("other-agent").idempotent("k").agent("helper").later(3),
        run("elsewhere").idempotent("k").namespace("other").later(4),
        run("no-key").later(5),
    ];
    let mut desk = Desk::new(open());
    for run in &runs {
        desk.arrives(run);
    }
    assert_eq!(ask(&mut desk, &runs[1]), duplicate_of("first"));
    for run in [&runs[0], &runs[2], &runs[3], &runs[4], &runs[5]] {
        assert!(is_granted(&ask(&mut desk, run)), "{}", run.key);
    }
}

#[test]
fn run_that_has_started_stays_the_one_although_an_older_one_turns_up() {
    // Creation times have whole seconds, so that the younger of two can be the one with the smaller UID.
    let runs = [run("b").idempotent("k"), run("a").idempotent("k")];
    let mut desk = Desk::new(open());
    desk.arrives(&runs[0]);
    assert!(is_granted(&ask(&mut desk, &runs[0])));
    desk.arrives(&runs[1]);
    assert_eq!(
        ask(&mut desk, &runs[1]),
        duplicate_of("b"),
        "its Job may have been made"
    );
    desk.works(&runs[0]);
    assert_eq!(ask(&mut desk, &runs[1]), duplicate_of("b"));
    let at = desk.now;
    desk.ends(&runs[0], at);
    assert_eq!(
        ask(&mut desk, &runs[1]),
        duplicate_of("b"),
        "also when it has ended"
    );
}

#[test]
fn duplicate_takes_no_slot() {
    let mut limits = open();
    limits.concurrency.cluster = 1;
    let runs = [
        run("second").idempotent("k").priority(1).later(1),
        run("first").idempotent("k"),
    ];
    let mut desk = Desk::new(limits);
    desk.arrives(&runs[0]);
    desk.arrives(&runs[1]);
    // By its priority the duplicate would be the first.
    assert_eq!(ask(&mut desk, &runs[0]), duplicate_of("first"));
    assert!(is_granted(&ask(&mut desk, &runs[1])));
}

#[test]
fn key_is_free_again_when_its_run_is_gone_or_ended_before_it_started() {
    let runs = [
        run("first").idempotent("k"),
        run("second").idempotent("k").later(1),
    ];
    for end in ["deleted", "cancelled"] {
        let mut desk = Desk::new(open());
        desk.arrives(&runs[0]);
        desk.arrives(&runs[1]);
        let facts = match end {
            "deleted" => Facts::default(),
            _ => runs[0].facts(crate::queue::facts::Stands::Over, None, Vec::new()),
        };
        let now = desk.now;
        desk.index.put(&runs[0].key, facts, now);
        assert!(is_granted(&ask(&mut desk, &runs[1])), "{end}");
    }
}

#[test]
fn run_that_was_executed_before_may_go_on_with_its_next_attempt() {
    let runs = [
        run("first").idempotent("k"),
        run("second").idempotent("k").later(1),
    ];
    let mut desk = Desk::new(open());
    for run in &runs {
        desk.arrives(run);
    }
    let at = desk.now;
    desk.ends(&runs[1], at);
    desk.index.put(&runs[0].key, runs[0].works(at), at);
    assert!(is_granted(&ask(&mut desk, &runs[0])));
}

#[test]
fn nobody_is_given_up_for_an_older_run_that_lacks_something() {
    let runs = [
        run("mistaken").idempotent("k"),
        run("corrected").idempotent("k").later(9),
    ];
    let mut desk = Desk::new(open());
    // It refers to something that is not there.
    let lacking = runs[0].facts(crate::queue::facts::Stands::Apart, None, Vec::new());
    let now = desk.now;
    desk.index.put(&runs[0].key, lacking, now);
    desk.arrives(&runs[1]);
    assert!(is_granted(&ask(&mut desk, &runs[1])));
    // What it lacked has come, too late.
    assert_eq!(ask(&mut desk, &runs[0]), duplicate_of("corrected"));
}
