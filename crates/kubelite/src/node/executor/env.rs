//! A container's environment and command line, as the kubelet makes them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use super::{
    field::{self, Facts},
    objects::{ConfigError, Objects},
};

/// How much environment a container may have. Linux takes about two megabytes, arguments included.
const ENV_BYTES_MAX: usize = 1024 * 1024;

/// The environment of a container: `envFrom` first, then `env` in its order, later ones over earlier ones.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    objects: &Objects,
    facts: &Facts,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut env = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or("");
        if let Some(reference) = &from.config_map_ref {
            if let Some(map) = objects.config_map(&reference.name, reference.optional)? {
                for (key, value) in map.data.iter().flatten() {
                    env.insert(format!("{prefix}{key}"), value.clone());
                }
            }
        } else if let Some(reference) = &from.secret_ref
            && let Some(secret) = objects.secret(&reference.name, reference.optional)?
        {
            for (key, value) in secret.data.iter().flatten() {
                env.insert(
                    format!("{prefix}{key}"),
                    String::from_utf8_lossy(&value.0).into_owned(),
                );
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, container, variable, objects, facts, &env)? {
            env.insert(variable.name.clone(), value);
        }
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes > ENV_BYTES_MAX {
        return Err(ConfigError::EnvTooLarge {
            bytes,
            max: ENV_BYTES_MAX,
        });
    }
    // The operating system cannot pass these on.
    match env
        .iter()
        .find(|(name, value)| name.contains(['=', '\0']) || value.contains('\0'))
    {
        Some((name, _)) => Err(ConfigError::EnvUnfit { name: name.clone() }),
        None => Ok(env),
    }
}

/// The value of one variable; `None` if it is optional and not there.
fn value(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    objects: &Objects,
    facts: &Facts,
    env: &BTreeMap<String, String>,
) -> Result<Option<String>, ConfigError> {
    let literal = variable.value.as_deref().unwrap_or("");
    if !literal.is_empty() {
        return Ok(Some(expand(literal, env)));
    }
    let Some(source) = &variable.value_from else {
        return Ok(Some(String::new()));
    };
    if let Some(reference) = &source.field_ref {
        return field::pod_field(pod, &reference.field_path, facts).map(Some);
    }
    if let Some(reference) = &source.resource_field_ref {
        return field::resource_field(pod, container, reference, facts).map(Some);
    }
    if let Some(reference) = &source.config_map_key_ref {
        let Some(map) = objects.config_map(&reference.name, reference.optional)? else {
            return Ok(None);
        };
        return match map.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if reference.optional == Some(true) => Ok(None),
            None => Err(objects.missing_map_key(&reference.name, &reference.key)),
        };
    }
    if let Some(reference) = &source.secret_key_ref {
        let Some(secret) = objects.secret(&reference.name, reference.optional)? else {
            return Ok(None);
        };
        return match secret.data.as_ref().and_then(|data| data.get(&reference.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None if reference.optional == Some(true) => Ok(None),
            None => Err(objects.missing_secret_key(&reference.name, &reference.key)),
        };
    }
    Err(ConfigError::UnknownSource {
        name: variable.name.clone(),
    })
}

/// Replaces `$(NAME)` by the variable. `$$` is a dollar, and what names no variable stays as it is.
pub(crate) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_expanded_as_kubernetes_expands_them() {
        let env = BTreeMap::from([
            ("A".to_owned(), "a".to_owned()),
            ("EMPTY".to_owned(), String::new()),
        ]);
        for (text, expected) in [
            ("$(A)", "a"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("x$(A)y$(B)z", "xay$(B)z"),
            ("$(EMPTY)", ""),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("$", "$"),
            ("$$", "$"),
            ("a$(A)$", "aa$"),
            ("$()", "$()"),
            ("${A}", "${A}"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    fn objects() -> Objects {
        let map: ConfigMap = serde_json::from_value(json!({"data": {"k": "v", "l": "w"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"s": "c2VjcmV0"}})).unwrap();
        Objects::new("ns")
            .with_config_map("m", map)
            .with_secret("s", secret)
    }

    fn environment_of(container: &serde_json::Value) -> Result<BTreeMap<String, String>, ConfigError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a/b": "c"}},
            "spec": {"containers": [container], "nodeName": "n"}
        }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        environment(&pod, container, &objects(), &Facts::for_tests())
    }

    #[test]
    fn every_source_of_a_variable_is_known() {
        let env = environment_of(&json!({
            "name": "c",
            "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
            "envFrom": [
                {"prefix": "P_", "configMapRef": {"name": "m"}},
                {"secretRef": {"name": "s"}},
                {"configMapRef": {"name": "none", "optional": true}}
            ],
            "env": [
                {"name": "LITERAL", "value": "$(P_k)-$(later)"},
                {"name": "P_l", "value": "over"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "s"}}},
                {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": true}}}
            ]
        }))
        .unwrap();
        let expected = [
            ("CPU", "2"),
            ("LABEL", "c"),
            ("LITERAL", "v-$(later)"),
            ("MAP", "v"),
            ("MEM", "64"),
            ("POD", "p"),
            ("P_k", "v"),
            ("P_l", "over"),
            ("SECRET", "secret"),
            ("s", "secret"),
        ];
        let found: Vec<(&str, &str)> = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_missing_is_named_as_the_kubelet_names_it() {
        for (env, message) in [
            (
                json!({"configMapKeyRef": {"name": "x", "key": "k"}}),
                r#"configmap "x" not found"#,
            ),
            (
                json!({"secretKeyRef": {"name": "x", "key": "k"}}),
                r#"secret "x" not found"#,
            ),
            (
                json!({"configMapKeyRef": {"name": "m", "key": "x"}}),
                "couldn't find key x in ConfigMap ns/m",
            ),
            (
                json!({"secretKeyRef": {"name": "s", "key": "x"}}),
                "couldn't find key x in Secret ns/s",
            ),
        ] {
            let container = json!({"name": "c", "env": [{"name": "E", "valueFrom": env}]});
            assert_eq!(environment_of(&container).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn an_environment_that_no_process_can_have_is_refused() {
        let large = json!({"name": "c", "env": [{"name": "E", "value": "x".repeat(ENV_BYTES_MAX)}]});
        assert!(matches!(
            environment_of(&large),
            Err(ConfigError::EnvTooLarge { .. })
        ));
        let nul = json!({"name": "c", "env": [{"name": "E", "value": "a\u{0}b"}]});
        assert!(matches!(environment_of(&nul), Err(ConfigError::EnvUnfit { .. })));
    }
}
