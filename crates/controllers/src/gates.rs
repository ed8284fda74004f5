//! The controllers of what steps of orchestrations wait for: ApprovalPolicies, Signals and SignalDeliveries. Each says whether
//! the object can be used, and does nothing else.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::{
    approvals::{ApprovalPolicy, ApprovalPolicyStatus},
    orchestration::orchestration_run::OrchestrationRun,
    signals::{Signal, SignalDelivery, SignalDeliveryStatus, SignalStatus},
};
use jangar_engine::{
    approval_policy,
    decision::{Decision, Key, Sight},
    settings::Settings,
    signal, signal_delivery,
};
use jiff::Timestamp;

use crate::{
    agents::itself,
    caches::{CachedKind, Caches, Change, Term},
    driver::{Controller, Scene},
};

/// Says whether gates can be decided under an ApprovalPolicy, and when one last was.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApprovalPolicies;

impl Controller for ApprovalPolicies {
    type Object = ApprovalPolicy;
    type Observed = approval_policy::Observed;
    const NAME: &'static str = "approval-policy";

    /// A run concerns the policies under which its gates were decided.
    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        match change.kind {
            CachedKind::OrchestrationRun => named(change, |term| match term {
                Term::DecidedUnder(policy) => Some(policy),
                _ => None,
            }),
            _ => itself(CachedKind::ApprovalPolicy, change),
        }
    }

    fn observe(
        &self,
        scene: &Scene<'_>,
        policy: Option<Arc<ApprovalPolicy>>,
    ) -> Option<approval_policy::Observed> {
        let Key { namespace, name } = scene.key;
        let cache = &scene.caches.orchestration_runs;
        let runs = cache.naming(namespace, Term::DecidedUnder(name.clone()));
        Some(approval_policy::Observed {
            policy: policy?,
            runs: runs
                .filter_map(|name| scene.sight::<OrchestrationRun>(name).seen().cloned())
                .collect(),
        })
    }

    fn plan(
        &self,
        observed: &approval_policy::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<ApprovalPolicyStatus> {
        approval_policy::plan(observed, settings, now)
    }
}

/// Says that a Signal is in effect, and when it was last delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signals;

impl Controller for Signals {
    type Object = Signal;
    type Observed = signal::Observed;
    const NAME: &'static str = "signal";

    /// A delivery concerns the Signal that it names.
    fn concerned(&self, _: &Caches, change: &Change) -> BTreeSet<Key> {
        match change.kind {
            CachedKind::SignalDelivery => named(change, |term| match term {
                Term::Signal(signal) => Some(signal),
                _ => None,
            }),
            _ => itself(CachedKind::Signal, change),
        }
    }

    fn observe(&self, scene: &Scene<'_>, signal: Option<Arc<Signal>>) -> Option<signal::Observed> {
        let Key { namespace, name } = scene.key;
        let cache = &scene.caches.signal_deliveries;
        let deliveries = cache.naming(namespace, Term::Signal(name.clone()));
        Some(signal::Observed {
            signal: signal?,
            deliveries: deliveries
                .filter_map(|name| scene.sight::<SignalDelivery>(name).seen().cloned())
                .collect(),
        })
    }

    fn plan(
        &self,
        observed: &signal::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<SignalStatus> {
        signal::plan(observed, settings, now)
    }
}

/// The objects that the changed one names, and those that it named before somebody changed it.
fn named(change: &Change, of: impl Fn(&Term) -> Option<&String>) -> BTreeSet<Key> {
    let names = change.terms.iter().filter_map(of);
    names
        .map(|name| Key {
            namespace: change.key.namespace.clone(),
            name: name.clone(),
        })
        .collect()
}

/// Says where a SignalDelivery stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalDeliveries;

impl Controller for SignalDeliveries {
    type Object = SignalDelivery;
    type Observed = signal_delivery::Observed;
    const NAME: &'static str = "signal-delivery";

    /// A Signal concerns the deliveries of it, which may have come before it.
    fn concerned(&self, caches: &Caches, change: &Change) -> BTreeSet<Key> {
        if change.kind != CachedKind::Signal {
            return itself(CachedKind::SignalDelivery, change);
        }
        let Key { namespace, name } = &change.key;
        let named = caches
            .signal_deliveries
            .naming(namespace, Term::Signal(name.clone()));
        named
            .map(|name| Key {
                namespace: namespace.clone(),
                name: name.clone(),
            })
            .collect()
    }

    fn observe(
        &self,
        scene: &Scene<'_>,
        delivery: Option<Arc<SignalDelivery>>,
    ) -> Option<signal_delivery::Observed> {
        let delivery = delivery?;
        let signal: Sight<Signal> = scene.sight(&delivery.spec.signal_ref.name);
        Some(signal_delivery::Observed { delivery, signal })
    }

    fn plan(
        &self,
        observed: &signal_delivery::Observed,
        settings: &Settings,
        now: Timestamp,
    ) -> Decision<SignalDeliveryStatus> {
        signal_delivery::plan(observed, settings, now)
    }
}
