//! A controller under measurement: a process of its own, with a service account of its own.

use std::{
    fmt,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use jangar_bench::process::{Memory, processor_time};
use tokio::process::{Child, Command};

/// How long the controller must be idle before what it has done counts as all it does.
const QUIET: Duration = Duration::from_secs(3);
/// What an idle controller may use of the processor in that time: leases are renewed and clocks looked at.
const QUIET_PROCESSOR_TIME: Duration = Duration::from_millis(90);
/// One that is not quiet by then never is.
const QUIET_LIMIT: u32 = 40;

/// A program, its arguments and its environment, which is no more than what is said here.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    binary: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Program {
    pub(crate) fn new(binary: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    pub(crate) fn envs<V: Into<String>>(
        mut self,
        environment: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        let pairs = environment.into_iter();
        self.environment
            .extend(pairs.map(|(name, value)| (name.to_owned(), value.into())));
        self
    }

    /// Starts it with this kubeconfig. What it says goes to the end of the file `log`.
    pub(crate) fn start(&self, kubeconfig: &Path, log: &Path) -> Result<Controller> {
        if let Some(directory) = log.parent() {
            fs::create_dir_all(directory)?;
        }
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(&self.binary)
            .args(&self.arguments)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", self.binary.display()))?;
        Ok(Controller { child })
    }
}

/// As one would type it.
impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={value} ")?;
        }
        let name = self.binary.file_name().unwrap_or_default();
        write!(
            formatter,
            "{} {}",
            name.to_string_lossy(),
            self.arguments.join(" ")
        )
    }
}

/// The process. It is ended when this goes.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
}

impl Controller {
    fn pid(&self) -> Result<u32> {
        self.child
            .id()
            .context("the controller has ended by itself; its log says why")
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        Ok(Memory::of(self.pid()?)?)
    }

    pub(crate) fn processor_time(&self) -> Result<Duration> {
        Ok(processor_time(self.pid()?)?)
    }

    /// Waits until it has nothing left to do.
    pub(crate) async fn quiet(&self) -> Result<()> {
        let mut before = self.processor_time()?;
        for _ in 0..QUIET_LIMIT {
            tokio::time::sleep(QUIET).await;
            let now = self.processor_time()?;
            if now.saturating_sub(before) <= QUIET_PROCESSOR_TIME {
                return Ok(());
            }
            before = now;
        }
        bail!(
            "the controller is still busy {:?} after its last run",
            QUIET * QUIET_LIMIT
        )
    }

    /// Asks it to end, as Kubernetes does, and waits until it has: whoever comes next need not wait for its lease.
    pub(crate) async fn leave(mut self) -> Result<()> {
        self.quiet().await?;
        let pid = i32::try_from(self.pid()?)?;
        let pid = rustix::process::Pid::from_raw(pid).context("no process has the number 0")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child
            .wait()
            .await
            .context("failed to wait for a controller")?;
        Ok(())
    }

    /// Ends it when it has nothing left to do.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.quiet().await?;
        self.child.kill().await.context("failed to end a controller")
    }
}
