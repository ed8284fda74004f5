//! What the agent reports and leaves behind, and how it is passed on.

use serde_json::json;

use crate::workspace::Workspace;

#[test]
fn what_the_agent_reports_is_passed_on() {
    let workspace = Workspace::with_agent(
        r#"echo '{"summary": "fixed it", "usage": {"inputTokens": 12}, "commit": "0123abcd",
                  "outputs": {"branch": "fix/1", "pr": {"number": 7}}}' > "$AGENT_OUTCOME_PATH""#,
    );

    let finished = workspace.run();

    assert_eq!(
        finished.outcome,
        json!({
            "version": 1, "exitCode": 0, "reason": "Completed", "summary": "fixed it", "usage": {"inputTokens": 12},
            "commit": "0123abcd", "outputs": {"branch": "fix/1", "pr": {"number": 7}},
        })
    );
    for field in ["summary", "usage", "commit", "outputs"] {
        assert_eq!(finished.status[field], finished.outcome[field], "{field}");
    }
}

#[test]
fn a_report_of_an_earlier_run_in_the_same_workspace_does_not_count() {
    let workspace = Workspace::with_agent(r#"echo '{"summary": "first"}' > "$AGENT_OUTCOME_PATH""#);
    assert_eq!(workspace.run().outcome["summary"], "first");
    let spec =
        json!({"provider": "scripted", "providerSpec": {"binary": "/bin/sh", "args": ["-c", "exit 0"]}});
    workspace.write("agent-runner.json", &spec.to_string());

    assert!(workspace.run().outcome.get("summary").is_none());
}

#[test]
fn a_report_that_is_not_json_fails_the_run() {
    let finished = Workspace::with_agent(r#"echo '{' > "$AGENT_OUTCOME_PATH""#).run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "OutcomeInvalid");
    assert!(
        finished.message().contains("outcome.json is not JSON"),
        "{}",
        finished.message()
    );
}

#[test]
fn a_report_that_is_a_pipe_is_not_waited_for() {
    let finished = Workspace::with_agent(r#"mkfifo "$AGENT_OUTCOME_PATH""#).run();

    assert_eq!(finished.reason(), "OutcomeInvalid");
}

#[test]
fn a_failed_agent_stays_failed_whatever_its_report_is() {
    for report in [
        "{",
        r#"{"outputs": {"x": "'$(head -c 9000 /dev/zero | tr "\0" x)'"}}"#,
    ] {
        let finished =
            Workspace::with_agent(&format!("echo '{report}' > \"$AGENT_OUTCOME_PATH\"; exit 9")).run();

        assert_eq!(finished.code, Some(9));
        assert_eq!(finished.reason(), "AgentFailed");
        assert!(
            finished.message().contains("exited with code 9"),
            "{}",
            finished.message()
        );
        let more =
            finished.message().contains("is not JSON") || finished.message().contains("the outputs take");
        assert!(more, "{}", finished.message());
    }
}

#[test]
fn a_long_summary_is_cut_and_the_outputs_stay() {
    let workspace = Workspace::with_agent(
        r#"printf '{"summary": "%s", "outputs": {"branch": "fix/1"}}' "$(head -c 9000 /dev/zero | tr '\0' s)" \
           > "$AGENT_OUTCOME_PATH""#,
    );

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0));
    let message = workspace.read("termination");
    assert!(message.len() <= 4096, "{} bytes", message.len());
    assert!(message.contains("sss…"), "{message}");
    assert_eq!(finished.outcome["outputs"], json!({"branch": "fix/1"}));
    assert_eq!(
        finished.status["summary"].as_str().map(str::len),
        Some(9000),
        "the status file has it whole"
    );
}

#[test]
fn outputs_that_do_not_fit_fail_the_run() {
    let workspace = Workspace::with_agent(
        r#"printf '{"summary": "done", "outputs": {"text": "%s"}}' "$(head -c 5000 /dev/zero | tr '\0' x)" \
           > "$AGENT_OUTCOME_PATH""#,
    );

    let finished = workspace.run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "OutputsTooLarge");
    assert_eq!(finished.outcome["exitCode"], 125);
    assert_eq!(finished.outcome["summary"], "done");
    assert!(finished.outcome.get("outputs").is_none());
    assert_eq!(
        finished.status["outputs"]["text"].as_str().map(str::len),
        Some(5000)
    );
    assert_eq!(finished.status["status"], "failed");
}

#[test]
fn artifacts_that_exist_are_recorded() {
    let workspace = Workspace::with_agent("mkdir out; printf 12345 > out/diff.patch").run_document(&json!({
        "artifacts": [
            {"name": "patch", "path": "out/diff.patch", "key": "runs/1/patch"},
            {"name": "report", "path": "out/report.html"},
        ]
    }));

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0));
    assert_eq!(
        finished.outcome["artifacts"],
        json!([{"name": "patch", "path": "out/diff.patch", "key": "runs/1/patch", "bytes": 5}])
    );
    assert_eq!(finished.status["artifacts"]["missing"], json!(["report"]));
    assert!(
        finished.stderr.contains("left no artifact report"),
        "{}",
        finished.stderr
    );
}

#[test]
fn secrets_are_in_nothing_that_the_runner_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    let secrets = directory.path().to_owned();
    std::fs::write(secrets.join("URL"), "mounted-secret").expect("a file");
    let script = r#"printf '{"summary": "used %s and %s", "outputs": {"%s": ["%s", "%s"]}}' \
                    "$VCS_TOKEN" "mounted-secret" "$HANDLE" "$MADE_TOKEN" "$(cat "$0")" > "$AGENT_OUTCOME_PATH"; exit 1"#;
    let workspace = Workspace::with_agent_and(
        script,
        &json!({
            "secretEnv": ["HANDLE"],
            "secretFiles": [secrets, secrets.join("absent")],
            "providerSpec": {
                "binary": "/bin/sh",
                "args": ["-c", script, secrets.join("URL"), "--token=token-in-args"],
                "env": {"MADE_TOKEN": "made-by-provider"},
            },
        }),
    )
    .variable("VCS_TOKEN", "token-in-args")
    .variable("HANDLE", "listed-handle")
    .run_document(&json!({"artifacts": [{"name": "token-in-args", "path": "absent"}]}));

    let finished = workspace.run();

    assert_eq!(finished.outcome["summary"], "used *** and ***");
    assert_eq!(finished.outcome["outputs"], json!({"***": ["***", "***"]}));
    assert_eq!(finished.status["args"][3], "--token=***");
    for (place, text) in [
        ("stderr", finished.stderr),
        ("termination message", workspace.read("termination")),
        ("status", workspace.read(".agent/status.json")),
        ("log", workspace.read(".agent/runner.log")),
    ] {
        for secret in ["token-in-args", "listed-handle", "made-by-provider"] {
            assert!(!text.contains(secret), "{secret} in {place}: {text}");
        }
    }
}

#[test]
fn arguments_variables_and_files_are_as_the_provider_says() {
    let workspace = Workspace::with_spec(&json!({
        "inputs": {"stage": "build"},
        "providerSpec": {
            "binary": "sh",
            "argsTemplate": ["-c", "echo $0 $STAGE $(cat input/config.toml)", "{{ agentRun.name }}"],
            "envTemplate": {"STAGE": "{{ inputs.stage }}{{ inputs.absent }}"},
        },
    }))
    .run_document(&json!({"agentRun": {"name": "fix-1"}}));
    let mut spec: serde_json::Value =
        serde_json::from_str(&workspace.read("agent-runner.json")).expect("JSON");
    spec["providerSpec"]["inputFiles"] =
        json!([{"path": workspace.path("input/config.toml"), "content": "{{ inputs.stage }}"}]);
    workspace.write("agent-runner.json", &spec.to_string());

    let finished = workspace.run();

    assert_eq!(finished.stdout, "fix-1 build {{ inputs.stage }}\n");
    assert!(
        finished.stderr.contains("inputs.absent has no value"),
        "{}",
        finished.stderr
    );
}
