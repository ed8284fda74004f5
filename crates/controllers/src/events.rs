//! Tells people what happened to an object, as `events.k8s.io/v1` Events.
//!
//! The Event's name follows from what it says and about which object, so that saying the same thing again, after a crash or
//! a lost answer, meets the first Event and makes no second. The recorder of kube-runtime cannot do that: it names Events
//! after the time of day and remembers what it said in the memory of one process. The price is that a thing that truly
//! happens twice to one object in the same words is told once for as long as the API server keeps the Event, an hour unless
//! it is told otherwise.
//!
//! Events wait in an [`Outbox`](crate::outbox::Outbox), so that no work waits for one.
//!
//! An Event that cannot be published is logged and counted, and that is all. What happened is recorded in the object's
//! status, which is written before; an Event repeats it for those who watch. Failing the pass for it would stop work over a
//! message, and a full quota of Events, say, would then stop all of it.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use jangar_engine::decision::{Notice, Severity};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};

use crate::{
    lease::{Gate, Identity, WriteError},
    metrics::{EventResult, Metrics, ObjectKind, RequestResult, Verb},
};

/// Who tells: all processes of the controllers under one name.
pub const REPORTING_CONTROLLER: &str = "jangar.proompteng.ai/controllers";
/// What was being done. Events must say; ours differ in their reasons.
const ACTION: &str = "Reconcile";
/// The API server takes no longer note.
const NOTE_BYTES_MAX: usize = 1024;
/// Stands where a note was cut.
const CUT: &str = "…";
/// The most that the name of an object may have.
const NAME_BYTES_MAX: usize = 253;
/// Bytes of the hash in the name of an Event, two hexadecimal digits each. Eight tell the few Events of one object apart.
const HASH_BYTES: usize = 8;
/// Where Events about objects without a namespace go, by the custom of Kubernetes.
const DEFAULT_NAMESPACE: &str = "default";

/// Publishes Events in the name of one process.
#[derive(Clone)]
pub struct Reporter {
    client: Client,
    identity: Identity,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Reporter {
    pub fn new(client: Client, identity: Identity, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            identity,
            metrics,
        }
    }

    /// Tells a notice about an object, which came at this time. `about` is what `Resource::object_ref` makes of it, with its UID.
    pub async fn publish(&self, gate: &Gate, about: &ObjectReference, notice: &Notice, at: Timestamp) {
        let event = event(about, notice, &self.identity, at);
        let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PostParams::default();

        let answer = gate.write(api.create(&parameters, &event)).await;

        let request = match &answer {
            Ok(_) => RequestResult::Done,
            Err(error) => RequestResult::from(error),
        };
        self.metrics
            .request(Verb::Create, ObjectKind::of::<Event>(), request);
        self.metrics.event(match answer {
            Ok(_) => EventResult::Published,
            Err(WriteError::Api(kube::Error::Api(status))) if status.is_already_exists() => {
                EventResult::Repeated
            }
            Err(error) => {
                tracing::warn!(
                    %namespace,
                    kind = about.kind.as_deref().unwrap_or_default(),
                    name = about.name.as_deref().unwrap_or_default(),
                    reason = %notice.reason,
                    %error,
                    "could not publish an Event"
                );
                EventResult::Dropped
            }
        });
    }
}

/// The Event that tells a notice about an object.
fn event(about: &ObjectReference, notice: &Notice, identity: &Identity, at: Timestamp) -> Event {
    let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let type_ = match notice.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(name(about, notice)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(ACTION.to_owned()),
        event_time: Some(MicroTime(at)),
        note: Some(note(&notice.message)),
        reason: Some(notice.reason.as_str().to_owned()),
        regarding: Some(about.clone()),
        reporting_controller: Some(REPORTING_CONTROLLER.to_owned()),
        reporting_instance: Some(identity.as_str().to_owned()),
        type_: Some(type_.to_owned()),
        ..Event::default()
    }
}

/// `<name of the object>.<hash>`. The object's name is there for people, and gives way if both do not fit.
fn name(about: &ObjectReference, notice: &Notice) -> String {
    let object = about.name.as_deref().unwrap_or_default();
    let hash = hash(&[
        about.kind.as_deref().unwrap_or_default(),
        object,
        about.uid.as_deref().unwrap_or_default(),
        notice.reason.as_str(),
        &notice.message,
    ]);
    let room = NAME_BYTES_MAX - 1 - hash.len();
    // What is cut may end in a dot or a dash, after which no dot may come.
    let stem = cut(object, room).trim_end_matches(['.', '-']);
    if stem.is_empty() {
        hash
    } else {
        format!("{stem}.{hash}")
    }
}

fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        // No part contains it, so that no two lists of parts come to the same.
        hasher.update([0]);
    }
    let mut hex = String::new();
    for byte in hasher.finalize().iter().take(HASH_BYTES) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The message as far as a note can hold it.
fn note(message: &str) -> String {
    if message.len() <= NOTE_BYTES_MAX {
        return message.to_owned();
    }
    format!("{}{CUT}", cut(message, NOTE_BYTES_MAX - CUT.len()))
}

/// The beginning of a text, at most so many bytes, ending between two characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = text.floor_char_boundary(bytes_max);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use jangar_api::reason::Reason;
    use jangar_engine::decision::Uid;

    use super::*;

    fn about() -> ObjectReference {
        ObjectReference {
            kind: Some("AgentRun".to_owned()),
            name: Some("fix-it".to_owned()),
            namespace: Some("agents".to_owned()),
            uid: Some("11111111-2222-3333-4444-555555555555".to_owned()),
            ..ObjectReference::default()
        }
    }

    fn notice() -> Notice {
        Notice {
            regarding: Uid("11111111-2222-3333-4444-555555555555".to_owned()),
            severity: Severity::Warning,
            reason: Reason::JobMissing,
            message: "Job fix-it-1 is gone".to_owned(),
        }
    }

    #[test]
    fn name_follows_from_the_object_and_what_is_said() {
        let first = name(&about(), &notice());
        assert!(first.starts_with("fix-it."), "{first}");
        assert_eq!(first, name(&about(), &notice()));

        let reason = Notice {
            reason: Reason::JobFailed,
            ..notice()
        };
        let message = Notice {
            message: "Job fix-it-2 is gone".to_owned(),
            ..notice()
        };
        let successor = ObjectReference {
            uid: Some("99999999-2222-3333-4444-555555555555".to_owned()),
            ..about()
        };
        for other in [
            name(&about(), &reason),
            name(&about(), &message),
            name(&successor, &notice()),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn name_of_an_event_about_a_long_name_is_legal() {
        // The cut falls behind the dot.
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let object = ObjectReference {
            name: Some(long),
            ..about()
        };
        let name = name(&object, &notice());
        assert!(name.len() <= NAME_BYTES_MAX, "{}", name.len());
        assert!(!name.contains(".."), "{name}");
    }

    #[test]
    fn long_message_is_cut_between_characters() {
        let message = "ü".repeat(600);
        let note = note(&message);
        assert!(note.len() <= NOTE_BYTES_MAX, "{}", note.len());
        assert!(note.ends_with("ü…"));
        let fits = "x".repeat(NOTE_BYTES_MAX);
        assert_eq!(super::note(&fits), fits);
    }
}
