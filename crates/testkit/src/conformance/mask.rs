//! Hides what no two servers have in common: identifiers, versions, times and generated names. A value is hidden as the place
//! where it first appeared, the request and the place among its answer's values, so that it still shows whether two of them are
//! the same.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// What a value is hidden as.
const UID: &str = "uid";
const VERSION: &str = "version";
const NAME: &str = "name";
const TOKEN: &str = "continue";
const CONTAINER: &str = "container";

#[expect(clippy::expect_used, reason = "the patterns are written here")]
static PATTERNS: LazyLock<Regex> = LazyLock::new(|| {
    let patterns = [
        "(?<uid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
        r"(?<time>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z)",
        // Versions in the words of an error.
        r#"(?<prefix>current: |too old resource version: [0-9]+ \(|ResourceVersion in record \(|resourceVersion\\?":\\?")(?<version>[0-9]+)"#,
    ];
    Regex::new(&patterns.join("|")).expect("patterns")
});

/// Ages, as tables print them.
#[expect(clippy::expect_used, reason = "the pattern is written here")]
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^([0-9]+[smhdy])+$").expect("a pattern"));

/// The number of a request and that of a value in its answer, both from one on.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    request: usize,
    value: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.request, self.value)
    }
}

/// The values that were hidden so far in one run of a script.
#[derive(Debug, Default)]
pub struct Mask {
    hidden: BTreeMap<(&'static str, String), Place>,
    /// Where the next new value appears.
    next: Place,
    /// Values that the one who plays the script has made up, by the name of the variable.
    own: Vec<(String, String)>,
}

impl Mask {
    /// Hides `value` as the variable that it was given to the script as.
    pub fn own(&mut self, name: &str, value: &str) {
        self.own.push((format!("{{{{{name}}}}}"), value.to_owned()));
    }

    /// From now on values are those of the answer to the next request.
    pub fn next_request(&mut self) {
        self.next = Place {
            request: self.next.request + 1,
            value: 0,
        };
    }

    pub fn value(&mut self, value: &mut Value) {
        self.note_generated_names(value);
        self.walk(value);
    }

    pub fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (variable, own) in &self.own {
            text = text.replace(own, variable);
        }
        for ((kind, name), place) in &self.hidden {
            if *kind == NAME {
                text = text.replace(name, &format!("{}{{name-{place}}}", stem(name)));
            }
        }
        let replace = |captures: &Captures<'_>| -> String {
            if let Some(uid) = captures.name("uid") {
                self.number(UID, uid.as_str())
            } else if captures.name("time").is_some() {
                "{time}".to_owned()
            } else {
                format!(
                    "{}{{version}}",
                    captures.name("prefix").map_or("", |prefix| prefix.as_str())
                )
            }
        };
        PATTERNS.replace_all(&text, replace).into_owned()
    }

    /// A generated name is known by the object that has it, and turns up elsewhere: in messages, in labels.
    pub fn note_generated_names(&mut self, value: &Value) {
        match value {
            Value::Object(object) => {
                let field = |name: &str| object.get(name).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (field("generateName"), field("name"))
                    && name.starts_with(prefix)
                {
                    self.number(NAME, name);
                }
                object.values().for_each(|value| self.note_generated_names(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.note_generated_names(value)),
            _ => {}
        }
    }

    fn walk(&mut self, value: &mut Value) {
        match value {
            Value::Object(object) => self.object(object),
            Value::Array(values) => values.iter_mut().for_each(|value| self.walk(value)),
            Value::String(text) if AGE.is_match(text) => "{age}".clone_into(text),
            Value::String(text) => *text = self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn object(&mut self, object: &mut Map<String, Value>) {
        order_causes(object);
        // What is listed is numbered; the version of a list is that of the whole server, which others write to as well.
        let is_list = object.contains_key("items") || object.contains_key("rows");
        for (key, value) in object.iter_mut() {
            match (key.as_str(), &mut *value) {
                ("resourceVersion", Value::String(version)) if version.parse::<u64>().is_ok() => {
                    *version = self.number(VERSION, version);
                }
                // It is a digest of the group's name, which differs from run to run.
                ("storageVersionHash", Value::String(hash)) => "{hash}".clone_into(hash),
                ("containerID", Value::String(id)) if !id.is_empty() => *id = self.number(CONTAINER, id),
                // What an image is known as to those who run it, and where in a network a pod and its node are.
                ("imageID", Value::String(id)) if !id.is_empty() => "{image}".clone_into(id),
                ("hostIP" | "podIP" | "ip", Value::String(address)) => "{address}".clone_into(address),
                ("continue", Value::String(token)) if !token.is_empty() => *token = self.number(TOKEN, token),
                ("metadata", Value::Object(metadata)) if is_list => {
                    if let Some(version) = metadata.get_mut("resourceVersion") {
                        *version = "{version}".into();
                    }
                    self.walk_but_version(metadata);
                }
                ("managedFields", Value::Array(entries)) => {
                    // They are ordered by time, and whether two fall into one second is chance.
                    entries.sort_by_key(entry_key);
                    for entry in entries {
                        self.walk(entry);
                    }
                }
                _ => self.walk(value),
            }
        }
        // The fields that somebody owns are named by keys, and such a key may hold the uid of an owner.
        if object.keys().any(|key| PATTERNS.is_match(key)) {
            let named = std::mem::take(object).into_iter();
            *object = named.map(|(key, value)| (self.text(&key), value)).collect();
        }
    }

    fn walk_but_version(&mut self, metadata: &mut Map<String, Value>) {
        if let Some(Value::String(token)) = metadata.get_mut("continue")
            && !token.is_empty()
        {
            *token = self.number(TOKEN, token);
        }
    }

    fn number(&mut self, kind: &'static str, value: &str) -> String {
        let next = &mut self.next;
        let place = *self.hidden.entry((kind, value.to_owned())).or_insert_with(|| {
            next.value += 1;
            *next
        });
        format!("{{{kind}-{place}}}")
    }
}

/// Kubernetes names several causes in the order of a map, which is none. Its message repeats them.
fn order_causes(status: &mut Map<String, Value>) {
    let causes = status
        .get_mut("details")
        .and_then(|details| details.get_mut("causes"));
    let Some(Value::Array(causes)) = causes else {
        return;
    };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_key(ToString::to_string);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let (Some(start), Some(end)) = (message.find('['), message.rfind(']'))
        && start < end
    {
        message.replace_range(start..=end, "[causes]");
    }
}

/// A generated name without what was generated.
fn stem(name: &str) -> &str {
    name.rfind('-')
        .and_then(|end| name.get(..=end))
        .unwrap_or_default()
}

fn entry_key(entry: &Value) -> (String, String, String, String) {
    let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    (
        field("operation"),
        field("manager"),
        field("subresource"),
        field("apiVersion"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_values_stay_equal_and_different_ones_different() {
        let mut mask = Mask::default();
        mask.next_request();
        let mut value = json!([
            {"uid": "00000000-0000-4000-8000-000000000001", "resourceVersion": "7"},
            {"uid": "00000000-0000-4000-8000-000000000002", "resourceVersion": "9"},
            {"uid": "00000000-0000-4000-8000-000000000001", "resourceVersion": "7"},
        ]);

        mask.value(&mut value);

        let one = json!({"uid": "{uid-1.2}", "resourceVersion": "{version-1.1}"});
        let two = json!({"uid": "{uid-1.4}", "resourceVersion": "{version-1.3}"});
        assert_eq!(value, json!([one, two, one]));
    }

    #[test]
    fn a_generated_name_is_hidden_wherever_it_turns_up() {
        let mut mask = Mask::default();
        let mut value =
            json!({"metadata": {"generateName": "g-", "name": "g-x2x2x"}, "message": "g-x2x2x is there"});

        mask.value(&mut value);

        let expected = json!({"metadata": {"generateName": "g-", "name": "g-{name-0.1}"}, "message": "g-{name-0.1} is there"});
        assert_eq!(value, expected);
    }

    #[test]
    fn times_ages_and_the_version_of_a_list_are_hidden() {
        let mut mask = Mask::default();
        mask.own("namespace", "ns-1234");
        let mut value = json!({
            "metadata": {"resourceVersion": "12"},
            "items": [{"at": "2026-01-02T03:04:05.678901Z", "age": "3m12s", "in": "ns-1234", "text": "10 m"}],
        });

        mask.value(&mut value);

        let item = json!({"at": "{time}", "age": "{age}", "in": "{{namespace}}", "text": "10 m"});
        assert_eq!(
            value,
            json!({"metadata": {"resourceVersion": "{version}"}, "items": [item]})
        );
    }

    #[test]
    fn where_a_container_runs_is_hidden_and_whether_it_is_the_same_is_not() {
        let mut value = json!([
            {"containerID": "containerd://0a", "imageID": "sha256:1f", "image": "i:1"},
            {"containerID": "containerd://0b", "imageID": "", "podIPs": [{"ip": "10.88.0.2"}]},
            {"containerID": "containerd://0a", "podIP": "10.88.0.2", "hostIP": "10.0.0.1"},
        ]);

        Mask::default().value(&mut value);

        let expected = json!([
            {"containerID": "{container-0.1}", "imageID": "{image}", "image": "i:1"},
            {"containerID": "{container-0.2}", "imageID": "", "podIPs": [{"ip": "{address}"}]},
            {"containerID": "{container-0.1}", "podIP": "{address}", "hostIP": "{address}"},
        ]);
        assert_eq!(value, expected);
    }

    #[test]
    fn the_order_of_causes_does_not_count() {
        let status = |one: &str, other: &str| {
            json!({
                "message": format!("x is invalid: [{one}, {other}]"),
                "details": {"causes": [{"message": one}, {"message": other}]},
            })
        };
        let (mut one, mut other) = (status("a[0]", "b"), status("b", "a[0]"));

        Mask::default().value(&mut one);
        Mask::default().value(&mut other);

        assert_eq!(one, other);
        assert_eq!(one["message"], "x is invalid: [causes]");
    }

    #[test]
    fn the_order_of_managers_does_not_count() {
        let entry = |manager: &str| json!({"manager": manager, "operation": "Update"});
        let mut one = json!({"managedFields": [entry("a"), entry("b")]});
        let mut other = json!({"managedFields": [entry("b"), entry("a")]});

        Mask::default().value(&mut one);
        Mask::default().value(&mut other);

        assert_eq!(one, other);
    }
}
