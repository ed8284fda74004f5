//! Finds out, once, whether this machine lets us put a container into a sandbox: by doing it.

use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::{
    Config, SandboxPolicy,
    attempt::{self, remove_tree},
    run::{Files, Run, Sandbox},
};

/// How long the trial may take on a busy machine.
const TRIAL: Duration = Duration::from_secs(30);

/// What pods are kept in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Isolation {
    Sandboxed,
    /// Pods are plain processes, because of this.
    Unsandboxed {
        reason: String,
    },
    /// Pods cannot run, because of this.
    Refused {
        reason: String,
    },
}

pub(crate) async fn find_out(config: &Config) -> Isolation {
    match config.sandbox {
        SandboxPolicy::Off => Isolation::Unsandboxed {
            reason: "this node is configured to run pods as plain processes".to_owned(),
        },
        SandboxPolicy::Required => match refusal(config).await {
            None => Isolation::Sandboxed,
            Some(reason) => Isolation::Refused { reason },
        },
        SandboxPolicy::Preferred => match refusal(config).await {
            None => Isolation::Sandboxed,
            Some(reason) => Isolation::Unsandboxed { reason },
        },
    }
}

/// Why there is no sandbox to be had.
async fn refusal(config: &Config) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("only Linux has the namespaces that a sandbox is made of".to_owned());
    }
    let files = Files::new(config.data_dir.join("trial"));
    let result = trial(config, &files).await;
    // What stays is tried to be removed again by the next start.
    let _ = remove_tree(&files.dir);
    result
        .err()
        .map(|reason| format!("this machine refuses a sandbox: {reason}"))
}

async fn trial(config: &Config, files: &Files) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    remove_tree(&files.dir).map_err(failed)?;
    attempt::make_private_dir(&files.root()).map_err(failed)?;
    let run = Run {
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), ":".to_owned()],
        env: Vec::new(),
        working_dir: None,
        log_bytes_max: config.log_bytes_max,
        sandbox: Some(Sandbox::default()),
        gated: false,
    };
    let mut begun = attempt::start(files, &config.shim, &run).map_err(failed)?;
    let mut bytes = Vec::new();
    let ended = async {
        let _ = begun.wake.read_to_end(&mut bytes).await;
        begun.child.wait().await
    };
    match tokio::time::timeout(TRIAL, ended).await {
        Ok(waited) => waited.map_err(failed)?,
        Err(_) => return Err(format!("a trial did not end within {} seconds", TRIAL.as_secs())),
    };
    match attempt::ended(files, config.clock.now()).map_err(failed)? {
        Some(exit) if exit.code == 0 => Ok(()),
        Some(exit) if exit.message.is_empty() => Err(format!("a trial ended with code {}", exit.code)),
        Some(exit) => Err(exit.message),
        None => Err(std::fs::read_to_string(files.complaints()).unwrap_or_default()),
    }
}
