//! The tools that tests use beside the bench are there, in the release that is pinned.

use std::{fs, process::Stdio};

use jangar_testkit::cluster::Failure;
use tokio::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The name of each, the module that its `go.mod` pins, and how it is asked for its version.
const TOOLS: [(&str, &str, &str); 5] = [
    ("rollouts", "github.com/argoproj/argo-rollouts", "--version"),
    ("helm3", "helm.sh/helm/v3", "version"),
    ("helm4", "helm.sh/helm/v4", "version"),
    ("kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "version"),
    ("kubeconform", "github.com/yannh/kubeconform", "-v"),
];

/// What `go.mod` says about a module.
fn pinned(tool: &str, module: &str) -> Result<String, Failure> {
    let text = fs::read_to_string(format!("{ROOT}/tests/cluster/go/{tool}/go.mod"))?;
    let words = text
        .lines()
        .map(|line| line.trim().trim_start_matches("require "));
    let mut versions = words.filter_map(|line| line.strip_prefix(module)?.split_whitespace().next());
    let version = versions.find(|version| version.starts_with('v'));
    Ok(version
        .ok_or_else(|| format!("{tool}: {module} is not pinned"))?
        .to_owned())
}

async fn said(program: &str, argument: &str) -> Result<String, Failure> {
    let mut command = Command::new(program);
    let output = command.arg(argument).stdin(Stdio::null()).output().await?;
    let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        return Ok(words);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {argument}: {}: {words}{error}", output.status).into())
}

#[tokio::test]
async fn every_tool_answers_with_the_version_that_is_pinned() -> Result<(), Failure> {
    for (tool, module, argument) in TOOLS {
        let version = pinned(tool, module)?;
        let program = said(&format!("{ROOT}/scripts/tools.sh"), tool).await?;

        let answer = said(&program, argument).await?;

        let mut words = answer.split(|each: char| !(each.is_alphanumeric() || ".-".contains(each)));
        assert!(
            words.any(|word| word == version),
            "{tool} is pinned to {version} and says {answer}"
        );
    }
    Ok(())
}
