//! What Jangar asks of forges: whether a branch is there, how far it is ahead, and the pull request for it, open or merged; and
//! the tokens of a GitHub App.
//!
//! | module | subject |
//! |---|---|
//! | `http` | one request, with bounds on time, size, redirects and retries |
//! | `error` | what can go wrong, and what to do about it |
//! | `token` | a credential that nobody can print |
//! | `github`, `gitlab`, `bitbucket`, `gitea` | the same five questions in each forge's words |
//! | `app` | tokens of a GitHub App: made for one repository, and revoked |
//!
//! It knows nothing of Kubernetes or of runs. agent-runner opens pull requests with it, and the controllers look whether what
//! was promised has arrived.

mod app;
mod bitbucket;
mod error;
mod gitea;
mod github;
mod gitlab;
mod http;
mod read;
mod token;

pub use self::{
    app::{App, InstallationToken},
    error::ForgeError,
    http::{Http, Patience},
    token::Token,
};

/// The software behind a forge that has an API for pull requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Github,
    Gitlab,
    Bitbucket,
    Gitea,
}

impl Kind {
    /// The forge of this name, as a VersionControlProvider has it. `None` for a server that only speaks git.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "github" => Some(Self::Github),
            "gitlab" => Some(Self::Gitlab),
            "bitbucket" => Some(Self::Bitbucket),
            "gitea" => Some(Self::Gitea),
            _ => None,
        }
    }
}

/// A branch at the forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its last commit.
    pub commit: String,
}

/// A pull request that is open. GitLab calls it a merge request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    pub number: u64,
    /// Where people find it.
    pub url: String,
}

/// A pull request that was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Merged {
    pull_request: PullRequest,
    /// The last commit of the branch that it came from, or the beginning of it.
    commit: String,
}

/// By what the pull request of some work is known once it is merged: a branch of the same name may have had others before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedWork<'a> {
    /// The last commit that was pushed.
    pub commit: &'a str,
    /// The number of the pull request, where it was opened with the work.
    pub number: Option<u64>,
}

/// Forges that shorten the name of a commit leave at least this much of it.
const COMMIT_MIN: usize = 7;

impl MergedWork<'_> {
    fn is_in(&self, merged: &Merged) -> bool {
        let (pushed, found) = (self.commit, merged.commit.as_str());
        let comparable = pushed.len().min(found.len()) >= COMMIT_MIN;
        let same = comparable && (pushed.starts_with(found) || found.starts_with(pushed));
        same || self.number == Some(merged.pull_request.number)
    }
}

/// A pull request that is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPullRequest<'a> {
    pub base: &'a str,
    pub head: &'a str,
    pub title: &'a str,
    pub body: &'a str,
    pub draft: bool,
}

/// One repository at a forge, with a token for it.
#[derive(Debug)]
pub struct Forge {
    kind: Kind,
    http: Http,
    /// Owner and name.
    repository: String,
}

impl Forge {
    /// A repository at the forge whose API is at this address.
    pub fn new(
        kind: Kind,
        api_base_url: &str,
        repository: &str,
        token: Token,
        patience: Patience,
    ) -> Result<Self, ForgeError> {
        let scheme = match kind {
            Kind::Github | Kind::Gitlab | Kind::Bitbucket => "Bearer",
            Kind::Gitea => "token",
        };
        Ok(Self {
            kind,
            http: Http::new(api_base_url, scheme, token, patience)?,
            repository: repository.to_owned(),
        })
    }

    /// The branch, if there is one of this name.
    pub async fn branch(&self, name: &str) -> Result<Option<Branch>, ForgeError> {
        let found = match self.kind {
            Kind::Github => github::branch(&self.http, &self.repository, name).await,
            Kind::Gitlab => gitlab::branch(&self.http, &self.repository, name).await,
            Kind::Bitbucket => bitbucket::branch(&self.http, &self.repository, name).await,
            Kind::Gitea => gitea::branch(&self.http, &self.repository, name).await,
        };
        absent_is_none(found)
    }

    /// How many commits `head` has that `base` has not.
    pub async fn commits_ahead(&self, base: &str, head: &str) -> Result<u32, ForgeError> {
        match self.kind {
            Kind::Github => github::commits_ahead(&self.http, &self.repository, base, head).await,
            Kind::Gitlab => gitlab::commits_ahead(&self.http, &self.repository, base, head).await,
            Kind::Bitbucket => bitbucket::commits_ahead(&self.http, &self.repository, base, head).await,
            Kind::Gitea => gitea::commits_ahead(&self.http, &self.repository, base, head).await,
        }
    }

    /// The open pull request from `head` to `base`, if there is one.
    pub async fn find_pull_request(&self, base: &str, head: &str) -> Result<Option<PullRequest>, ForgeError> {
        match self.kind {
            Kind::Github => github::find(&self.http, &self.repository, base, head).await,
            Kind::Gitlab => gitlab::find(&self.http, &self.repository, base, head).await,
            Kind::Bitbucket => bitbucket::find(&self.http, &self.repository, base, head).await,
            Kind::Gitea => gitea::find(&self.http, &self.repository, base, head).await,
        }
    }

    /// The pull request from `head` to `base` with which this work was merged, if there is one.
    pub async fn find_merged(
        &self,
        base: &str,
        head: &str,
        work: &MergedWork<'_>,
    ) -> Result<Option<PullRequest>, ForgeError> {
        let merged = match self.kind {
            Kind::Github => github::merged(&self.http, &self.repository, base, head).await?,
            Kind::Gitlab => gitlab::merged(&self.http, &self.repository, base, head).await?,
            Kind::Bitbucket => bitbucket::merged(&self.http, &self.repository, base, head).await?,
            Kind::Gitea => gitea::merged(&self.http, &self.repository, base, head).await?,
        };
        let found = merged.into_iter().find(|merged| work.is_in(merged));
        Ok(found.map(|merged| merged.pull_request))
    }

    /// Opens a pull request, or returns the one that is open already.
    pub async fn open_pull_request(&self, new: &NewPullRequest<'_>) -> Result<PullRequest, ForgeError> {
        if let Some(open) = self.find_pull_request(new.base, new.head).await? {
            return Ok(open);
        }
        let opened = match self.kind {
            Kind::Github => github::open(&self.http, &self.repository, new).await,
            Kind::Gitlab => gitlab::open(&self.http, &self.repository, new).await,
            Kind::Bitbucket => bitbucket::open(&self.http, &self.repository, new).await,
            Kind::Gitea => gitea::open(&self.http, &self.repository, new).await,
        };
        match opened {
            // An answer that was lost, or somebody who was quicker: then it is there now.
            Err(error) if error.may_have_happened() => {
                match self.find_pull_request(new.base, new.head).await? {
                    Some(open) => Ok(open),
                    None => Err(error),
                }
            }
            opened => opened,
        }
    }
}

fn absent_is_none<T>(found: Result<T, ForgeError>) -> Result<Option<T>, ForgeError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ForgeError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
