//! Lists are paged, filtered and searched by the server.

use std::collections::BTreeSet;

use http::StatusCode;
use jangar_api::Kind;
use serde_json::{Value, json};

use crate::stage::{NAMESPACE, Stage, agent_run};

fn names(list: &Value) -> Vec<String> {
    let names = list.as_array().unwrap().iter().map(|run| {
        run.get("externalRunId")
            .unwrap_or_else(|| &run["metadata"]["name"])
            .as_str()
            .unwrap()
            .to_owned()
    });
    names.collect()
}

#[tokio::test]
async fn pages_show_everything_once_although_things_come_and_go_meanwhile() {
    let stage = Stage::start().await;
    for index in 0..25 {
        stage
            .create(Kind::AgentRun, NAMESPACE, agent_run(&format!("run-{index:02}")))
            .await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/agent-runs?namespace=agents&limit=10&cursor={cursor}");
        let (status, body) = stage.get("reader", &path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        seen.extend(names(&body["agentRuns"]));
        match body["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
        // What is made between two pages comes first, and shifts nothing.
        let late = format!("late-{}", seen.len());
        stage.create(Kind::AgentRun, NAMESPACE, agent_run(&late)).await;
    }
    let old: Vec<&String> = seen.iter().filter(|name| name.starts_with("run-")).collect();
    assert_eq!(old.len(), 25);
    assert_eq!(old.iter().collect::<BTreeSet<_>>().len(), 25);
}

#[tokio::test]
async fn filters_and_words_narrow_a_list() {
    let stage = Stage::start().await;
    for (name, team, phase) in [
        ("fix-login", "blue", "Failed"),
        ("fix-tests", "red", "Running"),
        ("write-docs", "blue", "Running"),
    ] {
        let mut run = agent_run(name);
        run["metadata"]["labels"] = json!({"team": team});
        run["status"] = json!({"phase": phase});
        stage.create(Kind::AgentRun, NAMESPACE, run).await;
    }
    // No controller has looked at this one.
    stage.create(Kind::AgentRun, NAMESPACE, agent_run("new")).await;
    for (query, expected) in [
        ("", vec!["fix-login", "fix-tests", "new", "write-docs"]),
        ("&phase=Pending", vec!["new"]),
        ("&phase=failed", vec!["fix-login"]),
        ("&labelSelector=team%3Dblue", vec!["fix-login", "write-docs"]),
        ("&labelSelector=team%20notin%20(blue)", vec!["fix-tests", "new"]),
        ("&search=FIX", vec!["fix-login", "fix-tests"]),
        ("&search=fix%20running", vec!["fix-tests"]),
        (
            "&agentName=coder&runtime=job&phase=Running",
            vec!["fix-tests", "write-docs"],
        ),
        ("&agentName=other", vec![]),
    ] {
        let (status, body) = stage
            .get("reader", &format!("/v1/agent-runs?namespace=agents{query}"))
            .await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let found: BTreeSet<String> = names(&body["agentRuns"]).into_iter().collect();
        assert_eq!(
            found,
            expected.into_iter().map(str::to_owned).collect(),
            "{query}"
        );
    }
    let path = "/api/agents/control-plane/resources?kind=ar&namespace=agents&phase=Running&limit=1";
    let (status, body) = stage.get("reader", path).await;
    assert_eq!((status, names(&body["items"]).len()), (StatusCode::OK, 1));
    assert!(body["nextCursor"].is_string());
    let (_, summary) = stage
        .get("reader", "/api/agents/control-plane/summary?namespace=agents")
        .await;
    assert_eq!(
        summary["resources"]["AgentRun"],
        json!({"total": 4, "phases": {"Failed": 1, "Pending": 1, "Running": 2}})
    );
}

#[tokio::test]
async fn the_status_says_what_leads_and_what_is_off() {
    let stage = Stage::with(|settings| settings.orchestrations_enabled = false).await;
    let (status, body) = stage
        .get("reader", "/api/agents/control-plane/status?namespace=agents")
        .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["service"], "jangar");
    assert_eq!(body["database"]["status"], "disabled");
    let words: Vec<&str> = body["controllers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|controller| controller["status"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        ["degraded", "disabled", "degraded"],
        "nobody holds the Lease, and what is off is not degraded"
    );
    assert_eq!(
        body["namespaces"][0]["degraded_components"],
        json!(["agents-controller", "supporting-controller"])
    );
}
