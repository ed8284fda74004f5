//! The results as a picture: a group of bars for each measure, and a line across each bar for the spread.
//!
//! Every group has a scale of its own, which begins at zero. The figures are written beside the bars, so that nothing has to
//! be read off.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    results::{Measure, Results, Subject},
    statistics::Summary,
    table::number,
};

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 16.0;
/// Where bars may begin and end. To the left is whose they are, to the right the figure.
const BARS_LEFT: f64 = 190.0;
const BARS_RIGHT: f64 = 720.0;
const BAR_HEIGHT: f64 = 14.0;
const LINE_HEIGHT: f64 = 20.0;
const GROUP_GAP: f64 = 14.0;

/// Where a value lies from left to right. Zero is always on it, and so is every value of the group.
#[derive(Clone, Copy, Debug)]
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn of(cells: &BTreeMap<Subject, Summary>) -> Self {
        let (mut least, mut most) = (0.0_f64, 0.0_f64);
        for cell in cells.values() {
            least = least.min(cell.least);
            most = most.max(cell.most);
        }
        Self { least, most }
    }

    fn x(self, value: f64) -> f64 {
        let span = self.most - self.least;
        // All values are zero: there is nothing to show but where zero is.
        let share = if span > 0.0 {
            (value - self.least) / span
        } else {
            0.0
        };
        BARS_LEFT + share * (BARS_RIGHT - BARS_LEFT)
    }
}

/// The picture as SVG. It has a ground of its own, so that it can be read on a dark page too.
pub fn svg(results: &Results) -> String {
    let rows = results.rows();
    let mut body = String::new();
    let mut y = MARGIN;
    for (measure, cells) in &rows {
        y = group(&mut body, y, *measure, cells);
    }
    let height = y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// Draws one measure from `y` downwards, and returns where the next one begins. Writing to a string cannot fail.
fn group(body: &mut String, y: f64, measure: Measure, cells: &BTreeMap<Subject, Summary>) -> f64 {
    let scale = Scale::of(cells);
    let zero = scale.x(0.0);
    let title = escape(&format!("{} ({})", measure.label(), measure.unit()));
    let _ = writeln!(
        body,
        "<text x=\"{MARGIN:.0}\" y=\"{:.1}\" font-weight=\"bold\" fill=\"#222222\">{title}</text>",
        y + BAR_HEIGHT
    );
    let mut y = y + LINE_HEIGHT;
    for (subject, cell) in cells {
        let (from, to) = ordered(zero, scale.x(cell.median));
        let (middle, baseline) = (y + BAR_HEIGHT / 2.0, y + BAR_HEIGHT - 3.0);
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\" fill=\"#222222\">{}</text>",
            BARS_LEFT - 8.0,
            escape(subject.label())
        );
        // What is next to nothing is still to be seen.
        let _ = writeln!(
            body,
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT:.0}\" fill=\"{}\"/>",
            (to - from).max(1.0),
            colour(*subject)
        );
        let _ = writeln!(
            body,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#222222\"/>",
            scale.x(cell.least),
            scale.x(cell.most)
        );
        let _ = writeln!(
            body,
            "<text x=\"{:.1}\" y=\"{baseline:.1}\" fill=\"#222222\">{}</text>",
            BARS_RIGHT + 8.0,
            escape(&words(cell))
        );
        y += LINE_HEIGHT;
    }
    y + GROUP_GAP
}

fn ordered(one: f64, other: f64) -> (f64, f64) {
    (one.min(other), one.max(other))
}

fn words(cell: &Summary) -> String {
    let (least, most) = (number(cell.least), number(cell.most));
    let median = number(cell.median);
    if least == most {
        return median;
    }
    format!("{median}   {least} to {most}")
}

fn colour(subject: Subject) -> &'static str {
    match subject {
        Subject::Pods => "#c9c9c9",
        Subject::Jobs => "#9a9a9a",
        Subject::Jangar => "#1f77b4",
        Subject::Orchestrated => "#6baed6",
        Subject::JangarTuned => "#1a4f76",
        Subject::OrchestratedTuned => "#4a87ab",
        Subject::Argo => "#f2a65a",
        Subject::ArgoTuned => "#d9772b",
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(median: f64, least: f64, most: f64) -> Summary {
        Summary {
            median,
            least,
            most,
            high: None,
            count: 3,
        }
    }

    #[test]
    fn bars_are_as_long_as_their_figures_and_all_of_the_spread_fits() {
        let cells = BTreeMap::from([
            (Subject::Jangar, summary(10.0, 9.0, 11.0)),
            (Subject::Argo, summary(20.0, 19.0, 40.0)),
        ]);
        let scale = Scale::of(&cells);

        let length = |value| scale.x(value) - scale.x(0.0);
        assert!((length(20.0) - 2.0 * length(10.0)).abs() < 1e-6);
        assert!((scale.x(0.0) - BARS_LEFT).abs() < 1e-6);
        assert!((scale.x(40.0) - BARS_RIGHT).abs() < 1e-6);
    }

    #[test]
    fn what_is_below_zero_goes_to_the_left() {
        let cells = BTreeMap::from([
            (Subject::Jangar, summary(0.5, 0.1, 1.0)),
            (Subject::ArgoTuned, summary(-6.0, -9.0, -5.0)),
        ]);
        let scale = Scale::of(&cells);

        assert!(scale.x(-6.0) < scale.x(0.0) && scale.x(0.0) < scale.x(0.5));
        assert!(scale.x(-9.0) >= BARS_LEFT);
    }

    #[test]
    fn a_group_of_zeros_can_be_drawn() {
        let cells = BTreeMap::from([(Subject::Jangar, summary(0.0, 0.0, 0.0))]);

        assert!((Scale::of(&cells).x(0.0) - BARS_LEFT).abs() < 1e-6);
    }

    #[test]
    fn every_figure_has_a_bar_and_its_words() {
        let mut results = Results::default();
        results.add(Measure::Hop, Subject::Pods, [0.003]);
        results.add(Measure::Hop, Subject::ArgoTuned, [0.9, 0.97, 1.0]);

        let picture = svg(&results);

        assert_eq!(
            picture.matches("<rect").count(),
            3,
            "the ground and two bars: {picture}"
        );
        assert!(picture.contains(">0.970   0.900 to 1<"), "{picture}");
        assert!(picture.contains(">bare pods<"), "{picture}");
    }

    #[test]
    fn text_cannot_end_an_element() {
        assert_eq!(escape("a < b & c > d"), "a &lt; b &amp; c &gt; d");
    }
}
