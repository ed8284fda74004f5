//! A real git server over HTTP with a password: git's own `http-backend` behind a small CGI bridge on 127.0.0.1.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use tempfile::TempDir;

pub(crate) const USER: &str = "robot";
pub(crate) const TOKEN: &str = "a-token-of-the-forge";
/// What `USER:TOKEN` is in a header of Basic authentication.
const BASIC: &str = "Basic cm9ib3Q6YS10b2tlbi1vZi10aGUtZm9yZ2U=";

/// The server, with the repository `example/adder`. It ends with the test's process.
pub(crate) struct GitServer {
    root: TempDir,
    pub(crate) url: String,
    /// The first line of each request, with its body where that is JSON.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    /// What the API answers, in this order.
    pub(crate) api: Arc<Mutex<Vec<(u16, String)>>>,
}

impl GitServer {
    /// A server whose repository is empty.
    pub(crate) fn empty() -> Self {
        let root = TempDir::new().expect("a temporary directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Self {
            root,
            url,
            seen: Arc::default(),
            api: Arc::default(),
        };
        fs::create_dir_all(server.bare()).expect("a directory");
        server.git(&["init", "--quiet", "--bare", "--initial-branch=main"]);
        server.git(&["config", "http.receivepack", "true"]);
        let directory = server.root.path().to_owned();
        let (seen, api) = (Arc::clone(&server.seen), Arc::clone(&server.api));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (directory, seen, api) = (directory.clone(), Arc::clone(&seen), Arc::clone(&api));
                thread::spawn(move || answer(&stream, &directory, &seen, &api));
            }
        });
        server
    }

    /// A server whose repository has one commit on `main`.
    pub(crate) fn with_main() -> Self {
        let server = Self::empty();
        server.commit("main", "adder.txt", "1 + 1 = 3\n");
        server
    }

    /// Where repositories are, by their names.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    fn bare(&self) -> PathBuf {
        self.root.path().join("example/adder.git")
    }

    /// Runs git in the repository of the server.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        git_in(&self.bare(), args)
    }

    /// Somebody else commits one file to a branch, which is made from `main` if there is none.
    pub(crate) fn commit(&self, branch: &str, file: &str, content: &str) {
        let work = TempDir::new().expect("a temporary directory");
        let path = self.bare();
        git_in(
            work.path(),
            &["clone", "--quiet", path.to_str().expect("UTF-8"), "."],
        );
        let exists = !git_in(
            work.path(),
            &["branch", "--remotes", "--list", &format!("origin/{branch}")],
        )
        .is_empty();
        if exists {
            git_in(
                work.path(),
                &["checkout", "--quiet", "-B", branch, &format!("origin/{branch}")],
            );
        } else {
            git_in(work.path(), &["checkout", "--quiet", "-B", branch]);
        }
        fs::write(work.path().join(file), content).expect("a file");
        git_in(work.path(), &["add", "."]);
        git_in(
            work.path(),
            &["commit", "--quiet", "--message", &format!("change {file}")],
        );
        git_in(work.path(), &["push", "--quiet", "origin", branch]);
    }

    /// A hook that refuses every push with these words.
    pub(crate) fn refuse(&self, words: &str) {
        let hook = self.bare().join("hooks/pre-receive");
        fs::create_dir_all(hook.parent().expect("a parent")).expect("a directory");
        fs::write(&hook, format!("#!/bin/sh\necho '{words}' >&2\nexit 1\n")).expect("a hook");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("a hook");
    }
}

pub(crate) fn git_in(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args([
            "-c",
            "user.name=Somebody",
            "-c",
            "user.email=somebody@example.com",
        ])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git starts");
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

/// One request of a connection, which is closed after it.
struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let mut request = Self {
            line: line.trim_end().to_owned(),
            headers,
            body: Vec::new(),
        };
        if request.header("expect").is_some() {
            let mut stream = stream;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        }
        if request.header("transfer-encoding") == Some("chunked") {
            request.body = chunks(&mut reader)?;
        } else if let Some(length) = request
            .header("content-length")
            .and_then(|text| text.parse().ok())
        {
            request.body = vec![0; length];
            reader.read_exact(&mut request.body).ok()?;
        }
        Some(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

fn chunks(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).ok()?;
        if size == 0 {
            return Some(body);
        }
        chunk.truncate(size);
        body.extend(chunk);
    }
}

fn answer(stream: &TcpStream, root: &Path, seen: &Mutex<Vec<String>>, api: &Mutex<Vec<(u16, String)>>) {
    let Some(request) = Request::read(stream) else {
        return;
    };
    let body = String::from_utf8(request.body.clone()).unwrap_or_default();
    let body = if body.starts_with('{') {
        body
    } else {
        String::new()
    };
    seen.lock()
        .expect("no panic")
        .push(format!("{} {body}", request.line));
    let mut out = stream;
    let written = if request.line.contains(" /api/") {
        assert_eq!(
            request.header("authorization"),
            Some(format!("token {TOKEN}").as_str())
        );
        let (status, body) = api.lock().expect("no panic").remove(0);
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        out.write_all(answer.as_bytes())
    } else if request.header("authorization") == Some(BASIC) {
        out.write_all(&from_backend(&request, root))
    } else {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\n\
                       Connection: close\r\n\r\n";
        out.write_all(refusal.as_bytes())
    };
    written.expect("the client reads");
}

/// What git's own backend answers.
fn from_backend(request: &Request, root: &Path) -> Vec<u8> {
    let mut words = request.line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = Command::new("git");
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REMOTE_USER", USER)
        .env("CONTENT_LENGTH", request.body.len().to_string());
    for (header, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = request.header(header) {
            command.env(variable, value);
        }
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let body = request.body.clone();
    let feeder = thread::spawn(move || {
        // A backend that refuses does not read to the end.
        let _ = stdin.write_all(&body);
    });
    let output = child.wait_with_output().expect("git ends");
    feeder.join().expect("no panic");
    let end = output
        .stdout
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .expect("headers");
    let headers = String::from_utf8_lossy(&output.stdout[..end]).into_owned();
    let content = &output.stdout[end + 4..];
    let status = headers
        .lines()
        .find_map(|line| line.strip_prefix("Status: "))
        .unwrap_or("200 OK");
    let others = headers.lines().filter(|line| !line.starts_with("Status: "));
    let mut answer = format!("HTTP/1.1 {status}\r\n");
    for line in others {
        answer.push_str(line);
        answer.push_str("\r\n");
    }
    let rest = format!("Content-Length: {}\r\nConnection: close\r\n\r\n", content.len());
    [answer.as_bytes(), rest.as_bytes(), content].concat()
}
