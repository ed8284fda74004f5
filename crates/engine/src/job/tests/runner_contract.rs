//! The engine may not depend on the runner, so what they agree on is held to the page that both are written after.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::World;

/// The paths of all fields, without those inside of the parameters, whose names are the user's.
fn fields(value: &Value, path: &str, out: &mut Vec<String>) {
    match value.as_object() {
        Some(object) if path != "inputs" => {
            for (name, value) in object {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                fields(value, &path, out);
            }
        }
        _ => out.push(path.to_owned()),
    }
}

#[test]
fn every_field_of_the_runners_document_is_in_its_manual() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agent-runner.md");
    let manual = fs::read_to_string(manual).expect("the manual");
    let table: Vec<&str> = manual
        .split("## agent-runner.json")
        .nth(1)
        .expect("the section")
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .collect();
    let world = World::minimal()
        .with_agent(&json!({"defaults": {"timeoutSeconds": 60}}))
        .with_provider(&json!({"argsTemplate": ["-x"]}))
        .with_run(&json!({"parameters": {"a": "b"}}));
    let mut written = Vec::new();
    fields(&world.document("agent-runner.json"), "", &mut written);

    assert!(
        written.contains(&"deadlines.softSeconds".to_owned()),
        "{written:?}"
    );
    for field in written {
        // A row lists fields of one object as `a.x`, `y`; the first carries the name of the object.
        let (object, name) = field.rsplit_once('.').unwrap_or(("", &field));
        let listed = table.iter().any(|row| {
            row.contains(&format!("`{field}`"))
                || (!object.is_empty()
                    && row.contains(&format!("`{object}."))
                    && row.contains(&format!("`{name}`")))
        });
        assert!(listed, "{field} is not in the manual");
    }
}
