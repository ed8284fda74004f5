//! How a plan is shown, and which Secrets it names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::plan::Planned;
use crate::{error::Error, output, session::Session};

pub(super) fn show(session: &mut Session, all: &[Planned]) -> Result<(), Error> {
    let format = session.format();
    if output::is_for_programs(&format) {
        let value = serde_json::to_value(all)?;
        return output::value(session, &value);
    }
    for planned in all {
        session
            .console
            .line(&format!("{}: {}", planned.subject, planned.verdict))?;
        let secrets: Vec<String> = planned.secrets.iter().cloned().collect();
        for (title, lines) in [
            ("steps", &planned.steps),
            ("gates", &planned.gates),
            ("limits", &planned.limits),
            ("secrets", &secrets),
            ("notes", &planned.notes),
        ] {
            for line in lines {
                session.console.line(&format!("  {title:<8} {line}"))?;
            }
        }
        for object in &planned.makes {
            let text = output::yaml(object)?;
            session.console.data(&format!("---\n{text}"))?;
        }
    }
    Ok(())
}

/// The names of all Secrets that an object refers to, wherever they stand.
pub(super) fn secrets(object: &Value, found: &mut BTreeSet<String>) {
    match object {
        Value::Object(map) => {
            for (key, value) in map {
                let name = match key.as_str() {
                    "secretRef" | "secretKeyRef" => value.get("name"),
                    "secret" => value.get("secretName").or_else(|| value.get("name")),
                    _ => None,
                };
                found.extend(name.and_then(Value::as_str).map(str::to_owned));
                if key == "imagePullSecrets" {
                    let names = value.as_array().into_iter().flatten();
                    found.extend(
                        names
                            .filter_map(|entry| entry.get("name")?.as_str())
                            .map(str::to_owned),
                    );
                }
                secrets(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secrets(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_found_wherever_they_are_named() {
        let pod = json!({
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{
                "envFrom": [{"secretRef": {"name": "env"}}],
                "env": [{"valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}],
            }],
            "volumes": [{"secret": {"secretName": "files"}}, {"projected": {"sources": [{"secret": {"name": "part"}}]}}],
        });
        let mut found = BTreeSet::new();
        secrets(&pod, &mut found);
        let expected = ["env", "files", "one", "part", "registry"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(expected));
    }
}
