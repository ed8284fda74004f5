//! Rendering the chart, and finding things in what comes out.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A program that `make chart-tests` has built.
pub(crate) fn program(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => panic!("{variable} is not set: run these tests with `make chart-tests`"),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Helm {
    Three,
    Four,
}

impl Helm {
    fn program(self) -> PathBuf {
        program(match self {
            Self::Three => "JANGAR_TEST_HELM3",
            Self::Four => "JANGAR_TEST_HELM4",
        })
    }

    /// What Helm prints, or what it says is wrong.
    pub(crate) fn run(self, arguments: &[&str], input: &str) -> Result<String, String> {
        run(Command::new(self.program()).args(arguments), input)
    }

    /// `helm template` of the release `agents`, with more arguments. `values` is a values file.
    pub(crate) fn template(self, values: &str, arguments: &[&str]) -> Result<String, String> {
        let mut all = vec![
            "template",
            "agents",
            "charts/agents",
            "--namespace",
            "agents",
            "--values",
            "-",
        ];
        all.extend(arguments);
        self.run(&all, values)
    }
}

/// Runs a program at the root of the repository: its output, or what it says on its way to failing.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String, String> {
    let mut child = command
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Values are far smaller than a pipe, so this cannot wait for the child; one that never reads them is told by its status.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the child is waited for");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// The files of `charts/agents/ci`, by name, with their text.
pub(crate) fn values_files() -> BTreeMap<String, String> {
    let directory = root().join("charts/agents/ci");
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let files: BTreeMap<String, String> = entries
        .map(|entry| entry.expect("the directory is readable").path())
        .filter_map(|path| {
            let name = path
                .file_name()?
                .to_str()?
                .strip_suffix("-values.yaml")?
                .to_owned();
            Some((
                name,
                std::fs::read_to_string(&path).expect("the file is readable"),
            ))
        })
        .collect();
    assert!(files.len() > 5, "{files:?}");
    files
}

/// The objects of a YAML text with several documents.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    format!("\n{text}")
        .split("\n---\n")
        .filter(|document| {
            document
                .lines()
                .any(|line| !line.is_empty() && !line.starts_with('#'))
        })
        .map(|document| {
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}"))
        })
        .collect()
}

/// What the chart renders, as objects.
pub(crate) fn rendered(values: &str) -> Vec<Value> {
    objects(
        &Helm::Three
            .template(values, &[])
            .unwrap_or_else(|error| panic!("{error}\n{values}")),
    )
}

pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The workload of a name, whichever kind it is.
pub(crate) fn workload<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    find(objects, "Deployment", name)
        .or_else(|| find(objects, "Rollout", name))
        .unwrap_or_else(|| panic!("no workload {name}"))
}

/// The variables of a workload's container: names, and values where they are written out.
pub(crate) fn env_of(workload: &Value) -> Vec<(String, Option<String>)> {
    let variables = &workload["spec"]["template"]["spec"]["containers"][0]["env"];
    let each = |variable: &Value| {
        let name = variable["name"]
            .as_str()
            .expect("a variable has a name")
            .to_owned();
        (name, variable["value"].as_str().map(str::to_owned))
    };
    variables
        .as_array()
        .expect("a container has variables")
        .iter()
        .map(each)
        .collect()
}
