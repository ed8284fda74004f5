//! Servers that overlook something, one for each area of the corpus. If the corpus does not notice, it says nothing about that
//! area.
//!
//! To overlook a part of a request is the same as never to have got it, so such a defect takes that part away before the
//! request is sent. Where a server would only repeat what it was sent, that shows nothing, so there the defect is in what it
//! answers.

use serde_json::Value;

use super::run::{Between, Incoming, Outgoing};

/// One way to be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    pub area: &'static str,
    /// What such a server overlooks.
    pub overlooks: &'static str,
    plant: Plant,
}

#[derive(Clone, Copy, Debug)]
enum Plant {
    Request(fn(&mut Outgoing)),
    Answer(fn(&mut Incoming)),
    /// A watch says no more after so many events.
    Watch(usize),
}

impl Between for Defect {
    fn request(&self, request: &mut Outgoing) {
        if let Plant::Request(change) = self.plant {
            change(request);
        }
    }

    fn answer(&self, answer: &mut Incoming) {
        if let Plant::Answer(change) = self.plant {
            change(answer);
        }
    }

    fn events_max(&self) -> usize {
        match self.plant {
            Plant::Watch(events) => events,
            Plant::Request(_) | Plant::Answer(_) => usize::MAX,
        }
    }
}

use Plant::{Answer, Request, Watch};

#[rustfmt::skip] // It is read as a table.
pub const DEFECTS: &[Defect] = &[
    Defect { area: "apply", overlooks: "that nobody asked for force", plant: Request(|r| if r.is_apply() { r.set("force", "true") }) },
    Defect { area: "builtins", overlooks: "that a map must not change", plant: Request(|r| r.without("immutable")) },
    Defect { area: "create", overlooks: "the version that a new object has already", plant: Request(|r| r.without("resourceVersion")) },
    Defect { area: "defaulting", overlooks: "a default that is due", plant: Answer(|a| if a.status == 201 { a.without_at("/spec", "size") }) },
    Defect { area: "definitions", overlooks: "what is wrong with a definition", plant: Answer(|a| if a.method == "POST" && a.status == 422 { a.status = 201 }) },
    Defect { area: "deletion", overlooks: "preconditions", plant: Request(|r| r.without("preconditions")) },
    Defect { area: "discovery", overlooks: "short names", plant: Answer(|a| a.without("shortNames")) },
    Defect { area: "dry-run", overlooks: "that nothing must change", plant: Request(|r| r.unset("dryRun")) },
    Defect { area: "forms", overlooks: "how much of an object is wanted", plant: Request(|r| r.unset("includeObject")) },
    Defect { area: "jobs", overlooks: "which failures end a Job", plant: Request(|r| r.without("podFailurePolicy")) },
    Defect { area: "list", overlooks: "how long a page may be", plant: Request(|r| r.unset("limit")) },
    Defect { area: "metadata", overlooks: "annotations", plant: Answer(|a| a.without_at("/metadata", "annotations")) },
    Defect { area: "namespaces", overlooks: "who holds what is in a namespace", plant: Request(|r| r.without("finalizers")) },
    Defect { area: "owners", overlooks: "whom an owner waits for", plant: Request(|r| r.without("blockOwnerDeletion")) },
    Defect { area: "patch", overlooks: "that null takes away", plant: Request(Outgoing::without_nulls) },
    Defect { area: "rules", overlooks: "rules about the past", plant: Request(|r| r.without_text("oldSelf")) },
    Defect { area: "schema", overlooks: "patterns", plant: Request(|r| r.without("pattern")) },
    Defect { area: "selectors", overlooks: "which labels are wanted", plant: Request(|r| r.unset("labelSelector")) },
    Defect { area: "strict", overlooks: "how fields are to be checked", plant: Request(|r| r.unset("fieldValidation")) },
    Defect { area: "update", overlooks: "which version is written over", plant: Request(|r| r.without("resourceVersion")) },
    Defect { area: "watch", overlooks: "the second event", plant: Watch(1) },
    Defect { area: "watch", overlooks: "where a watch begins", plant: Request(|r| r.unset("resourceVersion")) },
];

impl Outgoing {
    fn is_apply(&self) -> bool {
        let content = self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        content.is_some_and(|(_, value)| value.contains("apply"))
    }

    fn unset(&mut self, parameter: &str) {
        if let Some((path, query)) = self.path.split_once('?') {
            let named = |pair: &&str| pair.split('=').next() != Some(parameter);
            let rest: Vec<_> = query.split('&').filter(named).collect();
            self.path = format!("{path}?{}", rest.join("&"));
        }
    }

    fn set(&mut self, parameter: &str, value: &str) {
        self.unset(parameter);
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}{parameter}={value}", self.path);
    }

    /// Takes a field away, wherever it is. A body that is no JSON stays as it is.
    fn without(&mut self, field: &str) {
        self.edit(&|object| {
            object.remove(field);
        });
    }

    fn without_nulls(&mut self) {
        self.edit(&|object| object.retain(|_, value| !value.is_null()));
    }

    /// Takes away every rule that has this text in it.
    fn without_text(&mut self, text: &str) {
        self.edit(&|object| {
            if let Some(Value::Array(rules)) = object.get_mut("x-kubernetes-validations") {
                rules.retain(|rule| !rule.to_string().contains(text));
            }
        });
    }

    fn edit(&mut self, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
        if let Ok(mut body) = serde_json::from_str(&self.body) {
            everywhere(&mut body, change);
            self.body = body.to_string();
        }
    }
}

impl Incoming {
    /// Takes a field away, wherever it is.
    fn without(&mut self, field: &str) {
        everywhere(&mut self.body, &|object| {
            object.remove(field);
        });
    }

    /// Takes a field away from the object that is there.
    fn without_at(&mut self, pointer: &str, field: &str) {
        if let Some(Value::Object(object)) = self.body.pointer_mut(pointer) {
            object.remove(field);
        }
    }
}

fn everywhere(value: &mut Value, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| everywhere(value, change));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| everywhere(value, change)),
        _ => {}
    }
}
