//! Tests on a real Kubernetes: the bench of `tests/cluster`.
//!
//! The bench lives in a network of its own, so tests have to run inside it: `tests/cluster/bench.sh run` boots a bench or
//! reuses the one that is up, runs a command there and says in the environment where things are. A test is a [`play`] on a
//! [`Scene`]: it has a namespace to itself and clients for several [`User`]s, waits for what it expects with [`until`], and if
//! it fails, everything in its namespace is written down.

mod image;
mod report;
mod scene;
mod user;
mod wait;

use std::{env, fs, io, path::PathBuf};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

pub use self::{
    image::{ImageError, JANGAR_IMAGE},
    report::ReportError,
    scene::{Failure, Scene, play},
    user::User,
    wait::{LIMIT, WaitError, until, until_gone, until_list},
};

/// Set by `bench.sh run`: the directory of the bench.
const BENCH: &str = "JANGAR_TEST_CLUSTER";
/// Set by `bench.sh run`: the directory for what is written down about tests that failed.
const REPORTS: &str = "JANGAR_TEST_REPORTS";

/// Why there is no cluster to test on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(
        "{0} is not set, so this does not run inside a bench: use `make cluster-tests`, or put `tests/cluster/bench.sh run` before the command"
    )]
    Outside(&'static str),
    #[error("the kubeconfig of the bench cannot be used: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("no client for the bench: {0}")]
    Client(#[source] Box<kube::Error>),
    #[error("this needs the real node of the bench, and there is none: {0}")]
    NoRealNode(String),
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
}

/// The cluster that a test runs on.
#[derive(Clone, Debug)]
pub struct Bench {
    directory: PathBuf,
    reports: PathBuf,
    kubeconfig: Kubeconfig,
}

impl Bench {
    /// The bench that this process runs inside of.
    pub fn here() -> Result<Self, BenchError> {
        let directory = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .ok_or(BenchError::Outside(name))
        };
        let (bench, reports) = (directory(BENCH)?, directory(REPORTS)?);
        let kubeconfig = Kubeconfig::read_from(bench.join("admin.kubeconfig"))?;
        Ok(Self {
            directory: bench,
            reports,
            kubeconfig,
        })
    }

    /// A client that is `user` to the API server.
    pub async fn client(&self, user: &User) -> Result<Client, BenchError> {
        let mut kubeconfig = self.kubeconfig.clone();
        for each in kubeconfig
            .auth_infos
            .iter_mut()
            .filter_map(|each| each.auth_info.as_mut())
        {
            user.impersonate(each);
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Client::try_from(config).map_err(|error| BenchError::Client(Box::new(error)))
    }

    /// The name of the node on which pods really run, or the reason why there is none.
    pub fn real_node(&self) -> Result<&'static str, BenchError> {
        let path = self.directory.join("no-real-node");
        match fs::read_to_string(&path) {
            Ok(reason) => Err(BenchError::NoRealNode(reason.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("real-1"),
            Err(error) => Err(BenchError::Unreadable { path, error }),
        }
    }
}
