//! What is said of a number of measurements: the one in the middle, and how far apart they are.

use serde::{Deserialize, Serialize};

/// The middle and the spread of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
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
        Some(Self {
            median: f64::midpoint(lower, upper),
            least,
            most,
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
    fn nothing_is_said_of_no_measurements() {
        assert_eq!(Summary::of(&[]), None);
    }
}
