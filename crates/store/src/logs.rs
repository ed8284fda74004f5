//! The ends of logs. They are best effort: a run is archived without them if its pod was gone.

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    Error, Store,
    database::{Row, args},
    redact::withhold_text,
};

const TABLE: &str = "jangar_log_tails";

/// The end of a log, on its way into the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLogTail {
    pub run_uid: String,
    /// Empty for a run without steps.
    pub step: String,
    pub attempt: i64,
    pub pod: String,
    pub container: String,
    /// What was read. Only the end of it is kept.
    pub text: String,
    /// Whether something before it is known to be missing.
    pub cut: bool,
    /// How long the whole log was, if that is known.
    pub total_bytes: Option<i64>,
    pub taken_at: Timestamp,
    /// When it may be removed.
    pub expires_at: Timestamp,
}

/// What is known of the end of a log, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogTailInfo {
    pub run_uid: String,
    pub step: String,
    pub attempt: i64,
    pub pod: String,
    pub container: String,
    /// Whether only the end is there.
    pub cut: bool,
    pub total_bytes: Option<i64>,
    pub taken_at: Timestamp,
    pub expires_at: Timestamp,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogTail {
    #[serde(flatten)]
    pub info: LogTailInfo,
    pub text: String,
}

impl Store {
    /// Keeps the end of a log, without secrets that can be recognised. One that was kept for the same attempt is replaced.
    pub async fn record_log(&self, tail: &NewLogTail) -> Result<(), Error> {
        let database = self.prepared().await?;
        // In this order: what comes before the cut tells what a secret is after it.
        let clean = withhold_text(&tail.text);
        let (end, shortened) = end_of(&clean, database.config().log_tail_bytes);
        let sql = "INSERT INTO jangar_log_tails \
                   (run_uid, step, attempt, pod, container, text, cut, total_bytes, taken_at, expires_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                   ON CONFLICT (run_uid, step, attempt) DO UPDATE SET pod = excluded.pod, \
                   container = excluded.container, text = excluded.text, cut = excluded.cut, \
                   total_bytes = excluded.total_bytes, taken_at = excluded.taken_at, expires_at = excluded.expires_at \
                   WHERE jangar_log_tails.taken_at <= excluded.taken_at";
        let args = args![
            &tail.run_uid,
            &tail.step,
            tail.attempt,
            &tail.pod,
            &tail.container,
            end,
            tail.cut || shortened,
            tail.total_bytes,
            tail.taken_at,
            tail.expires_at,
        ];
        database
            .execute("keeping the end of a log", sql, args)
            .await
            .map(drop)
    }

    /// The end of the log of an attempt, or of the last one.
    pub async fn log_tail(
        &self,
        run_uid: &str,
        step: &str,
        attempt: Option<i64>,
    ) -> Result<Option<LogTail>, Error> {
        let sql = "SELECT * FROM jangar_log_tails WHERE run_uid = $1 AND step = $2 AND attempt = $3";
        let last =
            "SELECT * FROM jangar_log_tails WHERE run_uid = $1 AND step = $2 ORDER BY attempt DESC LIMIT 1";
        let (sql, args) = match attempt {
            Some(attempt) => (sql, args![run_uid, step, attempt]),
            None => (last, args![run_uid, step]),
        };
        let rows = self
            .prepared()
            .await?
            .rows("reading the end of a log", TABLE, sql, args)
            .await?;
        let tail = |row: &Row| {
            Ok(LogTail {
                info: info(row)?,
                text: row.text("text")?,
            })
        };
        rows.first().map(tail).transpose()
    }

    /// Which ends of logs are there for a run.
    pub async fn log_tails(&self, run_uid: &str) -> Result<Vec<LogTailInfo>, Error> {
        let sql = "SELECT run_uid, step, attempt, pod, container, cut, total_bytes, taken_at, expires_at \
                   FROM jangar_log_tails WHERE run_uid = $1 ORDER BY step, attempt";
        let rows = self
            .prepared()
            .await?
            .rows("reading which logs there are", TABLE, sql, args![run_uid])
            .await?;
        rows.iter().map(info).collect()
    }
}

fn info(row: &Row) -> Result<LogTailInfo, Error> {
    Ok(LogTailInfo {
        run_uid: row.text("run_uid")?,
        step: row.text("step")?,
        attempt: row.int("attempt")?,
        pod: row.text("pod")?,
        container: row.text("container")?,
        cut: row.flag("cut")?,
        total_bytes: row.int_if_any("total_bytes")?,
        taken_at: row.time("taken_at")?,
        expires_at: row.time("expires_at")?,
    })
}

/// The last bytes of a text, from the beginning of a line if there is one, and whether something is missing before them.
fn end_of(text: &str, bytes: usize) -> (&str, bool) {
    let Some(surplus) = text.len().checked_sub(bytes).filter(|surplus| *surplus > 0) else {
        return (text, false);
    };
    let tail = text.get(text.ceil_char_boundary(surplus)..).unwrap_or_default();
    match tail.split_once('\n') {
        Some((_, lines)) if !lines.is_empty() => (lines, true),
        _ => (tail, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_is_kept_in_whole_lines() {
        assert_eq!(end_of("one\ntwo\n", 100), ("one\ntwo\n", false));
        assert_eq!(end_of("one\ntwo\n", 8), ("one\ntwo\n", false));
        assert_eq!(end_of("one\ntwo\n", 6), ("two\n", true));
        assert_eq!(end_of("endless", 3), ("ess", true));
        assert_eq!(end_of("ééé", 3), ("é", true));
    }
}
