//! Reading what stands beside a run: its steps, transitions, decisions, receipts and artifacts.

use jangar_api::phase::StepPhase;

use crate::{
    Approval, ArtifactReference, CancelReceipt, Error, Step, Store, Transition,
    database::{Row, args},
};

/// The rows of a run in one of the tables.
macro_rules! of_run {
    ($store:ident, $uid:ident, $doing:literal, $table:literal, $order:literal, $read:expr) => {{
        let sql = concat!("SELECT * FROM ", $table, " WHERE run_uid = $1 ORDER BY ", $order);
        let rows = $store
            .prepared()
            .await?
            .rows($doing, $table, sql, args![$uid])
            .await?;
        rows.iter().map($read).collect()
    }};
}

impl Store {
    /// The steps of a run, in the order of its spec.
    pub async fn steps(&self, uid: &str) -> Result<Vec<Step>, Error> {
        of_run!(
            self,
            uid,
            "reading the steps of a run",
            "jangar_steps",
            "position",
            step
        )
    }

    /// What changed in a run and when.
    pub async fn transitions(&self, uid: &str) -> Result<Vec<Transition>, Error> {
        of_run!(
            self,
            uid,
            "reading what changed in a run",
            "jangar_transitions",
            "at, subject, what",
            transition
        )
    }

    /// The decisions about the gates of a run.
    pub async fn approvals_of(&self, uid: &str) -> Result<Vec<Approval>, Error> {
        of_run!(
            self,
            uid,
            "reading the approvals of a run",
            "jangar_approvals",
            "position",
            approval
        )
    }

    /// What became of the children of a run that was cancelled.
    pub async fn cancel_receipts(&self, uid: &str) -> Result<Vec<CancelReceipt>, Error> {
        of_run!(
            self,
            uid,
            "reading the cancel receipts of a run",
            "jangar_cancel_receipts",
            "position",
            receipt
        )
    }

    /// Where what a run left behind is.
    pub async fn artifacts(&self, uid: &str) -> Result<Vec<ArtifactReference>, Error> {
        of_run!(
            self,
            uid,
            "reading the artifacts of a run",
            "jangar_artifacts",
            "position",
            artifact
        )
    }
}

fn step(row: &Row) -> Result<Step, Error> {
    Ok(Step {
        position: row.int("position")?,
        name: row.text("name")?,
        kind: row.text_if_any("kind")?,
        phase: StepPhase::from(row.text("phase")?.as_str()),
        reason: row.text_if_any("reason")?,
        message: row.text_if_any("message")?,
        caused_by: row.text_if_any("caused_by")?,
        attempt: row.int_if_any("attempt")?,
        started_at: row.time_if_any("started_at")?,
        finished_at: row.time_if_any("finished_at")?,
        child: row.text_if_any("child")?,
        child_uid: row.text_if_any("child_uid")?,
    })
}

fn transition(row: &Row) -> Result<Transition, Error> {
    Ok(Transition {
        at: row.time("at")?,
        subject: row.text("subject")?,
        what: row.text("what")?,
        became: row.text("became")?,
        reason: row.text("reason")?,
        message: row.text("message")?,
    })
}

pub(crate) fn approval(row: &Row) -> Result<Approval, Error> {
    Ok(Approval {
        step: row.text("step")?,
        decision: row.text("decision")?,
        by: row.text("given_by")?,
        groups: row.json("given_groups")?,
        at: row.time_if_any("at")?,
        comment: row.text_if_any("comment")?,
        digest: row.text("digest")?,
    })
}

fn receipt(row: &Row) -> Result<CancelReceipt, Error> {
    Ok(CancelReceipt {
        step: row.text("step")?,
        resource: row.text_if_any("resource")?,
        asked_at: row.time_if_any("asked_at")?,
        gone_at: row.time_if_any("gone_at")?,
        result: row.text_if_any("result")?,
    })
}

fn artifact(row: &Row) -> Result<ArtifactReference, Error> {
    Ok(ArtifactReference {
        name: row.text("name")?,
        path: row.text_if_any("path")?,
        key: row.text_if_any("storage_key")?,
        url: row.text_if_any("url")?,
    })
}
