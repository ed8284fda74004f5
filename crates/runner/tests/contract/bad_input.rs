//! Input that cannot be used: the message names the place and the remedy, and the outcome is written all the same.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use crate::workspace::{Finished, Workspace};

fn assert_refused(finished: &Finished, code: i32, reason: &str, words: &[&str]) {
    assert_eq!(finished.reason(), reason, "{}", finished.message());
    assert_eq!(finished.code, Some(code));
    assert_eq!(finished.outcome["exitCode"], code);
    assert_eq!(finished.status["reason"], reason);
    assert_eq!(finished.status["status"], "failed");
    for word in words {
        assert!(
            finished.message().contains(word),
            "{word:?} is not in {:?}",
            finished.message()
        );
    }
    assert!(
        finished.stderr.contains(&format!("agent-runner: {reason}: ")),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_missing_document_is_named_with_its_variable() {
    for (name, variable) in [
        ("agent-runner.json", "AGENT_RUNNER_SPEC_PATH"),
        ("run.json", "AGENT_RUN_SPEC"),
    ] {
        let workspace = Workspace::with_agent("exit 0");
        fs::remove_file(workspace.path(name)).expect("it was there");

        assert_refused(&workspace.run(), 125, "SpecMissing", &[name, variable]);
    }
}

#[test]
fn a_document_that_is_wrong_is_named_with_its_field() {
    for (name, content, words) in [
        ("agent-runner.json", "{", &["agent-runner.json is not JSON"][..]),
        (
            "agent-runner.json",
            r#"{"provider": 5}"#,
            &["agent-runner.json, field provider: invalid type"],
        ),
        ("run.json", "not JSON", &["run.json is not JSON"]),
        ("run.json", "[]", &["run.json", "must be an object"]),
        (
            "run.json",
            r#"{"artifacts": [{"name": []}]}"#,
            &["run.json, field artifacts[0].name: invalid type"],
        ),
    ] {
        let workspace = Workspace::with_agent("exit 0");
        workspace.write(name, content);

        assert_refused(&workspace.run(), 125, "SpecInvalid", words);
    }
}

#[test]
fn a_binary_that_is_not_there_is_named_with_its_provider() {
    for binary in ["no-such-agent", "/no/such/agent"] {
        let workspace = Workspace::with_spec(&json!({"providerSpec": {"binary": binary}}));

        assert_refused(
            &workspace.run(),
            127,
            "BinaryNotFound",
            &[binary, "AgentProvider scripted"],
        );
    }
}

#[test]
fn a_binary_that_cannot_be_executed_is_named_with_the_remedy() {
    let workspace = Workspace::with_agent("");
    workspace.write("plain", "text");
    let spec = json!({"provider": "scripted", "providerSpec": {"binary": workspace.path("plain")}});
    workspace.write("agent-runner.json", &spec.to_string());

    assert_refused(
        &workspace.run(),
        126,
        "BinaryNotExecutable",
        &["plain", "chmod +x"],
    );
}

#[test]
fn a_program_that_the_kernel_refuses_is_named() {
    let workspace = Workspace::with_agent("");
    workspace.write("agent", "#!/no/such/interpreter\n");
    let path = workspace.path("agent");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let spec = json!({"provider": "scripted", "providerSpec": {"binary": path}});
    workspace.write("agent-runner.json", &spec.to_string());

    assert_refused(&workspace.run(), 126, "StartFailed", &["agent", "did not start"]);
}

#[test]
fn a_workspace_that_cannot_be_written_is_named() {
    let workspace = Workspace::with_agent("exit 0");
    // Even for root a file is no directory.
    workspace.write(".agent", "in the way");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "WorkspaceUnwritable");
    assert!(
        finished.message().contains("status.json"),
        "{}",
        finished.message()
    );
}

#[test]
fn an_input_file_that_cannot_be_written_is_named_with_its_place_in_the_spec() {
    let workspace = Workspace::with_agent("exit 0");
    workspace.write("file", "in the way");
    let spec = json!({
        "provider": "scripted",
        "providerSpec": {
            "binary": "/bin/sh",
            "inputFiles": [{"path": workspace.path("file/config"), "content": "x"}],
        },
    });
    workspace.write("agent-runner.json", &spec.to_string());

    assert_refused(
        &workspace.run(),
        125,
        "InputFileFailed",
        &["providerSpec.inputFiles[0]", "file/config"],
    );
}

#[test]
fn a_built_in_provider_that_does_not_exist_is_refused() {
    let workspace = Workspace::with_spec(&json!({"providerSpec": {"binary": "agent-runner"}}));

    assert_refused(
        &workspace.run(),
        125,
        "UnknownProvider",
        &["scripted", "spec.binary"],
    );
}
