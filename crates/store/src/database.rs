//! The seam between the two databases: one way to send SQL and to read rows.
//!
//! All values that cross it are texts and whole numbers, and parameters are written `$1`, `$2`, …, which both databases read. So
//! whoever has a question writes it once. Every exchange has a time limit and ends in one of our own errors.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Postgres, Row as _, SqlSafeStr, SqlStr, Sqlite, Transaction,
    pool::PoolOptions,
    postgres::{PgPool, PgRow},
    sqlite::{SqlitePool, SqliteRow},
};
use tokio::time::{Instant, error::Elapsed, timeout, timeout_at};

use crate::{
    Error,
    config::{Config, Target},
    error::{is_busy, means_down},
};

/// A pool that got no connection in time does not say why. One more try, this short, does.
const PROBE: Duration = Duration::from_secs(1);
/// How long a first connection to a SQLite file waits before it tries again, and for how long in all.
const OPENED_ELSEWHERE: Duration = Duration::from_millis(20);
const OPENED_ELSEWHERE_AT_MOST: Duration = Duration::from_secs(5);
/// How many rows one INSERT carries: with fifteen columns that is far below the parameters either database takes.
const ROWS_AT_ONCE: usize = 200;
/// Connections are renewed now and then, so that a database behind an address that moves is found again.
const CONNECTION_LIFETIME: Duration = Duration::from_mins(30);
const IDLE_LIFETIME: Duration = Duration::from_mins(5);
/// How long a transaction may wait for its next statement. Each follows at once where all is well.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(30);

/// How Postgres plans. A filter that is rare in one list is common in another: each gets a plan of its own. Every question has an
/// index and a short answer: reading whole tables, starting helpers and compiling would take longer than any of them.
const PLANNING: &str = "SET plan_cache_mode = force_custom_plan; SET enable_seqscan = off; \
                        SET max_parallel_workers_per_gather = 0; SET jit = off";

/// A value on its way into the database.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Text(Option<String>),
    Int(Option<i64>),
}

impl From<&str> for Arg {
    /// Postgres has no place for the character zero in a text.
    fn from(text: &str) -> Self {
        Self::Text(Some(text.replace('\0', "\u{fffd}")))
    }
}

impl From<&String> for Arg {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Option<&str>> for Arg {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Text(None), Self::from)
    }
}

impl From<&Option<String>> for Arg {
    fn from(text: &Option<String>) -> Self {
        Self::from(text.as_deref())
    }
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Arg {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Arg {
    fn from(yes: bool) -> Self {
        Self::from(i64::from(yes))
    }
}

impl From<Timestamp> for Arg {
    fn from(time: Timestamp) -> Self {
        Self::from(time.as_microsecond())
    }
}

impl From<Option<Timestamp>> for Arg {
    fn from(time: Option<Timestamp>) -> Self {
        Self::Int(time.map(Timestamp::as_microsecond))
    }
}

/// `args![a, b]`: values in the order of `$1`, `$2`.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::database::Arg::from($value)),*] };
}
pub(crate) use args;

/// The query with its values, for one of the two drivers.
macro_rules! bound {
    ($driver:ty, $sql:expr, $args:expr) => {{
        let mut query = sqlx::query::<$driver>($sql);
        for arg in $args {
            query = match arg {
                Arg::Text(text) => query.bind(text),
                Arg::Int(number) => query.bind(number),
            };
        }
        query
    }};
}

/// SQL that was put together from parts of this crate. Values of callers are never among them: they are parameters.
pub(crate) fn assembled(sql: String) -> SqlStr {
    AssertSqlSafe(sql).into_sql_str()
}

/// A row that was read, from the table `table`.
pub(crate) struct Row {
    table: &'static str,
    row: EitherRow,
}

enum EitherRow {
    Postgres(PgRow),
    Sqlite(SqliteRow),
}

impl Row {
    fn get<T>(&self, column: &'static str) -> Result<T, Error>
    where
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
        T: for<'r> sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        let value = match &self.row {
            EitherRow::Postgres(row) => row.try_get(column),
            EitherRow::Sqlite(row) => row.try_get(column),
        };
        value.map_err(|error| self.unreadable(column, error.to_string()))
    }

    pub(crate) fn text(&self, column: &'static str) -> Result<String, Error> {
        self.get(column)
    }

    pub(crate) fn text_if_any(&self, column: &'static str) -> Result<Option<String>, Error> {
        self.get(column)
    }

    pub(crate) fn int(&self, column: &'static str) -> Result<i64, Error> {
        self.get(column)
    }

    pub(crate) fn int_if_any(&self, column: &'static str) -> Result<Option<i64>, Error> {
        self.get(column)
    }

    pub(crate) fn flag(&self, column: &'static str) -> Result<bool, Error> {
        Ok(self.int(column)? != 0)
    }

    pub(crate) fn time(&self, column: &'static str) -> Result<Timestamp, Error> {
        let micros = self.int(column)?;
        Timestamp::from_microsecond(micros).map_err(|error| self.unreadable(column, error.to_string()))
    }

    pub(crate) fn time_if_any(&self, column: &'static str) -> Result<Option<Timestamp>, Error> {
        self.int_if_any(column)?.map(|_| self.time(column)).transpose()
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, column: &'static str) -> Result<T, Error> {
        let text = self.text(column)?;
        serde_json::from_str(&text).map_err(|error| self.unreadable(column, error.to_string()))
    }

    pub(crate) fn unreadable(&self, field: &'static str, why: String) -> Error {
        Error::Unreadable {
            table: self.table,
            field,
            why,
        }
    }
}

/// Which of the two it is, for the few words of SQL that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Sqlite,
}

#[derive(Debug)]
enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// A bounded number of connections to one database.
#[derive(Debug)]
pub(crate) struct Database {
    pool: Pool,
    config: Config,
}

impl Database {
    /// Connects when somebody asks for something, and not before.
    pub(crate) fn new(config: Config) -> Self {
        let pool = match &config.target {
            Target::Postgres(options) => {
                let millis = config.query_timeout.as_millis();
                // Whoever went away in the middle of a write lets go of what it holds, also if its machine has lost power.
                let idle = IDLE_IN_TRANSACTION.as_millis();
                let settings = format!(
                    "SET statement_timeout = {millis}; SET idle_in_transaction_session_timeout = {idle}; {PLANNING}"
                );
                let pool = bounded::<Postgres>(&config).after_connect(move |connection, _| {
                    let settings = assembled(settings.clone());
                    Box::pin(async move { sqlx::raw_sql(settings).execute(connection).await.map(drop) })
                });
                Pool::Postgres(pool.connect_lazy_with((**options).clone()))
            }
            Target::Sqlite(options) => Pool::Sqlite(bounded(&config).connect_lazy_with((**options).clone())),
        };
        Self { pool, config }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match &self.pool {
            Pool::Postgres(_) => Dialect::Postgres,
            Pool::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub(crate) async fn close(&self) {
        match &self.pool {
            Pool::Postgres(pool) => pool.close().await,
            Pool::Sqlite(pool) => pool.close().await,
        }
    }

    /// Makes sure of one connection.
    ///
    /// The first to open a new SQLite file gives it its write-ahead log. Whoever opens it in that very moment is told that the file
    /// is locked, and at once: SQLite asks for no patience there, because two that waited for each other would wait for ever.
    /// So it is us who wait.
    pub(crate) async fn opened(&self, doing: &'static str) -> Result<(), Error> {
        let Pool::Sqlite(pool) = &self.pool else {
            return Ok(());
        };
        let deadline = Instant::now() + OPENED_ELSEWHERE_AT_MOST;
        loop {
            let opened = pool.acquire().await.map(drop);
            match opened {
                Err(error) if is_busy(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(OPENED_ELSEWHERE).await;
                }
                opened => return self.told(doing, Ok(opened)).await,
            }
        }
    }

    /// Reads rows of `table`. `doing` says what for, in errors.
    pub(crate) async fn rows(
        &self,
        doing: &'static str,
        table: &'static str,
        sql: impl SqlSafeStr,
        args: Vec<Arg>,
    ) -> Result<Vec<Row>, Error> {
        let sql = sql.into_sql_str();
        let read = async {
            match &self.pool {
                Pool::Postgres(pool) => {
                    let rows = bound!(Postgres, sql, args).fetch_all(pool).await?;
                    Ok(rows.into_iter().map(EitherRow::Postgres).collect::<Vec<_>>())
                }
                Pool::Sqlite(pool) => {
                    let rows = bound!(Sqlite, sql, args).fetch_all(pool).await?;
                    Ok(rows.into_iter().map(EitherRow::Sqlite).collect())
                }
            }
        };
        let rows = self.in_time(doing, read).await?;
        Ok(rows.into_iter().map(|row| Row { table, row }).collect())
    }

    /// Changes something with one statement, and says how many rows it was.
    pub(crate) async fn execute(
        &self,
        doing: &'static str,
        sql: impl SqlSafeStr,
        args: Vec<Arg>,
    ) -> Result<u64, Error> {
        let sql = sql.into_sql_str();
        let write = async {
            match &self.pool {
                Pool::Postgres(pool) => Ok(bound!(Postgres, sql, args).execute(pool).await?.rows_affected()),
                Pool::Sqlite(pool) => Ok(bound!(Sqlite, sql, args).execute(pool).await?.rows_affected()),
            }
        };
        self.in_time(doing, write).await
    }

    /// Begins a transaction that may write, and has to be over within `limit`. Dropped without a commit, it never was.
    ///
    /// SQLite's is the only one that writes from here on: otherwise two that have both read could not both write.
    pub(crate) async fn begin(&self, doing: &'static str, limit: Duration) -> Result<Tx<'_>, Error> {
        let begin = async {
            match &self.pool {
                Pool::Postgres(pool) => pool.begin().await.map(EitherTx::Postgres),
                Pool::Sqlite(pool) => pool.begin_with("BEGIN IMMEDIATE").await.map(EitherTx::Sqlite),
            }
        };
        let deadline = Instant::now() + limit;
        let inner = self.in_time(doing, begin).await?;
        Ok(Tx {
            database: self,
            doing,
            deadline,
            inner,
        })
    }

    async fn in_time<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Error> {
        // Getting a connection has a limit of its own, so both together are the limit of the whole.
        let limit = self.config.connect_timeout + self.config.query_timeout;
        self.told(doing, timeout(limit, work).await).await
    }

    /// The outcome of an exchange in our own errors.
    async fn told<T>(
        &self,
        doing: &'static str,
        done: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, Error> {
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.explained(doing, error).await),
            Err(_) => Err(self.too_slow(doing)),
        }
    }

    fn too_slow(&self, doing: &'static str) -> Error {
        let limit = self.config.query_timeout.as_millis();
        self.down(
            doing,
            format!("there was no answer within {limit} ms (PGQUERY_TIMEOUT_MS)"),
        )
    }

    fn down(&self, doing: &'static str, why: String) -> Error {
        Error::Down {
            doing,
            place: self.config.place.clone(),
            why,
        }
    }

    async fn explained(&self, doing: &'static str, error: sqlx::Error) -> Error {
        if let sqlx::Error::PoolTimedOut = error {
            return self.down(doing, self.why_no_connection().await);
        }
        if means_down(&error) {
            return self.down(doing, in_words(&error));
        }
        Error::Refused {
            doing,
            place: self.config.place.clone(),
            why: in_words(&error),
        }
    }

    /// A pool tries until its time is up and keeps the reason to itself: what one more connection says is the reason.
    async fn why_no_connection(&self) -> String {
        let tried = match &self.config.target {
            Target::Postgres(options) => timeout(PROBE, options.connect())
                .await
                .map(|tried| tried.map(drop)),
            Target::Sqlite(options) => timeout(PROBE, options.connect())
                .await
                .map(|tried| tried.map(drop)),
        };
        let limit = self.config.connect_timeout.as_millis();
        match tried {
            Ok(Err(error)) => in_words(&error),
            Ok(Ok(())) => format!(
                "all {} connections were in use for {limit} ms (JANGAR_DB_POOL_SIZE, PGCONNECT_TIMEOUT_MS)",
                self.config.pool_size
            ),
            Err(_) => format!("no connection came about within {limit} ms (PGCONNECT_TIMEOUT_MS)"),
        }
    }
}

fn bounded<DB: sqlx::Database>(config: &Config) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(config.pool_size)
        .acquire_timeout(config.connect_timeout)
        .idle_timeout(IDLE_LIFETIME)
        .max_lifetime(CONNECTION_LIFETIME)
}

/// What the database said, without the driver's preface.
fn in_words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(answer) => answer.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

enum EitherTx {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

/// A transaction: all of it or nothing.
pub(crate) struct Tx<'a> {
    database: &'a Database,
    doing: &'static str,
    deadline: Instant,
    inner: EitherTx,
}

impl Tx<'_> {
    /// Lets nobody else with the same number go on before this transaction is over. SQLite has one writer anyway.
    pub(crate) async fn lock(&mut self, number: i64) -> Result<(), Error> {
        if matches!(self.inner, EitherTx::Postgres(_)) {
            self.execute("SELECT pg_advisory_xact_lock($1)", args![number])
                .await?;
        }
        Ok(())
    }

    pub(crate) async fn execute(&mut self, sql: impl SqlSafeStr, args: Vec<Arg>) -> Result<u64, Error> {
        let sql = sql.into_sql_str();
        let tx = &mut self.inner;
        let write = async {
            match tx {
                EitherTx::Postgres(tx) => Ok(bound!(Postgres, sql, args)
                    .execute(&mut **tx)
                    .await?
                    .rows_affected()),
                EitherTx::Sqlite(tx) => Ok(bound!(Sqlite, sql, args)
                    .execute(&mut **tx)
                    .await?
                    .rows_affected()),
            }
        };
        let done = timeout_at(self.deadline, write).await;
        self.database.told(self.doing, done).await
    }

    /// Several statements at once, without values.
    pub(crate) async fn run_script(&mut self, sql: &'static str) -> Result<(), Error> {
        let tx = &mut self.inner;
        let run = async {
            match tx {
                EitherTx::Postgres(tx) => sqlx::raw_sql(sql).execute(&mut **tx).await.map(drop),
                EitherTx::Sqlite(tx) => sqlx::raw_sql(sql).execute(&mut **tx).await.map(drop),
            }
        };
        let done = timeout_at(self.deadline, run).await;
        self.database.told(self.doing, done).await
    }

    pub(crate) async fn rows(
        &mut self,
        table: &'static str,
        sql: impl SqlSafeStr,
        args: Vec<Arg>,
    ) -> Result<Vec<Row>, Error> {
        let sql = sql.into_sql_str();
        let tx = &mut self.inner;
        let read = async {
            match tx {
                EitherTx::Postgres(tx) => {
                    let rows = bound!(Postgres, sql, args).fetch_all(&mut **tx).await?;
                    Ok(rows.into_iter().map(EitherRow::Postgres).collect::<Vec<_>>())
                }
                EitherTx::Sqlite(tx) => {
                    let rows = bound!(Sqlite, sql, args).fetch_all(&mut **tx).await?;
                    Ok(rows.into_iter().map(EitherRow::Sqlite).collect())
                }
            }
        };
        let done = timeout_at(self.deadline, read).await;
        let rows = self.database.told(self.doing, done).await?;
        Ok(rows.into_iter().map(|row| Row { table, row }).collect())
    }

    /// Puts rows into a table, many in one statement. Rows that are there already, by their key, stay as
    /// they are and are not counted.
    pub(crate) async fn insert(
        &mut self,
        table: &'static str,
        columns: &[&'static str],
        rows: Vec<Vec<Arg>>,
    ) -> Result<u64, Error> {
        let mut added = 0;
        for some in rows.chunks(ROWS_AT_ONCE) {
            let sql = insert_statement(table, columns, some.len());
            added += self.execute(assembled(sql), some.concat()).await?;
        }
        Ok(added)
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        let Self {
            database,
            doing,
            deadline,
            inner,
        } = self;
        let commit = async {
            match inner {
                EitherTx::Postgres(tx) => tx.commit().await,
                EitherTx::Sqlite(tx) => tx.commit().await,
            }
        };
        database.told(doing, timeout_at(deadline, commit).await).await
    }
}

fn insert_statement(table: &str, columns: &[&str], rows: usize) -> String {
    let width = columns.len();
    let row = |row: usize| {
        let values: Vec<String> = (1..=width)
            .map(|column| format!("${}", row * width + column))
            .collect();
        format!("({})", values.join(", "))
    };
    let values: Vec<String> = (0..rows).map(row).collect();
    format!(
        "INSERT INTO {table} ({}) VALUES {} ON CONFLICT DO NOTHING",
        columns.join(", "),
        values.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_statement_have_parameters_of_their_own() {
        assert_eq!(
            insert_statement("t", &["a", "b"], 2),
            "INSERT INTO t (a, b) VALUES ($1, $2), ($3, $4) ON CONFLICT DO NOTHING"
        );
    }

    #[test]
    fn the_character_zero_does_not_reach_the_database() {
        assert!(matches!(Arg::from("a\0b"), Arg::Text(Some(text)) if text == "a\u{fffd}b"));
    }
}
