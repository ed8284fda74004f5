//! Where the database is and how it is spoken to, from variables.

use std::{fmt, str::FromStr, time::Duration};

use sqlx::{
    postgres::{PgConnectOptions, PgSslMode},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use url::Url;

use crate::{Error, migrations::Mode};

const URL: &str = "DATABASE_URL";
/// What an address that names none of them is told.
const SCHEMES: &str =
    "it has to begin with postgres:// or sqlite://, as in postgres://user:password@host:5432/name";
/// SQLite has one writer at a time; more readers than this only hold memory.
const SQLITE_POOL_SIZE: u32 = 4;
/// Longer is as good as never.
const MAX_TIMEOUT_MS: u64 = 600_000;

/// A variable that is a number from 1 on.
#[derive(Clone, Copy)]
struct Number {
    name: &'static str,
    default: u64,
    max: u64,
}

const CONNECT_TIMEOUT: Number = Number {
    name: "PGCONNECT_TIMEOUT_MS",
    default: 5_000,
    max: MAX_TIMEOUT_MS,
};
const QUERY_TIMEOUT: Number = Number {
    name: "PGQUERY_TIMEOUT_MS",
    default: 20_000,
    max: MAX_TIMEOUT_MS,
};
/// One process needs few: the control plane reads briefly and the controllers write one run at a time. Postgres has a hundred
/// connections by default, for everybody.
const POOL_SIZE: Number = Number {
    name: "JANGAR_DB_POOL_SIZE",
    default: 8,
    max: 100,
};
/// How much of a log's end is kept. A value of a row has to fit into memory several times over.
const LOG_TAIL_BYTES: Number = Number {
    name: "JANGAR_DB_LOG_TAIL_BYTES",
    default: 1 << 20,
    max: 64 << 20,
};
const NUMBERS: [Number; 4] = [CONNECT_TIMEOUT, QUERY_TIMEOUT, POOL_SIZE, LOG_TAIL_BYTES];

/// How a connection to Postgres is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// In the clear.
    Disable,
    /// Encrypted if the server can, with whatever certificate it has. For the same machine, where nobody listens.
    Prefer,
    /// Encrypted, with whatever certificate the server has. With a certificate authority given, as `VerifyCa`.
    Require,
    /// Encrypted, and the certificate is signed by an authority that we trust.
    VerifyCa,
    /// The same, and it is for the host that was asked for.
    VerifyFull,
}

#[derive(Clone)]
pub(crate) enum Target {
    Postgres(Box<PgConnectOptions>),
    Sqlite(Box<SqliteConnectOptions>),
}

/// Where the database is, and how it is spoken to.
#[derive(Clone)]
pub struct Config {
    pub(crate) target: Target,
    pub(crate) place: String,
    pub(crate) pool_size: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) query_timeout: Duration,
    pub(crate) migrations: Mode,
    pub(crate) log_tail_bytes: usize,
}

/// The options within hold the password and would print it.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("place", &self.place)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// What the variables say. `None` if `DATABASE_URL` is not there or empty: no history is kept then.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        match lookup(URL).filter(|url| !url.trim().is_empty()) {
            Some(url) => Self::new(url.trim(), lookup).map(Some),
            None => Ok(None),
        }
    }

    /// The database at `url`, and the rest as the variables say.
    pub fn new(url: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let connect_timeout = Duration::from_millis(CONNECT_TIMEOUT.of(&lookup)?);
        let query_timeout = Duration::from_millis(QUERY_TIMEOUT.of(&lookup)?);
        let pool_size = u32::try_from(POOL_SIZE.of(&lookup)?).unwrap_or(u32::MAX);
        let log_tail = LOG_TAIL_BYTES.of(&lookup)?;
        let migrations = migrations(&lookup)?;
        let (target, place, pool_size) = match target(url, &lookup)? {
            Target::Postgres(options) => {
                let place = postgres_place(&options);
                (Target::Postgres(options), place, pool_size)
            }
            Target::Sqlite(options) => {
                let place = format!("sqlite at {}", options.get_filename().display());
                let options = Box::new(options.busy_timeout(query_timeout));
                (Target::Sqlite(options), place, pool_size.min(SQLITE_POOL_SIZE))
            }
        };
        Ok(Self {
            target,
            place,
            pool_size,
            connect_timeout,
            query_timeout,
            migrations,
            log_tail_bytes: usize::try_from(log_tail).unwrap_or(usize::MAX),
        })
    }

    /// Everything that is wrong with the variables, for whoever would rather hear it at once.
    pub fn mistakes(lookup: impl Fn(&str) -> Option<String>) -> Vec<Error> {
        let numbers = NUMBERS.into_iter().filter_map(|number| number.of(&lookup).err());
        let url = lookup(URL).filter(|url| !url.trim().is_empty());
        let of_url = url.and_then(|url| target(url.trim(), &lookup).err());
        let rest = [migrations(&lookup).err(), of_url];
        numbers.chain(rest.into_iter().flatten()).collect()
    }

    /// Where the database is, for people: neither user nor password is in it.
    pub fn place(&self) -> &str {
        &self.place
    }
}

fn target(url: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<Target, Error> {
    match url.split(':').next().unwrap_or_default() {
        "postgres" | "postgresql" => Ok(Target::Postgres(Box::new(postgres(url, lookup)?))),
        "sqlite" => Ok(Target::Sqlite(Box::new(sqlite(url)?))),
        // Not even the scheme is told: without a colon all of it would be one.
        _ => Err(wrong_url(SCHEMES)),
    }
}

/// The address is never repeated: it holds a password.
fn wrong_url(why: impl Into<String>) -> Error {
    Error::Setting {
        name: URL,
        value: "(not shown)".to_owned(),
        why: why.into(),
    }
}

impl Number {
    fn of(self, lookup: impl Fn(&str) -> Option<String>) -> Result<u64, Error> {
        let Self { name, default, max } = self;
        let Some(value) = lookup(name).filter(|value| !value.trim().is_empty()) else {
            return Ok(default);
        };
        match value.trim().parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(number),
            _ => Err(Error::Setting {
                name,
                why: format!("give a number from 1 to {max}, or leave it out for {default}"),
                value,
            }),
        }
    }
}

/// The words of the earlier implementation for "do not" are understood.
fn migrations(lookup: impl Fn(&str) -> Option<String>) -> Result<Mode, Error> {
    const NAME: &str = "JANGAR_MIGRATIONS";
    if lookup("JANGAR_SKIP_MIGRATIONS").is_some_and(|value| value.trim() == "1") {
        return Ok(Mode::Skip);
    }
    let value = lookup(NAME).unwrap_or_default();
    match value.trim().to_ascii_lowercase().as_str() {
        "" | "auto" => Ok(Mode::Auto),
        "skip" | "disabled" | "false" | "0" | "off" => Ok(Mode::Skip),
        _ => Err(Error::Setting {
            name: NAME,
            value,
            why: "give auto (bring the schema up to date at the start) or skip (only check it)".to_owned(),
        }),
    }
}

fn sqlite(url: &str) -> Result<SqliteConnectOptions, Error> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| wrong_url(error.to_string()))?;
    let file = options.get_filename();
    let name = file.to_string_lossy();
    if name.is_empty() || name.starts_with("file:sqlx-in-memory") {
        return Err(wrong_url(
            "history in memory would be gone with the process: name a file, as in sqlite:///var/lib/jangar/history.db",
        ));
    }
    Ok(options
        .create_if_missing(true)
        .foreign_keys(true)
        // Readers go on while somebody writes.
        .journal_mode(SqliteJournalMode::Wal)
        // What is said to be written survives a power cut: the run in the cluster is deleted after that.
        .synchronous(SqliteSynchronous::Full))
}

fn postgres(url: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<PgConnectOptions, Error> {
    const PERCENT: &str = "characters of a password such as @ / : # have to be written as %40 %2F %3A %23";
    let parsed = Url::parse(url).map_err(|error| wrong_url(format!("{error}; {PERCENT}")))?;
    let given = |names: &[&str]| {
        let mut pairs = parsed.query_pairs();
        pairs
            .find(|(name, _)| names.contains(&name.as_ref()))
            .map(|(_, value)| value.into_owned())
    };
    let named = named_mode(given(&["sslmode", "ssl-mode"]), lookup("PGSSLMODE"))?;
    let options = PgConnectOptions::from_str(url).map_err(|error| wrong_url(error.to_string()))?;
    let authority = given(&["sslrootcert", "ssl-root-cert", "ssl-ca"])
        .or_else(|| lookup("PGSSLROOTCERT"))
        .or_else(|| lookup("JANGAR_DB_CA_CERT"))
        .filter(|path| !path.trim().is_empty());
    let local = options.get_socket().is_some() || is_loopback(options.get_host());
    let mode = tls_mode(named, local, authority.is_some());
    let options = match authority {
        Some(path) => options.ssl_root_cert(path),
        None => options,
    };
    Ok(options.ssl_mode(mode.into()).application_name("jangar"))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn postgres_place(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("postgres at {}, {database}", socket.display()),
        None => format!(
            "postgres at {}:{}/{database}",
            options.get_host(),
            options.get_port()
        ),
    }
}

/// The mode in the address, else that of the variable.
fn named_mode(of_url: Option<String>, of_variable: Option<String>) -> Result<Option<TlsMode>, Error> {
    let named = [(URL, of_url), ("PGSSLMODE", of_variable)];
    named
        .into_iter()
        .find_map(|(name, word)| {
            word.filter(|word| !word.trim().is_empty())
                .map(|word| (name, word))
        })
        .map(|(name, word)| word_to_mode(name, &word))
        .transpose()
}

/// The mode that somebody named, else encryption wherever the way leaves this machine.
fn tls_mode(named: Option<TlsMode>, local: bool, has_authority: bool) -> TlsMode {
    match named {
        // Whoever names an authority wants it asked. The driver would ignore it below verify-ca.
        Some(TlsMode::Require) | None if has_authority => TlsMode::VerifyCa,
        Some(mode) => mode,
        None if local => TlsMode::Prefer,
        None => TlsMode::Require,
    }
}

fn word_to_mode(name: &'static str, word: &str) -> Result<TlsMode, Error> {
    match word.trim().to_ascii_lowercase().as_str() {
        "disable" => Ok(TlsMode::Disable),
        // `allow` means encryption only if the server insists. The driver has no such thing; the next safer one is taken.
        "allow" | "prefer" => Ok(TlsMode::Prefer),
        "require" => Ok(TlsMode::Require),
        "verify-ca" => Ok(TlsMode::VerifyCa),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(Error::Setting {
            name,
            value: format!("sslmode={word}"),
            why: "give disable, allow, prefer, require, verify-ca or verify-full".to_owned(),
        }),
    }
}

impl From<TlsMode> for PgSslMode {
    fn from(mode: TlsMode) -> Self {
        match mode {
            TlsMode::Disable => Self::Disable,
            TlsMode::Prefer => Self::Prefer,
            TlsMode::Require => Self::Require,
            TlsMode::VerifyCa => Self::VerifyCa,
            TlsMode::VerifyFull => Self::VerifyFull,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn with<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    fn mode_of(url: &str, pairs: &[(&str, &str)]) -> String {
        match postgres(url, with(pairs)) {
            Ok(options) => format!("{:?}", options.get_ssl_mode()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_address_outranks_the_variable_and_both_outrank_the_place() {
        let far = "postgres://jangar@db.example.com/jangar";
        assert_eq!(mode_of(far, &[]), "Require");
        assert_eq!(mode_of("postgres://jangar@127.0.0.1/jangar", &[]), "Prefer");
        assert_eq!(mode_of("postgres://jangar@localhost/jangar", &[]), "Prefer");
        assert_eq!(mode_of("postgres://jangar@[::1]/jangar", &[]), "Prefer");
        assert_eq!(mode_of(far, &[("PGSSLMODE", "disable")]), "Disable");
        let asked = format!("{far}?sslmode=verify-full");
        assert_eq!(mode_of(&asked, &[("PGSSLMODE", "disable")]), "VerifyFull");
    }

    #[test]
    fn an_authority_that_is_named_is_asked() {
        let far = "postgres://jangar@db.example.com/jangar";
        assert_eq!(mode_of(far, &[("PGSSLROOTCERT", "ca.crt")]), "VerifyCa");
        assert_eq!(mode_of(far, &[("JANGAR_DB_CA_CERT", "ca.crt")]), "VerifyCa");
        assert_eq!(
            mode_of(
                far,
                &[("JANGAR_DB_CA_CERT", "ca.crt"), ("PGSSLMODE", "verify-full")]
            ),
            "VerifyFull"
        );
        assert_eq!(
            mode_of(far, &[("JANGAR_DB_CA_CERT", "ca.crt"), ("PGSSLMODE", "disable")]),
            "Disable"
        );
    }

    #[test]
    fn wrong_settings_are_told_with_what_to_give() {
        assert_eq!(
            mode_of("postgres://jangar@db.example.com/jangar?sslmode=maybe", &[]),
            r#"DATABASE_URL is "sslmode=maybe": give disable, allow, prefer, require, verify-ca or verify-full"#
        );
        let wrong = |name: &str, value: &str| {
            Config::new("sqlite:///tmp/x.db", with(&[(name, value)]))
                .expect_err("wrong")
                .to_string()
        };
        assert_eq!(
            wrong("PGQUERY_TIMEOUT_MS", "soon"),
            r#"PGQUERY_TIMEOUT_MS is "soon": give a number from 1 to 600000, or leave it out for 20000"#
        );
        assert!(wrong("JANGAR_DB_POOL_SIZE", "0").contains("from 1 to 100"));
        assert!(wrong("JANGAR_MIGRATIONS", "maybe").contains("auto"));
    }

    #[test]
    fn no_address_means_no_history() {
        assert!(Config::from_env(nothing).expect("fine").is_none());
        assert!(
            Config::from_env(with(&[("DATABASE_URL", "  ")]))
                .expect("fine")
                .is_none()
        );
    }

    #[test]
    fn neither_places_nor_errors_nor_debug_tell_the_password() {
        let url = "postgres://jangar:hunter2@db.example.com:6432/history";
        let config = Config::new(url, nothing).expect("an address");
        assert_eq!(config.place(), "postgres at db.example.com:6432/history");
        assert!(!format!("{config:?}").contains("hunter2"));
        for bad in [
            "postgres://jangar:hunter2@[oops/x",
            "mysql://jangar:hunter2@db/x",
            "hunter2",
        ] {
            let error = Config::new(bad, nothing).expect_err("not an address");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn history_in_memory_is_refused() {
        for url in ["sqlite::memory:", "sqlite://:memory:"] {
            let error = Config::new(url, nothing).expect_err("in memory").to_string();
            assert!(error.contains("name a file"), "{error}");
        }
    }

    #[test]
    fn skipping_migrations_has_several_words() {
        for word in ["skip", "disabled", "false", "0", "OFF"] {
            assert_eq!(migrations(with(&[("JANGAR_MIGRATIONS", word)])), Ok(Mode::Skip));
        }
        assert_eq!(
            migrations(with(&[("JANGAR_SKIP_MIGRATIONS", "1")])),
            Ok(Mode::Skip)
        );
        assert_eq!(migrations(nothing), Ok(Mode::Auto));
    }

    #[test]
    fn every_mistake_is_told() {
        let bad = with(&[
            ("JANGAR_DB_POOL_SIZE", "x"),
            ("PGQUERY_TIMEOUT_MS", "0"),
            ("JANGAR_MIGRATIONS", "y"),
            ("DATABASE_URL", "mysql://somewhere"),
        ]);
        let names: Vec<&str> = Config::mistakes(bad)
            .iter()
            .map(|mistake| match mistake {
                Error::Setting { name, .. } => *name,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(
            names,
            [
                "PGQUERY_TIMEOUT_MS",
                "JANGAR_DB_POOL_SIZE",
                "JANGAR_MIGRATIONS",
                "DATABASE_URL"
            ]
        );
        assert!(Config::mistakes(nothing).is_empty());
    }
}
