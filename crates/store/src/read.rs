//! Reading runs: one, a page of a list, a count.

use std::str::FromStr;

use jangar_api::phase::RunPhase;
use jiff::Timestamp;

use crate::{
    Error, Page, PageRequest, Run, RunKind, RunPage, RunSummary, Store,
    cursor::{Key, List, Paging},
    database::{Arg, Row, args, assembled},
    question::{Question, SUMMARY},
};

const TABLE: &str = "jangar_runs";
const LISTING: &str = "listing runs";
/// What somebody who asks why a run failed looks at first.
const FAILED_FIRST: &str = "CASE phase WHEN 'Failed' THEN 0 WHEN 'Cancelled' THEN 1 ELSE 2 END";

/// Which namespaces a caller sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    #[default]
    All,
    /// These, and nothing if there are none.
    Only(Vec<String>),
}

/// Which runs of a list are wanted. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    pub namespaces: Namespaces,
    pub kind: Option<RunKind>,
    /// Any of these; none means whatever phase.
    pub phases: Vec<RunPhase>,
    /// Name of the Agent, Orchestration or Tool.
    pub subject: Option<String>,
    /// UID of the OrchestrationRun whose steps they were.
    pub parent: Option<String>,
    /// Words that all have to be there. From three letters on, the beginning of a word is enough.
    pub text: Option<String>,
    /// Created then or later.
    pub since: Option<Timestamp>,
    /// Created before then.
    pub until: Option<Timestamp>,
}

/// How many runs of a kind are in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseCount {
    pub kind: RunKind,
    pub phase: RunPhase,
    pub count: u64,
}

impl Store {
    /// A run by its UID.
    pub async fn run(&self, uid: &str) -> Result<Option<Run>, Error> {
        self.one("runs.uid = $1", args![uid]).await
    }

    /// The latest run of that name: names are used again.
    pub async fn run_named(
        &self,
        kind: Option<RunKind>,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Run>, Error> {
        let named = "runs.namespace = $1 AND runs.name = $2";
        match kind {
            Some(kind) => {
                let condition = format!("{named} AND runs.kind = $3");
                self.one(&condition, args![namespace, name, kind.as_str()]).await
            }
            None => self.one(named, args![namespace, name]).await,
        }
    }

    async fn one(&self, condition: &str, args: Vec<Arg>) -> Result<Option<Run>, Error> {
        let sql = format!(
            "SELECT {SUMMARY}, document, cut FROM jangar_runs AS runs JOIN jangar_documents ON run_uid = uid \
             WHERE {condition} ORDER BY place DESC LIMIT 1"
        );
        let rows = self
            .prepared()
            .await?
            .rows("reading a run", TABLE, assembled(sql), args)
            .await?;
        rows.first().map(run).transpose()
    }

    /// The runs that did the work of a run's steps: those that failed first, then those that were cancelled, the latest creation
    /// first among the like. Not more than `most`, and whether there are others.
    pub async fn children(
        &self,
        namespace: &str,
        parent: &str,
        most: u32,
    ) -> Result<(Vec<Run>, bool), Error> {
        // Which ones is told before their documents are read: those are long.
        let sql = format!(
            "SELECT {SUMMARY}, document, cut FROM (SELECT *, {FAILED_FIRST} AS urgency FROM jangar_runs WHERE parent = $1 \
             AND namespace = $2 ORDER BY urgency, place DESC LIMIT $3) AS runs JOIN jangar_documents ON run_uid = uid ORDER BY urgency, place DESC"
        );
        let args = args![parent, namespace, i64::from(most) + 1];
        let database = self.prepared().await?;
        let rows = database
            .rows("reading the runs of steps", TABLE, assembled(sql), args)
            .await?;
        let mut children = rows.iter().map(run).collect::<Result<Vec<Run>, Error>>()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let more = children.len() > most;
        children.truncate(most);
        Ok((children, more))
    }

    /// All that is remembered of a run, but for the texts of its logs.
    pub async fn page(&self, uid: &str) -> Result<Option<RunPage>, Error> {
        let Some(run) = self.run(uid).await? else {
            return Ok(None);
        };
        Ok(Some(RunPage {
            steps: self.steps(uid).await?,
            transitions: self.transitions(uid).await?,
            approvals: self.approvals_of(uid).await?,
            cancel_receipts: self.cancel_receipts(uid).await?,
            artifacts: self.artifacts(uid).await?,
            logs: self.log_tails(uid).await?,
            run,
        }))
    }

    /// A page of the runs that the filter takes, the latest creation first.
    pub async fn runs(&self, filter: &RunFilter, page: &PageRequest) -> Result<Page<RunSummary>, Error> {
        let paging = Paging::new(List::Runs, &format!("{filter:?}"), page)?;
        let database = self.prepared().await?;
        let question = Question::of(filter, paging.after, database.dialect())?;
        let (sql, args) = question.lines(paging.rows())?;
        let rows = database.rows(LISTING, TABLE, assembled(sql), args).await?;
        let line = |row: &Row| Ok((Key(row.int("place")?, 0), summary(row)?));
        Ok(paging.page(rows.iter().map(line).collect::<Result<_, Error>>()?))
    }

    /// How many runs the filter takes, by kind and phase. Those with none are left out.
    pub async fn counts(&self, filter: &RunFilter) -> Result<Vec<PhaseCount>, Error> {
        let database = self.prepared().await?;
        let question = Question::of(filter, None, database.dialect())?;
        let (sql, args) = question.counts()?;
        let rows = database
            .rows("counting runs", TABLE, assembled(sql), args)
            .await?;
        let count = |row: &Row| {
            Ok(PhaseCount {
                kind: kind(row)?,
                phase: RunPhase::from(row.text("phase")?.as_str()),
                count: u64::try_from(row.int("found")?).unwrap_or_default(),
            })
        };
        rows.iter().map(count).collect()
    }
}

fn run(row: &Row) -> Result<Run, Error> {
    Ok(Run {
        summary: summary(row)?,
        document: row.json("document")?,
        document_cut: row.flag("cut")?,
    })
}

fn kind(row: &Row) -> Result<RunKind, Error> {
    let text = row.text("kind")?;
    RunKind::from_str(&text).map_err(|_| row.unreadable("kind", format!("{text:?} is no kind of runs")))
}

fn summary(row: &Row) -> Result<RunSummary, Error> {
    Ok(RunSummary {
        uid: row.text("uid")?,
        kind: kind(row)?,
        cluster: row.text("cluster")?,
        namespace: row.text("namespace")?,
        name: row.text("name")?,
        subject: row.text("subject")?,
        phase: RunPhase::from(row.text("phase")?.as_str()),
        reason: row.text_if_any("reason")?,
        message: row.text_if_any("message")?,
        priority: row.int("priority")?,
        runtime: row.text_if_any("runtime")?,
        parent: row.text_if_any("parent")?,
        created_at: row.time("created_at")?,
        started_at: row.time_if_any("started_at")?,
        finished_at: row.time_if_any("finished_at")?,
        archived_at: row.time("archived_at")?,
        labels: row.json("labels")?,
    })
}
