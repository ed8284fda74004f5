//! The repository of the run: cloned before the agent starts, with the branch checked out that its work goes to.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    bounded::{self, BoundedError, Printed, Stop, WhenStopped},
    environment::Environment,
    program::{Lookup, find},
    reason::Reason,
    root::Root,
};

/// How long a clone or a fetch may take. A large repository takes minutes; one that takes longer belongs into the image.
const FETCH_MAX: Duration = Duration::from_mins(15);
/// How long a command may take that speaks to no server.
const LOCAL_MAX: Duration = Duration::from_mins(2);
/// A server that sends less than this many bytes a second for that long is given up.
const SLOWEST: [(&str, &str); 2] = [
    ("GIT_HTTP_LOW_SPEED_LIMIT", "1"),
    ("GIT_HTTP_LOW_SPEED_TIME", "120"),
];

/// The directory of the checkout below the workspace, unless `WORKTREE` names another one.
const DIRECTORY: &str = "repository";
/// The variable that tells the agent where it is.
pub(crate) const DIRECTORY_VARIABLE: &str = "WORKTREE";

/// Who commits, if nobody says.
const AUTHOR: (&str, &str) = ("agent-runner", "agent-runner@localhost");

#[derive(Debug, thiserror::Error)]
pub(crate) enum RepositoryError {
    #[error(
        "VCS_REPOSITORY is {repository}, and {missing} is not set: set it, so that the repository can be cloned"
    )]
    NoAddress {
        repository: String,
        missing: &'static str,
    },
    #[error(
        "the repository {repository} cannot be cloned into {}: it is there and is no checkout of git; empty it, or set WORKTREE \
         to another directory",
        directory.display()
    )]
    Occupied { repository: String, directory: PathBuf },
    #[error("the repository {repository} cannot be cloned into {}: {source}", directory.display())]
    Directory {
        repository: String,
        directory: PathBuf,
        source: io::Error,
    },
    #[error(
        "git could not clone {repository} from {server}: {source}; check the repository, the token and what it may do"
    )]
    Clone {
        repository: String,
        server: String,
        source: BoundedError,
    },
    #[error(
        "the repository {repository} has no branch {branch} to start from: set spec.parameters.base of the run, or \
         spec.defaults.baseBranch of the VersionControlProvider, to one that it has"
    )]
    NoBase { repository: String, branch: String },
    #[error("git could not check out {branch} of {repository}: {source}")]
    Checkout {
        repository: String,
        branch: String,
        source: BoundedError,
    },
    #[error("the runner was told to stop while it cloned {repository}")]
    Stopped { repository: String },
}

impl RepositoryError {
    pub(crate) const fn reason(&self) -> Reason {
        match self {
            Self::NoAddress { .. }
            | Self::Occupied { .. }
            | Self::Directory { .. }
            | Self::Checkout { .. } => Reason::CheckoutFailed,
            Self::Clone { .. } => Reason::CloneFailed,
            Self::NoBase { .. } => Reason::BranchMissing,
            Self::Stopped { .. } => Reason::Stopped,
        }
    }
}

/// Which repository it is, and what the run may do to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// Owner and name.
    pub(crate) name: String,
    /// Where it is cloned from and pushed to. No credentials stand in it.
    pub(crate) url: String,
    pub(crate) directory: PathBuf,
    /// The branch that the work starts from; absent, the repository's own.
    pub(crate) base: Option<String>,
    /// The branch that the work goes to.
    pub(crate) head: Option<String>,
    pub(crate) writes: bool,
    /// Whether an earlier attempt or step of the run may have pushed to the branch.
    pub(crate) goes_on: bool,
    author: (String, String),
}

impl Repository {
    /// What the controller said; `None` if the run has no repository.
    pub(crate) fn of(
        environment: &Environment,
        workspace: &Path,
        root: &Root,
    ) -> Result<Option<Self>, RepositoryError> {
        let Some(name) = environment.get("VCS_REPOSITORY") else {
            return Ok(None);
        };
        if environment.get("VCS_MODE") == Some("none") {
            return Ok(None);
        }
        let directory = match environment.get(DIRECTORY_VARIABLE) {
            Some(directory) => root.place(Path::new(directory)),
            None => workspace.join(DIRECTORY),
        };
        let owned = |variable: &str| environment.get(variable).map(str::to_owned);
        let head = owned("VCS_HEAD_BRANCH");
        Ok(Some(Self {
            url: url(name, environment)?,
            directory,
            base: owned("VCS_BASE_BRANCH"),
            writes: environment.get("VCS_WRITE_ENABLED") == Some("true") && head.is_some(),
            head,
            goes_on: environment.get("VCS_EARLIER_WORK") == Some("true"),
            author: (
                owned("VCS_COMMIT_AUTHOR_NAME").unwrap_or_else(|| AUTHOR.0.to_owned()),
                owned("VCS_COMMIT_AUTHOR_EMAIL").unwrap_or_else(|| AUTHOR.1.to_owned()),
            ),
            name: name.to_owned(),
        }))
    }

    /// The server, without the path of the repository.
    fn server(&self) -> String {
        self.url
            .strip_suffix(&format!("/{}.git", self.name))
            .unwrap_or(&self.url)
            .to_owned()
    }
}

fn url(name: &str, environment: &Environment) -> Result<String, RepositoryError> {
    let needed = |variable: &'static str| {
        environment
            .get(variable)
            .ok_or_else(|| RepositoryError::NoAddress {
                repository: name.to_owned(),
                missing: variable,
            })
    };
    if environment.get("VCS_CLONE_PROTOCOL") == Some("ssh") {
        let user = environment.get("VCS_SSH_USER").unwrap_or("git");
        return Ok(format!("ssh://{user}@{}/{name}.git", needed("VCS_SSH_HOST")?));
    }
    let base = needed("VCS_CLONE_BASE_URL")?;
    Ok(format!("{}/{name}.git", base.trim_end_matches('/')))
}

/// Git with the credentials of the run.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    variables: Vec<(&'static str, String)>,
    program: PathBuf,
    stop: Stop,
}

impl Git {
    pub(crate) fn new(variables: &[(&'static str, String)], environment: &Environment, stop: Stop) -> Self {
        let program = match find("git", environment) {
            Lookup::Found(path) => path,
            // `git::prepare` has looked for it before.
            Lookup::NotExecutable(_) | Lookup::Missing => PathBuf::from("git"),
        };
        Self {
            variables: variables.to_vec(),
            program,
            stop,
        }
    }

    /// Runs a command that speaks to no server, and returns what it printed.
    pub(crate) fn local(&self, directory: &Path, args: &[&str]) -> Result<String, BoundedError> {
        let printed = self.run(Some(directory), args, LOCAL_MAX, WhenStopped::GoOnFor(LOCAL_MAX))?;
        Ok(printed.stdout.trim().to_owned())
    }

    pub(crate) fn run(
        &self,
        directory: Option<&Path>,
        args: &[impl AsRef<OsStr>],
        limit: Duration,
        when_stopped: WhenStopped,
    ) -> Result<Printed, BoundedError> {
        let mut command = Command::new(&self.program);
        if let Some(directory) = directory {
            command.arg("-C").arg(directory);
        }
        command
            .args(args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(SLOWEST)
            // Its words are recognised, and shown to people.
            .env("LC_ALL", "C");
        bounded::run(command, limit, &self.stop, when_stopped)
    }
}

/// A repository that is checked out.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) repository: Repository,
    pub(crate) git: Git,
    /// The branch that the work starts from; absent if the repository is empty.
    pub(crate) base: Option<String>,
    /// Where it was when the agent started.
    pub(crate) base_commit: Option<String>,
    /// Where the branch of the work was at the server; absent if it was not there.
    pub(crate) head_before: Option<String>,
}

impl Checkout {
    /// Clones the repository and checks out the branch of the run.
    pub(crate) fn make(repository: Repository, git: Git) -> Result<Self, RepositoryError> {
        fetch(&repository, &git)?;
        let commit_of = |branch: &str| {
            let reference = format!("refs/remotes/origin/{branch}^{{commit}}");
            git.local(
                &repository.directory,
                &["rev-parse", "--verify", "--quiet", &reference],
            )
            .ok()
        };
        let base = repository
            .base
            .clone()
            .or_else(|| default_branch(&repository, &git));
        let base_commit = base.as_deref().and_then(commit_of);
        let head_before = repository.head.as_deref().and_then(commit_of);
        let is_empty = git
            .local(
                &repository.directory,
                &["for-each-ref", "--count=1", "refs/remotes/origin"],
            )
            .is_ok_and(|references| references.is_empty());
        if let (None, None, false, Some(branch)) = (&base_commit, &head_before, is_empty, &base) {
            return Err(RepositoryError::NoBase {
                repository: repository.name,
                branch: branch.clone(),
            });
        }
        let checkout = Self {
            base: base.filter(|_| !is_empty),
            repository,
            git,
            base_commit,
            head_before,
        };
        checkout.switch()?;
        Ok(checkout)
    }

    /// Checks out the branch of the run: as the server has it, or new from where the work starts.
    fn switch(&self) -> Result<(), RepositoryError> {
        let Repository {
            directory,
            head,
            author,
            ..
        } = &self.repository;
        let branch = head.as_deref().or(self.base.as_deref()).unwrap_or("main");
        let failed = |source| RepositoryError::Checkout {
            repository: self.repository.name.clone(),
            branch: branch.to_owned(),
            source,
        };
        let from = self.head_before.as_ref().or(self.base_commit.as_ref());
        match from {
            Some(commit) => self.git.local(
                directory,
                &["checkout", "--quiet", "--force", "-B", branch, commit],
            ),
            // There is no commit yet: the first one makes the branch.
            None => self.git.local(
                directory,
                &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")],
            ),
        }
        .map_err(failed)?;
        for (key, value) in [("user.name", &author.0), ("user.email", &author.1)] {
            self.git
                .local(directory, &["config", key, value])
                .map_err(failed)?;
        }
        Ok(())
    }
}

/// Brings the repository into its directory. A checkout that an earlier attempt left on the same volume is brought up to date.
fn fetch(repository: &Repository, git: &Git) -> Result<(), RepositoryError> {
    let Repository {
        name, url, directory, ..
    } = repository;
    let failed = |source| match source {
        BoundedError::Stopped => RepositoryError::Stopped {
            repository: name.clone(),
        },
        source => RepositoryError::Clone {
            repository: name.clone(),
            server: repository.server(),
            source,
        },
    };
    if directory.join(".git").exists() {
        let update = [
            "fetch",
            "--prune",
            "--force",
            url,
            "+refs/heads/*:refs/remotes/origin/*",
        ];
        git.run(Some(directory), &update, FETCH_MAX, WhenStopped::End)
            .map_err(failed)?;
        return Ok(());
    }
    match fs::read_dir(directory) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(RepositoryError::Occupied {
                    repository: name.clone(),
                    directory: directory.clone(),
                });
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(RepositoryError::Directory {
                repository: name.clone(),
                directory: directory.clone(),
                source,
            });
        }
    }
    let clone = [
        OsStr::new("clone"),
        OsStr::new("--quiet"),
        OsStr::new("--no-checkout"),
        OsStr::new("--"),
        OsStr::new(url),
        directory.as_os_str(),
    ];
    git.run(None, &clone, FETCH_MAX, WhenStopped::End)
        .map_err(failed)?;
    Ok(())
}

/// The branch that the server checks out by itself.
fn default_branch(repository: &Repository, git: &Git) -> Option<String> {
    let args = ["symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"];
    let name = git.local(&repository.directory, &args).ok()?;
    Some(name.strip_prefix("origin/")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(variables: &[(&str, &str)]) -> Result<Option<Repository>, RepositoryError> {
        let mut environment = Environment::default();
        for (name, value) in variables {
            environment.set(name, value);
        }
        Repository::of(
            &environment,
            Path::new("/workspace"),
            &Root::of(&Environment::default()),
        )
    }

    #[test]
    fn a_run_without_repository_has_none() {
        assert_eq!(repository(&[]).unwrap(), None);
        assert_eq!(
            repository(&[("VCS_REPOSITORY", "a/b"), ("VCS_MODE", "none")]).unwrap(),
            None
        );
    }

    #[test]
    fn the_address_is_that_of_the_protocol() {
        let url = |more: &[(&str, &str)]| {
            let all = [&[("VCS_REPOSITORY", "a/b")], more].concat();
            repository(&all).unwrap().unwrap().url
        };
        assert_eq!(
            url(&[("VCS_CLONE_BASE_URL", "https://git.example.com/x/")]),
            "https://git.example.com/x/a/b.git"
        );
        assert_eq!(
            url(&[
                ("VCS_CLONE_PROTOCOL", "ssh"),
                ("VCS_SSH_HOST", "git.example.com"),
                ("VCS_SSH_USER", "me")
            ]),
            "ssh://me@git.example.com/a/b.git"
        );
        for protocol in ["https", "ssh"] {
            let error =
                repository(&[("VCS_REPOSITORY", "a/b"), ("VCS_CLONE_PROTOCOL", protocol)]).unwrap_err();
            assert_eq!(error.reason(), Reason::CheckoutFailed);
        }
    }

    #[test]
    fn nobody_writes_without_a_branch_to_write_to() {
        let writes = |more: &[(&str, &str)]| {
            let base = [("VCS_REPOSITORY", "a/b"), ("VCS_CLONE_BASE_URL", "https://h")];
            repository(&[&base[..], more].concat()).unwrap().unwrap().writes
        };
        assert!(!writes(&[]));
        assert!(!writes(&[("VCS_WRITE_ENABLED", "true")]));
        assert!(!writes(&[
            ("VCS_HEAD_BRANCH", "x"),
            ("VCS_WRITE_ENABLED", "false")
        ]));
        assert!(writes(&[("VCS_HEAD_BRANCH", "x"), ("VCS_WRITE_ENABLED", "true")]));
    }
}
