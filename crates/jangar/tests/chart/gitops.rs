//! What Argo CD makes of the repository, and the scripts that check it: they pass as it is, and fail on planted mistakes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use jangar_api::Kind;
use serde_json::{Value, json};

use crate::helm::{Helm, env_of, find, objects, program, root, run};

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
            mistake(
                "argocd/applications/agents/kustomization.yaml",
                "Prune=false,Delete=false",
                "Prune=false",
                "would go with the Application",
            ),
            mistake(
                "argocd/applications/agents/kustomization.yaml",
                "- sample-budget.yaml\n",
                "",
                "sample-budget.yaml is named nowhere",
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

/// What Argo CD applies is what Helm renders, object by object; only the kinds have an annotation more.
#[test]
fn kustomize_renders_what_helm_does() {
    let is_kind = |object: &Value| object["kind"] == "CustomResourceDefinition";
    for (application, kinds) in [("agents", Kind::ALL.len()), ("jangar", 0)] {
        let by_name = |mut all: Vec<Value>| {
            all.retain(|object| is_kind(object) || object["metadata"]["labels"]["helm.sh/chart"].is_string());
            all.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
            all
        };
        let values = format!("argocd/applications/{application}/values.yaml");
        let mut arguments = vec![
            "template",
            application,
            "charts/agents",
            "--namespace",
            application,
            "--values",
            &values,
        ];
        if kinds > 0 {
            arguments.push("--include-crds");
        }
        let helm = Helm::Three
            .run(&arguments, "")
            .unwrap_or_else(|error| panic!("{error}"));
        let helm = by_name(objects(&helm));
        let mut kustomize = by_name(kustomized(application));
        for kind in kustomize.iter_mut().filter(|object| is_kind(object)) {
            let annotations = kind["metadata"]["annotations"].as_object_mut();
            annotations
                .expect("it is kept from Argo CD")
                .remove("argocd.argoproj.io/sync-options");
            if kind["metadata"]["annotations"] == json!({}) {
                kind["metadata"]
                    .as_object_mut()
                    .expect("it is an object")
                    .remove("annotations");
            }
        }
        assert_eq!(
            helm.iter().filter(|object| is_kind(object)).count(),
            kinds,
            "{application}"
        );
        assert!(helm.len() > 10 + kinds, "{application}");
        assert_eq!(kustomize, helm, "{application}");
    }
}

/// `kubectl rollout status` in the validation of the seeds is about these.
#[test]
fn the_workloads_that_the_seeds_name_are_there() {
    for (application, workloads) in [
        ("agents", ["agents", "agents-controllers"]),
        ("jangar", ["jangar", "jangar-controllers"]),
    ] {
        let rendered = kustomized(application);
        for workload in workloads {
            let found = find(&rendered, "Deployment", workload).unwrap_or_else(|| panic!("no {workload}"));
            assert_eq!(found["metadata"]["namespace"], application);
        }
    }
}

fn kustomized(application: &str) -> Vec<Value> {
    let mut command = Command::new(program("JANGAR_TEST_KUSTOMIZE"));
    command.args(["build", "--enable-helm", "--helm-command"]);
    command
        .arg(program("JANGAR_TEST_HELM3"))
        .arg(format!("argocd/applications/{application}"));
    objects(&run(&mut command, "").unwrap_or_else(|error| panic!("{error}")))
}

/// The bootstrap objects, under the names that the seeds give them.
#[test]
fn what_the_agents_start_with_is_rendered() {
    let all = kustomized("agents");
    for (kind, name) in [
        ("SecretBinding", "codex-github-token"),
        ("AgentProvider", "codex-runner"),
        ("Agent", "codex"),
        ("ConfigMap", "codex-agent-system-prompt"),
        ("VersionControlProvider", "github"),
        ("ApprovalPolicy", "sample-approval"),
        ("Budget", "sample-budget"),
        ("Signal", "sample-signal"),
    ] {
        let found = find(&all, kind, name).unwrap_or_else(|| panic!("no {kind} {name}"));
        assert_eq!(found["metadata"]["namespace"], "agents", "{kind} {name}");
    }
}

/// Runs of it have an image, and write only where somebody who is not root can.
#[test]
fn the_agent_of_the_repository_can_run() {
    let all = kustomized("agents");
    let controllers = find(&all, "Deployment", "agents-controllers").expect("there are controllers");
    let env = env_of(controllers);
    let said = |name: &str| {
        env.iter()
            .find(|(each, _)| each == name)
            .and_then(|(_, value)| value.clone())
    };
    assert!(said("JANGAR_AGENT_RUNNER_IMAGE").is_some_and(|image| !image.ends_with(":latest")));
    let home = said("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH").expect("it is set");
    assert!(!home.starts_with("/root"), "{home}");
    let provider = find(&all, "AgentProvider", "codex-runner").expect("there is a provider");
    let file = provider["spec"]["inputFiles"][0]["path"]
        .as_str()
        .expect("it has a file");
    assert!(file.starts_with(&format!("{home}/")), "{file} is not in {home}");
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
    for runbook in [
        "cancel",
        "job-retention",
        "orchestrations",
        "progressive-delivery",
        "topology-spread",
    ] {
        let path = root().join(format!("docs/runbooks/{runbook}.md"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for words in ["urn off", "roll back", "## What goes wrong", "## What to watch"] {
            assert!(text.contains(words), "{runbook}.md does not say {words}");
        }
    }
}

/// A test that was renamed shows nothing any more to whoever follows the page.
#[test]
fn every_test_that_the_page_about_the_seeds_names_is_there() {
    let page = std::fs::read_to_string(root().join("docs/seeds.md")).expect("there is a page");
    let mut looked_at = 0;
    for named in page.split('`').skip(1).step_by(2) {
        let Some((module, test)) = named.split_once("::") else {
            continue;
        };
        let code = if module.contains('/') {
            root().join("crates").join(module)
        } else {
            root().join(format!("crates/jangar/tests/chart/{module}.rs"))
        };
        let code = std::fs::read_to_string(&code).unwrap_or_else(|error| panic!("{named}: {error}"));
        let (begin, end) = match test.strip_suffix('…') {
            Some(begin) => (begin, ""),
            None => (test, "()"),
        };
        assert!(code.contains(&format!("fn {begin}{end}")), "there is no {named}");
        looked_at += 1;
    }
    assert!(looked_at > 40, "{looked_at}");
}

/// What the five documents point to in their repository, which this one began as.
#[rustfmt::skip] // It is read as a list.
const PATHS_OF_THE_SEEDS: &[&str] = &[
    "argocd/applications/agents/application.yaml", "argocd/applications/agents/codex-agent-system-prompt-configmap.yaml",
    "argocd/applications/agents/codex-agent.yaml", "argocd/applications/agents/codex-agentprovider.yaml",
    "argocd/applications/agents/codex-secretbinding.yaml", "argocd/applications/agents/codex-versioncontrolprovider.yaml",
    "argocd/applications/agents/kustomization.yaml", "argocd/applications/agents/sample-approvalpolicy.yaml",
    "argocd/applications/agents/sample-budget.yaml", "argocd/applications/agents/sample-signal.yaml",
    "argocd/applications/agents/values.yaml", "argocd/applications/agents-ci/", "argocd/applications/froussard",
    "argocd/applications/jangar/kustomization.yaml", "argocd/applicationsets/product.yaml",
    "charts/agents/crds/orchestration.proompteng.ai_orchestrationruns.yaml",
    "charts/agents/crds/orchestration.proompteng.ai_orchestrations.yaml",
    "charts/agents/templates/deployment-controllers.yaml", "charts/agents/templates/deployment.yaml",
    "docs/agents/designs/chart-env-vars-merge-precedence.md", "packages/codex/src/runner.ts", "scripts/agents/validate-agents.sh",
    "scripts/argo-lint.sh", "scripts/kubeconform.sh", "services/jangar/api/agents/generate.go",
    "services/jangar/api/agents/v1alpha1/types.go", "services/jangar/scripts/codex/codex-implement.ts",
    "services/jangar/src/server/agents-controller.ts", "services/jangar/src/server/app.ts", "services/jangar/src/server/index.ts",
    "services/jangar/src/server/kube-watch.ts", "services/jangar/src/server/orchestration-controller.ts",
    "services/jangar/src/server/orchestration-submit.ts", "services/jangar/src/server/primitives-kube.ts",
    "services/jangar/src/server/primitives-policy.ts", "services/jangar/src/server/supporting-primitives-controller.ts",
];

/// A row for each, which says that it is there only if it is, and otherwise what took its place.
#[test]
fn every_path_of_the_seeds_has_a_row_that_is_true() {
    let page = std::fs::read_to_string(root().join("docs/seeds.md")).expect("there is a page");
    let (_, rows) = page
        .split_once("## Every path, and where it is now")
        .expect("there is a table of paths");
    for path in PATHS_OF_THE_SEEDS {
        let row = rows
            .lines()
            .find(|row| row.contains(&format!("`{path}`")))
            .unwrap_or_else(|| panic!("{path} has no row"));
        let now = row.split('|').nth(2).expect("a row has two cells").trim();
        assert_eq!(now.starts_with("there"), root().join(path).exists(), "{row}");
        for place in now.split('`').skip(1).step_by(2) {
            let is_path = ["crates/", "charts/"].iter().any(|part| place.starts_with(part));
            assert!(!is_path || root().join(place).exists(), "{place} is not there");
        }
    }
}

#[test]
fn every_statement_of_the_seeds_is_shown_by_something() {
    let page = std::fs::read_to_string(root().join("docs/seeds.md")).expect("there is a page");
    let mut tables = page.split("| statement | where | shown by |").skip(1).peekable();
    assert!(tables.peek().is_some(), "the page has tables of statements");
    for table in tables {
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        for row in rows {
            let shown = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            assert!(!shown.trim().is_empty(), "{row}");
        }
    }
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
