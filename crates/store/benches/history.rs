//! How fast history is read when there is much of it, with every setting printed beside the figures. Run by `make bench`.
//!
//! A hundred thousand runs are written, on SQLite and, where `JANGAR_TEST_POSTGRES` names the programs of one, on Postgres;
//! `JANGAR_BENCH_ONLY=postgres` or `sqlite` leaves the other out. Each
//! question is asked some hundred times; the slowest but one in a hundred has a ceiling, and the program fails when one is above
//! it. Beside it stands which part of the ceiling it takes, and how the last page of a list compares with the first: a page
//! that is found by its key costs the same wherever it is.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "printing figures is what this program is for, and one that cannot go on has failed"
)]

#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../tests/server/mod.rs"]
mod server;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use jangar_api::phase::RunPhase;
use jangar_store::{Config, Namespaces, PageRequest, RunFilter, RunKind, RunRecord, Store};
use jiff::Timestamp;
use serde_json::{Value, json};

const RUNS: u32 = 100_000;
const AT_ONCE: u32 = 500;
const ASKED: u32 = 300;
const CEILING: Duration = Duration::from_millis(50);
/// The run of number zero was created then, and each a second after the one before.
const FIRST_SECOND: i64 = 1_760_000_000;
const NAMESPACES: u32 = 20;
const AGENTS: u32 = 50;

#[tokio::main]
async fn main() -> Result<()> {
    // Cargo says `--bench` when it means it. Without, as in `cargo test --all-targets`, it only wants to see it start.
    if !env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let runs = env::var("JANGAR_BENCH_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(RUNS);
    println!(
        "{runs} runs, {NAMESPACES} namespaces, {AGENTS} agents; each question {ASKED} times, pages of 50"
    );
    println!(
        "object of a run: {} bytes; machine: {}",
        object(1).to_string().len(),
        machine()
    );
    let mut above = Vec::new();
    // A database that was filled before is asked again, and nothing is written: for whoever looks for what makes a question slow.
    if let Ok(url) = env::var("JANGAR_BENCH_URL") {
        let store = Store::connect(Config::new(&url, |_| None)?).await?;
        let above = measure("as it is", &store, runs).await?;
        store.close().await;
        ensure!(above.is_empty(), "above {CEILING:?}: {}", above.join(", "));
        return Ok(());
    }
    let only = env::var("JANGAR_BENCH_ONLY").ok();
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if is_wanted("sqlite") {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let url = format!("sqlite://{}/history.db", directory.path().display());
        above.extend(fill_and_measure("sqlite", &url, runs).await?);
    }
    if !is_wanted("postgres") {
        println!("postgres was left out, as JANGAR_BENCH_ONLY says");
    } else if env::var_os("JANGAR_TEST_POSTGRES").is_some() {
        let server = server::Server::start();
        above.extend(fill_and_measure("postgres", &server.url("127.0.0.1", "postgres"), runs).await?);
    } else {
        println!(
            "postgres was left out: JANGAR_TEST_POSTGRES does not name its programs (scripts/tools.sh postgres prints them)"
        );
    }
    ensure!(
        above.is_empty(),
        "above the ceiling of {CEILING:?}: {}",
        above.join(", ")
    );
    Ok(())
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(" unknown");
    format!("{cores} cores,{}", model.trim_start_matches(['\t', ':']))
}

/// Words that nobody uses any more: one for a short time long ago, the other until half of the runs were made.
fn era(number: u32) -> &'static str {
    match number {
        _ if number < RUNS / 20 => "archaic ancient",
        _ if number < RUNS / 2 => "ancient",
        _ => "new",
    }
}

/// A run like those that people make: a goal in words, a repository, two steps, an outcome.
fn object(number: u32) -> Value {
    let at = |seconds: u32| {
        let second = FIRST_SECOND + i64::from(number) + i64::from(seconds);
        Timestamp::from_second(second).unwrap().to_string()
    };
    let words = [
        "login", "search", "upload", "billing", "report", "export", "import", "session", "cache", "queue",
    ];
    let word = |shift: u32| words[usize::try_from((number / shift) % 10).unwrap()];
    let (phase, reason) = match number % 10 {
        0 => ("Failed", "AgentFailed"),
        1 => ("Cancelled", "Cancelled"),
        _ => ("Succeeded", "Completed"),
    };
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": {
            "name": format!("run-{number}"), "namespace": format!("team-{}", number % NAMESPACES),
            "uid": format!("00000000-0000-4000-8000-{number:012}"), "resourceVersion": number.to_string(),
            "creationTimestamp": at(0), "labels": {"team": format!("t{}", number % NAMESPACES), "stage": "implement"},
        },
        "spec": {
            "agentRef": {"name": format!("agent-{}", number % AGENTS)}, "runtime": {"type": "workflow"},
            "parameters": {"era": era(number), "goal": format!("mend the {} of the {} page, issue {number}", word(1), word(10))},
            "implementation": {"inline": {"text": "look at the failing test, find the cause, mend it, and say why ".repeat(10)}},
        },
        "status": {
            "phase": phase, "startedAt": at(1), "finishedAt": at(90),
            "conditions": [
                {"type": phase, "status": "True", "reason": reason, "message": format!("the {} is as it should be", word(100)),
                 "lastTransitionTime": at(90)},
            ],
            "vcs": {"repository": format!("owner/service-{}", number % 97), "headBranch": format!("agent/run-{number}")},
            "outcome": {"exitCode": 0, "summary": format!("changed {} files near {}", number % 13, word(1000))},
            "workflow": {"steps": [
                {"name": "plan", "phase": "Succeeded", "attempt": 1, "startedAt": at(1), "finishedAt": at(30)},
                {"name": "implement", "phase": phase, "attempt": 1, "startedAt": at(30), "finishedAt": at(90)},
            ]},
            "artifacts": [{"name": "patch", "path": "out/change.patch"}],
        },
    })
}

async fn fill_and_measure(name: &str, url: &str, runs: u32) -> Result<Vec<String>> {
    let store = Store::connect(Config::new(url, |_| None)?).await?;
    let begun = Instant::now();
    for first in (0..runs).step_by(usize::try_from(AT_ONCE)?) {
        let records: Vec<RunRecord> = (first..runs.min(first + AT_ONCE))
            .map(|number| RunRecord::of(&object(number), "bench").unwrap())
            .collect();
        store
            .record_all(&records, Timestamp::from_second(FIRST_SECOND)?)
            .await?;
    }
    let took = begun.elapsed();
    println!(
        "\n{name}: written in {took:.1?}, {:.0} a second",
        f64::from(runs) / took.as_secs_f64()
    );
    let above = measure(name, &store, runs).await?;
    store.close().await;
    Ok(above)
}

async fn measure(name: &str, store: &Store, runs: u32) -> Result<Vec<String>> {
    println!(
        "{:<42} {:>9} {:>9} {:>9} {:>8}",
        "question", "median", "p99", "most", "of 50ms"
    );
    let mut above = Vec::new();
    let (mut first_page, mut last_page) = (Duration::ZERO, Duration::ZERO);
    for question in questions(store, runs).await? {
        let figures = ask(store, &question).await?;
        println!(
            "{:<42} {:>9.2?} {:>9.2?} {:>9.2?} {:>7.0}%",
            question.name,
            figures.median,
            figures.p99,
            figures.most,
            figures.p99.as_secs_f64() / CEILING.as_secs_f64() * 100.0
        );
        match question.name {
            "first page" => first_page = figures.median,
            "a page at the far end" => last_page = figures.median,
            _ => {}
        }
        if figures.p99 > CEILING && question.has_ceiling {
            above.push(format!("{name}: {} {:.1?}", question.name, figures.p99));
        }
    }
    println!(
        "a page at the far end takes {:.2} times the first",
        last_page.as_secs_f64() / first_page.as_secs_f64()
    );
    Ok(above)
}

enum What {
    List(RunFilter, PageRequest),
    Count(RunFilter),
    Page(String),
}

struct Question {
    name: &'static str,
    what: What,
    has_ceiling: bool,
}

struct Figures {
    median: Duration,
    p99: Duration,
    most: Duration,
}

async fn questions(store: &Store, runs: u32) -> Result<Vec<Question>> {
    let far = far_end(store, runs).await?;
    let first = Question::list("first page", RunFilter::default());
    let far = Question {
        name: "a page at the far end",
        what: What::List(RunFilter::default(), far),
        has_ceiling: true,
    };
    let page = Question {
        name: "the page of a run",
        what: What::Page(format!("00000000-0000-4000-8000-{:012}", runs / 2)),
        has_ceiling: true,
    };
    // Counting looks at all it counts; it has no place on the path of a page.
    let counts = Question {
        name: "counts of all (no ceiling)",
        what: What::Count(RunFilter::default()),
        has_ceiling: false,
    };
    let all = [first, far].into_iter().chain(filters(runs)).chain(searches());
    Ok(all.chain([page, counts]).collect())
}

impl Question {
    fn list(name: &'static str, filter: RunFilter) -> Self {
        Self {
            name,
            what: What::List(filter, PageRequest::default()),
            has_ceiling: true,
        }
    }
}

fn only(namespace: &str) -> Namespaces {
    Namespaces::Only(vec![namespace.to_owned()])
}

fn filters(runs: u32) -> Vec<Question> {
    let all = RunFilter::default;
    let time = |number: u32| Timestamp::from_second(FIRST_SECOND + i64::from(number)).ok();
    let namespace = RunFilter {
        namespaces: only("team-3"),
        ..all()
    };
    let failed = RunFilter {
        phases: vec![RunPhase::Failed],
        ..all()
    };
    // Runs of the other team have other numbers, so that none of this one's was cancelled.
    let both = RunFilter {
        namespaces: only("team-3"),
        phases: vec![RunPhase::Failed, RunPhase::Cancelled],
        ..all()
    };
    let agent = RunFilter {
        subject: Some("agent-7".to_owned()),
        kind: Some(RunKind::AgentRun),
        ..all()
    };
    let none = RunFilter {
        kind: Some(RunKind::ToolRun),
        ..all()
    };
    // What the control plane asks for.
    let listed = RunFilter {
        kind: Some(RunKind::AgentRun),
        namespaces: only("team-3"),
        ..all()
    };
    let failed_there = RunFilter {
        phases: vec![RunPhase::Failed],
        ..listed.clone()
    };
    let of_agent_there = RunFilter {
        subject: Some("agent-7".to_owned()),
        ..listed.clone()
    };
    let rare_there = RunFilter {
        kind: Some(RunKind::ToolRun),
        ..listed.clone()
    };
    let day = RunFilter {
        since: time(runs / 3),
        until: time(runs / 3 + 86_400),
        ..all()
    };
    let failed_of_agent = RunFilter {
        phases: vec![RunPhase::Failed],
        ..agent.clone()
    };
    let all_of_it = RunFilter {
        phases: vec![RunPhase::Failed],
        ..of_agent_there.clone()
    };
    let cancelled_on_a_day = RunFilter {
        phases: vec![RunPhase::Cancelled],
        namespaces: only("team-3"),
        ..day.clone()
    };
    // A caller who may see some of the namespaces, most of which have no run that was cancelled.
    let some = RunFilter {
        namespaces: Namespaces::Only((0..20).map(|number| format!("team-{}", number * 2)).collect()),
        phases: vec![RunPhase::Cancelled],
        ..all()
    };
    vec![
        Question::list("one agent, failed, which it has none of", failed_of_agent),
        Question::list("one agent there, failed: none", all_of_it),
        Question::list("a day, one namespace, a phase: none", cancelled_on_a_day),
        Question::list("twenty namespaces, a phase: none", some),
        Question::list("one namespace", namespace),
        Question::list("failed ones", failed),
        Question::list("phases that one namespace has none of", both),
        Question::list("one agent, one kind", agent),
        Question::list("a kind that has none", none),
        Question::list("a day of them", day),
        Question::list("one kind, one namespace", listed),
        Question::list("one kind, one namespace, failed", failed_there),
        Question::list("one kind, one namespace, one agent", of_agent_there),
        Question::list("a kind that a namespace has none of", rare_there),
    ]
}

fn searches() -> Vec<Question> {
    let text = |text: &str| RunFilter {
        text: Some(text.to_owned()),
        ..RunFilter::default()
    };
    let failed = RunFilter {
        namespaces: only("team-10"),
        phases: vec![RunPhase::Failed],
        ..text("mend")
    };
    let nobody = RunFilter {
        subject: Some("nobody".to_owned()),
        ..text("mend")
    };
    // Half of all runs are of an even number, and none of those was cancelled.
    let apart = RunFilter {
        phases: vec![RunPhase::Cancelled],
        namespaces: Namespaces::Only((0..10).map(|number| format!("team-{}", number * 2)).collect()),
        ..text("mend")
    };
    let phases = RunFilter {
        namespaces: only("team-3"),
        kind: Some(RunKind::AgentRun),
        phases: vec![RunPhase::Failed, RunPhase::Cancelled],
        ..text("implement")
    };
    let agent = RunFilter {
        subject: Some("agent-7".to_owned()),
        kind: Some(RunKind::AgentRun),
        ..text("login")
    };
    let nowhere = RunFilter {
        namespaces: only("nowhere"),
        ..text("mend")
    };
    vec![
        Question::list("a long word in all of them", text("implement")),
        Question::list("a word in all, ten namespaces, none", apart),
        Question::list("a word in all, phases one has none of", phases),
        Question::list("a word in a third, an agent without it", agent),
        Question::list("a word in all, a namespace without runs", nowhere),
        Question::list("a word that only the oldest twentieth has", text("archaic")),
        // Postgres finds words in no order, and so many that are so far from the newest are the hardest to put into one.
        Question::list("a word that only the older half has", text("ancient")),
        Question::list("a word in all of them", text("mend")),
        Question::list("two words in a tenth of them", text("login page")),
        Question::list("a word in one of them", text("77777")),
        Question::list("a word in none of them", text("unheard")),
        Question::list("the beginnings of two words", text("sess bill")),
        Question::list("a word in all, one namespace, failed", failed),
        Question::list("a word in all, an agent that has none", nobody),
    ]
}

/// A page near the oldest run, with the cursor that leads there.
async fn far_end(store: &Store, runs: u32) -> Result<PageRequest> {
    let mut request = PageRequest {
        limit: 500,
        cursor: None,
    };
    for _ in 0..(runs / 500).saturating_sub(2) {
        let page = store.runs(&RunFilter::default(), &request).await?;
        match page.next {
            Some(next) => request.cursor = Some(next),
            None => break,
        }
    }
    Ok(PageRequest { limit: 50, ..request })
}

async fn ask(store: &Store, question: &Question) -> Result<Figures> {
    let mut times = Vec::new();
    for _ in 0..ASKED {
        let begun = Instant::now();
        match &question.what {
            What::List(filter, page) => drop(store.runs(filter, page).await?),
            What::Count(filter) => drop(store.counts(filter).await?),
            What::Page(uid) => ensure!(store.page(uid).await?.is_some(), "the run is there"),
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    Ok(Figures {
        median: at(50),
        p99: at(99),
        most: times.last().copied().unwrap_or_default(),
    })
}
