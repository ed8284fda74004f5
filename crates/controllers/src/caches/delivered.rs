//! An object as a watch delivers it.
//!
//! kube's `DeserializeGuard` keeps one object that cannot be read from hiding the others, and so does this. It costs half as
//! much, which counts because every change of every object comes this way: the object is read from its JSON without a second
//! copy, and who set which field, often the larger half of it, is left out before it is read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// An object, or what is known of one that cannot be read. It has no managed fields.
#[derive(Clone, Debug)]
pub(super) struct Delivered<K>(pub(super) DeserializeGuard<K>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Delivered<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let read = match K::deserialize(&object) {
            Ok(read) => Ok(read),
            Err(error) => Err(InvalidObject {
                error: error.to_string(),
                metadata: ObjectMeta::deserialize(&object["metadata"]).map_err(serde::de::Error::custom)?,
            }),
        };
        Ok(Self(DeserializeGuard(read)))
    }
}

impl<K: Resource> Resource for Delivered<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_without_its_managed_fields() {
        let job: Delivered<Job> = serde_json::from_value(json!({
            "metadata": {"name": "j", "managedFields": [{"manager": "m"}]}, "spec": {"suspend": true, "template": {}},
        }))
        .unwrap();

        assert_eq!(job.meta().name.as_deref(), Some("j"));
        assert_eq!(job.meta().managed_fields, None);
        assert_eq!(job.0.0.unwrap().spec.unwrap().suspend, Some(true));
    }

    #[test]
    fn of_an_object_that_cannot_be_read_the_name_is_known() {
        let job: Delivered<Job> = serde_json::from_value(json!({
            "metadata": {"name": "j"}, "spec": {"suspend": "perhaps"},
        }))
        .unwrap();

        assert_eq!(job.meta().name.as_deref(), Some("j"));
        let error = job.0.0.unwrap_err().error;
        assert!(error.contains("perhaps"), "{error}");
    }
}
