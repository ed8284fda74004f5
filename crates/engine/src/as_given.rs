//! Parts of a pod's spec that people write as Kubernetes has them, in a setting or in a run: read and checked in one place,
//! and passed on as they were given.
//!
//! The types of Kubernetes in this program are those of one release, and drop the fields they do not know. Dropping them
//! would take away what somebody asked for, and refusing them would tie the product to that release. So what was given is
//! kept beside what was understood of it, and whether a field exists is for the API server to say.

use std::fmt;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::Error as _};
use serde_json::Value;

use crate::settings::is_label_key;

/// A value of a type of Kubernetes, and the JSON that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct AsGiven<T> {
    typed: T,
    json: Value,
}

/// Why something is no value of a type of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// Where, from the beginning of what was given; empty if it is wrong as a whole.
    pub(crate) path: String,
    pub(crate) error: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.error)
    }
}

impl<T: DeserializeOwned + Serialize> AsGiven<T> {
    /// Reads a value. Fields that the type does not know are no mistake.
    pub(crate) fn read(json: &Value) -> Result<Self, Unfit> {
        let typed = serde_path_to_error::deserialize(json).map_err(|error| Unfit {
            path: match error.path().to_string().as_str() {
                // How serde_path_to_error writes the document itself.
                "." => String::new(),
                path => path.to_owned(),
            },
            error: error.inner().to_string(),
        })?;
        Ok(Self {
            typed,
            json: json.clone(),
        })
    }

    /// The first field of what was given that the type does not know, if there is one.
    pub(crate) fn unknown_field(&self) -> Option<String> {
        // What was read from JSON can be written as JSON.
        let kept = serde_json::to_value(&self.typed).unwrap_or_default();
        first_lost(&self.json, &kept, "")
    }

    /// Sets a field, whatever was given for it.
    pub(crate) fn set<V: Serialize>(&mut self, field: &str, value: V, set: impl FnOnce(&mut T, V)) {
        if let (Some(fields), Ok(json)) = (self.json.as_object_mut(), serde_json::to_value(&value)) {
            fields.insert(field.to_owned(), json);
        }
        set(&mut self.typed, value);
    }
}

impl<T> AsGiven<T> {
    /// What was understood of it.
    pub(crate) const fn typed(&self) -> &T {
        &self.typed
    }

    pub(crate) const fn json(&self) -> &Value {
        &self.json
    }

    /// Whether it says nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        says_nothing(&self.json)
    }
}

impl<'de, T: DeserializeOwned + Serialize> Deserialize<'de> for AsGiven<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        Self::read(&json).map_err(D::Error::custom)
    }
}

/// Reads a constraint of topology spread, and checks what every version of Kubernetes asks of one.
pub(crate) fn topology_spread_constraint(json: &Value) -> Result<AsGiven<TopologySpreadConstraint>, Unfit> {
    let given = AsGiven::<TopologySpreadConstraint>::read(json)?;
    let constraint = given.typed();
    let lacks = |field: &str, error: &str| {
        Err(Unfit {
            path: field.to_owned(),
            error: error.to_owned(),
        })
    };
    if constraint.max_skew < 1 {
        return lacks("maxSkew", "at least 1 is required");
    }
    if !is_label_key(&constraint.topology_key) {
        return lacks("topologyKey", "the key of a label of nodes is required");
    }
    if !["DoNotSchedule", "ScheduleAnyway"].contains(&constraint.when_unsatisfiable.as_str()) {
        return lacks("whenUnsatisfiable", "DoNotSchedule or ScheduleAnyway is required");
    }
    Ok(given)
}

/// The first field of what was given that is not in what was kept of it. JSON is read to a depth of at most 128, which
/// bounds the recursion.
fn first_lost(given: &Value, kept: &Value, at: &str) -> Option<String> {
    match given {
        Value::Object(fields) => {
            fields
                .iter()
                .filter(|(_, value)| !says_nothing(value))
                .find_map(|(name, value)| {
                    let at = if at.is_empty() {
                        name.clone()
                    } else {
                        format!("{at}.{name}")
                    };
                    match kept.get(name) {
                        None => Some(at),
                        Some(kept) => first_lost(value, kept, &at),
                    }
                })
        }
        Value::Array(items) => items
            .iter()
            .zip(kept.as_array()?)
            .enumerate()
            .find_map(|(index, (given, kept))| first_lost(given, kept, &format!("{at}[{index}]"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Null and what is empty may be left out by the types of Kubernetes.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Affinity, Toleration};
    use serde_json::json;

    use super::*;

    fn unfit<T: DeserializeOwned + Serialize + fmt::Debug>(json: &Value) -> String {
        AsGiven::<T>::read(json).expect_err("it is wrong").path
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_with_its_place() {
        assert_eq!(unfit::<Toleration>(&json!({"key": 1})), "key");
        assert_eq!(unfit::<Toleration>(&json!(7)), "");
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": 5}});
        assert_eq!(
            unfit::<Affinity>(&affinity),
            "nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
        );
    }

    #[test]
    fn a_field_that_the_types_do_not_know_is_found_and_kept() {
        for (json, unknown) in [
            (
                json!({"nodeAffinity": {"newer": [1]}}),
                Some("nodeAffinity.newer"),
            ),
            (
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topology": "a"}]}}),
                Some("podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topology"),
            ),
            (json!({"nodeAffinity": {}, "podAffinity": null}), None),
        ] {
            let given = AsGiven::<Affinity>::read(&json).expect("it is no mistake");
            assert_eq!(given.unknown_field().as_deref(), unknown);
            assert_eq!(*given.json(), json);
        }
    }

    #[test]
    fn a_constraint_of_topology_spread_has_what_kubernetes_requires_and_may_have_more() {
        let newer =
            json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "new": [1]});
        let given = topology_spread_constraint(&newer).expect("a field of a newer version passes through");
        assert_eq!(*given.json(), newer);
        for (json, path) in [
            (
                json!({"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}),
                "maxSkew",
            ),
            (
                json!({"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}),
                "topologyKey",
            ),
            (
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"}),
                "whenUnsatisfiable",
            ),
            (json!({"maxSkew": "1", "topologyKey": "zone"}), "maxSkew"),
            (json!(1), ""),
        ] {
            let unfit = topology_spread_constraint(&json).expect_err("it is wrong");
            assert_eq!(unfit.path, path, "{json}");
        }
    }
}
