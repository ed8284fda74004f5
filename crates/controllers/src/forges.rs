//! What forges say about the work of runs.
//!
//! A forge is the one thing beside Kubernetes that a controller asks. It is asked through a trait, so that a simulation can
//! answer in its place: nothing in here depends on the network then.

use std::{fmt, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jangar_engine::decision::{ApiCredentials, DeliveryAnswer, DeliveryQuery, NewToken};
use jangar_forge::{App, Forge, ForgeError, Kind, Patience, Token};
use jiff::Timestamp;

/// How long all questions about one run may take. Whoever is slower is asked again later.
const QUERY_MAX: Duration = Duration::from_secs(45);

/// The value of a Secret on its way to a forge. Nobody can print it.
#[derive(Clone)]
pub struct Credential(pub Vec<u8>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(***)")
    }
}

/// What answers for forges.
pub trait Forges: fmt::Debug + Send + Sync {
    /// What a forge has of the work of a run. `credential` is the value that the query names.
    fn delivery<'a>(
        &'a self,
        query: &'a DeliveryQuery,
        credential: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer>;

    /// Makes a token of a GitHub App. `key` is the App's private key.
    fn mint<'a>(
        &'a self,
        new: &'a NewToken,
        key: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>>;

    /// Takes a token back.
    fn revoke<'a>(&'a self, api: &'a str, token: Credential) -> BoxFuture<'a, Result<(), Failure>>;
}

/// A token that was made.
#[derive(Clone, Debug)]
pub struct Minted {
    pub token: Credential,
    pub expires_at: Timestamp,
}

/// Why a forge did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The words of the forge, or about it.
    pub message: String,
}

/// Forges over the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network;

impl Forges for Network {
    fn delivery<'a>(
        &'a self,
        query: &'a DeliveryQuery,
        credential: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        async move {
            match tokio::time::timeout(QUERY_MAX, ask(query, &credential, now)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => DeliveryAnswer::Failed {
                    message: error.to_string(),
                    passing: error.is_passing(),
                },
                Err(_) => DeliveryAnswer::Failed {
                    message: format!("no answer within {} s", QUERY_MAX.as_secs()),
                    passing: true,
                },
            }
        }
        .boxed()
    }

    fn mint<'a>(
        &'a self,
        new: &'a NewToken,
        key: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>> {
        async move {
            let app = App::new(&new.app_id, &key.0, &new.api, Patience::none())?;
            let made = app
                .mint(&new.installation_id, &new.repository, new.writes, now)
                .await?;
            Ok(Minted {
                token: Credential(made.token.reveal().as_bytes().to_vec()),
                expires_at: made.expires_at,
            })
        }
        .boxed()
    }

    fn revoke<'a>(&'a self, api: &'a str, token: Credential) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            let token = Token::new(String::from_utf8_lossy(&token.0));
            Ok(App::revoke(api, token, Patience::none()).await?)
        }
        .boxed()
    }
}

impl From<ForgeError> for Failure {
    fn from(error: ForgeError) -> Self {
        Self {
            message: error.to_string(),
        }
    }
}

async fn ask(
    query: &DeliveryQuery,
    credential: &Credential,
    now: Timestamp,
) -> Result<DeliveryAnswer, ForgeError> {
    let Some(kind) = Kind::named(query.forge.as_str()) else {
        return Ok(DeliveryAnswer::Failed {
            message: format!("{} has no API", query.forge),
            passing: false,
        });
    };
    match &query.credentials {
        ApiCredentials::Token { .. } => {
            let token = Token::new(String::from_utf8_lossy(&credential.0).trim());
            look(kind, query, token).await
        }
        ApiCredentials::App {
            app_id,
            installation_id,
            ..
        } => {
            let app = App::new(app_id, &credential.0, &query.api, Patience::none())?;
            let made = app.mint(installation_id, &query.repository, false, now).await?;
            let answer = look(kind, query, made.token.clone()).await;
            // It ends by itself within the hour.
            if let Err(error) = App::revoke(&query.api, made.token, Patience::none()).await {
                tracing::warn!(%error, "a token of a GitHub App was not taken back");
            }
            answer
        }
    }
}

async fn look(kind: Kind, query: &DeliveryQuery, token: Token) -> Result<DeliveryAnswer, ForgeError> {
    let forge = Forge::new(kind, &query.api, &query.repository, token, Patience::none())?;
    let Some(branch) = forge.branch(&query.head).await? else {
        return Ok(DeliveryAnswer::Found {
            commit: None,
            commits_ahead: None,
            pull_request: None,
        });
    };
    let (commits_ahead, pull_request) = match &query.base {
        None => (None, None),
        Some(base) => (
            Some(forge.commits_ahead(base, &query.head).await?),
            forge.find_pull_request(base, &query.head).await?,
        ),
    };
    Ok(DeliveryAnswer::Found {
        commit: Some(branch.commit),
        commits_ahead,
        pull_request: pull_request.map(|open| (open.number, open.url)),
    })
}
