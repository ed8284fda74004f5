//! The results as a table in Markdown: a row for each measure, a column for each subject.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{
    results::{Results, Subject},
    statistics::Summary,
};

/// The table alone. A cell is the median, with the 99th percentile if there are enough measurements for one, and the least and
/// the most behind it where they differ.
pub fn table(results: &Results) -> String {
    let rows = results.rows();
    let subjects: BTreeSet<Subject> = rows.iter().flat_map(|(_, cells)| cells.keys().copied()).collect();
    let mut text = String::from("| | unit |");
    for subject in &subjects {
        // Writing to a string cannot fail.
        let _ = write!(text, " {} |", subject.label());
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(subjects.len()));
    text.push('\n');
    for (measure, cells) in &rows {
        let _ = write!(text, "| {} | {} |", measure.label(), measure.unit());
        for subject in &subjects {
            let cell = cells.get(subject).map(cell).unwrap_or_default();
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

/// The settings as a list.
pub fn settings(results: &Results) -> String {
    results
        .settings()
        .iter()
        .fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "- {name}: `{value}`");
            text
        })
}

fn cell(summary: &Summary) -> String {
    let (median, least, most) = (
        number(summary.median),
        number(summary.least),
        number(summary.most),
    );
    if least == most {
        return median;
    }
    match summary.high {
        Some(high) => format!("{median}, 99th percentile {} ({least} to {most})", number(high)),
        None => format!("{median} ({least} to {most})"),
    }
}

/// Three digits that count, and no more than three behind the point.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || value.fract() == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Measure;

    #[test]
    fn a_cell_is_the_median_and_the_spread_and_one_without_a_figure_is_empty() {
        let mut results = Results::default();
        results.add(Measure::Hop, Subject::Pods, [0.003, 0.0021, 0.004]);
        results.add(
            Measure::RunsPerSecond { at_once: 200 },
            Subject::Jangar,
            [31.04, 29.5, 112.0],
        );
        results.add(Measure::RunsPerSecond { at_once: 200 }, Subject::Pods, [5.0]);

        let expected = "\
            | | unit | bare pods | Jangar |\n\
            |---|---|---|---|\n\
            | hop: a pod's end to the next one's creation | s | 0.003 (0.002 to 0.004) |  |\n\
            | 200 one-step runs at once | runs/s | 5 | 31.0 (29.5 to 112) |\n";
        assert_eq!(table(&results), expected);
    }

    #[test]
    fn a_cell_of_many_measurements_has_their_99th_percentile() {
        let mut results = Results::default();
        let hops = (1..=201).map(|number| f64::from(number) / 1000.0);
        results.add(Measure::Hop, Subject::Orchestrated, hops);

        let table = table(&results);
        assert!(
            table.contains("| 0.101, 99th percentile 0.199 (0.001 to 0.201) |"),
            "{table}"
        );
    }

    #[test]
    fn settings_are_a_list() {
        let mut results = Results::default();
        results.set("kube-scheduler", "--kube-api-qps=1000");

        assert_eq!(settings(&results), "- kube-scheduler: `--kube-api-qps=1000`\n");
    }

    #[test]
    fn small_differences_show_in_small_numbers_only() {
        let numbers = [-13.12, 1234.56, 12.345, 1.234_5, 0.001_26, 0.0];
        assert_eq!(
            numbers.map(number),
            ["-13.1", "1235", "12.3", "1.23", "0.001", "0"]
        );
    }
}
