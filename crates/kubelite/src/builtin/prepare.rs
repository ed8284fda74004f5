//! What the server sets or resets when an object of a built-in kind is written.

use serde_json::{Value, json};

use super::{Builtin, Endpoint, look, quantity::Quantity};

/// Prepares an object that is being created. `metadata.name` and `metadata.uid` are set already.
pub fn prepare_create(builtin: Builtin, object: &mut Value) {
    if builtin.has_generation() {
        set_generation(object, 1);
    }
    match builtin {
        Builtin::Namespace => {
            look::put(object, "status", json!({"phase": "Active"}));
            let mut finalizers = look::list(object, "spec.finalizers").to_vec();
            if !finalizers.iter().any(|name| name == "kubernetes") {
                finalizers.push(json!("kubernetes"));
            }
            if let Some(spec) = look::object(object, "spec") {
                spec.insert("finalizers".to_owned(), finalizers.into());
            }
        }
        Builtin::Pod => pod(object),
        Builtin::PersistentVolumeClaim => look::put(object, "status", json!({"phase": "Pending"})),
        Builtin::Job => {
            if !look::flag(object, "spec.manualSelector") {
                generate_selector(object);
            }
            // Whoever reads the Job sees it with its template's labels, if it has none of its own.
            super::defaults::label_like_template(object);
            look::put(object, "status", json!({}));
        }
        Builtin::CustomResourceDefinition => {
            let blank = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null});
            look::put(object, "status", blank);
            remember_stored_version(object);
        }
        Builtin::ServiceAccount => clean_secret_references(object),
        Builtin::Lease => drop_lease_strategy(object),
        Builtin::Node
        | Builtin::ConfigMap
        | Builtin::Secret
        | Builtin::CoreEvent
        | Builtin::Event
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => {}
    }
}

/// Prepares an object that is being changed: each endpoint may change its own part only.
pub fn prepare_update(builtin: Builtin, endpoint: Endpoint, new: &mut Value, old: &Value) {
    match endpoint {
        Endpoint::Main => prepare_main(builtin, new, old),
        Endpoint::Status => prepare_status(builtin, new, old),
        Endpoint::Finalize => copy(new, old, "status"),
    }
}

fn prepare_main(builtin: Builtin, new: &mut Value, old: &Value) {
    if builtin.has_status() {
        copy(new, old, "status");
    }
    match builtin {
        Builtin::Namespace => {
            let finalizers = look::at(old, "spec.finalizers").cloned();
            if let Some(spec) = look::object(new, "spec") {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
        }
        Builtin::Secret if look::text(new, "type").is_empty() => copy(new, old, "type"),
        Builtin::CustomResourceDefinition => remember_stored_version(new),
        Builtin::ServiceAccount => clean_secret_references(new),
        _ => {}
    }
    if builtin.has_generation() {
        let generation = look::number(old, "metadata.generation").unwrap_or_default();
        let changed = new.get("spec") != old.get("spec");
        set_generation(new, if changed { generation + 1 } else { generation });
    }
}

fn prepare_status(builtin: Builtin, new: &mut Value, old: &Value) {
    copy(new, old, "spec");
    match builtin {
        Builtin::Pod => {
            copy_metadata(new, old, "ownerReferences");
            copy_metadata(new, old, "deletionTimestamp");
            keep_pod_status(new, old);
        }
        Builtin::CustomResourceDefinition => {
            for name in [
                "labels",
                "annotations",
                "finalizers",
                "ownerReferences",
                "generation",
            ] {
                copy_metadata(new, old, name);
            }
        }
        _ => {}
    }
}

/// How many seconds an object has left once it is deleted. Only a pod on a node that is still running has any: its node
/// removes it when the containers have ended.
pub fn grace_period(builtin: Builtin, object: &Value, requested: Option<i64>) -> i64 {
    let ended = matches!(look::text(object, "status.phase"), "Failed" | "Succeeded");
    if builtin != Builtin::Pod || ended || look::text(object, "spec.nodeName").is_empty() {
        return 0;
    }
    let period = requested.or_else(|| look::number(object, "spec.terminationGracePeriodSeconds"));
    match period.unwrap_or_default() {
        // An old way to ask for as little as possible.
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// Takes over a member of the old object, or its absence.
fn copy(new: &mut Value, old: &Value, name: &str) {
    if let Some(object) = new.as_object_mut() {
        match old.get(name) {
            Some(value) => object.insert(name.to_owned(), value.clone()),
            None => object.remove(name),
        };
    }
}

fn copy_metadata(new: &mut Value, old: &Value, name: &str) {
    if let (Some(new), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
        copy(new, old, name);
    }
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = look::object(object, "metadata") {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

fn pod(pod: &mut Value) {
    let class = qos_class(pod);
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if !look::list(pod, "spec.schedulingGates").is_empty() {
        let gated = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": null,
        }]);
        look::put(&mut status, "conditions", gated);
    }
    look::put(pod, "status", status);
    let labels = look::at(pod, "metadata.labels").cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec") else { return };
    // What the service account admission plugin does, less the volume with the account's token.
    if look::text(spec, "serviceAccountName").is_empty()
        && let Some(spec) = spec.as_object_mut()
    {
        spec.insert("serviceAccount".to_owned(), json!("default"));
        spec.insert("serviceAccountName".to_owned(), json!("default"));
    }
    for constraint in look::each_mut(spec, "topologySpreadConstraints") {
        merge_match_label_keys(constraint, &labels);
    }
}

/// Writes the values that `matchLabelKeys` stands for into the selector, where the scheduler looks for them.
fn merge_match_label_keys(constraint: &mut Value, labels: &Value) {
    let keys: Vec<(String, Value)> = look::list(constraint, "matchLabelKeys")
        .iter()
        .filter_map(Value::as_str)
        .filter_map(|key| Some((key.to_owned(), labels.get(key)?.clone())))
        .collect();
    let Some(selector) = constraint.get_mut("labelSelector").and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in keys {
        let expression = json!({"key": key, "operator": "In", "values": [value]});
        if let Value::Array(list) = selector.entry("matchExpressions").or_insert_with(|| json!([])) {
            list.push(expression);
        }
    }
}

/// The class of service that a pod's requests and limits amount to.
fn qos_class(pod: &Value) -> &'static str {
    const COMPUTE: [&str; 2] = ["cpu", "memory"];
    let amount = |resources: &Value, list: &str, name: &str| {
        let text = resources.get(list)?.get(name)?.as_str()?;
        Quantity::parse(text)
            .ok()
            .filter(|quantity| !quantity.is_zero() && !quantity.is_negative())
    };
    let whole_pod = look::at(pod, "spec.resources");
    let holders: Vec<&Value> = match whole_pod {
        Some(resources) => vec![resources],
        None => ["spec.containers", "spec.initContainers"]
            .iter()
            .flat_map(|list| look::list(pod, list))
            .map(|container| container.get("resources").unwrap_or(&Value::Null))
            .collect(),
    };
    let any = holders.iter().any(|resources| {
        COMPUTE.iter().any(|name| {
            amount(resources, "limits", name).is_some() || amount(resources, "requests", name).is_some()
        })
    });
    let guaranteed = holders.iter().all(|resources| {
        COMPUTE.iter().all(|name| {
            let limit = amount(resources, "limits", name);
            limit.is_some() && amount(resources, "requests", name) == limit
        })
    });
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A status that says nothing about the class of service or about generations keeps what was known.
fn keep_pod_status(new: &mut Value, old: &Value) {
    let conditions = look::list(old, "status.conditions").to_vec();
    let Some(status) = look::object(new, "status") else {
        return;
    };
    for name in ["qosClass", "observedGeneration"] {
        if let Some(value) = old.get("status").and_then(|status| status.get(name))
            && status.get(name).is_none_or(Value::is_null)
        {
            status.insert(name.to_owned(), value.clone());
        }
    }
    for condition in status
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let known = conditions
            .iter()
            .find(|old| old.get("type") == condition.get("type"));
        if let Some(generation) = known.and_then(|known| known.get("observedGeneration"))
            && condition.get("observedGeneration").is_none()
            && let Some(condition) = condition.as_object_mut()
        {
            condition.insert("observedGeneration".to_owned(), generation.clone());
        }
    }
}

/// A job finds its pods by labels that nobody else can have, unless it brings a selector of its own.
fn generate_selector(job: &mut Value) {
    let name = look::text(job, "metadata.name").to_owned();
    let uid = look::text(job, "metadata.uid").to_owned();
    let Some(spec) = job.get_mut("spec") else { return };
    if look::object(spec, "template").is_some()
        && let Some(template) = spec.get_mut("template")
        && look::object(template, "metadata").is_some()
        && let Some(metadata) = template.get_mut("metadata")
        && let Some(labels) = look::object(metadata, "labels")
    {
        for (label, value) in [
            ("job-name", &name),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("batch.kubernetes.io/controller-uid", &uid),
        ] {
            labels.entry(label).or_insert_with(|| json!(value));
        }
    }
    if look::object(spec, "selector").is_some()
        && let Some(selector) = spec.get_mut("selector")
        && let Some(labels) = look::object(selector, "matchLabels")
    {
        labels
            .entry("batch.kubernetes.io/controller-uid")
            .or_insert_with(|| json!(uid));
    }
}

fn remember_stored_version(definition: &mut Value) {
    let storage = look::list(definition, "spec.versions")
        .iter()
        .find(|version| look::flag(version, "storage"));
    let Some(name) = storage.map(|version| look::text(version, "name").to_owned()) else {
        return;
    };
    if let Some(status) = look::object(definition, "status")
        && let Value::Array(stored) = status.entry("storedVersions").or_insert_with(|| json!([]))
        && !stored.iter().any(|known| *known == name)
    {
        stored.push(json!(name));
    }
}

/// A reference from an account to a secret is a name and nothing more.
fn clean_secret_references(account: &mut Value) {
    for reference in look::each_mut(account, "secrets") {
        if let Some(reference) = reference.as_object_mut() {
            reference.retain(|name, _| name == "name");
        }
    }
}

/// Both fields belong to a feature that is off in this version.
fn drop_lease_strategy(lease: &mut Value) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_job_selects_its_pods_by_uid() {
        let mut job = json!({
            "metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"metadata": {}, "spec": {}}},
            "status": {"active": 4},
        });
        prepare_create(Builtin::Job, &mut job);
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({
                "job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u",
                "batch.kubernetes.io/controller-uid": "u",
            })
        );
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(job["status"], json!({}));
        assert_eq!(job["metadata"]["generation"], 1);
    }

    #[test]
    fn job_with_a_selector_of_its_own_keeps_it() {
        let mut job = json!({"metadata": {}, "spec": {"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}});
        prepare_create(Builtin::Job, &mut job);
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
    }

    #[test]
    fn created_pod_is_pending_in_its_class_of_service() {
        let cases = [
            (json!([{"resources": {}}]), "BestEffort"),
            (json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable"),
            (
                json!([{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}}]),
                "Guaranteed",
            ),
            (
                json!([{"resources": {"limits": {"ephemeral-storage": "1Gi"}}}]),
                "BestEffort",
            ),
        ];
        for (containers, class) in cases {
            let mut pod =
                json!({"metadata": {}, "spec": {"containers": containers}, "status": {"phase": "Running"}});
            prepare_create(Builtin::Pod, &mut pod);
            assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": class}));
            assert_eq!(pod["spec"]["serviceAccountName"], "default");
        }
    }

    #[test]
    fn spread_constraint_learns_the_labels_it_names() {
        let mut pod = json!({
            "metadata": {"labels": {"hash": "x"}},
            "spec": {"topologySpreadConstraints": [{"matchLabelKeys": ["hash", "absent"], "labelSelector": {}}]},
        });
        prepare_create(Builtin::Pod, &mut pod);
        assert_eq!(
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"],
            json!({"matchExpressions": [{"key": "hash", "operator": "In", "values": ["x"]}]})
        );
    }

    #[test]
    fn main_endpoint_leaves_the_status_alone_and_counts_changes_of_the_spec() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"active": 1}});
        let mut same = json!({"metadata": {"generation": 9}, "spec": {"a": 1}, "status": {"active": 2}});
        prepare_update(Builtin::Job, Endpoint::Main, &mut same, &old);
        assert_eq!(same, old);
        let mut changed = json!({"metadata": {}, "spec": {"a": 2}});
        prepare_update(Builtin::Job, Endpoint::Main, &mut changed, &old);
        assert_eq!(
            changed,
            json!({"metadata": {"generation": 4}, "spec": {"a": 2}, "status": {"active": 1}})
        );
    }

    #[test]
    fn status_endpoint_leaves_the_spec_alone() {
        let old = json!({
            "metadata": {"ownerReferences": [{"uid": "o"}]}, "spec": {"a": 1}, "status": {"qosClass": "BestEffort"},
        });
        let mut new = json!({"metadata": {}, "spec": {"a": 2}, "status": {"phase": "Running"}});
        prepare_update(Builtin::Pod, Endpoint::Status, &mut new, &old);
        assert_eq!(new["spec"], json!({"a": 1}));
        assert_eq!(new["metadata"]["ownerReferences"], json!([{"uid": "o"}]));
        assert_eq!(
            new["status"],
            json!({"phase": "Running", "qosClass": "BestEffort"})
        );
    }

    #[test]
    fn only_the_finalize_endpoint_changes_a_namespaces_finalizers() {
        let old =
            json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let mut new = json!({"metadata": {}, "spec": {}, "status": {}});
        prepare_update(Builtin::Namespace, Endpoint::Main, &mut new, &old);
        assert_eq!(new, old);
        let mut new = json!({"metadata": {}, "spec": {}, "status": {}});
        prepare_update(Builtin::Namespace, Endpoint::Finalize, &mut new, &old);
        assert_eq!(new["spec"], json!({}));
    }

    #[test]
    fn definition_remembers_every_version_it_was_stored_in() {
        let old = json!({"metadata": {}, "spec": {}, "status": {"storedVersions": ["v1"]}});
        let mut new =
            json!({"metadata": {}, "spec": {"versions": [{"name": "v1"}, {"name": "v2", "storage": true}]}});
        prepare_update(Builtin::CustomResourceDefinition, Endpoint::Main, &mut new, &old);
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn only_a_running_pod_has_time_to_end() {
        let pod = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        assert_eq!(grace_period(Builtin::Pod, &pod, None), 30);
        assert_eq!(grace_period(Builtin::Pod, &pod, Some(5)), 5);
        assert_eq!(grace_period(Builtin::Pod, &pod, Some(-1)), 1);
        let unscheduled = json!({"spec": {"terminationGracePeriodSeconds": 30}});
        assert_eq!(grace_period(Builtin::Pod, &unscheduled, Some(5)), 0);
        let ended = json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}});
        assert_eq!(grace_period(Builtin::Pod, &ended, Some(5)), 0);
        assert_eq!(grace_period(Builtin::ConfigMap, &json!({}), Some(5)), 0);
    }
}
