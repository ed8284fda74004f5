//! An object as the API server delivered it: read, or kept with what is wrong with it.
//!
//! One object that cannot be read must not keep the others of its kind from being seen. kube has such a guard as well, but
//! its error does not say which field is wrong, and whoever has to mend the object needs that. It also costs twice as much,
//! which counts because every change of every object comes this way: here the object is read without a second copy, and who
//! set which field, often the larger half of it, is left out before.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::PartialObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

/// An object, whether or not it can be read. It has no managed fields.
#[derive(Clone, Debug)]
pub struct Delivered<K>(pub Result<K, Illegible>);

/// An object that cannot be read. What every object has can be.
#[derive(Clone, Debug)]
pub struct Illegible {
    pub metadata: ObjectMeta,
    /// The field, and what is wrong with it.
    pub error: String,
}

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Delivered<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut document = Value::deserialize(deserializer)?;
        if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        if let Ok(object) = K::deserialize(&document) {
            return Ok(Self(Ok(object)));
        }
        // Reading it once more with a record of the way costs time that only the rare bad object has to pay.
        let error = match serde_path_to_error::deserialize::<_, K>(&document) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => format!("{}: {}", error.path(), error.inner()),
        };
        let partial = PartialObjectMeta::<K>::deserialize(document).map_err(D::Error::custom)?;
        Ok(Self(Err(Illegible {
            metadata: partial.metadata,
            error,
        })))
    }
}

impl<K: Resource> Resource for Delivered<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(illegible) => &illegible.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(illegible) => &mut illegible.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::agents::agent::Agent;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_without_its_managed_fields() {
        let agent = json!({
            "metadata": { "name": "coder", "managedFields": [{ "manager": "m" }] },
            "spec": { "providerRef": { "name": "shell" } },
        });

        let delivered: Delivered<Agent> = serde_json::from_value(agent).unwrap();

        let agent = delivered.0.unwrap();
        assert_eq!(agent.metadata.name.as_deref(), Some("coder"));
        assert_eq!(agent.metadata.managed_fields, None);
    }

    #[test]
    fn an_object_that_cannot_be_read_says_which_field_is_wrong() {
        let agent = json!({
            "metadata": { "name": "coder", "uid": "u1" },
            "spec": { "providerRef": { "name": "shell" }, "env": [{ "name": "A", "value": 5 }] },
        });

        let delivered: Delivered<Agent> = serde_json::from_value(agent).unwrap();

        assert_eq!(delivered.meta().uid.as_deref(), Some("u1"));
        let illegible = delivered.0.unwrap_err();
        assert!(
            illegible
                .error
                .starts_with("spec.env[0].value: invalid type: integer"),
            "{}",
            illegible.error
        );
    }
}
