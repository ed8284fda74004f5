//! Bitbucket Cloud's words. Lists come in pages, each with the address of the next.

use http::Method;
use serde_json::{Value, json};

use crate::{
    Branch, Merged, NewPullRequest, PullRequest,
    error::ForgeError,
    http::Http,
    read::{Answer, part, query, text_or_none},
};

/// How many pages of commits are counted, of a hundred each. What is ahead by more is ahead by many.
const PAGES_MAX: u32 = 10;
/// How many commits a page has at most.
const PAGE: u32 = 100;

pub(crate) async fn branch(http: &Http, repository: &str, name: &str) -> Result<Branch, ForgeError> {
    let path = format!("/repositories/{repository}/refs/branches/{}", part(name));
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    Ok(Branch {
        commit: answer.text("/target/hash")?,
    })
}

pub(crate) async fn commits_ahead(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<u32, ForgeError> {
    let mut ahead = 0;
    for page in 1..=PAGES_MAX {
        let path = format!(
            "/repositories/{repository}/commits/{}?exclude={}&pagelen={PAGE}&page={page}",
            part(head),
            query(base)
        );
        let answer = Answer::new("GET", &path, http.get(&path).await?);
        ahead += u32::try_from(answer.list("/values")?.len()).unwrap_or(PAGE);
        if !answer.has("/next") {
            break;
        }
    }
    Ok(ahead)
}

pub(crate) async fn find(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Option<PullRequest>, ForgeError> {
    let path = list(repository, "OPEN", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    answer
        .list("/values")?
        .first()
        .map(|found| pull_request(&path, found))
        .transpose()
}

pub(crate) async fn merged(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Vec<Merged>, ForgeError> {
    let path = list(repository, "MERGED", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    let merged = answer.list("/values")?.iter();
    merged
        .map(|found| {
            Ok(Merged {
                pull_request: pull_request(&path, found)?,
                commit: text_or_none(found, "/source/commit/hash"),
            })
        })
        .collect()
}

fn list(repository: &str, state: &str, base: &str, head: &str) -> String {
    // Names of branches hold no quotes: git does not take them, and Jangar refuses them before.
    let filter =
        format!("source.branch.name=\"{head}\" AND destination.branch.name=\"{base}\" AND state=\"{state}\"");
    format!("/repositories/{repository}/pullrequests?q={}", query(&filter))
}

pub(crate) async fn open(
    http: &Http,
    repository: &str,
    new: &NewPullRequest<'_>,
) -> Result<PullRequest, ForgeError> {
    let path = format!("/repositories/{repository}/pullrequests");
    let body = json!({
        "title": new.title, "description": new.body, "draft": new.draft,
        "source": {"branch": {"name": new.head}},
        "destination": {"branch": {"name": new.base}},
    });
    let opened = http.send(&Method::POST, &path, Some(&body)).await?;
    pull_request(&path, &opened)
}

fn pull_request(path: &str, value: &Value) -> Result<PullRequest, ForgeError> {
    let answer = Answer::new("GET", path, value.clone());
    Ok(PullRequest {
        number: answer.number("/id")?,
        url: answer.text("/links/html/href")?,
    })
}
