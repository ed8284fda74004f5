//! Answers git's questions for a user name and a password from the environment.
//!
//! The runner names itself in `GIT_ASKPASS`, so that a token is written to no file and stands in no command line.

use std::fs;

use crate::environment::Environment;

/// The variables that may hold the token, the general one first.
pub(crate) const TOKEN_VARIABLES: [&str; 3] = ["VCS_TOKEN", "GITHUB_TOKEN", "GH_TOKEN"];

/// The variable that names a file with the token, where it is renewed while the run works.
const TOKEN_PATH_VARIABLE: &str = "VCS_TOKEN_PATH";

/// What GitHub takes as the user of a token, and others ignore.
const DEFAULT_USERNAME: &str = "x-access-token";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskpassError {
    #[error("git asked for credentials of {asked}, but VCS_CLONE_BASE_URL is {allowed}: none were given")]
    OtherServer { asked: String, allowed: String },
    #[error("git asked for a password, but none of VCS_TOKEN, GITHUB_TOKEN and GH_TOKEN is set")]
    NoToken,
    #[error("this is no question that git asks")]
    NotAQuestion,
}

#[derive(Clone, Copy)]
enum Wanted {
    Username,
    Password,
}

pub(crate) fn is_prompt(prompt: &str) -> bool {
    split(prompt).is_some()
}

/// The answer to `prompt`, which git words as `Username for 'https://host': ` and `Password for 'https://user@host': `.
pub(crate) fn answer(prompt: &str, environment: &Environment) -> Result<String, AskpassError> {
    let (wanted, url) = split(prompt).ok_or(AskpassError::NotAQuestion)?;
    // A submodule or a redirect may lead elsewhere; the token is for one server.
    if let Some(allowed) = environment.get("VCS_CLONE_BASE_URL")
        && server(allowed) != server(url)
    {
        return Err(AskpassError::OtherServer {
            asked: server(url).to_owned_url(),
            allowed: server(allowed).to_owned_url(),
        });
    }
    match wanted {
        Wanted::Username => Ok(["GIT_ASKPASS_USERNAME", "VCS_USERNAME"]
            .into_iter()
            .find_map(|name| environment.get(name))
            .unwrap_or(DEFAULT_USERNAME)
            .to_owned()),
        Wanted::Password => token(environment).ok_or(AskpassError::NoToken),
    }
}

/// The token: what the file holds that is brought up to date while the run works, else what the variables held at its start.
pub(crate) fn token(environment: &Environment) -> Option<String> {
    let renewed = environment
        .get(TOKEN_PATH_VARIABLE)
        .and_then(|path| fs::read_to_string(path).ok());
    let renewed = renewed
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty());
    let given = || TOKEN_VARIABLES.into_iter().find_map(|name| environment.get(name));
    renewed.or_else(|| given().map(str::to_owned))
}

fn split(prompt: &str) -> Option<(Wanted, &str)> {
    let (wanted, rest) = if let Some(rest) = prompt.strip_prefix("Username for '") {
        (Wanted::Username, rest)
    } else {
        (Wanted::Password, prompt.strip_prefix("Password for '")?)
    };
    Some((wanted, rest.trim_end().strip_suffix("':")?))
}

/// Scheme, host and port of a URL, which together say to whom a token is sent.
#[derive(PartialEq, Eq)]
struct Server {
    scheme: String,
    host: String,
}

impl Server {
    fn to_owned_url(&self) -> String {
        format!("{}://{}", self.scheme, self.host)
    }
}

fn server(url: &str) -> Server {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    // Only the last @ ends the user part: what stands before it may hold others.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Server {
        scheme: scheme.to_ascii_lowercase(),
        host: host.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_answered() {
        let environment = Environment::from([
            ("VCS_CLONE_BASE_URL", "https://git.example.com/team"),
            ("VCS_USERNAME", "robot"),
            ("VCS_TOKEN", "token-value"),
        ]);

        for (prompt, expected) in [
            ("Username for 'https://git.example.com': ", "robot"),
            ("Password for 'https://robot@git.example.com': ", "token-value"),
            (
                "Password for 'https://a@b@Git.Example.com/team/repo.git': ",
                "token-value",
            ),
        ] {
            assert_eq!(answer(prompt, &environment), Ok(expected.to_owned()), "{prompt}");
        }
    }

    #[test]
    fn a_token_that_was_renewed_goes_before_the_one_of_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let environment =
            Environment::from([("VCS_TOKEN", "first"), ("VCS_TOKEN_PATH", path.to_str().unwrap())]);

        assert_eq!(token(&environment).as_deref(), Some("first"), "there is no file");
        fs::write(&path, "second\n").unwrap();
        assert_eq!(token(&environment).as_deref(), Some("second"));
        fs::write(&path, "").unwrap();
        assert_eq!(token(&environment).as_deref(), Some("first"));
    }

    #[test]
    fn another_server_gets_no_token() {
        let environment = Environment::from([
            ("VCS_CLONE_BASE_URL", "https://git.example.com"),
            ("VCS_TOKEN", "token-value"),
        ]);

        for url in [
            "https://evil.example.com",
            "http://git.example.com",
            "https://git.example.com:8443",
            "https://git.example.com@evil.example.com",
        ] {
            let error = answer(&format!("Password for '{url}': "), &environment).unwrap_err();
            assert!(
                matches!(error, AskpassError::OtherServer { .. }),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn without_a_token_git_gets_no_password() {
        let error = answer("Password for 'https://host': ", &Environment::default());

        assert_eq!(error, Err(AskpassError::NoToken));
    }
}
