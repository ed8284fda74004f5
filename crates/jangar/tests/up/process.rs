//! The program under test, started and asked from outside.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Only a broken program takes that long for anything, also on a machine that others use. Some waits contain a grace of half a minute.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
/// Between two looks at something that cannot be waited for.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// `jangar` with these arguments, to be run to its end.
pub(crate) fn jangar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_jangar"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Asks until the answer is yes.
pub(crate) fn eventually(what: &str, mut question: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !question() {
        assert!(
            Instant::now() < end,
            "not within {} s: {what}",
            PATIENCE.as_secs()
        );
        thread::sleep(PAUSE);
    }
}

/// How many processes of this machine have the word in their command line.
pub(crate) fn processes_with(word: &str) -> usize {
    numbers_of_processes_with(word).len()
}

/// Which processes of this machine have the word in their command line.
#[cfg(target_os = "linux")]
pub(crate) fn numbers_of_processes_with(word: &str) -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered =
        entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    numbered
        .filter(|(_, path)| {
            let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(word)
        })
        .map(|(number, _)| number)
        .collect()
}

/// Other systems have no /proc.
#[cfg(not(target_os = "linux"))]
pub(crate) fn numbers_of_processes_with(word: &str) -> BTreeSet<u32> {
    let listed = Command::new("ps")
        .args(["-A", "-ww", "-o", "pid=,args="])
        .output()
        .unwrap();
    assert!(
        listed.status.success(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
    let found = lines.lines().filter(|line| line.contains(word));
    found
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// How `up` is started.
pub(crate) struct Setup {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: PathBuf,
    /// On a machine that refuses a sandbox.
    refusing: bool,
}

/// Runs a program where the kernel makes no user namespaces, so that no sandbox can be had.
#[cfg(target_os = "linux")]
fn where_sandboxes_are_refused(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "/bin/sh", "-euc"])
        .arg("echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" \"$@\"")
        .arg(program);
    command
}

/// Other systems have none.
#[cfg(not(target_os = "linux"))]
fn where_sandboxes_are_refused(program: &Path) -> Command {
    Command::new(program)
}

impl Setup {
    pub(crate) fn on(directory: &Path) -> Self {
        Self {
            program: env!("CARGO_BIN_EXE_jangar").into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            directory: directory.to_owned(),
            refusing: false,
        }
    }

    /// On a machine that refuses a sandbox.
    pub(crate) fn where_sandboxes_are_refused(mut self) -> Self {
        self.refusing = true;
        self
    }

    /// With further arguments.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// From another file.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    fn command(&self) -> Command {
        let mut command = if self.refusing {
            where_sandboxes_are_refused(&self.program)
        } else {
            Command::new(&self.program)
        };
        command
            .args([
                "up",
                "--listen",
                "127.0.0.1:0",
                "--api-listen",
                "127.0.0.1:0",
                "--data-dir",
            ])
            .arg(&self.directory)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// For a start that must fail.
    pub(crate) fn refused(&self) -> (Option<i32>, String) {
        let output = self.command().output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{complaint}");
        (output.status.code(), complaint)
    }

    /// Begins, without waiting for anything.
    pub(crate) fn begin(&self) -> Up {
        Up::begin(&mut self.command(), &self.directory)
    }

    /// Begins, and waits until it says that it is ready.
    pub(crate) fn ready(&self) -> Up {
        let mut up = self.begin();
        up.wait_until_ready();
        up
    }
}

/// Lines as they come, read by a thread of their own so that a full pipe never stops the program.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // Nobody listens any more when the test is over.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// A running program. Dropping it ends it, with all its pods if it has any.
pub(crate) struct Up {
    child: Child,
    out: Receiver<String>,
    log: Receiver<String>,
    directory: PathBuf,
    /// Where probes and metrics are served, once that is known.
    address: String,
    /// The line that said that it is ready.
    pub(crate) line: String,
}

impl Up {
    pub(crate) fn begin(command: &mut Command, directory: &Path) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            out: lines(child.stdout.take().unwrap()),
            log: lines(child.stderr.take().unwrap()),
            child,
            directory: directory.to_owned(),
            address: String::new(),
            line: String::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where probes and metrics are served.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the one line on standard output.
    pub(crate) fn wait_until_ready(&mut self) {
        self.line = match self.out.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("not ready within {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("it ended: {}", self.log.iter().collect::<Vec<_>>().join("\n"))
            }
        };
        assert!(self.line.starts_with("ready: "), "{}", self.line);
        let (_, rest) = self.line.split_once("http://").unwrap();
        self.address = rest.split(';').next().unwrap().to_owned();
    }

    /// Waits for a line of the log that holds the text.
    pub(crate) fn logged(&mut self, text: &str) -> Value {
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return serde_json::from_str(&line).unwrap(),
                Ok(_) => {}
                Err(error) => panic!("{text:?} was not logged: {error}"),
            }
        }
    }

    /// Finds out where to ask from the log, which says it before it is ready if it says so much at all.
    pub(crate) fn wait_until_served(&mut self) {
        let line = self.logged("probes and metrics are served");
        line["address"].as_str().unwrap().clone_into(&mut self.address);
    }

    /// The status code and the body of an answer.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (code, body.to_owned())
    }

    /// A client as kubectl would have one: by the kubeconfig alone.
    pub(crate) async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(self.directory.join("kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .unwrap();
        Client::try_from(config).unwrap()
    }

    /// Makes a pod with one container that runs the script.
    pub(crate) async fn script(&self, name: &str, script: &str, grace_seconds: u32) -> Api<Pod> {
        self.pod(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": grace_seconds,
                "containers": [{"name": "main", "image": "none", "command": ["/bin/sh", "-c", script]}],
            },
        }))
        .await
    }

    pub(crate) async fn pod(&self, pod: &Value) -> Api<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.client().await);
        let pod = serde_json::from_value(pod.clone()).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end and returns the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        eventually("it ends", || {
            self.child
                .try_wait()
                .unwrap()
                .map(|status| code = status.code())
                .is_some()
        });
        code
    }

    /// SIGTERM, and what it ended with.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// SIGKILL: nothing of it can react.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.ended();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A test that failed leaves it running: two requests end it and its pods at once. Two of the same signal could become one.
        for request in [Signal::TERM, Signal::INT] {
            if self.child.try_wait().is_ok_and(|status| status.is_none()) {
                let _ = kill_process(Pid::from_child(&self.child), request);
                thread::sleep(PAUSE);
            }
        }
        let end = Instant::now() + PATIENCE;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
            thread::sleep(PAUSE);
        }
        // It is over already, or beyond help.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
