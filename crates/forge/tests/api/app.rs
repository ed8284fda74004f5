//! Tokens of a GitHub App.

use jangar_forge::{App, ForgeError, InstallationToken, Patience, Token};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::played::{Played, say, say_unpublished};

const KEY: &[u8] = include_bytes!("app-key.pem");

/// A token as GitHub answers it, for these repositories.
fn minted(repositories: &Value) -> Value {
    json!({
        "token": "ghs_made", "expires_at": "2026-03-01T11:00:00Z", "repository_selection": "selected",
        "permissions": {"contents": "write", "pull_requests": "write", "metadata": "read"},
        "repositories": repositories,
    })
}

fn app(played: &Played) -> App {
    App::new("17", KEY, &played.url, Patience::none()).unwrap()
}

#[tokio::test]
async fn a_token_is_made_for_one_repository_with_the_rights_that_the_run_needs() {
    // GitHub takes upper and lower case for the same, and answers with the name as its owner wrote it.
    let made = minted(&json!([{"id": 1_296_269, "name": "Adder", "full_name": "Example/Adder"}]));
    for (writes, access) in [(true, "write"), (false, "read")] {
        let played = Played::new(vec![say(201, &made)]).await;

        let token = app(&played)
            .mint("42", "example/adder", writes, Timestamp::UNIX_EPOCH)
            .await;

        assert_eq!(
            token,
            Ok(InstallationToken {
                token: Token::new("ghs_made"),
                expires_at: "2026-03-01T11:00:00Z".parse().unwrap(),
            })
        );
        let asked = played.asked().remove(0);
        assert_eq!(asked.line, "POST /api/app/installations/42/access_tokens");
        assert_eq!(
            asked.body,
            json!({"repositories": ["adder"], "permissions": {"contents": access, "pull_requests": access}})
        );
        assert_eq!(
            asked.authorization.matches('.').count(),
            2,
            "a JWT has three parts"
        );
    }
}

#[tokio::test]
async fn a_token_for_a_repository_of_another_owner_is_taken_back_and_given_to_nobody() {
    let namesake = json!({"id": 1, "name": "adder", "full_name": "corp/adder"});
    let own = json!({"id": 2, "name": "adder", "full_name": "example/adder"});
    for (repositories, told) in [
        (json!([namesake]), "corp/adder"),
        (json!([own, namesake]), "example/adder, corp/adder"),
        (json!([]), "\"\""),
        (json!([{"id": 1}]), "no name"),
        // Without the list nobody knows what the token is for.
        (json!(null), "/repositories is not a list"),
    ] {
        let made = say_unpublished(201, &minted(&repositories).to_string());
        let played = Played::new(vec![made, say(204, &json!(null))]).await;

        let error = app(&played)
            .mint("42", "example/adder", true, Timestamp::UNIX_EPOCH)
            .await
            .unwrap_err();

        assert!(error.to_string().contains(told), "{error}");
        assert!(!error.is_passing(), "{error}");
        let taken_back = played.asked().remove(1);
        assert_eq!(taken_back.line, "DELETE /api/installation/token");
        assert_eq!(taken_back.authorization, "Bearer ghs_made");
    }
}

#[tokio::test]
async fn an_app_without_the_repository_is_told() {
    let words =
        json!({"message": "There is at least one repository that does not exist or is not accessible"});
    let played = Played::new(vec![say(422, &words)]).await;

    let error = app(&played)
        .mint("42", "example/adder", true, Timestamp::UNIX_EPOCH)
        .await
        .unwrap_err();

    assert!(
        matches!(error, ForgeError::Refused { status: 422, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("not accessible"), "{error}");
}

#[tokio::test]
async fn a_token_is_taken_back_and_one_that_has_expired_counts_as_taken_back() {
    for (status, body) in [(204, json!(null)), (401, json!({"message": "Bad credentials"}))] {
        let played = Played::new(vec![say(status, &body)]).await;

        let revoked = App::revoke(&played.url, Token::new("ghs_made"), Patience::none()).await;

        assert_eq!(revoked, Ok(()));
        let asked = played.asked().remove(0);
        assert_eq!(asked.line, "DELETE /api/installation/token");
        assert_eq!(asked.authorization, "Bearer ghs_made");
    }
    let down = Played::new(vec![say(503, &json!({}))]).await;
    let revoked = App::revoke(&down.url, Token::new("ghs_made"), Patience::none()).await;
    assert!(matches!(revoked, Err(ForgeError::Broken { .. })));
}
