//! What each forge says when it does not do what it is asked, for each of the four questions: a token that has expired, too
//! many requests, nothing there, a trouble of its own, and an answer that is none.

use std::time::Duration;

use jangar_forge::{Forge, ForgeError, Kind};
use serde_json::{Value, json};

use crate::{
    forges::{NEW, Words, all},
    played::{Played, Say, TOKEN, say, say_unpublished},
    said::bitbucket_page,
};

/// What a forge answers instead.
struct Refusals {
    /// With the words that are repeated.
    expired: (Value, &'static str),
    /// In every way that the forge has to say so.
    limited: Vec<Say>,
    missing: Value,
    /// What its proxies say when the forge is away.
    broken: Say,
}

fn refusals(kind: Kind) -> Refusals {
    let in_a_minute = (jiff::Timestamp::now().as_second() + 60).to_string();
    match kind {
        Kind::Github => Refusals {
            expired: (
                json!({"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401"}),
                "Bad credentials",
            ),
            limited: vec![
                say(
                    403,
                    &json!({"message": "API rate limit exceeded for installation ID 42.",
                            "documentation_url": "https://docs.github.com/rest/rate-limit"}),
                )
                .with("x-ratelimit-limit", "5000")
                .with("x-ratelimit-remaining", "0")
                .with("x-ratelimit-reset", in_a_minute.clone()),
                say(
                    403,
                    &json!({"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}),
                )
                .with("retry-after", "60"),
                say(429, &json!({"message": "API rate limit exceeded"}))
                    .with("x-ratelimit-remaining", "0")
                    .with("x-ratelimit-reset", in_a_minute),
            ],
            missing: json!({"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}),
            broken: say_unpublished(502, "<html><head><title>502 Bad Gateway</title></head></html>"),
        },
        Kind::Gitlab => Refusals {
            expired: (
                json!({"error": "invalid_token", "error_description": "Token is expired. You can either do re-authorization or token refresh."}),
                "Token is expired",
            ),
            limited: vec![
                say_unpublished(429, "Retry later\n")
                    .with("retry-after", "60")
                    .with("ratelimit-limit", "600")
                    .with("ratelimit-remaining", "0")
                    .with("ratelimit-reset", in_a_minute),
            ],
            missing: json!({"message": "404 Project Not Found"}),
            broken: say(500, &json!({"message": "500 Internal Server Error"})),
        },
        Kind::Bitbucket => Refusals {
            expired: (
                json!({"type": "error", "error": {"message": "Access token expired. Use your refresh token to obtain a new access token."}}),
                "Access token expired",
            ),
            limited: vec![
                say(
                    429,
                    &json!({"type": "error", "error": {"message": "Rate limit for this resource has been exceeded"}}),
                )
                .with("retry-after", "60"),
                // It need not say when it will answer.
                say_unpublished(429, ""),
            ],
            missing: json!({"type": "error", "error": {"message": "Repository example/adder not found"}}),
            broken: say_unpublished(503, ""),
        },
        Kind::Gitea => Refusals {
            expired: (
                json!({"message": "token has expired", "url": "https://forge.example/api/swagger"}),
                "token has expired",
            ),
            limited: vec![say_unpublished(429, "").with("retry-after", "60")],
            missing: json!({"message": "The target couldn't be found.", "url": "https://forge.example/api/swagger", "errors": []}),
            broken: say(500, &json!({"message": "", "url": "https://forge.example/api/swagger"})),
        },
    }
}

/// One of the four questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Branch,
    Compare,
    Find,
    Open,
}

const QUESTIONS: [Question; 4] = [
    Question::Branch,
    Question::Compare,
    Question::Find,
    Question::Open,
];

/// One forge, played, and whoever asks it.
struct Table {
    words: Words,
    played: Played,
    forge: Forge,
}

/// A table for each forge. Making ready to ask takes longer than asking, so that it is done once.
async fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    for words in all() {
        let played = Played::new(Vec::new()).await;
        let forge = played.forge(words.kind);
        tables.push(Table { words, played, forge });
    }
    tables
}

impl Table {
    fn kind(&self) -> Kind {
        self.words.kind
    }

    fn refusals(&self) -> Refusals {
        refusals(self.kind())
    }

    /// Whether there was an answer, what the error was, and the requests.
    async fn asked(&self, question: Question, answers: Vec<Say>) -> (Result<bool, ForgeError>, Vec<String>) {
        // A pull request is looked for before one is opened, and again if it may have been.
        let none = || say(self.words.none.0, &self.words.none.1);
        let mut script: Vec<Say> = (question == Question::Open).then(none).into_iter().collect();
        script.extend(answers);
        script.push(none());
        self.played.then(script);
        let forge = &self.forge;
        let result = match question {
            Question::Branch => forge.branch("fix/adder").await.map(|found| found.is_some()),
            Question::Compare => forge.commits_ahead("main", "fix/adder").await.map(|_| true),
            Question::Find => {
                let found = forge.find_pull_request("main", "fix/adder").await;
                found.map(|found| found.is_some())
            }
            Question::Open => forge.open_pull_request(&NEW).await.map(|_| true),
        };
        let mut lines = self.played.lines();
        if question == Question::Open {
            lines.remove(0);
        }
        (result, lines)
    }
}

#[tokio::test]
async fn a_token_that_has_expired_is_told_in_the_words_of_every_forge_and_not_tried_again() {
    for table in tables().await {
        for question in QUESTIONS {
            let (body, told) = table.refusals().expired;
            let (result, lines) = table.asked(question, vec![say(401, &body)]).await;
            let error = result.unwrap_err();
            let place = format!("{:?} {question:?}: {error}", table.kind());
            assert!(matches!(error, ForgeError::Unauthorised { .. }), "{place}");
            assert!(error.to_string().contains(told), "{place}");
            assert!(!format!("{error:?}").contains(TOKEN), "{place}");
            assert!(!error.is_passing(), "{place}");
            assert_eq!(lines.len(), 1, "{place}");
        }
    }
}

#[tokio::test]
async fn too_many_requests_are_told_with_the_time_that_every_forge_asks_for() {
    for table in tables().await {
        for question in QUESTIONS {
            for limited in table.refusals().limited {
                let (result, lines) = table.asked(question, vec![limited]).await;
                let place = format!("{:?} {question:?}: {result:?}", table.kind());
                let Err(ForgeError::RateLimited { retry_after, .. }) = result else {
                    panic!("{place}");
                };
                // The time of a reset is counted from now, which goes on.
                let asked_for = Duration::from_secs(50)..=Duration::from_mins(1);
                assert!(asked_for.contains(&retry_after), "{place}");
                assert_eq!(lines.len(), 1, "{place}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_none_where_that_is_an_answer_and_an_error_elsewhere() {
    for table in tables().await {
        for question in QUESTIONS {
            let missing = say(404, &table.refusals().missing);
            let (result, lines) = table.asked(question, vec![missing]).await;
            let place = format!("{:?} {question:?}: {result:?}", table.kind());
            // Gitea has one address for the pull request of two branches; the others have a list.
            let none_is_an_answer =
                question == Question::Branch || (question == Question::Find && table.kind() == Kind::Gitea);
            if none_is_an_answer {
                assert_eq!(result, Ok(false), "{place}");
            } else {
                assert!(matches!(result, Err(ForgeError::NotFound { .. })), "{place}");
            }
            assert_eq!(lines.len(), 1, "{place}");
        }
    }
}

#[tokio::test]
async fn a_forge_that_is_down_is_asked_again_but_nothing_is_opened_twice() {
    for table in tables().await {
        for question in QUESTIONS {
            let tries = if question == Question::Open { 1 } else { 3 };
            let down = (0..tries).map(|_| table.refusals().broken).collect();
            let (result, lines) = table.asked(question, down).await;
            let place = format!("{:?} {question:?}: {result:?} {lines:?}", table.kind());
            assert!(
                matches!(&result, Err(error @ ForgeError::Broken { .. }) if error.is_passing()),
                "{place}"
            );
            let posts = lines.iter().filter(|line| line.starts_with("POST")).count();
            assert_eq!(posts, usize::from(question == Question::Open), "{place}");
            assert_eq!(lines.len() - posts, if posts == 1 { 1 } else { 3 }, "{place}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_and_never_taken_for_one() {
    let bodies = [
        "<html>sign in</html>",
        "{\"number\": 7",
        "{}",
        "[{}]",
        "{\"values\": [{}]}",
        "null",
        "\"7\"",
        "",
    ];
    for table in tables().await {
        for question in QUESTIONS {
            for body in bodies {
                let (result, _) = table.asked(question, vec![say_unpublished(200, body)]).await;
                let place = format!("{:?} {question:?} {body:?}: {result:?}", table.kind());
                match result {
                    Err(ForgeError::Unexpected { .. }) => {}
                    // A pull request that is not open is none, whatever else it lacks; and a list may have other things in it.
                    Ok(false) => {
                        assert_eq!((question, table.kind()), (Question::Find, Kind::Gitea), "{place}");
                    }
                    Ok(true) => {
                        assert_eq!(
                            (question, table.kind(), body),
                            (Question::Compare, Kind::Bitbucket, "{\"values\": [{}]}")
                        );
                    }
                    Err(other) => panic!("{place}: {other}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_expires_between_two_pages_leaves_no_half_a_count() {
    let page = bitbucket_page(100, true);
    let (body, _) = refusals(Kind::Bitbucket).expired;
    let played = Played::new(vec![say(200, &page), say(401, &body)]).await;
    let counted = played.forge(Kind::Bitbucket).commits_ahead("main", "fix").await;
    assert!(
        matches!(counted, Err(ForgeError::Unauthorised { .. })),
        "{counted:?}"
    );
}
