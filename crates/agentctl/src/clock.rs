//! The time of day, and how long ago something was.

use jiff::Timestamp;

/// The variable that fixes the time, so that ages in the output of tests do not change.
pub const NOW_VARIABLE: &str = "AGENTCTL_NOW";

/// Where the time comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    fixed: Option<Timestamp>,
}

impl Clock {
    /// A clock that stands still, if it is told to. A time that cannot be read counts as none.
    pub fn fixed_at(text: Option<&str>) -> Self {
        Self {
            fixed: text.and_then(|text| text.parse().ok()),
        }
    }

    pub fn now(self) -> Timestamp {
        self.fixed.unwrap_or_else(Timestamp::now)
    }

    /// How long ago a time is that an object shows, in words; `None` if it is no time.
    pub fn age(self, text: &str) -> Option<String> {
        let then: Timestamp = text.parse().ok()?;
        Some(short(self.now().as_second() - then.as_second()))
    }

    /// The time between two that an object shows; to now if the second is absent.
    pub fn between(self, start: Option<&str>, end: Option<&str>) -> Option<String> {
        let start: Timestamp = start?.parse().ok()?;
        let end = match end {
            Some(end) => end.parse().ok()?,
            None => self.now(),
        };
        Some(short(end.as_second() - start.as_second()))
    }
}

/// Seconds as people say them: the two largest units.
pub fn short(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) if seconds % 60 == 0 => format!("{minutes}m"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, 0) => format!("{hours}h"),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (_, 0, _) => format!("{days}d"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Reads a length of time as people write it: `90`, `90s`, `5m`, `1h30m`, `2d`. A bare number is seconds.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || {
        format!(
            "'{text}' is no length of time: write a number with s, m, h or d, for example 90s, 5m or 1h30m"
        )
    };
    if text.is_empty() {
        return Err(wrong());
    }
    let mut total: u64 = 0;
    let mut digits = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let unit = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let seconds = number.checked_mul(unit).ok_or_else(wrong)?;
        total = total.checked_add(seconds).ok_or_else(wrong)?;
        digits.clear();
    }
    if !digits.is_empty() {
        let seconds: u64 = digits.parse().map_err(|_| wrong())?;
        total = total.checked_add(seconds).ok_or_else(wrong)?;
    }
    Ok(std::time::Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        for (seconds, text) in [
            (-5, "0s"),
            (59, "59s"),
            (60, "1m"),
            (125, "2m5s"),
            (3_600, "1h"),
            (5_400, "1h30m"),
            (86_400, "1d"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(short(seconds), text);
        }
    }

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5_400),
            ("2d", 172_800),
        ] {
            assert_eq!(parse_duration(text).expect(text).as_secs(), seconds);
        }
        for wrong in ["", "m", "5x", "-1s", "1.5h", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
