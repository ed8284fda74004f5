//! Events in their two dresses: `v1`, in which they are stored, and `events.k8s.io/v1`.

use serde_json::Value;

/// `v1` name and `events.k8s.io/v1` name of every member that has two.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// An `events.k8s.io/v1` event as the `v1` event that it is stored as.
pub fn to_core(event: &Value) -> Value {
    convert(event, "v1", |name| {
        RENAMED
            .iter()
            .find(|(_, new)| *new == name)
            .map(|(core, _)| *core)
    })
}

/// A stored `v1` event as an `events.k8s.io/v1` event.
pub fn to_events_v1(event: &Value) -> Value {
    let mut event = convert(event, "events.k8s.io/v1", |name| {
        RENAMED
            .iter()
            .find(|(core, _)| *core == name)
            .map(|(_, new)| *new)
    });
    // In this dress an empty controller or instance is left out, and a time that was never set is not.
    if let Some(event) = event.as_object_mut() {
        for name in ["reportingController", "reportingInstance"] {
            if event.get(name).is_some_and(|text| text == "") {
                event.remove(name);
            }
        }
    }
    event
}

fn convert(event: &Value, api_version: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(members) = event.as_object() else {
        return event.clone();
    };
    members
        .iter()
        .map(|(name, value)| match name.as_str() {
            "apiVersion" => (name.clone(), api_version.into()),
            other => (rename(other).unwrap_or(other).to_owned(), value.clone()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{Builtin, decode},
        *,
    };

    fn core() -> Value {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "n"}, "message": "it started",
            "reason": "Started", "source": {"component": "kubelet", "host": "one"}, "count": 3, "type": "Normal",
            "firstTimestamp": "2024-05-01T12:00:00Z", "lastTimestamp": "2024-05-01T12:01:00Z",
        });
        decode(Builtin::CoreEvent, &mut event).unwrap();
        event
    }

    #[test]
    fn a_core_event_survives_the_way_there_and_back() {
        let event = core();
        let mut there = to_events_v1(&event);
        assert_eq!(there["apiVersion"], "events.k8s.io/v1");
        assert_eq!(there["regarding"]["name"], "p");
        assert_eq!(there["note"], "it started");
        assert_eq!(there["deprecatedCount"], 3);
        assert_eq!(there["eventTime"], Value::Null);
        assert!(there.get("reportingController").is_none());
        decode(Builtin::Event, &mut there).unwrap();
        let mut back = to_core(&there);
        decode(Builtin::CoreEvent, &mut back).unwrap();
        assert_eq!(back, event);
    }

    #[test]
    fn a_new_event_survives_the_way_there_and_back() {
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "eventTime": "2024-05-01T12:00:00.000001Z", "regarding": {"kind": "Pod"}, "note": "text", "action": "Run",
            "reason": "Ran", "reportingController": "example.com/c", "reportingInstance": "c-0", "type": "Normal",
            "series": {"count": 2, "lastObservedTime": "2024-05-01T12:00:01.000000Z"},
            "related": {"kind": "Node", "name": "one"},
        });
        decode(Builtin::Event, &mut event).unwrap();
        let stored = to_core(&event);
        assert_eq!(stored["reportingComponent"], "example.com/c");
        assert_eq!(stored["involvedObject"], json!({"kind": "Pod"}));
        assert_eq!(stored["series"], event["series"]);
        assert_eq!(to_events_v1(&stored), event);
    }
}
