//! Finds what differs between the answers of two servers.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use super::Answer;

/// One place where two answers differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub area: String,
    /// Of the request.
    pub title: String,
    /// `status`, `content-type`, `warnings`, or `body` and a JSON pointer.
    pub place: String,
    pub expected: Value,
    pub found: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            area, title, place, ..
        } = self;
        write!(
            formatter,
            "{area}: {title}: {place}\n  Kubernetes: {}\n  here:       {}",
            self.expected, self.found
        )
    }
}

/// What differs between two runs of one script.
pub fn differences(area: &str, expected: &[Answer], found: &[Answer]) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut note = |title: &str, place: String, expected: Value, found: Value| {
        if expected != found {
            differences.push(Difference {
                area: area.to_owned(),
                title: title.to_owned(),
                place,
                expected,
                found,
            });
        }
    };
    let titles = |answers: &[Answer]| {
        answers
            .iter()
            .map(|answer| answer.title.as_str())
            .collect::<Vec<_>>()
            .into()
    };
    note("", "requests".to_owned(), titles(expected), titles(found));
    for (one, other) in expected.iter().zip(found) {
        let title = &one.title;
        note(title, "status".to_owned(), one.status.into(), other.status.into());
        note(
            title,
            "content-type".to_owned(),
            one.content_type.clone().into(),
            other.content_type.clone().into(),
        );
        note(
            title,
            "warnings".to_owned(),
            one.warnings.clone().into(),
            other.warnings.clone().into(),
        );
        walk("body", &one.body, &other.body, &mut |place, one, other| {
            note(title, place, one.clone(), other.clone());
        });
    }
    differences
}

/// Goes as deep as both have the same shape.
fn walk(place: &str, one: &Value, other: &Value, note: &mut impl FnMut(String, &Value, &Value)) {
    match (one, other) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                // That a field is missing is not that it is null.
                match (left.get(key), right.get(key)) {
                    (Some(one), Some(other)) => walk(&place, one, other, note),
                    (one, other) => {
                        let missing = Value::from("(missing)");
                        note(place, one.unwrap_or(&missing), other.unwrap_or(&missing));
                    }
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (one, other)) in left.iter().zip(right).enumerate() {
                walk(&format!("{place}/{index}"), one, other, note);
            }
        }
        _ if one == other => {}
        _ => note(place.to_owned(), one, other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, body: Value) -> Answer {
        Answer {
            title: "t".to_owned(),
            status,
            content_type: String::new(),
            warnings: Vec::new(),
            body,
        }
    }

    #[test]
    fn each_place_that_differs_is_named() {
        let expected = [answer(200, json!({"a": {"b": [1, 2]}, "c/d": null, "e": [1]}))];
        let found = [answer(201, json!({"a": {"b": [1, 3]}, "e": [1, 2]}))];

        let places: Vec<_> = differences("area", &expected, &found)
            .into_iter()
            .map(|difference| difference.place)
            .collect();

        assert_eq!(places, ["status", "body/a/b/1", "body/c~1d", "body/e"]);
    }

    #[test]
    fn an_answer_too_few_is_a_difference() {
        let expected = [answer(200, Value::Null)];

        assert_eq!(differences("area", &expected, &[]).len(), 1);
        assert!(differences("area", &expected, &expected).is_empty());
    }
}
