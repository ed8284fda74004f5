//! GitLab's words. A repository is a project, by its path as one escaped part; a pull request is a merge request.

use http::Method;
use serde_json::{Value, json};

use crate::{
    Branch, Merged, NewPullRequest, PullRequest,
    error::ForgeError,
    http::Http,
    read::{Answer, part, query, text_or_none},
};

fn project(repository: &str) -> String {
    format!("/projects/{}", part(repository))
}

pub(crate) async fn branch(http: &Http, repository: &str, name: &str) -> Result<Branch, ForgeError> {
    let path = format!("{}/repository/branches/{}", project(repository), part(name));
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
    let path = format!(
        "{}/repository/compare?from={}&to={}",
        project(repository),
        query(base),
        query(head)
    );
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    Ok(u32::try_from(answer.list("/commits")?.len()).unwrap_or(u32::MAX))
}

pub(crate) async fn find(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Option<PullRequest>, ForgeError> {
    let path = list(repository, "opened", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    answer
        .list("")?
        .first()
        .map(|found| merge_request(&path, found))
        .transpose()
}

pub(crate) async fn merged(
    http: &Http,
    repository: &str,
    base: &str,
    head: &str,
) -> Result<Vec<Merged>, ForgeError> {
    let path = list(repository, "merged", base, head);
    let answer = Answer::new("GET", &path, http.get(&path).await?);
    let merged = answer.list("")?.iter();
    merged
        .map(|found| {
            Ok(Merged {
                pull_request: merge_request(&path, found)?,
                commit: text_or_none(found, "/sha"),
            })
        })
        .collect()
}

fn list(repository: &str, state: &str, base: &str, head: &str) -> String {
    format!(
        "{}/merge_requests?state={state}&source_branch={}&target_branch={}",
        project(repository),
        query(head),
        query(base)
    )
}

pub(crate) async fn open(
    http: &Http,
    repository: &str,
    new: &NewPullRequest<'_>,
) -> Result<PullRequest, ForgeError> {
    let path = format!("{}/merge_requests", project(repository));
    // GitLab knows a draft by its title.
    let title = if new.draft {
        format!("Draft: {}", new.title)
    } else {
        new.title.to_owned()
    };
    let body = json!({
        "source_branch": new.head, "target_branch": new.base, "title": title, "description": new.body,
    });
    let opened = http.send(&Method::POST, &path, Some(&body)).await?;
    merge_request(&path, &opened)
}

fn merge_request(path: &str, value: &Value) -> Result<PullRequest, ForgeError> {
    let answer = Answer::new("GET", path, value.clone());
    Ok(PullRequest {
        number: answer.number("/iid")?,
        url: answer.text("/web_url")?,
    })
}
