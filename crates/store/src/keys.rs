//! What came of submissions with an idempotency key.
//!
//! That a key makes one run and not two is the API server's doing: the name of the run follows from the key. This only
//! remembers it for the time after the run is gone.

use jiff::Timestamp;

use crate::{
    Error, RunKind, Store,
    database::{Row, args},
};

const TABLE: &str = "jangar_idempotency_keys";

/// A key, and the run that was made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub kind: RunKind,
    pub namespace: String,
    /// Name of the Agent, Orchestration or Tool.
    pub subject: String,
    pub key: String,
    /// A hash of what was asked for, which tells a repetition from another request with the same key.
    pub digest: String,
    pub run_uid: String,
    pub run_name: String,
    pub created_at: Timestamp,
    /// When it may be forgotten.
    pub expires_at: Timestamp,
}

/// Whether a key was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// It was not, and is now.
    New,
    /// It was, for this run.
    Before(IdempotencyKey),
}

impl Store {
    /// Remembers a key, unless it is known. One that has outlived its time by then counts as unknown.
    pub async fn remember_key(&self, key: &IdempotencyKey) -> Result<Remembered, Error> {
        let database = self.prepared().await?;
        let mut tx = database
            .begin("remembering a key", database.config().query_timeout)
            .await?;
        let forget = "DELETE FROM jangar_idempotency_keys WHERE kind = $1 AND namespace = $2 AND subject = $3 \
                      AND idempotency_key = $4 AND expires_at <= $5";
        let place = args![key.kind.as_str(), &key.namespace, &key.subject, &key.key];
        let mut args = place.clone();
        args.extend(args![key.created_at]);
        tx.execute(forget, args).await?;
        let sql = "INSERT INTO jangar_idempotency_keys \
                   (kind, namespace, subject, idempotency_key, digest, run_uid, run_name, created_at, expires_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";
        let mut args = place.clone();
        args.extend(args![
            &key.digest,
            &key.run_uid,
            &key.run_name,
            key.created_at,
            key.expires_at
        ]);
        let added = tx.execute(sql, args).await? > 0;
        let before = if added {
            None
        } else {
            tx.rows(TABLE, BY_KEY, place)
                .await?
                .first()
                .map(read)
                .transpose()?
        };
        tx.commit().await?;
        Ok(before.map_or(Remembered::New, Remembered::Before))
    }

    /// What came of a key, if it is remembered at that time.
    pub async fn key(
        &self,
        kind: RunKind,
        namespace: &str,
        subject: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<IdempotencyKey>, Error> {
        let args = args![kind.as_str(), namespace, subject, key];
        let rows = self
            .prepared()
            .await?
            .rows("looking up a key", TABLE, BY_KEY, args)
            .await?;
        let found = rows.first().map(read).transpose()?;
        Ok(found.filter(|key| key.expires_at > now))
    }
}

const BY_KEY: &str = "SELECT * FROM jangar_idempotency_keys \
                      WHERE kind = $1 AND namespace = $2 AND subject = $3 AND idempotency_key = $4";

fn read(row: &Row) -> Result<IdempotencyKey, Error> {
    let kind = row.text("kind")?;
    Ok(IdempotencyKey {
        kind: kind
            .parse()
            .map_err(|_| row.unreadable("kind", format!("{kind:?} is no kind of runs")))?,
        namespace: row.text("namespace")?,
        subject: row.text("subject")?,
        key: row.text("idempotency_key")?,
        digest: row.text("digest")?,
        run_uid: row.text("run_uid")?,
        run_name: row.text("run_name")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
    })
}
