//! The end of runs whose work a Temporal workflow does: cancel, a changed spec, deletion.

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::RunPhase,
    reason::Reason,
};
use jiff::ToSpan;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    World,
    temporal::{
        ID, called, calls, closed, config, end, record, restart, start_answered, started, started_as, world,
    },
};
use crate::{
    agent_run::hold,
    removal,
    temporal::call::{Closed, Returned, StartAnswer, StopAnswer},
};

fn cancel(world: &mut World) {
    world.edit(|run| {
        run.spec.stop.cancel = true;
        run.spec.stop.cancel_reason = Some("not needed".to_owned());
    });
    world.settle();
}

fn delete(world: &mut World) {
    let now = world.now;
    world.edit(|run| run.metadata.deletion_timestamp = Some(Time(now)));
    world.settle();
}

fn stop_answered(world: &mut World, number: u32, answer: StopAnswer) {
    let known = world.observed.outside.workflow.stop.as_mut();
    let known = known
        .filter(|known| known.number == number)
        .expect("it was called");
    assert_eq!(known.answer.replace(answer), None);
    world.settle();
}

fn canceled() -> Closed {
    Closed::Canceled { words: None }
}

fn not_taken() -> StopAnswer {
    StopAnswer::NotTaken {
        words: "the server is away".to_owned(),
    }
}

fn last_call(world: &World) -> String {
    calls(world).pop().expect("a call")
}

#[test]
fn a_cancel_before_the_start_ends_at_once() {
    let mut world = world(&config());
    cancel(&mut world);

    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert!(calls(&world).is_empty());
}

#[test]
fn a_cancelled_run_is_cancelled_when_its_workflow_is_closed_and_not_before() {
    let mut world = started();
    cancel(&mut world);
    assert_eq!(last_call(&world), format!("cancel 1 of {ID}"));
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));

    stop_answered(&mut world, 1, StopAnswer::Told);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));

    closed(&mut world, canceled());
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert!(cancelled.message.contains("not needed"), "{}", cancelled.message);
}

#[test]
fn a_workflow_that_completes_all_the_same_has_succeeded() {
    let mut world = started();
    cancel(&mut world);
    stop_answered(&mut world, 1, StopAnswer::Told);
    closed(&mut world, Closed::Completed(Returned::Nothing));

    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
}

#[test]
fn a_workflow_that_does_not_end_in_its_time_is_terminated() {
    let mut world = started();
    cancel(&mut world);
    stop_answered(&mut world, 1, StopAnswer::Told);
    world.now = world.wake_at.expect("a time");
    world.settle();

    assert_eq!(last_call(&world), format!("terminate 2 of {ID}"));
    stop_answered(&mut world, 2, StopAnswer::Told);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    closed(&mut world, Closed::Terminated { words: None });
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
}

/// Lets every stop fail until the run is over.
fn cancelled_in_vain() -> World {
    let mut world = started();
    cancel(&mut world);
    let deadline = world.status().cancel_deadline.expect("a deadline").0;
    for number in 1..20 {
        stop_answered(&mut world, number, not_taken());
        if world.phase() != Some(RunPhase::Cancelling) {
            break;
        }
        world.now = world.wake_at.expect("a time");
        assert!(world.now <= deadline);
        world.settle();
        if world.phase() != Some(RunPhase::Cancelling) {
            break;
        }
    }
    assert_eq!(world.now, deadline);
    world
}

#[test]
fn a_cancel_whose_server_is_away_times_out_and_names_the_workflow() {
    let world = cancelled_in_vain();

    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.reason, Reason::CancelTimedOut);
    assert!(
        cancelled.message.contains(ID) && cancelled.message.contains("the server is away"),
        "{}",
        cancelled.message
    );
    assert_eq!(
        world.condition(&ConditionType::Warning).status,
        ConditionStatus::False,
        "what was said while it was waited for is over"
    );
    assert!(
        last_call(&world).starts_with("terminate"),
        "{}",
        last_call(&world)
    );
    assert!(
        removal::is_under_way(world.run()) && hold::is_held(world.run()),
        "the workflow is still being ended"
    );
}

#[test]
fn a_workflow_that_outlived_its_cancel_is_ended_ever_more_rarely_and_then_the_run_is_let_go() {
    let mut world = cancelled_in_vain();
    let finished_at = world.status().finished_at;
    let before = calls(&world).len();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let number = world
            .observed
            .outside
            .workflow
            .stop
            .as_ref()
            .expect("a stop")
            .number;
        if world
            .observed
            .outside
            .workflow
            .stop
            .as_ref()
            .expect("a stop")
            .answer
            .is_none()
        {
            stop_answered(&mut world, number, not_taken());
        }
        let due = world.wake_at.expect("a time");
        waits.push(due.duration_since(world.now).as_secs());
        world.now = due;
        world.settle();
    }
    assert!(waits.is_sorted() && waits.last() > waits.first(), "{waits:?}");
    assert!(calls(&world).len() > before);
    let number = world
        .observed
        .outside
        .workflow
        .stop
        .as_ref()
        .expect("a stop")
        .number;
    stop_answered(&mut world, number, StopAnswer::Told);
    closed(&mut world, Closed::Terminated { words: None });

    assert!(!removal::is_under_way(world.run()));
    assert!(!hold::is_held(world.run()));
    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(world.status().finished_at, finished_at);
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelTimedOut
    );
    assert_eq!(world.status().survivors_gone_at.map(|at| at.0), Some(world.now));
}

#[test]
fn a_server_that_stays_away_is_given_up_after_an_hour() {
    let mut world = cancelled_in_vain();
    for _ in 0..200 {
        let stop = world.observed.outside.workflow.stop.clone().expect("a stop");
        if stop.answer.is_none() {
            stop_answered(&mut world, stop.number, not_taken());
        }
        if !removal::is_under_way(world.run()) {
            break;
        }
        world.now = world.wake_at.expect("a time");
        world.settle();
    }
    assert!(!hold::is_held(world.run()));
    assert_eq!(world.status().survivors_gone_at, None, "nobody knows");
    assert!(calls(&world).len() < 40, "{}", calls(&world).len());
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::CancelTimedOut);
    assert!(notice.message.contains(ID), "{}", notice.message);
}

#[test]
fn a_cancel_waits_for_the_answer_to_the_start() {
    let mut world = called();
    cancel(&mut world);
    assert_eq!(
        calls(&world).len(),
        1,
        "what is sent after it could arrive before it"
    );

    start_answered(&mut world, 1, started_as("first"));
    assert_eq!(
        calls(&world)[1..],
        [format!("follow {ID} on agents"), format!("cancel 1 of {ID}")]
    );
    assert_eq!(record(&world)["runId"], "first");

    let mut refused = called();
    cancel(&mut refused);
    let words = "no".to_owned();
    start_answered(&mut refused, 1, StartAnswer::Refused { words });
    assert_eq!(refused.phase(), Some(RunPhase::Cancelled));
}

#[test]
fn a_start_that_may_be_on_its_way_is_waited_for_before_there_is_no_workflow() {
    let mut world = called();
    restart(&mut world);
    cancel(&mut world);
    assert_eq!(last_call(&world), format!("cancel 1 of {ID}"));
    stop_answered(&mut world, 1, StopAnswer::NotFound);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));

    // The cancel is over before that is known, and the search for it goes on.
    world.now = world.wake_at.expect("a time");
    world.settle();
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelTimedOut
    );
    assert!(removal::is_under_way(world.run()));
    world.now = world.wake_at.expect("a time");
    world.settle();
    // It has had its time to end by itself.
    assert_eq!(last_call(&world), format!("terminate 2 of {ID}"));
    let mut found = started();
    found.observed = world.observed.clone();
    found.now = world.now;
    stop_answered(&mut world, 2, StopAnswer::NotFound);
    assert!(!removal::is_under_way(world.run()));

    // The same, but it has come meanwhile.
    stop_answered(&mut found, 2, StopAnswer::Told);
    assert!(removal::is_under_way(found.run()));
    closed(&mut found, canceled());
    assert!(!removal::is_under_way(found.run()));
}

#[test]
fn a_changed_spec_stops_the_workflow_and_fails_the_run() {
    let mut world = started();
    world.edit(|run| {
        run.spec.parameters.insert("more".to_owned(), "work".to_owned());
    });
    world.settle();
    assert_eq!(last_call(&world), format!("cancel 1 of {ID}"));
    assert_eq!(world.phase(), Some(RunPhase::Running));

    stop_answered(&mut world, 1, StopAnswer::Told);
    closed(&mut world, canceled());
    let (phase, reason, _) = end(&world);
    assert_eq!(
        (phase, reason),
        (Some(RunPhase::Failed), Reason::SpecImmutableViolation)
    );
}

#[test]
fn a_deleted_run_stays_until_its_workflow_is_closed() {
    let mut world = started();
    delete(&mut world);
    assert_eq!(last_call(&world), format!("cancel 1 of {ID}"));
    stop_answered(&mut world, 1, StopAnswer::Told);
    assert!(world.observed.run.is_some());

    closed(&mut world, canceled());
    assert!(world.observed.run.is_none());
}

#[test]
fn a_deleted_run_whose_server_is_away_goes_at_the_deadline_and_says_so() {
    let mut world = started();
    delete(&mut world);
    stop_answered(&mut world, 1, not_taken());
    assert!(world.observed.run.is_some());
    world.now += 2.hours();
    world.settle();

    assert!(world.observed.run.is_none());
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::CancelTimedOut);
    assert!(notice.message.contains(ID), "{}", notice.message);
}

#[test]
fn a_deleted_run_whose_workflow_outlived_its_cancel_stays_until_it_is_closed() {
    let mut world = cancelled_in_vain();
    delete(&mut world);
    assert!(world.observed.run.is_some(), "the workflow is still being ended");

    closed(&mut world, Closed::Terminated { words: None });
    assert!(world.observed.run.is_none());
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::Stopped);
    assert!(notice.message.contains(ID), "{}", notice.message);
}

#[test]
fn a_deleted_run_whose_workflow_outlived_its_cancel_goes_after_the_time_of_another_and_says_so() {
    let mut world = cancelled_in_vain();
    delete(&mut world);
    assert!(world.observed.run.is_some());
    world.now += 1.minute();
    world.settle();

    assert!(world.observed.run.is_none());
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::CancelTimedOut);
    assert!(notice.message.contains(ID), "{}", notice.message);
}

#[test]
fn a_deleted_run_that_was_not_started_goes_at_once() {
    let mut world = called();
    let words = "connection refused".to_owned();
    start_answered(&mut world, 1, StartAnswer::NotTaken { words });
    delete(&mut world);

    assert!(world.observed.run.is_none());
    assert_eq!(calls(&world).len(), 1);
}
