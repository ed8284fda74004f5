//! Writing a run: all of it in one transaction, as often as anybody likes.
//!
//! A record is keyed by the UID of its run. An older state never takes the place of a newer one: a run that had ended stays
//! ended, and otherwise the greater `metadata.resourceVersion` wins, which the API server promises to grow with each write of
//! an object. What is there in the same version already is not written again.

use jiff::Timestamp;
use serde_json::json;

use crate::{
    Error, RunRecord, Store,
    database::{Arg, Database, Tx, args},
    place,
};

const DOING: &str = "writing a run";
/// Two runs of one second that share thirty bits of a hash are rare, three are not seen.
const MAX_NEIGHBOURS: i64 = 64;

/// The lock of whoever puts runs into the pieces of the list that words are looked up in, as step 4 of the schema has it. It is
/// taken before those of runs, so that no two wait for each other.
const PIECES: i64 = 0x6a61_6e67_6172_0002;

/// What became of a record that was given to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is in the database.
    Written,
    /// It was there before, and nothing had to be written.
    Already,
    /// The database has a newer state of that run, and keeps it.
    Newer,
}

/// How far a run had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    finished: bool,
    version: i64,
}

impl State {
    fn yields_to(self, other: Self) -> bool {
        (self.finished, self.version) <= (other.finished, other.version)
    }
}

impl Store {
    /// Writes what is remembered of a run. Once this has returned, the run can be deleted from the cluster.
    pub async fn record(&self, run: &RunRecord, now: Timestamp) -> Result<Kept, Error> {
        let database = self.prepared().await?;
        let mut tx = begin(database).await?;
        let kept = record(&mut tx, run, now).await?;
        tx.commit().await?;
        Ok(kept)
    }

    /// Writes several runs, all of them or none. It takes fewer round trips and fewer waits for the disk than one after the
    /// other.
    pub async fn record_all(&self, runs: &[RunRecord], now: Timestamp) -> Result<Vec<Kept>, Error> {
        let database = self.prepared().await?;
        let mut tx = begin(database).await?;
        // Two who write the same runs must not wait for each other, so everybody begins with the lowest lock.
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|index| runs.get(*index).map(|run| place::number(&run.uid)));
        let mut kept = vec![Kept::Written; runs.len()];
        for index in order {
            if let (Some(run), Some(kept)) = (runs.get(index), kept.get_mut(index)) {
                *kept = record(&mut tx, run, now).await?;
            }
        }
        tx.commit().await?;
        Ok(kept)
    }
}

async fn record(tx: &mut Tx<'_>, run: &RunRecord, now: Timestamp) -> Result<Kept, Error> {
    // Whoever writes the same run waits for this one to be done.
    tx.lock(place::number(&run.uid)).await?;
    let place = match stored(tx, &run.uid).await? {
        Some((_, state)) if !state.yields_to(run.state()) => return Ok(Kept::Newer),
        // Two objects of one version are the same object.
        Some((_, state)) if state == run.state() => return Ok(Kept::Already),
        Some((place, _)) => {
            update(tx, run, now).await?;
            place
        }
        None => {
            let place = free_place(tx, run).await?;
            insert(tx, run, place, now).await?;
            place
        }
    };
    replace_parts(tx, run, place).await?;
    Ok(Kept::Written)
}

async fn begin(database: &Database) -> Result<Tx<'_>, Error> {
    let mut tx = database.begin(DOING, database.config().query_timeout).await?;
    tx.lock(PIECES).await?;
    Ok(tx)
}

impl RunRecord {
    fn state(&self) -> State {
        State {
            finished: self.finished_at.is_some() || self.is_finished(),
            version: self.version,
        }
    }

    /// The columns that may change, in the order of [`CHANGING`].
    fn changing(&self, now: Timestamp) -> Vec<Arg> {
        args![
            &self.subject,
            self.phase.as_str(),
            &self.reason,
            &self.message,
            self.priority,
            &self.runtime,
            &self.parent,
            self.version,
            self.started_at,
            self.finished_at,
            now,
            json!(self.labels).to_string(),
            &self.words,
        ]
    }
}

const CHANGING: &[&str] = &[
    "subject",
    "phase",
    "reason",
    "message",
    "priority",
    "runtime",
    "parent",
    "version",
    "started_at",
    "finished_at",
    "archived_at",
    "labels",
    "words",
];

async fn stored(tx: &mut Tx<'_>, uid: &str) -> Result<Option<(i64, State)>, Error> {
    let sql = "SELECT place, version, phase, finished_at FROM jangar_runs WHERE uid = $1";
    let rows = tx.rows("jangar_runs", sql, args![uid]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let phase = jangar_api::phase::RunPhase::from(row.text("phase")?.as_str());
    let state = State {
        finished: row.int_if_any("finished_at")?.is_some() || phase.is_terminal(),
        version: row.int("version")?,
    };
    Ok(Some((row.int("place")?, state)))
}

async fn free_place(tx: &mut Tx<'_>, run: &RunRecord) -> Result<i64, Error> {
    let first = place::of_run(run.created_at, &run.uid);
    let sql = "SELECT place FROM jangar_runs WHERE place >= $1 AND place < $2 ORDER BY place";
    let mut free = first;
    for row in tx
        .rows(
            "jangar_runs",
            sql,
            args![first, first.saturating_add(MAX_NEIGHBOURS)],
        )
        .await?
    {
        if row.int("place")? == free {
            free += 1;
        }
    }
    Ok(free)
}

async fn insert(tx: &mut Tx<'_>, run: &RunRecord, place: i64, now: Timestamp) -> Result<(), Error> {
    let fixed = [
        "place",
        "uid",
        "kind",
        "cluster",
        "namespace",
        "name",
        "created_at",
    ];
    let columns = [fixed.as_slice(), CHANGING].concat();
    let mut values = args![
        place,
        &run.uid,
        run.kind.as_str(),
        &run.cluster,
        &run.namespace,
        &run.name,
        run.created_at
    ];
    values.extend(run.changing(now));
    tx.insert("jangar_runs", &columns, vec![values]).await.map(drop)
}

async fn update(tx: &mut Tx<'_>, run: &RunRecord, now: Timestamp) -> Result<(), Error> {
    let assignments: Vec<String> = (2..)
        .zip(CHANGING)
        .map(|(number, column)| format!("{column} = ${number}"))
        .collect();
    let sql = format!("UPDATE jangar_runs SET {} WHERE uid = $1", assignments.join(", "));
    let mut values = args![&run.uid];
    values.extend(run.changing(now));
    tx.execute(crate::database::assembled(sql), values)
        .await
        .map(drop)
}

/// Everything beside the run itself is replaced, but for transitions, which add up.
async fn replace_parts(tx: &mut Tx<'_>, run: &RunRecord, place: i64) -> Result<(), Error> {
    for clear in [
        "DELETE FROM jangar_documents WHERE run_uid = $1",
        "DELETE FROM jangar_steps WHERE run_uid = $1",
        "DELETE FROM jangar_approvals WHERE run_uid = $1",
        "DELETE FROM jangar_cancel_receipts WHERE run_uid = $1",
        "DELETE FROM jangar_artifacts WHERE run_uid = $1",
    ] {
        tx.execute(clear, args![&run.uid]).await?;
    }
    let document = args![&run.uid, &run.document.text, run.document.cut];
    tx.insert(
        "jangar_documents",
        &["run_uid", "document", "cut"],
        vec![document],
    )
    .await?;
    write_steps(tx, run).await?;
    write_transitions(tx, run).await?;
    write_decisions(tx, run, place).await?;
    let columns = ["run_uid", "position", "name", "path", "storage_key", "url"];
    let artifacts = (0_i64..).zip(&run.artifacts);
    let rows = artifacts.map(|(position, artifact)| {
        args![
            &run.uid,
            position,
            &artifact.name,
            &artifact.path,
            &artifact.key,
            &artifact.url
        ]
    });
    tx.insert("jangar_artifacts", &columns, rows.collect())
        .await
        .map(drop)
}

async fn write_steps(tx: &mut Tx<'_>, run: &RunRecord) -> Result<(), Error> {
    let columns = [
        "run_uid",
        "position",
        "name",
        "kind",
        "phase",
        "reason",
        "message",
        "caused_by",
        "attempt",
        "started_at",
        "finished_at",
        "child",
        "child_uid",
    ];
    let rows = run.steps.iter().map(|step| {
        args![
            &run.uid,
            step.position,
            &step.name,
            &step.kind,
            step.phase.as_str(),
            &step.reason,
            &step.message,
            &step.caused_by,
            step.attempt,
            step.started_at,
            step.finished_at,
            &step.child,
            &step.child_uid,
        ]
    });
    tx.insert("jangar_steps", &columns, rows.collect())
        .await
        .map(drop)
}

async fn write_transitions(tx: &mut Tx<'_>, run: &RunRecord) -> Result<(), Error> {
    let columns = ["run_uid", "at", "subject", "what", "became", "reason", "message"];
    let rows = run.transitions.iter().map(|change| {
        args![
            &run.uid,
            change.at,
            &change.subject,
            &change.what,
            &change.became,
            &change.reason,
            &change.message
        ]
    });
    tx.insert("jangar_transitions", &columns, rows.collect())
        .await
        .map(drop)
}

async fn write_decisions(tx: &mut Tx<'_>, run: &RunRecord, place: i64) -> Result<(), Error> {
    let columns = [
        "run_uid",
        "position",
        "place",
        "step",
        "decision",
        "given_by",
        "given_groups",
        "at",
        "comment",
        "digest",
    ];
    let rows = (0_i64..).zip(&run.approvals).map(|(position, approval)| {
        args![
            &run.uid,
            position,
            place,
            &approval.step,
            &approval.decision,
            &approval.by,
            json!(approval.groups).to_string(),
            approval.at,
            &approval.comment,
            &approval.digest,
        ]
    });
    tx.insert("jangar_approvals", &columns, rows.collect()).await?;
    let columns = [
        "run_uid", "position", "step", "resource", "asked_at", "gone_at", "result",
    ];
    let rows = (0_i64..).zip(&run.cancel_receipts).map(|(position, receipt)| {
        args![
            &run.uid,
            position,
            &receipt.step,
            &receipt.resource,
            receipt.asked_at,
            receipt.gone_at,
            &receipt.result
        ]
    });
    tx.insert("jangar_cancel_receipts", &columns, rows.collect())
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(finished: bool, version: i64) -> State {
        State { finished, version }
    }

    #[test]
    fn an_end_outranks_a_version_and_a_version_outranks_an_older_one() {
        assert!(state(false, 9).yields_to(state(true, 5)));
        assert!(!state(true, 5).yields_to(state(false, 9)));
        assert!(state(true, 5).yields_to(state(true, 6)));
        assert!(!state(true, 6).yields_to(state(true, 5)));
        assert!(
            state(false, 5).yields_to(state(false, 5)),
            "the same is no step back"
        );
    }
}
