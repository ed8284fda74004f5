//! Manifests before they are applied: lint and plan.

use std::path::PathBuf;

use insta::assert_snapshot;

use crate::{
    modes::in_both,
    support::{Cluster, bare, masked, references, transcript},
};

const GOOD: &str = "\
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentProvider
metadata: {name: shell}
spec: {binary: /bin/sh, argsTemplate: ['-c', 'echo {{ parameters.repository }}']}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: Agent
metadata: {name: coder}
spec: {providerRef: {name: shell}}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentRun
metadata: {name: one}
spec:
  agentRef: {name: coder}
  implementation: {inline: {text: Fix it.}}
  runtime: {type: job}
  secrets: [forge-token]
  parameters: {repository: example/adder}
";

const BAD: &str = "\
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentRun
metadata: {name: one}
spec:
  agentRef: {}
  runtime: {type: jbo}
  parameterz: {a: b}
---
apiVersion: orchestration.proompteng.ai/v1alpha1
kind: Orchestration
metadata: {name: circle}
spec:
  steps:
  - {name: a, kind: Checkpoint, dependsOn: [b]}
  - {name: b, kind: Checkpoint, dependsOn: [a]}
---
just words
";

async fn offline(files: &[(&str, &str)], arguments: &[&[&str]]) -> String {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut text = String::new();
    for arguments in arguments {
        text.push_str(&transcript(bare(home.path(), arguments), arguments, "").await);
    }
    masked(&text, home.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_checked_without_a_cluster() {
    let files = [
        ("good.yaml", GOOD),
        ("all/bad.yaml", BAD),
        ("all/.hidden.yaml", "a: ["),
        ("all/notes.txt", "x"),
    ];
    let text = offline(
        &files,
        &[
            &["lint", "good.yaml"],
            &["lint", "all"],
            &["lint", "-f", "all", "-o", "json"],
            &["lint", "nowhere.yaml"],
            &["lint", "good.yaml", "good.yaml"],
        ],
    )
    .await;
    assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_chart_are_well_formed() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../charts/agents/examples");
    let examples = examples.canonicalize().unwrap();
    let home = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let arguments = ["lint", path.to_str().unwrap()];
        let text = transcript(bare(home.path(), &arguments), &arguments, "").await;
        assert!(text.ends_with("= 0\n\n"), "{text}");
        assert!(!text.contains("error: "), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_the_job_and_the_order_of_steps() {
    let orchestration = "\
apiVersion: orchestration.proompteng.ai/v1alpha1
kind: Orchestration
metadata: {name: release}
spec:
  steps:
  - {name: build, kind: AgentRun, dependsOn: [], agentRef: {name: coder}, implementationSpecRef: {name: build}, retries: 2, timeoutSeconds: 60}
  - {name: ship, kind: ApprovalGate, dependsOn: [build], policyRef: leads}
  - {name: done, kind: Checkpoint, dependsOn: [ship], when: \"parameters.stage == 'prod'\"}
";
    let missing = GOOD.replace("agentRef: {name: coder}", "agentRef: {name: nobody}");
    let files = [
        ("good.yaml", GOOD),
        ("release.yaml", orchestration),
        ("missing.yaml", missing.as_str()),
        (
            "agent.yaml",
            "apiVersion: agents.proompteng.ai/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {providerRef: {name: p}}\n",
        ),
    ];
    let text = offline(
        &files,
        &[
            &["plan", "release.yaml", "--offline"],
            &[
                "plan",
                "missing.yaml",
                "--offline",
                "-o",
                "jsonpath={[*].verdict}",
            ],
            &["plan", "agent.yaml", "--offline"],
        ],
    )
    .await;
    assert_snapshot!(text);
    let text = offline(&files, &[&["plan", "good.yaml", "--offline"]]).await;
    let (summary, job) = text.split_once("---\n").unwrap();
    assert_snapshot!("the_summary_of_a_plan", summary);
    for words in [
        "kind: Job\n",
        "name: one-job\n",
        "image: image-of-the-controllers\n",
        "name: forge-token\n",
    ] {
        assert!(job.contains(words), "{words} is not in {job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_takes_what_the_files_lack_from_the_cluster() {
    for cluster in Cluster::both(["sp0021", "sg0021"]).await {
        for object in references() {
            cluster.have(object).await;
        }
        let run = GOOD.rsplit("---\n").next().unwrap();
        let file = cluster.file("run.yaml", run);
        let text = cluster.transcript(&["plan", &file]).await;
        assert!(text.contains("MissingProvider"), "{text}");
        let provider = cluster.file("provider.yaml", GOOD.split("---\n").next().unwrap());
        let text = cluster
            .transcript(&["plan", &file, &provider, "-o", "jsonpath={[*].verdict}"])
            .await;
        assert!(text.contains("would start\n"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_manifest_is_written_and_not_over_another() {
    let file: &[&str] = &[
        "init",
        "impl",
        "--name",
        "fix",
        "--text",
        "Fix it.",
        "--summary",
        "fix",
        "--file",
        "fix.yaml",
    ];
    let commands: &[&[&str]] = &[
        file,
        file,
        &["lint", "fix.yaml"],
        &["init", "run", "--agent", "coder", "--impl", "fix"],
        &[
            "init",
            "run",
            "--agent",
            "coder",
            "--impl",
            "fix",
            "--runtime",
            "lambda",
        ],
        &["init", "run", "--agent", "coder"],
        &["init", "run", "--agent", "coder", "--impl", "fix", "--wait"],
    ];
    assert_snapshot!(offline(&[], commands).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_manifest_is_applied() {
    let played = in_both(["sp0044", "sg0044"], async |cluster| {
        for object in references() {
            cluster.have(object).await;
        }
        let commands: &[&[&str]] = &[
            &[
                "init",
                "impl",
                "--name",
                "login",
                "--text",
                "Fix the login.",
                "--apply",
            ],
            &["init", "run", "--agent", "coder", "--impl", "login", "--apply"],
            &["get", "run", "login-1", "-o", "jsonpath={.spec}"],
        ];
        cluster.session(commands).await
    })
    .await;
    played.is_the_same();
    assert_snapshot!(played.kube);
}
