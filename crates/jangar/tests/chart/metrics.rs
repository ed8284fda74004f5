//! Alerts and the dashboard ask for metrics that there are.

use std::collections::BTreeSet;

use crate::helm::{find, rendered, root, values_files};

fn names_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(|c: char| !word(c))
        .filter(|name| name.starts_with("jangar_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_there_are() {
    let directory = root().join("crates/controllers/src/metrics/snapshots");
    let mut known = BTreeSet::new();
    for entry in std::fs::read_dir(&directory).expect("the metrics have snapshots") {
        let text = std::fs::read_to_string(entry.expect("it is readable").path()).expect("it is text");
        known.extend(
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .flat_map(names_in),
        );
    }
    // Of a histogram without an observation only the sum and the count are listed.
    let bucket: Vec<String> = known
        .iter()
        .filter_map(|name| Some(format!("{}_bucket", name.strip_suffix("_count")?)))
        .collect();
    known.extend(bucket);
    assert!(known.contains("jangar_leader"), "{known:?}");

    let objects = rendered(&values_files()["high-availability"]);
    for (kind, name) in [("PrometheusRule", "agents"), ("ConfigMap", "agents-dashboard")] {
        let asked = names_in(&find(&objects, kind, name).expect("it is rendered").to_string());
        assert!(asked.len() > 4, "{kind}: {asked:?}");
        let missing: Vec<&String> = asked.difference(&known).collect();
        assert!(
            missing.is_empty(),
            "{kind}: {missing:?} is no metric of the controllers"
        );
    }
}
