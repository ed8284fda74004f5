//! Git in the agent's image, and the credentials of the run.

use std::fs;

use crate::workspace::Workspace;

#[test]
fn without_git_a_run_on_a_repository_does_not_start() {
    let workspace = Workspace::with_agent("echo started");
    let empty = workspace.path("empty");
    fs::create_dir(&empty).expect("a directory");
    let workspace = workspace
        .variable("PATH", empty.to_str().expect("UTF-8"))
        .variable("VCS_REPOSITORY", "example/adder");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "GitMissing");
    assert!(
        finished.message().contains("example/adder"),
        "{}",
        finished.message()
    );
    assert_eq!(finished.stdout, "");
}

#[test]
fn git_gets_the_token_for_its_server_and_for_no_other() {
    let ask = "printf 'protocol=https\\nhost=%s\\n\\n' HOST | git credential fill";
    let script = format!(
        "{} > own || exit 1; {} > other; exit 0",
        ask.replace("HOST", "git.example.com"),
        ask.replace("HOST", "other.example.com")
    );
    let workspace = Workspace::with_agent(&script)
        .variable("GIT_CONFIG_GLOBAL", "/dev/null")
        .variable("GIT_CONFIG_NOSYSTEM", "1")
        .variable("VCS_REPOSITORY", "example/adder")
        .variable("VCS_CLONE_BASE_URL", "https://git.example.com")
        .variable("VCS_USERNAME", "robot")
        .variable("VCS_TOKEN", "the-token-value");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let own = workspace.read("own");
    assert!(
        own.contains("username=robot\npassword=the-token-value\n"),
        "{own}"
    );
    assert_eq!(workspace.read("other"), "");
    assert!(
        !finished.stderr.contains("the-token-value"),
        "{}",
        finished.stderr
    );
}
