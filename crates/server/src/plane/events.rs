//! The Events of Kubernetes about an object, read with the caller's token.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use super::{Caller, ControlPlane, live};
use crate::refusal::Refusal;

/// The most Events of one answer.
pub const EVENTS_MAX: u32 = 200;
pub const EVENTS_DEFAULT: u32 = 25;

impl ControlPlane {
    /// The Events about an object, the latest first.
    pub async fn events(
        &self,
        caller: &Caller,
        namespace: &str,
        kind: &str,
        name: &str,
        uid: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Value>, Refusal> {
        let limit = match limit {
            0 => EVENTS_DEFAULT,
            limit if limit <= EVENTS_MAX => limit,
            _ => {
                return Err(
                    Refusal::field("limit", limit, "more than 200 are not listed at once")
                        .remedy("give a number from 1 to 200"),
                );
            }
        };
        let mut fields = vec![
            format!("involvedObject.kind={kind}"),
            format!("involvedObject.name={name}"),
        ];
        fields.extend(uid.map(|uid| format!("involvedObject.uid={uid}")));
        let events: Api<Event> = Api::namespaced(caller.identity.client(), namespace);
        let params = ListParams::default().fields(&fields.join(","));
        let mut found = live(events.list(&params)).await?.items;
        found.sort_by_key(|event| std::cmp::Reverse(last_seen(event)));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found.iter().map(told).collect())
    }
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.max(micro)
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn told(event: &Event) -> Value {
    json!({
        "name": event.name_any(),
        "namespace": event.namespace(),
        "type": event.type_,
        "reason": event.reason,
        "action": event.action,
        "count": event.count.or_else(|| event.series.as_ref().and_then(|series| series.count)),
        "message": event.message,
        "firstTimestamp": event.first_timestamp,
        "lastTimestamp": last_seen(event).map(|at| at.to_string()),
        "eventTime": event.event_time,
        "involvedObject": event.involved_object,
    })
}
