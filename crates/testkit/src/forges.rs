//! Forges as a simulation has them: they answer at once, and always the same.

use futures::{FutureExt, future::BoxFuture};
use jangar_controllers::forges::{Credential, Failure, Forges, Minted};
use jangar_engine::decision::{DeliveryAnswer, DeliveryQuery, Found, NewToken};
use jiff::{SignedDuration, Timestamp};

/// A forge that has whatever agent-runner said it pushed, and gives tokens for an hour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Obliging;

impl Forges for Obliging {
    fn delivery<'a>(
        &'a self,
        _: &'a DeliveryQuery,
        _: Credential,
        _: Timestamp,
    ) -> BoxFuture<'a, DeliveryAnswer> {
        let found = DeliveryAnswer::Found(Found {
            commit: Some("3f1c2a9d".to_owned()),
            commits_ahead: Some(1),
            pull_request: Some((7, "https://forge.example/pull/7".to_owned())),
            merged: None,
        });
        async move { found }.boxed()
    }

    fn mint<'a>(
        &'a self,
        new: &'a NewToken,
        _: Credential,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Minted, Failure>> {
        let minted = Minted {
            token: Credential(format!("a token for {}", new.repository).into_bytes()),
            expires_at: now + SignedDuration::from_hours(1),
        };
        async move { Ok(minted) }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a str, _: Credential) -> BoxFuture<'a, Result<(), Failure>> {
        async move { Ok(()) }.boxed()
    }
}
