//! Why a run ended as it did, in words that controllers and people match.

use serde::Serialize;
use strum::{EnumIter, IntoStaticStr};

/// Exit code when the runner itself could not do its part, or could not accept what the agent reported.
///
/// 125 to 127 are what `env`, `nohup` and container runtimes use for the same three cases.
pub(crate) const EXIT_RUNNER: u8 = 125;
/// Exit code when the program is there but cannot be executed.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit code when there is no such program.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;

/// The reason in the outcome. The words are public: they are never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, EnumIter)]
pub enum Reason {
    /// The agent exited with 0, and what it reported was accepted.
    Completed,
    /// The agent exited with another code.
    AgentFailed,
    /// The agent died of a signal that the runner did not send, such as the kernel's when memory runs out.
    AgentKilled,
    /// The runner was told to stop (a cancel, a drained node) and the agent ended because of it.
    Stopped,
    /// The agent ended because of the SIGTERM at its soft deadline.
    SoftDeadlineExceeded,
    /// The agent had to be killed at its hard deadline.
    HardDeadlineExceeded,
    /// The agent exited with 0, but the outcome file it wrote cannot be used.
    OutcomeInvalid,
    /// The agent exited with 0, but its outputs do not fit into the termination message.
    OutputsTooLarge,
    /// `agent-runner.json` or `run.json` cannot be read.
    SpecMissing,
    /// `agent-runner.json` or `run.json` does not say what it must.
    SpecInvalid,
    /// The status file or the log cannot be written.
    WorkspaceUnwritable,
    /// An input file cannot be written.
    InputFileFailed,
    /// The run works on a repository, and the image has no git.
    GitMissing,
    /// Git is there, but the credentials given for it cannot work.
    GitCredentialsUnusable,
    /// The repository of the run could not be cloned: the server did not answer, or did not let the run in.
    CloneFailed,
    /// The repository of the run has no branch to start from.
    BranchMissing,
    /// The repository of the run could not be checked out.
    CheckoutFailed,
    /// The agent exited with 0, but the server refused its commits.
    PushRejected,
    /// The agent exited with 0, but its commits could not be pushed.
    PushFailed,
    /// The provider asks for a built-in that does not exist.
    UnknownProvider,
    /// There is no such program in the image.
    BinaryNotFound,
    /// The program is there, but it is no executable file.
    BinaryNotExecutable,
    /// The kernel refused to start the program.
    StartFailed,
    /// The runner itself failed.
    RunnerFailed,
}

impl Reason {
    /// The public word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The exit code of the runner for this reason, or none where it is that of the agent.
    pub(crate) fn own_exit_code(self) -> Option<u8> {
        match self {
            Self::Completed
            | Self::AgentFailed
            | Self::AgentKilled
            | Self::Stopped
            | Self::SoftDeadlineExceeded
            | Self::HardDeadlineExceeded => None,
            Self::BinaryNotFound => Some(EXIT_NOT_FOUND),
            Self::BinaryNotExecutable | Self::StartFailed => Some(EXIT_NOT_EXECUTABLE),
            Self::OutcomeInvalid
            | Self::OutputsTooLarge
            | Self::SpecMissing
            | Self::SpecInvalid
            | Self::WorkspaceUnwritable
            | Self::InputFileFailed
            | Self::GitMissing
            | Self::GitCredentialsUnusable
            | Self::CloneFailed
            | Self::BranchMissing
            | Self::CheckoutFailed
            | Self::PushRejected
            | Self::PushFailed
            | Self::UnknownProvider
            | Self::RunnerFailed => Some(EXIT_RUNNER),
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn every_reason_is_explained_in_the_documentation() {
        let page = include_str!("../../../docs/agent-runner.md");

        for reason in Reason::iter() {
            let row = format!("| `{}` |", reason.as_str());
            assert!(page.contains(&row), "docs/agent-runner.md has no row {row}");
        }
    }

    #[test]
    fn the_word_in_json_is_the_public_word() {
        for reason in Reason::iter() {
            assert_eq!(
                serde_json::to_value(reason).unwrap(),
                serde_json::Value::from(reason.as_str())
            );
        }
    }
}
