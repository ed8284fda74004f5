//! The executor: plays the kubelet for the pods of one node, with processes of this machine as containers.
//!
//! `manager` follows the pods of the node and has one `worker` for each. A worker is a loop around pure decisions:
//! `lifecycle` says what happens next, `status` what the API shows; `objects`, `env`, `field`, `volumes` and `prepare` describe
//! a container's surroundings; `attempt` starts a process and finds it again after a restart; `shim` is that process.
//! `slots` says whose turn it is to run, `gate` keeps who was made ready before that, `crowd` whether there are so many that less is told. `logs` serves what containers wrote.
//!
//! Images are recorded but not pulled: a container runs a program of this machine, in a sandbox that shows the machine
//! read-only.

mod attempt;
mod crowd;
mod env;
mod field;
mod gate;
mod lifecycle;
mod logfile;
mod logs;
mod manager;
mod objects;
mod prepare;
mod run;
mod sandbox;
mod shim;
mod slots;
mod status;
mod volumes;
mod worker;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::Client;
use tokio::{
    sync::{broadcast, watch},
    task::JoinHandle,
};

use self::{crowd::Crowd, field::Facts, objects::Reference, slots::Slots};
pub use self::{
    lifecycle::Backoff, logs::PodLogStore, sandbox::Isolation, shim::shim_main, status::SANDBOXED_CONDITION,
};
use crate::{
    clock::{Clock, SystemClock},
    defects::Defects,
};

/// How many pods a node runs unless told otherwise: the kubelet's number.
pub const PODS_MAX: usize = 110;
/// How much output of a container is kept unless told otherwise: the kubelet's number.
pub const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// What containers find programs in, unless told otherwise.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How many changes of objects may wait for a worker that is busy; one that misses some looks at all of its objects again.
const OBJECT_CHANGES_MAX: usize = 1024;

/// Whether pods may run as plain processes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SandboxPolicy {
    /// Never: where the kernel refuses a sandbox, pods fail and say so.
    #[default]
    Required,
    /// Where the kernel refuses a sandbox.
    Preferred,
    /// Always.
    Off,
}

/// How an executor is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node whose pods it runs.
    pub node_name: String,
    /// Where volumes, logs and records are kept. Belongs to this executor alone.
    pub data_dir: PathBuf,
    /// Directories that pods do not see, besides the data directory and the home directory.
    pub hidden: Vec<PathBuf>,
    /// Directories and files that pods see read-only although they lie in a hidden one.
    pub exposed: Vec<PathBuf>,
    /// Files and directories of the machine that every container finds, read-only, at a path of its own: by that path.
    pub provided: BTreeMap<PathBuf, PathBuf>,
    /// The home directory of whoever runs this: pods have an empty one in its place.
    pub home: Option<PathBuf>,
    pub sandbox: SandboxPolicy,
    /// The program whose `main` calls [`shim_main`] first.
    pub shim: PathBuf,
    /// How many pods run at once.
    pub pods_max: usize,
    /// How many more may be given to the node. They stand in line, and the next one begins as soon as a pod has ended.
    pub ahead: usize,
    pub log_bytes_max: u64,
    pub backoff: Backoff,
    /// What containers without a `command` run, by image.
    pub entrypoints: BTreeMap<String, Vec<String>>,
    /// What `serviceAccountToken` volumes hold.
    pub service_account_token: Option<String>,
    /// `PATH` of containers that do not set it.
    pub path: String,
    pub clock: Arc<dyn Clock>,
    #[doc(hidden)]
    pub defects: Defects,
}

impl Config {
    /// An executor as the current program runs it: that program is its own shim.
    pub fn new(node_name: &str, data_dir: &Path) -> Self {
        Self {
            node_name: node_name.to_owned(),
            data_dir: data_dir.to_owned(),
            hidden: Vec::new(),
            exposed: Vec::new(),
            provided: BTreeMap::new(),
            home: std::env::home_dir(),
            sandbox: SandboxPolicy::default(),
            shim: own_program(),
            pods_max: PODS_MAX,
            ahead: 0,
            log_bytes_max: LOG_BYTES_MAX,
            backoff: Backoff::default(),
            entrypoints: BTreeMap::new(),
            service_account_token: None,
            path: DEFAULT_PATH.to_owned(),
            clock: Arc::new(SystemClock),
            defects: Defects::default(),
        }
    }
}

fn own_program() -> PathBuf {
    // The link still leads to the running program when its file has been replaced.
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_default()
    }
}

/// Why an executor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use {path}: {source}", path = path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{exposed} must not be exposed to pods: the data directory lies in it", exposed = exposed.display())]
    ExposesData { exposed: PathBuf },
}

/// What was found out once, at the start.
#[derive(Debug)]
pub(crate) struct Settings {
    config: Config,
    home: Option<PathBuf>,
    hidden: Vec<PathBuf>,
    facts: Facts,
    /// The user and group of this program.
    ids: (u32, u32),
    /// Why pods run without a sandbox, if they do.
    unsandboxed: Option<String>,
    /// Why no pod can run, if so.
    refused: Option<String>,
}

impl Settings {
    fn pods_dir(&self) -> PathBuf {
        self.config.data_dir.join("pods")
    }

    /// What is on its way to be removed.
    fn leavings_dir(&self) -> PathBuf {
        self.config.data_dir.join("leavings")
    }

    fn claims_dir(&self) -> PathBuf {
        self.config.data_dir.join("claims")
    }
}

/// A change of an object that a pod may be waiting for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ObjectChange {
    namespace: String,
    reference: Reference,
}

/// Whether pods go on.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Control {
    #[default]
    Run,
    /// Pods are ended within their grace period.
    Drain,
    /// Pods are ended at once.
    Kill,
}

/// What all workers share.
pub(crate) struct Shared {
    client: Client,
    settings: Settings,
    logs: PodLogStore,
    objects: broadcast::Sender<ObjectChange>,
    control: watch::Sender<Control>,
    /// How many pods are not over, or have not said so yet.
    active: watch::Sender<usize>,
    /// How many pods have their turn, and their program has not begun.
    starting: watch::Sender<usize>,
    claims: worker::ClaimsInUse,
    slots: Slots,
    crowd: Crowd,
}

impl std::fmt::Debug for Shared {
    /// A client cannot be shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn now(&self) -> jiff::Timestamp {
        self.settings.config.clock.now()
    }
}

/// A running executor. Dropping or stopping it leaves its pods running: the next one on the same data directory finds them.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    isolation: Isolation,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Executor {
    /// Finds out what the machine allows, and begins to follow the pods of the node.
    pub async fn start(client: Client, config: Config, logs: PodLogStore) -> Result<Self, StartError> {
        let data_dir = usable(&config.data_dir)?;
        let mut config = Config { data_dir, ..config };
        for path in config.exposed.iter_mut().chain(config.provided.values_mut()) {
            *path = resolved(path)?;
            if config.data_dir.starts_with(&*path) {
                return Err(StartError::ExposesData {
                    exposed: path.clone(),
                });
            }
        }
        let mut hidden = vec![config.data_dir.clone()];
        for path in &config.hidden {
            hidden.push(resolved(path)?);
        }
        // A home that does not exist hides nothing.
        let home = config
            .home
            .as_deref()
            .and_then(|home| home.canonicalize().ok())
            .filter(|home| home != Path::new("/"));
        hidden.extend(home.clone());
        let isolation = sandbox::find_out(&config).await;
        let (unsandboxed, refused) = match &isolation {
            Isolation::Sandboxed => (None, None),
            Isolation::Unsandboxed { reason } => (Some(reason.clone()), None),
            Isolation::Refused { reason } => (None, Some(reason.clone())),
        };
        let settings = Settings {
            config,
            home,
            hidden,
            facts: Facts::of_this_machine(),
            ids: (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            ),
            unsandboxed,
            refused,
        };
        for path in [
            settings.pods_dir(),
            settings.claims_dir(),
            settings.leavings_dir(),
        ] {
            usable(&path)?;
        }
        spread(&settings.pods_dir());
        worker::send_away(&settings).await;
        let slots = Slots::new(settings.config.pods_max);
        let shared = Arc::new(Shared {
            client,
            settings,
            logs,
            objects: broadcast::Sender::new(OBJECT_CHANGES_MAX),
            control: watch::Sender::default(),
            active: watch::Sender::default(),
            starting: watch::Sender::default(),
            claims: worker::ClaimsInUse::default(),
            slots,
            crowd: Crowd::default(),
        });
        let stop = watch::Sender::new(false);
        let tasks = manager::spawn(&shared, &stop.subscribe());
        Ok(Self {
            shared,
            isolation,
            stop,
            tasks,
        })
    }

    /// Ends the executor and leaves its pods running. When this returns, nothing of it touches the data directory any more.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for task in &mut self.tasks {
            // It ends by itself; if it panicked there is nothing left to end.
            let _ = task.await;
        }
    }

    /// What pods are kept in.
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Ends all pods within their grace periods, and returns when they have ended and the API server was told.
    pub async fn drain(&self) {
        self.end_pods(Control::Drain).await;
    }

    /// Ends all pods at once, and returns when they have ended and the API server was told.
    pub async fn kill(&self) {
        self.end_pods(Control::Kill).await;
    }

    async fn end_pods(&self, control: Control) {
        self.shared.slots.close();
        self.shared.control.send_if_modified(|current| {
            let stricter = control > *current;
            *current = control.max(*current);
            stricter
        });
        // The sender is ours, so waiting cannot fail.
        let _ = self
            .shared
            .active
            .subscribe()
            .wait_for(|active| *active == 0)
            .await;
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Makes a directory of ours and resolves the links in its path.
fn usable(path: &Path) -> Result<PathBuf, StartError> {
    attempt::make_private_dir(path)
        .and_then(|()| path.canonicalize())
        .map_err(|source| StartError::Directory {
            path: path.to_owned(),
            source,
        })
}

/// Asks the file system to keep what lies in different subdirectories apart.
///
/// ext4 gives away the number of a deleted file again only after minutes, and to find another it walks over all that were
/// deleted near by since. Pods make and remove some thirty files each; next to each other, a thousand short ones spent more
/// time on that walk than on all other files and directories together.
#[cfg(target_os = "linux")]
fn spread(directory: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    // Most other file systems do not know this wish, and work without it.
    let _ = std::fs::File::open(directory).map(|directory| {
        ioctl_getflags(&directory).and_then(|flags| ioctl_setflags(&directory, flags | IFlags::TOPDIR))
    });
}

#[cfg(not(target_os = "linux"))]
fn spread(_directory: &Path) {}

fn resolved(path: &Path) -> Result<PathBuf, StartError> {
    path.canonicalize().map_err(|source| StartError::Directory {
        path: path.to_owned(),
        source,
    })
}
