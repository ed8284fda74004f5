//! A real Temporal server with a worker, in a process of its own on this machine.
//!
//! `tests/cluster/go/temporal` is both, and `make temporal-tests` builds it and names it in `JANGAR_TEST_TEMPORAL`.

use std::{
    env,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// The task queue that the worker polls, for workflows of the type `Agent`.
pub const TASK_QUEUE: &str = "agents";
/// Only a broken server takes that long to start.
const PATIENCE: Duration = Duration::from_mins(2);

/// The server. It ends with this value, and so does what it knew, unless it is [started again](TemporalServer::restart).
#[derive(Debug)]
pub struct TemporalServer {
    program: PathBuf,
    port: u16,
    encryption: Option<Encryption>,
    directory: TempDir,
    process: Option<Child>,
}

/// What a server that wants certificates is given, as files.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The server's, for `localhost`.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Whose certificates are taken, the server's among them.
    pub authority: PathBuf,
}

impl TemporalServer {
    /// Starts one, and waits until it answers and its worker polls.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// One that wants certificates.
    pub fn encrypted(encryption: Encryption) -> Self {
        Self::with(Some(encryption))
    }

    fn with(encryption: Option<Encryption>) -> Self {
        let program = env::var_os("JANGAR_TEST_TEMPORAL").map(PathBuf::from);
        let program = program.expect("JANGAR_TEST_TEMPORAL names the server: make temporal-tests sets it");
        let mut server = Self {
            program,
            port: free_port(),
            encryption,
            directory: tempfile::tempdir().expect("a directory"),
            process: None,
        };
        server.restart();
        server
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A directory for files of the test, which goes with the server.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the server as a power cut does. What it had promised is in its file.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is ours");
            process.wait().expect("it is ours");
        }
    }

    /// Starts it where it left off, on the same port.
    pub fn restart(&mut self) {
        self.kill();
        let database = self.directory.path().join("temporal.db");
        let mut process = self
            .command()
            .arg("--database")
            .arg(database)
            // It ends when this does, however the test ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server can be started");
        let output = process.stdout.take().expect("its output");
        self.process = Some(process);
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            // An error shows as a line that does not say it.
            let _ended = BufReader::new(output).read_line(&mut line);
            let _given_up = sender.send(line);
        });
        let line = receiver
            .recv_timeout(PATIENCE)
            .expect("the server says something in time");
        assert_eq!(line.trim(), "ready", "the server did not start");
    }

    /// Somebody else does something to a workflow: `start`, `finish`, `terminate` or `status`. Returns what was printed.
    pub fn ask(&self, word: &str, id: &str) -> String {
        let output = self
            .command()
            .args([word, id])
            .output()
            .expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{word} {id}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--port").arg(self.port.to_string());
        if let Some(encryption) = &self.encryption {
            command.arg("--certificate").arg(&encryption.certificate);
            command.arg("--key").arg(&encryption.key);
            command.arg("--authority").arg(&encryption.authority);
        }
        command
    }
}

impl Drop for TemporalServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
