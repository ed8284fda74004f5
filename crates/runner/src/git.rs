//! Makes git ready for the agent: that it is there, and that it finds the run's credentials.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{
    askpass::token,
    environment::Environment,
    program::{Lookup, find},
    reason::Reason,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error(
        "the run works on the repository {repository}, but there is no git on the PATH; use an image that has git, or set \
         the run's vcsPolicy.mode to none"
    )]
    Missing { repository: String },
    #[error(
        "VCS_SSH_KEY_PATH is set, but there is no ssh on the PATH; use an image that has ssh, or a token"
    )]
    SshMissing,
    #[error("cannot read the key that VCS_SSH_KEY_PATH names, {}: {source}", path.display())]
    KeyUnreadable { path: PathBuf, source: io::Error },
    #[error(
        "ssh will refuse the key {}, because others may read it (mode {mode:o}); mount its Secret with defaultMode 0400",
        path.display()
    )]
    KeyExposed { path: PathBuf, mode: u32 },
}

impl GitError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } => Reason::GitMissing,
            Self::SshMissing | Self::KeyUnreadable { .. } | Self::KeyExposed { .. } => {
                Reason::GitCredentialsUnusable
            }
        }
    }
}

/// The variables that let git find its credentials, for the environment the agent will have. `runner` is this program.
pub(crate) fn prepare(
    environment: &Environment,
    runner: &Path,
) -> Result<Vec<(&'static str, String)>, GitError> {
    let Some(repository) = environment.get("VCS_REPOSITORY") else {
        return Ok(Vec::new());
    };
    if environment.get("VCS_MODE") == Some("none") {
        return Ok(Vec::new());
    }
    let Lookup::Found(_) = find("git", environment) else {
        return Err(GitError::Missing {
            repository: repository.to_owned(),
        });
    };
    // Nobody is there to answer a prompt: without this a missing credential would hang the run until its deadline.
    let mut variables = vec![("GIT_TERMINAL_PROMPT", "0".to_owned())];
    // What the image or the provider has set up on purpose is left as it is.
    if let Some(key) = environment.get("VCS_SSH_KEY_PATH")
        && environment.get("GIT_SSH_COMMAND").is_none()
    {
        let known_hosts = environment.get("VCS_SSH_KNOWN_HOSTS_PATH");
        variables.push(("GIT_SSH_COMMAND", ssh_command(key, known_hosts, environment)?));
    }
    if token(environment).is_some() && environment.get("GIT_ASKPASS").is_none() {
        variables.push(("GIT_ASKPASS", runner.to_string_lossy().into_owned()));
    }
    Ok(variables)
}

fn ssh_command(key: &str, known_hosts: Option<&str>, environment: &Environment) -> Result<String, GitError> {
    let Lookup::Found(_) = find("ssh", environment) else {
        return Err(GitError::SshMissing);
    };
    let path = PathBuf::from(key);
    let metadata = fs::File::open(&path)
        .and_then(|file| file.metadata())
        .and_then(|metadata| {
            if metadata.is_file() {
                Ok(metadata)
            } else {
                Err(io::Error::other("it is no file"))
            }
        })
        .map_err(|source| GitError::KeyUnreadable {
            path: path.clone(),
            source,
        })?;
    let mode = metadata.permissions().mode() & 0o777;
    // This is ssh's own rule: only the owner's key must be closed to others.
    if metadata.uid() == rustix::process::geteuid().as_raw() && mode & 0o077 != 0 {
        return Err(GitError::KeyExposed { path, mode });
    }
    let hosts = match known_hosts {
        Some(known_hosts) => format!(
            "-o {} -o StrictHostKeyChecking=yes",
            quoted(&format!("UserKnownHostsFile={known_hosts}"))
        ),
        // Without a list of hosts the first key is believed, and nothing is kept beyond this run.
        None => "-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=accept-new".to_owned(),
    };
    Ok(format!(
        "ssh -i {} -o IdentitiesOnly=yes -o BatchMode=yes {hosts}",
        quoted(key)
    ))
}

/// Git hands the command to a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with executable files of these names, and a key only the owner may read.
    fn image(programs: &[&str]) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        for name in programs {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let key = directory.path().join("key");
        fs::write(&key, "private").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        let path = directory.path().to_str().unwrap().to_owned();
        (directory, path)
    }

    fn prepared(variables: &[(&str, &str)], path: &str) -> Result<Vec<(&'static str, String)>, GitError> {
        let mut environment = Environment::from([("PATH", path)]);
        for (name, value) in variables {
            environment.set(name, value);
        }
        prepare(&environment, Path::new("/opt/agent-runner"))
    }

    #[test]
    fn a_run_without_repository_needs_no_git() {
        let (_image, path) = image(&[]);

        assert_eq!(prepared(&[], &path).unwrap(), []);
        assert_eq!(
            prepared(&[("VCS_REPOSITORY", "a/b"), ("VCS_MODE", "none")], &path).unwrap(),
            []
        );
    }

    #[test]
    fn a_run_with_repository_needs_git() {
        let (_image, path) = image(&[]);

        let error = prepared(&[("VCS_REPOSITORY", "a/b")], &path).unwrap_err();

        assert_eq!(error.reason(), Reason::GitMissing);
    }

    #[test]
    fn a_token_makes_the_runner_answer_git_unless_somebody_else_does() {
        let (_image, path) = image(&["git"]);
        let token = [("VCS_REPOSITORY", "a/b"), ("VCS_TOKEN", "t")];

        let variables = prepared(&token, &path).unwrap();
        assert!(variables.contains(&("GIT_ASKPASS", "/opt/agent-runner".to_owned())));

        let own = [token[0], token[1], ("GIT_ASKPASS", "/bin/own")];
        assert!(
            prepared(&own, &path)
                .unwrap()
                .iter()
                .all(|(name, _)| *name != "GIT_ASKPASS")
        );
    }

    #[test]
    fn known_hosts_make_ssh_strict() {
        let (_image, path) = image(&["git", "ssh"]);
        let key = format!("{path}/key");
        let ssh = [("VCS_REPOSITORY", "a/b"), ("VCS_SSH_KEY_PATH", key.as_str())];

        let loose = prepared(&ssh, &path).unwrap();
        assert!(
            loose[1].1.contains("StrictHostKeyChecking=accept-new"),
            "{loose:?}"
        );

        let strict = prepared(&[ssh[0], ssh[1], ("VCS_SSH_KNOWN_HOSTS_PATH", "/k'h")], &path).unwrap();
        assert!(
            strict[1]
                .1
                .contains(r"-o 'UserKnownHostsFile=/k'\''h' -o StrictHostKeyChecking=yes"),
            "{strict:?}"
        );
    }

    #[test]
    fn a_key_that_ssh_would_refuse_is_reported_before_the_agent_starts() {
        let (_image, path) = image(&["git", "ssh"]);
        let key = format!("{path}/key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();

        for key in [key.as_str(), "/nonexistent/key", path.as_str()] {
            let error = prepared(&[("VCS_REPOSITORY", "a/b"), ("VCS_SSH_KEY_PATH", key)], &path).unwrap_err();
            assert_eq!(error.reason(), Reason::GitCredentialsUnusable, "{error}");
        }
    }
}
