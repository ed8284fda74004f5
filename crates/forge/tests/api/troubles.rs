//! What goes wrong, and what is said about it.

use std::time::Duration;

use jangar_forge::{Forge, ForgeError, Kind, Patience, Token};
use serde_json::json;

use crate::{
    played::{Played, Say, TOKEN, say, say_unpublished},
    said::github_comparison,
};

async fn asked(answers: Vec<Say>) -> (Result<u32, ForgeError>, Vec<String>) {
    let played = Played::new(answers).await;
    let result = played.forge(Kind::Github).commits_ahead("main", "fix").await;
    (result, played.lines())
}

fn fine() -> Say {
    say(200, &github_comparison(3))
}

#[tokio::test]
async fn a_token_that_has_expired_is_told_from_one_that_may_not() {
    let (expired, lines) = asked(vec![say(401, &json!({"message": "Bad credentials"}))]).await;
    let error = expired.unwrap_err();
    assert!(matches!(error, ForgeError::Unauthorised { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "GET /repos/example/adder/compare/main...fix: 401, Bad credentials: the token is wrong, has expired or was revoked; give a \
         new one"
    );
    assert_eq!(lines.len(), 1, "another try would change nothing");
    assert!(!format!("{error:?}").contains(TOKEN));

    let (forbidden, _) = asked(vec![say(
        403,
        &json!({"message": "Resource not accessible by integration"}),
    )])
    .await;
    assert!(matches!(forbidden, Err(ForgeError::Forbidden { .. })));
}

#[tokio::test]
async fn a_short_rate_limit_is_waited_for_and_a_long_one_is_told() {
    let at_once = say(429, &json!({"message": "slow down"})).with("retry-after", "0");
    let (answered, lines) = asked(vec![at_once, fine()]).await;
    assert_eq!(answered, Ok(3));
    assert_eq!(lines.len(), 2);

    let hour = say(403, &json!({"message": "API rate limit exceeded"}))
        .with("x-ratelimit-remaining", "0")
        .with(
            "x-ratelimit-reset",
            (jiff::Timestamp::now().as_second() + 3600).to_string(),
        );
    let (limited, lines) = asked(vec![hour, fine()]).await;
    let Err(ForgeError::RateLimited { retry_after, .. }) = limited else {
        panic!("{limited:?}");
    };
    assert!(retry_after > Duration::from_secs(3500), "{retry_after:?}");
    assert_eq!(lines.len(), 1);
}

#[tokio::test]
async fn a_forge_that_is_down_for_a_moment_is_asked_again_and_then_no_more() {
    let down = || say(503, &json!({"message": "down"}));
    assert_eq!(asked(vec![down(), down(), fine()]).await.0, Ok(3));
    let (error, lines) = asked(vec![down(), down(), down(), fine()]).await;
    assert!(
        matches!(error, Err(ForgeError::Broken { status: 503, .. })),
        "{error:?}"
    );
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn what_may_have_been_done_is_looked_for_and_not_done_twice() {
    let none = || say(200, &json!([]));
    let played = Played::new(vec![none(), say(502, &json!({})), none()]).await;
    let new = jangar_forge::NewPullRequest {
        base: "main",
        head: "fix",
        title: "t",
        body: "b",
        draft: false,
    };
    let error = played
        .forge(Kind::Github)
        .open_pull_request(&new)
        .await
        .unwrap_err();
    assert!(matches!(error, ForgeError::Broken { .. }), "{error}");
    let posts = played
        .lines()
        .iter()
        .filter(|line| line.starts_with("POST"))
        .count();
    assert_eq!(posts, 1);
}

#[tokio::test]
async fn a_redirect_is_followed_within_the_server_and_never_takes_the_token_elsewhere() {
    let renamed = say(301, &json!({})).with("location", "/api/repositories/1/compare/main...fix");
    let (answered, lines) = asked(vec![renamed, fine()]).await;
    assert_eq!(answered, Ok(3));
    assert_eq!(lines[1], "GET /api/repositories/1/compare/main...fix");

    let elsewhere = Played::new(vec![fine()]).await;
    let away = say(302, &json!({})).with("location", format!("{}/x", elsewhere.url));
    let (refused, _) = asked(vec![away]).await;
    assert!(
        matches!(refused, Err(ForgeError::Redirected { .. })),
        "{refused:?}"
    );
    assert_eq!(elsewhere.asked(), []);

    let circle = || say(302, &json!({})).with("location", "/api/again");
    let (lost, lines) = asked((0..10).map(|_| circle()).collect()).await;
    assert!(matches!(lost, Err(ForgeError::Redirected { .. })), "{lost:?}");
    assert_eq!(lines.len(), 4);
}

#[tokio::test]
async fn answers_that_nobody_promised_are_told_with_their_place() {
    let (lacking, _) = asked(vec![say_unpublished(200, "{\"ahead\": 3}")]).await;
    assert_eq!(
        lacking.unwrap_err().to_string(),
        "GET /repos/example/adder/compare/main...fix: the answer is not what the API promises: /ahead_by is not a number"
    );
    let page = say_unpublished(200, "<html>sign in</html>");
    assert!(matches!(
        asked(vec![page]).await.0,
        Err(ForgeError::Unexpected { .. })
    ));
    let large = say_unpublished(200, &"x".repeat(5 * 1024 * 1024));
    assert!(matches!(
        asked(vec![large]).await.0,
        Err(ForgeError::TooLarge { .. })
    ));
}

#[tokio::test]
async fn a_server_that_is_not_there_and_an_address_that_is_none_are_told() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let forge = |url: &str| Forge::new(Kind::Gitea, url, "a/b", Token::new(TOKEN), Patience::none());
    let error = forge(&url).unwrap().branch("fix").await.unwrap_err();
    assert!(matches!(error, ForgeError::Unreachable { .. }), "{error}");

    for url in ["", "git.example.com", "ftp://x", "https://me:secret@x"] {
        assert!(matches!(forge(url), Err(ForgeError::Address { .. })), "{url}");
    }
}
