//! The published descriptions of the forges' APIs, cut down to the answers that are read: which fields there are, of which types, and
//! which are always there. Each file in `schemas/` names its source and version. A played forge says nothing with success that does not fit.

use std::sync::OnceLock;

use jangar_forge::Kind;
use jiff::Timestamp;
use serde_json::Value;

/// Names of commits are shortened to no less than this.
const COMMIT_MIN: usize = 7;

/// The description of a forge.
fn described(kind: Kind) -> &'static Value {
    static ALL: OnceLock<[Value; 4]> = OnceLock::new();
    let read = |text: &str| serde_json::from_str(text).unwrap();
    let all = ALL.get_or_init(|| {
        [
            read(include_str!("schemas/github.json")),
            read(include_str!("schemas/gitlab.json")),
            read(include_str!("schemas/bitbucket.json")),
            read(include_str!("schemas/gitea.json")),
        ]
    });
    match kind {
        Kind::Github => &all[0],
        Kind::Gitlab => &all[1],
        Kind::Bitbucket => &all[2],
        Kind::Gitea => &all[3],
    }
}

/// What is wrong with an answer of success to a request, if something is. `path` is that of the API, without the query.
pub(crate) fn misfit(kind: Kind, method: &str, path: &str, status: u16, body: &Value) -> Option<String> {
    if status == 204 {
        return (!body.is_null()).then(|| "204 has no body".to_owned());
    }
    let answers = described(kind)["answers"].as_array().unwrap();
    let published = answers.iter().find(|answer| {
        answer["method"] == method
            && answer["status"] == status
            && matches(answer["path"].as_str().unwrap(), path)
    });
    match published {
        None => Some(format!(
            "{kind:?} publishes no answer {status} to {method} {path}"
        )),
        Some(published) => {
            let definitions = &described(kind)["definitions"];
            flaw(definitions, &published["schema"], body, "").map(|flaw| format!("{kind:?}: {flaw}"))
        }
    }
}

/// Whether a path is one of these; a star stands for one part.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len()
        && pattern
            .iter()
            .zip(&path)
            .all(|(want, is)| *want == "*" || want == is)
}

/// The first place at which a value does not fit.
fn flaw(definitions: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if value.is_null() && schema["nullable"] == true {
        return None;
    }
    let schema = match schema["$ref"].as_str() {
        Some(name) => &definitions[name],
        None => schema,
    };
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        other => return Some(format!("{at}: the type {other:?} is not known here")),
    };
    if !fits {
        return Some(format!("{at} is {value}, and not of type {}", schema["type"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{at} is {value}, which is none of {}", schema["enum"]));
    }
    if let Some(format) = schema["format"].as_str()
        && !is_of(format, value.as_str().unwrap())
    {
        return Some(format!("{at} is {value}, which is no {format}"));
    }
    let required = schema["required"].as_array().into_iter().flatten();
    for field in required.filter_map(Value::as_str) {
        if value.get(field).is_none() {
            return Some(format!("{at}/{field} is missing"));
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        let mut each = values.iter().enumerate();
        return each.find_map(|(index, value)| flaw(definitions, items, value, &format!("{at}/{index}")));
    }
    let mut fields = schema["properties"].as_object().into_iter().flatten();
    fields.find_map(|(name, schema)| flaw(definitions, schema, value.get(name)?, &format!("{at}/{name}")))
}

fn is_of(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<Timestamp>().is_ok(),
        "uri" => text.starts_with("https://"),
        "commit" => text.len() >= COMMIT_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        // One that is not known here is found as a flaw, with its name.
        _ => false,
    }
}

#[test]
fn an_answer_that_does_not_fit_is_found_with_its_place() {
    let branch = |body: &Value| misfit(Kind::Gitea, "GET", "/repos/a/b/branches/fix", 200, body);
    let fine = serde_json::json!({"name": "fix", "commit": {"id": "c0ffee1"}, "protected": false});
    assert_eq!(branch(&fine), None);
    for (place, value, told) in [
        ("/name", Value::Null, "/name is null"),
        (
            "/commit/id",
            7.into(),
            "/commit/id is 7, and not of type \"string\"",
        ),
        ("/protected", "no".into(), "/protected is \"no\""),
    ] {
        let mut body = fine.clone();
        *body.pointer_mut(place).unwrap() = value;
        let found = branch(&body).unwrap();
        assert!(found.contains(told), "{found}");
    }
    let mut lacking = fine;
    lacking["commit"].as_object_mut().unwrap().remove("id");
    assert!(branch(&lacking).unwrap().contains("/commit/id is missing"));
    let unknown = misfit(Kind::Gitea, "GET", "/repos/a/b/forks", 200, &Value::Null).unwrap();
    assert!(unknown.contains("publishes no answer 200"), "{unknown}");
}

#[test]
fn every_description_names_its_source() {
    for kind in [Kind::Github, Kind::Gitlab, Kind::Bitbucket, Kind::Gitea] {
        let source = described(kind)["source"].as_str().unwrap();
        assert!(source.contains("API") || source.contains("OpenAPI"), "{source}");
    }
}
