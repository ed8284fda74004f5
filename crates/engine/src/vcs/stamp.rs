//! What a Job carries for the run's status about version control: whoever finds the Job again knows as much as the one that
//! made it.

use jangar_api::{agents::agent_run_status::VcsStatus, reason::Reason, values};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::resolve::Resolution;
use crate::decision::Rejection;

/// What was decided about version control when the Job was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VcsStamp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VcsStatus>,
    /// Why the run has no version control although it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Words>,
    /// What deserves attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<Words>,
    /// The token that was made for the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenStamp>,
}

/// A token of a GitHub App, by the Secret that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenStamp {
    pub secret: String,
    pub repository: String,
    pub writes: bool,
    pub expires_at: Timestamp,
}

/// A reason with its message, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    pub reason: Reason,
    pub message: String,
}

impl From<&Rejection> for Words {
    fn from(rejection: &Rejection) -> Self {
        Self {
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        }
    }
}

impl VcsStamp {
    /// The same, for a Job with a token of its own.
    #[must_use]
    pub fn with_token(mut self, token: TokenStamp) -> Self {
        if let Some(status) = &mut self.status {
            status.token_expires_at = Some(values::Timestamp(token.expires_at));
        }
        self.token = Some(token);
        self
    }

    /// What the Job carries; nothing if nobody asked for version control.
    pub fn of(resolution: &Resolution) -> Option<Self> {
        match resolution {
            Resolution::Unasked => None,
            Resolution::Skipped(why) => Some(Self {
                skipped: Some(Words::from(why)),
                ..Self::default()
            }),
            Resolution::Ready(vcs) => Some(Self {
                status: Some(VcsStatus {
                    provider: Some(vcs.provider.clone()),
                    repository: Some(vcs.repository.clone()),
                    base_branch: vcs.base.clone(),
                    head_branch: vcs.head.clone(),
                    mode: Some(vcs.access.mode()),
                    ..VcsStatus::default()
                }),
                skipped: None,
                token: None,
                warning: vcs.auth.deprecated.as_ref().map(|message| Words {
                    reason: Reason::DeprecatedAuth,
                    message: format!("VersionControlProvider {}: {message}", vcs.provider),
                }),
            }),
        }
    }
}
