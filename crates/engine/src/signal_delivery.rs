//! SignalDelivery: whether it can release a step, and which Signal it is one of.

use std::sync::Arc;

use jangar_api::{
    condition::{ConditionStatus, ConditionType},
    phase::DeliveryPhase,
    reason::Reason,
    signals::{Signal, SignalDelivery, SignalDeliveryStatus},
    values,
};
use jiff::Timestamp;

use crate::{
    conditions::{Conditions, Health, touched},
    decision::{Decision, Plan, Question, Sight},
    settings::Settings,
};

/// What is known about a SignalDelivery.
#[derive(Clone, Debug)]
pub struct Observed {
    pub delivery: Arc<SignalDelivery>,
    /// The Signal that it names.
    pub signal: Sight<Signal>,
}

/// What is said of a delivery.
struct Standing {
    phase: DeliveryPhase,
    health: Health,
    reason: Reason,
    message: String,
}

/// Says where the delivery stands. Which step it releases is decided by the steps that wait for it.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<SignalDeliveryStatus> {
    let delivery = &observed.delivery;
    if !settings.orchestrates(delivery.metadata.namespace.as_deref().unwrap_or_default()) {
        return Decision::Act(Plan::nothing());
    }
    let before = delivery.status.clone().unwrap_or_default();
    let name = delivery.spec.signal_ref.name.trim();
    let standing = match standing(&before, name, &observed.signal) {
        Ok(standing) => standing,
        Err(question) => return Decision::look(question),
    };
    let mut next = before.clone();
    if standing.phase == DeliveryPhase::Delivered {
        next.delivered_at.get_or_insert(values::Timestamp(now));
    }
    let mut conditions = Conditions::of(&before.common, delivery.metadata.generation, now);
    if standing.phase == DeliveryPhase::Invalid {
        conditions.set(
            ConditionType::InvalidSpec,
            ConditionStatus::True,
            standing.reason.clone(),
            standing.message.clone(),
        );
    } else {
        conditions.clear(ConditionType::InvalidSpec, Reason::ValidSpec, "");
    }
    conditions.stand(standing.health, &standing.reason, &standing.message);
    next.phase = Some(standing.phase);
    next.common = conditions.into_status(&before.common);
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

fn standing(before: &SignalDeliveryStatus, name: &str, signal: &Sight<Signal>) -> Result<Standing, Question> {
    let delivered = || Standing {
        phase: DeliveryPhase::Delivered,
        health: Health::Ready,
        reason: Reason::Delivered,
        message: String::new(),
    };
    if before.consumed_by.is_some() {
        // Steps wait for a name, whether or not anybody has described the Signal.
        return Ok(delivered());
    }
    if name.is_empty() {
        return Ok(Standing {
            phase: DeliveryPhase::Invalid,
            health: Health::Degraded,
            reason: Reason::InvalidSpec,
            message: "spec.signalRef.name is blank: set it to the name of the Signal that happened"
                .to_owned(),
        });
    }
    match signal {
        Sight::Seen(_) | Sight::Illegible(_) => Ok(delivered()),
        Sight::Unseen => Err(Question::Signal(name.to_owned())),
        Sight::Absent => Ok(Standing {
            phase: DeliveryPhase::Pending,
            health: Health::Progressing,
            reason: Reason::SignalMissing,
            message: format!(
                "spec.signalRef.name is {name}, and there is no Signal of that name in this namespace: create it; a step that \
                 waits for the name takes the delivery all the same"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn signal() -> Sight<Signal> {
        let signal = json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "Signal",
            "metadata": {"name": "merged", "namespace": "agents"}, "spec": {},
        });
        Sight::Seen(Arc::new(serde_json::from_value(signal).expect("a Signal")))
    }

    fn decided(name: &str, status: &Value, signal: Sight<Signal>) -> Decision<SignalDeliveryStatus> {
        let delivery = json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery",
            "metadata": {"name": "merged-1", "namespace": "agents", "generation": 1},
            "spec": {"signalRef": {"name": name}}, "status": status,
        });
        let observed = Observed {
            delivery: Arc::new(serde_json::from_value(delivery).expect("a SignalDelivery")),
            signal,
        };
        plan(&observed, &Settings::default(), Timestamp::UNIX_EPOCH)
    }

    fn told(name: &str, status: &Value, signal: Sight<Signal>) -> Option<(DeliveryPhase, Reason)> {
        match decided(name, status, signal) {
            Decision::Act(plan) => plan.status.map(|status| {
                let ready = status
                    .common
                    .condition(&ConditionType::Ready)
                    .expect("it is told");
                (status.phase.clone().expect("a phase"), ready.reason.clone())
            }),
            Decision::Look(questions) => panic!("{questions:?}"),
        }
    }

    #[test]
    fn a_delivery_waits_for_its_signal_and_is_delivered_when_that_comes() {
        let look = decided("merged", &Value::Null, Sight::Unseen);
        assert_eq!(look, Decision::look(Question::Signal("merged".to_owned())));
        let missing = told("merged", &Value::Null, Sight::Absent);
        assert_eq!(missing, Some((DeliveryPhase::Pending, Reason::SignalMissing)));
        let delivered = told("merged", &json!({"phase": "Pending"}), signal());
        assert_eq!(delivered, Some((DeliveryPhase::Delivered, Reason::Delivered)));
    }

    #[test]
    fn one_that_names_no_signal_is_invalid() {
        let invalid = told(" ", &Value::Null, Sight::Unseen);
        assert_eq!(invalid, Some((DeliveryPhase::Invalid, Reason::InvalidSpec)));
    }

    #[test]
    fn one_that_released_a_step_was_delivered_whether_or_not_there_is_a_signal() {
        let consumed = json!({"consumedBy": {"runUid": "u", "step": "wait"}});
        let status = match decided("merged", &consumed, Sight::Unseen) {
            Decision::Act(plan) => plan.status.expect("it is told"),
            Decision::Look(questions) => panic!("{questions:?}"),
        };
        assert_eq!(status.phase, Some(DeliveryPhase::Delivered));
        assert!(status.consumed_by.is_some(), "what others wrote stays");
        let again = serde_json::to_value(&status).expect("JSON");
        assert_eq!(told("merged", &again, Sight::Unseen), None);
    }
}
