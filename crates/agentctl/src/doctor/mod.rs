//! `doctor`: looks for what is wrong, and says how each finding is mended. `cluster` looks at what Jangar stands on, `plane` asks the
//! control plane for as much of that as it knows, and `work` looks at what Jangar does.

mod cluster;
mod plane;
mod work;

use jangar_api::labels;
use serde_json::{Value, json};

use crate::{
    cli::DoctorArgs,
    clock::Clock,
    console::Tone,
    error::{self, Error},
    output,
    resource::RUNS,
    session::Session,
    transport::{
        Transport,
        kube::{Kube, builtin},
    },
};

/// How many names a finding lists.
const NAMED_MAX: usize = 5;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    /// Nobody looked.
    Skip,
    Warn,
    Fail,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
struct Finding {
    level: Level,
    subject: &'static str,
    message: String,
    /// A line that mends it.
    fix: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            subject,
            message: message.into(),
            fix: None,
        }
    }

    /// What was not looked at, and where it would be.
    fn skip(subject: &'static str, message: impl Into<String>) -> Self {
        Self {
            level: Level::Skip,
            ..Self::ok(subject, message)
        }
    }

    fn warn(subject: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Warn,
            subject,
            message: message.into(),
            fix: Some(fix.into()),
        }
    }

    fn fail(subject: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            level: Level::Fail,
            ..Self::warn(subject, message, fix)
        }
    }
}

pub async fn doctor(session: &mut Session, arguments: &DoctorArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let place = (!arguments.all_namespaces).then_some(namespace.as_str());
    let mut findings = match &transport {
        Transport::Kube(kube) => look(kube, &namespace, session.clock).await?,
        Transport::Grpc(grpc) => plane::look(grpc, &namespace, session.clock).await?,
    };
    let mut runs = Vec::new();
    for kind in RUNS {
        match transport.list(kind, place, None).await {
            Ok(found) => runs.extend(found),
            Err(error) => findings.push(unread("runs", &error)),
        }
    }
    findings.push(work::queue(&runs, session.clock));
    findings.extend(work::warned(&runs));
    match &transport {
        Transport::Kube(kube) => {
            let jobs = kube
                .list_any(&builtin("batch", "v1", "Job", "jobs"), place, None, None)
                .await;
            // Where Kubernetes leaves Jobs to Jangar, it holds their pods.
            let pods = kube
                .list_any(
                    &builtin("", "v1", "Pod", "pods"),
                    place,
                    Some(labels::JOB_NAME),
                    None,
                )
                .await;
            match (jobs, pods) {
                (Ok(jobs), Ok(pods)) => {
                    let all = [&runs[..], &jobs, &pods].concat();
                    findings.push(work::stuck(&all, session.clock));
                    findings.push(work::uncaptured(&jobs, session.clock));
                }
                (Err(error), _) | (_, Err(error)) => findings.push(unread("jobs", &error)),
            }
        }
        Transport::Grpc(_) => {
            findings.push(work::stuck(&runs, session.clock));
            findings.push(Finding::skip(
                "jobs",
                "only Kubernetes shows them: agentctl --kube doctor",
            ));
        }
    }
    findings.push(work::gates(&transport, place).await);
    show(session, &findings)
}

/// What Jangar stands on, as Kubernetes itself tells it.
async fn look(kube: &Kube, namespace: &str, clock: Clock) -> Result<Vec<Finding>, Error> {
    let version = kube.version().await?;
    let mut findings = vec![Finding::ok(
        "server",
        format!("Kubernetes {version} at {}", kube.server()),
    )];
    findings.push(cluster::clocks(kube).await);
    findings.push(cluster::namespace_exists(kube, namespace).await);
    findings.extend(cluster::kinds(kube).await?);
    findings.extend(cluster::rights(kube, namespace).await);
    findings.push(cluster::leader(kube, namespace, clock).await);
    findings.push(Finding::skip(
        "database",
        "only the control plane knows: agentctl --grpc doctor",
    ));
    Ok(findings)
}

fn show(session: &mut Session, findings: &[Finding]) -> Result<(), Error> {
    let format = session.format();
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let failed = count(Level::Fail);
    if output::is_for_programs(&format) {
        let all: Vec<Value> = findings
            .iter()
            .map(|finding| {
                json!({
                    "level": finding.level.word(), "subject": finding.subject, "message": finding.message, "fix": finding.fix,
                })
            })
            .collect();
        output::value(session, &Value::Array(all))?;
    } else {
        for finding in findings {
            let word = finding.level.word();
            let painted = session.console.painted(word, Tone::of(word));
            let gap = " ".repeat(4_usize.saturating_sub(word.len()));
            session.console.line(&format!(
                "{painted}{gap}  {:<10} {}",
                finding.subject, finding.message
            ))?;
            if let Some(fix) = &finding.fix {
                session.console.line(&format!("      {:<10} fix: {fix}", ""))?;
            }
        }
        let unseen = match count(Level::Skip) {
            0 => String::new(),
            unseen => format!("; {unseen} not looked at"),
        };
        session.console.note(&match (failed, count(Level::Warn)) {
            (0, 0) => format!("Everything that was looked at is well{unseen}."),
            (_, warned) => format!("{failed} to mend, {warned} to look at{unseen}"),
        })?;
    }
    if failed > 0 {
        return Err(Error::Silent(error::RUNTIME));
    }
    Ok(())
}

fn unread(subject: &'static str, error: &Error) -> Finding {
    Finding::warn(
        subject,
        format!("cannot be looked at: {error}"),
        "ask whoever runs the cluster for the right to list them",
    )
}

fn some(names: &[String]) -> String {
    let listed: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}
