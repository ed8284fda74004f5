//! The command line: every verb, flag and example. Help, manual pages, shell completion and docs/agentctl.md are made from it.

mod arguments;

use clap::{Args, Parser, Subcommand};

pub use self::arguments::{
    ApplyArgs, ApprovalsArgs, AuthArgs, AuthVerb, CompleteArgs, CompletionArgs, CompletionVerb, ConfigArgs,
    ConfigKey, ConfigVerb, CreateArgs, CreateKind, DecisionArgs, DeleteArgs, DescribeArgs, DoctorArgs,
    DryRun, ExamplesArgs, ExplainArgs, FilesArgs, Following, GetArgs, GraphArgs, InitArgs, InitKind,
    InitTarget, ListArgs, LogArgs, ManArgs, OneRunArgs, Pair, PlanArgs, ResubmitArgs, RunArgs, RunVerb,
    Selection, SubmitArgs, TopArgs, VersionArgs, WaitArgs,
};
use crate::output::Format;

/// Runs coding agents: submit work, watch it, learn why it waits or failed, stop it, approve it.
#[derive(Debug, Parser)]
#[command(
    name = "agentctl",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = false,
    infer_long_args = false,
    after_help = "\
Examples:
  agentctl run --agent coder --text 'Fix the flaky test' --wait
  agentctl list runs
  agentctl explain run coder-3f2a
  agentctl logs -f run coder-3f2a
  agentctl approvals
  agentctl --grpc --server jangar.example.com:443 --tls list runs

A KIND is one of the nineteen, by any of its names: `agentctl get kinds` lists them. Exit codes: 0 done, 2 wrong input,
3 Kubernetes, 4 what runs is unwell, 5 other; of `wait`: 10 Failed, 11 Cancelled, 12 timed out, 13 deleted."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What every verb understands.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Namespace. Default: AGENTCTL_NAMESPACE, the configuration, the kubeconfig's context, `agents`.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Output: table, wide, json, yaml, yaml-stream, name, text, or jsonpath=TEMPLATE.
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// Talk to the Kubernetes API server of the kubeconfig (the default).
    #[arg(long, global = true, conflicts_with = "grpc")]
    pub kube: bool,
    /// Talk to the control plane of Jangar, with a token and no kubeconfig.
    #[arg(long, global = true)]
    pub grpc: bool,
    /// The kubeconfig file. Default: AGENTCTL_KUBECONFIG, the configuration, KUBECONFIG, ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Address of the control plane, for --grpc.
    #[arg(long, alias = "address", global = true, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Token for the control plane, for --grpc.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Talk TLS with the control plane.
    #[arg(long, global = true, conflicts_with = "no_tls")]
    pub tls: bool,
    /// Do not talk TLS with the control plane, although your token goes there.
    #[arg(long, global = true)]
    pub no_tls: bool,
    /// Answer yes to every question.
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Ask nothing: what would need an answer is an error.
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Colour the output although it does not go to a terminal.
    #[arg(long, global = true, conflicts_with = "no_color")]
    pub color: bool,
    /// Do not colour the output.
    #[arg(long, global = true)]
    pub no_color: bool,
    /// Accepted for scripts that give it: output is never paged by itself.
    #[arg(long, global = true, hide = true, conflicts_with = "no_pager")]
    pub pager: bool,
    /// Accepted for scripts that give it.
    #[arg(long, global = true, hide = true)]
    pub no_pager: bool,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Submit work: a run of an agent, of a tool, or of an orchestration.
    ///
    /// The name of the run follows from the namespace, the agent and the idempotency key, so submitting again with the same
    /// key changes nothing.
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "\
Examples:
  agentctl run --agent coder --impl fix-login --wait --logs
  agentctl run --agent coder --text @task.md --param repository=example/adder --idempotency-key issue-42
  agentctl run --orchestration release --param stage=prod --wait --timeout 2h
  agentctl run --agent coder --impl fix --runtime-config 'nodeSelector={\"pool\":\"agents\"}' --dry-run -o yaml
  agentctl run submit --agent coder --impl fix-login --runtime job"
    )]
    Run(Box<RunArgs>),
    /// List objects; without a kind, the runs of agents.
    #[command(after_help = "\
Examples:
  agentctl list
  agentctl list orchestrationruns -A
  agentctl list runs --phase Running -l team=web -o wide
  agentctl list runs -o jsonpath='{.items[*].metadata.name}'
  agentctl --grpc list runs --archived --phase Failed --search 'login timeout'")]
    List(ListArgs),
    /// Show objects of a kind, or one by its name; `get kinds` lists the kinds.
    #[command(after_help = "\
Examples:
  agentctl get agents
  agentctl get run coder-3f2a -o yaml
  agentctl get run/coder-3f2a -o jsonpath='{.status.phase}'
  agentctl get kinds")]
    Get(GetArgs),
    /// Show one object for people: what it is, its conditions, its steps, its events.
    #[command(after_help = "\
Examples:
  agentctl describe run coder-3f2a
  agentctl describe orchestration release
  agentctl describe agent coder -o yaml")]
    Describe(DescribeArgs),
    /// Show objects, and every change of them, until Ctrl-C.
    #[command(after_help = "\
Examples:
  agentctl watch runs
  agentctl watch run coder-3f2a
  agentctl watch orchestrationruns -o json")]
    Watch(GetArgs),
    /// Wait for the end of a run, or for another change; the exit code tells the outcome.
    #[command(after_help = "\
Examples:
  agentctl wait run coder-3f2a --timeout 30m
  agentctl wait agent coder --for condition=Ready
  agentctl wait run coder-3f2a --for phase=Running
  agentctl wait run coder-3f2a --for delete

Exit codes: 0 it ended well, 10 Failed, 11 Cancelled, 12 the timeout is over, 13 it was deleted.")]
    Wait(WaitArgs),
    /// Show what a run writes. With -f: wait for its pod, and go on with the next one when that is replaced.
    #[command(after_help = "\
Examples:
  agentctl logs coder-3f2a
  agentctl logs -f run coder-3f2a --tail 100
  agentctl logs -f orchestrationrun release-1
  agentctl logs run coder-3f2a --step implement --timestamps")]
    Logs(LogArgs),
    /// Say why a run waits or failed, who can change that, and with which command; of a kind, what its fields mean.
    #[command(after_help = "\
Examples:
  agentctl explain run coder-3f2a
  agentctl explain orchestrationrun release-1 -o json
  agentctl explain agentrun
  agentctl explain orchestration --field spec.steps")]
    Explain(ExplainArgs),
    /// Draw the steps of an orchestration, with where each one stands; with -w until it has ended.
    #[command(after_help = "\
Examples:
  agentctl graph orchestrationrun release-1
  agentctl graph release-1 -w
  agentctl graph orchestration release")]
    Graph(GraphArgs),
    /// Ask a run to stop. It is over when its pods are gone.
    #[command(after_help = "\
Examples:
  agentctl cancel run coder-3f2a
  agentctl cancel orchestrationrun release-1 --reason 'wrong branch' --wait")]
    Cancel(OneRunArgs),
    /// Do the work of a run again that failed or was cancelled, as a new run.
    #[command(after_help = "\
Examples:
  agentctl retry run coder-3f2a --wait
  agentctl retry orchestrationrun release-1")]
    Retry(ResubmitArgs),
    /// Do the work of any run again, as a new run.
    #[command(after_help = "\
Examples:
  agentctl resubmit run coder-3f2a
  agentctl resubmit run coder-3f2a --param branch=main --wait")]
    Resubmit(ResubmitArgs),
    /// Approve a gate of an orchestration's run, as you.
    #[command(after_help = "\
Examples:
  agentctl approve release-1
  agentctl approve release-1 ship --comment 'tested by hand'")]
    Approve(DecisionArgs),
    /// Deny a gate of an orchestration's run, as you. One who denies outweighs all who approve.
    #[command(after_help = "\
Examples:
  agentctl reject release-1 ship --comment 'not on a Friday'")]
    Reject(DecisionArgs),
    /// List the gates that wait for a decision.
    #[command(after_help = "\
Examples:
  agentctl approvals
  agentctl approvals -A -o json")]
    Approvals(ApprovalsArgs),
    /// Apply manifests by server-side apply, as field manager agentctl.
    #[command(after_help = "\
Examples:
  agentctl apply -f agents.yaml
  agentctl apply -f manifests/ --dry-run=server
  cat run.yaml | agentctl apply -f -")]
    Apply(ApplyArgs),
    /// Delete an object. One that is still at work has to be confirmed.
    #[command(after_help = "\
Examples:
  agentctl delete impl fix-login
  agentctl delete run coder-3f2a --yes
  agentctl delete agent coder --dry-run")]
    Delete(DeleteArgs),
    /// Create an ImplementationSpec from a text.
    #[command(after_help = "\
Examples:
  agentctl create impl --text 'Fix the flaky test' --summary 'flaky test'
  agentctl create impl --name fix-login --text @task.md --source provider=github,externalId=example/adder#42
  cat task.md | agentctl create impl --text -")]
    Create(CreateArgs),
    /// Write the first manifest: an ImplementationSpec, or a run of an agent.
    #[command(after_help = "\
Examples:
  agentctl init impl --name fix-login --text @task.md --file fix-login.yaml
  agentctl init run --agent coder --impl fix-login > run.yaml
  agentctl init run --agent coder --impl fix-login --apply --wait")]
    Init(InitArgs),
    /// Check manifests without a cluster, by the rules of the API server and of the controllers.
    #[command(after_help = "\
Examples:
  agentctl lint run.yaml
  agentctl lint manifests/
  cat run.yaml | agentctl lint -")]
    Lint(FilesArgs),
    /// Show what a manifest would do: the Job, the secrets by name, the gates, the limits, the order of the steps.
    #[command(after_help = "\
Examples:
  agentctl plan run.yaml
  agentctl plan manifests/ --offline
  agentctl plan run.yaml -o json")]
    Plan(PlanArgs),
    /// Show what runs and what waits at the moment.
    #[command(after_help = "\
Examples:
  agentctl top
  agentctl top -A")]
    Top(TopArgs),
    /// Show whether the parts of Jangar are there and well.
    #[command(after_help = "\
Examples:
  agentctl status
  agentctl status -n team -o json")]
    Status,
    /// Look for what is wrong, and say how each finding is mended.
    #[command(
        alias = "diagnose",
        after_help = "\
Examples:
  agentctl doctor
  agentctl doctor -n team -o json"
    )]
    Doctor(DoctorArgs),
    /// Show or change the configuration of agentctl.
    #[command(after_help = "\
Examples:
  agentctl config view
  agentctl config set namespace team
  agentctl config init")]
    Config(ConfigArgs),
    /// Keep, show or forget the token for the control plane, and say who you are to Kubernetes.
    #[command(after_help = "\
Examples:
  agentctl auth status
  agentctl auth login --with-token < token.txt
  agentctl auth logout")]
    Auth(AuthArgs),
    /// Print the completion for a shell, which offers live names; `install` writes it where the shell looks.
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "\
Examples:
  agentctl completion install
  agentctl completion bash > /etc/bash_completion.d/agentctl
  source <(agentctl completion zsh)
  agentctl completion fish > ~/.config/fish/completions/agentctl.fish"
    )]
    Completion(CompletionArgs),
    /// Print the version, and that of the API server or the control plane.
    #[command(after_help = "\
Examples:
  agentctl version
  agentctl version --client")]
    Version(VersionArgs),
    /// Print the way from nothing to a run that has ended.
    #[command(after_help = "\
Examples:
  agentctl quickstart")]
    Quickstart,
    /// Print examples of one verb or of all.
    #[command(after_help = "\
Examples:
  agentctl examples
  agentctl examples run")]
    Examples(ExamplesArgs),
    /// Write the manual pages.
    #[command(after_help = "\
Examples:
  agentctl man --dir /usr/local/share/man/man1")]
    Man(ManArgs),
    #[command(name = "__complete", hide = true)]
    Complete(CompleteArgs),
}
