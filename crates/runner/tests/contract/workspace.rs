//! A temporary workspace with its documents, and the runner started in it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Workspace {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// What a finished run left.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The termination message.
    pub(crate) outcome: Value,
    pub(crate) status: Value,
}

impl Finished {
    pub(crate) fn reason(&self) -> &str {
        self.outcome["reason"].as_str().expect("an outcome has a reason")
    }

    pub(crate) fn message(&self) -> &str {
        self.outcome["message"].as_str().expect("a failure has a message")
    }
}

impl Workspace {
    /// A workspace whose agent is this shell script.
    pub(crate) fn with_agent(script: &str) -> Self {
        Self::with_spec(&json!({"providerSpec": {"binary": "/bin/sh", "args": ["-c", script]}}))
    }

    /// A workspace whose agent is this shell script, with more in its `agent-runner.json`.
    pub(crate) fn with_agent_and(script: &str, more: &Value) -> Self {
        let mut spec = json!({"providerSpec": {"binary": "/bin/sh", "args": ["-c", script]}});
        merge(&mut spec, more);
        Self::with_spec(&spec)
    }

    pub(crate) fn with_spec(more: &Value) -> Self {
        let workspace = Self {
            directory: TempDir::new().expect("a temporary directory"),
            variables: Vec::new(),
        };
        let mut spec = json!({"provider": "scripted", "inputs": {}, "payloads": {}});
        merge(&mut spec, more);
        workspace.write("agent-runner.json", &spec.to_string());
        workspace.write("run.json", "{}");
        workspace
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn run_document(self, document: &Value) -> Self {
        self.write("run.json", &document.to_string());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).expect("the workspace is writable");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// Makes a named pipe. Reading it to its end returns when every process that has it open for writing is gone.
    pub(crate) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        path
    }

    fn command(&self) -> Command {
        let mut command = Command::new(runner());
        command
            .current_dir(self.directory.path())
            .env("AGENT_RUNNER_SPEC_PATH", self.path("agent-runner.json"))
            .env("AGENT_RUN_SPEC", self.path("run.json"))
            .env("AGENT_TERMINATION_MESSAGE_PATH", self.path("termination"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run(&self) -> Finished {
        let output = self.command().output().expect("the runner starts");
        self.finished(output)
    }

    pub(crate) fn start(&self) -> Started<'_> {
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        Started {
            workspace: self,
            child,
            stdout: BufReader::new(stdout),
        }
    }

    fn finished(&self, output: Output) -> Finished {
        let parse = |name: &str| serde_json::from_str(&self.read(name)).unwrap_or(Value::Null);
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            outcome: parse("termination"),
            status: if self.path(".agent/status.json").exists() {
                parse(".agent/status.json")
            } else {
                Value::Null
            },
        }
    }
}

/// A runner at work.
pub(crate) struct Started<'a> {
    workspace: &'a Workspace,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Started<'_> {
    /// Waits until the agent has printed this line.
    pub(crate) fn until(&mut self, line: &str) {
        let mut read = String::new();
        while read.trim_end() != line {
            read.clear();
            let bytes = self.stdout.read_line(&mut read).expect("output");
            assert!(bytes > 0, "the agent ended before it printed {line}");
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the runner is there");
    }

    pub(crate) fn finish(mut self) -> Finished {
        let mut rest = String::new();
        while self.stdout.read_line(&mut rest).expect("output") > 0 {}
        let mut output = self.child.wait_with_output().expect("the runner ends");
        output.stdout = rest.into_bytes();
        self.workspace.finished(output)
    }
}

pub(crate) fn runner() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_agent-runner"))
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => into.clone_from(more),
    }
}
