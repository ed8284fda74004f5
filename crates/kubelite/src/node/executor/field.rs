//! The values that a pod may read of itself: `fieldRef` and `resourceFieldRef`.

use std::{collections::BTreeMap, fmt::Write};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::objects::ConfigError;
use crate::builtin::quantity::Quantity;

/// What a pod can learn about the machine it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Pods share the machine's network, so this is their address too.
    pub(crate) host_ip: String,
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: u64,
}

impl Facts {
    pub(crate) fn of_this_machine() -> Self {
        #[cfg(target_os = "linux")]
        let memory_bytes = {
            let info = rustix::system::sysinfo();
            // The kernel counts in words of the platform's size.
            #[expect(clippy::useless_conversion, reason = "the word is smaller on other platforms")]
            u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
        };
        #[cfg(not(target_os = "linux"))]
        let memory_bytes = FALLBACK_MEMORY_BYTES;
        Self {
            host_ip: "127.0.0.1".to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self {
            host_ip: "127.0.0.1".to_owned(),
            cpus: 4,
            memory_bytes: 8 << 30,
        }
    }
}

/// Told to a pod without a memory limit where the machine's memory cannot be asked for.
#[cfg(not(target_os = "linux"))]
const FALLBACK_MEMORY_BYTES: u64 = 8 << 30;

/// The value of a `fieldRef`.
pub(crate) fn pod_field(pod: &Pod, path: &str, facts: &Facts) -> Result<String, ConfigError> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let values = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(unknown(path)),
        };
        return Ok(values
            .as_ref()
            .and_then(|values| values.get(key))
            .cloned()
            .unwrap_or_default());
    }
    let text = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => Some(map_lines(metadata.labels.as_ref())),
        "metadata.annotations" => Some(map_lines(metadata.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => Some(facts.host_ip.clone()),
        _ => return Err(unknown(path)),
    };
    Ok(text.unwrap_or_default())
}

fn unknown(path: &str) -> ConfigError {
    ConfigError::UnknownField {
        path: path.to_owned(),
    }
}

/// A whole map, one `key="value"` per line in order of the keys.
fn map_lines(map: Option<&BTreeMap<String, String>>) -> String {
    let mut lines = String::new();
    for (key, value) in map.into_iter().flatten() {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{key}={value:?}");
    }
    lines.truncate(lines.trim_end().len());
    lines
}

/// The value of a `resourceFieldRef`. A limit that is not set is what the machine has.
pub(crate) fn resource_field(
    pod: &Pod,
    own: &Container,
    reference: &ResourceFieldSelector,
    facts: &Facts,
) -> Result<String, ConfigError> {
    let container = match reference.container_name.as_deref() {
        None | Some("") => own,
        Some(name) => containers(pod)
            .find(|container| container.name == name)
            .ok_or_else(|| unknown(&reference.resource))?,
    };
    let resources = container.resources.as_ref();
    let (list, resource) = reference
        .resource
        .split_once('.')
        .ok_or_else(|| unknown(&reference.resource))?;
    let (values, otherwise) = match list {
        "limits" => (
            resources.and_then(|resources| resources.limits.as_ref()),
            match resource {
                "cpu" => facts.cpus.to_string(),
                "memory" => facts.memory_bytes.to_string(),
                _ => "0".to_owned(),
            },
        ),
        "requests" => (
            resources.and_then(|resources| resources.requests.as_ref()),
            "0".to_owned(),
        ),
        _ => return Err(unknown(&reference.resource)),
    };
    let amount = values
        .and_then(|values| values.get(resource))
        .map_or(otherwise, |quantity| quantity.0.clone());
    let divisor = reference
        .divisor
        .as_ref()
        .map(|divisor| divisor.0.as_str())
        .filter(|divisor| !matches!(*divisor, "" | "0"))
        .unwrap_or("1");
    Quantity::parse(&amount)
        .ok()
        .zip(Quantity::parse(divisor).ok())
        .and_then(|(amount, divisor)| amount.divided_up(divisor))
        .map(|count| count.to_string())
        .ok_or_else(|| unknown(&reference.resource))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"b": "2\"\n", "a": "1"}},
            "spec": {
                "nodeName": "n", "serviceAccountName": "sa",
                "containers": [{"name": "one"}, {"name": "two", "resources": {"requests": {"memory": "1Gi"}}}]
            }
        }))
        .unwrap()
    }

    #[test]
    fn fields_of_a_pod_are_told_as_the_kubelet_tells_them() {
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("spec.nodeName", "n"),
            ("spec.serviceAccountName", "sa"),
            ("status.podIP", "127.0.0.1"),
            ("metadata.annotations['a']", "1"),
            ("metadata.annotations['none']", ""),
            ("metadata.annotations", "a=\"1\"\nb=\"2\\\"\\n\""),
        ] {
            assert_eq!(
                pod_field(&pod(), path, &Facts::for_tests()).unwrap(),
                expected,
                "{path}"
            );
        }
        for path in ["", "status.phase", "metadata.x['y']", "['"] {
            assert!(pod_field(&pod(), path, &Facts::for_tests()).is_err(), "{path}");
        }
    }

    #[test]
    fn resources_fall_back_to_the_machine_and_round_up() {
        let pod = pod();
        let own = &pod.spec.as_ref().unwrap().containers[0];
        for (reference, expected) in [
            (json!({"resource": "limits.cpu"}), "4"),
            (json!({"resource": "limits.memory", "divisor": "1Gi"}), "8"),
            (json!({"resource": "requests.memory"}), "0"),
            (
                json!({"resource": "requests.memory", "containerName": "two", "divisor": "3Gi"}),
                "1",
            ),
        ] {
            let reference = serde_json::from_value(reference).unwrap();
            let value = resource_field(&pod, own, &reference, &Facts::for_tests()).unwrap();
            assert_eq!(value, expected, "{reference:?}");
        }
        let wrong =
            serde_json::from_value(json!({"resource": "limits.cpu", "containerName": "none"})).unwrap();
        assert!(resource_field(&pod, own, &wrong, &Facts::for_tests()).is_err());
    }
}
