//! Which program is the agent, with which arguments and variables.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{self, Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    NAME,
    environment::Environment,
    reason::Reason,
    root::Root,
    spec::{Document, RunnerSpec},
    template::render,
};

/// The providers that need no binary in their AgentProvider, and the program each of them is. The program takes the path of
/// the run document as its argument, and comes with the image.
const BUILT_IN: [(&str, &str); 1] = [("codex", "/usr/local/bin/codex-implement")];

/// Where programs are looked for when there is no PATH at all.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that tell the agent what the controller decided, which a provider cannot change.
const RESERVED: [&str; 4] = [
    "AGENT_RUN_SPEC",
    "AGENT_RUNNER_SPEC_PATH",
    "AGENT_PROVIDER",
    "AGENT_OUTCOME_PATH",
];
const RESERVED_PREFIX: &str = "VCS_";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error(
        "the provider {provider} has the binary agent-runner, which means a built-in provider, and the only one is named \
         codex; set spec.binary of the AgentProvider to the agent's own program"
    )]
    UnknownProvider { provider: String },
    #[error(
        "there is no program {binary} in this container; correct spec.binary of the AgentProvider {provider}, or use an \
         image that has it; under jangar up, which pulls no images, install it on this machine, or show pods the directory it \
         is in with --expose"
    )]
    NotFound { binary: String, provider: String },
    #[error(
        "{} is no executable file; correct spec.binary of the AgentProvider {provider}, or make it executable (chmod +x) in \
         the image",
        path.display()
    )]
    NotExecutable { path: PathBuf, provider: String },
}

impl ProgramError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::UnknownProvider { .. } => Reason::UnknownProvider,
            Self::NotFound { .. } => Reason::BinaryNotFound,
            Self::NotExecutable { .. } => Reason::BinaryNotExecutable,
        }
    }
}

/// What the provider sets, with its templates rendered.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) binary: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// What people should know about it, as sentences.
    pub(crate) notes: Vec<String>,
}

impl Program {
    /// Puts the program together. `run_path` is where the agent finds its run document.
    pub(crate) fn new(
        spec: &RunnerSpec,
        runner_document: &Document,
        run_document: &Document,
        run_path: &Path,
    ) -> Result<Self, ProgramError> {
        let roots = own_roots(&runner_document.value);
        let mut renderer = Renderer {
            roots: &[&roots, &run_document.value],
            notes: Vec::new(),
        };
        let provider = &spec.provider_spec;
        let args = match (&provider.args, &provider.args_template) {
            (Some(args), _) => args.clone(),
            (None, Some(templates)) => templates
                .iter()
                .enumerate()
                .map(|(index, template)| renderer.render(template, &format!("argsTemplate[{index}]")))
                .collect(),
            (None, None) => Vec::new(),
        };
        let rendered_env: Vec<_> = provider
            .env_template
            .iter()
            .map(|(name, template)| {
                (
                    name.clone(),
                    renderer.render(template, &format!("envTemplate.{name}")),
                )
            })
            .collect();
        let mut notes = renderer.notes;
        let (reserved, env): (Vec<_>, Vec<_>) = rendered_env
            .into_iter()
            .chain(provider.env.clone())
            .partition(|(name, _)| is_reserved(name));
        notes.extend(reserved.into_iter().map(|(name, _)| {
            format!("the provider's value of {name} is ignored: Jangar sets that variable")
        }));

        match provider.binary.as_deref().map(str::trim) {
            Some(binary) if !is_runner(binary) => Ok(Self {
                binary: binary.to_owned(),
                args,
                env,
                notes,
            }),
            _ => {
                let event_file = spec.payloads.event_file_path.as_ref();
                let run_path =
                    event_file.map_or_else(|| run_path.to_string_lossy().into_owned(), String::clone);
                Ok(Self {
                    binary: built_in(&spec.provider)?.to_owned(),
                    args: if args.is_empty() { vec![run_path] } else { args },
                    env,
                    notes,
                })
            }
        }
    }

    /// The same program with its paths where they are.
    pub(crate) fn placed(self, root: &Root) -> Self {
        Self {
            binary: root.text(&self.binary),
            args: self.args.iter().map(|argument| root.text(argument)).collect(),
            env: self
                .env
                .into_iter()
                .map(|(name, value)| (name, root.text(&value)))
                .collect(),
            notes: self.notes,
        }
    }

    /// The file to execute, for the environment that the program will have.
    pub(crate) fn file(&self, environment: &Environment, provider: &str) -> Result<PathBuf, ProgramError> {
        match find(&self.binary, environment) {
            Lookup::Found(path) => Ok(path),
            Lookup::NotExecutable(path) => Err(ProgramError::NotExecutable {
                path,
                provider: provider.to_owned(),
            }),
            Lookup::Missing => Err(ProgramError::NotFound {
                binary: self.binary.clone(),
                provider: provider.to_owned(),
            }),
        }
    }
}

struct Renderer<'a> {
    roots: &'a [&'a Value],
    notes: Vec<String>,
}

impl Renderer<'_> {
    fn render(&mut self, template: &str, field: &str) -> String {
        let rendered = render(template, self.roots);
        self.notes.extend(
            rendered
                .missing
                .iter()
                .map(|path| format!("providerSpec.{field}: {path} has no value and becomes nothing")),
        );
        rendered.text
    }
}

/// What templates may use of the runner's own document: the four roots that runners have always had.
fn own_roots(document: &Value) -> Value {
    let field = |name: &str| document.get(name).cloned().unwrap_or(Value::Null);
    json!({
        "inputs": field("inputs"),
        "payloads": field("payloads"),
        "observability": field("observability"),
        "artifacts": field("artifacts"),
    })
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with(RESERVED_PREFIX)
}

fn is_runner(binary: &str) -> bool {
    binary.is_empty() || Path::new(binary).file_name().is_some_and(|name| name == NAME)
}

fn built_in(provider: &str) -> Result<&'static str, ProgramError> {
    BUILT_IN
        .iter()
        .find(|(name, _)| *name == provider.trim())
        .map(|(_, binary)| *binary)
        .ok_or_else(|| ProgramError::UnknownProvider {
            provider: provider.to_owned(),
        })
}

/// Where a program was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Found(PathBuf),
    NotExecutable(PathBuf),
    Missing,
}

/// Looks for a program as a shell does: by its path if it has a slash, else along the PATH of `environment`.
pub(crate) fn find(binary: &str, environment: &Environment) -> Lookup {
    if binary.contains('/') {
        return look_at(PathBuf::from(binary));
    }
    let path = environment.raw("PATH").unwrap_or(DEFAULT_PATH);
    let mut second_best = Lookup::Missing;
    for directory in path.split(':').filter(|directory| !directory.is_empty()) {
        match look_at(Path::new(directory).join(binary)) {
            found @ Lookup::Found(_) => return found,
            other @ Lookup::NotExecutable(_) => second_best = other,
            Lookup::Missing => {}
        }
    }
    second_best
}

/// The path under which this program was started as `name`. Where that is a link, the file it leads to may have another name,
/// and what it does would be something else under that one.
pub(crate) fn own_path(name: &OsStr, environment: &Environment) -> PathBuf {
    let started = name.to_str().and_then(|name| match find(name, environment) {
        Lookup::Found(path) => path::absolute(path).ok(),
        Lookup::NotExecutable(_) | Lookup::Missing => None,
    });
    started
        .or_else(|| env::current_exe().ok())
        .unwrap_or_else(|| NAME.into())
}

fn look_at(path: PathBuf) -> Lookup {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {
            Lookup::Found(path)
        }
        Ok(_) => Lookup::NotExecutable(path),
        Err(_) => Lookup::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(runner: Value, run: Value) -> Result<Program, ProgramError> {
        let directory = tempfile::tempdir().unwrap();
        let document = |name: &str, value: Value| {
            let path = directory.path().join(name);
            fs::write(&path, value.to_string()).unwrap();
            Document::read(&path, "UNUSED").unwrap()
        };
        let runner = document("agent-runner.json", runner);
        let run = document("run.json", run);
        let spec = RunnerSpec::new(&runner).unwrap();
        Program::new(&spec, &runner, &run, Path::new("/workspace/run.json"))
    }

    #[test]
    fn what_the_controller_rendered_is_not_rendered_again() {
        let program = program(
            json!({"provider": "p", "providerSpec": {"binary": "tool", "args": ["{{ inputs.a }}"]}, "inputs": {"a": "x"}}),
            json!({}),
        )
        .unwrap();

        assert_eq!(program.args, ["{{ inputs.a }}"]);
    }

    #[test]
    fn templates_see_the_runner_document_and_the_run_document() {
        let program = program(
            json!({
                "provider": "p",
                "providerSpec": {
                    "binary": "tool",
                    "argsTemplate": ["{{ inputs.a }}", "{{ agentRun.name }}", "{{ secret }}"],
                    "envTemplate": {"STAGE": "{{ parameters.stage }}"},
                },
                "inputs": {"a": "x"},
                "secret": "only the four roots of this document are seen",
            }),
            json!({"agentRun": {"name": "fix-1"}, "parameters": {"stage": "build"}}),
        )
        .unwrap();

        assert_eq!(program.args, ["x", "fix-1", ""]);
        assert_eq!(program.env, [("STAGE".to_owned(), "build".to_owned())]);
        assert_eq!(
            program.notes,
            ["providerSpec.argsTemplate[2]: secret has no value and becomes nothing"]
        );
    }

    #[test]
    fn a_provider_cannot_change_what_the_controller_decided() {
        let program = program(
            json!({"provider": "p", "providerSpec": {"binary": "t", "env": {"VCS_MODE": "read-write", "PATH": "/x"}}}),
            json!({}),
        )
        .unwrap();

        assert_eq!(program.env, [("PATH".to_owned(), "/x".to_owned())]);
        assert_eq!(program.notes.len(), 1);
    }

    #[test]
    fn the_binary_agent_runner_means_the_built_in_provider() {
        for binary in [
            json!("agent-runner"),
            json!("/usr/local/bin/agent-runner"),
            json!(null),
            json!(""),
        ] {
            let program = program(
                json!({"provider": "codex", "providerSpec": {"binary": binary}, "payloads": {"eventFilePath": "/w/run.json"}}),
                json!({}),
            )
            .unwrap();
            assert_eq!(program.binary, "/usr/local/bin/codex-implement");
            assert_eq!(program.args, ["/w/run.json"]);
        }
    }

    #[test]
    fn an_unknown_built_in_is_no_program() {
        let error = program(
            json!({"provider": "mystery", "providerSpec": {"binary": "agent-runner"}}),
            json!({}),
        )
        .unwrap_err();

        assert_eq!(error.reason(), Reason::UnknownProvider);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let plain = make("first/tool", 0o644);
        let tool = make("second/tool", 0o755);
        let root = directory.path().to_str().unwrap();
        let path = |path: &str| Environment::from([("PATH", path)]);

        let both = path(&format!("{root}/first::{root}/second"));
        assert_eq!(find("tool", &both), Lookup::Found(tool.clone()));
        assert_eq!(
            find("tool", &path(&format!("{root}/first"))),
            Lookup::NotExecutable(plain)
        );
        assert_eq!(find("absent", &both), Lookup::Missing);
        assert_eq!(find(tool.to_str().unwrap(), &path("")), Lookup::Found(tool));
        assert_eq!(find(root, &both), Lookup::NotExecutable(root.into()));
    }

    #[test]
    fn the_path_of_this_program_is_the_one_it_was_started_under() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join(NAME);
        std::os::unix::fs::symlink(env::current_exe().unwrap(), &link).unwrap();
        let path = directory.path().to_str().unwrap();
        let environment = Environment::from([("PATH", path)]);

        for (name, expected) in [
            (link.to_str().unwrap(), link.clone()),
            (NAME, link.clone()),
            ("/nowhere/agent-runner", env::current_exe().unwrap()),
            ("something-else", env::current_exe().unwrap()),
        ] {
            assert_eq!(own_path(OsStr::new(name), &environment), expected, "{name}");
        }
    }
}
