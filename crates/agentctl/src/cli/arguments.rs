//! The arguments of each verb.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::clock::parse_duration;

/// A `KEY=VALUE` of the command line.
pub type Pair = (String, String);

fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE")),
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(subcommand)]
    pub verb: Option<RunVerb>,
    #[command(flatten)]
    pub submit: SubmitArgs,
}

/// The verbs under `run`, as earlier versions had them.
#[derive(Debug, Subcommand)]
pub enum RunVerb {
    /// Submit a run; the same as `agentctl run`.
    Submit(Box<SubmitArgs>),
    /// Show what a run writes; the same as `agentctl logs`.
    Logs(LogArgs),
    /// Wait for the end of a run; the same as `agentctl wait`.
    Wait(WaitArgs),
    /// Ask a run to stop; the same as `agentctl cancel`.
    Cancel(OneRunArgs),
}

#[derive(Args, Debug)]
#[group(id = "submission")]
pub struct SubmitArgs {
    /// The Agent that does the work.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["orchestration", "tool"], conflicts_with_all = ["orchestration", "tool"])]
    pub agent: Option<String>,
    /// Run this Orchestration instead of an agent.
    #[arg(long, value_name = "NAME", conflicts_with = "tool")]
    pub orchestration: Option<String>,
    /// Run this Tool instead of an agent.
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// The ImplementationSpec that describes the work.
    #[arg(long = "impl", value_name = "NAME", conflicts_with = "text")]
    pub implementation: Option<String>,
    /// The work, described in place: a text, @FILE, or - for standard input.
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// What executes the run: job, workflow, temporal or custom.
    #[arg(long, value_name = "TYPE", default_value = "job")]
    pub runtime: String,
    /// A setting of the runtime. A value that is JSON is taken as such. Can be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub runtime_config: Vec<Pair>,
    /// A parameter of the run. Can be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub param: Vec<Pair>,
    /// Makes submitting again harmless: the same key means the same run.
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Name of the run. Default: made from the agent and the key.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Image of the pod.
    #[arg(long, value_name = "IMAGE")]
    pub workload_image: Option<String>,
    /// How much CPU the pod asks for, and may use.
    #[arg(long, value_name = "QUANTITY")]
    pub cpu: Option<String>,
    /// How much memory the pod asks for, and may use.
    #[arg(long, value_name = "QUANTITY")]
    pub memory: Option<String>,
    /// The Memory of the run.
    #[arg(long, value_name = "NAME")]
    pub memory_ref: Option<String>,
    /// The VersionControlProvider of the run.
    #[arg(long, value_name = "NAME")]
    pub vcs: Option<String>,
    /// What the run may do to the repository: read-write, read-only or none.
    #[arg(long, value_name = "MODE")]
    pub vcs_mode: Option<String>,
    /// Fail the run if it cannot have that access.
    #[arg(long)]
    pub vcs_required: bool,
    /// A Secret whose keys become environment variables of the pod. Can be repeated.
    #[arg(long = "secret", value_name = "NAME")]
    pub secrets: Vec<String>,
    /// The SecretBinding that lets the agent use them; the control plane asks for it, with --grpc.
    #[arg(long, value_name = "NAME")]
    pub secret_binding: Option<String>,
    /// The Budget that must not be used up; the control plane looks at it, with --grpc.
    #[arg(long, value_name = "NAME")]
    pub budget: Option<String>,
    /// Order in the queue: larger numbers start first.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// A label of the run. Can be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<Pair>,
    /// Print the run and create nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub following: Following,
}

/// What is done after a run was made.
#[derive(Args, Clone, Debug, Default)]
pub struct Following {
    /// Wait for the end; the exit code tells the outcome.
    #[arg(long)]
    pub wait: bool,
    /// Show what the run writes, and wait for its end.
    #[arg(long)]
    pub logs: bool,
    /// The longest wait, for example 90s, 30m or 2h; without it there is no end.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

/// Which objects are listed.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Of every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only those with these labels, as kubectl takes them.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Only those in this phase.
    #[arg(long, value_name = "PHASE")]
    pub phase: Option<String>,
    /// Only runs of this runtime.
    #[arg(long, value_name = "TYPE")]
    pub runtime: Option<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// The kind. Default: runs of agents.
    #[arg(value_name = "KIND")]
    pub kind: Option<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Of runs: those that the history has, the latest first, also if they are gone from the cluster; with --grpc.
    #[arg(long, conflicts_with_all = ["selector", "runtime"])]
    pub archived: bool,
    /// Of the history: only runs that have these words in their name, labels, prompt, reason or message.
    #[arg(long, value_name = "WORDS", requires = "archived")]
    pub search: Option<String>,
    /// Of the history: at most so many. Default: 100.
    #[arg(long, value_name = "NUMBER", requires = "archived", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}

#[derive(Args, Debug)]
pub struct GetArgs {
    /// The kind, and the name of one object: `run NAME` or `run/NAME`.
    #[arg(value_name = "KIND [NAME]", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Accepted for scripts that give it: a watch needs no interval.
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub interval: Option<String>,
}

#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// The kind and the name: `run NAME` or `run/NAME`.
    #[arg(value_name = "KIND NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
}

#[derive(Args, Debug)]
pub struct WaitArgs {
    /// The kind and the name; of a run the name is enough.
    #[arg(value_name = "[KIND] NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// What for: complete (the default of runs), delete, phase=PHASE, or condition=TYPE[=STATUS].
    #[arg(long = "for", value_name = "WHAT")]
    pub condition: Option<String>,
    /// The longest wait, for example 90s, 30m or 2h; without it there is no end.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub struct LogArgs {
    /// The kind and the name of a run; the name is enough.
    #[arg(value_name = "[KIND] NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Go on until the run has ended.
    #[arg(short, long)]
    pub follow: bool,
    /// Only this step, of a workflow or of an orchestration.
    #[arg(long, value_name = "STEP")]
    pub step: Option<String>,
    /// This container of the pod. Default: the one that works.
    #[arg(short, long, value_name = "NAME")]
    pub container: Option<String>,
    /// Only so many of the last lines of each pod.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only what is younger than this, for example 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Put the time before each line.
    #[arg(long)]
    pub timestamps: bool,
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The kind and the name of a run; or a kind alone, to learn about its fields.
    #[arg(value_name = "KIND [NAME]", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Of a kind: the field to tell about, for example spec.runtime.
    #[arg(long, value_name = "PATH")]
    pub field: Option<String>,
}

#[derive(Args, Debug)]
pub struct GraphArgs {
    /// The kind and the name of an OrchestrationRun or an Orchestration; of a run the name is enough.
    #[arg(value_name = "[KIND] NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Draw it anew with every change, until it has ended.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct OneRunArgs {
    /// The kind and the name of a run; the name is enough.
    #[arg(value_name = "[KIND] NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Why, for those who read about it later.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Wait until it has stopped.
    #[arg(long)]
    pub wait: bool,
    /// The longest wait.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub struct ResubmitArgs {
    /// The kind and the name of a run; the name is enough.
    #[arg(value_name = "[KIND] NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// A parameter that is to be another one. Can be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub param: Vec<Pair>,
    /// Name of the new run. Default: that of the old one with a number.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub following: Following,
}

#[derive(Args, Debug)]
pub struct DecisionArgs {
    /// The OrchestrationRun.
    #[arg(value_name = "RUN")]
    pub run: String,
    /// The gate. It can be left out if the run has one that waits.
    #[arg(value_name = "STEP")]
    pub step: Option<String>,
    /// What you have to say about it.
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// The digest of what you were shown. If the gate shows something else by now, nothing is decided.
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
}

#[derive(Args, Debug)]
pub struct ApprovalsArgs {
    /// Of every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// A file, a folder, or - for standard input. Can be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub filename: Vec<String>,
    /// Let the API server look at it, and keep nothing.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, default_missing_value = "server", require_equals = true)]
    pub dry_run: Option<DryRun>,
    /// Take fields over that belong to another field manager.
    #[arg(long)]
    pub force_conflicts: bool,
}

/// Where a dry run happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// The API server checks it.
    Server,
    /// Only what can be checked here is.
    Client,
    /// It is no dry run.
    None,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// The kind and the name: `run NAME` or `run/NAME`.
    #[arg(value_name = "KIND NAME", required = true, num_args = 1..=2)]
    pub what: Vec<String>,
    /// Say what would be deleted, and delete nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(subcommand)]
    pub kind: CreateKind,
}

/// What can be made from a command line.
#[derive(Debug, Subcommand)]
pub enum CreateKind {
    /// An ImplementationSpec.
    Impl {
        /// What is to be done: a text, @FILE, or - for standard input.
        #[arg(long, value_name = "TEXT")]
        text: String,
        /// One line about it.
        #[arg(long, value_name = "TEXT")]
        summary: Option<String>,
        /// Where it comes from: provider=github,externalId=OWNER/REPO#1,url=…
        #[arg(long, value_name = "KEY=VALUE,…")]
        source: Option<String>,
        /// Its name. Default: `impl-` and what the API server makes up.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

#[derive(Args, Debug)]
pub struct InitArgs {
    #[command(subcommand)]
    pub kind: InitKind,
}

/// What can be begun with.
#[derive(Debug, Subcommand)]
pub enum InitKind {
    /// An ImplementationSpec.
    Impl {
        /// Its name.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What is to be done: a text, @FILE, or - for standard input.
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        /// One line about it.
        #[arg(long, value_name = "TEXT")]
        summary: Option<String>,
        #[command(flatten)]
        target: InitTarget,
    },
    /// A run of an agent.
    Run {
        /// Its name. Default: that of the ImplementationSpec, and a number.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The Agent that does the work.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// The ImplementationSpec that describes the work.
        #[arg(long = "impl", value_name = "NAME")]
        implementation: Option<String>,
        /// What executes the run: job, workflow, temporal or custom.
        #[arg(long, value_name = "TYPE", default_value = "job")]
        runtime: String,
        #[command(flatten)]
        target: InitTarget,
        /// Wait for the end of the run; the exit code tells the outcome.
        #[arg(long)]
        wait: bool,
        /// The longest wait.
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        timeout: Option<Duration>,
    },
}

/// Where a manifest goes: to standard output unless told.
#[derive(Args, Clone, Debug, Default)]
pub struct InitTarget {
    /// Write it to this file.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Apply it.
    #[arg(long)]
    pub apply: bool,
}

#[derive(Args, Debug)]
pub struct FilesArgs {
    /// Files, folders, or - for standard input.
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    pub files: Vec<String>,
    /// The same with a flag.
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filename: Vec<String>,
}

impl FilesArgs {
    /// All that was given, in either way.
    pub fn all(&self) -> Vec<String> {
        self.files.iter().chain(&self.filename).cloned().collect()
    }
}

#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: FilesArgs,
    /// Ask no cluster: what the files do not hold is not known.
    #[arg(long)]
    pub offline: bool,
}

#[derive(Args, Debug)]
pub struct TopArgs {
    /// Of every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Look into every namespace for runs.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

/// What can be done with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Show what holds, and where it comes from.
    View {
        /// Show the token as well.
        #[arg(long)]
        show_secrets: bool,
    },
    /// Keep a value; an empty one forgets it.
    Set { key: ConfigKey, value: String },
    /// Write the file with what holds at the moment.
    Init,
}

/// What the configuration file can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum ConfigKey {
    Namespace,
    Address,
    Token,
    Tls,
    Kubeconfig,
    Context,
}

#[derive(Args, Debug)]
pub struct AuthArgs {
    #[command(subcommand)]
    pub verb: AuthVerb,
}

/// What can be done about the token.
#[derive(Debug, Subcommand)]
pub enum AuthVerb {
    /// Keep a token for the control plane: that of --token, or with --with-token what standard input has.
    Login {
        /// Read the token from standard input.
        #[arg(long)]
        with_token: bool,
    },
    /// Say who you are to whoever answers, and whether there is a token for the control plane.
    Status,
    /// Forget the token.
    Logout,
}

#[derive(Args, Debug)]
pub struct CompletionArgs {
    #[command(subcommand)]
    pub verb: Option<CompletionVerb>,
    /// The shell.
    #[arg(value_name = "SHELL", required = true)]
    pub shell: Option<Shell>,
}

/// What can be done with the completion besides printing it.
#[derive(Debug, Subcommand)]
pub enum CompletionVerb {
    /// Write it where the shell looks for completions of yours.
    Install {
        /// The shell: bash, zsh or fish. Default: that of the variable SHELL.
        #[arg(value_name = "SHELL")]
        shell: Option<Shell>,
    },
}

#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Ask neither the API server nor the control plane.
    #[arg(long)]
    pub client: bool,
}

#[derive(Args, Debug)]
pub struct ExamplesArgs {
    /// The verb.
    #[arg(value_name = "VERB")]
    pub verb: Option<String>,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory that the pages are written to; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// The words of the command line after the program, the one under the cursor last.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}
