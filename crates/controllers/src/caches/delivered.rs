//! An object as the API server delivered it: read, or kept with what is wrong with it.
//!
//! One object that cannot be read must not keep the others of its kind from being seen. kube has such a guard as well, but
//! its error does not say which field is wrong, and whoever has to mend the object needs that. It also costs twice as much,
//! which counts because every change of every object comes this way: here the object is read without a second copy, and who
//! set which field, often the larger half of it, is left out before. Of kinds that may have to be explained when they are
//! gone, who wrote to them stays.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, core::PartialObjectMeta};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use super::kinds::Cached;

/// An object, whether or not it can be read. Its managed fields are at most names and times.
#[derive(Clone, Debug)]
pub struct Delivered<K>(pub Result<K, Illegible>);

/// An object that cannot be read. What every object has can be.
#[derive(Clone, Debug)]
pub struct Illegible {
    pub metadata: ObjectMeta,
    /// The field, and what is wrong with it.
    pub error: String,
}

impl<'de, K: Cached> Deserialize<'de> for Delivered<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut document = Value::deserialize(deserializer)?;
        if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
            strip(metadata, K::WRITERS);
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

/// Takes away what was written to which field, and who did it too unless that is asked for.
fn strip(metadata: &mut Map<String, Value>, writers: bool) {
    if !writers {
        metadata.remove("managedFields");
        return;
    }
    let writes = metadata.get_mut("managedFields").and_then(Value::as_array_mut);
    for write in writes.into_iter().flatten().filter_map(Value::as_object_mut) {
        write.remove("fieldsV1");
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
    use k8s_openapi::api::batch::v1::Job;
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
    fn of_a_job_it_is_known_who_wrote_to_it_and_not_what() {
        let job = json!({ "metadata": { "name": "a", "managedFields": [
            { "manager": "kubectl-edit", "operation": "Update", "fieldsV1": { "f:spec": {} } },
        ] } });

        let delivered: Delivered<Job> = serde_json::from_value(job).unwrap();

        let writes = delivered.0.unwrap().metadata.managed_fields.unwrap();
        assert_eq!(writes[0].manager.as_deref(), Some("kubectl-edit"));
        assert_eq!(writes[0].fields_v1, None);
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
