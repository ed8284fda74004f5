//! Signal: it is in effect as soon as it is there, and says when it was last delivered.

use std::sync::Arc;

use jangar_api::{
    phase::ObjectPhase,
    reason::Reason,
    signals::{Signal, SignalDelivery, SignalStatus},
    values,
};
use jiff::Timestamp;

use crate::{
    conditions::touched,
    decision::{Decision, Plan},
    settings::Settings,
    validity,
};

/// What is known about a Signal.
#[derive(Clone, Debug)]
pub struct Observed {
    pub signal: Arc<Signal>,
    /// Its deliveries.
    pub deliveries: Vec<Arc<SignalDelivery>>,
}

/// Says that the Signal is in effect. There is nothing in it that could be wrong.
pub fn plan(observed: &Observed, settings: &Settings, now: Timestamp) -> Decision<SignalStatus> {
    let signal = &observed.signal;
    if !settings.orchestrates(signal.metadata.namespace.as_deref().unwrap_or_default()) {
        return Decision::Act(Plan::nothing());
    }
    let before = signal.status.clone().unwrap_or_default();
    let created = observed.deliveries.iter().filter_map(|delivery| {
        let created = delivery.metadata.creation_timestamp.as_ref()?;
        Some(values::Timestamp(created.0))
    });
    let next = SignalStatus {
        common: validity::report_as(
            &Reason::Active,
            &before.common,
            signal.metadata.generation,
            Ok(()),
            now,
        ),
        phase: Some(ObjectPhase::Active),
        // Deliveries are deleted at some time, and what they told is not.
        last_delivery_at: created.chain(before.last_delivery_at).max_by_key(|at| at.0),
    };
    Decision::Act(Plan {
        status: touched(&before, next, |status| &mut status.common, now),
        ..Plan::nothing()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signal(status: &SignalStatus) -> Arc<Signal> {
        let signal = json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "Signal",
            "metadata": {"name": "merged", "namespace": "agents", "generation": 1}, "spec": {}, "status": status,
        });
        Arc::new(serde_json::from_value(signal).expect("a Signal"))
    }

    fn delivery(created: &str) -> Arc<SignalDelivery> {
        let delivery = json!({
            "apiVersion": "signals.proompteng.ai/v1alpha1", "kind": "SignalDelivery",
            "metadata": {"name": "d", "namespace": "agents", "creationTimestamp": created},
            "spec": {"signalRef": {"name": "merged"}},
        });
        Arc::new(serde_json::from_value(delivery).expect("a SignalDelivery"))
    }

    fn planned(status: &SignalStatus, deliveries: &[&str]) -> Option<SignalStatus> {
        let observed = Observed {
            signal: signal(status),
            deliveries: deliveries.iter().map(|created| delivery(created)).collect(),
        };
        match plan(&observed, &Settings::default(), Timestamp::UNIX_EPOCH) {
            Decision::Act(plan) => plan.status,
            Decision::Look(questions) => panic!("nothing has to be asked: {questions:?}"),
        }
    }

    #[test]
    fn the_last_delivery_is_told_and_outlives_the_object() {
        let (early, late) = ("2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z");
        let at = |text: &str| Some(values::Timestamp(text.parse().expect("a time")));
        let first = planned(&SignalStatus::default(), &[late, early]).expect("a status");
        assert_eq!(first.phase, Some(ObjectPhase::Active));
        assert_eq!(first.last_delivery_at, at(late));
        assert_eq!(
            planned(&first, &[early]),
            None,
            "it is gone, and was the last all the same"
        );
    }
}
