//! Where the reader of a log stands: after a break no line is shown twice, and none is left out.

use jiff::Timestamp;

/// The end of what was shown of one log.
///
/// Only after a break lines come again, and only then any is skipped. Times alone cannot tell which: a program that writes several
/// lines at once gives all of them one time, and a clock that is set back gives later lines earlier times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The time of the line that was shown last.
    last: Option<Timestamp>,
    /// How many lines with that time were shown, one after the other.
    ties: usize,
    /// How many of these are still to come again, while the log is read again.
    again: Option<usize>,
}

impl Place {
    /// From when on the log has to be read to go on here; absent if nothing was shown yet.
    pub(super) const fn since(&self) -> Option<Timestamp> {
        self.last
    }

    /// What comes next has been asked for anew, from [`Self::since`] on.
    pub(super) fn begin_again(&mut self) {
        self.again = self.last.map(|_| self.ties);
    }

    /// Takes a line of this time. Whether it is a new one.
    pub(super) fn is_new(&mut self, time: Option<Timestamp>) -> bool {
        let Some(time) = time else {
            return true;
        };
        if let (Some(last), Some(again)) = (self.last, self.again) {
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
        self.ties = if self.last == Some(time) { self.ties + 1 } else { 1 };
        self.last = Some(time);
        true
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
        seconds.iter().map(|second| place.is_new(at(*second))).collect()
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
}
