//! Version control: the forge of a run, its repository and branches, and with what the run shows who it is there.
//!
//! | module | subject |
//! |---|---|
//! | `auth` | which ways of authenticating a forge takes, and which one a provider has chosen |
//! | `addresses` | where the forge's API, repositories and pages are |
//! | `branch` | the branches that work starts from and goes to |
//! | `repository` | which repositories may be used |
//! | `delivery` | whether the work arrived at the forge |
//! | `provider` | VersionControlProvider: whether it can be used |
//! | `resolve` | what one run gets of all this |
//! | `environment` | what the pod of the run is told |
//! | `stamp` | what the Job of the run carries for its status |
//!
//! No credential passes through here: only the names of the Secrets that hold them.

mod addresses;
mod auth;
mod branch;
pub mod delivery;
mod environment;
pub mod provider;
mod repository;
mod resolve;
mod stamp;
#[cfg(test)]
pub(crate) mod tests;

pub use self::{
    auth::{AppKey, Auth, Credentials, StoredValue},
    branch::{WantedBranch, wanted_branch},
    delivery::ReportedDelivery,
    environment::VcsDocument,
    resolve::{Access, Begun, Request, Resolution, Unclear, VersionControl, elsewhere, reference, resolve},
    stamp::{TokenStamp, VcsStamp},
};
pub(crate) use self::{
    delivery::api_address,
    environment::{KNOWN_HOSTS_DIRECTORY, SSH_DIRECTORY, TOKEN_DIRECTORY, TOKEN_KEY, variables},
    repository::REPOSITORY,
};
