//! The five questions, in the words of each forge.

use jangar_forge::{Branch, Kind, MergedWork, NewPullRequest, PullRequest};
use serde_json::{Value, json};

use crate::{
    played::{Played, TOKEN, say},
    said::{self, COMMIT, Stands},
};

pub(crate) const NEW: NewPullRequest<'_> = NewPullRequest {
    base: "main",
    head: "fix/adder",
    title: "Mend the adder",
    body: "It adds now.",
    draft: true,
};

/// What one forge is asked, and what it answers.
pub(crate) struct Words {
    pub(crate) kind: Kind,
    authorization: &'static str,
    branch: (&'static str, Value),
    compare: (&'static str, Value),
    find: (&'static str, Value),
    /// What is asked for those that were merged.
    merged: &'static str,
    /// What is found where there is no pull request.
    pub(crate) none: (u16, Value),
    open: (&'static str, Value, Value),
    found: PullRequest,
}

fn pull_request(number: u64, url: &str) -> PullRequest {
    PullRequest {
        number,
        url: url.to_owned(),
    }
}

pub(crate) fn all() -> [Words; 4] {
    [github(), gitlab(), bitbucket(), gitea()]
}

fn github() -> Words {
    let found = said::pull_request(Kind::Github, Stands::Open);
    Words {
        kind: Kind::Github,
        authorization: "Bearer",
        branch: (
            "GET /api/repos/example/adder/branches/fix%2Fadder",
            said::branch(Kind::Github),
        ),
        compare: (
            "GET /api/repos/example/adder/compare/main...fix%2Fadder",
            said::github_comparison(2),
        ),
        find: (
            "GET /api/repos/example/adder/pulls?state=open&head=example%3Afix%2Fadder&base=main",
            json!([found]),
        ),
        merged: "GET /api/repos/example/adder/pulls?state=closed&head=example%3Afix%2Fadder&base=main",
        none: (200, json!([])),
        open: (
            "POST /api/repos/example/adder/pulls",
            json!({"title": "Mend the adder", "head": "fix/adder", "base": "main", "body": "It adds now.", "draft": true}),
            found,
        ),
        found: pull_request(7, "https://forge.example/pull/7"),
    }
}

fn gitlab() -> Words {
    let found = said::pull_request(Kind::Gitlab, Stands::Open);
    Words {
        kind: Kind::Gitlab,
        authorization: "Bearer",
        branch: (
            "GET /api/projects/example%2Fadder/repository/branches/fix%2Fadder",
            said::branch(Kind::Gitlab),
        ),
        compare: (
            "GET /api/projects/example%2Fadder/repository/compare?from=main&to=fix%2Fadder",
            json!({"commit": {"id": COMMIT}, "commits": [{"id": "1"}, {"id": "2"}], "diffs": []}),
        ),
        find: (
            "GET /api/projects/example%2Fadder/merge_requests?state=opened&source_branch=fix%2Fadder&target_branch=main",
            json!([found]),
        ),
        merged: "GET /api/projects/example%2Fadder/merge_requests?state=merged&source_branch=fix%2Fadder&target_branch=main",
        none: (200, json!([])),
        open: (
            "POST /api/projects/example%2Fadder/merge_requests",
            json!({"source_branch": "fix/adder", "target_branch": "main", "title": "Draft: Mend the adder",
                   "description": "It adds now."}),
            found,
        ),
        found: pull_request(7, "https://forge.example/merge_requests/7"),
    }
}

fn bitbucket() -> Words {
    let found = said::pull_request(Kind::Bitbucket, Stands::Open);
    Words {
        kind: Kind::Bitbucket,
        authorization: "Bearer",
        branch: (
            "GET /api/repositories/example/adder/refs/branches/fix%2Fadder",
            said::branch(Kind::Bitbucket),
        ),
        compare: (
            "GET /api/repositories/example/adder/commits/fix%2Fadder?exclude=main&pagelen=100&page=1",
            said::bitbucket_page(2, false),
        ),
        find: (
            "GET /api/repositories/example/adder/pullrequests?q=source.branch.name%3D%22fix%2Fadder%22%20AND%20\
             destination.branch.name%3D%22main%22%20AND%20state%3D%22OPEN%22",
            json!({"size": 1, "values": [found]}),
        ),
        merged: "GET /api/repositories/example/adder/pullrequests?q=source.branch.name%3D%22fix%2Fadder%22%20AND%20\
                 destination.branch.name%3D%22main%22%20AND%20state%3D%22MERGED%22",
        none: (200, json!({"size": 0, "values": []})),
        open: (
            "POST /api/repositories/example/adder/pullrequests",
            json!({"title": "Mend the adder", "description": "It adds now.", "draft": true,
                   "source": {"branch": {"name": "fix/adder"}}, "destination": {"branch": {"name": "main"}}}),
            found,
        ),
        found: pull_request(7, "https://forge.example/pull-requests/7"),
    }
}

fn gitea() -> Words {
    let found = said::pull_request(Kind::Gitea, Stands::Open);
    Words {
        kind: Kind::Gitea,
        authorization: "token",
        branch: (
            "GET /api/repos/example/adder/branches/fix%2Fadder",
            said::branch(Kind::Gitea),
        ),
        compare: (
            "GET /api/repos/example/adder/compare/main...fix%2Fadder",
            json!({"total_commits": 2, "commits": [{"sha": "1"}, {"sha": "2"}]}),
        ),
        find: (
            "GET /api/repos/example/adder/pulls/main/fix%2Fadder",
            found.clone(),
        ),
        merged: "GET /api/repos/example/adder/pulls/main/fix%2Fadder",
        none: (404, json!({"message": "The target couldn't be found."})),
        open: (
            "POST /api/repos/example/adder/pulls",
            json!({"title": "WIP: Mend the adder", "head": "fix/adder", "base": "main", "body": "It adds now."}),
            found,
        ),
        found: pull_request(7, "https://forge.example/pulls/7"),
    }
}

#[tokio::test]
async fn every_forge_is_asked_in_its_own_words() {
    for words in all() {
        let kind = words.kind;
        let played = Played::new(vec![
            say(200, &words.branch.1),
            say(404, &json!({"message": "Branch not found"})),
            say(200, &words.compare.1),
            say(200, &words.find.1),
            say(words.none.0, &words.none.1),
            say(words.none.0, &words.none.1),
            say(201, &words.open.2),
        ])
        .await;
        let forge = played.forge(kind);

        let branch = Branch {
            commit: COMMIT.to_owned(),
        };
        assert_eq!(forge.branch("fix/adder").await, Ok(Some(branch)), "{kind:?}");
        assert_eq!(forge.branch("fix/adder").await, Ok(None), "{kind:?}");
        assert_eq!(forge.commits_ahead("main", "fix/adder").await, Ok(2), "{kind:?}");
        assert_eq!(
            forge.find_pull_request("main", "fix/adder").await,
            Ok(Some(words.found.clone())),
            "{kind:?}"
        );
        assert_eq!(
            forge.find_pull_request("main", "fix/adder").await,
            Ok(None),
            "{kind:?}"
        );
        assert_eq!(forge.open_pull_request(&NEW).await, Ok(words.found), "{kind:?}");

        let (branch, compare, find) = (words.branch.0, words.compare.0, words.find.0);
        assert_eq!(
            played.lines(),
            [branch, branch, compare, find, find, find, words.open.0],
            "{kind:?}"
        );
        let asked = played.asked();
        assert_eq!(asked[6].body, words.open.1, "{kind:?}");
        for one in asked {
            assert_eq!(
                one.authorization,
                format!("{} {TOKEN}", words.authorization),
                "{kind:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_pull_request_that_is_open_already_is_taken_for_the_one_that_was_asked_for() {
    for words in all() {
        let played = Played::new(vec![say(200, &words.find.1)]).await;

        assert_eq!(
            played.forge(words.kind).open_pull_request(&NEW).await,
            Ok(words.found)
        );
        assert_eq!(played.lines(), [words.find.0]);
    }
}

#[tokio::test]
async fn somebody_who_was_quicker_has_opened_it_for_us() {
    let words = github();
    let exists = json!({"message": "Validation Failed",
                        "errors": [{"message": "A pull request already exists for example:fix/adder."}]});
    let played = Played::new(vec![
        say(words.none.0, &words.none.1),
        say(422, &exists),
        say(200, &words.find.1),
    ])
    .await;

    assert_eq!(
        played.forge(words.kind).open_pull_request(&NEW).await,
        Ok(words.found)
    );
}

#[tokio::test]
async fn commits_are_counted_over_pages_up_to_a_bound() {
    let page = said::bitbucket_page(100, true);
    let last = said::bitbucket_page(1, false);
    let played = Played::new(vec![say(200, &page), say(200, &last)]).await;
    assert_eq!(
        played.forge(Kind::Bitbucket).commits_ahead("main", "fix").await,
        Ok(101)
    );

    let endless = Played::new((0..20).map(|_| say(200, &page)).collect()).await;
    assert_eq!(
        endless.forge(Kind::Bitbucket).commits_ahead("main", "fix").await,
        Ok(1000)
    );
    assert_eq!(endless.asked().len(), 10);
}

#[tokio::test]
async fn a_pull_request_that_was_closed_is_none() {
    let closed = said::pull_request(Kind::Gitea, Stands::Closed);
    let played = Played::new(vec![say(200, &closed)]).await;
    assert_eq!(
        played.forge(Kind::Gitea).find_pull_request("main", "fix").await,
        Ok(None)
    );
}

#[tokio::test]
async fn work_that_was_merged_is_found_by_its_commit_or_by_the_number_of_its_pull_request() {
    for words in all() {
        let kind = words.kind;
        let listed = |stands: Stands| {
            let one = said::pull_request(kind, stands);
            match kind {
                Kind::Github | Kind::Gitlab => json!([one]),
                Kind::Bitbucket => json!({"size": 1, "values": [one]}),
                Kind::Gitea => one,
            }
        };
        let work = |commit, number| MergedWork { commit, number };
        let found = Some(words.found.clone());
        for (commit, number, expected) in [
            (COMMIT, None, &found),
            ("0123456789abcdef0123456789abcdef01234567", Some(7), &found),
            // An earlier branch of that name.
            ("0123456789abcdef0123456789abcdef01234567", Some(8), &None),
            ("", None, &None),
        ] {
            let played = Played::new(vec![say(200, &listed(Stands::Merged))]).await;
            let merged = played
                .forge(kind)
                .find_merged("main", "fix/adder", &work(commit, number))
                .await;
            assert_eq!(merged.as_ref(), Ok(expected), "{kind:?} {commit}");
            assert_eq!(played.lines(), [words.merged], "{kind:?}");
        }
        let none = Played::new(vec![say(words.none.0, &words.none.1)]).await;
        let merged = none
            .forge(kind)
            .find_merged("main", "fix/adder", &work(COMMIT, None))
            .await;
        assert_eq!(merged, Ok(None), "{kind:?}");
    }
    // Closed without a merge, which these two do not tell by their question.
    for (kind, closed) in [
        (
            Kind::Github,
            json!([said::pull_request(Kind::Github, Stands::Closed)]),
        ),
        (Kind::Gitea, said::pull_request(Kind::Gitea, Stands::Closed)),
    ] {
        let played = Played::new(vec![say(200, &closed)]).await;
        let work = MergedWork {
            commit: COMMIT,
            number: Some(7),
        };
        let merged = played.forge(kind).find_merged("main", "fix/adder", &work).await;
        assert_eq!(merged, Ok(None), "{kind:?}");
    }
}

#[tokio::test]
async fn on_gitea_new_work_on_a_branch_that_was_merged_before_is_not_taken_for_merged() {
    for (ahead, is_merged) in [(2, false), (0, true)] {
        let mut kept = said::pull_request(Kind::Gitea, Stands::Merged);
        kept["head"]["ref"] = json!("fix/adder");
        let compared = json!({"total_commits": ahead, "commits": []});
        let played = Played::new(vec![say(200, &kept), say(200, &compared)]).await;
        let work = MergedWork {
            commit: COMMIT,
            number: None,
        };
        let merged = played
            .forge(Kind::Gitea)
            .find_merged("main", "fix/adder", &work)
            .await;
        assert_eq!(merged.map(|found| found.is_some()), Ok(is_merged), "{ahead}");
    }
}
