//! Values of the chart before this one are taken as they are, or refused with a sentence, and UPGRADE.md tells what is different.

use serde_json::Value;

use crate::helm::root;

/// Every value of the chart 0.9, with its type. `any` had none.
const EARLIER: &str = include_str!("earlier-values.txt");

fn text(file: &str) -> String {
    std::fs::read_to_string(root().join("charts/agents").join(file)).expect("it is readable")
}

/// What the schema says of a value, or of the last above it that it says anything of.
fn said_of<'a>(schema: &'a Value, name: &str) -> &'a Value {
    name.split('.')
        .fold(schema, |at, key| match &at["properties"][key] {
            Value::Null if at["properties"].is_null() => at,
            inner => inner,
        })
}

#[test]
fn each_earlier_value_is_taken_with_its_type_or_refused_with_a_sentence() {
    let schema: Value = serde_json::from_str(&text("values.schema.json")).expect("it is JSON");
    let upgrade = text("UPGRADE.md");
    let mut count = 0;
    for line in EARLIER.lines() {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let said = said_of(&schema, name);
        assert!(!said.is_null(), "{name} is unknown, and nothing says why");
        if let Some(sentence) = said["const"].as_str() {
            let gone = sentence.split(' ').next().expect("it begins with the name");
            assert!(name.starts_with(gone), "{name}: {sentence}");
            assert!(
                upgrade.contains(&format!("`{gone}`")),
                "UPGRADE.md does not name {gone}"
            );
            continue;
        }
        let types = match (&said["type"], &said["enum"]) {
            (Value::Array(types), _) => types.clone(),
            (Value::Null, Value::Array(_)) => vec![Value::from("string")],
            (one, _) => vec![one.clone()],
        };
        let is_below = said["type"] == "object" && kind != "object";
        assert!(
            kind == "any" || is_below || types.iter().any(|each| each == kind),
            "{name} was {kind} and is {types:?}"
        );
        count += 1;
    }
    assert!(count > 200, "{count}");
}
