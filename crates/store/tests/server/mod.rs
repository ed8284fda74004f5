//! A Postgres server of a test's own, in a temporary directory, on a port of this machine.
//!
//! Postgres does not run as root, so there it becomes `nobody`. A shell stands between: it ends the server when its input is
//! closed, which happens however this process ends.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

/// Only a broken server takes that long to start.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// Nobody asks for it: what proves a password takes a tenth of a second in an unoptimised program. It must not be told all the same.
pub(crate) const PASSWORD: &str = "jangar_test_password";
/// Ends the server, as a power cut would, when the input ends, and removes what it is told to.
const GUARD: &str = r#"
    "$@" & server=$!
    cat >/dev/null
    kill -QUIT "$server" 2>/dev/null
    wait "$server"
    [ -z "$JANGAR_TEST_REMOVE" ] || rm -rf "$JANGAR_TEST_REMOVE"
"#;

/// A program of the Postgres that the tests run with.
pub(crate) fn program(name: &str) -> PathBuf {
    let directory = env::var_os("JANGAR_TEST_POSTGRES").map(PathBuf::from);
    directory
        .expect("JANGAR_TEST_POSTGRES names its programs: make postgres-tests sets it")
        .join(name)
}

/// The server. It ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    directory: TempDir,
    port: u16,
    encrypted: bool,
    /// Whether it is there until this process ends, when nobody drops this value any more.
    for_all: bool,
    guard: Option<Child>,
}

impl Server {
    /// Starts one that can encrypt, and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::with(true, false)
    }

    /// One that ends with this process and leaves nothing behind.
    pub(crate) fn start_for_all() -> Self {
        Self::with(true, true)
    }

    pub(crate) fn without_encryption() -> Self {
        Self::with(false, false)
    }

    fn with(encrypted: bool, for_all: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        write_certificates(directory.path());
        if is_root() {
            run(Command::new("chown").args(["-R", "nobody"]).arg(directory.path()));
        }
        run(unprivileged(&program("initdb"))
            .args([
                "--username=jangar",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
            ])
            .arg(&data));
        let mut server = Self {
            directory,
            port: free_port(),
            encrypted,
            for_all,
            guard: None,
        };
        server.start_again();
        server
    }

    /// Starts it where it left off, on the same port.
    pub(crate) fn start_again(&mut self) {
        let path = self.directory.path();
        let postgres = unprivileged(&program("postgres"));
        let mut guard = Command::new("sh");
        guard.env(
            "JANGAR_TEST_REMOVE",
            if self.for_all {
                path.as_os_str()
            } else {
                OsStr::new("")
            },
        );
        guard
            .args(["-c", GUARD, "sh"])
            .arg(postgres.get_program())
            .args(postgres.get_args());
        guard.arg("-D").arg(path.join("data"));
        guard.args(["-h", "127.0.0.1", "-k", "", "-p", &self.port.to_string(), "-F"]);
        if self.encrypted {
            for (name, file) in [("ssl_cert_file", "own.pem"), ("ssl_key_file", "own.key")] {
                guard
                    .arg("-c")
                    .arg(format!("{name}={}", path.join(file).display()));
            }
            guard.args(["-c", "ssl=on"]);
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path.join("log"))
            .unwrap();
        let guard = guard
            .current_dir(path)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.guard = Some(guard);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&self) {
        let begun = Instant::now();
        let asked = || {
            let mut asked = Command::new(program("pg_isready"));
            asked.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            asked.status().unwrap().success()
        };
        while !asked() {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
            assert!(begun.elapsed() < PATIENCE, "the server did not start:\n{log}");
            thread::sleep(PAUSE);
        }
    }

    /// Ends it at once, with whatever it is doing.
    pub(crate) fn stop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            guard.wait().unwrap();
        }
    }

    pub(crate) fn url(&self, host: &str, database: &str) -> String {
        format!("postgres://jangar:{PASSWORD}@{host}:{}/{database}", self.port)
    }

    pub(crate) async fn create_database(&self, name: &str) {
        let mut connection = PgConnection::connect(&self.url("127.0.0.1", "postgres"))
            .await
            .unwrap();
        let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }

    /// Who has signed its certificate, which is for `localhost`.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Somebody else.
    pub(crate) fn other_authority(&self) -> PathBuf {
        self.directory.path().join("stranger.pem")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout.trim_ascii() == b"0"
}

fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .arg(program);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A port that nobody listens on, and that no connection to somebody else is given meanwhile: those have higher numbers.
fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Tests of another process begin elsewhere.
    let first = 10_000 + std::process::id() % 200 * 100;
    (0..1_000)
        .filter_map(|_| u16::try_from(first + TAKEN.fetch_add(1, Ordering::Relaxed)).ok())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

fn write_certificates(directory: &Path) {
    let authority = || {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap()
    };
    let ours = authority();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&key, &ours).unwrap();
    for (name, text) in [
        ("own.pem", own.pem()),
        ("own.key", key.serialize_pem()),
        ("authority.pem", ours.pem()),
        ("stranger.pem", authority().pem()),
    ] {
        let path = directory.join(name);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        // Postgres takes a key that only its owner can read.
        let mode = if name == "own.key" { "600" } else { "644" };
        run(Command::new("chmod").arg(mode).arg(&path));
    }
}
