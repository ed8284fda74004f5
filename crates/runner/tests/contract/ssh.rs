//! A repository over SSH. In the place of `ssh` stands a small script on the PATH: it lets in whoever shows the right key to a
//! host that is known, as a server would, and then runs what git asks for, on this machine.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use crate::{
    git_server::GitServer,
    workspace::{Finished, Workspace},
};

const KEY: &str = "the private key of the run";

/// What git calls. The last argument is the command, whose path begins at the root of the server; `-i` names the key.
fn stand_in(root: &Path) -> String {
    format!(
        r#"#!/bin/sh
set -eu
root='{}'
echo "$*" >> "$root/calls"
key=
while [ $# -gt 2 ]; do
    case "$1" in
        -i) key=$2; shift 2 ;;
        -o) echo "$2" >> "$root/options"; shift 2 ;;
        *) shift ;;
    esac
done
[ "$(cat "$key")" = '{KEY}' ] || {{ echo 'git@git.example.com: Permission denied (publickey).' >&2; exit 255; }}
[ "$1" = git@git.example.com ] || {{ echo "no such host: $1" >&2; exit 255; }}
exec sh -c "$(printf '%s' "$2" | sed "s#'/#'$root/#")"
"#,
        root.display()
    )
}

/// A run that may push to the branch `fix` over SSH, with this key.
fn workspace(server: &GitServer, key: &str) -> Workspace {
    let workspace = Workspace::with_agent(
        "echo '1 + 1 = 2' > adder.txt && git add . && git commit --quiet --message 'Mend the adder'",
    );
    workspace.write("ssh-privatekey", key);
    let key = workspace.path("ssh-privatekey");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("a file");
    workspace.write("known_hosts", "git.example.com ssh-ed25519 AAAA");
    let programs = workspace.path("programs");
    fs::create_dir(&programs).expect("a directory");
    workspace.write("programs/ssh", &stand_in(server.root()));
    fs::set_permissions(programs.join("ssh"), fs::Permissions::from_mode(0o755)).expect("a file");
    let path = format!("{}:{}", programs.display(), env::var("PATH").expect("a PATH"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (key, known_hosts) = (text(&key), text(&workspace.path("known_hosts")));
    workspace
        .variable("PATH", path)
        .variable("GIT_CONFIG_GLOBAL", "/dev/null")
        .variable("GIT_CONFIG_NOSYSTEM", "1")
        .variable("VCS_PROVIDER", "generic")
        .variable("VCS_REPOSITORY", "example/adder")
        .variable("VCS_CLONE_PROTOCOL", "ssh")
        .variable("VCS_SSH_HOST", "git.example.com")
        .variable("VCS_SSH_USER", "git")
        .variable("VCS_SSH_KEY_PATH", key)
        .variable("VCS_SSH_KNOWN_HOSTS_PATH", known_hosts)
        .variable("VCS_HEAD_BRANCH", "fix")
        .variable("VCS_WRITE_ENABLED", "true")
        .variable("VCS_MODE", "read-write")
}

fn silent_about_the_key(workspace: &Workspace, finished: &Finished, calls: &str) {
    let config = fs::read_to_string(workspace.path("repository/.git/config")).unwrap_or_default();
    for text in [
        &finished.stdout,
        &finished.stderr,
        &finished.outcome.to_string(),
        &config,
        calls,
    ] {
        assert!(!text.contains(KEY), "{text}");
    }
}

#[test]
fn the_key_of_the_run_opens_its_repository_for_cloning_and_for_pushing() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, KEY);

    let finished = workspace.run();

    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let commit = server.git(&["rev-parse", "refs/heads/fix"]);
    assert_eq!(
        finished.outcome["vcs"],
        json!({"state": "Pushed", "branch": "fix", "commit": commit, "commitsAhead": 1, "base": "main"})
    );
    assert_eq!(server.git(&["show", "fix:adder.txt"]), "1 + 1 = 2");
    let of_server = |name: &str| fs::read_to_string(server.root().join(name)).expect(name);
    let calls = of_server("calls");
    for command in [
        "git-upload-pack '/example/adder.git'",
        "git-receive-pack '/example/adder.git'",
    ] {
        assert!(calls.contains(command), "{calls}");
    }
    let options = of_server("options");
    let known_hosts = workspace.path("known_hosts");
    for option in [
        format!("UserKnownHostsFile={}", known_hosts.display()),
        "StrictHostKeyChecking=yes".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "BatchMode=yes".to_owned(),
    ] {
        assert!(
            options.lines().any(|line| line == option),
            "{option} is not in {options}"
        );
    }
    silent_about_the_key(&workspace, &finished, &calls);
}

#[test]
fn a_key_that_the_server_does_not_know_ends_the_run_before_the_agent_starts() {
    let server = GitServer::with_main();
    let workspace = workspace(&server, "another key");

    let finished = workspace.run();

    assert_eq!(finished.code, Some(125), "{}", finished.stderr);
    assert_eq!(finished.reason(), "CloneFailed");
    assert!(
        finished.message().contains("Permission denied (publickey)"),
        "{}",
        finished.message()
    );
    assert_eq!(server.git(&["branch", "--list", "fix"]), "");
}
