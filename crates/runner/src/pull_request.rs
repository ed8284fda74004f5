//! The pull request for what the agent pushed, with the title and the text that the provider's templates give.

use std::time::Duration;

use jangar_forge::{Forge, ForgeError, Kind, NewPullRequest, Patience, PullRequest, Token};
use serde::Deserialize;
use serde_json::Value;

use crate::{askpass::token, environment::Environment, mask::Masker, repository::Checkout, template::render};

/// How long it may take, with all tries. What was pushed is safe already.
const OPEN_MAX: Duration = Duration::from_mins(2);
/// The most characters of a title: forges take 255.
const TITLE_MAX: usize = 240;
/// The most characters of a text: GitHub takes 65,536.
const BODY_MAX: usize = 60_000;
/// The longest that a forge may ask us to wait.
const RATE_LIMIT_MAX: Duration = Duration::from_mins(1);
/// How long to wait before each further try, unless the operator says otherwise.
const PAUSE: Duration = Duration::from_secs(2);
/// How many further tries there are.
const RETRIES: usize = 2;

const DEFAULT_TITLE: &str = "{{ issueTitle }}";
const DEFAULT_BODY: &str = "Made by the run {{ agentRun.namespace }}/{{ agentRun.name }}.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum PullRequestError {
    #[error("VCS_API_BASE_URL is not set")]
    NoAddress,
    #[error("there is no token for the forge's API: set VCS_TOKEN")]
    NoToken,
    #[error("{forge} has no pull requests")]
    NoPullRequests { forge: String },
    #[error("the repository had no branch to open it against")]
    NoBase,
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error("no answer within {} s", OPEN_MAX.as_secs())]
    TimedOut,
    #[error("the runner could not start what it needs: {0}")]
    Runtime(std::io::Error),
}

/// How often pull requests may be opened, as the operator has it. One runner opens one; of this it keeps the pause.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RateLimits {
    #[serde(default)]
    backoff_seconds: Option<u32>,
}

/// Whether a pull request is to be opened for what was pushed.
pub(crate) fn is_wanted(environment: &Environment) -> bool {
    environment.get("VCS_PULL_REQUESTS_ENABLED") == Some("true")
}

/// Opens the pull request, or finds the one that is open already.
pub(crate) fn open(
    checkout: &Checkout,
    environment: &Environment,
    run: &Value,
    masker: &Masker,
) -> Result<PullRequest, PullRequestError> {
    let name = environment.get("VCS_PROVIDER").unwrap_or_default();
    let kind = Kind::named(name).ok_or_else(|| PullRequestError::NoPullRequests {
        forge: name.to_owned(),
    })?;
    let api = environment
        .get("VCS_API_BASE_URL")
        .ok_or(PullRequestError::NoAddress)?;
    let token = token(environment).ok_or(PullRequestError::NoToken)?;
    let (Some(base), Some(head)) = (&checkout.base, &checkout.repository.head) else {
        return Err(PullRequestError::NoBase);
    };
    let forge = Forge::new(
        kind,
        api,
        &checkout.repository.name,
        Token::new(token),
        patience(environment),
    )?;
    let title = title(environment, run, masker, head);
    let body = text(environment, "VCS_PR_BODY_TEMPLATE", DEFAULT_BODY, run, masker);
    let new = NewPullRequest {
        base,
        head,
        title: &title,
        body: &cut(&body, BODY_MAX),
        draft: environment.get("VCS_PR_DRAFT") == Some("true"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(PullRequestError::Runtime)?;
    let opened =
        runtime.block_on(async { tokio::time::timeout(OPEN_MAX, forge.open_pull_request(&new)).await });
    match opened {
        Ok(opened) => Ok(opened?),
        Err(_) => Err(PullRequestError::TimedOut),
    }
}

fn patience(environment: &Environment) -> Patience {
    let limits = environment.get("VCS_PR_RATE_LIMITS");
    let limits: RateLimits = limits
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let pause = limits
        .backoff_seconds
        .map_or(PAUSE, |seconds| Duration::from_secs(seconds.into()));
    Patience {
        pauses: vec![pause.min(RATE_LIMIT_MAX); RETRIES],
        rate_limit_max: RATE_LIMIT_MAX,
    }
}

/// One line, and never an empty one: no forge takes that.
fn title(environment: &Environment, run: &Value, masker: &Masker, head: &str) -> String {
    let rendered = text(environment, "VCS_PR_TITLE_TEMPLATE", DEFAULT_TITLE, run, masker);
    let line = rendered.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return format!("Work on {head}");
    }
    cut(&line, TITLE_MAX)
}

/// A template with what the run knows: by itself, and by the names under which it came.
fn text(environment: &Environment, variable: &str, default: &str, run: &Value, masker: &Masker) -> String {
    let template = environment.get(variable).unwrap_or(default);
    let field = |pointer: &str| run.pointer(pointer).cloned().unwrap_or(Value::Null);
    let (known, parameters) = (field("/metadata/map"), field("/parameters"));
    masker.text(&render(template, &[run, &known, &parameters]).text)
}

fn cut(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_title_is_one_line_of_what_the_run_knows_and_never_empty() {
        let run = json!({
            "issueTitle": "Mend\n the adder", "metadata": {"map": {"issueNumber": "7"}}, "parameters": {"stage": "build"},
        });
        let title = |template: Option<&str>, run: &Value| {
            let mut environment = Environment::default();
            if let Some(template) = template {
                environment.set("VCS_PR_TITLE_TEMPLATE", template);
            }
            super::title(&environment, run, &Masker::default(), "fix")
        };
        assert_eq!(title(None, &run), "Mend the adder");
        assert_eq!(
            title(Some("{{ stage }} {{ issueNumber }}: {{ issueTitle }}"), &run),
            "build 7: Mend the adder"
        );
        assert_eq!(title(Some("{{ absent }}"), &run), "Work on fix");
        assert_eq!(title(Some(&"x".repeat(500)), &run).len(), TITLE_MAX);
    }
}
