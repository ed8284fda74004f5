//! The results of one run of the benchmark: what was measured of whom, and under which settings.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::statistics::Summary;

/// Who was measured. The order is that of columns and bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A bare loop that creates pods: what the cluster itself takes.
    Pods,
    /// The same with Jobs.
    Jobs,
    Jangar,
    /// Jangar, with its runs inside OrchestrationRuns.
    Orchestrated,
    /// Jangar, which looks after its Jobs itself.
    JangarTuned,
    /// The same, with its runs inside OrchestrationRuns.
    OrchestratedTuned,
    /// Argo Workflows as it is shipped.
    Argo,
    /// Argo Workflows with the limits of its client raised and its wait shortened as far as it goes.
    ArgoTuned,
}

impl Subject {
    pub fn label(self) -> &'static str {
        match self {
            Self::Pods => "bare pods",
            Self::Jobs => "bare Jobs",
            Self::Jangar => "Jangar",
            Self::Orchestrated => "Jangar, orchestrated",
            Self::JangarTuned => "Jangar, tuned",
            Self::OrchestratedTuned => "Jangar, tuned, orchestrated",
            Self::Argo => "Argo Workflows",
            Self::ArgoTuned => "Argo Workflows, tuned",
        }
    }
}

/// What was measured. The order is that of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    Hop,
    RunsPerSecond { at_once: u32 },
    WritesPerRun { at_once: u32 },
    EventsPerRun { at_once: u32 },
    ProcessorTimePerRun { at_once: u32 },
    IdleMemory,
    ResidentMemory { finished: u32 },
    ProportionalMemory { finished: u32 },
    PeakMemory { finished: u32 },
    CancelUntilGone { pods: u32 },
    CancelUntilReported { pods: u32 },
    AliveWhenReported { pods: u32 },
    ReportAfterEnd { pods: u32 },
    Graph { layers: u32, width: u32 },
    GraphProcessorTimePerNode { layers: u32, width: u32 },
    GraphWritesPerNode { layers: u32, width: u32 },
    GraphEventsPerNode { layers: u32, width: u32 },
    GraphSize { layers: u32, width: u32 },
    CancelUntilAsked { children: u32 },
    CancelUntilDeleted { children: u32 },
    StartToFirstDecision { finished: u32, live: u32 },
    MemoryAfterStart { finished: u32, live: u32 },
    QueuedRunsPerSecond { queued: u32 },
}

impl Measure {
    pub fn label(self) -> String {
        match self {
            Self::Hop => "hop: a pod's end to the next one's creation".to_owned(),
            Self::RunsPerSecond { at_once } => format!("{at_once} one-step runs at once"),
            Self::WritesPerRun { at_once } => {
                format!("own API writes per run, without Events ({at_once} at once)")
            }
            Self::EventsPerRun { at_once } => format!("own Events per run ({at_once} at once)"),
            Self::ProcessorTimePerRun { at_once } => {
                format!("own processor time per run ({at_once} at once)")
            }
            Self::IdleMemory => "memory (RSS) after the first run".to_owned(),
            Self::ResidentMemory { finished } => format!("memory (RSS), {finished} finished runs"),
            Self::ProportionalMemory { finished } => format!("memory (PSS), {finished} finished runs"),
            Self::PeakMemory { finished } => format!("memory (RSS) at its peak, {finished} runs"),
            Self::CancelUntilGone { pods } => format!("cancel of {pods} pods: request to last pod gone"),
            Self::CancelUntilReported { pods } => {
                format!("cancel of {pods} pods: request to last run reported as ended")
            }
            Self::AliveWhenReported { pods } => {
                format!("cancel of {pods} pods: pods alive when their run was reported as ended")
            }
            Self::ReportAfterEnd { pods } => {
                format!("cancel of {pods} pods: a run's last pod gone to its report")
            }
            Self::Graph { layers, width } => format!("a graph of {layers} layers of {width}"),
            Self::GraphProcessorTimePerNode { layers, width } => {
                format!("own processor time per node ({layers} layers of {width})")
            }
            Self::GraphWritesPerNode { layers, width } => {
                format!("own API writes per node, without Events ({layers} layers of {width})")
            }
            Self::GraphEventsPerNode { layers, width } => {
                format!("own Events per node ({layers} layers of {width})")
            }
            Self::GraphSize { layers, width } => {
                format!("size of the run at its end ({layers} layers of {width})")
            }
            Self::CancelUntilAsked { children } => {
                format!("cancel of a run with {children} children: request to the last deletion issued")
            }
            Self::CancelUntilDeleted { children } => {
                format!("cancel of a run with {children} children: request to the last deletion seen")
            }
            Self::StartToFirstDecision { finished, live } => {
                format!("start to first decision, {finished} finished and {live} live runs")
            }
            Self::MemoryAfterStart { finished, live } => {
                format!("memory (RSS) after a start, {finished} finished and {live} live runs")
            }
            Self::QueuedRunsPerSecond { queued } => format!("{queued} queued runs under limits"),
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Hop
            | Self::CancelUntilGone { .. }
            | Self::CancelUntilReported { .. }
            | Self::ReportAfterEnd { .. }
            | Self::Graph { .. }
            | Self::CancelUntilAsked { .. }
            | Self::CancelUntilDeleted { .. }
            | Self::StartToFirstDecision { .. } => "s",
            Self::RunsPerSecond { .. } | Self::QueuedRunsPerSecond { .. } => "runs/s",
            Self::WritesPerRun { .. } | Self::EventsPerRun { .. } => "per run",
            Self::GraphWritesPerNode { .. } | Self::GraphEventsPerNode { .. } => "per node",
            Self::ProcessorTimePerRun { .. } | Self::GraphProcessorTimePerNode { .. } => "ms",
            Self::GraphSize { .. } => "KiB",
            Self::IdleMemory
            | Self::ResidentMemory { .. }
            | Self::ProportionalMemory { .. }
            | Self::PeakMemory { .. }
            | Self::MemoryAfterStart { .. } => "MiB",
            Self::AliveWhenReported { .. } => "pods",
        }
    }
}

/// Everything that one run of the benchmark found out.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// In the order in which they were told.
    settings: Vec<(String, String)>,
    samples: BTreeMap<(Measure, Subject), Vec<f64>>,
}

impl Results {
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.settings.push((name.into(), value.into()));
    }

    pub fn add(&mut self, measure: Measure, subject: Subject, sample: impl IntoIterator<Item = f64>) {
        self.samples.entry((measure, subject)).or_default().extend(sample);
    }

    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Every measure of which there is a figure, with what was measured of whom.
    pub fn rows(&self) -> Vec<(Measure, BTreeMap<Subject, Summary>)> {
        let mut rows: Vec<(Measure, BTreeMap<Subject, Summary>)> = Vec::new();
        for (&(measure, subject), sample) in &self.samples {
            let Some(summary) = Summary::of(sample) else {
                continue;
            };
            match rows.last_mut() {
                Some((last, cells)) if *last == measure => {
                    cells.insert(subject, summary);
                }
                _ => rows.push((measure, BTreeMap::from([(subject, summary)]))),
            }
        }
        rows
    }

    pub fn to_json(&self) -> Value {
        let figures = self.samples.iter().map(|(&(measure, subject), sample)| {
            json!({
                "measure": measure.label(),
                "unit": measure.unit(),
                "subject": subject,
                "summary": Summary::of(sample),
                "sample": sample.iter().copied().map(to_the_tenth_of_a_thousandth).collect::<Vec<_>>(),
            })
        });
        let settings = self.settings.iter();
        let settings = settings.map(|(name, value)| json!({"name": name, "value": value}));
        json!({"settings": settings.collect::<Vec<_>>(), "figures": figures.collect::<Vec<_>>()})
    }
}

/// Finer than anything here can be measured.
fn to_the_tenth_of_a_thousandth(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut results = Results::default();
        results.add(Measure::IdleMemory, Subject::Jangar, [20.0]);
        results.add(Measure::Hop, Subject::ArgoTuned, [1.0, 2.0]);
        results.add(Measure::Hop, Subject::Pods, [0.003]);
        results.add(Measure::Hop, Subject::ArgoTuned, [3.0]);
        results.add(Measure::Hop, Subject::Jangar, []);

        let rows = results.rows();

        let measures: Vec<_> = rows.iter().map(|(measure, _)| *measure).collect();
        assert_eq!(measures, [Measure::Hop, Measure::IdleMemory]);
        let hops: Vec<_> = rows[0]
            .1
            .iter()
            .map(|(subject, summary)| (*subject, summary.count))
            .collect();
        assert_eq!(hops, [(Subject::Pods, 1), (Subject::ArgoTuned, 3)]);
    }

    #[test]
    fn the_json_has_settings_in_order_and_every_sample() {
        let mut results = Results::default();
        results.set("nodes", "6");
        results.set("etcd", "--unsafe-no-fsync");
        results.add(Measure::Hop, Subject::ArgoTuned, [0.123_456]);

        let json = results.to_json();

        assert_eq!(json["settings"][1]["name"], "etcd");
        assert_eq!(json["figures"][0]["subject"], "argo-tuned");
        assert_eq!(json["figures"][0]["sample"], json!([0.1235]));
        assert_eq!(json["figures"][0]["summary"]["count"], 1);
    }
}
