//! What forges say about the work of runs.
//!
//! A forge is the one thing beside Kubernetes that a controller asks. It is asked through a trait, so that a simulation can
//! answer in its place: nothing in here depends on the network then.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jangar_engine::decision::{ApiCredentials, DeliveryAnswer, DeliveryQuery, Found, NewToken};
use jangar_forge::{App, Forge, ForgeError, Kind, MergedWork, Patience, PullRequest, Token};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use sha2::{Digest, Sha256};

/// How long all questions about one run may take. Whoever is slower is asked again later.
const QUERY_MAX: Duration = Duration::from_secs(45);

/// The longest that a forge is left alone because it asked for it. Forges count requests by the hour at most.
const REST_MAX: Duration = Duration::from_hours(1);
/// How many accounts are remembered that are to be left alone. One more than that is asked in vain.
const RESTS_MAX: usize = 1024;

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
    /// The words of the forge, or about it. They do not change with the time.
    pub message: String,
    /// Until when the forge asks to be left alone.
    pub not_before: Option<Timestamp>,
}

/// Forges over the network. Whoever said that it has had enough is not asked again before its time, by no run.
#[derive(Debug, Default)]
pub struct Network {
    resting: Mutex<BTreeMap<Account, Failure>>,
}

/// By what a forge counts requests. The credential is known by its hash alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Account {
    api: String,
    credential: [u8; 32],
    installation: String,
}

impl Account {
    fn of(api: &str, credential: &Credential, installation: &str) -> Self {
        Self {
            api: api.to_owned(),
            credential: Sha256::digest(&credential.0).into(),
            installation: installation.to_owned(),
        }
    }
}

impl Network {
    /// What an account said that is to be left alone.
    fn rests(&self, account: &Account, now: Timestamp) -> Result<(), Failure> {
        let resting = self.resting();
        let rests = resting
            .get(account)
            .filter(|failure| failure.not_before.is_some_and(|until| now < until));
        rests.map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// What the error of a forge means for those who ask, and whether it is to be left alone.
    fn learn(&self, account: Account, error: &ForgeError, now: Timestamp) -> Failure {
        let failure = Failure::of(error, now);
        if failure.not_before.is_some() {
            let mut resting = self.resting();
            resting.retain(|_, failure| failure.not_before.is_some_and(|until| now < until));
            if resting.len() < RESTS_MAX {
                resting.insert(account, failure.clone());
            }
        }
        failure
    }

    fn resting(&self) -> MutexGuard<'_, BTreeMap<Account, Failure>> {
        // Every method leaves it whole, so a panic elsewhere does not make it bad.
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forges for Network {
    fn delivery<'a>(
        &'a self,
        query: &'a DeliveryQuery,
        credential: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        async move {
            let installation = match &query.credentials {
                ApiCredentials::Token { .. } => "",
                ApiCredentials::App { installation_id, .. } => installation_id,
            };
            let account = Account::of(&query.api, &credential, installation);
            if let Err(failure) = self.rests(&account, now) {
                return failure.of_delivery(true);
            }
            match tokio::time::timeout(QUERY_MAX, ask(query, &credential, now)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => self.learn(account, &error, now).of_delivery(error.is_passing()),
                Err(_) => DeliveryAnswer::Failed {
                    message: format!("no answer within {} s", QUERY_MAX.as_secs()),
                    passing: true,
                    not_before: None,
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
            let account = Account::of(&new.api, &key, &new.installation_id);
            self.rests(&account, now)?;
            let app = App::new(&new.app_id, &key.0, &new.api, Patience::none())
                .map_err(|error| Failure::of(&error, now))?;
            let made = app
                .mint(&new.installation_id, &new.repository, new.writes, now)
                .await
                .map_err(|error| self.learn(account, &error, now))?;
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
            let revoked = App::revoke(api, token, Patience::none()).await;
            revoked.map_err(|error| Failure {
                message: error.to_string(),
                not_before: None,
            })
        }
        .boxed()
    }
}

impl Failure {
    fn of(error: &ForgeError, now: Timestamp) -> Self {
        let ForgeError::RateLimited {
            method,
            path,
            status,
            retry_after,
        } = error
        else {
            return Self {
                message: error.to_string(),
                not_before: None,
            };
        };
        let until = now.saturating_add((*retry_after).min(REST_MAX)).unwrap_or(now);
        // A forge knows no finer times, and words are shorter without.
        let seconds = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Ceil);
        let until = until.round(seconds).unwrap_or(until);
        Self {
            message: format!(
                "{method} {path}: {status}, too many requests: the forge asks to be left alone until {until}"
            ),
            not_before: Some(until),
        }
    }

    fn of_delivery(self, passing: bool) -> DeliveryAnswer {
        DeliveryAnswer::Failed {
            message: self.message,
            passing,
            not_before: self.not_before,
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
            not_before: None,
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
    let branch = forge.branch(&query.head).await?;
    let mut found = Found {
        commit: branch.map(|branch| branch.commit),
        ..Found::default()
    };
    let named = |request: PullRequest| (request.number, request.url);
    if let Some(base) = &query.base {
        if found.commit.is_some() {
            found.commits_ahead = Some(forge.commits_ahead(base, &query.head).await?);
            found.pull_request = forge.find_pull_request(base, &query.head).await?.map(named);
        }
        // What is merged has no open pull request, and often no branch any more.
        if found.pull_request.is_none() {
            let work = MergedWork {
                commit: &query.commit,
                number: query.pull_request,
            };
            found.merged = forge.find_merged(base, &query.head, &work).await?.map(named);
        }
    }
    Ok(DeliveryAnswer::Found(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(seconds: u64) -> ForgeError {
        ForgeError::RateLimited {
            method: "POST".to_owned(),
            path: "/x".to_owned(),
            status: 403,
            retry_after: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn an_account_that_had_enough_is_left_alone_until_its_time_and_no_other_is() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let network = Network::default();
        let account = |key: &[u8]| Account::of("https://forge.example", &Credential(key.to_vec()), "42");
        assert_eq!(network.rests(&account(b"a"), at(0)), Ok(()));

        let told = network.learn(account(b"a"), &limited(90), at(0));

        assert_eq!(told.not_before, Some(at(90)));
        assert!(
            told.message.contains("until 1970-01-01T00:01:30Z"),
            "{}",
            told.message
        );
        assert_eq!(
            network.rests(&account(b"a"), at(89)),
            Err(told),
            "in the same words"
        );
        assert_eq!(network.rests(&account(b"a"), at(90)), Ok(()));
        assert_eq!(network.rests(&account(b"b"), at(1)), Ok(()));
    }

    #[test]
    fn nobody_is_left_alone_for_longer_than_an_hour_or_for_another_trouble() {
        let network = Network::default();
        let now = Timestamp::UNIX_EPOCH;
        let account = || Account::of("https://forge.example", &Credential(Vec::new()), "");
        let told = network.learn(account(), &limited(1_000_000), now);
        assert_eq!(told.not_before, Timestamp::from_second(3600).ok());
        let timed_out = ForgeError::TimedOut {
            method: "GET".to_owned(),
            path: "/x".to_owned(),
        };
        assert_eq!(network.learn(account(), &timed_out, now).not_before, None);
    }
}
