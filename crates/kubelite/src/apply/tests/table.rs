//! The tables of writes beside this file, each row a history of one object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::harness::{Server, Step, schema};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    has_status: bool,
    steps: Vec<RowStep>,
    /// Absent if nothing was ever stored.
    object: Option<Value>,
    owners: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowStep {
    by: String,
    apply: Option<Value>,
    update: Option<Value>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    status: bool,
    fails: Option<String>,
}

impl RowStep {
    fn step(self) -> Step {
        let is_apply = self.apply.is_some();
        Step {
            by: self.by,
            body: self.apply.or(self.update).expect("a step applies or updates"),
            is_apply,
            force: self.force,
            subresource: if self.status { "status" } else { "" },
        }
    }
}

fn check(table: &str) {
    let kind: Value = serde_saphyr::from_str(include_str!("schema.yaml")).expect("a valid schema");
    let rows: Vec<Row> = serde_saphyr::from_str(table).expect("a valid table");
    assert!(!rows.is_empty());
    for row in rows {
        let mut server = Server::new(schema(&kind), row.has_status);
        for (position, mut step) in row.steps.into_iter().enumerate() {
            let fails = step.fails.take();
            let failed = server.write(&step.step()).err().map(|error| error.message);
            assert_eq!(failed, fails, "{}, step {position}", row.name);
        }
        assert_eq!(
            server.live.is_some().then(|| server.object()),
            row.object,
            "{}",
            row.name
        );
        assert_eq!(server.owners(), row.owners.unwrap_or_default(), "{}", row.name);
    }
}

#[test]
fn fields_are_owned_as_the_table_says() {
    check(include_str!("fields.yaml"));
}

#[test]
fn maps_and_lists_are_merged_as_the_table_says() {
    check(include_str!("collections.yaml"));
}

#[test]
fn odd_requests_are_answered_as_the_table_says() {
    check(include_str!("requests.yaml"));
}
