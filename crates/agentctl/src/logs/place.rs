//! Where the reader of a log stands: after a break no line is shown twice, and none is left out.

use std::collections::VecDeque;

use jiff::Timestamp;

/// So many of the last lines are remembered, to find the place in a copy of the log that has no times.
const RECENT_MAX: usize = 8;

/// The end of what was shown of one log.
///
/// Only after a break lines come again, and only then any is skipped. Times alone cannot tell which: a program that writes several
/// lines at once gives all of them one time, and a clock that is set back gives later lines earlier times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The time of the line that was shown last.
    last: Option<Timestamp>,
    /// How many lines with that time were shown, one after the other.
    ties: usize,
    /// How many of these are still to come again, while the log is read again.
    again: Option<usize>,
    /// How many lines were shown.
    shown: usize,
    /// The last of them.
    recent: VecDeque<String>,
}

impl Place {
    /// From when on the log has to be read to go on here; absent if nothing was shown yet.
    pub(super) const fn since(&self) -> Option<Timestamp> {
        self.last
    }

    /// How many lines were shown.
    pub(super) const fn shown(&self) -> usize {
        self.shown
    }

    /// What comes next has been asked for anew, from [`Self::since`] on.
    pub(super) fn begin_again(&mut self) {
        self.again = self.last.map(|_| self.ties);
    }

    /// Takes a line of this time. Whether it is a new one.
    pub(super) fn is_new(&mut self, time: Option<Timestamp>, text: &str) -> bool {
        if let (Some(time), Some(last), Some(again)) = (time, self.last, self.again) {
            // A server that knows whole seconds only sends some lines before it as well.
            if time < last {
                return false;
            }
            if time == last && again > 0 {
                self.again = Some(again - 1);
                return false;
            }
            self.again = None;
        }
        if time.is_some() {
            self.ties = if self.last == time { self.ties + 1 } else { 1 };
            self.last = time;
        }
        self.shown += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(text.to_owned());
        true
    }

    /// Which line of a copy of the log is the first that was not shown; absent if that cannot be told. `from_the_beginning` says that
    /// all lines were shown up to here, so that they can be counted.
    pub(super) fn next_in(&self, copy: &[&str], from_the_beginning: bool) -> Option<usize> {
        let ends_at = |end: usize| {
            let begin = end.saturating_sub(self.recent.len());
            let part = copy.get(begin..end).unwrap_or_default();
            part.iter().copied().eq(self.recent.iter().map(String::as_str))
        };
        if from_the_beginning && ends_at(self.shown) {
            return Some(self.shown);
        }
        // The first place that fits: rather a line twice than one left out.
        (self.recent.len()..=copy.len()).find(|end| ends_at(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// Which of the lines with these times are shown.
    fn shown(place: &mut Place, seconds: &[i64]) -> Vec<bool> {
        seconds
            .iter()
            .map(|second| place.is_new(at(*second), &second.to_string()))
            .collect()
    }

    #[test]
    fn lines_of_one_time_are_all_shown() {
        let mut place = Place::default();
        assert_eq!(shown(&mut place, &[1, 1, 1, 2, 2]), [true; 5]);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_no_line() {
        let mut place = Place::default();
        assert_eq!(shown(&mut place, &[100, 101, 7, 8]), [true; 4]);
        place.begin_again();
        assert_eq!(shown(&mut place, &[8, 9, 5]), [false, true, true]);
    }

    #[test]
    fn a_break_within_lines_of_one_time_goes_on_with_the_next_of_them() {
        let mut place = Place::default();
        assert_eq!(shown(&mut place, &[1, 2, 2]), [true; 3]);
        assert_eq!(place.since(), at(2));
        place.begin_again();
        assert_eq!(
            shown(&mut place, &[1, 2, 2, 2, 2]),
            [false, false, false, true, true]
        );
        place.begin_again();
        assert_eq!(
            shown(&mut place, &[2, 2, 2, 2, 3, 3]),
            [false, false, false, false, true, true]
        );
    }

    #[test]
    fn a_break_before_the_first_line_skips_nothing() {
        let mut place = Place::default();
        place.begin_again();
        assert_eq!(shown(&mut place, &[1, 1]), [true; 2]);
    }

    #[test]
    fn the_place_is_found_in_a_copy_without_times() {
        let mut place = Place::default();
        let copy = ["1", "2", "2", "2", "3"];
        assert_eq!(place.next_in(&copy, true), Some(0));
        shown(&mut place, &[1, 2, 2]);
        assert_eq!(place.next_in(&copy, true), Some(3));
        // The copy begins later, so that lines cannot be counted.
        let mut late = Place::default();
        shown(&mut late, &[2, 2]);
        assert_eq!(late.next_in(&copy, false), Some(3));
        assert_eq!(place.next_in(&["2", "3"], false), None);
        // Everything was shown.
        shown(&mut place, &[2, 3]);
        assert_eq!(place.next_in(&copy, true), Some(5));
        let mut long = Place::default();
        let numbers: Vec<i64> = (0..20).collect();
        shown(&mut long, &numbers);
        let texts: Vec<String> = (10..30).map(|number: i64| number.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert_eq!(long.next_in(&texts, true), Some(10));
    }
}
