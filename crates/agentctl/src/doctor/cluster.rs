//! What Jangar stands on: the API server, its clock, the kinds, the rights of the caller, and whoever leads.

use jangar_api::{
    Kind, labels,
    rights::{FOR_RUNS, Right, TO_APPROVE, TO_APPROVE_ALONE},
};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::Value;

use super::{Finding, some, unread};
use crate::{
    clock::{Clock, short},
    error::Error,
    object::Object,
    status::{Lease, served_kinds},
    transport::kube::{Kube, builtin},
};

/// How far the clocks may be apart: a third of what the shortest lease leaves for a write.
const SKEW_MAX_SECONDS: i64 = 5;

/// Whether our time is that of the API server. Ages and leases are told by it.
pub(super) async fn clocks(kube: &Kube) -> Finding {
    let before = Timestamp::now();
    let theirs = match kube.time().await {
        Ok(Some(theirs)) => theirs,
        Ok(None) => return Finding::skip("clock", "the API server does not say what time it is"),
        Err(error) => return unread("clock", &error),
    };
    skew(before, theirs, Timestamp::now(), "the API server")
}

/// How far our time is from that of whoever answered.
pub(super) fn skew(before: Timestamp, theirs: Timestamp, after: Timestamp, whose: &str) -> Finding {
    // Theirs is cut to the second, and was read somewhere between our two.
    let early = before.as_second() - 1 - theirs.as_second();
    let late = theirs.as_second() - after.as_second();
    let apart = early.max(late).max(0);
    if apart <= SKEW_MAX_SECONDS {
        return Finding::ok("clock", format!("within {SKEW_MAX_SECONDS} s of {whose}'s"));
    }
    let side = if late > 0 { "behind" } else { "ahead of" };
    Finding::warn(
        "clock",
        format!(
            "the clock of this machine is {} {side} that of {whose}",
            short(apart)
        ),
        "sudo systemctl restart systemd-timesyncd   # or whatever keeps the time here",
    )
}

pub(super) async fn namespace_exists(kube: &Kube, namespace: &str) -> Finding {
    let resource = builtin("", "v1", "Namespace", "namespaces");
    match kube.get_any(&resource, None, namespace).await {
        Ok(_) => Finding::ok("namespace", namespace),
        Err(error) if error.is_not_found() => Finding::fail(
            "namespace",
            format!("there is no namespace {namespace}"),
            format!("kubectl create namespace {namespace}   # or name another one with -n"),
        ),
        Err(error) if error.is_forbidden() => {
            Finding::skip("namespace", format!("{namespace}, which you may not read"))
        }
        Err(error) => unread("namespace", &error),
    }
}

/// Whether our kinds are served, and with the fields that this version knows.
pub(super) async fn kinds(kube: &Kube) -> Result<Vec<Finding>, Error> {
    let fix =
        "kubectl apply --server-side --force-conflicts -f charts/agents/crds   # of the release that you run";
    let (served, missing) = served_kinds(kube).await?;
    if !missing.is_empty() {
        return Ok(vec![Finding::fail(
            "kinds",
            format!(
                "{} of {} kinds are not served: {}",
                missing.len(),
                Kind::ALL.len(),
                some(&missing)
            ),
            fix,
        )]);
    }
    let resource = builtin(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    let mut old = Vec::new();
    for kind in Kind::ALL {
        let info = kind.info();
        let name = format!("{}.{}", info.plural, info.group);
        match kube.get_any(&resource, None, &name).await {
            Ok(crd) => {
                let unknown = unknown_fields(*kind, &crd);
                if !unknown.is_empty() {
                    old.push(format!("{} lacks {}", info.kind, some(&unknown)));
                }
            }
            // That they are served is known; more may only be read by those who run the cluster.
            Err(_) => {
                return Ok(vec![
                    Finding::ok("kinds", format!("{served} served")),
                    Finding::skip(
                        "fields",
                        "whether they have all fields of this version only those see who may read definitions",
                    ),
                ]);
            }
        }
    }
    if old.is_empty() {
        return Ok(vec![Finding::ok(
            "kinds",
            format!("{served} served, with all fields of this version"),
        )]);
    }
    Ok(vec![Finding::warn(
        "kinds",
        format!("the definitions are older than this agentctl: {}", some(&old)),
        fix,
    )])
}

/// Fields of the spec that the definition in the cluster does not know.
fn unknown_fields(kind: Kind, crd: &Object) -> Vec<String> {
    let fields = |crd: &Value| -> Vec<String> {
        let properties = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties");
        properties
            .and_then(Value::as_object)
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    };
    let there = fields(crd.value());
    let ours = serde_json::to_value(kind.crd())
        .map(|crd| fields(&crd))
        .unwrap_or_default();
    ours.into_iter()
        .filter(|field| !there.contains(field))
        .map(|field| format!("spec.{field}"))
        .collect()
}

/// What the caller may not do of what people do with agentctl.
pub(super) async fn rights(kube: &Kube, namespace: &str) -> Vec<Finding> {
    let may = async |right: &Right| {
        let attributes = ResourceAttributes {
            namespace: Some(namespace.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            subresource: Some(right.subresource.to_owned()).filter(|name| !name.is_empty()),
            verb: Some(right.verb.to_owned()),
            ..ResourceAttributes::default()
        };
        kube.may(attributes).await
    };
    let mut lacking = Vec::new();
    for right in FOR_RUNS.iter().chain([&TO_APPROVE_ALONE]) {
        match may(right).await {
            Ok(true) => {}
            // Whoever holds the verb decides through the control plane, and needs no more.
            Ok(false) if *right == TO_APPROVE_ALONE && may(&TO_APPROVE).await.unwrap_or(false) => {}
            Ok(false) => lacking.push(Lacking::of(right)),
            Err(error) => return vec![unread("rights", &error)],
        }
    }
    rights_found(&lacking, namespace)
}

/// A right that the caller has not.
pub(super) struct Lacking {
    pub(super) verb: String,
    pub(super) resource: String,
    pub(super) purpose: String,
}

impl Lacking {
    fn of(right: &Right) -> Self {
        Self {
            verb: right.verb.to_owned(),
            resource: right.named(),
            purpose: right.purpose.to_owned(),
        }
    }
}

pub(super) fn rights_found(lacking: &[Lacking], namespace: &str) -> Vec<Finding> {
    if lacking.is_empty() {
        return vec![Finding::ok(
            "rights",
            "you may submit, follow, cancel and approve",
        )];
    }
    let finding = |Lacking {
                       verb,
                       resource,
                       purpose,
                   }: &Lacking| {
        Finding::warn(
            "rights",
            format!("you may not {verb} {resource} in namespace {namespace}, which it takes to {purpose}"),
            format!(
                "kubectl create role agentctl-{verb} -n {namespace} --verb={verb} --resource={resource}   # then bind it to yourself"
            ),
        )
    };
    lacking.iter().map(finding).collect()
}

pub(super) async fn leader(kube: &Kube, namespace: &str, clock: Clock) -> Finding {
    let start = "helm upgrade --install agents charts/agents   # or, on this machine, jangar up";
    let lease = Lease::read(kube, namespace).await;
    match &lease {
        Lease::Held { holder, .. } if lease.is_fresh(clock) => {
            Finding::ok("leader", format!("{holder} leads"))
        }
        Lease::Held { holder, renewed, .. } => {
            let age = renewed
                .as_ref()
                .and_then(|renewed| clock.age(renewed))
                .unwrap_or_default();
            Finding::fail(
                "leader",
                format!("{holder} led, and has been silent for {age}: nothing is looked after"),
                format!(
                    "kubectl -n {namespace} get pods -l app.kubernetes.io/name=agents   # and read their logs"
                ),
            )
        }
        Lease::Free => Finding::fail("leader", "nobody leads: nothing is looked after", start),
        Lease::Absent => Finding::fail(
            "leader",
            format!(
                "there is no Lease {} in namespace {namespace}: no controllers have run here",
                labels::LEADER_LEASE
            ),
            start,
        ),
        Lease::Unknown(words) => Finding::warn(
            "leader",
            format!("cannot be looked at: {words}"),
            format!(
                "kubectl create role leases -n {namespace} --verb=get --resource=leases   # then bind it to yourself"
            ),
        ),
    }
}
