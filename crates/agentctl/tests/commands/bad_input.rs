//! Whatever is wrong is told with what to do about it, and ends with a code that says of which kind it is.

use std::process::Stdio;

use insta::assert_snapshot;

use crate::support::{Cluster, bare, masked, runs, transcript};

#[tokio::test(flavor = "multi_thread")]
async fn words_that_make_no_sense() {
    let cluster = Cluster::start("sp0024").await;
    let text = cluster
        .session(&[
            &["get", "agnets"],
            &["get", "pods"],
            &["get", "run", "no-such-run"],
            &["get", "run", "../secrets/x"],
            &["get", "run", "a", "-A"],
            &["list", "runs", "-o", "xml"],
            &["list", "runs", "-o", "jsonpath={.a"],
            &["list", "runs", "--frobnicate"],
            &["frobnicate"],
            &["get"],
            &["list", "runs", "-l", "a in (b"],
            &["--grpc", "list"],
            &["--grpc", "--kube", "list"],
        ])
        .await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    // Nothing listens there, and nobody else gets the port while it is held.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = held.local_addr().unwrap();
    write(
        "closed",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{closed}'}}}}]\nusers: \
             [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        ),
    );
    write("broken", "clusters: [");
    let mut text = String::new();
    for arguments in [
        &["list"][..],
        &["list", "--kubeconfig", "nowhere"],
        &["list", "--kubeconfig", "broken"],
        &["list", "--kubeconfig", "closed"],
        &["list", "--kubeconfig", "closed", "--context", "other"],
    ] {
        text.push_str(&transcript(bare(home.path(), arguments), arguments, "").await);
    }
    let text = text.replace(&closed.to_string(), "CLOSED");
    assert_snapshot!(masked(&text, home.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_nobody_knows() {
    let cluster = Cluster::start("sp0025").await;
    let path = cluster.path("kubeconfig");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace("open-sesame", "guess");
    std::fs::write(&path, text).unwrap();
    assert_snapshot!(
        cluster
            .session(&[&["list"], &["run", "--agent", "a", "--impl", "b"]])
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_manifests() {
    let cluster = Cluster::start("sp0026").await;
    let words = cluster.file("words.yaml", "just words\n");
    let broken = cluster.file("broken.yaml", "a: [\n");
    let two = cluster.file(
        "two.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {}\n",
    );
    let empty = cluster.file("empty.yaml", "# nothing\n");
    let unknown = cluster.file(
        "unknown.yaml",
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\n",
    );
    let old = cluster.file(
        "old.yaml",
        "apiVersion: agents.proompteng.ai/v1\nkind: Agent\nmetadata: {name: a}\n",
    );
    let binary = cluster.path("binary.yaml");
    std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    let huge = cluster.path("huge.yaml");
    std::fs::write(&huge, vec![b'#'; 17 * 1024 * 1024]).unwrap();
    std::fs::create_dir(cluster.path("nothing")).unwrap();
    let nothing = cluster.path("nothing");
    let mut text = String::new();
    for file in [
        &words, &broken, &two, &empty, &unknown, &old, &binary, &huge, &nothing,
    ] {
        text.push_str(&cluster.transcript(&["apply", "-f", file]).await);
    }
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let cluster = Cluster::start("sp0027").await;
    for object in runs() {
        cluster.have(object).await;
    }
    let mut command = cluster.command(&["list", "runs"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    // Nobody reads what comes.
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}
