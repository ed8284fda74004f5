//! The part of an object's metadata that the store itself needs: selectors, ownership and deletion are decided on it
//! without parsing the object.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    pub uid: String,
    pub labels: Labels,
    pub owners: Vec<Owner>,
    pub finalizers: Vec<String>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// `metadata.labels`, sorted by name. Every object in memory has some, so they take no more room than they need.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }
}

impl From<BTreeMap<Box<str>, Box<str>>> for Labels {
    fn from(labels: BTreeMap<Box<str>, Box<str>>) -> Self {
        Self(labels.into_iter().collect())
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    #[serde(default, deserialize_with = "or_default")]
    pub uid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub api_version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub block_owner_deletion: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub controller: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

/// Everything else in the object is skipped without allocating, which is what makes a start with many objects fast.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    uid: Option<String>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    owner_references: Option<Vec<Owner>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<IgnoredAny>,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl Meta {
    pub(super) fn from_value(value: &Value) -> Result<Self, serde_json::Error> {
        Ok(Self::from_metadata(Head::deserialize(value)?.metadata))
    }

    /// The metadata of a stored object and the revision it carries, if that is a number.
    pub(super) fn from_json(json: &[u8]) -> Result<(Self, Option<u64>), serde_json::Error> {
        let metadata = serde_json::from_slice::<Head<'_>>(json)?.metadata;
        let revision = metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok());
        Ok((Self::from_metadata(metadata), revision))
    }

    fn from_metadata(metadata: Metadata<'_>) -> Self {
        Self {
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default().into(),
            owners: metadata.owner_references.unwrap_or_default(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_and_tree_give_the_same_metadata() {
        let value = json!({
            "kind": "Widget",
            "metadata": {
                "name": "a",
                "uid": "u-1",
                "resourceVersion": "17",
                "labels": {"app": "x", "tier": ""},
                "finalizers": ["example.com/keep"],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [
                    {"uid": "u-0", "kind": "Box", "name": "b", "apiVersion": "example.com/v1", "controller": true,
                     "blockOwnerDeletion": null}
                ],
                "managedFields": [{"fieldsV1": {"f:spec": {}}}]
            },
            "spec": {"metadata": {"uid": "not this one"}}
        });
        let (from_bytes, revision) = Meta::from_json(value.to_string().as_bytes()).unwrap();
        assert_eq!(revision, Some(17));
        assert_eq!(from_bytes, Meta::from_value(&value).unwrap());
        assert_eq!(from_bytes.uid, "u-1");
        assert_eq!(from_bytes.labels.get("app"), Some("x"));
        assert_eq!(from_bytes.labels.get("tier"), Some(""));
        assert_eq!(from_bytes.labels.get("other"), None);
        assert!(from_bytes.deleting);
        assert_eq!(from_bytes.finalizers, ["example.com/keep"]);
        assert_eq!(from_bytes.owners.len(), 1);
        assert!(from_bytes.owners[0].controller && !from_bytes.owners[0].block_owner_deletion);
    }

    #[test]
    fn absent_and_null_fields_mean_empty() {
        let bare = Meta::from_value(&json!({"metadata": {}})).unwrap();
        let null = Meta::from_value(&json!({"metadata": {
            "uid": null, "labels": null, "ownerReferences": null, "finalizers": null, "deletionTimestamp": null
        }}))
        .unwrap();
        assert_eq!(bare, Meta::default());
        assert_eq!(null, Meta::default());
    }

    #[test]
    fn metadata_of_a_wrong_type_is_refused() {
        for value in [
            json!([]),
            json!({}),
            json!({"metadata": []}),
            json!({"metadata": {"labels": {"a": 1}}}),
            json!({"metadata": {"finalizers": "x"}}),
        ] {
            assert!(Meta::from_value(&value).is_err(), "{value}");
        }
    }
}
