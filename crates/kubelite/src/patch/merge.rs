//! JSON merge patch (RFC 7396), with the two habits of the library inside kube-apiserver: null members vanish from objects
//! inside a list as well, and `null` is no patch.

use serde_json::{Map, Value};

use crate::patch::{PatchError, discard_nulls, object_from};

/// Applies a merge patch. No level is added to the object that neither it nor the patch has, so the decoder's bound on
/// nesting holds for the result, and for the recursion here.
pub fn apply(mut live: Value, body: &[u8]) -> Result<Value, PatchError> {
    let Value::Object(patch) = object_from(body, "error decoding patch: ")? else {
        return Err(PatchError::Malformed("Invalid JSON Patch".to_owned()));
    };
    if let Value::Object(members) = &mut live {
        merge(members, patch);
        Ok(live)
    } else {
        Err(PatchError::DoesNotApply(
            "the stored object is no JSON object".to_owned(),
        ))
    }
}

/// As `apply`, but for what the patch takes away.
pub(crate) fn apply_without_nulls(live: Value, body: &[u8]) -> Result<Value, PatchError> {
    let mut patch = object_from(body, "error decoding patch: ")?;
    discard_nulls(&mut patch);
    apply(live, patch.to_string().as_bytes())
}

fn merge(live: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        if value.is_null() {
            live.remove(&name);
            continue;
        }
        match (live.get_mut(&name), value) {
            (Some(Value::Object(members)), Value::Object(changes)) => merge(members, changes),
            // What takes the place of an object is taken as it is.
            (Some(slot @ Value::Object(_)), other) => *slot = other,
            (_, mut other) => {
                discard_nulls(&mut other);
                live.insert(name, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_merged_replaced_and_removed() {
        for (live, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": "b"}), json!({"x": null}), json!({"a": "b"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (
                json!({"a": "c"}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null, "d": 1}}}),
                json!({"a": {"bb": {"d": 1}}}),
            ),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({"e": null}), json!({"e": {"x": null}}), json!({"e": {}})),
            (
                json!({}),
                json!({"l": [null, {"x": null, "y": 1}]}),
                json!({"l": [null, {"y": 1}]}),
            ),
            (
                json!({"l": {}}),
                json!({"l": [{"x": null}]}),
                json!({"l": [{"x": null}]}),
            ),
            (json!({"a": 1}), json!({}), json!({"a": 1})),
        ] {
            let result = apply(live.clone(), patch.to_string().as_bytes());
            assert_eq!(result, Ok(expected), "{live} + {patch}");
        }
    }

    #[test]
    fn only_an_object_is_a_merge_patch() {
        for (body, message) in [
            ("null", "Invalid JSON Patch"),
            (
                "[1]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ] {
            let expected = PatchError::Malformed(message.to_owned());
            assert_eq!(apply(json!({}), body.as_bytes()), Err(expected), "{body}");
        }
        assert!(matches!(apply(json!({}), b"{"), Err(PatchError::Malformed(_))));
        let deep = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
        assert!(matches!(
            apply(json!({}), deep.as_bytes()),
            Err(PatchError::Malformed(_))
        ));
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in any::<Vec<u8>>(), text in "[\\[\\]{}\":,0-9a-c]{0,40}") {
            let live = json!({"a": {"b": 1}, "c": [1]});
            let _ = apply(live.clone(), &body);
            let _ = apply(live, text.as_bytes());
        }
    }
}
