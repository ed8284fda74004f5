//! Removing what has outlived its time. Runs stay: a history that forgets is none.

use jiff::Timestamp;

use crate::{
    Error, Store,
    database::{Database, args},
};

/// One statement removes so many rows, so that none holds its locks for long.
const AT_ONCE: i64 = 1_000;
/// One call takes so many turns at a table; what is left is there for the next call.
const TURNS: usize = 100;

/// How many rows of each table were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub log_tails: u64,
    pub keys: u64,
    pub deliveries: u64,
    pub audit: u64,
}

const LOG_TAILS: &str = "DELETE FROM jangar_log_tails WHERE (run_uid, step, attempt) IN \
                         (SELECT run_uid, step, attempt FROM jangar_log_tails WHERE expires_at <= $1 LIMIT $2)";
const KEYS: &str = "DELETE FROM jangar_idempotency_keys WHERE (kind, namespace, subject, idempotency_key) IN \
                    (SELECT kind, namespace, subject, idempotency_key FROM jangar_idempotency_keys \
                    WHERE expires_at <= $1 LIMIT $2)";
const DELIVERIES: &str = "DELETE FROM jangar_deliveries WHERE number IN \
                          (SELECT number FROM jangar_deliveries WHERE expires_at <= $1 LIMIT $2)";
const AUDIT: &str = "DELETE FROM jangar_audit WHERE number IN \
                     (SELECT number FROM jangar_audit WHERE at < $1 LIMIT $2)";

impl Store {
    /// Removes ends of logs, keys and deliveries whose time is over at `now`, and entries of the audit log from before
    /// `audit_before`, if that is given.
    pub async fn prune(&self, now: Timestamp, audit_before: Option<Timestamp>) -> Result<Pruned, Error> {
        let database = self.prepared().await?;
        Ok(Pruned {
            log_tails: remove(database, LOG_TAILS, now).await?,
            keys: remove(database, KEYS, now).await?,
            deliveries: remove(database, DELIVERIES, now).await?,
            audit: match audit_before {
                Some(before) => remove(database, AUDIT, before).await?,
                None => 0,
            },
        })
    }
}

async fn remove(database: &Database, sql: &'static str, before: Timestamp) -> Result<u64, Error> {
    let mut removed = 0;
    for _ in 0..TURNS {
        let now = database
            .execute("removing what is out of date", sql, args![before, AT_ONCE])
            .await?;
        removed += now;
        if now == 0 {
            break;
        }
    }
    Ok(removed)
}
