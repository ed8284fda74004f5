//! What agentctl says of itself: version, configuration, completion, examples, manual pages.

use insta::assert_snapshot;

use crate::{
    modes::in_both,
    support::{bare, masked, references, transcript},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_kept_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (arguments, input) in [
        (&["config", "view"][..], ""),
        (&["config", "set", "namespace", "team"], ""),
        (&["config", "set", "tls", "maybe"], ""),
        (&["config", "set", "colour", "red"], ""),
        (&["auth", "login", "--with-token"], "s3cret\n"),
        (&["auth", "login"], ""),
        (&["config", "view", "-n", "other"], ""),
        (
            &[
                "config",
                "view",
                "--show-secrets",
                "-o",
                "jsonpath={.token.value}",
            ],
            "",
        ),
        (&["config", "init"], ""),
        (&["auth", "logout"], ""),
        (&["config", "view", "-o", "json"], ""),
    ] {
        text.push_str(&transcript(bare(home.path(), arguments), arguments, input).await);
    }
    assert_snapshot!(masked(&text, home.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_examples_are_printed() {
    let played = in_both(["sp0022", "sg0022"], async |cluster| {
        let commands: &[&[&str]] = &[
            &["version"],
            &["version", "-o", "json"],
            &["version", "--client", "-o", "json"],
            &["examples", "wait"],
            &["examples", "waut"],
        ];
        cluster.session(commands).await
    })
    .await;
    assert_snapshot!(played.kube);
    let why = "the version is that of whoever answers";
    assert_snapshot!("versions_over_grpc", played.difference(why));
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_offers_live_names() {
    let played = in_both(["sp0023", "sg0023"], async |cluster| {
        for object in references() {
            cluster.have(object).await;
        }
        for shell in ["bash", "zsh", "fish"] {
            let script = cluster.transcript(&["completion", shell]).await;
            assert!(script.contains("agentctl __complete"), "{shell}");
            assert!(script.ends_with("= 0\n\n"), "{shell}");
        }
        let commands: &[&[&str]] = &[
            &["__complete", "run", "--agent", "co"],
            &["__complete", "get", "agent", ""],
            &["__complete", "get", "to"],
            &["__complete", "get", "agent", "-n", cluster.namespace, "c"],
            &["__complete", "get", "agent", "-n", "elsewhere", "c"],
        ];
        cluster.session(commands).await
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_is_put_where_the_shell_looks() {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (arguments, shell) in [
        (&["completion", "install"][..], "/usr/bin/fish"),
        (&["completion", "install", "bash"], ""),
        (&["completion", "install"], "/usr/bin/elvish"),
        (&["completion", "install"], "/usr/bin/unheard-of"),
        (&["completion"], ""),
    ] {
        let mut command = bare(home.path(), arguments);
        command.env("SHELL", shell);
        text.push_str(&transcript(command, arguments, "").await);
    }
    for file in [
        ".config/fish/completions/agentctl.fish",
        ".local/share/bash-completion/completions/agentctl",
    ] {
        let script = std::fs::read_to_string(home.path().join(file)).unwrap();
        assert!(script.contains("agentctl __complete"), "{file}");
    }
    assert_snapshot!(masked(&text, home.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_pages_are_written_for_every_verb() {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["man", "--dir", "man/man1"];
    let text = transcript(bare(home.path(), &arguments), &arguments, "").await;
    assert!(text.ends_with("= 0\n\n"), "{text}");
    let page = std::fs::read_to_string(home.path().join("man/man1/agentctl-wait.1")).unwrap();
    assert!(page.contains("agentctl wait run coder\\-3f2a"), "{page}");
    assert!(home.path().join("man/man1/agentctl.1").exists());
}
