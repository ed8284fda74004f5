//! Replaces `{{ path.to.value }}` in text.
//!
//! A value that is missing becomes nothing, one that is not a string becomes JSON, and what is no placeholder stays as it
//! is. What a value brings in is not looked at again, so a parameter that contains braces cannot pull in another value.

use serde_json::Value;

/// Text with its placeholders replaced, and the paths that had no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) missing: Vec<String>,
}

/// Renders `template`; `roots` are looked through in order for the first part of each path.
pub(crate) fn render(template: &str, roots: &[&Value]) -> Rendered {
    let mut text = String::with_capacity(template.len());
    let mut missing = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let Some((path, behind)) = after.split_once("}}").filter(|(path, _)| is_path(path.trim())) else {
            text.push_str("{{");
            rest = after;
            continue;
        };
        let path = path.trim();
        match roots.iter().find_map(|root| lookup(root, path)) {
            None | Some(Value::Null) => missing.push(path.to_owned()),
            Some(Value::String(value)) => text.push_str(value),
            Some(value) => text.push_str(&value.to_string()),
        }
        rest = behind;
    }
    text.push_str(rest);
    Rendered { text, missing }
}

fn is_path(path: &str) -> bool {
    !path.is_empty()
        && path
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn lookup<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(root, |value, part| match value {
        Value::Object(fields) => fields.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let first = json!({"inputs": {"stage": "build", "n": 3, "tags": ["a", "b"], "none": null}});
        let second = json!({"agentRun": {"name": "fix-1"}, "inputs": {"stage": "hidden"}});

        for (template, expected, missing) in [
            ("plain", "plain", &[][..]),
            ("{{inputs.stage}}-{{ agentRun.name }}", "build-fix-1", &[]),
            (
                "{{ inputs.n }} {{ inputs.tags }} {{ inputs.tags.1 }}",
                "3 [\"a\",\"b\"] b",
                &[],
            ),
            (
                "[{{ inputs.absent }}][{{ inputs.none }}]",
                "[][]",
                &["inputs.absent", "inputs.none"],
            ),
            ("{{ inputs.stage", "{{ inputs.stage", &[]),
            ("{{}} {{ a b }} }}", "{{}} {{ a b }} }}", &[]),
            ("{{ {{ inputs.stage }}", "{{ build", &[]),
            ("ünï {{ inputs.stage }} ✓", "ünï build ✓", &[]),
        ] {
            let rendered = render(template, &[&first, &second]);
            assert_eq!(rendered.text, expected, "{template}");
            assert_eq!(rendered.missing, missing, "{template}");
        }
    }

    #[test]
    fn a_value_is_not_rendered_again() {
        let root = json!({"a": "{{ b }}", "b": "secret"});

        assert_eq!(render("{{ a }}", &[&root]).text, "{{ b }}");
    }
}
