//! What people copy: there is an example of every kind.

use std::collections::BTreeSet;

use jangar_api::Kind;

use crate::helm::{objects, root};

#[test]
fn every_kind_has_an_example() {
    let directory = root().join("charts/agents/examples");
    let mut shown = BTreeSet::new();
    for entry in std::fs::read_dir(directory).expect("there are examples") {
        let text = std::fs::read_to_string(entry.expect("it is readable").path()).expect("it is text");
        for object in objects(&text) {
            let word = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
            assert_eq!(
                object["metadata"]["namespace"],
                serde_json::Value::Null,
                "an example goes where its reader wants it"
            );
            shown.insert((word("apiVersion"), word("kind")));
        }
    }
    let info = Kind::ALL.iter().map(|kind| kind.info());
    let expected: BTreeSet<(String, String)> = info
        .map(|info| (format!("{}/{}", info.group, info.version), info.kind.clone()))
        .collect();
    assert_eq!(shown, expected);
}
