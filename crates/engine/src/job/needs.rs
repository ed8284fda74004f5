//! The Secrets and ConfigMaps without which the pod of a Job does not start.
//!
//! A node waits for them without an end, and says so in Events only: whoever makes the Job had better look for them first.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Container, KeyToPath, PodSpec, Volume},
};

use crate::decision::KeyHolder;

/// By Secret or ConfigMap, the keys that it has to have; none if it only has to be there.
pub type Needs = BTreeMap<KeyHolder, BTreeSet<String>>;

/// What the pod of a Job needs. What the pod itself calls optional is left out.
pub fn needs(job: &Job) -> Needs {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut needs = Needs::new();
    if let Some(pod) = pod {
        let volumes = pod.volumes.iter().flatten().flat_map(of_volume);
        for Need { holder, keys } in volumes.chain(containers(pod).flat_map(of_container)) {
            needs.entry(holder).or_default().extend(keys);
        }
    }
    needs
}

struct Need {
    holder: KeyHolder,
    keys: Vec<String>,
}

fn containers(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

/// A need, unless the pod can do without.
fn unless(optional: Option<bool>, holder: KeyHolder, keys: Vec<String>) -> Option<Need> {
    (optional != Some(true)).then_some(Need { holder, keys })
}

fn keys(items: Option<&Vec<KeyToPath>>) -> Vec<String> {
    items.into_iter().flatten().map(|item| item.key.clone()).collect()
}

fn of_volume(volume: &Volume) -> impl Iterator<Item = Need> {
    let secret = volume.secret.as_ref().and_then(|source| {
        let holder = KeyHolder::Secret(source.secret_name.clone()?);
        unless(source.optional, holder, keys(source.items.as_ref()))
    });
    let config_map = volume.config_map.as_ref().and_then(|source| {
        let holder = KeyHolder::ConfigMap(source.name.clone());
        unless(source.optional, holder, keys(source.items.as_ref()))
    });
    let sources = volume.projected.iter().flat_map(|volume| &volume.sources);
    let projected = sources.flatten().flat_map(|source| {
        let secret = source.secret.as_ref().and_then(|source| {
            let holder = KeyHolder::Secret(source.name.clone());
            unless(source.optional, holder, keys(source.items.as_ref()))
        });
        let config_map = source.config_map.as_ref().and_then(|source| {
            let holder = KeyHolder::ConfigMap(source.name.clone());
            unless(source.optional, holder, keys(source.items.as_ref()))
        });
        secret.into_iter().chain(config_map)
    });
    secret.into_iter().chain(config_map).chain(projected)
}

fn of_container(container: &Container) -> impl Iterator<Item = Need> {
    let all = container.env_from.iter().flatten().flat_map(|source| {
        let secret = source.secret_ref.as_ref().and_then(|source| {
            let holder = KeyHolder::Secret(source.name.clone());
            unless(source.optional, holder, Vec::new())
        });
        let config_map = source.config_map_ref.as_ref().and_then(|source| {
            let holder = KeyHolder::ConfigMap(source.name.clone());
            unless(source.optional, holder, Vec::new())
        });
        secret.into_iter().chain(config_map)
    });
    let variables = container.env.iter().flatten();
    let single = variables
        .filter_map(|variable| variable.value_from.as_ref())
        .flat_map(|source| {
            let secret = source.secret_key_ref.as_ref().and_then(|source| {
                let holder = KeyHolder::Secret(source.name.clone());
                unless(source.optional, holder, vec![source.key.clone()])
            });
            let config_map = source.config_map_key_ref.as_ref().and_then(|source| {
                let holder = KeyHolder::ConfigMap(source.name.clone());
                unless(source.optional, holder, vec![source.key.clone()])
            });
            secret.into_iter().chain(config_map)
        });
    all.chain(single)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_keeps_a_node_from_starting_the_pod_is_found_and_nothing_optional() {
        let job: Job = serde_json::from_value(json!({"spec": {"template": {"spec": {
            "volumes": [
                {"name": "a", "secret": {"secretName": "mounted", "items": [{"key": "id", "path": "id"}]}},
                {"name": "b", "configMap": {"name": "settings"}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": "projected"}},
                    {"configMap": {"name": "more", "items": [{"key": "x", "path": "x"}]}},
                    {"secret": {"name": "not-needed", "optional": true}},
                    {"downwardAPI": {"items": []}},
                ]}},
                {"name": "d", "secret": {"secretName": "not-needed", "optional": true}},
                {"name": "e", "emptyDir": {}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "first"}}]}],
            "containers": [{
                "name": "m",
                "envFrom": [
                    {"secretRef": {"name": "all"}},
                    {"secretRef": {"name": "not-needed", "optional": true}},
                ],
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "mounted", "key": "token"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "not-needed", "key": "k", "optional": true}}},
                    {"name": "D", "value": "plain"},
                ],
            }],
        }}}}))
        .expect("a Job");
        let found: Vec<(String, Vec<String>)> = needs(&job)
            .into_iter()
            .map(|(holder, keys)| (holder.to_string(), keys.into_iter().collect()))
            .collect();
        let text = |holder: &str, keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned());
            (holder.to_owned(), keys.collect::<Vec<String>>())
        };
        assert_eq!(
            found,
            [
                text("ConfigMap first", &[]),
                text("ConfigMap more", &["x"]),
                text("ConfigMap settings", &["colour"]),
                text("Secret all", &[]),
                text("Secret mounted", &["id", "token"]),
                text("Secret projected", &[]),
            ]
        );
    }
}
