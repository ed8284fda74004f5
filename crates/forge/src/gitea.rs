//! Gitea's words, which Forgejo shares.

use http::Method;
use serde_json::{Value, json};

use crate::{
    Branch, Merged, NewPullRequest, PullRequest, absent_is_none,
    error::ForgeError,
    http::Http,
    read::{Answer, part, text_or_none},
};

pub(crate) async fn branch(http: &Http, repository: &str, name: &str) -> Result<Branch, ForgeError> {
    let path = format!("/repos/{repository}/branches/{}", part(name));
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    Ok(Branch {
        commit: answer.text("/commit/id")?,
    })
}

pub(crate) async fn commits_ahead(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<u32, ForgeError> {
    let path = format!("/repos/{repository}/compare/{}...{}", part(base), part(head));
    Answer::new("GET", &path, http.get(&path).await?).count("/total_commits")
}

/// One request names both branches, and also finds pull requests that are closed.
pub(crate) async fn find(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Option<PullRequest>, ForgeError> {
    let path = one(repository, base, head);
    let Some(found) = absent_is_none(http.get(&path).await)? else {
        return Ok(None);
    };
    let is_open = found.get("state").and_then(Value::as_str) == Some("open");
    is_open.then(|| pull_request(&path, &found)).transpose()
}

pub(crate) async fn merged(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Vec<Merged>, ForgeError> {
    let path = one(repository, base, head);
    let Some(found) = absent_is_none(http.get(&path).await)? else {
        return Ok(Vec::new());
    };
    if found["merged"] != true {
        return Ok(Vec::new());
    }
    // As long as there is the branch, Gitea tells its last commit here, also if that came after the merge; the name says when it is gone.
    let is_gone = text_or_none(&found, "/head/ref").starts_with("refs/pull/");
    if !is_gone && commits_ahead(http, repository, base, head).await? > 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Merged {
        pull_request: pull_request(&path, &found)?,
        commit: text_or_none(&found, "/head/sha"),
    }])
}

fn one(repository: &str, base: &str, head: &str) -> String {
    format!("/repos/{repository}/pulls/{}/{}", part(base), part(head))
}

pub(crate) async fn open(
    http: &Http,
    repository: &str,
    new: &NewPullRequest<'_>,
) -> Result<PullRequest, ForgeError> {
    let path = format!("/repos/{repository}/pulls");
    // Gitea knows a draft by its title.
    let title = if new.draft {
        format!("WIP: {}", new.title)
    } else {
        new.title.to_owned()
    };
    let body = json!({"title": title, "head": new.head, "base": new.base, "body": new.body});
    let opened = http.send(&Method::POST, &path, Some(&body)).await?;
    pull_request(&path, &opened)
}

fn pull_request(path: &str, value: &Value) -> Result<PullRequest, ForgeError> {
    let answer = Answer::new("GET", path, value.clone());
    Ok(PullRequest {
        number: answer.number("/number")?,
        url: answer.text("/html_url")?,
    })
}
