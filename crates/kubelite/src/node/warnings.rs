//! Events for what no status tells.
//!
//! A cluster reports every ordinary step as an Event too. Those are left out here: nothing removes old Events, and the
//! status of the Job and of the pod says the same.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    builtin::{Builtin, Endpoint},
    clock,
    error::Reason,
    server::{Client, Expected},
    store::Key,
};

/// The longest message that an Event may carry.
const MESSAGE_BYTES_MAX: usize = 1024;

/// What a warning is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) kind: Builtin,
    pub(super) key: &'a Key,
    pub(super) uid: &'a str,
}

/// Reports a warning. One that is repeated counts up on the Event that is there; one that cannot be stored is in the log.
pub(super) async fn warn(client: &Client, about: About<'_>, reason: &str, message: &str, component: &str) {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message[..end];
    let now = clock::seconds(client.now());
    let event = event(about, reason, message, component, &now);
    let key = Key::new(
        &about.key.namespace,
        event["metadata"]["name"].as_str().unwrap_or(""),
    );
    let mut result = client.create(Builtin::CoreEvent, &key.namespace, event).await;
    if result
        .as_ref()
        .is_err_and(|error| error.reason == Reason::AlreadyExists)
        && let Some(known) = client.store().get(&super::collection(Builtin::CoreEvent), &key)
    {
        let expected = Expected::Uid(&known.meta.uid);
        result = client
            .update(Builtin::CoreEvent, &key, Endpoint::Main, expected, |event| {
                let count = event.get("count").and_then(Value::as_i64).unwrap_or(1);
                event["count"] = count.saturating_add(1).into();
                event["lastTimestamp"] = now.as_str().into();
            })
            .await;
    }
    if let Err(error) = result {
        tracing::warn!(%error, reason, message, "could not store a warning");
    }
}

fn event(about: About<'_>, reason: &str, message: &str, component: &str, now: &str) -> Value {
    let info = about.kind.info();
    let api_version = if info.group.is_empty() {
        info.version.to_owned()
    } else {
        format!("{}/{}", info.group, info.version)
    };
    let mut hash = Sha256::new();
    for part in [about.uid, reason, message] {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    let suffix = digest
        .iter()
        .take(8)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{suffix}", about.key.name)},
        "involvedObject": {
            "apiVersion": api_version, "kind": info.kind, "namespace": &*about.key.namespace, "name": &*about.key.name,
            "uid": about.uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "reportingComponent": component,
        "reportingInstance": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        server::{Config, Server},
        store::{Limits, Store},
    };

    #[tokio::test(start_paused = true)]
    async fn repeated_warning_counts_up_on_one_event() {
        let server = Server::start(Config::new(Store::in_memory(Limits::default())))
            .await
            .unwrap();
        let client = server.client("kube-controller-manager");
        let key = Key::new("default", "j");
        let about = About {
            kind: Builtin::Job,
            key: &key,
            uid: "u",
        };
        let long = "é".repeat(MESSAGE_BYTES_MAX);
        for message in ["no", "no", &long] {
            warn(&client, about, "FailedCreate", message, "job-controller").await;
        }
        let events = client
            .store()
            .snapshot(&super::super::collection(Builtin::CoreEvent), None)
            .unwrap();
        let mut found: Vec<(i64, usize)> = events
            .iter(Some("default"), None)
            .map(|(_, event)| {
                let event = event.value();
                assert_eq!(event["involvedObject"]["kind"], "Job");
                (
                    event["count"].as_i64().unwrap(),
                    event["message"].as_str().unwrap().len(),
                )
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(1, MESSAGE_BYTES_MAX), (2, 2)]);
    }
}
