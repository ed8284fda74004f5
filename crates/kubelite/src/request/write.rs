//! Options of requests that change something.

use serde_json::{Map, Value};

use super::Query;
use crate::{
    error::{ApiError, Subject},
    field::{FieldError, FieldPath, Problem, json_type_name},
    patch::PatchKind,
};

const MAX_FIELD_MANAGER_BYTES: usize = 128;

/// Which write the options belong to; their rules and their kind's name differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Write {
    Create,
    Update,
    Patch(PatchKind),
}

/// What happens with unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
    /// Take fields from other managers. Only an apply may say so.
    pub force: bool,
}

impl WriteOptions {
    pub fn from_query(query: &Query, write: Write) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let manager = query.first("fieldManager").unwrap_or_default();
        let force = query.flag("force");
        match write {
            Write::Patch(PatchKind::Apply) if manager.is_empty() => {
                errors.push(FieldError::required(
                    FieldPath::new("fieldManager"),
                    "is required for apply patch",
                ));
            }
            Write::Patch(PatchKind::Json | PatchKind::Merge | PatchKind::Strategic) if force.is_some() => {
                errors.push(FieldError::forbidden(
                    FieldPath::new("force"),
                    "may not be specified for non-apply patch",
                ));
            }
            _ => {}
        }
        check_manager(manager, &mut errors);
        let dry_run = dry_run(query.all("dryRun").map(ToOwned::to_owned).collect(), &mut errors);
        let field_validation = match query.first("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                errors.push(unsupported("fieldValidation", other.into(), &allowed));
                FieldValidation::default()
            }
        };
        let kind = match write {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch(_) => "PatchOptions",
        };
        refuse(kind, &errors)?;
        let field_manager = if manager.is_empty() {
            None
        } else {
            Some(manager.to_owned())
        };
        Ok(Self {
            dry_run,
            field_manager,
            field_validation,
            force: matches!(write, Write::Patch(PatchKind::Apply)) && force.unwrap_or_default(),
        })
    }
}

/// The manager of a write that names none: what precedes the first slash of its `User-Agent`.
pub fn manager_from_user_agent(user_agent: &str) -> String {
    let mut manager = String::new();
    for character in user_agent.split('/').next().unwrap_or_default().chars() {
        if !is_print(character) {
            continue;
        }
        if manager.len() + character.len_utf8() > MAX_FIELD_MANAGER_BYTES {
            break;
        }
        manager.push(character);
    }
    manager
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    let path = || FieldPath::new("fieldManager");
    if manager.len() > MAX_FIELD_MANAGER_BYTES {
        let max_bytes = MAX_FIELD_MANAGER_BYTES as u64;
        errors.push(FieldError::new(path(), Problem::TooLong { max_bytes }, ""));
        return;
    }
    for (position, character) in manager
        .char_indices()
        .filter(|(_, character)| !is_print(*character))
    {
        let why = format!(
            "invalid character U+{:04X} (at position {position})",
            u32::from(character)
        );
        errors.push(FieldError::invalid(path(), manager, why));
    }
}

/// Go's `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
fn is_print(character: char) -> bool {
    if character.is_ascii() {
        return matches!(character, ' '..='~');
    }
    // Rust's debug form escapes what is not printable; after another character it leaves combining marks alone.
    !character.is_whitespace() && format!("a{character}").escape_debug().nth(1) == Some(character)
}

fn dry_run(values: Vec<String>, errors: &mut Vec<FieldError>) -> bool {
    let asked = !values.is_empty();
    if values.iter().any(|value| value != "All") {
        errors.push(unsupported("dryRun", values.into(), &["All"]));
    }
    asked
}

fn unsupported(field: &str, value: Value, allowed: &[&str]) -> FieldError {
    let allowed = allowed.iter().map(ToString::to_string).collect();
    FieldError::new(FieldPath::new(field), Problem::NotSupported(value, allowed), "")
}

fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        Subject {
            group: "meta.k8s.io",
            resource: "",
            kind,
            name: "",
        },
        errors,
    ))
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// What must be true of the object for the deletion to happen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<u64>,
    pub preconditions: Preconditions,
    /// `None`: what the kind does by default.
    pub propagation: Option<Propagation>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// The options of a deletion without a body.
    pub fn from_query(query: &Query) -> Result<Self, ApiError> {
        let text = |name| {
            query
                .first(name)
                .filter(|value| !value.is_empty())
                .map(ToOwned::to_owned)
        };
        Raw {
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            orphan_dependents: query.flag("orphanDependents"),
            propagation_policy: query.first("propagationPolicy").map(ToOwned::to_owned),
            dry_run: query.all("dryRun").map(ToOwned::to_owned).collect(),
        }
        .check()
    }

    /// The options of a deletion with a body; its query string is then ignored, as in Kubernetes.
    pub fn from_body(body: &Value) -> Result<Self, ApiError> {
        Raw::read(body).map_err(ApiError::bad_request)?.check()
    }
}

struct Raw {
    grace_period_seconds: Option<i64>,
    uid: Option<String>,
    resource_version: Option<String>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Vec<String>,
}

impl Raw {
    fn read(body: &Value) -> Result<Self, String> {
        let empty = Map::new();
        let body = match body {
            Value::Object(body) => body,
            Value::Null => &empty,
            other => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go value of type v1.DeleteOptions",
                    json_type_name(other)
                ));
            }
        };
        if let Some(kind) = body.get("kind").and_then(Value::as_str)
            && !kind.is_empty()
            && kind != "DeleteOptions"
        {
            let version = body.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            return Err(format!("no kind {kind:?} is registered for version {version:?}"));
        }
        let preconditions = match body.get("preconditions") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(preconditions)) => preconditions,
            Some(other) => return Err(mismatch("preconditions", other, "v1.Preconditions")),
        };
        let dry_run = match body.get("dryRun") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .map(ToOwned::to_owned)
                        .ok_or_else(|| mismatch("dryRun", value, "string"))
                })
                .collect::<Result<_, _>>()?,
            Some(other) => return Err(mismatch("dryRun", other, "[]string")),
        };
        Ok(Self {
            grace_period_seconds: field(body, "gracePeriodSeconds", "int64", Value::as_i64)?,
            uid: field(preconditions, "uid", "types.UID", |value| {
                value.as_str().map(ToOwned::to_owned)
            })?,
            resource_version: field(preconditions, "resourceVersion", "string", |value| {
                value.as_str().map(ToOwned::to_owned)
            })?,
            orphan_dependents: field(body, "orphanDependents", "bool", Value::as_bool)?,
            propagation_policy: field(body, "propagationPolicy", "v1.DeletionPropagation", |value| {
                value.as_str().map(ToOwned::to_owned)
            })?,
            dry_run,
        })
    }

    fn check(self) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        let policy = || FieldPath::new("propagationPolicy");
        if let (Some(_), Some(chosen)) = (self.orphan_dependents, &self.propagation_policy) {
            errors.push(FieldError::invalid(
                policy(),
                chosen.as_str(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match self.propagation_policy.as_deref() {
            None => self.orphan_dependents.map(|orphan| {
                if orphan {
                    Propagation::Orphan
                } else {
                    Propagation::Background
                }
            }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(unsupported("propagationPolicy", other.into(), &allowed));
                None
            }
        };
        let dry_run = dry_run(self.dry_run, &mut errors);
        refuse("DeleteOptions", &errors)?;
        Ok(DeleteOptions {
            // Kubernetes takes a negative period for one second.
            grace_period_seconds: self
                .grace_period_seconds
                .map(|seconds| u64::try_from(seconds).unwrap_or(1)),
            preconditions: Preconditions {
                uid: self.uid,
                resource_version: self.resource_version,
            },
            propagation,
            dry_run,
        })
    }
}

fn field<T>(
    object: &Map<String, Value>,
    name: &str,
    go_type: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value)
            .map(Some)
            .ok_or_else(|| mismatch(name, value, go_type)),
    }
}

fn mismatch(name: &str, value: &Value, go_type: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field DeleteOptions.{name} of type {go_type}",
        json_type_name(value)
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn write(query: &str, write: Write) -> Result<WriteOptions, ApiError> {
        WriteOptions::from_query(&Query::parse(Some(query)).unwrap(), write)
    }

    #[test]
    fn write_options_are_read_from_the_query() {
        let options = write(
            "fieldManager=me&force=true&dryRun=All&fieldValidation=Strict",
            Write::Patch(PatchKind::Apply),
        );
        let expected = WriteOptions {
            dry_run: true,
            field_manager: Some("me".to_owned()),
            field_validation: FieldValidation::Strict,
            force: true,
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(write("", Write::Create), Ok(WriteOptions::default()));
        assert!(!write("force=true", Write::Update).unwrap().force);
    }

    #[test]
    fn wrong_write_options_are_invalid() {
        let long = format!("fieldManager={}", "a".repeat(129));
        let cases = [
            (
                "dryRun=x",
                Write::Create,
                "CreateOptions",
                "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=x",
                Write::Update,
                "UpdateOptions",
                "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "",
                Write::Patch(PatchKind::Apply),
                "PatchOptions",
                "fieldManager: Required value: is required for apply patch",
            ),
            (
                "force=false",
                Write::Patch(PatchKind::Merge),
                "PatchOptions",
                "force: Forbidden: may not be specified for non-apply patch",
            ),
            (
                &long,
                Write::Create,
                "CreateOptions",
                "fieldManager: Too long: may not be more than 128 bytes",
            ),
            (
                "fieldManager=a%09b",
                Write::Create,
                "CreateOptions",
                "fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
            ),
        ];
        for (query, kind_of_write, kind, why) in cases {
            let message = write(query, kind_of_write).unwrap_err().message;
            assert_eq!(message, format!("{kind}.meta.k8s.io \"\" is invalid: {why}"));
        }
    }

    #[test]
    fn the_user_agent_names_a_manager() {
        let cases = [
            ("kubectl/v1.35.8 (linux/amd64)", "kubectl"),
            ("", ""),
            ("a\u{7}b\u{200b}c\u{e000}é e\u{301}", "abcé e\u{301}"),
        ];
        for (agent, manager) in cases {
            assert_eq!(manager_from_user_agent(agent), manager);
        }
        assert_eq!(manager_from_user_agent(&"é".repeat(100)).len(), 128);
    }

    #[test]
    fn delete_options_come_from_the_query_or_the_body() {
        let query = "gracePeriodSeconds=5&propagationPolicy=Foreground&uid=u&resourceVersion=7&dryRun=All";
        let from_query = DeleteOptions::from_query(&Query::parse(Some(query)).unwrap());
        let body = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5, "propagationPolicy": "Foreground",
            "preconditions": { "uid": "u", "resourceVersion": "7" }, "dryRun": ["All"],
        });
        let expected = DeleteOptions {
            grace_period_seconds: Some(5),
            preconditions: Preconditions {
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
            },
            propagation: Some(Propagation::Foreground),
            dry_run: true,
        };
        assert_eq!(from_query.as_ref(), Ok(&expected));
        assert_eq!(DeleteOptions::from_body(&body), Ok(expected));
        assert_eq!(DeleteOptions::from_body(&json!({})), Ok(DeleteOptions::default()));
        let orphan =
            DeleteOptions::from_body(&json!({ "orphanDependents": true, "gracePeriodSeconds": -4 })).unwrap();
        assert_eq!(
            (orphan.propagation, orphan.grace_period_seconds),
            (Some(Propagation::Orphan), Some(1))
        );
    }

    #[test]
    fn wrong_delete_options_are_refused() {
        let invalid = [
            (
                json!({ "orphanDependents": true, "propagationPolicy": "Orphan" }),
                "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
            ),
            (
                json!({ "propagationPolicy": "x" }),
                "propagationPolicy: Unsupported value: \"x\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ),
            (
                json!({ "dryRun": ["x"] }),
                "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
        ];
        for (body, why) in invalid {
            let message = DeleteOptions::from_body(&body).unwrap_err().message;
            assert_eq!(
                message,
                format!("DeleteOptions.meta.k8s.io \"\" is invalid: {why}")
            );
        }
        let malformed = [
            (
                json!({ "gracePeriodSeconds": "5" }),
                "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
            ),
            (
                json!({ "kind": "Pod", "apiVersion": "v1" }),
                "no kind \"Pod\" is registered for version \"v1\"",
            ),
            (
                json!([]),
                "json: cannot unmarshal array into Go value of type v1.DeleteOptions",
            ),
        ];
        for (body, message) in malformed {
            assert_eq!(
                DeleteOptions::from_body(&body),
                Err(ApiError::bad_request(message))
            );
        }
    }

    proptest! {
        #[test]
        fn no_write_options_panic(manager in "\\PC{0,200}", value in "\\PC{0,20}") {
            let query = format!("fieldManager={manager}&dryRun={value}&fieldValidation={value}&force={value}");
            if let Ok(query) = Query::parse(Some(&query)) {
                let _ = WriteOptions::from_query(&query, Write::Patch(PatchKind::Apply));
                let _ = DeleteOptions::from_query(&query);
            }
            let _ = manager_from_user_agent(&manager);
        }
    }
}
