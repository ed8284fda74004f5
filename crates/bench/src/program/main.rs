//! Jangar beside Argo Workflows, and beside a bare loop, on one real API server. Run by `make bench-cluster`.
//!
//! Everybody gets the same: a namespace of their own, a service account, the same fake nodes, the same watches of this
//! program. docs/benchmarks/README.md says what each figure means and what it leaves out.
//!
//! Start reading at [`engine`], which is what a subject has to say of itself. The parts are [`hop`], [`runs`],
//! [`cancel`], [`orchestration`] and [`scale`]. What is made of what they saw is in the library, where it has tests.

#![expect(clippy::print_stdout, reason = "printing figures is what this program is for")]

mod argo;
mod cancel;
mod controller;
mod engine;
mod hop;
mod jangar;
mod jobs;
mod machine;
mod orchestration;
mod place;
mod runs;
mod scale;
mod watch;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use jangar_bench::{
    bounds, picture,
    results::{Results, Subject},
    table,
};

use crate::{
    argo::{Argo, Profile},
    engine::{Cancellable, Chained, Engine},
    hop::Link,
    jangar::Jangar,
    jobs::Jobs,
    orchestration::Orchestrated,
    place::Place,
};

/// Jangar beside Argo Workflows and a bare loop, on the cluster of `tests/cluster`.
#[derive(Debug, Parser)]
struct Options {
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Hop, Part::Runs, Part::Cancel, Part::Graph, Part::Scale, Part::Memory])]
    parts: Vec<Part>,
    /// Who is measured: all, or some, while one of them is worked on.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Subject>,
    /// How many one-step runs are submitted at once.
    #[arg(long, value_delimiter = ',', default_values_t = [200, 1000])]
    runs: Vec<u32>,
    /// How many finished runs there are when memory is measured; for as many as are submitted at once it is anyway.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000])]
    memory: Vec<u32>,
    /// How many pods are cancelled.
    #[arg(long, default_value_t = 100)]
    cancel: u32,
    /// How many finished runs there are when Jangar is started anew, beside a thousand that work.
    #[arg(long, default_value_t = 9_000)]
    started_with: u32,
    /// How many runs wait in the queue at first.
    #[arg(long, default_value_t = 5_000)]
    queued: u32,
    /// How many steps a chain has.
    #[arg(long, default_value_t = 10)]
    steps: u32,
    /// How many steps a chain of an OrchestrationRun has: enough for a 99th percentile, and for a status of some size.
    #[arg(long, default_value_t = 200)]
    orchestrated_steps: u32,
    /// How often each figure is taken. Argo with its defaults waits for its own limits most of the time, always for as long:
    /// its runs are measured once.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// The program `jangar`.
    #[arg(long)]
    jangar: PathBuf,
    /// The program `workflow-controller`.
    #[arg(long)]
    argo: PathBuf,
    /// The directory for the results.
    #[arg(long)]
    out: PathBuf,
    /// The directory for what the controllers say.
    #[arg(long)]
    logs: PathBuf,
}

impl Options {
    fn measures(&self, subject: Subject) -> bool {
        self.only.is_empty() || self.only.contains(&subject)
    }
}

/// Layers and width of the graph that all are measured with.
const DEEP: (u32, u32) = (50, 10);
/// As many steps as an Orchestration may have. Each needs few others: with whole layers of this width it would be too large.
const WIDE: (u32, u32) = (20, 50);

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Part {
    Hop,
    Runs,
    Cancel,
    /// Graphs, beside Argo with its limits raised, and a cancel of many children.
    Graph,
    Memory,
    /// Jangar alone.
    Scale,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.repeats > 0, "--repeats 0 measures nothing");
    let place = Place::here(&options.logs).await?;
    let subjects = Subjects::new(&options);
    let mut results = Results::default();
    machine::describe(&mut results, place.directory())?;
    results.set(
        "asked for",
        format!(
            "parts {:?}, only {:?}, runs {:?}, memory {:?}, cancel {}, started with {}, queued {}, steps {}, orchestrated \
             steps {}, repeats {}",
            options.parts,
            options.only,
            options.runs,
            options.memory,
            options.cancel,
            options.started_with,
            options.queued,
            options.steps,
            options.orchestrated_steps,
            options.repeats
        ),
    );
    results.set("load average before", machine::load()?);
    for engine in subjects.all() {
        if let Some(program) = engine.program("NAMESPACE") {
            results.set(engine.subject().label(), program.to_string());
        }
    }
    println!("{}", table::settings(&results));
    jangar::install(&place).await?;
    argo::install(&place).await?;
    for part in &options.parts {
        match part {
            Part::Hop => subjects.hops(&place, &options, &mut results).await?,
            Part::Runs => subjects.runs(&place, &options, &mut results).await?,
            Part::Cancel => subjects.cancels(&place, &options, &mut results).await?,
            Part::Graph => subjects.graphs(&place, &options, &mut results).await?,
            Part::Memory => subjects.memory(&place, &options, &mut results).await?,
            Part::Scale => subjects.scale(&place, &options, &mut results).await?,
        }
        results.set(
            format!("load average after {part:?}").to_lowercase(),
            machine::load()?,
        );
        // After each part, so that what took long is not lost with what fails later.
        write(&results, &options)?;
    }
    println!("\n{}\n{}", table::table(&results), bounds_told(&results));
    let verdicts = bounds::verdicts(&results);
    let missed = verdicts.iter().filter(|verdict| !verdict.kept).count();
    ensure!(missed == 0, "{missed} of {} bounds were missed", verdicts.len());
    Ok(())
}

/// What was promised, each with what became of it.
fn bounds_told(results: &Results) -> String {
    let line = |verdict: &bounds::Verdict| {
        let outcome = if verdict.kept { "kept" } else { "MISSED" };
        format!("- {outcome}: {}\n", verdict.words)
    };
    bounds::verdicts(results).iter().map(line).collect()
}

/// Everybody who is measured.
struct Subjects {
    jobs: Jobs,
    jangar: Jangar,
    orchestrated: Orchestrated,
    jangar_tuned: Jangar,
    orchestrated_tuned: Orchestrated,
    argo: Argo,
    tuned: Argo,
}

impl Subjects {
    fn new(options: &Options) -> Self {
        let jangar = |profile| Jangar::new(options.jangar.clone(), profile);
        Self {
            jobs: Jobs,
            jangar: jangar(jangar::Profile::Shipped),
            orchestrated: Orchestrated::new(jangar(jangar::Profile::Shipped)),
            jangar_tuned: jangar(jangar::Profile::Tuned),
            orchestrated_tuned: Orchestrated::new(jangar(jangar::Profile::Tuned)),
            argo: Argo::new(options.argo.clone(), Profile::Shipped),
            tuned: Argo::new(options.argo.clone(), Profile::Tuned),
        }
    }

    fn all(&self) -> [&dyn Engine; 7] {
        [
            &self.jobs,
            &self.jangar,
            &self.orchestrated,
            &self.jangar_tuned,
            &self.orchestrated_tuned,
            &self.tuned,
            &self.argo,
        ]
    }

    async fn hops(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        for _ in 0..options.repeats {
            for (subject, link) in [(Subject::Pods, Link::Pod), (Subject::Jobs, Link::Job)] {
                if options.measures(subject) {
                    hop::floor(place, link, 2 * options.steps, results).await?;
                }
            }
        }
        for engine in [
            &self.jangar as &dyn Chained,
            &self.orchestrated,
            &self.orchestrated_tuned,
            &self.tuned,
            &self.argo,
        ] {
            if !options.measures(engine.subject()) {
                continue;
            }
            let steps = match engine.subject() {
                Subject::Orchestrated | Subject::OrchestratedTuned => options.orchestrated_steps,
                _ => options.steps,
            };
            hop::measure(place, engine, steps, options.repeats, results).await?;
        }
        Ok(())
    }

    async fn runs(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        for &at_once in &options.runs {
            // In turns, so that what the machine does beside this falls on all.
            for repeat in 0..options.repeats {
                for engine in self.all() {
                    let again = repeat == 0 || engine.subject() != Subject::Argo;
                    if again && options.measures(engine.subject()) {
                        runs::measure(place, engine, at_once, results).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn cancels(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        cancel::add_node(place).await?;
        for _ in 0..options.repeats {
            for engine in [&self.jangar as &dyn Cancellable, &self.jangar_tuned, &self.tuned] {
                if options.measures(engine.subject()) {
                    cancel::measure(place, engine, options.cancel, results).await?;
                }
            }
        }
        cancel::remove_node(place).await
    }

    async fn graphs(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        for _ in 0..options.repeats {
            if options.measures(Subject::ArgoTuned) {
                orchestration::graph(place, &self.tuned, DEEP, results).await?;
            }
            for engine in [&self.orchestrated, &self.orchestrated_tuned] {
                if options.measures(engine.subject()) {
                    orchestration::graph(place, engine, DEEP, results).await?;
                    orchestration::cancel_children(place, engine, 2 * options.cancel, results).await?;
                }
            }
        }
        if options.measures(Subject::Orchestrated) {
            orchestration::graph(place, &self.orchestrated, WIDE, results).await?;
        }
        Ok(())
    }

    async fn memory(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        for &finished in &options.memory {
            for engine in [&self.jangar as &dyn Engine, &self.tuned] {
                if options.measures(engine.subject()) {
                    runs::memory(place, engine, finished, results).await?;
                }
            }
        }
        Ok(())
    }

    async fn scale(&self, place: &Place, options: &Options, results: &mut Results) -> Result<()> {
        scale::queue(place, &self.jangar, options.queued, results).await?;
        scale::start_up(place, &self.jangar, options.started_with, results).await
    }
}

fn write(results: &Results, options: &Options) -> Result<()> {
    let page = format!(
        "# Results\n\nWritten by `make bench-cluster`; [README.md](README.md) says what they mean. A cell is the median, \
         of a hundred measurements or more with the 99th percentile, and in brackets the least and the most.\n\n{}\n![The same as bars](results.svg)\n\n## Bounds\n\n{}\n## Settings\n\n{}",
        table::table(results),
        bounds_told(results),
        table::settings(results)
    );
    let json = format!("{}\n", serde_json::to_string_pretty(&results.to_json())?);
    fs::create_dir_all(&options.out)?;
    for (name, text) in [
        ("results.md", page),
        ("results.json", json),
        ("results.svg", picture::svg(results)),
    ] {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}
