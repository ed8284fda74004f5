//! The console: agentctl as a person types it, with the kubeconfig of the embedded Kubernetes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::console;

/// Everything in the demo takes a second or two. A minute means that something is broken.
const PATIENCE: Duration = Duration::from_mins(1);
const NAME: &str = "agentctl";

/// The program, and what it needs to find the cluster.
#[derive(Debug)]
pub(super) struct Agentctl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Agentctl {
    /// The one that was built together with this program, if it was.
    pub(super) fn beside_us(kubeconfig: &Path) -> Result<Option<Self>> {
        let ours = std::env::current_exe().context("failed to find this program")?;
        let program = ours.with_file_name(format!("{NAME}{}", std::env::consts::EXE_SUFFIX));
        Ok(program.is_file().then(|| Self {
            program,
            kubeconfig: kubeconfig.to_owned(),
        }))
    }

    /// Runs a line that a person would type, shows it and what comes of it, and returns the data.
    pub(super) async fn type_in(&self, line: &str) -> Result<String> {
        console::command(line)?;
        let directory = self.kubeconfig.parent().unwrap_or(Path::new("/"));
        let running = Command::new(&self.program)
            .args(line.split_whitespace().skip(1))
            // What is configured on this machine is for other clusters.
            .env_clear()
            .env("HOME", directory)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, running)
            .await
            .with_context(|| format!("waited a minute for `{line}`"))?
            .with_context(|| format!("failed to run {}", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        console::show(&text)?;
        ensure!(
            output.status.success(),
            "`{line}` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    }
}

/// The command in a line of an answer, such as `  $ agentctl approve RUN STEP  # lets the run go on`.
pub(super) fn advised(line: &str) -> Option<&str> {
    let (command, _) = line.trim_start().strip_prefix("$ ")?.split_once("  # ")?;
    command.starts_with("agentctl approve ").then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_taken_from_the_answer_and_what_it_does_is_not() {
        let line = "  $ agentctl approve r ship -n agents  # lets it pass";
        assert_eq!(advised(line), Some("agentctl approve r ship -n agents"));
        assert_eq!(advised("  $ agentctl reject r ship -n agents  # ends it"), None);
        assert_eq!(advised("it waits"), None);
    }
}
