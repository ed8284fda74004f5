//! Runs `script.txt` and writes down what its commands print.
//!
//! A line of the script is one of
//!
//! - `# text`: a remark;
//! - `$ command`: is run by the shell to its end; indented lines that follow are its standard input;
//! - `& command`: is started beside the next ones;
//! - `until TEXT`: what the command beside prints, up to and including the line that contains the text;
//! - `received TEXT`: waits until the command beside has sent a request whose URI contains the text;
//! - `end`: the command beside comes to its end by itself; `stop`: it is ended;
//! - `advance SECONDS`: the clock of the server moves.

use std::{fmt::Write, path::Path, process::Stdio, sync::LazyLock, time::Duration};

use futures::FutureExt;
use regex::Regex;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// No command of the script takes seconds; one that takes this long waits for something that never comes.
const PATIENCE: Duration = Duration::from_mins(1);
/// What `kubectl explain` says of a kind that is served and whose schema is not there yet. A kind that is not served it calls
/// otherwise.
const UNPUBLISHED: &str = "couldn't find resource for";
/// How long it is until a command is tried again, for as long as the patience lasts.
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// What the transcript says then. It is not an error by itself, so that the rest of the script still shows what it can.
const IN_VAIN: &str = "waited in vain\n";

/// What the script can see of the server beside what kubectl shows.
pub(crate) trait Server {
    fn advance(&self, seconds: i64);
    fn position(&self) -> usize;
    fn received(&self, position: usize, text: &str) -> impl Future<Output = ()>;
}

#[derive(Debug, PartialEq)]
enum Line {
    Remark(String),
    Run { command: String, input: String },
    Beside { command: String },
    Until(String),
    Received(String),
    End,
    Stop,
    Advance(i64),
}

fn parse(script: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in script.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.to_owned();
        lines.push(match word {
            "" if rest.is_empty() => continue,
            "" => {
                let Some(Line::Run { input, .. }) = lines.last_mut() else {
                    panic!("input for no command: {line}")
                };
                input.push_str(
                    line.strip_prefix("    ")
                        .expect("input is indented by four spaces"),
                );
                input.push('\n');
                continue;
            }
            "#" => Line::Remark(rest),
            "$" => Line::Run {
                command: rest,
                input: String::new(),
            },
            "&" => Line::Beside { command: rest },
            "until" => Line::Until(rest),
            "received" => Line::Received(rest),
            "end" => Line::End,
            "stop" => Line::Stop,
            "advance" => Line::Advance(rest.parse().expect("a number of seconds")),
            _ => panic!("not a line of a script: {line}"),
        });
    }
    lines
}

/// A command that runs beside others.
struct Beside {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// How many requests the server had received when it started.
    position: usize,
}

/// Runs the script in a directory of its own, with the environment of [`command`].
pub(crate) async fn run(script: &str, directory: &Path, server: &impl Server) -> String {
    let mut transcript = String::new();
    let mut beside: Option<Beside> = None;
    for line in parse(script) {
        let text = match line {
            Line::Remark(text) => format!("\n# {text}\n"),
            Line::Run { command, input } => {
                format!(
                    "\n$ {command}\n{}",
                    within(run_to_end(&command, &input, directory)).await
                )
            }
            Line::Beside { command } => {
                let position = server.position();
                let mut child = shell(&command, directory)
                    .spawn()
                    .expect("a shell can be started");
                let stdout = child.stdout.take().expect("the output is piped");
                beside = Some(Beside {
                    child,
                    lines: BufReader::new(stdout).lines(),
                    position,
                });
                format!("\n& {command}\n")
            }
            Line::Until(text) => {
                let beside = beside.as_mut().expect("a command runs beside");
                format!("\n& until {text}\n{}", within(read_until(beside, &text)).await)
            }
            Line::Received(text) => {
                let beside = beside.as_ref().expect("a command runs beside");
                let received = server.received(beside.position, &text).map(|()| String::new());
                within(received).await
            }
            Line::End => {
                let beside = beside.take().expect("a command runs beside");
                format!("\n& ends\n{}", within(finish(beside)).await)
            }
            Line::Stop => {
                let mut beside = beside.take().expect("a command runs beside");
                beside.child.kill().await.expect("the command can be ended");
                continue;
            }
            Line::Advance(seconds) => {
                server.advance(seconds);
                format!("\n# {seconds} seconds later\n")
            }
        };
        transcript.push_str(&text);
    }
    mask(transcript.trim_start(), directory)
}

async fn within(printing: impl Future<Output = String>) -> String {
    timeout(PATIENCE, printing)
        .await
        .unwrap_or_else(|_| IN_VAIN.to_owned())
}

/// A shell in the directory that finds kubectl there, and nothing of the user's own configuration.
fn shell(command: &str, directory: &Path) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .env_clear()
        .env("PATH", format!("{}:{path}", directory.join("bin").display()))
        .env("HOME", directory)
        .env("TMPDIR", directory)
        .env("KUBECONFIG", directory.join("kubeconfig"))
        .env("KUBECACHEDIR", directory.join("cache"))
        .env("TZ", "UTC")
        .env("LC_ALL", "C")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    shell
}

/// A cluster publishes the schema of a new kind some time after it serves it, and a busy one takes long for that.
async fn run_to_end(command: &str, input: &str, directory: &Path) -> String {
    loop {
        let printed = run_once(command, input, directory).await;
        if !printed.contains(UNPUBLISHED) {
            return printed;
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
}

async fn run_once(command: &str, input: &str, directory: &Path) -> String {
    let mut child = shell(command, directory)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell can be started");
    let mut stdin = child.stdin.take().expect("the input is piped");
    // A command that fails early does not read its input.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.expect("the command runs");
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    add_end(&mut printed, &output.stderr, output.status.code());
    printed
}

/// Standard error and an exit code other than 0 are marked, so that they cannot be taken for output.
fn add_end(printed: &mut String, stderr: &[u8], code: Option<i32>) {
    if !printed.is_empty() && !printed.ends_with('\n') {
        printed.push('\n');
    }
    for line in String::from_utf8_lossy(stderr).lines() {
        let _ = writeln!(printed, "stderr: {line}");
    }
    if code != Some(0) {
        let _ = writeln!(
            printed,
            "exit code: {}",
            code.map_or_else(|| "none".to_owned(), |code| code.to_string())
        );
    }
}

async fn read_until(beside: &mut Beside, text: &str) -> String {
    let mut printed = String::new();
    while let Some(line) = beside.lines.next_line().await.expect("the output can be read") {
        let _ = writeln!(printed, "{line}");
        if line.contains(text) {
            return printed;
        }
    }
    printed + "the command ended\n"
}

async fn finish(mut beside: Beside) -> String {
    let mut printed = String::new();
    while let Some(line) = beside.lines.next_line().await.expect("the output can be read") {
        let _ = writeln!(printed, "{line}");
    }
    let output = beside.child.wait_with_output().await.expect("the command runs");
    add_end(&mut printed, &output.stderr, output.status.code());
    printed
}

/// What differs from run to run although the server does not: its identifiers and versions, the ages that kubectl works
/// out with the clock of the machine, and the names of temporary files.
static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let masks = [
        (
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        (r#"("?resourceVersion"?: ?)"[0-9]+""#, "$1<version>"),
        ("(Resource Version: +)[0-9]+", "$1<version>"),
        (r"generated-[a-z0-9]{5}\b", "generated-<name>"),
        (r"v1\.35\.[0-9]+", "v1.35.x"),
        (r"https://127\.0\.0\.1:[0-9]+", "<server>"),
        (r"(LIVE|MERGED)-[0-9]+", "$1"),
        (r"(kubectl-edit-)[0-9]+", "$1"),
        // The time and the process in kubectl's own log.
        (r"stderr: ([IWE])[0-9]{4} [0-9:.]+ +[0-9]+ ", "stderr: $1 "),
        // The times of the files that `diff` compares.
        (r"\t20[0-9-]+ [0-9:.]+ \+0000", ""),
        (r#""platform": "[^"]+""#, r#""platform": "<platform>""#),
        // The ages of pods in `describe node`.
        (r"(?m)(\(0%\)) +(?:[0-9]+[a-z]+)+$", "$1  <age>"),
        // The rows of an event list in `describe`.
        (
            r"(?m)^(  (?:Normal|Warning) +\S+ +)(?:[0-9]+[a-z]+)+(?: \(x[0-9]+ over (?:[0-9]+[a-z]+)+\))? +",
            "$1<age>  ",
        ),
        ("  Reason +Age +From", "  Reason  Age  From"),
        ("  ------ +---- +----", "  ------  ----  ----"),
    ];
    masks
        .map(|(pattern, shown)| (Regex::new(pattern).expect("the pattern is valid"), shown))
        .into()
});

fn mask(text: &str, directory: &Path) -> String {
    let start = text.replace(&directory.display().to_string(), "<directory>");
    MASKS.iter().fold(start, |text, (pattern, shown)| {
        pattern.replace_all(&text, *shown).into_owned()
    })
}
