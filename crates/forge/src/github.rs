//! GitHub's words: branches, comparisons and pull requests of its REST API.

use http::Method;
use serde_json::{Value, json};

use crate::{
    Branch, Merged, NewPullRequest, PullRequest,
    error::ForgeError,
    http::Http,
    read::{Answer, part, query, text_or_none},
};

pub(crate) async fn branch(http: &Http, repository: &str, name: &str) -> Result<Branch, ForgeError> {
    let path = format!("/repos/{repository}/branches/{}", part(name));
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    Ok(Branch {
        commit: answer.text("/commit/sha")?,
    })
}

pub(crate) async fn commits_ahead(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<u32, ForgeError> {
    let path = format!("/repos/{repository}/compare/{}...{}", part(base), part(head));
    Answer::new("GET", &path, http.get(&path).await?).count("/ahead_by")
}

pub(crate) async fn find(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Option<PullRequest>, ForgeError> {
    let path = list(repository, "open", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    answer
        .list("")?
        .first()
        .map(|found| pull_request(&path, found))
        .transpose()
}

/// GitHub has no state for those that were merged: they are closed, and say when they were merged.
pub(crate) async fn merged(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Vec<Merged>, ForgeError> {
    let path = list(repository, "closed", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    let merged = answer
        .list("")?
        .iter()
        .filter(|found| found["merged_at"].is_string());
    merged
        .map(|found| {
            Ok(Merged {
                pull_request: pull_request(&path, found)?,
                commit: text_or_none(found, "/head/sha"),
            })
        })
        .collect()
}

fn list(repository: &str, state: &str, base: &str, head: &str) -> String {
    let owner = repository.split('/').next().unwrap_or_default();
    format!(
        "/repos/{repository}/pulls?state={state}&head={}&base={}",
        query(&format!("{owner}:{head}")),
        query(base)
    )
}

pub(crate) async fn open(
    http: &Http,
    repository: &str,
    new: &NewPullRequest<'_>,
) -> Result<PullRequest, ForgeError> {
    let path = format!("/repos/{repository}/pulls");
    let body = json!({
        "title": new.title, "head": new.head, "base": new.base, "body": new.body, "draft": new.draft,
    });
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
