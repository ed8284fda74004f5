//! One run from beginning to end: read, prepare, start, attend, report.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    artifacts::{self, Collected},
    bounded::Stop,
    console::Console,
    delivery::{self, PullRequest},
    environment::Environment,
    git::{self, GitError},
    inputs::{self, InputError},
    mask::Masker,
    outcome::Outcome,
    process::{Ended, Exit, ProcessError, Watch},
    program::{Program, ProgramError, own_path},
    pull_request,
    reason::{EXIT_RUNNER, Reason},
    report::Report,
    repository::{Checkout, DIRECTORY_VARIABLE, Git, Repository, RepositoryError},
    root::Root,
    schedule::{Schedule, StopCause},
    spec::{Document, RunSpec, RunnerSpec, SpecError},
    status::{self, Artifacts, End, State, Status, Termination},
    tee::{LogEnd, SharedLog},
};

const SPEC_VARIABLE: &str = "AGENT_RUNNER_SPEC_PATH";
const RUN_VARIABLE: &str = "AGENT_RUN_SPEC";
const OUTCOME_VARIABLE: &str = "AGENT_OUTCOME_PATH";
const TERMINATION_VARIABLE: &str = "AGENT_TERMINATION_MESSAGE_PATH";

const SPEC_PATH: &str = "/workspace/agent-runner.json";
const RUN_PATH: &str = "/workspace/run.json";

/// What made the run end before the agent could.
#[derive(Debug)]
struct Failure {
    reason: Reason,
    message: String,
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::new(error.reason(), &error)
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        Self::new(error.reason(), &error)
    }
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        Self::new(error.reason(), &error)
    }
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        Self::new(error.reason(), &error)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Path { .. } => Self::new(Reason::SpecInvalid, &error),
            InputError::Write { .. } => Self::new(Reason::InputFileFailed, &error),
        }
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Start { .. } => Self::new(Reason::StartFailed, &error),
            ProcessError::Signals(_)
            | ProcessError::Thread(_)
            | ProcessError::Wait(_)
            | ProcessError::Immortal => Self::new(Reason::RunnerFailed, &error),
        }
    }
}

impl Failure {
    fn new(reason: Reason, error: &impl ToString) -> Self {
        Self {
            reason,
            message: error.to_string(),
        }
    }
}

/// Where everything is.
#[derive(Debug)]
struct Paths {
    spec: PathBuf,
    run: PathBuf,
    /// The directory of `agent-runner.json`, below which the rest lies unless that document says otherwise.
    workspace: PathBuf,
    status: PathBuf,
    log: PathBuf,
    outcome: PathBuf,
}

impl Paths {
    fn new(environment: &Environment, root: &Root) -> Self {
        let named = |variable, usual| root.place(Path::new(environment.get(variable).unwrap_or(usual)));
        let spec = named(SPEC_VARIABLE, SPEC_PATH);
        let workspace = spec.parent().unwrap_or(Path::new("/")).to_owned();
        let own = workspace.join(".agent");
        Self {
            run: named(RUN_VARIABLE, RUN_PATH),
            status: own.join("status.json"),
            log: own.join("runner.log"),
            outcome: own.join("outcome.json"),
            workspace,
            spec,
        }
    }
}

/// A run as far as it has come. Whatever happens, [`Run::finish`] can tell of it.
struct Run {
    /// Where this program is.
    own_path: PathBuf,
    environment: Environment,
    root: Root,
    paths: Paths,
    termination: Termination,
    console: Console,
    started: Instant,
    started_at: Timestamp,
    provider: Option<String>,
    program: Option<Program>,
    log: Option<SharedLog>,
    exit: Option<Exit>,
    collected: Collected,
}

/// Runs the agent and returns the exit code of the runner, which was started as `name`.
pub(crate) fn run(name: &OsStr, environment: &Environment) -> u8 {
    let root = Root::of(environment);
    let mut run = Run {
        own_path: own_path(name, environment),
        paths: Paths::new(environment, &root),
        termination: Termination::new(environment.get(TERMINATION_VARIABLE), &root),
        root,
        console: Console::new(Masker::new(environment, &[])),
        environment: environment.clone(),
        started: Instant::now(),
        started_at: Timestamp::now(),
        provider: None,
        program: None,
        log: None,
        exit: None,
        collected: Collected::default(),
    };
    let outcome = match run.agent() {
        Ok(outcome) => outcome,
        Err(failure) => {
            let code = failure.reason.own_exit_code().unwrap_or(EXIT_RUNNER);
            let message = run.console.masker.text(&failure.message);
            Outcome::new(failure.reason, code, Some(&message))
        }
    };
    run.finish(outcome)
}

impl Run {
    fn agent(&mut self) -> Result<Outcome, Failure> {
        let watch = Watch::start()?;
        let runner_document = Document::read(&self.paths.spec, SPEC_VARIABLE)?;
        let spec = RunnerSpec::new(&runner_document)?;
        self.learn(&spec);
        let run_document = Document::read(&self.paths.run, RUN_VARIABLE)?;
        let run_spec = RunSpec::new(&run_document)?;
        let program =
            Program::new(&spec, &runner_document, &run_document, &self.paths.run)?.placed(&self.root);
        self.set_environment(&program, &spec);
        let log = self.open(spec.artifacts.log_max_bytes)?;
        for note in &program.notes {
            self.console.say(note);
        }
        self.program = Some(program);
        let git_variables = git::prepare(&self.environment, &self.own_path)?;
        let checkout = self.checkout(&git_variables)?;
        let Some(program) = &self.program else {
            return Err(Failure::new(
                Reason::RunnerFailed,
                &"the program of the agent is not known",
            ));
        };
        let file = program.file(&self.environment, &spec.provider)?;
        inputs::write(&spec.provider_spec.input_files, &self.root)?;

        let mut command = Command::new(file);
        command
            .args(&program.args)
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .envs(git_variables)
            .env(OUTCOME_VARIABLE, &self.paths.outcome);
        if let Some(checkout) = &checkout {
            let directory = &checkout.repository.directory;
            command.current_dir(directory).env(DIRECTORY_VARIABLE, directory);
        }
        self.write_status(None, State::Running)
            .map_err(|error| unwritable(&self.paths.status, &error))?;
        let ended = watch.run(command, Schedule::new(&spec.deadlines), &log, &self.console)?;
        self.exit = Some(ended.exit);
        self.learn_files(&spec);
        self.collected = artifacts::collect(
            &run_spec.artifacts,
            &self.paths.workspace,
            &self.root,
            &self.console.masker,
        );
        for name in &self.collected.missing {
            self.console.say(&format!("the agent left no artifact {name}"));
        }
        let outcome = self.outcome(&ended);
        Ok(match checkout {
            Some(checkout) if outcome.reason == Reason::Completed => {
                self.deliver(outcome, &checkout, &run_document.value)
            }
            Some(_) | None => outcome,
        })
    }

    /// Clones the repository of the run, if it has one.
    fn checkout(&self, variables: &[(&'static str, String)]) -> Result<Option<Checkout>, Failure> {
        let Some(repository) = Repository::of(&self.environment, &self.paths.workspace, &self.root)? else {
            return Ok(None);
        };
        let stop = Stop::listen().map_err(ProcessError::Signals)?;
        let git = Git::new(variables, &self.environment, stop);
        let checkout = Checkout::make(repository, git)?;
        let Repository {
            name,
            directory,
            head,
            ..
        } = &checkout.repository;
        let branch = head.as_deref().or(checkout.base.as_deref()).unwrap_or_default();
        self.console.say(&format!(
            "cloned {name} into {}, on branch {branch}",
            directory.display()
        ));
        Ok(Some(checkout))
    }

    /// Sees to it that the commits of the agent arrive, and puts what became of them into the outcome.
    fn deliver(&self, mut outcome: Outcome, checkout: &Checkout, run: &Value) -> Outcome {
        let mut delivery = delivery::deliver(checkout);
        if delivery.state == delivery::State::Pushed && pull_request::is_wanted(&self.environment) {
            match pull_request::open(checkout, &self.environment, run, &self.console.masker) {
                Ok(open) => {
                    self.console
                        .say(&format!("pull request {} is open: {}", open.number, open.url));
                    delivery.pull_request = Some(PullRequest {
                        number: open.number,
                        url: Some(open.url),
                    });
                }
                // The commits are safe: somebody can open it by hand.
                Err(error) => {
                    delivery.message = Some(format!("the pull request could not be opened: {error}"));
                }
            }
        }
        let said = delivery
            .message
            .as_deref()
            .map(|message| self.console.masker.text(message));
        outcome.commit = outcome.commit.or_else(|| delivery.commit.clone());
        let failure = delivery.state.failure();
        outcome.vcs = Some(delivery);
        match (failure, said) {
            (Some(reason), said) => outcome.failed(reason, &said.unwrap_or_default()),
            (None, Some(said)) => {
                // The end of the run says it, and prints it.
                outcome.noted(&said)
            }
            (None, None) => outcome,
        }
    }

    /// Takes over what the document says of paths and secrets.
    fn learn(&mut self, spec: &RunnerSpec) {
        self.provider = Some(spec.provider.clone());
        if let Some(path) = &spec.artifacts.status_path {
            self.paths.status = self.root.place(path);
        }
        if let Some(path) = &spec.artifacts.log_path {
            self.paths.log = self.root.place(path);
        }
        self.console
            .masker
            .learn_variables(&self.environment, &spec.secret_env);
        self.learn_files(spec);
    }

    /// Learns what the files hold that are secret. Some are renewed while the agent works.
    fn learn_files(&mut self, spec: &RunnerSpec) {
        let paths: Vec<PathBuf> = spec
            .secret_files
            .iter()
            .map(|path| self.root.place(path))
            .collect();
        self.console
            .masker
            .learn_files(paths.iter().map(PathBuf::as_path));
    }

    /// Makes `environment` what the agent will have, and learns the secrets among what the provider sets.
    fn set_environment(&mut self, program: &Program, spec: &RunnerSpec) {
        for (name, value) in &program.env {
            self.environment.set(name, value);
        }
        self.console
            .masker
            .learn_variables(&self.environment, &spec.secret_env);
    }

    /// Opens the log and clears away what an earlier run in the same workspace reported.
    fn open(&mut self, log_max_bytes: u64) -> Result<SharedLog, Failure> {
        for path in [&self.paths.status, &self.paths.log, &self.paths.outcome] {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|error| unwritable(path, &error))?;
            }
        }
        match fs::remove_file(&self.paths.outcome) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(unwritable(&self.paths.outcome, &error));
            }
            Ok(()) | Err(_) => {}
        }
        let file = File::create(&self.paths.log).map_err(|error| unwritable(&self.paths.log, &error))?;
        let log = SharedLog::new(file, log_max_bytes);
        self.console.also_to(log.clone());
        self.log = Some(log.clone());
        Ok(log)
    }

    /// What came of an agent that ran: its own report, under the reason it ended with.
    fn outcome(&self, ended: &Ended) -> Outcome {
        let (mut reason, mut message) = judge(ended, &self.paths.log);
        let report = Report::read(&self.paths.outcome, &self.console.masker).unwrap_or_else(|error| {
            let problem = format!("the outcome file {} {error}", self.paths.outcome.display());
            let problem = self.console.masker.text(&problem);
            message = Some(joined(message.as_deref(), &problem));
            if reason == Reason::Completed {
                reason = Reason::OutcomeInvalid;
            }
            Report::default()
        });
        for field in report.unknown.keys() {
            self.console.say(&format!(
                "the outcome file has a field {field}, which means nothing here"
            ));
        }
        let code = reason.own_exit_code().unwrap_or_else(|| ended.exit.code());
        let mut outcome = Outcome::new(reason, code, message.as_deref());
        outcome.summary = report.summary;
        outcome.usage = report.usage;
        outcome.commit = report.commit;
        outcome.outputs = report.outputs;
        outcome.artifacts.clone_from(&self.collected.present);
        outcome
    }

    /// Writes the outcome everywhere and returns the exit code. The status file keeps outputs that did not fit.
    fn finish(&self, mut outcome: Outcome) -> u8 {
        let mut outputs = None;
        let compact = outcome.compact().or_else(|error| {
            outputs = Some(std::mem::take(&mut outcome.outputs));
            outcome = outcome.clone().without_outputs(&error.to_string());
            outcome.compact()
        });
        if let Some(message) = outcome.message() {
            self.console
                .say(&format!("{}: {message}", outcome.reason.as_str()));
        }
        // The end is the start and what passed since, so that the two agree though the clock may be set in between.
        let elapsed = self.started.elapsed();
        let finished_at = self.started_at.checked_add(elapsed).unwrap_or(self.started_at);
        let end = End::new(
            &outcome,
            outputs.as_ref().unwrap_or(&outcome.outputs),
            self.exit,
            in_milliseconds(finished_at),
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        );
        let state = match outcome.reason {
            Reason::Completed => State::Succeeded,
            _ => State::Failed,
        };
        if let Err(error) = self.write_status(Some(end), state) {
            self.console
                .say(&format!("cannot write {}: {error}", self.paths.status.display()));
        }
        // Without outputs everything fits, which a test holds; an empty message would be the only way left.
        if let Err(error) = self.termination.write(&compact.unwrap_or_default()) {
            self.console
                .say(&format!("cannot write the termination message to {error}"));
        }
        outcome.exit_code
    }

    fn write_status(&self, end: Option<End<'_>>, state: State) -> io::Result<()> {
        let masker = &self.console.masker;
        let binary = self.program.as_ref().map(|program| masker.text(&program.binary));
        let args: Vec<String> = self
            .program
            .iter()
            .flat_map(|program| &program.args)
            .map(|argument| masker.text(argument))
            .collect();
        let log_end = self.log.as_ref().map_or(LogEnd::Whole, SharedLog::end);
        status::write(
            &self.paths.status,
            &Status {
                provider: self.provider.as_deref(),
                state,
                binary: binary.as_deref(),
                args: &args,
                started_at: in_milliseconds(self.started_at),
                end,
                artifacts: Artifacts {
                    status_path: &self.paths.status,
                    log_path: &self.paths.log,
                    log_cut: Artifacts::is_cut(log_end),
                    present: &self.collected.present,
                    missing: &self.collected.missing,
                },
            },
        )
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure {
        reason: Reason::WorkspaceUnwritable,
        message: format!(
            "cannot write {}: {error}; mount a volume there that user {} may write to (fsGroup)",
            path.display(),
            rustix::process::geteuid().as_raw()
        ),
    }
}

/// The reason an agent's end has by itself, and what is to be said about it.
fn judge(ended: &Ended, log: &Path) -> (Reason, Option<String>) {
    let how = match ended.exit {
        // Told to stop or not: an agent that says it is done is believed, as the pod's own phase will.
        Exit::Code(0) => return (Reason::Completed, None),
        Exit::Code(code) => format!("the agent exited with code {code}"),
        Exit::Signal(number) => format!(
            "the agent died of {}",
            signal_hook::low_level::signal_name(number.into()).unwrap_or("a signal")
        ),
    };
    let look = format!("its output is in the pod's log and in {}", log.display());
    match (ended.stop, ended.exit) {
        (Some((StopCause::Signal(signal), _)), _) => {
            let name = signal_hook::low_level::signal_name(signal.as_raw()).unwrap_or("a signal");
            (
                Reason::Stopped,
                Some(format!("{how} after the runner was stopped by {name}")),
            )
        }
        (Some((StopCause::SoftDeadline, false)), _) => (
            Reason::SoftDeadlineExceeded,
            Some(format!("{how} after its soft deadline; {look}")),
        ),
        (Some((StopCause::SoftDeadline | StopCause::HardDeadline, _)), _) => (
            Reason::HardDeadlineExceeded,
            Some(format!("the agent was killed at its hard deadline; {look}")),
        ),
        (None, Exit::Code(_)) => (Reason::AgentFailed, Some(format!("{how}; {look}"))),
        (None, Exit::Signal(_)) => (
            Reason::AgentKilled,
            Some(format!("{how}, which the runner did not send; {look}")),
        ),
    }
}

fn joined(message: Option<&str>, more: &str) -> String {
    match message {
        Some(message) => format!("{message}; {more}"),
        None => more.to_owned(),
    }
}

fn in_milliseconds(time: Timestamp) -> String {
    format!("{time:.3}")
}
