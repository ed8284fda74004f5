//! GitHub's words: branches, comparisons and pull requests of its REST API.

use http::Method;
use serde_json::{Value, json};

use crate::{
    Branch, NewPullRequest, PullRequest,
    error::ForgeError,
    http::Http,
    read::{Answer, part, query},
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
    let owner = repository.split('/').next().unwrap_or_default();
    let path = format!(
        "/repos/{repository}/pulls?state=open&head={}&base={}",
        query(&format!("{owner}:{head}")),
        query(base)
    );
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    answer
        .list("")?
        .first()
        .map(|found| pull_request(&path, found))
        .transpose()
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
