//! Holds the generated schemas against the table of what existed before, in both directions.

use std::collections::BTreeSet;

use jangar_api::Kind;
use serde_json::{Value, json};

use crate::support::{node, schema, walk};

/// What is open among the additions: an agent reports what it likes.
const ADDED_OPEN: &[(Kind, &str)] = &[
    (Kind::AgentRun, "status.outcome.outputs"),
    (Kind::AgentRun, "status.outcome.usage"),
    (Kind::AgentRun, "status.workflow.steps[].outputs"),
    (Kind::OrchestrationRun, "status.definition.steps[]"),
    (Kind::ToolRun, "status.outcome.outputs"),
    (Kind::ToolRun, "status.outcome.usage"),
];

/// What this implementation adds to the table, for each kind.
const ADDED: &[(&[Kind], &[&str])] = &[
    (
        Kind::ALL,
        &[
            "status.conditions",
            "status.observedGeneration",
            "status.updatedAt",
        ],
    ),
    (
        &[Kind::AgentRun, Kind::OrchestrationRun, Kind::ToolRun],
        &["spec.cancel", "spec.desiredState", "spec.cancelReason"],
    ),
    (
        &[Kind::AgentRun],
        &[
            "spec.priority",
            "spec.workflow.steps[].onJobMissing",
            "status.admittedAt",
            "status.canonicalRun",
            "status.cancelDeadline",
            "status.outcome",
            "status.retention",
            "status.survivorsGoneAt",
            "status.vcs.commit",
            "status.vcs.commitsAhead",
            "status.vcs.pullRequest",
            "status.vcs.tokenExpiresAt",
            "status.waiting",
            "status.workflow.steps[].outputs",
        ],
    ),
    (
        &[Kind::Orchestration],
        &["spec.steps[].continueOnFailure", "spec.steps[].when"],
    ),
    (&[Kind::Tool], &["spec.secrets", "spec.resources"]),
    (
        &[Kind::ToolRun],
        &[
            "spec.ttlSecondsAfterFinished",
            "status.cancelDeadline",
            "status.outcome",
            "status.retention",
            "status.specHash",
            "status.survivorsGoneAt",
        ],
    ),
    (
        &[Kind::OrchestrationRun],
        &[
            "spec.failurePolicy",
            "spec.timeoutSeconds",
            "spec.ttlSecondsAfterFinished",
            "status.approvals",
            "status.cancelDeadline",
            "status.cancelReceipt",
            "status.definition",
            "status.stepStatuses[].reason",
            "status.stepStatuses[].causedBy",
            "status.stepStatuses[].waitsFor",
        ],
    ),
    (
        &[Kind::ApprovalPolicy],
        &[
            "spec.requiredApprovals",
            "spec.allowCreator",
            "spec.expiresAfterSeconds",
        ],
    ),
    (&[Kind::SignalDelivery], &["status.consumedBy"]),
];

struct Row<'a> {
    path: &'a str,
    type_: &'a str,
    constraints: Vec<&'a str>,
}

struct Table<'a> {
    kind: Kind,
    group: &'a str,
    plural: &'a str,
    columns: Vec<Vec<&'a str>>,
    rows: Vec<Row<'a>>,
}

fn tables() -> Vec<Table<'static>> {
    let mut tables: Vec<Table<'static>> = Vec::new();
    for line in include_str!("contract.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            [name, group, plural] if name.starts_with('[') => {
                let name = name.trim_matches(['[', ']']);
                let kind = Kind::ALL
                    .iter()
                    .find(|kind| kind.info().kind == name)
                    .expect(name);
                tables.push(Table {
                    kind: *kind,
                    group,
                    plural,
                    columns: Vec::new(),
                    rows: Vec::new(),
                });
            }
            ["column", column @ ..] => tables.last_mut().expect("a kind").columns.push(column.to_vec()),
            [path, type_, constraints @ ..] => {
                tables.last_mut().expect("a kind").rows.push(Row {
                    path,
                    type_,
                    constraints: constraints.to_vec(),
                });
            }
            _ => panic!("unreadable line: {line}"),
        }
    }
    tables
}

#[test]
fn groups_and_plurals_are_kept() {
    let tables = tables();
    assert_eq!(
        tables.iter().map(|table| table.kind).collect::<Vec<_>>(),
        Kind::ALL
    );
    for table in tables {
        let info = table.kind.info();
        assert_eq!(
            (info.group.as_str(), info.plural.as_str()),
            (table.group, table.plural)
        );
    }
}

#[test]
fn printer_columns_are_kept_in_order() {
    for table in tables() {
        let crd = table.kind.crd();
        let columns = crd.spec.versions[0]
            .additional_printer_columns
            .as_deref()
            .unwrap_or_default();
        let kept: Vec<Vec<&str>> = columns
            .iter()
            .take(table.columns.len())
            .map(|column| {
                vec![
                    column.name.as_str(),
                    column.type_.as_str(),
                    column.json_path.as_str(),
                ]
            })
            .collect();
        assert_eq!(kept, table.columns, "{:?}", table.kind);
        assert!(
            columns
                .iter()
                .take(table.columns.len())
                .all(|column| column.priority.is_none())
        );
    }
}

#[test]
fn every_field_has_its_type_and_constraints() {
    let mut problems = Vec::new();
    for table in tables() {
        let root = schema(table.kind);
        for row in &table.rows {
            if let Err(problem) = check_row(&root, row) {
                problems.push(format!("{:?} {}: {problem}", table.kind, row.path));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn check_row(root: &Value, row: &Row<'_>) -> Result<(), String> {
    let field = node(root, row.path).ok_or("is missing")?;
    check_type(field, row.type_)?;
    let required = row.constraints.contains(&"required");
    if !row.path.ends_with("[]")
        && let Some((parent, name)) = row.path.rsplit_once('.')
    {
        let listed = node(root, parent).and_then(|parent| parent["required"].as_array());
        if listed.is_some_and(|names| names.contains(&json!(name))) != required {
            return Err(format!("required should be {required}"));
        }
    }
    let expected: BTreeSet<String> = row
        .constraints
        .iter()
        .filter(|constraint| {
            !["required", "free-form"].contains(constraint) && !constraint.starts_with("kind-one-of")
        })
        .map(ToString::to_string)
        .collect();
    let found = constraints(field);
    if found != expected {
        return Err(format!("constraints are {found:?}, should be {expected:?}"));
    }
    if let Some(kinds) = row
        .constraints
        .iter()
        .find_map(|constraint| constraint.strip_prefix("kind-one-of="))
        && field["properties"]["kind"]["enum"] != json!(kinds.split('|').collect::<Vec<_>>())
    {
        return Err(format!("kind should be one of {kinds}"));
    }
    Ok(())
}

/// The constraints of a node in the words of the table.
fn constraints(field: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (keyword, word) in [
        ("minimum", "min"),
        ("maxLength", "maxLen"),
        ("maxItems", "maxItems"),
        ("maxProperties", "maxProps"),
        ("default", "default"),
    ] {
        match field.get(keyword) {
            Some(Value::Number(number)) => {
                found.insert(format!("{word}={}", number.as_f64().expect("a bound")));
            }
            Some(value) => {
                found.insert(format!("{word}={value}"));
            }
            None => {}
        }
    }
    if let Some(values) = field.get("enum").and_then(Value::as_array) {
        let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        found.insert(format!("one-of={}", words.join("|")));
    }
    for keyword in ["maximum", "minLength", "minItems", "minProperties", "pattern"] {
        assert!(field.get(keyword).is_none(), "{keyword} is in no table");
    }
    found
}

fn check_type(field: &Value, expected: &str) -> Result<(), String> {
    let is = |type_: &str| field["type"] == json!(type_);
    let holds = match expected {
        "string" => is("string") && field.get("format").is_none(),
        "string(date-time)" => is("string") && field["format"] == json!("date-time"),
        "string(uri)" => is("string") && field["format"] == json!("uri"),
        "integer(int32)" => is("integer") && field["format"] == json!("int32"),
        "boolean" => is("boolean"),
        "int-or-string" => field["x-kubernetes-int-or-string"] == json!(true),
        "object" => is("object"),
        "array<string>" => is("array") && field["items"] == json!({"type": "string"}),
        "array<object>" => is("array") && field["items"]["type"] == json!("object"),
        "map<string,string>" => is("object") && field["additionalProperties"] == json!({"type": "string"}),
        "map<string,any>" => {
            is("object")
                && field["additionalProperties"] == json!({"x-kubernetes-preserve-unknown-fields": true})
        }
        other => return check_composed_type(field, other),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("is not a {expected}: {field}"))
    }
}

fn check_composed_type(field: &Value, expected: &str) -> Result<(), String> {
    if let Some(members) = expected
        .strip_prefix("ref{")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let names: BTreeSet<&str> = members
            .split(',')
            .map(|member| member.trim_end_matches('?'))
            .collect();
        let required: BTreeSet<&str> = members
            .split(',')
            .filter(|member| !member.ends_with('?'))
            .collect();
        let found = field["properties"].as_object().ok_or("has no members")?;
        let found_required: BTreeSet<&str> = field["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let strings = found.values().all(|member| member["type"] == json!("string"));
        if found.keys().map(String::as_str).collect::<BTreeSet<_>>() != names
            || found_required != required
            || !strings
        {
            return Err(format!("is not a {expected}: {field}"));
        }
        return Ok(());
    }
    let (kind, path) = expected
        .strip_prefix("like:")
        .and_then(|rest| rest.split_once('.'))
        .ok_or("unknown type")?;
    let kind = Kind::ALL
        .iter()
        .find(|candidate| candidate.info().kind == kind)
        .ok_or("unknown kind")?;
    let other = schema(*kind);
    let other = node(&other, path).ok_or("the other field is missing")?;
    if field["properties"] == other["properties"] && field["required"] == other["required"] {
        Ok(())
    } else {
        Err(format!("differs from {expected}"))
    }
}

#[test]
fn nothing_is_there_that_is_neither_in_the_table_nor_added() {
    for table in tables() {
        let added: Vec<&str> = ADDED
            .iter()
            .filter(|(kinds, _)| kinds.contains(&table.kind))
            .flat_map(|(_, paths)| paths.iter().copied())
            .collect();
        let whole = |row: &Row<'_>| row.type_.starts_with("ref{") || row.type_.starts_with("like:");
        let root = schema(table.kind);
        walk(&root, "", &mut |path, _| {
            let below = |prefix: &str, path: &str| {
                path.strip_prefix(prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
            };
            let known = path.is_empty()
                || added.iter().any(|added| below(added, path))
                || table.rows.iter().any(|row| {
                    below(path, row.path)
                        || path == format!("{}[]", row.path)
                        || path == format!("{}{{}}", row.path)
                        || (whole(row) && below(row.path, path))
                })
                || path == "status";
            assert!(
                known,
                "{:?} has {path}, which is neither in the table nor among the additions",
                table.kind
            );
        });
        for path in added {
            assert!(node(&root, path).is_some(), "{:?} lacks {path}", table.kind);
        }
    }
}

#[test]
fn exactly_what_was_open_is_open() {
    for table in tables() {
        let added = ADDED_OPEN
            .iter()
            .filter(|(kind, _)| *kind == table.kind)
            .map(|(_, path)| (*path).to_owned());
        let free: BTreeSet<String> = table
            .rows
            .iter()
            .filter(|row| row.constraints.contains(&"free-form"))
            .map(|row| {
                if row.type_ == "map<string,any>" {
                    format!("{}{{}}", row.path)
                } else {
                    row.path.to_owned()
                }
            })
            .chain(added)
            .collect();
        let mut open = BTreeSet::new();
        walk(&schema(table.kind), "", &mut |path, node| {
            if node.get("x-kubernetes-preserve-unknown-fields").is_some() {
                open.insert(path.to_owned());
            }
        });
        assert_eq!(open, free, "{:?}", table.kind);
    }
}

#[test]
fn spec_is_required_where_it_was() {
    for kind in Kind::ALL {
        let required = schema(*kind)["required"] == json!(["spec"]);
        assert_eq!(required, kind.info().group == "agents.proompteng.ai", "{kind:?}");
    }
}
