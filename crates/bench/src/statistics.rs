//! What is said of a number of measurements: the one in the middle, and how far apart they are.

use serde::{Deserialize, Serialize};

/// Of a smaller sample the 99th percentile is only another word for its largest measurement.
pub const HIGH_COUNT_MIN: usize = 100;

/// The middle and the spread of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    /// The 99th percentile: the least measurement that 99 of a hundred do not exceed. Absent for a sample of less than
    /// [`HIGH_COUNT_MIN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub count: usize,
}

impl Summary {
    /// Of a sample without measurements nothing can be said.
    pub fn of(sample: &[f64]) -> Option<Self> {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        // Of an even number of measurements two are in the middle.
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        // By nearest rank, counted from 1.
        let rank = (sorted.len() * 99).div_ceil(100);
        let high = sorted.get(rank.saturating_sub(1)).copied();
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
            high: high.filter(|_| sorted.len() >= HIGH_COUNT_MIN),
            count: sorted.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(sample: &[f64]) -> (f64, f64, f64, usize) {
        let summary = Summary::of(sample).expect("a sample");
        (summary.median, summary.least, summary.most, summary.count)
    }

    #[test]
    fn the_median_is_the_one_in_the_middle_whatever_the_order() {
        assert_eq!(summary(&[9.0, 1.0, 2.0]), (2.0, 1.0, 9.0, 3));
    }

    #[test]
    fn of_two_in_the_middle_the_median_is_the_mean() {
        assert_eq!(summary(&[4.0, 1.0, 2.0, 9.0]), (3.0, 1.0, 9.0, 4));
        assert_eq!(summary(&[5.0]), (5.0, 5.0, 5.0, 1));
    }

    #[test]
    fn the_99th_percentile_is_what_99_of_a_hundred_do_not_exceed() {
        let high = |count: u32| {
            let sample: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            Summary::of(&sample).and_then(|summary| summary.high)
        };
        assert_eq!(high(99), None, "too few");
        assert_eq!(high(100), Some(99.0));
        assert_eq!(high(101), Some(100.0));
        assert_eq!(high(200), Some(198.0));
        assert_eq!(high(597), Some(592.0));
    }

    #[test]
    fn nothing_is_said_of_no_measurements() {
        assert_eq!(Summary::of(&[]), None);
    }
}
