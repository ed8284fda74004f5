//! What Jangar promises of its speed, held against what was measured. A promise without a figure is not judged.

use crate::{
    results::{Measure, Results, Subject},
    statistics::Summary,
};

/// How far a figure may go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// The median is at most this.
    AtMost(f64),
    /// In 99 of a hundred measurements at most this. Of fewer than a hundred, the worst stands for it.
    MostlyAtMost(f64),
    /// The median is at least this.
    AtLeast(f64),
    /// The median is larger than that of another subject in the same run.
    MoreThan(Subject),
}

/// A promise, and whether it was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub kept: bool,
    /// What was promised of whom, and the figure, for people.
    pub words: String,
}

/// Every promise of which this run has a figure.
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    let rows = results.rows();
    let judged = rows.iter().flat_map(|(measure, cells)| {
        promises(*measure).into_iter().filter_map(|(subject, bound)| {
            let other = match bound {
                Bound::MoreThan(other) => Some(cells.get(&other)?.median),
                Bound::AtMost(_) | Bound::MostlyAtMost(_) | Bound::AtLeast(_) => None,
            };
            Some(judge(*measure, subject, bound, cells.get(&subject)?, other))
        })
    });
    judged.collect()
}

/// The most seconds from a start to the first decision.
const START_SECONDS_MAX: f64 = 5.0;
/// The most writes of our own for a run.
const WRITES_MAX: f64 = 5.0;

/// Jangar is held to them as it is shipped and where it looks after its Jobs itself. With others that are tuned it is compared as it is
/// tuned; few writes of its own are promised where Kubernetes makes the pods.
fn promises(measure: Measure) -> Vec<(Subject, Bound)> {
    use Subject::{ArgoTuned, Jangar, JangarTuned, Orchestrated, OrchestratedTuned};
    let both = |subjects: [Subject; 2], bounds: &[Bound]| {
        let each = subjects.into_iter();
        each.flat_map(|subject| bounds.iter().map(move |bound| (subject, *bound)))
            .collect()
    };
    let runs = |bounds: &[Bound]| both([Jangar, JangarTuned], bounds);
    let orchestrated = |bounds: &[Bound]| both([Orchestrated, OrchestratedTuned], bounds);
    match measure {
        Measure::Hop => orchestrated(&[Bound::AtMost(0.050), Bound::MostlyAtMost(0.250)]),
        Measure::RunsPerSecond { .. } => {
            let mut all: Vec<_> = runs(&[Bound::AtLeast(40.0)]);
            all.push((OrchestratedTuned, Bound::MoreThan(ArgoTuned)));
            all
        }
        Measure::WritesPerRun { .. } => vec![(Jangar, Bound::AtMost(WRITES_MAX))],
        Measure::EventsPerRun { .. } => runs(&[Bound::AtMost(2.0)]),
        Measure::AliveWhenReported { .. } => runs(&[Bound::MostlyAtMost(0.0)]),
        Measure::Graph {
            layers: 50,
            width: 10,
        } => orchestrated(&[Bound::AtMost(20.0)]),
        Measure::CancelUntilAsked { children: 0..=200 } => orchestrated(&[Bound::AtMost(0.5)]),
        Measure::StartToFirstDecision { .. } => vec![(Jangar, Bound::AtMost(START_SECONDS_MAX))],
        Measure::ProcessorTimePerRun { .. }
        | Measure::IdleMemory
        | Measure::ResidentMemory { .. }
        | Measure::ProportionalMemory { .. }
        | Measure::PeakMemory { .. }
        | Measure::CancelUntilGone { .. }
        | Measure::CancelUntilReported { .. }
        | Measure::ReportAfterEnd { .. }
        | Measure::Graph { .. }
        | Measure::GraphProcessorTimePerNode { .. }
        | Measure::GraphWritesPerNode { .. }
        | Measure::GraphEventsPerNode { .. }
        | Measure::GraphSize { .. }
        | Measure::CancelUntilAsked { .. }
        | Measure::CancelUntilDeleted { .. }
        | Measure::MemoryAfterStart { .. }
        | Measure::QueuedRunsPerSecond { .. } => Vec::new(),
    }
}

fn judge(measure: Measure, subject: Subject, bound: Bound, summary: &Summary, other: Option<f64>) -> Verdict {
    let unit = measure.unit();
    let (figure, kept, promise) = match bound {
        Bound::AtMost(most) => (
            summary.median,
            summary.median <= most,
            format!("at most {most} {unit}"),
        ),
        Bound::MostlyAtMost(most) => {
            let high = summary.high.unwrap_or(summary.most);
            let promise = format!("at most {most} {unit} at the 99th percentile");
            (high, high <= most, promise)
        }
        Bound::AtLeast(least) => (
            summary.median,
            summary.median >= least,
            format!("at least {least} {unit}"),
        ),
        Bound::MoreThan(whom) => {
            let other = other.unwrap_or_default();
            let promise = format!("more than the {other:.3} {unit} of {}", whom.label());
            (summary.median, summary.median > other, promise)
        }
    };
    Verdict {
        kept,
        words: format!("{}, {}: {figure:.3}, {promise}", subject.label(), measure.label()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(results: &Results) -> Vec<String> {
        let missed = verdicts(results).into_iter().filter(|verdict| !verdict.kept);
        missed.map(|verdict| verdict.words).collect()
    }

    #[test]
    fn a_figure_beyond_its_bound_is_named_with_both() {
        let mut results = Results::default();
        let deep = Measure::Graph {
            layers: 50,
            width: 10,
        };
        results.add(deep, Subject::Orchestrated, [19.0, 21.0, 22.5]);
        results.add(deep, Subject::ArgoTuned, [55.0]);

        assert_eq!(
            missed(&results),
            ["Jangar, orchestrated, a graph of 50 layers of 10: 21.000, at most 20 s"]
        );
    }

    #[test]
    fn a_99th_percentile_counts_beside_the_median() {
        let mut results = Results::default();
        let hops = (0..200).map(|number| if number < 190 { 0.02 } else { 0.3 });
        results.add(Measure::Hop, Subject::Orchestrated, hops);

        assert_eq!(verdicts(&results).len(), 2);
        let missed = missed(&results);
        assert!(
            missed.len() == 1 && missed[0].contains("99th percentile"),
            "{missed:?}"
        );
    }

    #[test]
    fn whoever_was_not_measured_breaks_no_promise_and_keeps_none() {
        let mut results = Results::default();
        let runs = Measure::RunsPerSecond { at_once: 200 };
        results.add(runs, Subject::OrchestratedTuned, [30.0]);
        assert!(verdicts(&results).is_empty());

        results.add(runs, Subject::ArgoTuned, [31.0]);
        assert_eq!(missed(&results).len(), 1);
    }
}
