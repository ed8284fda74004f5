//! Times as people read them: `5m12s` ago.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration with two or three significant figures, as `duration.HumanDuration` of Kubernetes prints it.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    // Clocks of two machines may differ a little, so a moment in the near future counts as now.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    if seconds < 2 * MINUTE {
        format!("{seconds}s")
    } else if seconds < 10 * MINUTE {
        two(seconds / MINUTE, 'm', seconds % MINUTE, 's')
    } else if seconds < 3 * HOUR {
        format!("{}m", seconds / MINUTE)
    } else if seconds < 8 * HOUR {
        two(seconds / HOUR, 'h', seconds % HOUR / MINUTE, 'm')
    } else if seconds < 2 * DAY {
        format!("{}h", seconds / HOUR)
    } else if seconds < 8 * DAY {
        two(seconds / DAY, 'd', seconds % DAY / HOUR, 'h')
    } else if seconds < 2 * YEAR {
        format!("{}d", seconds / DAY)
    } else if seconds < 8 * YEAR {
        two(seconds / YEAR, 'y', seconds % YEAR / DAY, 'd')
    } else {
        format!("{}y", seconds / YEAR)
    }
}

fn two(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

/// How long ago a moment was.
pub fn since(moment: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(moment))
}

/// A JSON timestamp, if the value is one.
pub(super) fn moment(value: Option<&Value>) -> Option<Timestamp> {
    value?.as_str()?.parse().ok()
}

/// How long ago a JSON timestamp was; an absent one is unknown.
pub(super) fn since_value(value: Option<&Value>, now: Timestamp) -> String {
    moment(value).map_or_else(|| "<unknown>".to_owned(), |moment| since(moment, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubernetes_prints_them() {
        for (seconds, text) in [
            (-3, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (59, "59s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_287_999, "7y364d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
        assert_eq!(human(SignedDuration::from_millis(-1_500)), "0s");
        assert_eq!(human(SignedDuration::from_millis(119_900)), "119s");
    }
}
