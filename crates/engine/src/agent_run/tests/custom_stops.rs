//! The end of runs whose work an endpoint does: cancel, a changed spec, deletion.

use std::time::Duration;

use jangar_api::{condition::ConditionType, phase::RunPhase, reason::Reason};
use serde_json::json;

use super::{
    World,
    custom::{
        ENDPOINT, answer, called, calls, end, not_taken, posts, report, restart, taken, taken_with, words,
        world,
    },
};
use crate::{
    agent_run::hold,
    custom::{
        call::{Answer, Purpose},
        callback::Receipt,
    },
    removal,
};

fn cancel(world: &mut World) {
    world.edit(|run| {
        run.spec.stop.cancel = true;
        run.spec.stop.cancel_reason = Some("not needed".to_owned());
    });
    world.settle();
}

#[test]
fn a_cancel_before_the_call_ends_at_once() {
    let mut world = world(&json!({"endpoint": ENDPOINT}));
    cancel(&mut world);

    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(posts(&world), 0);
}

#[test]
fn a_cancel_is_sent_to_the_endpoint_and_done_when_it_confirms() {
    let mut world = taken();
    cancel(&mut world);

    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert_eq!(
        calls(&world)[1],
        format!("cancel 1 to {ENDPOINT} as run-1/1/cancel")
    );
    answer(&mut world, Purpose::Cancel, 1, taken_with(None));
    world.settle();
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert_eq!(
        report(&mut world, &json!({"status": "Running"})),
        Receipt::Recorded(RunPhase::Cancelling),
        "an endpoint that reports progress learns that it should stop"
    );
    let received = report(&mut world, &json!({"status": "Cancelled", "message": "stopped"}));
    assert_eq!(received, Receipt::Recorded(RunPhase::Cancelled));
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.reason, Reason::Cancelled);
    assert!(cancelled.message.contains("not needed"), "{}", cancelled.message);
    assert_eq!(posts(&world), 2);
}

#[test]
fn a_cancel_that_is_not_confirmed_times_out_and_names_the_endpoint() {
    for (heard, said) in [
        (taken_with(None), "was told to stop"),
        (
            Answer::Refused {
                words: words("HTTP 404"),
            },
            "HTTP 404",
        ),
    ] {
        let mut world = taken();
        cancel(&mut world);
        answer(&mut world, Purpose::Cancel, 1, heard);
        world.settle();
        assert_eq!(world.wake_at, Some(world.now + Duration::from_mins(1)));
        world.wait(60).settle();

        let cancelled = world.condition(&ConditionType::Cancelled);
        assert_eq!(cancelled.reason, Reason::CancelTimedOut);
        assert!(
            cancelled.message.contains(ENDPOINT) && cancelled.message.contains(said),
            "{}",
            cancelled.message
        );
        assert_eq!(posts(&world), 2, "what was heard is not said again");
    }
}

#[test]
fn an_endpoint_that_reports_its_end_after_the_cancel_was_given_up_was_gone_then() {
    for (told, status) in [(true, "Cancelled"), (true, "Succeeded"), (false, "Failed")] {
        let mut world = taken();
        cancel(&mut world);
        if told {
            answer(&mut world, Purpose::Cancel, 1, taken_with(None));
            world.settle();
        }
        world.wait(60).settle();
        let ended = world.status();
        assert_eq!(ended.survivors_gone_at, None, "that it was told proves nothing");
        world.wait(30);
        report(&mut world, &json!({"status": status}));

        let gone = world.status();
        assert_eq!(
            gone.survivors_gone_at.map(|at| at.0),
            Some(world.now),
            "{told} {status}"
        );
        assert_eq!((&gone.phase, gone.finished_at), (&ended.phase, ended.finished_at));
        assert_eq!(gone.common.conditions, ended.common.conditions);
    }
}

#[test]
fn a_cancel_that_may_not_have_arrived_is_sent_again() {
    let mut world = taken();
    cancel(&mut world);
    answer(
        &mut world,
        Purpose::Cancel,
        1,
        Answer::Unknown {
            words: words("no answer"),
        },
    );
    world.settle();
    assert_eq!(posts(&world), 2);
    world.wait(10).settle();
    assert_eq!(
        calls(&world)[2],
        format!("cancel 2 to {ENDPOINT} as run-1/1/cancel")
    );
    restart(&mut world);
    world.wait(10).settle();
    assert_eq!(
        calls(&world)[3],
        format!("cancel 3 to {ENDPOINT} as run-1/1/cancel")
    );
}

#[test]
fn an_endpoint_that_could_not_be_told_in_time_is_told_again_ever_more_rarely() {
    let unknown = || Answer::Unknown {
        words: words("no answer"),
    };
    let mut world = taken();
    cancel(&mut world);
    world.wait(60).settle();
    let cancelled = world.condition(&ConditionType::Cancelled);
    assert_eq!(cancelled.reason, Reason::CancelTimedOut);
    assert!(removal::is_under_way(world.run()) && hold::is_held(world.run()));

    answer(&mut world, Purpose::Cancel, 1, unknown());
    world.settle();
    let mut waits = Vec::new();
    for number in 2..7 {
        answer(&mut world, Purpose::Cancel, number, unknown());
        world.settle();
        let due = world.wake_at.expect("a time");
        waits.push(due.duration_since(world.now).as_secs());
        world.now = due;
        world.settle();
    }
    assert!(waits.is_sorted() && waits.last() > waits.first(), "{waits:?}");

    answer(&mut world, Purpose::Cancel, 7, taken_with(None));
    world.settle();
    assert!(!removal::is_under_way(world.run()) && !hold::is_held(world.run()));
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::CancelTimedOut,
        "what has ended stays as it is"
    );
    let sent = posts(&world);
    world.wait(600).settle();
    assert_eq!(posts(&world), sent, "what was heard is not said again");
}

#[test]
fn an_endpoint_that_cannot_be_told_for_an_hour_is_given_up() {
    let mut world = taken();
    cancel(&mut world);
    world.wait(60).settle();
    answer(&mut world, Purpose::Cancel, 1, not_taken("connection refused"));
    world.wait(3600).settle();

    assert!(!removal::is_under_way(world.run()) && !hold::is_held(world.run()));
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::CancelTimedOut);
    assert!(notice.message.contains(ENDPOINT), "{}", notice.message);
}

#[test]
fn an_endpoint_whose_time_is_up_is_told_to_stop() {
    let mut world = taken();
    world.wait(600).settle();
    let (phase, reason, _) = end(&world);
    assert_eq!((phase, reason), (Some(RunPhase::Failed), Reason::TimedOut));
    assert_eq!(
        calls(&world)[1],
        format!("cancel 1 to {ENDPOINT} as run-1/1/cancel")
    );
    assert!(hold::is_held(world.run()), "it is not let go before it was told");

    answer(&mut world, Purpose::Cancel, 1, taken_with(None));
    world.settle();
    assert!(!removal::is_under_way(world.run()) && !hold::is_held(world.run()));
    assert_eq!(posts(&world), 2);
}

#[test]
fn a_cancel_waits_for_the_answer_to_the_work_and_is_over_if_it_was_not_taken() {
    let mut world = called();
    cancel(&mut world);
    assert_eq!(world.phase(), Some(RunPhase::Cancelling));
    assert_eq!(posts(&world), 1);
    answer(&mut world, Purpose::Submit, 1, not_taken("connection refused"));
    world.settle();

    assert_eq!(world.phase(), Some(RunPhase::Cancelled));
    assert_eq!(posts(&world), 1);
}

#[test]
fn an_end_that_was_reported_outranks_the_cancel() {
    let mut world = taken();
    cancel(&mut world);
    let received = report(&mut world, &json!({"status": "Succeeded"}));

    assert_eq!(received, Receipt::Recorded(RunPhase::Succeeded));
    assert_eq!(
        world.condition(&ConditionType::Cancelled).reason,
        Reason::AlreadySucceeded
    );
}

#[test]
fn a_changed_spec_stops_the_work_and_fails_the_run() {
    let mut world = taken();
    world.edit(|run| run.spec.parameters.extend([("new".to_owned(), "x".to_owned())]));
    world.settle();
    assert_eq!(
        calls(&world)[1],
        format!("cancel 1 to {ENDPOINT} as run-1/1/cancel")
    );
    assert_eq!(world.phase(), Some(RunPhase::Running));
    world.wait(60).settle();

    let (phase, reason, _) = end(&world);
    assert_eq!(
        (phase, reason),
        (Some(RunPhase::Failed), Reason::SpecImmutableViolation)
    );
}

const HELD: &str = "hold by [\"agents.proompteng.ai/runtime-cleanup\"]";
const LET_GO: &str = "hold by []";

fn delete(world: &mut World) {
    let now = world.now;
    world.edit(|run| {
        run.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    });
    world.settle();
}

#[test]
fn a_run_is_held_from_before_the_call_until_it_has_ended() {
    let mut world = called();
    assert_eq!(world.deeds()[0], HELD);
    answer(&mut world, Purpose::Submit, 1, taken_with(None));
    report(&mut world, &json!({"status": "Succeeded"}));

    assert_eq!(world.deeds()[2..], [LET_GO]);
    assert_eq!(world.phase(), Some(RunPhase::Succeeded));
}

#[test]
fn a_run_that_cannot_start_is_not_held() {
    let mut world = world(&json!({}));
    world.settle();

    assert_eq!(world.deeds(), [] as [&str; 0]);
}

#[test]
fn a_deleted_run_stays_until_its_endpoint_has_stopped() {
    let mut world = taken();
    delete(&mut world);

    assert_eq!(
        calls(&world)[1],
        format!("cancel 1 to {ENDPOINT} as run-1/1/cancel")
    );
    assert_eq!(report(&mut world, &json!({"status": "Running"})), Receipt::Gone);
    assert!(world.observed.run.is_some());
    report(&mut world, &json!({"status": "Cancelled"}));
    assert!(world.observed.run.is_none());
}

#[test]
fn a_deleted_run_whose_endpoint_outlived_its_cancel_stays_until_it_was_told_or_its_time_is_up() {
    for told in [true, false] {
        let mut world = taken();
        cancel(&mut world);
        world.wait(60).settle();
        assert!(removal::is_under_way(world.run()));
        delete(&mut world);
        assert!(world.observed.run.is_some(), "it may still be working");

        let reason = if told {
            answer(&mut world, Purpose::Cancel, 1, taken_with(None));
            world.settle();
            Reason::Stopped
        } else {
            world.wait(60).settle();
            Reason::CancelTimedOut
        };
        assert!(world.observed.run.is_none());
        let notice = world.notices.last().expect("a notice");
        assert_eq!(notice.reason, reason);
        assert!(notice.message.contains(ENDPOINT), "{}", notice.message);
    }
}

#[test]
fn a_deleted_run_whose_endpoint_does_not_answer_goes_at_the_deadline() {
    let mut world = taken();
    delete(&mut world);
    world.wait(59).settle();
    assert!(world.observed.run.is_some());
    world.wait(1).settle();

    assert!(world.observed.run.is_none());
    let notice = world.notices.last().expect("a notice");
    assert_eq!(notice.reason, Reason::CancelTimedOut);
}

#[test]
fn a_deleted_run_that_was_not_taken_goes_at_once() {
    let mut world = called();
    answer(&mut world, Purpose::Submit, 1, not_taken("connection refused"));
    world.settle();
    delete(&mut world);

    assert!(world.observed.run.is_none());
    assert_eq!(posts(&world), 1);
}
