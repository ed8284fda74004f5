//! `jangar release-jobs`: lets Jobs and runs go that Jangar holds, before it is uninstalled.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    process::ExitCode,
};

use anyhow::{Context, Result};
use jangar_controllers::release_jobs::{Fate, Release, What, leader, release_jobs};
use jangar_engine::settings::{Namespaces, Settings};
use kube::Client;

use crate::{BadInput, controllers, settings};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A namespace to look in; can be given several times. Default: those of JANGAR_AGENTS_CONTROLLER_NAMESPACES.
    #[arg(short = 'n', long = "namespace", value_name = "NAME", conflicts_with = "all_namespaces", value_parser = namespace)]
    namespaces: Vec<String>,
    /// Look in every namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Say what would be released, and release nothing.
    #[arg(long)]
    dry_run: bool,
    /// Release although controllers are at work. They go on making Jobs, which are held again.
    #[arg(long)]
    force: bool,
}

/// A name becomes part of the path of a request, so that a slash in it would ask for something else.
fn namespace(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(legal) {
        Ok(text.to_owned())
    } else {
        Err("a namespace has lower-case letters, digits and dashes, at most 63".to_owned())
    }
}

/// What was done, in numbers.
#[derive(Debug, Default)]
struct Summary {
    released: usize,
    unfinished: usize,
    gone: usize,
    failed: usize,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let settings = settings::read([])?;
    let client = controllers::client().await?;
    if !args.dry_run && !args.force {
        refuse_while_led(&client, &settings).await?;
    }
    let namespaces = if args.all_namespaces {
        Namespaces::All
    } else if args.namespaces.is_empty() {
        settings.namespaces
    } else {
        Namespaces::These(args.namespaces.into_iter().collect::<BTreeSet<_>>())
    };
    let mut summaries: BTreeMap<What, Summary> = BTreeMap::from([(What::Job, Summary::default())]);
    let mut told = Ok(());
    let done = release_jobs(&client, &namespaces, args.dry_run, |release| {
        summaries.entry(release.what).or_default().count(release);
        // The work goes on if nobody listens any more; that is told at its end.
        if let (Ok(()), Err(error)) = (&told, tell(release)) {
            told = Err(error);
        }
    })
    .await;
    // Jobs come last.
    for (what, summary) in &summaries {
        writeln!(io::stdout(), "{}", summary.line(*what, args.dry_run))?;
    }
    done.context("not all Jobs, pods and runs were looked at: run the same command again")?;
    told.context("failed to print what was done")?;
    Ok(if summaries.values().all(|summary| summary.failed == 0) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Controllers that are at work record how Jobs end, and let them go by themselves.
async fn refuse_while_led(client: &Client, settings: &Settings) -> Result<()> {
    let lease = &settings.lease;
    if !lease.enabled {
        tracing::warn!("without leader election nobody can tell whether controllers are at work");
        return Ok(());
    }
    let leader = leader(client, lease)
        .await
        .context("cannot tell whether controllers are at work; --force does not ask")?;
    match leader {
        None => Ok(()),
        Some(holder) => Err(BadInput(format!(
            "controllers are at work: {holder} holds the Lease {}/{}. They record how Jobs end, and let them go. Stop them \
             first (kubectl scale deployment agents-controllers --replicas=0), or use --force",
            lease.namespace, lease.name
        ))
        .into()),
    }
}

fn tell(release: &Release) -> io::Result<()> {
    let Release {
        what,
        namespace,
        name,
        ended,
        leaves,
        fate,
    } = release;
    let mut unrecorded = if *ended {
        String::new()
    } else {
        ", whose work has not ended: its result will not be recorded".to_owned()
    };
    if let Some(leaves) = leaves {
        unrecorded.push_str("; ");
        unrecorded.push_str(leaves);
    }
    let name = match what {
        What::Job => format!("{namespace}/{name}"),
        What::AgentRun | What::ToolRun | What::OrchestrationRun | What::Pod => {
            format!("{what} {namespace}/{name}")
        }
    };
    let mut out = io::stdout();
    match fate {
        Fate::Released => writeln!(out, "released {name}{unrecorded}"),
        Fate::WouldBe => writeln!(out, "would release {name}{unrecorded}"),
        Fate::Gone => writeln!(out, "{name} is held no more"),
        Fate::Failed(error) => writeln!(out, "{name} is still held: {error}"),
    }
}

impl Summary {
    fn count(&mut self, release: &Release) {
        match &release.fate {
            Fate::Released | Fate::WouldBe => {
                self.released += 1;
                self.unfinished += usize::from(!release.ended);
            }
            Fate::Gone => self.gone += 1,
            Fate::Failed(_) => self.failed += 1,
        }
    }

    fn line(&self, what: What, dry_run: bool) -> String {
        let Self {
            released,
            unfinished,
            gone,
            failed,
        } = self;
        let verb = if dry_run { "to release" } else { "released" };
        format!(
            "{what}s {verb}: {released} ({unfinished} of them before their work ended); held no more: {gone}; failed: {failed}"
        )
    }
}
