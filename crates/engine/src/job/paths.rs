//! Where things lie in the container, and how the parts of the pod are called.

use jangar_api::names::DnsLabel;

/// Directory of the run: what the agent reads, and what it leaves behind.
pub(super) const WORKSPACE: &str = "/workspace";
/// The run, for the agent.
pub(super) const RUN_DOCUMENT: &str = "/workspace/run.json";
/// The runner's instructions.
pub(super) const RUNNER_DOCUMENT: &str = "/workspace/agent-runner.json";
/// Where the runner writes what came of the run.
pub(super) const STATUS: &str = "/workspace/.agent/status.json";
/// Where the runner keeps what the agent printed.
pub(super) const LOG: &str = "/workspace/.agent/runner.log";
/// A system prompt that is kept in a Secret or a ConfigMap.
pub(super) const SYSTEM_PROMPT: &str = "/workspace/.codex/system-prompt.txt";
/// Home of a user that the image most often does not know.
pub(super) const HOME: &str = "/home/agent";
/// Where the init container puts agent-runner.
pub(super) const RUNNER_DIR: &str = "/opt/agent-runner";
/// The program that the main container starts.
pub const RUNNER: &str = "/opt/agent-runner/agent-runner";

/// Names of the pod's own volumes. They begin with the name of the run, so that a volume of the run's workload may be
/// called `workspace` or `home`.
#[derive(Debug)]
pub(super) struct VolumeNames {
    run: String,
    pub(super) workspace: String,
    pub(super) runner: String,
    pub(super) home: String,
    pub(super) files: String,
    pub(super) system_prompt: String,
    pub(super) auth_home: String,
    pub(super) auth_secret: String,
    pub(super) vcs_ssh: String,
    pub(super) vcs_known_hosts: String,
    pub(super) vcs_token: String,
}

impl VolumeNames {
    pub(super) fn of(run: &str) -> Self {
        let name = |suffix| String::from(DnsLabel::join(run, suffix));
        Self {
            run: run.to_owned(),
            workspace: name("workspace"),
            runner: name("agent-runner"),
            home: name("home"),
            files: name("spec-vol"),
            system_prompt: name("system-prompt"),
            auth_home: name("auth-home"),
            auth_secret: name("auth-secret"),
            vcs_ssh: name("vcs-ssh"),
            vcs_known_hosts: name("vcs-known-hosts"),
            vcs_token: name("vcs-token"),
        }
    }

    /// That of a Secret whose keys are variables.
    pub(super) fn secret_env(&self, number: usize) -> String {
        DnsLabel::join(&self.run, &format!("secret-env-{number}")).into()
    }
}
