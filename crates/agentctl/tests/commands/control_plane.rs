//! The way to the control plane: addresses, tokens, and what it says no to.

use insta::assert_snapshot;
use tokio::net::TcpSocket;

use crate::support::{Cluster, SECRET, bare, masked, transcript};

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_that_cannot_be_asked() {
    let home = tempfile::tempdir().unwrap();
    // Nothing listens there, and nobody else gets the port while it is held.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = held.local_addr().unwrap().to_string();
    let mut text = String::new();
    for arguments in [
        &["--grpc", "list"][..],
        &["--grpc", "--token", "s3cret", "list"],
        &[
            "--grpc",
            "--token",
            "s3cret",
            "--server",
            "jangar.example",
            "list",
        ],
        &[
            "--grpc",
            "--token",
            "s3cret",
            "--server",
            "jangar.example:50051",
            "list",
        ],
        &["--grpc", "--token", "s3cret", "--server", &closed, "list"],
        &[
            "--grpc", "--token", "s3cret", "--server", &closed, "wait", "run", "one",
        ],
        &[
            "--grpc", "--token", "s3cret", "--server", &closed, "--tls", "version",
        ],
    ] {
        text.push_str(&transcript(bare(home.path(), arguments), arguments, "").await);
    }
    let hidden = text
        .lines()
        .filter(|line| !line.starts_with("$ "))
        .all(|line| !line.contains("s3cret"));
    assert!(hidden, "a token is shown: {text}");
    let text = text.replace(&closed, "CLOSED");
    assert_snapshot!(masked(&text, home.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_says_no() {
    let cluster = Cluster::behind_control_plane("sg0040").await;
    let wrong: &[&[&str]] = &[
        &["--token", "guess", "list"],
        &["--token", "guess", "run", "--agent", "a", "--impl", "b"],
        &["--tls", "list"],
        &["list", "-n", "elsewhere"],
        &["get", "run", "no-such-run"],
        &["list", "runs", "-l", "a in (b"],
        &["wait", "run", "nobody"],
        &["logs", "nobody"],
    ];
    assert_snapshot!(cluster.session(wrong).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_and_the_token_come_from_the_configuration() {
    let cluster = Cluster::behind_control_plane("sg0041").await;
    let home = tempfile::tempdir().unwrap();
    let address = cluster.control_plane().to_owned();
    let mut text = String::new();
    for (arguments, input) in [
        (&["config", "set", "address", &address][..], ""),
        (&["config", "set", "namespace", cluster.namespace], ""),
        (&["auth", "login", "--with-token"], SECRET),
        (&["--grpc", "auth", "status"], ""),
        (&["--grpc", "auth", "status", "-o", "json"], ""),
    ] {
        text.push_str(&transcript(bare(home.path(), arguments), arguments, input).await);
    }
    assert!(!text.contains(SECRET), "{text}");
    assert_snapshot!(masked(&cluster.masked(&text), home.path()));
}
