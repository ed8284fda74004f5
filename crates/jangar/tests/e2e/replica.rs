//! The controllers, or the control plane, as a process of their own, which can be killed, frozen and thawed.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use jangar_testkit::cluster::{Failure, Scene, until};
use k8s_openapi::api::coordination::v1::Lease;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

/// The name of the Lease unless settings say otherwise.
pub(crate) const LEASE: &str = "jangar-controller-leader";

/// The environment of the controllers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// A later one of the same name wins.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_json(self, name: &str, value: &Value) -> Self {
        self.with(name, &value.to_string())
    }
}

/// One process. It is killed when this is dropped.
pub(crate) struct Replica {
    /// What it is called in the Lease.
    pub(crate) identity: String,
    child: Child,
    log: PathBuf,
}

impl Replica {
    /// Starts `jangar controllers`. What it says goes to a file beside the reports of the test.
    pub(crate) fn start(
        name: &str,
        kubeconfig: &Path,
        reports: &Path,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let arguments = ["controllers", "--listen", "127.0.0.1:0"];
        Self::run(&arguments, name, kubeconfig, reports, settings)
    }

    /// Starts `jangar control-plane` in the same way.
    pub(crate) fn start_control_plane(
        name: &str,
        kubeconfig: &Path,
        reports: &Path,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let arguments = [
            "control-plane",
            "--listen",
            "127.0.0.1:0",
            "--probes-listen",
            "127.0.0.1:0",
        ];
        Self::run(&arguments, name, kubeconfig, reports, settings)
    }

    fn run(
        arguments: &[&str],
        name: &str,
        kubeconfig: &Path,
        reports: &Path,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(reports)?;
        let log = reports.join(format!("{}-{name}.log", arguments[0]));
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        // A process that is started again under the same name is another one.
        let unique = format!("{:08x}", rand::random::<u32>());
        let child = Command::new(env!("CARGO_BIN_EXE_jangar"))
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("HOSTNAME", name)
            .env("JANGAR_POD_UID", &unique)
            .envs(settings.0.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(File::options().append(true).open(&log)?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            identity: format!("{name}_{unique}"),
            child,
            log,
        })
    }

    /// Waits until the Lease names this process.
    pub(crate) async fn until_leading(&self, scene: &Scene) -> Result<(), Failure> {
        let what = format!(
            "to be held by {}; its log is {}",
            self.identity,
            self.log.display()
        );
        until(&scene.api::<Lease>(), LEASE, &what, |lease| {
            holder(lease) == Some(&self.identity)
        })
        .await?;
        Ok(())
    }

    /// Ends it at once, as a crash would.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await?;
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<ExitStatus, Failure> {
        self.signal(Signal::TERM)?;
        Ok(self.child.wait().await?)
    }

    /// Not a single instruction of it is executed until it is thawed.
    pub(crate) fn freeze(&self) -> Result<(), Failure> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn thaw(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = self
            .child
            .id()
            .ok_or("the controllers have ended by themselves")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("no process has this number")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> Result<bool, Failure> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> Result<String, Failure> {
        Ok(fs::read_to_string(&self.log)?)
    }
}

/// Who holds a Lease.
pub(crate) fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref()
}
