//! Label selectors as Kubernetes writes them: `team=blue,stage in (test, release),!old`.

use std::collections::BTreeMap;

use crate::refusal::Refusal;

/// More requirements than anybody writes by hand.
const REQUIREMENTS_MAX: usize = 50;

/// What labels have to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    /// Also if there is no such label, as in Kubernetes.
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Selector {
    /// Reads a selector; the field is named where it makes no sense.
    pub fn parse(field: &str, text: &str) -> Result<Self, Refusal> {
        let wrong = |wrong: &str| {
            Refusal::field(field, text, wrong).remedy("write it like team=blue,stage in (test,release),!old")
        };
        let parts = split(text).ok_or_else(|| wrong("a parenthesis is not closed"))?;
        if parts.len() > REQUIREMENTS_MAX {
            return Err(wrong("it has more than 50 requirements"));
        }
        let requirements = parts.iter().map(|part| {
            requirement(part).ok_or_else(|| wrong(&format!("`{part}` is no requirement on labels")))
        });
        Ok(Self(requirements.collect::<Result<_, _>>()?))
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Missing(key) => !labels.contains_key(key),
        })
    }
}

/// The requirements between the commas that are in no parenthesis.
fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if inside => return None,
            '(' => inside = true,
            ')' if !inside => return None,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(text.get(start..at)?.trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?.trim());
    (!inside).then(|| parts.into_iter().filter(|part| !part.is_empty()).collect())
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values: Vec<String> = values
            .split(',')
            .map(|value| legal_value(value.trim()))
            .collect::<Option<_>>()?;
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let key = legal_key(key.trim())?;
        return match operator {
            "in" => Some(Requirement::In(key, values)),
            "notin" => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(
            legal_key(key.trim())?,
            vec![legal_value(value.trim())?],
        ));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(
            legal_key(key.trim())?,
            vec![legal_value(value.trim())?],
        ));
    }
    match part.strip_prefix('!') {
        Some(key) => legal_key(key.trim()).map(Requirement::Missing),
        None => legal_key(part).map(Requirement::Exists),
    }
}

fn legal_key(key: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    (!key.is_empty() && key.len() <= 317 && key.chars().all(legal)).then(|| key.to_owned())
}

fn legal_value(value: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (value.len() <= 63 && value.chars().all(legal)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str) -> bool {
        let labels = [("team", "blue"), ("example.com/stage", "test")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let selector = Selector::parse("labelSelector", selector).expect("a selector");
        selector.matches(&BTreeMap::from(labels))
    }

    #[test]
    fn labels_are_selected_as_kubernetes_does() {
        for (selector, expected) in [
            ("", true),
            ("team=blue", true),
            ("team==blue, example.com/stage", true),
            ("team=red", false),
            ("team!=red", true),
            ("other!=red", true),
            ("!team", false),
            ("!other", true),
            ("example.com/stage in (test,release)", true),
            ("example.com/stage notin (test)", false),
            ("other notin (x)", true),
            ("team=blue,other", false),
        ] {
            assert_eq!(selects(selector), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_told() {
        for text in [
            "a in (b",
            "a)",
            "a of (b)",
            "=b",
            "a=b=c",
            "a b",
            "(a)",
            "a in (b))",
            "ä=b",
        ] {
            let refusal = Selector::parse("labelSelector", text).expect_err(text);
            assert!(refusal.to_string().starts_with("labelSelector="), "{refusal}");
        }
    }
}
