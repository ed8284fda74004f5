//! What forges say about the work of runs.
//!
//! A forge is the one thing beside Kubernetes that a controller asks. It is asked through a trait, so that a simulation can
//! answer in its place: nothing in here depends on the network then.

use std::{fmt, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jangar_engine::decision::{ApiCredentials, DeliveryAnswer, DeliveryQuery};
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
