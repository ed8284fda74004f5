//! How the table of runs is asked, so that a page costs about the same whatever the filter is.
//!
//! A filter that narrows to one kind, namespace, phase and subject, or leaves some of them open, has an index that ends with the place: a page is
//! a piece of it. A filter with several values is as many such pieces, merged.
//!
//! A search with a filter could go wrong both ways: a common word with a rare filter, and a rare word with a common filter. So what
//! runs are filtered by is among the words, as marks. SQLite finds runs that have all of them in the order of lists. Postgres
//! finds them in no order; so there the list is divided into pieces of some thousand runs, each word is kept with the number of its
//! piece, and words are looked up in one piece after the other, from the newest on, until the page is full.

use std::collections::BTreeSet;

use jangar_api::phase::RunPhase;

use crate::{
    Error, Namespaces, RunFilter, RunKind,
    conditions::Conditions,
    cursor::Key,
    database::{Arg, Dialect},
    place, words,
};

/// The columns of a line, in any order.
pub(crate) const SUMMARY: &str = "uid, kind, cluster, namespace, name, subject, phase, reason, message, priority, runtime, parent, \
                                  created_at, started_at, finished_at, archived_at, labels, place";
const MAX_PHASES: usize = 16;
/// So many pieces are merged. A filter with more of them, which names many namespaces and several phases, is checked run by run.
const MAX_PIECES: usize = 64;
/// So many namespaces are looked up with the words, each in each piece. With more, the runs that have the words are checked for theirs.
const MAX_MARKED_NAMESPACES: usize = 64;

/// A statement and its values.
pub(crate) type Statement = (String, Vec<Arg>);

/// What is asked of the table of runs.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    filter: &'a RunFilter,
    after: Option<Key>,
    dialect: Dialect,
    /// The words, in the language of the database.
    text: Option<String>,
    pieces: Vec<Piece<'a>>,
}

/// A part of what is asked for that is one piece of an index. What is absent is open.
#[derive(Clone, Copy, Debug, Default)]
struct Piece<'a> {
    kind: Option<&'a str>,
    namespace: Option<&'a str>,
    phase: Option<&'a str>,
    /// Whether kinds, namespaces and phases are lists to check, because there would be too many pieces.
    checked: bool,
}

impl Piece<'_> {
    /// The index that has exactly this piece in the order of lists.
    fn index(self, has_subject: bool) -> &'static str {
        match (self.namespace.is_some(), has_subject, self.phase.is_some()) {
            (false, false, false) => "jangar_runs_of_kind",
            (false, false, true) => "jangar_runs_by_kind",
            (false, true, false) => "jangar_runs_of_subject",
            (false, true, true) => "jangar_runs_of_subject_by_phase",
            (true, false, false) => "jangar_runs_listed",
            (true, false, true) => "jangar_runs_listed_by_phase",
            (true, true, false) => "jangar_runs_listed_by_subject",
            (true, true, true) => "jangar_runs_listed_by_subject_and_phase",
        }
    }
}

impl<'a> Question<'a> {
    pub(crate) fn of(filter: &'a RunFilter, after: Option<Key>, dialect: Dialect) -> Result<Self, Error> {
        if filter.phases.len() > MAX_PHASES {
            return Err(Error::Query {
                field: "phases",
                value: filter.phases.len().to_string(),
                why: format!("at most {MAX_PHASES} can be asked for"),
            });
        }
        // Whether there are too many namespaces is told in one place.
        Conditions::new().add_namespaces("runs.namespace", &filter.namespaces)?;
        let text = filter.text.as_deref();
        Ok(Self {
            filter,
            after,
            dialect,
            text: text.map(|text| words::query(text, dialect)).transpose()?,
            pieces: pieces(filter),
        })
    }

    /// The lines of a page.
    pub(crate) fn lines(&self, limit: i64) -> Result<Statement, Error> {
        let mut conditions = Conditions::new();
        let sql = match (&self.text, self.dialect) {
            (Some(text), Dialect::Sqlite) => {
                conditions.add("jangar_run_words MATCH ?", self.with_marks(text));
                self.add_bounds(&mut conditions, "jangar_run_words.rowid");
                self.add_checks(&mut conditions)?;
                let clause = conditions.take_clause();
                let last = conditions.number(limit);
                // The words come in the order of lists, so that a page ends the search. CROSS keeps them first.
                format!(
                    "SELECT {SUMMARY} FROM jangar_run_words CROSS JOIN jangar_runs AS runs ON runs.place = jangar_run_words.rowid\
                     {clause} ORDER BY jangar_run_words.rowid DESC LIMIT {last}"
                )
            }
            (Some(text), Dialect::Postgres) => self.found_in_pieces(&mut conditions, text, limit)?,
            (None, _) => self.merged(&mut conditions, limit)?,
        };
        Ok((sql, conditions.into_args()))
    }

    /// For Postgres: looks words and marks up in one piece of the list after the other. What is before a page that is full is never
    /// looked up, as pieces come in their order and each is sorted by itself.
    fn found_in_pieces(&self, conditions: &mut Conditions, text: &str, limit: i64) -> Result<String, Error> {
        // Who sees no namespace has no mark for it, and is checked for all the same.
        let is_marked = match &self.filter.namespaces {
            Namespaces::All => true,
            Namespaces::Only(names) => (1..=MAX_MARKED_NAMESPACES).contains(&names.len()),
        };
        let (words, hole) = words::in_a_piece(text, &self.marks(is_marked));
        let (words, hole) = (conditions.number(words), conditions.number(hole));
        let mut runs = "";
        conditions.add_words(&format!(
            "words.words @@ replace({words}, {hole}, piece.number::text)::tsquery"
        ));
        self.add_bounds(conditions, "words.place");
        if !is_marked {
            runs = " JOIN jangar_runs AS runs ON runs.place = words.place";
            conditions.add_namespaces("runs.namespace", &self.filter.namespaces)?;
        }
        let within = conditions.take_clause();
        let filter = self.filter;
        conditions.add_if(
            "piece.begins >= (SELECT MAX(begins) FROM jangar_pieces WHERE begins <= ?)",
            filter.since.map(place::not_before),
        );
        conditions.add_if("piece.begins < ?", filter.until.map(place::not_before));
        conditions.add_if("piece.begins < ?", self.after.map(|Key(place, _)| place));
        let pieces = conditions.take_clause();
        let last = conditions.number(limit);
        Ok(format!(
            "WITH found AS MATERIALIZED (SELECT line.place AS found_at FROM jangar_pieces AS piece \
             CROSS JOIN LATERAL (SELECT words.place AS place FROM jangar_piece_words AS words{runs}{within}) AS line{pieces} \
             ORDER BY piece.begins DESC, line.place DESC LIMIT {last}) \
             SELECT {SUMMARY} FROM found JOIN jangar_runs AS runs ON runs.place = found.found_at ORDER BY runs.place DESC"
        ))
    }

    /// How many there are by kind and phase.
    pub(crate) fn counts(&self) -> Result<Statement, Error> {
        let mut conditions = Conditions::new();
        let mut from = "jangar_runs AS runs";
        match (&self.text, self.dialect) {
            (Some(text), Dialect::Sqlite) => {
                from =
                    "jangar_run_words CROSS JOIN jangar_runs AS runs ON runs.place = jangar_run_words.rowid";
                conditions.add("jangar_run_words MATCH ?", self.with_marks(text));
            }
            (Some(text), Dialect::Postgres) => conditions.add("runs.search @@ ?::tsquery", text),
            (None, _) => {}
        }
        self.add_bounds(&mut conditions, "runs.place");
        self.add_checks(&mut conditions)?;
        let clause = conditions.take_clause();
        // There are few kinds and phases; a table that has more is not ours.
        let last = conditions.number(1_000);
        let sql = format!(
            "SELECT runs.kind AS kind, runs.phase AS phase, COUNT(*) AS found FROM {from}{clause} \
             GROUP BY runs.kind, runs.phase ORDER BY runs.kind, runs.phase LIMIT {last}"
        );
        Ok((sql, conditions.into_args()))
    }

    /// The newest of all pieces. Each is in order and read no further than the page needs.
    fn merged(&self, conditions: &mut Conditions, limit: i64) -> Result<String, Error> {
        let names: BTreeSet<&str> = self.pieces.iter().filter_map(|piece| piece.namespace).collect();
        // Postgres takes longer to plan many pieces than to read them: so it plans one, and reads it for each namespace.
        let at_once = self.dialect == Dialect::Postgres && names.len() > 1;
        let first = names.first().copied();
        let mut parts = Vec::new();
        for piece in self
            .pieces
            .iter()
            .filter(|piece| !at_once || piece.namespace == first)
        {
            let names = at_once.then_some(&names);
            parts.push(self.part(conditions, limit, *piece, names)?);
        }
        if let [only] = parts.as_mut_slice() {
            return Ok(std::mem::take(only));
        }
        let parts = (0..).zip(parts);
        let parts: Vec<String> = parts
            .map(|(number, part): (usize, String)| format!("SELECT * FROM ({part}) AS piece_{number}"))
            .collect();
        let last = conditions.number(limit);
        Ok(format!(
            "SELECT * FROM ({}) AS pieces ORDER BY place DESC LIMIT {last}",
            parts.join(" UNION ALL ")
        ))
    }

    /// The newest of a piece, or of its like in each of several namespaces.
    fn part(
        &self,
        conditions: &mut Conditions,
        limit: i64,
        piece: Piece<'_>,
        names: Option<&BTreeSet<&str>>,
    ) -> Result<String, Error> {
        let rows: Vec<String> = names
            .into_iter()
            .flatten()
            .map(|name| format!("({}::text)", conditions.number(*name)))
            .collect();
        // SQLite takes a piece of time for smaller than it is. Postgres knows better, and has no such words.
        let mut by = String::new();
        if piece.checked {
            self.add_checks(conditions)?;
        } else {
            if self.dialect == Dialect::Sqlite {
                by = format!(" INDEXED BY {}", piece.index(self.filter.subject.is_some()));
            }
            conditions.add_if("runs.kind = ?", piece.kind);
            if rows.is_empty() {
                conditions.add_if("runs.namespace = ?", piece.namespace);
            } else {
                conditions.add_words("runs.namespace = one.name");
            }
            conditions.add_if("runs.phase = ?", piece.phase);
            self.add_names(conditions);
        }
        self.add_bounds(conditions, "runs.place");
        let clause = conditions.take_clause();
        let last = conditions.number(limit);
        let newest = format!(
            "SELECT {SUMMARY} FROM jangar_runs AS runs{by}{clause} ORDER BY runs.place DESC LIMIT {last}"
        );
        if rows.is_empty() {
            return Ok(newest);
        }
        let last = conditions.number(limit);
        Ok(format!(
            "SELECT line.* FROM (VALUES {}) AS one (name) CROSS JOIN LATERAL ({newest}) AS line \
             ORDER BY line.place DESC LIMIT {last}",
            rows.join(", ")
        ))
    }

    fn add_bounds(&self, conditions: &mut Conditions, key: &str) {
        let filter = self.filter;
        conditions.add_if(&format!("{key} >= ?"), filter.since.map(place::not_before));
        conditions.add_if(&format!("{key} < ?"), filter.until.map(place::not_before));
        conditions.add_if(&format!("{key} < ?"), self.after.map(|Key(place, _)| place));
    }

    fn add_names(&self, conditions: &mut Conditions) {
        conditions.add_if("runs.subject = ?", self.filter.subject.as_deref());
        conditions.add_if("runs.parent = ?", self.filter.parent.as_deref());
    }

    /// All that a run is filtered by, to be checked run by run.
    fn add_checks(&self, conditions: &mut Conditions) -> Result<(), Error> {
        conditions.add_namespaces("runs.namespace", &self.filter.namespaces)?;
        conditions.add_if("runs.kind = ?", self.filter.kind.map(RunKind::as_str));
        if !self.filter.phases.is_empty() {
            conditions.add_any("runs.phase", self.filter.phases.iter().map(RunPhase::as_str));
        }
        self.add_names(conditions);
        Ok(())
    }

    /// The words, and the marks of the filter.
    fn with_marks(&self, text: &str) -> String {
        let marks = self.marks(true).into_iter();
        let any = marks.map(|marks| format!("({})", marks.join(words::or(self.dialect))));
        let all: Vec<String> = std::iter::once(text.to_owned()).chain(any).collect();
        all.join(words::and(self.dialect))
    }

    /// The marks of the filter: of each of these, one has to be there.
    fn marks(&self, with_namespaces: bool) -> Vec<Vec<String>> {
        let filter = self.filter;
        let mut all = Vec::new();
        let mut add = |letter: char, values: Vec<&str>| {
            let marks = values
                .iter()
                .map(|value| words::mark(letter, value, self.dialect));
            let marks: Vec<String> = marks.collect();
            if !marks.is_empty() {
                all.push(marks);
            }
        };
        add('k', filter.kind.map(RunKind::as_str).into_iter().collect());
        if let (Namespaces::Only(names), true) = (&filter.namespaces, with_namespaces) {
            add('n', names.iter().map(String::as_str).collect());
        }
        add('p', filter.phases.iter().map(RunPhase::as_str).collect());
        add('s', filter.subject.as_deref().into_iter().collect());
        add('r', filter.parent.as_deref().into_iter().collect());
        all
    }
}

fn pieces(filter: &RunFilter) -> Vec<Piece<'_>> {
    let checked = vec![Piece {
        checked: true,
        ..Piece::default()
    }];
    let namespaces: Option<BTreeSet<&str>> = match &filter.namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(names.iter().map(String::as_str).collect()),
    };
    let phases: BTreeSet<&str> = filter.phases.iter().map(RunPhase::as_str).collect();
    let is_open =
        namespaces.is_none() && phases.is_empty() && filter.subject.is_none() && filter.kind.is_none();
    // What has a parent is as many as that had steps.
    if is_open || filter.parent.is_some() || namespaces.as_ref().is_some_and(BTreeSet::is_empty) {
        return checked;
    }
    let kinds = filter.kind.as_ref().map_or(RunKind::ALL, std::slice::from_ref);
    // An open namespace or phase is one piece, as one that is given.
    let namespaces: Vec<Option<&str>> =
        namespaces.map_or(vec![None], |names| names.into_iter().map(Some).collect());
    let phases: Vec<Option<&str>> = if phases.is_empty() {
        vec![None]
    } else {
        phases.into_iter().map(Some).collect()
    };
    if kinds.len() * namespaces.len() * phases.len() > MAX_PIECES {
        return checked;
    }
    let mut pieces = Vec::new();
    for kind in kinds {
        for namespace in &namespaces {
            pieces.extend(phases.iter().map(|phase| Piece {
                kind: Some(kind.as_str()),
                namespace: *namespace,
                phase: *phase,
                checked: false,
            }));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::conditions::MAX_NAMESPACES;

    fn only(names: &[&str]) -> Namespaces {
        Namespaces::Only(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn sql_of(filter: &RunFilter, dialect: Dialect) -> String {
        let question = Question::of(filter, Some(Key(7, 0)), dialect).expect("a question");
        let (sql, args) = question.lines(51).expect("a statement");
        let numbers = sql.matches('$').count();
        assert_eq!(numbers, args.len(), "{sql}");
        sql
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
        let all = sql_of(&RunFilter::default(), Dialect::Postgres);
        assert!(
            all.ends_with(
                " FROM jangar_runs AS runs WHERE runs.place < $1 ORDER BY runs.place DESC LIMIT $2"
            ),
            "{all}"
        );
        let text = RunFilter {
            text: Some("login".to_owned()),
            ..RunFilter::default()
        };
        assert!(sql_of(&text, Dialect::Sqlite).ends_with("ORDER BY jangar_run_words.rowid DESC LIMIT $3"));
        let sql = sql_of(&text, Dialect::Postgres);
        assert!(
            sql.contains("words.place < $3") && sql.contains("piece.begins < $4"),
            "{sql}"
        );
    }

    #[test]
    fn a_caller_who_sees_no_namespace_sees_nothing() {
        for text in [None, Some("login".to_owned())] {
            let filter = RunFilter {
                namespaces: Namespaces::Only(Vec::new()),
                text,
                ..RunFilter::default()
            };
            for dialect in [Dialect::Postgres, Dialect::Sqlite] {
                assert!(sql_of(&filter, dialect).contains("1 = 0"));
            }
        }
    }

    #[test]
    fn namespaces_that_are_too_many_to_look_up_are_checked() {
        let names = |count: usize| Namespaces::Only((0..count).map(|number| number.to_string()).collect());
        let checked = |count| {
            let filter = RunFilter {
                namespaces: names(count),
                text: Some("login".to_owned()),
                ..RunFilter::default()
            };
            sql_of(&filter, Dialect::Postgres).contains("runs.namespace IN (")
        };
        assert!(!checked(MAX_MARKED_NAMESPACES) && checked(MAX_MARKED_NAMESPACES + 1));
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

    #[test]
    fn several_values_are_as_many_pieces_of_an_index() {
        let filter = RunFilter {
            namespaces: only(&["a", "b", "a"]),
            phases: vec![RunPhase::Failed, RunPhase::Cancelled],
            kind: Some(RunKind::AgentRun),
            ..RunFilter::default()
        };
        let sql = sql_of(&filter, Dialect::Sqlite);
        let piece = "WHERE runs.kind = $1 AND runs.namespace = $2 AND runs.phase = $3 AND runs.place < $4 \
                     ORDER BY runs.place DESC LIMIT $5";
        assert!(sql.contains(piece), "{sql}");
        assert_eq!(sql.matches("FROM jangar_runs AS runs").count(), 4, "{sql}");
        let sql = sql_of(&filter, Dialect::Postgres);
        let piece = "FROM (VALUES ($1::text), ($2::text)) AS one (name) CROSS JOIN LATERAL";
        assert!(sql.contains(piece), "{sql}");
        assert_eq!(sql.matches("runs.namespace = one.name").count(), 2, "{sql}");
    }

    #[test]
    fn sqlite_is_told_which_index_has_the_piece() {
        let filter = RunFilter {
            namespaces: only(&["a"]),
            phases: vec![RunPhase::Failed],
            kind: Some(RunKind::AgentRun),
            since: Some(jiff::Timestamp::UNIX_EPOCH),
            ..RunFilter::default()
        };
        let by = " INDEXED BY jangar_runs_listed_by_phase WHERE";
        assert!(sql_of(&filter, Dialect::Sqlite).contains(by));
        assert!(!sql_of(&filter, Dialect::Postgres).contains("INDEXED"));
    }

    #[test]
    fn without_a_kind_all_kinds_are_pieces() {
        let filter = RunFilter {
            subject: Some("coder".to_owned()),
            ..RunFilter::default()
        };
        let sql = sql_of(&filter, Dialect::Sqlite);
        assert_eq!(sql.matches("runs.kind = $").count(), RunKind::ALL.len(), "{sql}");
    }

    #[test]
    fn too_many_pieces_are_checked_run_by_run() {
        let names: Vec<String> = (0..=MAX_PIECES).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let filter = RunFilter {
            namespaces: only(&names),
            ..RunFilter::default()
        };
        let sql = sql_of(&filter, Dialect::Postgres);
        assert!(
            sql.contains("runs.namespace IN (") && !sql.contains("UNION"),
            "{sql}"
        );
    }

    #[test]
    fn a_search_looks_the_filter_up_with_the_words() {
        let filter = RunFilter {
            text: Some("login".to_owned()),
            subject: Some("a".to_owned()),
            phases: vec![RunPhase::Failed, RunPhase::Cancelled],
            ..RunFilter::default()
        };
        let marks = |dialect| {
            let question = Question::of(&filter, None, dialect).expect("a question");
            question.with_marks(question.text.as_deref().expect("words"))
        };
        assert_eq!(
            marks(Dialect::Postgres),
            "'login':* & ('§pFailed' | '§pCancelled') & ('§sa')"
        );
        assert_eq!(
            marks(Dialect::Sqlite),
            r#""login"* AND ("§p4661696c6564" OR "§p43616e63656c6c6564") AND ("§s61")"#
        );
    }
}
