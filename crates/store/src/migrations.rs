//! How the schema gets to where this version needs it: forward only, one step at a time, each remembered in a ledger.
//!
//! The ledger is read before anything is touched. What it has must be what this version has, by name and by content: an entry
//! that was changed, or one that only a later version knows and that does not say that this version can go on, stops here with its
//! name. All steps that are missing are taken in
//! one transaction under a lock, so that of several processes one does it, the others find it done, and a crash leaves nothing
//! half done.
//!
//! A step has to leave the schema usable for the version before it, which goes on running during a rolling upgrade, and may start
//! anew in it: it adds tables, indexes and columns that may be empty, and takes nothing away. `usable_by` says so in the ledger.

use std::{fmt::Write as _, time::Duration};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::{
    Error,
    database::{Database, Dialect, Row, Tx, args},
};

/// The table of the steps that were taken.
const LEDGER: &str = "jangar_migrations";
/// Steps on a large history take their time; so does waiting for another process that takes them. What is cut off begins anew
/// and would never end, so this is only for a database that has stopped answering.
const LIMIT: Duration = Duration::from_hours(6);
/// The number of the lock in Postgres: any that nobody else in that database uses.
const LOCK: i64 = 0x6a61_6e67_6172_0001;
const DOING: &str = "preparing the schema";

/// Whether the schema is brought up to date or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Auto,
    Skip,
}

/// One step, in the words of both databases.
struct Migration {
    number: i64,
    name: &'static str,
    /// The number of the last step that a version has to know in order to use the schema after this one.
    usable_by: i64,
    postgres: &'static str,
    sqlite: &'static str,
}

/// All steps, in their order. What was released is never changed: the next step is a new entry.
const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "history",
        usable_by: 1,
        postgres: include_str!("../migrations/postgres/0001_history.sql"),
        sqlite: include_str!("../migrations/sqlite/0001_history.sql"),
    },
    Migration {
        number: 2,
        name: "lists",
        usable_by: 1,
        postgres: include_str!("../migrations/postgres/0002_lists.sql"),
        sqlite: include_str!("../migrations/sqlite/0002_lists.sql"),
    },
    Migration {
        number: 3,
        name: "questions",
        // Triggers and the database itself keep what is new up to date, whoever writes.
        usable_by: 1,
        postgres: include_str!("../migrations/postgres/0003_questions.sql"),
        sqlite: include_str!("../migrations/sqlite/0003_questions.sql"),
    },
    Migration {
        number: 4,
        name: "pieces",
        // Triggers put the runs into pieces, whoever writes.
        usable_by: 1,
        postgres: include_str!("../migrations/postgres/0004_pieces.sql"),
        sqlite: include_str!("../migrations/sqlite/0004_pieces.sql"),
    },
];
/// From this step on the ledger has the column `usable_by`.
const TELLS_WHO_CAN_USE_IT: i64 = 2;

impl Migration {
    fn script(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Postgres => self.postgres,
            Dialect::Sqlite => self.sqlite,
        }
    }
}

/// A step as the ledger names it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    number: i64,
    name: String,
    checksum: String,
    /// Absent: nobody said.
    usable_by: Option<i64>,
}

/// Brings the schema to where this version needs it, or says why not. Returns the number of the last step.
pub(crate) async fn prepare(database: &Database) -> Result<i64, Error> {
    let known = known(database.dialect());
    let last = known.last().map_or(0, |entry| entry.number);
    let misfit = |why| Error::Ledger {
        place: database.config().place().to_owned(),
        why,
    };
    database.opened(DOING).await?;
    // Nearly always everything is there, which takes no lock to see.
    let found = read_ledger(database).await?;
    let missing = missing(&known, &found, database.config().migrations).map_err(misfit)?;
    if missing.is_empty() {
        return Ok(last);
    }
    if database.config().migrations == Mode::Skip {
        return Err(misfit(format!(
            "JANGAR_MIGRATIONS is skip, and it lacks {}; start one process with JANGAR_MIGRATIONS=auto",
            named(&missing)
        )));
    }
    let mut tx = database.begin(DOING, LIMIT).await?;
    if database.dialect() == Dialect::Postgres {
        // The limit of a single statement is for requests. This one is the transaction's.
        tx.execute("SET LOCAL statement_timeout = 0", args![]).await?;
    }
    tx.lock(LOCK).await?;
    let found = read_ledger_within(&mut tx, database.dialect()).await?;
    let missing = self::missing(&known, &found, Mode::Auto).map_err(misfit)?;
    for entry in &missing {
        take(&mut tx, database.dialect(), entry).await?;
    }
    tx.commit().await?;
    if !missing.is_empty() {
        tracing::info!(
            database = database.config().place(),
            steps = named(&missing),
            "brought the schema up to date"
        );
    }
    Ok(last)
}

async fn take(tx: &mut Tx<'_>, dialect: Dialect, entry: &Entry) -> Result<(), Error> {
    let script = MIGRATIONS
        .iter()
        .find(|migration| migration.number == entry.number);
    if entry.number == 1 {
        tx.run_script(
            "CREATE TABLE jangar_migrations \
             (number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)",
        )
        .await?;
    }
    if let Some(migration) = script {
        tx.run_script(migration.script(dialect)).await?;
    }
    let now = Timestamp::now();
    if entry.number < TELLS_WHO_CAN_USE_IT {
        let sql =
            "INSERT INTO jangar_migrations (number, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";
        let args = args![entry.number, &entry.name, &entry.checksum, now];
        return tx.execute(sql, args).await.map(drop);
    }
    let sql = "INSERT INTO jangar_migrations (number, name, checksum, applied_at, usable_by) \
               VALUES ($1, $2, $3, $4, $5)";
    let args = args![entry.number, &entry.name, &entry.checksum, now, entry.usable_by];
    tx.execute(sql, args).await.map(drop)
}

/// What this version has, with the checksums of the words that are used on this database.
fn known(dialect: Dialect) -> Vec<Entry> {
    let entry = |migration: &Migration| Entry {
        number: migration.number,
        name: migration.name.to_owned(),
        checksum: checksum(migration.script(dialect)),
        usable_by: Some(migration.usable_by),
    };
    MIGRATIONS.iter().map(entry).collect()
}

fn checksum(script: &str) -> String {
    // Line ends may differ between checkouts; what they end does not.
    let mut hash = Sha256::new();
    for line in script.lines() {
        hash.update(line.trim_end());
        hash.update("\n");
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _always = write!(text, "{byte:02x}");
        text
    })
}

/// Which steps are still to be taken, or what in the ledger does not fit.
fn missing(known: &[Entry], found: &[Entry], mode: Mode) -> Result<Vec<Entry>, String> {
    let last = known.last().map_or(0, |entry| entry.number);
    for entry in found {
        let ours = known.iter().find(|ours| ours.number == entry.number);
        match ours {
            Some(ours) if ours.name == entry.name && ours.checksum == entry.checksum => {}
            Some(ours) => {
                return Err(format!(
                    "step {} ({}) was taken with another content than this version's ({}): {} there, {} here; \
                     what was released must not be changed",
                    entry.number,
                    entry.name,
                    ours.name,
                    short(&entry.checksum),
                    short(&ours.checksum),
                ));
            }
            // A later version says that this one can go on, or whoever says skip vouches for it.
            None if entry.number > last && entry.usable_by.is_some_and(|step| step <= last) => {}
            None if mode == Mode::Skip && entry.number > last => {}
            None => {
                return Err(format!(
                    "a later version has taken step {} ({}), which this one does not know and cannot work with: run that version, or let this one \
                     use the schema as it is with JANGAR_MIGRATIONS=skip",
                    entry.number, entry.name
                ));
            }
        }
    }
    let is_missing = |ours: &&Entry| !found.iter().any(|entry| entry.number == ours.number);
    let missing: Vec<Entry> = known.iter().filter(is_missing).cloned().collect();
    // Steps are taken in their order, so one that is missing before one that is there was removed by somebody.
    let gap = missing
        .iter()
        .find(|ours| found.iter().any(|entry| entry.number > ours.number));
    match gap {
        Some(gap) => Err(format!(
            "step {} ({}) is not in the ledger although later ones are: somebody has removed it from {LEDGER}",
            gap.number, gap.name
        )),
        None => Ok(missing),
    }
}

fn short(checksum: &str) -> &str {
    checksum.get(..12).unwrap_or(checksum)
}

fn named(entries: &[Entry]) -> String {
    let names: Vec<String> = entries
        .iter()
        .map(|entry| format!("step {} ({})", entry.number, entry.name))
        .collect();
    names.join(", ")
}

const ENTRIES: &str = "SELECT number, name, checksum FROM jangar_migrations ORDER BY number";
/// The same, with the column that came later.
const ENTRIES_WITH_USERS: &str =
    "SELECT number, name, checksum, usable_by FROM jangar_migrations ORDER BY number";

/// Whether the ledger has that column, as far as the steps tell that it has.
fn tells_who_can_use_it(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.number >= TELLS_WHO_CAN_USE_IT)
}

/// Whether there is a ledger. Nothing is made by asking.
fn ledger_exists(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "SELECT 1::BIGINT AS found WHERE to_regclass('jangar_migrations') IS NOT NULL",
        Dialect::Sqlite => {
            "SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'jangar_migrations'"
        }
    }
}

async fn read_ledger(database: &Database) -> Result<Vec<Entry>, Error> {
    if database
        .rows(DOING, LEDGER, ledger_exists(database.dialect()), args![])
        .await?
        .is_empty()
    {
        return Ok(Vec::new());
    }
    let found = entries(&database.rows(DOING, LEDGER, ENTRIES, args![]).await?, false)?;
    if !tells_who_can_use_it(&found) {
        return Ok(found);
    }
    let rows = database.rows(DOING, LEDGER, ENTRIES_WITH_USERS, args![]).await?;
    entries(&rows, true)
}

async fn read_ledger_within(tx: &mut Tx<'_>, dialect: Dialect) -> Result<Vec<Entry>, Error> {
    if tx.rows(LEDGER, ledger_exists(dialect), args![]).await?.is_empty() {
        return Ok(Vec::new());
    }
    let found = entries(&tx.rows(LEDGER, ENTRIES, args![]).await?, false)?;
    if !tells_who_can_use_it(&found) {
        return Ok(found);
    }
    entries(&tx.rows(LEDGER, ENTRIES_WITH_USERS, args![]).await?, true)
}

fn entries(rows: &[Row], with_users: bool) -> Result<Vec<Entry>, Error> {
    let entry = |row: &Row| {
        Ok(Entry {
            number: row.int("number")?,
            name: row.text("name")?,
            checksum: row.text("checksum")?,
            usable_by: if with_users {
                row.int_if_any("usable_by")?
            } else {
                None
            },
        })
    };
    rows.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64, checksum: &str) -> Entry {
        Entry {
            number,
            name: format!("step-{number}"),
            checksum: checksum.to_owned(),
            usable_by: None,
        }
    }

    #[test]
    fn steps_are_numbered_from_one_without_gaps() {
        let numbers: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.number).collect();
        let expected: Vec<i64> = (1..).take(MIGRATIONS.len()).collect();
        assert_eq!(numbers, expected);
    }

    /// Both scripts make the same tables with the same columns; types and searching differ.
    #[test]
    fn both_databases_get_the_same_tables() {
        let tables = |script: &str| -> Vec<String> {
            let lines = script
                .lines()
                .filter(|line| line.starts_with("CREATE TABLE") && !line.contains("jangar_piece"));
            lines.map(str::to_owned).collect()
        };
        for migration in MIGRATIONS {
            assert_eq!(tables(migration.postgres), tables(migration.sqlite));
        }
    }

    #[test]
    fn what_is_not_there_yet_is_missing() {
        let known = [entry(1, "a"), entry(2, "b")];
        assert_eq!(missing(&known, &[], Mode::Auto), Ok(known.to_vec()));
        assert_eq!(missing(&known, &known[..1], Mode::Auto), Ok(vec![entry(2, "b")]));
        assert_eq!(missing(&known, &known, Mode::Auto), Ok(vec![]));
    }

    #[test]
    fn a_changed_entry_is_named() {
        let error = missing(&[entry(1, "a")], &[entry(1, "z")], Mode::Auto).expect_err("changed");
        assert!(
            error.contains("step 1 (step-1)") && error.contains("z there, a here"),
            "{error}"
        );
    }

    #[test]
    fn an_entry_of_a_later_version_stops_auto_and_not_skip() {
        let (known, found) = ([entry(1, "a")], [entry(1, "a"), entry(2, "b")]);
        let error = missing(&known, &found, Mode::Auto).expect_err("unknown");
        assert!(
            error.contains("step 2 (step-2)") && error.contains("JANGAR_MIGRATIONS=skip"),
            "{error}"
        );
        assert_eq!(missing(&known, &found, Mode::Skip), Ok(vec![]));
    }

    #[test]
    fn an_entry_of_a_later_version_that_says_so_stops_nobody() {
        let later = |usable_by| Entry {
            usable_by: Some(usable_by),
            ..entry(3, "c")
        };
        let known = [entry(1, "a"), entry(2, "b")];
        let found = |usable_by| [entry(1, "a"), entry(2, "b"), later(usable_by)];
        assert_eq!(missing(&known, &found(2), Mode::Auto), Ok(vec![]));
        assert_eq!(missing(&known, &found(1), Mode::Auto), Ok(vec![]));
        assert!(missing(&known, &found(3), Mode::Auto).is_err());
    }

    #[test]
    fn a_step_never_asks_for_more_than_the_version_before_it_knows() {
        for migration in MIGRATIONS.iter().skip(1) {
            assert!(migration.usable_by < migration.number, "{}", migration.name);
        }
    }

    #[test]
    fn an_entry_that_was_removed_is_not_taken_again() {
        let known = [entry(1, "a"), entry(2, "b")];
        let error = missing(&known, &known[1..], Mode::Auto).expect_err("a gap");
        assert!(error.contains("step 1 (step-1) is not in the ledger"), "{error}");
    }

    #[test]
    fn line_ends_do_not_change_a_checksum() {
        assert_eq!(checksum("a\nb\n"), checksum("a\r\nb\r\n"));
        assert_ne!(checksum("a\nb\n"), checksum("a\nc\n"));
    }
}
