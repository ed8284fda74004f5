//! `jangar up`, started for a measurement.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The program under measurement. Dropping it ends it with all its pods.
pub(crate) struct Up {
    pub(crate) child: Child,
    pub(crate) kubeconfig: PathBuf,
    /// What it says when it is ready.
    line: String,
}

impl Up {
    /// Starts it on free ports, without limits on how often runs may start.
    pub(crate) fn start(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_jangar"))
            .args(["up", "--listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"])
            .args(["--control-plane-listen", "127.0.0.1:0", "--data-dir"])
            .arg(directory)
            .args(arguments)
            .env("JANGAR_AGENTS_CONTROLLER_RATE_NAMESPACE", "0")
            .env("JANGAR_AGENTS_CONTROLLER_RATE_CLUSTER", "0")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start jangar up")?;
        let out = child.stdout.take().context("it has an output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        Ok(Self {
            child,
            kubeconfig: directory.join("kubeconfig"),
            line,
        })
    }

    /// The address that follows these words in what it says when it is ready.
    pub(crate) fn address(&self, words: &str) -> Result<String> {
        let found = self
            .line
            .split_once(&format!("{words} on http://"))
            .and_then(|(_, rest)| rest.split([' ', ';']).next());
        let address = found.with_context(|| format!("it is not ready: {}", self.line))?;
        Ok(address.to_owned())
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        let file = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // What is left after a failure is ended at once; there is nothing to do about an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
