//! A forge on 127.0.0.1: git's own server behind a password, and an API in the words of GitHub's published description. What
//! the API says of branches and commits is what the repository really has.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::spawn_blocking};

/// A token that a person made.
pub(crate) const TOKEN: &str = "a-token-of-the-forge";
/// Where the API is, below the address of the server.
const API: &str = "/api/v3";
const REPOSITORY: &str = "/repos/example/adder";

/// What the forge knows beside its repository.
#[derive(Debug)]
struct Known {
    /// The tokens that are good.
    tokens: BTreeSet<String>,
    /// How many tokens of an App were made.
    minted: usize,
    pulls: Vec<Value>,
}

#[derive(Clone)]
struct Shared {
    root: PathBuf,
    url: String,
    known: Arc<Mutex<Known>>,
}

/// The forge, with the repository `example/adder`, which has one commit on `main`.
pub(crate) struct Forge {
    shared: Shared,
    _root: TempDir,
}

impl Forge {
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Shared {
            root: root.path().to_owned(),
            url: format!("http://{}", listener.local_addr().unwrap()),
            known: Arc::new(Mutex::new(Known {
                tokens: [TOKEN.to_owned()].into(),
                minted: 0,
                pulls: Vec::new(),
            })),
        };
        let bare = shared.bare();
        fs::create_dir_all(&bare).unwrap();
        git(&bare, &["init", "--quiet", "--bare", "--initial-branch=main"]);
        git(&bare, &["config", "http.receivepack", "true"]);
        let work = tempfile::tempdir().unwrap();
        git(work.path(), &["clone", "--quiet", bare.to_str().unwrap(), "."]);
        git(work.path(), &["checkout", "--quiet", "-B", "main"]);
        fs::write(work.path().join("adder.txt"), "1 + 1 = 3\n").unwrap();
        git(work.path(), &["add", "."]);
        git(work.path(), &["commit", "--quiet", "--message", "Add"]);
        git(work.path(), &["push", "--quiet", "origin", "main"]);
        let router = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { shared, _root: root }
    }

    pub(crate) fn url(&self) -> &str {
        &self.shared.url
    }

    /// Runs git in the repository.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.shared.bare(), arguments)
    }

    /// A hook that refuses every push with these words.
    pub(crate) fn refuse(&self, words: &str) {
        use std::os::unix::fs::PermissionsExt;
        let hook = self.shared.bare().join("hooks/pre-receive");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, format!("#!/bin/sh\necho '{words}' >&2\nexit 1\n")).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The pull requests that were opened.
    pub(crate) fn pulls(&self) -> Vec<Value> {
        self.shared.known.lock().unwrap().pulls.clone()
    }

    /// How many tokens of an App were made, and which of them are still good.
    pub(crate) fn tokens(&self) -> (usize, Vec<String>) {
        let known = self.shared.known.lock().unwrap();
        let good = known.tokens.iter().filter(|token| *token != TOKEN);
        (known.minted, good.cloned().collect())
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = git_command(directory).args(arguments).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Git without the configuration of the person who runs the tests.
fn git_command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .args([
            "-c",
            "user.name=Somebody",
            "-c",
            "user.email=somebody@example.com",
        ])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let authorization = header("authorization");
    if let Some(path) = uri.path().strip_prefix(API) {
        let (status, said) = shared.api(&method, path, uri.query(), &authorization, &body);
        return response(status).body(Body::from(said.to_string())).unwrap();
    }
    if !shared.knows_basic(&authorization) {
        let refusal = response(401).header("www-authenticate", "Basic realm=\"git\"");
        return refusal.body(Body::empty()).unwrap();
    }
    let variables = [
        ("REQUEST_METHOD", method.to_string()),
        ("PATH_INFO", uri.path().to_owned()),
        ("QUERY_STRING", uri.query().unwrap_or_default().to_owned()),
        ("CONTENT_LENGTH", body.len().to_string()),
        ("CONTENT_TYPE", header("content-type")),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
        ("GIT_PROTOCOL", header("git-protocol")),
    ];
    spawn_blocking(move || shared.backend(&variables, &body))
        .await
        .unwrap()
}

fn response(status: u16) -> axum::http::response::Builder {
    Response::builder().status(StatusCode::from_u16(status).unwrap())
}

impl Shared {
    fn bare(&self) -> PathBuf {
        self.root.join("example/adder.git")
    }

    /// Whether a header of Basic authentication has a good token.
    fn knows_basic(&self, authorization: &str) -> bool {
        let encoded = authorization.strip_prefix("Basic ").unwrap_or_default();
        let decoded = STANDARD.decode(encoded).unwrap_or_default();
        let text = String::from_utf8(decoded).unwrap_or_default();
        let (user, token) = text.split_once(':').unwrap_or_default();
        user == "x-access-token" && self.known.lock().unwrap().tokens.contains(token)
    }

    /// What git's own server answers.
    fn backend(&self, variables: &[(&str, String)], body: &Bytes) -> Response {
        let mut child = git_command(&self.root)
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REMOTE_USER", "somebody")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, body) = (child.stdin.take().unwrap(), body.clone());
        let feeder = thread::spawn(move || {
            // One that refuses does not read to the end.
            let _ = stdin.write_all(&body);
        });
        let output = child.wait_with_output().unwrap().stdout;
        feeder.join().unwrap();
        let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let (head, content) = (&output[..end], &output[end + 4..]);
        let mut answer = response(200);
        for line in String::from_utf8_lossy(head).lines() {
            let (name, value) = line.split_once(": ").unwrap();
            answer = match name {
                "Status" => answer.status(value[..3].parse::<u16>().unwrap()),
                _ => answer.header(name, value),
            };
        }
        answer.body(Body::from(content.to_vec())).unwrap()
    }

    fn api(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        authorization: &str,
        body: &Bytes,
    ) -> (u16, Value) {
        let mut known = self.known.lock().unwrap();
        let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        // A JWT has three parts.
        if path == "/app/installations/42/access_tokens" && token.split('.').count() == 3 {
            known.minted += 1;
            let token = format!("ghs-{}", known.minted);
            known.tokens.insert(token.clone());
            let expires_at = Timestamp::now() + SignedDuration::from_hours(1);
            // An installation knows its repositories by their names, and tells whose they are.
            let asked = body["repositories"].as_array().into_iter().flatten();
            let repositories: Vec<Value> = asked
                .filter_map(Value::as_str)
                .map(|name| json!({"name": name, "full_name": format!("example/{name}")}))
                .collect();
            let said = json!({
                "token": token, "expires_at": expires_at, "permissions": body["permissions"],
                "repository_selection": "selected", "repositories": repositories,
            });
            return (201, said);
        }
        if !known.tokens.contains(token) {
            return (401, json!({"message": "Bad credentials"}));
        }
        if path == "/installation/token" && method == Method::DELETE {
            known.tokens.remove(token);
            return (204, Value::Null);
        }
        let Some(path) = path.strip_prefix(REPOSITORY) else {
            return (404, json!({"message": "Not Found"}));
        };
        let path = path.replace("%2F", "/");
        if let Some(branch) = path.strip_prefix("/branches/") {
            return self.branch(branch);
        }
        if let Some((base, head)) = path
            .strip_prefix("/compare/")
            .and_then(|range| range.split_once("..."))
        {
            let range = format!("{base}..{head}");
            let ahead: u32 = git(&self.bare(), &["rev-list", "--count", &range])
                .parse()
                .unwrap();
            let said = json!({
                "status": "ahead", "ahead_by": ahead, "behind_by": 0, "total_commits": ahead, "commits": [],
            });
            return (200, said);
        }
        if path == "/pulls" && method == Method::POST {
            let number = known.pulls.len() + 1;
            let opened = json!({
                "number": number, "html_url": format!("{}/example/adder/pull/{number}", self.url), "state": "open",
                "title": body["title"], "body": body["body"], "draft": body["draft"],
                "head": {"ref": body["head"]}, "base": {"ref": body["base"]},
            });
            known.pulls.push(opened.clone());
            return (201, opened);
        }
        let query = query.unwrap_or_default().replace("%2F", "/").replace("%3A", ":");
        let wanted = |pull: &&Value| {
            let head = format!("head=example:{}&", pull["head"]["ref"].as_str().unwrap());
            query.contains(&head)
        };
        let found: Vec<&Value> = known.pulls.iter().filter(wanted).collect();
        (200, json!(found))
    }

    fn branch(&self, branch: &str) -> (u16, Value) {
        let name = format!("refs/heads/{branch}");
        let refs = git(&self.bare(), &["for-each-ref", "--format=%(objectname)", &name]);
        if refs.is_empty() {
            return (404, json!({"message": "Branch not found"}));
        }
        let commit = json!({"sha": refs, "url": format!("{}/commit", self.url)});
        (200, json!({"name": branch, "commit": commit, "protected": false}))
    }
}
