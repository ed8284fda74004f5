//! Reading runs: one, a page of a list, a count.

use std::str::FromStr;

use jangar_api::phase::RunPhase;
use jiff::Timestamp;

use crate::{
    Error, Page, PageRequest, Run, RunKind, RunPage, RunSummary, Store,
    cursor::{Key, List, Paging},
    database::{Arg, Dialect, Row, args, assembled},
    place, words,
};

const TABLE: &str = "jangar_runs";
/// The columns of a line, in any order.
const SUMMARY: &str = "uid, kind, cluster, namespace, name, subject, phase, reason, message, priority, runtime, parent, \
                       created_at, started_at, finished_at, archived_at, labels, place";
/// A caller who may see so many namespaces by name asks for all of them or for one.
const MAX_NAMESPACES: usize = 500;
const MAX_PHASES: usize = 16;

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
        let run = |row: &Row| {
            Ok(Run {
                summary: summary(row)?,
                document: row.json("document")?,
                document_cut: row.flag("cut")?,
            })
        };
        rows.first().map(run).transpose()
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
        let (sql, args) = question.lines(paging.rows());
        let rows = database.rows("listing runs", TABLE, assembled(sql), args).await?;
        let line = |row: &Row| Ok((Key(row.int("place")?, 0), summary(row)?));
        Ok(paging.page(rows.iter().map(line).collect::<Result<_, Error>>()?))
    }

    /// How many runs the filter takes, by kind and phase. Those with none are left out.
    pub async fn counts(&self, filter: &RunFilter) -> Result<Vec<PhaseCount>, Error> {
        let database = self.prepared().await?;
        let question = Question::of(filter, None, database.dialect())?;
        let (sql, args) = question.counts();
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

/// Conditions of a query, put together from fixed words; whatever callers say is a parameter.
#[derive(Debug)]
pub(crate) struct Conditions {
    conditions: Vec<String>,
    args: Vec<Arg>,
}

impl Conditions {
    pub(crate) fn new() -> Self {
        Self {
            conditions: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Adds `what` with the value in place of its `?`.
    pub(crate) fn add(&mut self, what: &str, value: impl Into<Arg>) {
        self.args.push(value.into());
        self.conditions
            .push(what.replace('?', &format!("${}", self.args.len())));
    }

    /// Adds `what` with two values in place of its `?1` and `?2`.
    pub(crate) fn add_both(&mut self, what: &str, first: i64, second: i64) {
        self.args.extend([Arg::from(first), Arg::from(second)]);
        let last = self.args.len();
        let what = what.replace("?1", &format!("${}", last - 1));
        self.conditions.push(what.replace("?2", &format!("${last}")));
    }

    pub(crate) fn add_if<T: Into<Arg>>(&mut self, what: &str, value: Option<T>) {
        if let Some(value) = value {
            self.add(what, value);
        }
    }

    /// Adds that a column has one of these values. Without any, nothing has.
    pub(crate) fn add_any<'a>(&mut self, column: &str, values: impl Iterator<Item = &'a str>) {
        let mut numbers = Vec::new();
        for value in values {
            self.args.push(value.into());
            numbers.push(format!("${}", self.args.len()));
        }
        self.conditions.push(if numbers.is_empty() {
            "1 = 0".to_owned()
        } else {
            format!("{column} IN ({})", numbers.join(", "))
        });
    }

    pub(crate) fn add_namespaces(&mut self, column: &str, namespaces: &Namespaces) -> Result<(), Error> {
        match namespaces {
            Namespaces::All => {}
            Namespaces::Only(names) if names.len() > MAX_NAMESPACES => {
                return Err(Error::Query {
                    field: "namespaces",
                    value: names.len().to_string(),
                    why: format!(
                        "at most {MAX_NAMESPACES} can be asked for by name; ask for one, or for all"
                    ),
                });
            }
            Namespaces::Only(names) => self.add_any(column, names.iter().map(String::as_str)),
        }
        Ok(())
    }

    /// The WHERE clause, if there is anything to say in it.
    pub(crate) fn clause(&self) -> String {
        if self.conditions.is_empty() {
            return String::new();
        }
        format!(" WHERE {}", self.conditions.join(" AND "))
    }

    /// Adds a last value, for a LIMIT, and says its number.
    pub(crate) fn finish(mut self, last: i64) -> (String, Vec<Arg>) {
        self.args.push(last.into());
        (format!("${}", self.args.len()), self.args)
    }
}

/// What is asked of the table of runs.
#[derive(Debug)]
struct Question {
    from: &'static str,
    /// The column that orders lines, as the planner likes to see it.
    key: &'static str,
    conditions: Conditions,
}

impl Question {
    fn of(filter: &RunFilter, after: Option<Key>, dialect: Dialect) -> Result<Self, Error> {
        let mut conditions = Conditions::new();
        let mut from = "jangar_runs AS runs";
        let mut key = "runs.place";
        if let Some(text) = &filter.text {
            let query = words::query(text, dialect)?;
            match dialect {
                Dialect::Postgres => conditions.add("runs.search @@ ?::tsquery", query),
                Dialect::Sqlite => {
                    // The words come in the order of lists, so that a page ends the search. CROSS keeps them first.
                    from = "jangar_run_words CROSS JOIN jangar_runs AS runs ON runs.place = jangar_run_words.rowid";
                    key = "jangar_run_words.rowid";
                    conditions.add("jangar_run_words MATCH ?", query);
                }
            }
        }
        conditions.add_namespaces("runs.namespace", &filter.namespaces)?;
        conditions.add_if("runs.kind = ?", filter.kind.map(RunKind::as_str));
        if filter.phases.len() > MAX_PHASES {
            return Err(Error::Query {
                field: "phases",
                value: filter.phases.len().to_string(),
                why: format!("at most {MAX_PHASES} can be asked for"),
            });
        }
        if !filter.phases.is_empty() {
            conditions.add_any("runs.phase", filter.phases.iter().map(RunPhase::as_str));
        }
        conditions.add_if("runs.subject = ?", filter.subject.as_deref());
        conditions.add_if("runs.parent = ?", filter.parent.as_deref());
        conditions.add_if(&format!("{key} >= ?"), filter.since.map(place::not_before));
        conditions.add_if(&format!("{key} < ?"), filter.until.map(place::not_before));
        conditions.add_if(&format!("{key} < ?"), after.map(|Key(place, _)| place));
        Ok(Self {
            from,
            key,
            conditions,
        })
    }

    fn lines(self, limit: i64) -> (String, Vec<Arg>) {
        let Self {
            from,
            key,
            conditions,
        } = self;
        let clause = conditions.clause();
        let (last, args) = conditions.finish(limit);
        (
            format!("SELECT {SUMMARY} FROM {from}{clause} ORDER BY {key} DESC LIMIT {last}"),
            args,
        )
    }

    fn counts(self) -> (String, Vec<Arg>) {
        let Self { from, conditions, .. } = self;
        let clause = conditions.clause();
        // There are few kinds and phases; a table that has more is not ours.
        let (last, args) = conditions.finish(1_000);
        let sql = format!(
            "SELECT runs.kind AS kind, runs.phase AS phase, COUNT(*) AS found FROM {from}{clause} \
             GROUP BY runs.kind, runs.phase ORDER BY runs.kind, runs.phase LIMIT {last}"
        );
        (sql, args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql_of(filter: &RunFilter, dialect: Dialect) -> String {
        let question = Question::of(filter, Some(Key(7, 0)), dialect).expect("a question");
        let (sql, args) = question.lines(51);
        let numbers = sql.matches('$').count();
        assert_eq!(numbers, args.len(), "{sql}");
        sql.split_once(" FROM ").expect("a table").1.to_owned()
    }

    #[test]
    fn what_callers_say_never_becomes_sql() {
        let evil = "x'; DROP TABLE jangar_runs; --";
        let filter = RunFilter {
            namespaces: Namespaces::Only(vec![evil.to_owned()]),
            phases: vec![RunPhase::from(evil)],
            subject: Some(evil.to_owned()),
            text: Some(evil.to_owned()),
            ..RunFilter::default()
        };
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            assert!(!sql_of(&filter, dialect).contains("DROP"));
        }
    }

    #[test]
    fn a_page_is_found_by_key() {
        assert_eq!(
            sql_of(&RunFilter::default(), Dialect::Postgres),
            "jangar_runs AS runs WHERE runs.place < $1 ORDER BY runs.place DESC LIMIT $2"
        );
        let text = RunFilter {
            text: Some("login".to_owned()),
            ..RunFilter::default()
        };
        assert!(sql_of(&text, Dialect::Sqlite).ends_with("ORDER BY jangar_run_words.rowid DESC LIMIT $3"));
        assert!(sql_of(&text, Dialect::Postgres).contains("runs.search @@ $1::tsquery"));
    }

    #[test]
    fn a_caller_who_sees_no_namespace_sees_nothing() {
        let filter = RunFilter {
            namespaces: Namespaces::Only(Vec::new()),
            ..RunFilter::default()
        };
        assert!(sql_of(&filter, Dialect::Sqlite).contains("1 = 0"));
    }

    #[test]
    fn too_many_namespaces_are_told() {
        let filter = RunFilter {
            namespaces: Namespaces::Only(vec!["x".to_owned(); MAX_NAMESPACES + 1]),
            ..RunFilter::default()
        };
        let error = Question::of(&filter, None, Dialect::Sqlite).expect_err("too many");
        assert!(
            error.is_bad_request() && error.to_string().contains("at most 500"),
            "{error}"
        );
    }
}
