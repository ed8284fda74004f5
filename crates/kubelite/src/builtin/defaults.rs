//! The values that a built-in kind takes when none is given.
//!
//! A real cluster adds more at admission: tolerations for a node that is not ready, a volume with a token, a priority. Of
//! these only the default service account's name is set here (see `prepare_create`).

use serde_json::{Map, Value, json};

use super::{Builtin, look};

const FILE_MODE: i32 = 0o644;

/// Fills in defaults. The object has been through `decode`.
pub fn default(builtin: Builtin, object: &mut Value) {
    match builtin {
        Builtin::Namespace => namespace(object),
        Builtin::Node => node(object),
        Builtin::Pod => {
            if let Some(spec) = object.get_mut("spec") {
                pod_spec(spec);
                pod_only(spec);
            }
        }
        Builtin::Secret => set(object, "type", || json!("Opaque")),
        Builtin::PersistentVolumeClaim => {
            if let Some(spec) = object.get_mut("spec") {
                set(spec, "volumeMode", || json!("Filesystem"));
            }
            if let Some(status) = object.get_mut("status") {
                set(status, "phase", || json!("Pending"));
            }
        }
        Builtin::Job => job(object),
        Builtin::CustomResourceDefinition => definition(object),
        Builtin::ConfigMap
        | Builtin::ServiceAccount
        | Builtin::CoreEvent
        | Builtin::Event
        | Builtin::Lease
        | Builtin::SelfSubjectReview
        | Builtin::SelfSubjectAccessReview
        | Builtin::TokenReview => {}
    }
}

/// Sets a member that is absent.
fn set(value: &mut Value, name: &str, default: impl FnOnce() -> Value) {
    if let Some(object) = value.as_object_mut()
        && object.get(name).is_none_or(Value::is_null)
    {
        object.insert(name.to_owned(), default());
    }
}

fn namespace(namespace: &mut Value) {
    let name = look::text(namespace, "metadata.name").to_owned();
    if !name.is_empty()
        && let Some(metadata) = namespace.get_mut("metadata")
        && let Some(labels) = look::object(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    if let Some(status) = namespace.get_mut("status") {
        set(status, "phase", || json!("Active"));
    }
}

fn node(node: &mut Value) {
    if let Some(status) = node.get_mut("status")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        set(status, "allocatable", || capacity);
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "dnsPolicy", || json!("ClusterFirst"));
    set(spec, "restartPolicy", || json!("Always"));
    set(spec, "securityContext", || json!({}));
    set(spec, "terminationGracePeriodSeconds", || json!(30));
    set(spec, "schedulerName", || json!("default-scheduler"));
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        look::each_mut(spec, list).for_each(container);
    }
    look::each_mut(spec, "volumes").for_each(volume);
    // The conversion between versions keeps the old name of the field in step with the new one.
    let account = look::text(spec, "serviceAccountName").to_owned();
    let deprecated = look::text(spec, "serviceAccount").to_owned();
    let account = if account.is_empty() { deprecated } else { account };
    if !account.is_empty()
        && let Some(spec) = spec.as_object_mut()
    {
        spec.insert("serviceAccount".to_owned(), json!(account));
        spec.insert("serviceAccountName".to_owned(), json!(account));
    }
}

/// What only a pod gets, not a template of pods.
fn pod_only(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in look::each_mut(spec, list) {
            if let Some(resources) = container.get_mut("resources") {
                requests_from_limits(resources);
            }
        }
    }
    if look::at(spec, "resources.limits").is_some() {
        pod_requests(spec);
    }
    set(spec, "enableServiceLinks", || json!(true));
    if look::flag(spec, "hostNetwork") {
        for list in ["containers", "initContainers"] {
            for container in look::each_mut(spec, list) {
                for port in look::each_mut(container, "ports") {
                    let own = port.get("containerPort").cloned().unwrap_or_default();
                    set(port, "hostPort", || own);
                }
            }
        }
    }
}

fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    if let Some(requests) = look::object(resources, "requests") {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// Requests of the pod as a whole come from its limits, unless a container asks for the same resource.
fn pod_requests(spec: &mut Value) {
    let asked: Vec<String> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| look::list(spec, list))
        .flat_map(|container| look::entries(container, "resources.requests"))
        .map(|(name, _)| name.clone())
        .collect();
    let limits = look::at(spec, "resources.limits")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let fitting: Map<String, Value> = limits
        .into_iter()
        .filter(|(name, _)| !asked.contains(name))
        .collect();
    if fitting.is_empty() {
        return;
    }
    if let Some(resources) = spec.get_mut("resources")
        && let Some(requests) = look::object(resources, "requests")
    {
        for (name, limit) in fitting {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(look::text(container, "image"));
    set(container, "imagePullPolicy", || json!(policy));
    set(container, "terminationMessagePath", || {
        json!("/dev/termination-log")
    });
    set(container, "terminationMessagePolicy", || json!("File"));
    for port in look::each_mut(container, "ports") {
        set(port, "protocol", || json!("TCP"));
    }
    for variable in look::each_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            field_reference(source);
            if let Some(file) = source.get_mut("fileKeyRef") {
                set(file, "optional", || json!(false));
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            probe_defaults(probe);
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.get_mut(name) {
                handler_defaults(handler);
            }
        }
    }
}

/// `Always` for the tag `latest`, which is also the one that no tag means.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let untagged = !image.contains('@') && !name.contains(':');
    if untagged || (name.ends_with(":latest") && !image.contains('@')) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn probe_defaults(probe: &mut Value) {
    set(probe, "timeoutSeconds", || json!(1));
    set(probe, "periodSeconds", || json!(10));
    set(probe, "successThreshold", || json!(1));
    set(probe, "failureThreshold", || json!(3));
    handler_defaults(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        set(grpc, "service", || json!(""));
    }
}

fn handler_defaults(handler: &mut Value) {
    if let Some(http) = handler.get_mut("httpGet") {
        set(http, "path", || json!("/"));
        set(http, "scheme", || json!("HTTP"));
    }
}

fn field_reference(source: &mut Value) {
    if let Some(reference) = source.get_mut("fieldRef") {
        set(reference, "apiVersion", || json!("v1"));
    }
}

fn volume(volume: &mut Value) {
    let Some(object) = volume.as_object_mut() else {
        return;
    };
    if !object
        .iter()
        .any(|(name, source)| name != "name" && !source.is_null())
    {
        object.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(name) {
            set(source, "defaultMode", || json!(FILE_MODE));
        }
    }
    if let Some(source) = volume.get_mut("downwardAPI") {
        look::each_mut(source, "items").for_each(field_reference);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in look::each_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                set(token, "expirationSeconds", || json!(3600));
            }
            if let Some(downward) = source.get_mut("downwardAPI") {
                look::each_mut(downward, "items").for_each(field_reference);
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        set(path, "type", || json!(""));
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(look::text(image, "reference"));
        set(image, "pullPolicy", || json!(policy));
    }
    if let Some(template) = volume
        .get_mut("ephemeral")
        .and_then(|source| source.get_mut("volumeClaimTemplate"))
        && let Some(spec) = template.get_mut("spec")
    {
        set(spec, "volumeMode", || json!("Filesystem"));
    }
    if let Some(iscsi) = volume.get_mut("iscsi") {
        set(iscsi, "iscsiInterface", || json!("default"));
    }
}

fn job(job: &mut Value) {
    label_like_template(job);
    let Some(spec) = job.get_mut("spec") else { return };
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set(spec, "completions", || json!(1));
    }
    set(spec, "parallelism", || json!(1));
    let limit = if spec.get("backoffLimitPerIndex").is_some() {
        i32::MAX
    } else {
        6
    };
    set(spec, "backoffLimit", || json!(limit));
    set(spec, "completionMode", || json!("NonIndexed"));
    set(spec, "suspend", || json!(false));
    set(spec, "manualSelector", || json!(false));
    let replacement = if spec.get("podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set(spec, "podReplacementPolicy", || json!(replacement));
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for rule in look::each_mut(policy, "rules") {
            for pattern in look::each_mut(rule, "onPodConditions") {
                set(pattern, "status", || json!("True"));
            }
        }
    }
    if let Some(template) = spec
        .get_mut("template")
        .and_then(|template| template.get_mut("spec"))
    {
        pod_spec(template);
    }
}

fn definition(definition: &mut Value) {
    let stored = look::list(definition, "spec.versions")
        .iter()
        .find(|version| look::flag(version, "storage"))
        .map(|version| look::text(version, "name").to_owned());
    let Some(spec) = definition.get_mut("spec") else {
        return;
    };
    let kind = look::text(spec, "names.kind").to_owned();
    if !kind.is_empty()
        && let Some(names) = spec.get_mut("names")
    {
        set(names, "listKind", || json!(format!("{kind}List")));
        set(names, "singular", || json!(kind.to_lowercase()));
    }
    set(spec, "conversion", || json!({"strategy": "None"}));
    if look::list(definition, "status.storedVersions").is_empty()
        && let Some(stored) = stored
        && let Some(status) = look::object(definition, "status")
    {
        status.insert("storedVersions".to_owned(), json!([stored]));
    }
}

/// A Job without labels takes those of its template.
pub(super) fn label_like_template(job: &mut Value) {
    let labels = look::at(job, "spec.template.metadata.labels").cloned();
    let unlabelled = look::entries(job, "metadata.labels").next().is_none();
    if let (Some(labels), true) = (labels, unlabelled)
        && let Some(metadata) = job.get_mut("metadata")
    {
        set(metadata, "labels", || labels);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::decode, *};

    fn defaulted(builtin: Builtin, mut object: Value) -> Value {
        decode(builtin, &mut object).unwrap();
        default(builtin, &mut object);
        object
    }

    #[test]
    fn minimal_pod() {
        let pod = defaulted(
            Builtin::Pod,
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}),
        );
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "p"},
                "spec": {
                    "containers": [{
                        "name": "c", "image": "busybox", "imagePullPolicy": "Always", "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    }],
                    "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                    "schedulerName": "default-scheduler", "securityContext": {},
                    "terminationGracePeriodSeconds": 30,
                },
                "status": {},
            })
        );
    }

    #[test]
    fn minimal_job() {
        let job = defaulted(
            Builtin::Job,
            json!({
                "metadata": {"name": "j"},
                "spec": {"template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]},
                }},
            }),
        );
        assert_eq!(
            job,
            json!({
                "metadata": {"name": "j", "labels": {"app": "x"}},
                "spec": {
                    "backoffLimit": 6, "completionMode": "NonIndexed", "completions": 1, "manualSelector": false,
                    "parallelism": 1, "podReplacementPolicy": "TerminatingOrFailed", "suspend": false,
                    "template": {
                        "metadata": {"labels": {"app": "x"}},
                        "spec": {
                            "containers": [{
                                "name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent",
                                "resources": {}, "terminationMessagePath": "/dev/termination-log",
                                "terminationMessagePolicy": "File",
                            }],
                            "dnsPolicy": "ClusterFirst", "restartPolicy": "Never",
                            "schedulerName": "default-scheduler", "securityContext": {},
                            "terminationGracePeriodSeconds": 30,
                        },
                    },
                },
                "status": {},
            })
        );
    }

    #[test]
    fn pod_parts_take_their_defaults() {
        let pod = defaulted(
            Builtin::Pod,
            json!({"metadata": {}, "spec": {
                "hostNetwork": true,
                "containers": [{
                    "name": "c", "image": "a/b@sha256:0", "ports": [{"containerPort": 80}],
                    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "resources": {"limits": {"cpu": "1"}},
                }],
                "volumes": [
                    {"name": "none"}, {"name": "c", "configMap": {"name": "c"}}, {"name": "h", "hostPath": {"path": "/x"}},
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                ],
            }}),
        );
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            container["ports"],
            json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}])
        );
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(
            container["livenessProbe"],
            json!({
                "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3,
            })
        );
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(
            pod["spec"]["volumes"],
            json!([
                {"name": "none", "emptyDir": {}},
                {"name": "c", "configMap": {"name": "c", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/x", "type": ""}},
                {"name": "t", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                ]}},
            ])
        );
    }

    #[test]
    fn job_with_a_failure_policy_replaces_only_failed_pods() {
        let job = defaulted(
            Builtin::Job,
            json!({"metadata": {}, "spec": {
                "podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
            }}),
        );
        assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");
        assert_eq!(
            job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"],
            "True"
        );
    }

    #[test]
    fn small_kinds_take_their_defaults() {
        let namespace = defaulted(Builtin::Namespace, json!({"metadata": {"name": "n"}}));
        assert_eq!(
            namespace["metadata"]["labels"],
            json!({"kubernetes.io/metadata.name": "n"})
        );
        assert_eq!(namespace["status"]["phase"], "Active");
        assert_eq!(
            defaulted(Builtin::Secret, json!({"metadata": {}}))["type"],
            "Opaque"
        );
        let claim = defaulted(Builtin::PersistentVolumeClaim, json!({"metadata": {}}));
        assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
        let definition = defaulted(
            Builtin::CustomResourceDefinition,
            json!({"metadata": {}, "spec": {
                "names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "storage": true}],
            }}),
        );
        assert_eq!(definition["spec"]["names"]["singular"], "widget");
        assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    }
}
