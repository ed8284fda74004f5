//! Discovery: which groups, versions and resources there are, in the older form (one document per group version) and in
//! the aggregated one (everything at once), plus `/`, `/version` and the ETags of such documents.

mod versions;

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use self::versions::compare_versions;
use crate::{
    builtin::Builtin,
    negotiate::DiscoveryVersion,
    request::Verb,
    resource::{Resource, Scope, Version},
};

/// The Kubernetes release whose behaviour this server follows. The suffix is build metadata, so that clients which
/// compare versions take it for the release itself.
pub const GIT_VERSION: &str = "v1.35.8+kubelite";

/// The built-in groups in the order in which kube-apiserver lists them. Clients resolve an ambiguous name to the first
/// group that has it, so custom groups come after these.
const BUILTIN_GROUPS: [&str; 6] = [
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// Which part of aggregated discovery is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Root {
    /// `/api`: the core group.
    Core,
    /// `/apis`: every other group.
    Groups,
}

/// What is served, sorted: groups in order of priority, and in each the versions, the preferred one first.
fn served(resources: &[Arc<Resource>]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources {
        for version in resource.versions.iter().filter(|version| version.served) {
            let versions = groups.entry(&resource.group).or_default();
            if !versions.contains(&version.name.as_str()) {
                versions.push(&version.name);
            }
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    let priority = |group: &str| {
        BUILTIN_GROUPS
            .iter()
            .position(|builtin| *builtin == group)
            .unwrap_or(usize::MAX)
    };
    groups.sort_by_key(|(group, _)| (!group.is_empty(), priority(group)));
    for (_, versions) in &mut groups {
        versions.sort_by(|a, b| compare_versions(a, b));
    }
    groups
}

/// Every group version that is served, the core group's as an empty string.
pub fn group_versions(resources: &[Arc<Resource>]) -> Vec<(&str, &str)> {
    served(resources)
        .into_iter()
        .flat_map(|(group, versions)| versions.into_iter().map(move |version| (group, version)))
        .collect()
}

/// `/api`. The address is where the client reached the server.
pub fn api_versions(resources: &[Arc<Resource>], server_address: &str) -> Value {
    let versions: Vec<&str> = group_versions(resources)
        .into_iter()
        .filter(|(group, _)| group.is_empty())
        .map(|(_, version)| version)
        .collect();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": server_address }],
    })
}

/// `/apis`
pub fn group_list(resources: &[Arc<Resource>]) -> Value {
    let groups: Vec<Value> = served(resources)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_entry(group, versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/<group>`, if there is such a group.
pub fn group(resources: &[Arc<Resource>], name: &str) -> Option<Value> {
    let groups = served(resources);
    let (name, versions) = groups
        .iter()
        .find(|(group, _)| !group.is_empty() && *group == name)?;
    let mut value = group_entry(name, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn group_entry(group: &str, versions: &[&str]) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
        .collect();
    let preferred = entries.first().cloned();
    json!({ "name": group, "versions": entries, "preferredVersion": preferred })
}

/// A part of a resource that has an endpoint of its own.
struct Subresource {
    name: &'static str,
    verbs: &'static [&'static str],
    /// Group, version and kind, where they are not those of the resource.
    kind: Option<(&'static str, &'static str, &'static str)>,
}

const READ_AND_WRITE: &[&str] = &["get", "patch", "update"];

fn subresources(resource: &Resource, version: &Version) -> Vec<Subresource> {
    let mut found = Vec::new();
    match resource.builtin {
        Some(Builtin::Namespace) => found.push(Subresource {
            name: "finalize",
            verbs: &["update"],
            kind: None,
        }),
        Some(Builtin::Pod) => found.push(Subresource {
            name: "log",
            verbs: &["get"],
            kind: None,
        }),
        _ => {}
    }
    if version.has_scale {
        let kind = Some(("autoscaling", "v1", "Scale"));
        found.push(Subresource {
            name: "scale",
            verbs: READ_AND_WRITE,
            kind,
        });
    }
    if version.has_status {
        found.push(Subresource {
            name: "status",
            verbs: READ_AND_WRITE,
            kind: None,
        });
    }
    found
}

/// The verbs as the two kinds of real API server list them: sorted for built-in kinds, as they are for custom ones.
fn verbs(resource: &Resource) -> Vec<&'static str> {
    let mut verbs: Vec<&'static str> = resource.verbs.iter().map(|verb| verb.as_str()).collect();
    if !resource.is_custom() {
        verbs.sort_unstable();
    }
    verbs
}

fn of_group_version<'a>(
    resources: &'a [Arc<Resource>],
    group: &str,
    version: &str,
) -> Vec<(&'a Resource, &'a Version)> {
    let mut found: Vec<_> = resources
        .iter()
        .filter(|resource| resource.group == group)
        .filter_map(|resource| Some((resource.as_ref(), resource.version(version)?)))
        .collect();
    found.sort_by(|(a, _), (b, _)| a.plural.cmp(&b.plural));
    found
}

/// `/api/v1` or `/apis/<group>/<version>`, if anything is served there.
pub fn resource_list(resources: &[Arc<Resource>], group: &str, version: &str) -> Option<Value> {
    let found = of_group_version(resources, group, version);
    let group_version = found.first()?.0.api_version(version);
    let mut entries = Vec::new();
    for (resource, version) in found {
        let namespaced = resource.scope == Scope::Namespaced;
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": namespaced,
            "kind": resource.kind,
            "verbs": verbs(resource),
        });
        add_names(&mut entry, resource);
        if let Some(storage) = resource.versions.iter().find(|version| version.storage)
            && resource.verbs.contains(&Verb::Get)
        {
            entry["storageVersionHash"] = storage_version_hash(resource, &storage.name).into();
        }
        entries.push(entry);
        for sub in subresources(resource, version) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": namespaced,
                "kind": sub.kind.map_or(resource.kind.as_str(), |(_, _, kind)| kind),
                "verbs": sub.verbs,
            });
            if let Some((group, version, _)) = sub.kind {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            entries.push(entry);
        }
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries,
    }))
}

fn add_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
}

/// Tells clients when the version in which objects are stored has changed.
fn storage_version_hash(resource: &Resource, version: &str) -> String {
    let hash = Sha256::digest(format!("{}/{version}/{}", resource.group, resource.kind));
    STANDARD.encode(hash.get(..8).unwrap_or_default())
}

/// `/api` or `/apis` as one document with everything in it.
pub fn aggregated(resources: &[Arc<Resource>], root: Root, form: DiscoveryVersion) -> Value {
    let items: Vec<Value> = served(resources)
        .iter()
        .filter(|(group, _)| group.is_empty() == (root == Root::Core))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let entries: Vec<Value> = of_group_version(resources, group, version)
                        .into_iter()
                        .map(|(resource, version)| aggregated_entry(resource, version))
                        .collect();
                    json!({ "version": version, "resources": entries, "freshness": "Current" })
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({ "name": group })
            };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    let api_version = match form {
        DiscoveryVersion::V2 => "apidiscovery.k8s.io/v2",
        DiscoveryVersion::V2beta1 => "apidiscovery.k8s.io/v2beta1",
    };
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items })
}

fn aggregated_entry(resource: &Resource, version: &Version) -> Value {
    let scope = match resource.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let own_kind = (
        resource.group.as_str(),
        version.name.as_str(),
        resource.kind.as_str(),
    );
    let kind = |(group, version, kind): (&str, &str, &str)| json!({ "group": group, "version": version, "kind": kind });
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(own_kind),
        "scope": scope,
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    add_names(&mut entry, resource);
    let subresources: Vec<Value> = subresources(resource, version)
        .into_iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": kind(sub.kind.unwrap_or(own_kind)),
                "verbs": sub.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

/// `/`: where one may go from here.
pub fn root_paths(resources: &[Arc<Resource>]) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    for (group, versions) in served(resources) {
        let root = if group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{group}")
        };
        if !group.is_empty() {
            paths.push(root.clone());
        }
        paths.extend(versions.iter().map(|version| format!("{root}/{version}")));
    }
    paths.sort_unstable();
    json!({ "paths": paths })
}

/// `/version`
pub fn version_info() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    json!({
        "major": "1",
        "minor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{system}/{architecture}"),
    })
}

/// A fingerprint of a document: the same for the same bytes, in every process.
pub fn content_hash(document: &[u8]) -> String {
    format!("{:X}", Sha256::digest(document))
}

/// The value of the `ETag` header for a document.
pub fn etag(document: &[u8]) -> String {
    format!("\"{}\"", content_hash(document))
}

#[cfg(test)]
mod tests {
    use kube::core::discovery::v2::APIGroupDiscoveryList;

    use super::*;
    use crate::{resource::CREATE_ONLY, testing};

    fn resources() -> Vec<Arc<Resource>> {
        let mut pod = testing::builtin("", "Pod", Builtin::Pod);
        pod.short_names = vec!["po".to_owned()];
        pod.categories = vec!["all".to_owned()];
        pod.versions[0].has_status = true;
        let mut namespace = testing::builtin("", "Namespace", Builtin::Namespace);
        namespace.scope = Scope::Cluster;
        let mut review = testing::builtin(
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            Builtin::SelfSubjectAccessReview,
        );
        review.verbs = CREATE_ONLY;
        review.scope = Scope::Cluster;
        let mut versions: Vec<Version> = ["v1alpha1", "v1beta1", "v1", "old"]
            .map(|name| testing::version(name, Value::Null))
            .to_vec();
        versions[1].storage = false;
        versions[2].storage = false;
        versions[2].has_scale = true;
        versions[2].has_status = true;
        versions[3].served = false;
        let widget = testing::custom("example.com", "Widget", versions);
        let gadget = testing::custom(
            "a.example.com",
            "Gadget",
            vec![testing::version("v1", Value::Null)],
        );
        [gadget, widget, review, pod, namespace].map(Arc::new).to_vec()
    }

    fn names(list: &Value, key: &str) -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|entry| entry[key].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn legacy_documents_list_groups_and_resources() {
        let resources = resources();
        assert_eq!(
            api_versions(&resources, "127.0.0.1:6443")["versions"],
            json!(["v1"])
        );
        let groups = group_list(&resources);
        assert_eq!(
            names(&groups["groups"], "name"),
            ["authorization.k8s.io", "a.example.com", "example.com"],
            "built-in groups come first"
        );
        let example = group(&resources, "example.com").unwrap();
        assert_eq!(
            names(&example["versions"], "version"),
            ["v1", "v1beta1", "v1alpha1"]
        );
        assert_eq!(
            example["preferredVersion"],
            json!({ "groupVersion": "example.com/v1", "version": "v1" })
        );
        assert_eq!(group(&resources, ""), None);
        assert_eq!(group(&resources, "nope"), None);
        assert_eq!(resource_list(&resources, "example.com", "old"), None);

        let core = resource_list(&resources, "", "v1").unwrap();
        assert_eq!(core["groupVersion"], "v1");
        assert_eq!(
            names(&core["resources"], "name"),
            [
                "namespaces",
                "namespaces/finalize",
                "pods",
                "pods/log",
                "pods/status"
            ]
        );
        assert_eq!(core["resources"][2]["shortNames"], json!(["po"]));
        // What kube-apiserver itself says for pods.
        assert_eq!(core["resources"][2]["storageVersionHash"], "xPOwRZ+Yhw8=");
    }

    #[test]
    fn subresources_name_the_kind_they_answer_with() {
        let list = resource_list(&resources(), "example.com", "v1").unwrap();
        assert_eq!(
            list["resources"][1],
            json!({
                "name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
                "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            })
        );
        assert_eq!(list["resources"][2]["kind"], "Widget");
    }

    #[test]
    fn aggregated_documents_are_what_clients_parse() {
        let resources = resources();
        let core = aggregated(&resources, Root::Core, DiscoveryVersion::V2);
        assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
        assert_eq!(core["items"].as_array().unwrap().len(), 1);
        let groups = aggregated(&resources, Root::Groups, DiscoveryVersion::V2beta1);
        assert_eq!(groups["apiVersion"], "apidiscovery.k8s.io/v2beta1");

        let parsed: APIGroupDiscoveryList = serde_json::from_value(groups).unwrap();
        let group_names: Vec<_> = parsed
            .items
            .iter()
            .map(|group| group.metadata.clone().unwrap().name.unwrap())
            .collect();
        assert_eq!(
            group_names,
            ["authorization.k8s.io", "a.example.com", "example.com"]
        );
        let review = &parsed.items[0].versions[0].resources[0];
        assert_eq!(review.verbs, ["create"]);
        let widget = &parsed.items[2].versions[0].resources[0];
        assert_eq!(widget.resource.as_deref(), Some("widgets"));
        let kind = widget.response_kind.as_ref().unwrap();
        assert_eq!(
            (
                kind.group.as_deref(),
                kind.version.as_deref(),
                kind.kind.as_deref()
            ),
            (Some("example.com"), Some("v1"), Some("Widget"))
        );
        assert_eq!(widget.subresources.len(), 2);
    }

    #[test]
    fn the_root_lists_every_path_once() {
        let paths = root_paths(&resources());
        let paths: Vec<&str> = paths["paths"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(paths.contains(&"/api/v1") && paths.contains(&"/apis/example.com/v1beta1"));
        let mut unique = paths.clone();
        unique.dedup();
        assert_eq!(unique, paths);
    }

    #[test]
    fn the_version_can_be_read_by_clients() {
        let info: k8s_openapi::apimachinery::pkg::version::Info =
            serde_json::from_value(version_info()).unwrap();
        assert_eq!((info.major.as_str(), info.minor.as_str()), ("1", "35"));
    }

    #[test]
    fn the_etag_follows_the_content() {
        assert_eq!(etag(b"a"), etag(b"a"));
        assert_ne!(etag(b"a"), etag(b"b"));
        assert!(etag(b"").starts_with('"') && etag(b"").ends_with('"'));
    }
}
