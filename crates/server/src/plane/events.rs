//! The Events of Kubernetes about an object, read with the caller's token.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1 as meta,
};
use kube::{Api, ResourceExt, api::ListParams};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Caller, ControlPlane, live};
use crate::{refusal::Refusal, told::Time};

/// The most Events of one answer.
pub const EVENTS_MAX: u32 = 200;
pub const EVENTS_DEFAULT: u32 = 25;

/// An Event of Kubernetes about an object, in short.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    pub name: String,
    pub namespace: Option<String>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    pub reason: Option<String>,
    pub action: Option<String>,
    /// How often it happened.
    pub count: Option<i32>,
    pub message: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub first_timestamp: Option<meta::Time>,
    #[schemars(with = "Option<Time>")]
    pub last_timestamp: Option<String>,
    #[schemars(with = "Option<Time>")]
    pub event_time: Option<meta::MicroTime>,
    /// The reference of Kubernetes to the object: kind, namespace, name, uid and more.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub involved_object: ObjectReference,
}

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
    ) -> Result<Vec<EventRecord>, Refusal> {
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
        Ok(found.iter().map(EventRecord::from).collect())
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

impl From<&Event> for EventRecord {
    fn from(event: &Event) -> Self {
        Self {
            name: event.name_any(),
            namespace: event.namespace(),
            type_: event.type_.clone(),
            reason: event.reason.clone(),
            action: event.action.clone(),
            count: event
                .count
                .or_else(|| event.series.as_ref().and_then(|series| series.count)),
            message: event.message.clone(),
            first_timestamp: event.first_timestamp.clone(),
            last_timestamp: last_seen(event).map(|at| at.to_string()),
            event_time: event.event_time.clone(),
            involved_object: event.involved_object.clone(),
        }
    }
}
