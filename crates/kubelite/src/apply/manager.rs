//! The entries of `metadata.managedFields`: one for each manager, operation, subresource and, for updates, version.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value};

use super::{encode, path::FieldSet, shape::Shape, typed::fit_to_schema};

/// How many entries of updates an object may have before the oldest become one, as in Kubernetes: a controller that names
/// itself anew for each write must not make the object grow for ever.
const MAX_UPDATE_ENTRIES: usize = 10;
/// Who owns what the oldest entries owned.
const OLDEST: &str = "ancient-changes";

/// How a manager came to own its fields. In the order in which entries are sorted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::EnumString, strum::IntoStaticStr)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What tells one entry from the others.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Identity<'a> {
    pub(super) manager: &'a str,
    pub(super) operation: Operation,
    /// Empty for an applier, which is the same one whatever version it applies.
    pub(super) version: &'a str,
    pub(super) subresource: &'a str,
}

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.manager)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.version),
        }
    }
}

/// When an entry last took fields: the text, and what it is sorted by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Time<'a> {
    text: &'a str,
    seconds: i64,
}

impl<'a> Time<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let seconds = text.parse::<jiff::Timestamp>().ok()?.as_second();
        Some(Self { text, seconds })
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) manager: &'a str,
    pub(super) operation: Operation,
    pub(super) api_version: &'a str,
    pub(super) subresource: &'a str,
    pub(super) time: Option<Time<'a>>,
    pub(super) fields: FieldSet<'a>,
    /// Where it was read from, as long as nothing in it changed.
    pub(super) stored_at: Option<usize>,
}

impl<'a> Entry<'a> {
    pub(super) fn identity(&self) -> Identity<'a> {
        let version = match self.operation {
            Operation::Apply => "",
            Operation::Update => self.api_version,
        };
        Identity {
            manager: self.manager,
            operation: self.operation,
            version,
            subresource: self.subresource,
        }
    }

    fn seconds(&self) -> i64 {
        self.time.map_or(0, |time| time.seconds)
    }

    fn decode(position: usize, entry: &'a Value) -> Option<Self> {
        let entry = entry.as_object()?;
        let text = |name: &str| match entry.get(name) {
            None | Some(Value::Null) => Some(""),
            Some(value) => value.as_str(),
        };
        let time = match text("time")? {
            "" => None,
            time => Some(Time::parse(time)?),
        };
        let operation = text("operation")?.parse().ok()?;
        let api_version = text("apiVersion")?;
        if api_version.is_empty() || text("fieldsType")? != "FieldsV1" {
            return None;
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => encode::decode(fields).ok()?,
        };
        let (manager, subresource) = (text("manager")?, text("subresource")?);
        Some(Self {
            manager,
            operation,
            api_version,
            subresource,
            time,
            fields,
            stored_at: Some(position),
        })
    }

    fn encode(&self) -> Value {
        let operation: &str = self.operation.into();
        let texts = [
            ("apiVersion", self.api_version),
            ("fieldsType", "FieldsV1"),
            ("manager", self.manager),
            ("operation", operation),
            ("subresource", self.subresource),
            ("time", self.time.map_or("", |time| time.text)),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let mut entry: Map<String, Value> = texts
            .map(|(name, text)| (name.to_owned(), Value::from(text)))
            .collect();
        entry.insert("fieldsV1".to_owned(), encode::encode(&self.fields));
        Value::Object(entry)
    }

    /// Takes fields away from the manager.
    pub(super) fn lose(&mut self, fields: &FieldSet<'_>) {
        if self.fields.subtract(fields) {
            self.stored_at = None;
        }
    }
}

/// An entry of the list to store: one of the list it was read from, or a new one.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    Stored(usize),
    Written(Value),
}

/// Reads `metadata.managedFields`. Nothing, if any entry of it makes no sense.
pub(super) fn decode(managed: &Value) -> Option<Vec<Entry<'_>>> {
    let stored = managed.as_array()?.iter().enumerate();
    let mut entries: Vec<Entry<'_>> = stored
        .map(|(position, entry)| Entry::decode(position, entry))
        .collect::<Option<_>>()?;
    // Of two entries of one manager, the later counts.
    entries.reverse();
    entries.sort_by_key(Entry::identity);
    entries.dedup_by_key(|entry| entry.identity());
    Some(entries)
}

/// Whether the list asks to forget all owners: an empty list, or one entry that says nothing.
pub(super) fn is_reset(managed: &Value) -> bool {
    const NAMES: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    match managed.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => NAMES.iter().all(|name| {
            entry
                .get(*name)
                .is_none_or(|value| value.is_null() || value.as_str() == Some(""))
        }),
        _ => false,
    }
}

/// Fits all entries to the schema of today.
pub(super) fn fit(entries: &mut [Entry<'_>], shape: Shape<'_>) {
    for entry in entries {
        if fit_to_schema(shape, &mut entry.fields) {
            entry.stored_at = None;
        }
    }
}

/// Adds what a write took to the entry of its writer.
pub(super) fn take<'a>(entries: &mut Vec<Entry<'a>>, taken: Entry<'a>) {
    let identity = taken.identity();
    if let Some(entry) = entries.iter_mut().find(|entry| entry.identity() == identity) {
        let before = std::mem::take(&mut entry.fields);
        *entry = Entry {
            fields: before.union(taken.fields),
            ..taken
        };
    } else {
        entries.push(taken);
    }
}

/// Makes one of the oldest entries of updates, by version, until there are few enough.
pub(super) fn cap(entries: &mut Vec<Entry<'_>>) {
    let count = entries
        .iter()
        .filter(|entry| entry.operation == Operation::Update)
        .count();
    let mut excess = count.saturating_sub(MAX_UPDATE_ENTRIES);
    if excess == 0 {
        return;
    }
    entries.sort_by_key(|entry| (entry.seconds(), entry.identity()));
    let mut kept: Vec<Entry<'_>> = Vec::with_capacity(entries.len());
    let mut oldest_of_version: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries.drain(..) {
        if excess == 0 || entry.operation == Operation::Apply {
            kept.push(entry);
            continue;
        }
        let at = *oldest_of_version.entry(entry.api_version).or_insert(kept.len());
        match kept.get_mut(at) {
            Some(oldest) => {
                oldest.manager = OLDEST;
                oldest.subresource = "";
                absorb(oldest, entry);
                excess -= 1;
            }
            None => kept.push(entry),
        }
    }
    // An older write of the same name may have made such an entry before.
    kept.sort_by_key(|entry| (entry.identity(), entry.seconds()));
    kept.dedup_by(|later, earlier| {
        let same = later.identity() == earlier.identity();
        if same {
            absorb(earlier, later.clone());
        }
        same
    });
    *entries = kept;
}

/// Gives one entry the fields of a more recent one.
fn absorb<'a>(entry: &mut Entry<'a>, newer: Entry<'a>) {
    entry.fields = std::mem::take(&mut entry.fields).union(newer.fields);
    entry.time = newer.time;
    entry.stored_at = None;
}

/// The list to store, sorted as Kubernetes sorts it. Who owns nothing any more has no entry.
pub(super) fn finish(mut entries: Vec<Entry<'_>>) -> Vec<Slot> {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by_key(|entry| {
        (
            entry.operation,
            entry.seconds(),
            entry.manager,
            entry.api_version,
            entry.subresource,
        )
    });
    entries
        .iter()
        .map(|entry| {
            entry
                .stored_at
                .map_or_else(|| Slot::Written(entry.encode()), Slot::Stored)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(changes: &Value) -> Value {
        let mut entry = json!({
            "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}},
        });
        let changes = changes.as_object().cloned().unwrap_or_default();
        entry.as_object_mut().expect("an object").extend(changes);
        entry
    }

    #[test]
    fn entries_survive_a_round_trip() {
        let managed = json!([
            entry(&json!({"operation": "Apply", "subresource": "status"})),
            entry(&json!({})),
            {"operation": "Update", "apiVersion": "v2", "fieldsType": "FieldsV1", "fieldsV1": {"f:b": {}}},
        ]);
        for decoded in decode(&managed).expect("valid entries") {
            let at = decoded.stored_at.expect("as stored");
            assert_eq!(decoded.encode(), managed[at]);
        }
    }

    #[test]
    fn a_list_with_an_entry_that_makes_no_sense_is_not_read() {
        assert!(decode(&json!([entry(&json!({}))])).is_some());
        for change in [
            json!({"operation": "Delete"}),
            json!({"operation": null}),
            json!({"apiVersion": ""}),
            json!({"fieldsType": "FieldsV2"}),
            json!({"fieldsV1": []}),
            json!({"time": "yesterday"}),
            json!({"manager": 1}),
        ] {
            assert!(
                decode(&json!([entry(&json!({})), entry(&change)])).is_none(),
                "{change}"
            );
        }
        assert!(decode(&json!([1])).is_none());
        assert!(decode(&json!({})).is_none());
    }

    #[test]
    fn only_an_empty_list_or_one_empty_entry_forgets_the_owners() {
        for reset in [json!([]), json!([{}]), json!([{"manager": "", "fieldsV1": null}])] {
            assert!(is_reset(&reset), "{reset}");
        }
        for kept in [
            json!(null),
            json!([{}, {}]),
            json!([{"manager": "m"}]),
            json!([null]),
        ] {
            assert!(!is_reset(&kept), "{kept}");
        }
    }

    #[test]
    fn times_with_an_offset_are_sorted_by_the_moment() {
        let managed = json!([
            entry(&json!({"manager": "late", "time": "2026-01-02T03:04:06Z"})),
            entry(&json!({"manager": "early", "time": "2026-01-02T05:04:05+02:00"})),
        ]);
        let slots = finish(decode(&managed).expect("valid entries"));
        assert!(
            matches!(slots.as_slice(), [Slot::Stored(1), Slot::Stored(0)]),
            "{slots:?}"
        );
    }

    #[test]
    fn the_oldest_join_those_who_joined_before() {
        let name = |number: u32| format!("m{number:02}");
        let mut managed: Vec<Value> = (0..11)
            .map(|number| entry(&json!({"manager": name(number)})))
            .collect();
        managed.push(entry(&json!({"manager": OLDEST, "fieldsV1": {"f:old": {}}})));
        let managed = Value::from(managed);
        let mut entries = decode(&managed).expect("valid entries");
        cap(&mut entries);
        assert_eq!(entries.len(), MAX_UPDATE_ENTRIES);
        let oldest = entries
            .iter()
            .find(|entry| entry.manager == OLDEST)
            .expect("an entry for the oldest");
        assert_eq!(oldest.fields.all_paths(), [".a", ".old"]);
    }
}
