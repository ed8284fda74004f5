//! Git in the agent's image, the credentials of the run, and the way of its work to a real git server.

use std::fs;

use serde_json::json;

use crate::{
    git_server::{GitServer, TOKEN, USER, git_in},
    workspace::{Finished, Workspace},
};

/// A run that may push to the branch `fix` of the server's repository, with this script as its agent.
fn workspace(server: &GitServer, script: &str) -> Workspace {
    Workspace::with_agent(script)
        .variable("GIT_CONFIG_GLOBAL", "/dev/null")
        .variable("GIT_CONFIG_NOSYSTEM", "1")
        .variable("VCS_PROVIDER", "generic")
        .variable("VCS_REPOSITORY", "example/adder")
        .variable("VCS_CLONE_BASE_URL", server.url.clone())
        .variable("VCS_HEAD_BRANCH", "fix")
        .variable("VCS_WRITE_ENABLED", "true")
        .variable("VCS_MODE", "read-write")
        .variable("VCS_COMMIT_AUTHOR_NAME", "Robot")
        .variable("VCS_COMMIT_AUTHOR_EMAIL", "robot@example.com")
        .variable("VCS_USERNAME", USER)
        .variable("VCS_TOKEN", TOKEN)
}

/// An agent that mends the adder and commits.
const MENDS: &str =
    "echo '1 + 1 = 2' > adder.txt && git add . && git commit --quiet --message 'Mend the adder'";

fn silent_about_the_token(workspace: &Workspace, finished: &Finished) {
    let config = fs::read_to_string(workspace.path("repository/.git/config")).unwrap_or_default();
    for text in [
        &finished.stdout,
        &finished.stderr,
        &finished.outcome.to_string(),
        &finished.status.to_string(),
        &config,
    ] {
        assert!(!text.contains(TOKEN), "{text}");
    }
}

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
fn without_a_repository_no_git_is_needed() {
    let workspace = Workspace::with_agent("echo started");
    let empty = workspace.path("empty");
    fs::create_dir(&empty).expect("a directory");

    let finished = workspace.variable("PATH", empty.to_str().expect("UTF-8")).run();

    assert_eq!(finished.stdout, "started\n", "{}", finished.stderr);
    assert_eq!(finished.outcome.get("vcs"), None);
}

#[test]
fn git_gets_the_token_for_its_server_and_for_no_other() {
    let server = GitServer::with_main();
    let host = server.url.trim_start_matches("http://");
    let ask = "printf 'protocol=http\\nhost=%s\\n\\n' HOST | git credential fill";
    let script = format!(
        "{} > ../own || exit 1; {} > ../other; exit 0",
        ask.replace("HOST", host),
        ask.replace("HOST", "other.example.com")
    );
    let workspace = workspace(&server, &script);

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let own = workspace.read("own");
    assert!(
        own.contains(&format!("username={USER}\npassword={TOKEN}\n")),
        "{own}"
    );
    assert_eq!(workspace.read("other"), "");
    silent_about_the_token(&workspace, &finished);
}

#[test]
fn the_commits_of_the_agent_arrive_on_the_branch_of_the_run() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, &format!("test \"$PWD\" = \"$WORKTREE\" && {MENDS}"));

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let commit = server.git(&["rev-parse", "refs/heads/fix"]);
    assert_eq!(
        finished.outcome["vcs"],
        json!({"state": "Pushed", "branch": "fix", "commit": commit, "commitsAhead": 1, "base": "main"})
    );
    assert_eq!(finished.outcome["commit"], json!(commit));
    assert_eq!(finished.status["vcs"], finished.outcome["vcs"]);
    assert_eq!(
        server.git(&["log", "-1", "--format=%an <%ae> %cn", "fix"]),
        "Robot <robot@example.com> Robot"
    );
    assert_eq!(server.git(&["show", "fix:adder.txt"]), "1 + 1 = 2");
    assert_eq!(server.git(&["show", "main:adder.txt"]), "1 + 1 = 3");
    silent_about_the_token(&workspace, &finished);
    for line in server.seen.lock().expect("no panic").iter() {
        assert!(!line.contains(TOKEN), "{line}");
    }
}

#[test]
fn an_agent_that_changed_nothing_pushes_nothing_and_says_so() {
    let server = GitServer::with_main();

    let finished = workspace(&server, "true").run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.outcome["vcs"]["state"], "NothingChanged");
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 0);
    assert_eq!(server.git(&["branch", "--list", "fix"]), "");
}

#[test]
fn changes_that_were_not_committed_are_told() {
    let server = GitServer::with_main();

    let finished = workspace(&server, "echo 2 > adder.txt; echo new > other.txt").run();

    assert_eq!(finished.outcome["vcs"]["state"], "NothingChanged");
    assert!(
        finished
            .stderr
            .contains("left 2 files that it changed and did not commit"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_run_that_may_only_read_keeps_its_commits_to_itself() {
    let server = GitServer::with_main();

    let finished = workspace(&server, MENDS)
        .variable("VCS_WRITE_ENABLED", "false")
        .run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.outcome["vcs"]["state"], "NotPushed");
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 1);
    assert_eq!(server.git(&["branch", "--list", "fix"]), "");
}

#[test]
fn an_agent_that_failed_delivers_nothing() {
    let server = GitServer::with_main();

    let finished = workspace(&server, &format!("{MENDS}; exit 3")).run();

    assert_eq!(finished.reason(), "AgentFailed");
    assert_eq!(finished.outcome.get("vcs"), None);
    assert_eq!(server.git(&["branch", "--list", "fix"]), "");
}

#[test]
fn a_wrong_token_ends_the_run_before_the_agent_starts() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, "echo started").variable("VCS_TOKEN", "another-token-value");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "CloneFailed");
    assert!(
        finished.message().contains("Authentication failed"),
        "{}",
        finished.message()
    );
    assert!(
        !finished.message().contains("another-token-value"),
        "{}",
        finished.message()
    );
    assert_eq!(finished.stdout, "");
}

#[test]
fn a_repository_that_is_not_there_is_named() {
    let server = GitServer::with_main();

    let finished = workspace(&server, "true")
        .variable("VCS_REPOSITORY", "example/nowhere")
        .run();

    assert_eq!(finished.reason(), "CloneFailed");
    assert!(
        finished.message().contains("example/nowhere"),
        "{}",
        finished.message()
    );
}

#[test]
fn a_push_that_a_hook_refuses_fails_the_run_with_the_words_of_the_server() {
    let server = GitServer::with_main();
    server.refuse("no pushes on Fridays");

    let finished = workspace(&server, MENDS).run();

    assert_eq!(finished.code, Some(125));
    assert_eq!(finished.reason(), "PushRejected");
    assert!(
        finished.message().contains("no pushes on Fridays"),
        "{}",
        finished.message()
    );
    assert_eq!(finished.outcome["vcs"]["state"], "PushRejected");
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 1);
}

#[test]
fn commits_of_others_are_never_pushed_over() {
    let server = GitServer::with_main();
    let others = server.url.replace("http://", &format!("http://{USER}:{TOKEN}@"));
    let meanwhile = format!(
        "git clone --quiet {others}/example/adder.git ../theirs && cd ../theirs && git checkout --quiet -b fix && \
         git -c user.name=S -c user.email=s@example.com commit --quiet --allow-empty --message theirs && \
         git push --quiet origin fix && cd \"$WORKTREE\" && {MENDS}"
    );

    let finished = workspace(&server, &meanwhile).run();

    assert_eq!(finished.reason(), "PushRejected", "{}", finished.stderr);
    assert!(
        finished.message().contains("spec.parameters.head"),
        "{}",
        finished.message()
    );
    assert_eq!(server.git(&["log", "-1", "--format=%s", "fix"]), "theirs");
}

#[test]
fn work_goes_on_on_a_branch_that_is_there_already() {
    let server = GitServer::with_main();
    server.commit("fix", "notes.txt", "begun\n");
    let begun = server.git(&["rev-parse", "refs/heads/fix"]);

    let finished = workspace(&server, &format!("test -f notes.txt && {MENDS}")).run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 2);
    assert_eq!(server.git(&["rev-parse", "refs/heads/fix~1"]), begun);
}

#[test]
fn what_an_earlier_attempt_has_pushed_counts_as_delivered() {
    let server = GitServer::with_main();
    server.commit("fix", "adder.txt", "1 + 1 = 2\n");

    let finished = workspace(&server, "true")
        .variable("VCS_EARLIER_WORK", "true")
        .run();

    assert_eq!(finished.outcome["vcs"]["state"], "Pushed");
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 1);
}

#[test]
fn commits_that_were_there_before_the_run_are_not_its_work() {
    for writes in ["true", "false"] {
        let server = GitServer::with_main();
        server.commit("fix", "adder.txt", "1 + 1 = 2\n");

        let finished = workspace(&server, "true")
            .variable("VCS_WRITE_ENABLED", writes)
            .run();

        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert_eq!(finished.outcome["vcs"]["state"], "NothingChanged", "{writes}");
        assert_eq!(finished.outcome["vcs"]["commitsAhead"], 1);
    }
}

#[test]
fn an_empty_repository_gets_its_first_commit() {
    let server = GitServer::empty();

    let finished = workspace(&server, MENDS).run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.outcome["vcs"]["state"], "Pushed");
    assert_eq!(server.git(&["show", "fix:adder.txt"]), "1 + 1 = 2");
}

#[test]
fn a_base_branch_that_is_not_there_is_named_with_the_remedy() {
    let server = GitServer::with_main();

    let finished = workspace(&server, "echo started")
        .variable("VCS_BASE_BRANCH", "develop")
        .run();

    assert_eq!(finished.reason(), "BranchMissing");
    assert!(
        finished.message().contains("no branch develop"),
        "{}",
        finished.message()
    );
    assert!(
        finished.message().contains("spec.parameters.base"),
        "{}",
        finished.message()
    );
    assert_eq!(finished.stdout, "");
}

#[test]
fn the_work_starts_from_the_branch_that_was_named() {
    let server = GitServer::with_main();
    server.commit("next", "next.txt", "next\n");

    let finished = workspace(&server, &format!("test -f next.txt && {MENDS}"))
        .variable("VCS_BASE_BRANCH", "next")
        .run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.outcome["vcs"]["commitsAhead"], 1);
}

#[test]
fn a_directory_with_something_else_in_it_is_left_alone() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, "true");
    fs::create_dir(workspace.path("repository")).expect("a directory");
    workspace.write("repository/mine.txt", "mine");

    let finished = workspace.run();

    assert_eq!(finished.reason(), "CheckoutFailed");
    assert!(finished.message().contains("WORKTREE"), "{}", finished.message());
    assert_eq!(workspace.read("repository/mine.txt"), "mine");
}

#[test]
fn a_checkout_of_an_earlier_attempt_is_brought_up_to_date() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, MENDS);
    assert_eq!(workspace.run().code, Some(0));
    let first = server.git(&["rev-parse", "refs/heads/fix"]);
    fs::write(workspace.path("repository/adder.txt"), "spoilt").expect("a file");

    let finished = workspace.run();

    assert_eq!(
        finished.reason(),
        "AgentFailed",
        "there is nothing left to commit"
    );
    assert_eq!(
        git_in(&workspace.path("repository"), &["rev-parse", "HEAD"]),
        first
    );
}

/// A run on a forge whose API says this, in this order. The shapes are those of Gitea's API v1.
fn with_pull_requests(server: &GitServer, script: &str, answers: &[(u16, serde_json::Value)]) -> Workspace {
    let answers = answers.iter().map(|(status, body)| (*status, body.to_string()));
    server.api.lock().expect("no panic").extend(answers);
    workspace(server, script)
        .variable("VCS_PROVIDER", "gitea")
        .variable("VCS_API_BASE_URL", format!("{}/api/v1", server.url))
        .variable("VCS_PULL_REQUESTS_ENABLED", "true")
        .variable("VCS_PR_TITLE_TEMPLATE", "Mend {{ issueNumber }}")
        .variable(
            "VCS_PR_BODY_TEMPLATE",
            "By {{ agentRun.name }}, who never says a-token-of-the-forge.",
        )
        .variable("VCS_PR_DRAFT", "true")
        .variable("VCS_PR_RATE_LIMITS", r#"{"backoffSeconds": 0}"#)
        .run_document(&json!({"agentRun": {"name": "fix-7"}, "issueNumber": "7"}))
}

#[test]
fn a_pull_request_is_opened_with_the_templates_of_the_provider() {
    let server = GitServer::with_main();
    let none = (404, json!({"message": "not found"}));
    let opened = (
        201,
        json!({"number": 7, "html_url": "https://forge.example/7", "state": "open"}),
    );

    let finished = with_pull_requests(&server, MENDS, &[none, opened]).run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(
        finished.outcome["vcs"]["pullRequest"],
        json!({"number": 7, "url": "https://forge.example/7"})
    );
    assert_eq!(finished.outcome["vcs"]["base"], "main");
    let seen = server.seen.lock().expect("no panic");
    let asked: Vec<&String> = seen.iter().filter(|line| line.contains("/api/")).collect();
    assert!(
        asked[0].starts_with("GET /api/v1/repos/example/adder/pulls/main/fix "),
        "{asked:?}"
    );
    let (line, body) = asked[1].split_once(" HTTP/1.1 ").expect("a body");
    assert_eq!(line, "POST /api/v1/repos/example/adder/pulls");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(body).expect("JSON"),
        json!({"title": "WIP: Mend 7", "body": "By fix-7, who never says ***.", "head": "fix", "base": "main"})
    );
}

#[test]
fn a_pull_request_that_cannot_be_opened_does_not_undo_the_work() {
    let server = GitServer::with_main();
    let none = (404, json!({"message": "not found"}));
    let expired = (401, json!({"message": "token expired"}));

    let finished = with_pull_requests(&server, MENDS, &[none, expired]).run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.reason(), "Completed");
    assert_eq!(finished.outcome["vcs"]["state"], "Pushed");
    assert_eq!(finished.outcome["vcs"].get("pullRequest"), None);
    for part in ["the pull request could not be opened", "401", "has expired"] {
        assert!(finished.message().contains(part), "{}", finished.message());
    }
}

#[test]
fn a_forge_that_is_away_for_a_moment_is_asked_again() {
    let server = GitServer::with_main();
    let away = (503, json!({"message": "back soon"}));
    let open = (
        200,
        json!({"number": 7, "html_url": "https://forge.example/7", "state": "open"}),
    );

    let finished = with_pull_requests(&server, MENDS, &[away, open]).run();

    assert_eq!(
        finished.outcome["vcs"]["pullRequest"]["number"], 7,
        "{}",
        finished.stderr
    );
}

#[test]
fn where_nothing_changed_no_pull_request_is_opened() {
    let server = GitServer::with_main();

    let finished = with_pull_requests(&server, "true", &[]).run();

    assert_eq!(finished.outcome["vcs"]["state"], "NothingChanged");
    let seen = server.seen.lock().expect("no panic");
    assert!(seen.iter().all(|line| !line.contains("/api/")), "{seen:?}");
}
