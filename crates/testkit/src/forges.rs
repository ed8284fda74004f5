//! A forge as a simulation has it: it answers at once, and always the same, but for the times at which it does not.
//!
//! It stands outside of every process, so that its bad times are the same whoever asks.

use std::{ops::Range, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use jangar_controllers::forges::{Credential, Failure, Forges, Minted};
use jangar_engine::decision::{DeliveryAnswer, DeliveryQuery, Found, NewToken};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How the forge of a scenario behaves. Times count from the beginning of the play.
#[derive(Clone, Debug)]
pub struct ForgeScript {
    /// How long its tokens last.
    pub tokens_last: Duration,
    /// When it gives no tokens.
    pub no_tokens: Range<Duration>,
    /// When it does not say what it has.
    pub no_answers: Range<Duration>,
}

impl Default for ForgeScript {
    fn default() -> Self {
        let never = Duration::ZERO..Duration::ZERO;
        Self {
            tokens_last: Duration::from_hours(1),
            no_tokens: never.clone(),
            no_answers: never,
        }
    }
}

/// A forge that has whatever agent-runner said it pushed.
#[derive(Clone, Debug)]
pub struct SimForge {
    script: ForgeScript,
    born: Instant,
}

impl SimForge {
    /// Its times begin now.
    pub fn new(script: ForgeScript) -> Self {
        Self {
            script,
            born: Instant::now(),
        }
    }
}

impl Forges for SimForge {
    fn delivery<'a>(
        &'a self,
        _: &'a DeliveryQuery,
        _: Credential,
        _: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        let answer = if self.script.no_answers.contains(&self.born.elapsed()) {
            DeliveryAnswer::Failed {
                message: "HTTP 502: the forge is being mended".to_owned(),
                passing: true,
                not_before: None,
            }
        } else {
            DeliveryAnswer::Found(Found {
                commit: Some("3f1c2a9d".to_owned()),
                commits_ahead: Some(1),
                pull_request: Some((7, "https://forge.example/pull/7".to_owned())),
                merged: None,
            })
        };
        async move { answer }.boxed()
    }

    fn mint<'a>(
        &'a self,
        new: &'a NewToken,
        _: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>> {
        let minted = if self.script.no_tokens.contains(&self.born.elapsed()) {
            Err(Failure {
                message: "HTTP 502: the forge gives no tokens".to_owned(),
                not_before: None,
            })
        } else {
            let lasts = SignedDuration::try_from(self.script.tokens_last).unwrap_or(SignedDuration::MAX);
            Ok(Minted {
                token: Credential(format!("a token for {}", new.repository).into_bytes()),
                expires_at: now.saturating_add(lasts).unwrap_or(Timestamp::MAX),
            })
        };
        async move { minted }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a str, _: Credential) -> BoxFuture<'a, Result<(), Failure>> {
        async move { Ok(()) }.boxed()
    }
}
