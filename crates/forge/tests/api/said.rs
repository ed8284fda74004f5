//! What the forges say, with all the fields that their published descriptions require.

use jangar_forge::Kind;
use serde_json::{Map, Value, json};

pub(crate) const COMMIT: &str = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d";
const URL: &str = "https://forge.example/x";
const TIME: &str = "2026-03-01T10:00:00Z";

fn filled(fields: &[&str], value: &Value) -> Map<String, Value> {
    fields
        .iter()
        .map(|field| ((*field).to_owned(), value.clone()))
        .collect()
}

fn with(mut object: Value, more: Map<String, Value>) -> Value {
    object.as_object_mut().unwrap().extend(more);
    object
}

/// A commit as GitHub tells of it.
fn github_commit(sha: &str) -> Value {
    let inner = json!({
        "author": null, "committer": null, "comment_count": 0, "message": "Mend", "tree": {"sha": sha, "url": URL}, "url": URL,
    });
    let commit = json!({"sha": sha, "node_id": "n", "commit": inner, "author": null, "committer": null, "parents": []});
    with(commit, filled(&["url", "html_url", "comments_url"], &json!(URL)))
}

/// The comparison of two branches at GitHub.
pub(crate) fn github_comparison(ahead: u32) -> Value {
    let commits: Vec<Value> = (0..ahead).map(|_| github_commit(COMMIT)).collect();
    let comparison = json!({
        "status": "ahead", "ahead_by": ahead, "behind_by": 0, "total_commits": ahead, "commits": commits,
        "base_commit": github_commit("c0ffee1"), "merge_base_commit": github_commit("c0ffee1"),
    });
    let urls = ["url", "html_url", "permalink_url", "diff_url", "patch_url"];
    with(comparison, filled(&urls, &json!(URL)))
}

/// How a pull request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    Open,
    Closed,
    Merged,
}

/// Pull request 7 from `fix/adder` to `main`, whose last commit is [`COMMIT`].
pub(crate) fn pull_request(kind: Kind, stands: Stands) -> Value {
    match kind {
        Kind::Github => github_pull_request(stands),
        Kind::Gitlab => {
            let state = match stands {
                Stands::Open => "opened",
                Stands::Closed => "closed",
                Stands::Merged => "merged",
            };
            json!({"id": 900, "iid": 7, "web_url": "https://forge.example/merge_requests/7", "state": state, "draft": true,
                   "source_branch": "fix/adder", "target_branch": "main", "sha": COMMIT,
                   "merged_at": (stands == Stands::Merged).then_some(TIME)})
        }
        Kind::Bitbucket => {
            let state = match stands {
                Stands::Open => "OPEN",
                Stands::Closed => "DECLINED",
                Stands::Merged => "MERGED",
            };
            // Bitbucket shortens the names of commits here.
            json!({"type": "pullrequest", "id": 7, "state": state,
                   "source": {"branch": {"name": "fix/adder"}, "commit": {"hash": &COMMIT[..12]}},
                   "destination": {"branch": {"name": "main"}},
                   "links": {"html": {"href": "https://forge.example/pull-requests/7"}}})
        }
        Kind::Gitea => {
            let merged = stands == Stands::Merged;
            let state = if stands == Stands::Open { "open" } else { "closed" };
            // What was merged has no branch any more, unless somebody wants to keep it.
            let head = if merged { "refs/pull/7/head" } else { "fix/adder" };
            json!({"id": 900, "number": 7, "html_url": "https://forge.example/pulls/7", "state": state, "merged": merged,
                   "merged_at": merged.then_some(TIME),
                   "head": {"ref": head, "sha": COMMIT}, "base": {"ref": "main", "sha": "c0ffee1"}})
        }
    }
}

fn github_pull_request(stands: Stands) -> Value {
    let end =
        |name: &str, sha: &str| json!({"label": name, "ref": name, "repo": {}, "sha": sha, "user": null});
    let link = json!({"href": URL});
    let links = [
        "comments",
        "commits",
        "statuses",
        "html",
        "issue",
        "review_comments",
        "review_comment",
        "self",
    ];
    let merged = stands == Stands::Merged;
    let pull = json!({
        "number": 7, "html_url": "https://forge.example/pull/7", "draft": true, "locked": false, "id": 900, "node_id": "n",
        "state": if stands == Stands::Open { "open" } else { "closed" },
        "head": end("fix/adder", COMMIT), "base": end("main", "c0ffee1"), "title": "Mend the adder", "body": "It adds now.",
        "labels": [], "_links": filled(&links, &link), "author_association": "CONTRIBUTOR", "user": {},
        "merged_at": merged.then_some(TIME), "merged": merged, "mergeable_state": "clean", "maintainer_can_modify": true,
    });
    let urls = [
        "url",
        "diff_url",
        "patch_url",
        "issue_url",
        "commits_url",
        "comments_url",
        "statuses_url",
        "review_comment_url",
        "review_comments_url",
    ];
    let pull = with(pull, filled(&urls, &json!(URL)));
    let pull = with(pull, filled(&["created_at", "updated_at"], &json!(TIME)));
    let absent = [
        "assignee",
        "milestone",
        "auto_merge",
        "closed_at",
        "merge_commit_sha",
        "mergeable",
        "merged_by",
    ];
    let pull = with(pull, filled(&absent, &Value::Null));
    let counts = [
        "additions",
        "changed_files",
        "comments",
        "commits",
        "deletions",
        "review_comments",
    ];
    with(pull, filled(&counts, &json!(1)))
}

/// The branch `fix/adder`, whose last commit is [`COMMIT`].
pub(crate) fn branch(kind: Kind) -> Value {
    match kind {
        Kind::Github => json!({
            "name": "fix/adder", "commit": github_commit(COMMIT), "_links": {"html": URL, "self": URL}, "protection": {},
            "protected": false, "protection_url": URL,
        }),
        Kind::Gitlab => {
            json!({"name": "fix/adder", "merged": false, "commit": {"id": COMMIT, "short_id": "7fd1a60b"}})
        }
        Kind::Bitbucket => {
            json!({"type": "branch", "name": "fix/adder", "target": {"type": "commit", "hash": COMMIT}})
        }
        Kind::Gitea => json!({"name": "fix/adder", "commit": {"id": COMMIT}, "protected": false}),
    }
}

/// A page of so many commits at Bitbucket, with another one after it or not.
pub(crate) fn bitbucket_page(commits: usize, more: bool) -> Value {
    let commit = json!({"type": "commit", "hash": COMMIT});
    let mut page = json!({"pagelen": 100, "values": vec![commit; commits]});
    if more {
        page["next"] = json!("https://forge.example/next");
    }
    page
}
