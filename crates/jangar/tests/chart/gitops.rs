//! What Argo CD makes of the repository, and the scripts that check it: they pass as it is, and fail on planted mistakes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::helm::{Helm, find, objects, program, root, run};

/// A copy of what the scripts look at, to plant mistakes in.
struct Copy(tempfile::TempDir);

impl Copy {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room for a copy");
        for part in [
            "argocd",
            "charts",
            "scripts",
            "tests/cluster/go",
            "tests/cluster/role.yaml",
            "tests/cluster/control-plane-role.yaml",
            "docs",
        ] {
            let to = directory.path().join(part);
            std::fs::create_dir_all(to.parent().expect("it is below the copy"))
                .expect("directories can be made");
            let copied = run(Command::new("cp").arg("-R").arg(root().join(part)).arg(&to), "");
            assert_eq!(copied.as_deref(), Ok(""));
        }
        Self(directory)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Replaces a text in a file, which must have it.
    fn plant(&self, file: &str, from: &str, to: &str) {
        let path = self.path(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(path, text.replacen(from, to, 1)).expect("the copy is writable");
    }

    fn script(&self, arguments: &[&str]) -> Result<String, String> {
        script(self.0.path(), arguments)
    }
}

fn script(directory: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg(r#"cd "$0" && exec "$@""#)
        .arg(directory)
        .args(arguments)
        .env("JANGAR", env!("CARGO_BIN_EXE_jangar"));
    run(&mut command, "")
}

/// A mistake in a file, and a word of what is said about it.
struct Mistake {
    file: &'static str,
    from: &'static str,
    to: &'static str,
    words: &'static str,
}

const fn mistake(file: &'static str, from: &'static str, to: &'static str, words: &'static str) -> Mistake {
    Mistake {
        file,
        from,
        to,
        words,
    }
}

fn each_is_found(arguments: &[&str], mistakes: &[Mistake]) {
    for Mistake {
        file,
        from,
        to,
        words,
    } in mistakes
    {
        let copy = Copy::new();
        copy.plant(file, from, to);
        match copy.script(arguments) {
            Ok(said) => panic!("{file}: {to:?} was not found:\n{said}"),
            Err(said) => assert!(
                said.contains(words),
                "{file}, {to:?}: {words:?} is not in\n{said}"
            ),
        }
    }
}

#[test]
fn kubeconform_passes_and_skips_nothing() {
    let said =
        script(root(), &["scripts/kubeconform.sh", "argocd"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(said.lines().count() >= 5, "{said}");
    for line in said.lines() {
        assert!(line.ends_with("Invalid: 0, Errors: 0, Skipped: 0"), "{line}");
    }
}

#[test]
fn kubeconform_finds_planted_mistakes() {
    each_is_found(
        &["scripts/kubeconform.sh", "argocd"],
        &[
            mistake(
                "argocd/applications/agents/codex-agent.yaml",
                "providerRef:",
                "providerReference:",
                "providerReference",
            ),
            mistake(
                "argocd/applications/agents/application.yaml",
                "selfHeal: true",
                "selfHealing: true",
                "selfHealing",
            ),
            mistake(
                "argocd/applications/agents-ci/namespace.yaml",
                "kind: Namespace",
                "kind: Namespaces",
                "could not find schema",
            ),
        ],
    );
}

#[test]
fn argo_lint_passes_and_finds_planted_mistakes() {
    let said = script(root(), &["scripts/argo-lint.sh"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(said.contains("nothing wrong"), "{said}");
    each_is_found(
        &["scripts/argo-lint.sh"],
        &[
            mistake(
                "argocd/applications/agents/application.yaml",
                "path: argocd/applications/agents",
                "path: argocd/agents",
                "has no kustomization.yaml",
            ),
            mistake(
                "argocd/applications/agents/application.yaml",
                "    - ServerSideApply=true\n",
                "",
                "needs ServerSideApply=true",
            ),
            mistake(
                "argocd/applicationsets/product.yaml",
                "targetRevision: main",
                "targetRevision: next",
                "described twice, and differently",
            ),
            mistake(
                "argocd/applications/jangar/kustomization.yaml",
                "version: 0.10.0",
                "version: 0.9.1",
                "make them the same",
            ),
        ],
    );
}

#[test]
fn validation_passes_and_finds_planted_mistakes() {
    let said =
        script(root(), &["scripts/agents/validate-agents.sh"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(said.contains("all is well"), "{said}");
    each_is_found(
        &["scripts/agents/validate-agents.sh"],
        &[
            mistake(
                "charts/agents/values.yaml",
                "# Pods of the control plane, unless",
                "# Pods, unless",
                "is not what values.yaml says",
            ),
            mistake(
                "charts/agents/files/controllers-role.yaml",
                "verbs: [create]",
                "verbs: [create, delete]",
                "run make generate",
            ),
            mistake(
                "charts/agents/files/control-plane-role.yaml",
                "verbs: [patch]",
                "verbs: [patch, update]",
                "run make generate",
            ),
            mistake(
                "charts/agents/crds/signals.proompteng.ai_signals.yaml",
                "kind: Signal",
                "kind: Signals",
                "run make generate",
            ),
            mistake(
                "charts/agents/templates/service.yaml",
                "  type: {{",
                "  kindOfService: {{",
                "manifests are wrong",
            ),
            mistake(
                "charts/agents/examples/minimal.yaml",
                "agentRef:",
                "agentReference:",
                "agentReference",
            ),
        ],
    );
}

/// What Argo CD applies is what Helm renders, object by object.
#[test]
fn kustomize_renders_what_helm_does() {
    let by_name = |text: &str| {
        let mut all = objects(text);
        all.retain(|object| object["metadata"]["labels"]["helm.sh/chart"].is_string());
        all.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
        all
    };
    let mut command = Command::new(program("JANGAR_TEST_KUSTOMIZE"));
    command.args(["build", "--enable-helm", "--helm-command"]);
    command
        .arg(program("JANGAR_TEST_HELM3"))
        .arg("argocd/applications/agents");
    let kustomize = run(&mut command, "").unwrap_or_else(|error| panic!("{error}"));
    let values = std::fs::read_to_string(root().join("argocd/applications/agents/values.yaml"))
        .expect("there are values");
    let helm = Helm::Three
        .template(&values, &[])
        .unwrap_or_else(|error| panic!("{error}"));
    let [kustomize, helm] = [by_name(&kustomize), by_name(&helm)];
    assert!(helm.len() > 10);
    assert_eq!(kustomize, helm);
}

/// `kubectl rollout status` in the validation of the seeds is about these.
#[test]
fn the_workloads_that_the_seeds_name_are_there() {
    for (application, workloads) in [
        ("agents", ["agents", "agents-controllers"]),
        ("jangar", ["jangar", "jangar-controllers"]),
    ] {
        let mut command = Command::new(program("JANGAR_TEST_KUSTOMIZE"));
        command.args(["build", "--enable-helm", "--helm-command"]);
        command
            .arg(program("JANGAR_TEST_HELM3"))
            .arg(format!("argocd/applications/{application}"));
        let rendered = objects(&run(&mut command, "").unwrap_or_else(|error| panic!("{error}")));
        for workload in workloads {
            let found = find(&rendered, "Deployment", workload).unwrap_or_else(|| panic!("no {workload}"));
            assert_eq!(found["metadata"]["namespace"], application);
        }
    }
}

/// Paths that the seeds name, or that took the place of one: docs/seeds.md.
#[test]
fn what_the_seeds_point_to_is_there() {
    for path in [
        "argocd/applications/agents/application.yaml",
        "argocd/applications/agents/codex-agent-system-prompt-configmap.yaml",
        "argocd/applications/agents/codex-agent.yaml",
        "argocd/applications/agents/codex-agentprovider.yaml",
        "argocd/applications/agents/codex-secretbinding.yaml",
        "argocd/applications/agents/codex-versioncontrolprovider.yaml",
        "argocd/applications/agents/kustomization.yaml",
        "argocd/applications/agents/sample-approvalpolicy.yaml",
        "argocd/applications/agents/sample-budget.yaml",
        "argocd/applications/agents/sample-signal.yaml",
        "argocd/applications/agents/values.yaml",
        "argocd/applications/agents-ci/kustomization.yaml",
        "argocd/applications/jangar/kustomization.yaml",
        "argocd/applicationsets/product.yaml",
        "charts/agents/crds/orchestration.proompteng.ai_orchestrations.yaml",
        "charts/agents/templates/deployment.yaml",
        "charts/agents/templates/deployment-controllers.yaml",
        "charts/agents/values.schema.json",
        "scripts/agents/validate-agents.sh",
        "scripts/argo-lint.sh",
        "scripts/kubeconform.sh",
    ] {
        assert!(root().join(path).is_file(), "{path}");
    }
    let readme = std::fs::read_to_string(root().join("charts/agents/README.md")).expect("there is a README");
    assert!(readme.contains("(../../docs/scheduling.md)"));
}

#[test]
fn helm_lints_the_chart() {
    for helm in [Helm::Three, Helm::Four] {
        let said = helm
            .run(&["lint", "charts/agents"], "")
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(said.contains("0 chart(s) failed"), "{said}");
    }
}
