//! What people copy: there is an example of every kind, and the command that upgrades them.

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

/// Helm owns what it has installed, so that without the flag the API server refuses every change by anybody else.
/// tests/chart/installed.sh runs the command of the README.
#[test]
fn whoever_says_how_kinds_are_upgraded_says_that_conflicts_are_forced() {
    let command = "kubectl apply --server-side --force-conflicts -f ";
    for (file, from) in [
        ("charts/agents/README.md", "charts/agents/crds"),
        ("charts/agents/README.md", "-\n"),
        ("charts/agents/templates/NOTES.txt", "charts/agents/crds"),
        ("charts/agents/templates/_validate.tpl", "charts/agents/crds"),
        ("docs/runbooks/controllers.md", "charts/agents/crds"),
        ("crates/agentctl/src/doctor/cluster.rs", "charts/agents/crds"),
        ("crates/agentctl/src/doctor/plane.rs", "charts/agents/crds"),
    ] {
        let text = std::fs::read_to_string(root().join(file)).expect("it is readable");
        assert!(text.contains(&format!("{command}{from}")), "{file}");
        assert!(!text.contains("apply --server-side -f"), "{file}");
    }
}
