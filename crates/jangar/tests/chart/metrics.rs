//! Alerts and the dashboard ask for metrics that there are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::helm::{find, rendered, root, values_files};

fn names_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_lowercase() || c == '_';
    text.split(|c: char| !word(c))
        .filter(|name| name.starts_with("jangar_"))
        .map(str::to_owned)
        .collect()
}

/// The metrics of the control plane, as it registers them. One with labels has no line before it is counted, so that they are read
/// off the code, each with every ending that it may have.
fn of_the_control_plane() -> BTreeSet<String> {
    let code = std::fs::read_to_string(root().join("crates/server/src/metrics.rs")).expect("there is code");
    let each = |call: &str| -> Option<String> {
        let name = call.split('"').nth(1)?;
        let unit = if call.starts_with("_with_unit") {
            "_seconds"
        } else {
            ""
        };
        Some(format!("jangar_control_plane_{name}{unit}"))
    };
    let names = code.split("registry.register").skip(1).filter_map(each);
    let endings =
        |name: String| ["", "_total", "_count", "_sum", "_bucket"].map(|ending| format!("{name}{ending}"));
    names.flat_map(endings).collect()
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
    known.extend(of_the_control_plane());
    assert!(known.contains("jangar_control_plane_database_up"), "{known:?}");

    let objects = rendered(&values_files()["high-availability"]);
    for (kind, name) in [("PrometheusRule", "agents"), ("ConfigMap", "agents-dashboard")] {
        let asked = names_in(&find(&objects, kind, name).expect("it is rendered").to_string());
        assert!(asked.len() > 4, "{kind}: {asked:?}");
        let missing: Vec<&String> = asked.difference(&known).collect();
        assert!(
            missing.is_empty(),
            "{kind}: {missing:?} is no metric of either workload"
        );
    }
}

fn alerts(values: &str) -> BTreeMap<String, String> {
    let objects = rendered(values);
    let rule = find(&objects, "PrometheusRule", "agents").expect("there are alerts");
    let rules = rule["spec"]["groups"][0]["rules"]
        .as_array()
        .expect("it has rules");
    let word = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    rules
        .iter()
        .map(|rule| (word(rule, "alert"), word(rule, "expr")))
        .collect()
}

/// The first time is the rare one that the alert is for, and `increase` needs two samples of a series.
#[test]
fn what_is_counted_for_the_first_time_alerts_as_well() {
    let alerts = alerts("metrics: {prometheusRule: {enabled: true}}");
    for (alert, counter) in [
        ("JangarJobMissing", "jangar_job_missing_total"),
        ("JangarStatusesRefused", "jangar_statuses_refused_total"),
    ] {
        let series = format!(r#"{counter}{{namespace="agents"}}"#);
        let expr = &alerts[alert];
        assert!(
            expr.contains(&format!("increase({series}[15m])) > 0 or ")),
            "{expr}"
        );
        assert!(
            expr.contains(&format!("({series} unless {series} offset 15m) > 0")),
            "{expr}"
        );
    }
}

/// Full slots are work, not a queue that is stuck; and a program that has let in nobody yet has a counter all the same, or none.
#[test]
fn a_queue_is_stuck_only_when_nothing_is_under_way() {
    let alerts = alerts("metrics: {prometheusRule: {enabled: true}}");
    let expr = &alerts["JangarQueueStuck"];
    assert!(
        expr.contains("unless sum(jangar_agents_active_concurrency{"),
        "{expr}"
    );
    assert!(!expr.contains("== 0"), "what was never counted is not 0: {expr}");
}

#[test]
fn alerts_are_about_what_is_installed() {
    let alerts = |values: &str| -> Vec<String> { alerts(values).into_keys().collect() };
    let on = "metrics: {prometheusRule: {enabled: true}}";
    let all = alerts(&format!("{on}\ndatabase: {{secretRef: {{name: db}}}}"));
    let without_database: Vec<String> = alerts(on);
    assert!(all.contains(&"JangarDatabaseDown".to_owned()), "{all:?}");
    assert!(
        !without_database.contains(&"JangarDatabaseDown".to_owned()),
        "without a database it never answers"
    );
    assert!(without_database.contains(&"JangarApprovalsWaiting".to_owned()));
    let alone = alerts(&format!("{on}\ncontrolPlane: {{enabled: false}}"));
    assert!(
        alone.iter().all(|alert| alert != "JangarApprovalsWaiting"),
        "nobody counts the gates"
    );
    let own = "controllers: {env: {vars: {JANGAR_MIGRATIONS: auto}}}\ndatabase: {secretRef: {name: db}}";
    let alone = alerts(&format!("{on}\ncontrolPlane: {{enabled: false}}\n{own}"));
    assert!(
        alone.contains(&"JangarDatabaseDown".to_owned()),
        "controllers keep the history without a control plane, too"
    );
}

#[test]
fn a_time_in_an_alert_is_told_in_seconds_where_it_is_compared() {
    for (time, seconds) in [("4h", "14400"), ("90m", "5400"), ("30s", "30"), ("2000ms", "2")] {
        let values = format!("metrics: {{prometheusRule: {{enabled: true, approvalsWaitFor: {time}}}}}");
        let objects = rendered(&values);
        let rule = find(&objects, "PrometheusRule", "agents").expect("there are alerts");
        assert!(
            rule.to_string().contains(&format!("> 0)) > {seconds}\"")),
            "{rule}"
        );
    }
}
