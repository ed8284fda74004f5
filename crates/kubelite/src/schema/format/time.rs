//! Formats of dates, times and durations.

use std::str::FromStr as _;

pub(super) fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(position, byte)| match position {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shape && jiff::civil::Date::from_str(text).is_ok()
}

pub(super) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

/// `hh:mm:ss`, a fraction behind any one sign, and a zone.
fn is_time(time: &str) -> bool {
    let Some(clock) = time.get(..8) else { return false };
    let pair = |from: usize, most: u32| {
        clock.get(from..from + 2).is_some_and(|digits| {
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && digits.parse::<u32>().is_ok_and(|number| number <= most)
        })
    };
    let colons = clock.get(2..3) == Some(":") && clock.get(5..6) == Some(":");
    if !(colons && pair(0, 23) && pair(3, 59) && pair(6, 59)) {
        return false;
    }
    let rest = time.get(8..).unwrap_or_default();
    if is_zone(rest) {
        return true;
    }
    let fraction = rest
        .chars()
        .next()
        .map_or(rest, |sign| rest.get(sign.len_utf8()..).unwrap_or_default());
    let digits = fraction.len()
        - fraction
            .trim_start_matches(|char: char| char.is_ascii_digit())
            .len();
    digits > 0 && is_zone(fraction.get(digits..).unwrap_or_default())
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"z" => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

/// Go's durations (`1h30m`), or a number and a unit in words somewhere in the text (`2 weeks`).
pub(super) fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_worded_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len()
            - rest
                .trim_start_matches(|char: char| char.is_ascii_digit() || char == '.')
                .len();
        let (digits, after) = rest.split_at(number);
        if !digits.bytes().any(|byte| byte.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]
            .into_iter()
            .find(|unit| {
                let end = after
                    .find(|char: char| char.is_ascii_digit() || char == '.')
                    .unwrap_or(after.len());
                after.get(..end) == Some(*unit)
            })
        else {
            return false;
        };
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    true
}

fn is_worded_duration(text: &str) -> bool {
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        let from = rest.get(start..).unwrap_or_default();
        let after_digits = from.trim_start_matches(|char: char| char.is_ascii_digit());
        let spaced = after_digits.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let length = spaced.len()
            - spaced
                .trim_start_matches(|char: char| char.is_ascii_alphabetic() || char == 'µ')
                .len();
        let (unit, after) = spaced.split_at(length);
        if is_unit(&unit.to_lowercase()) {
            return true;
        }
        rest = if length > 0 { after } else { after_digits };
    }
    false
}

fn is_unit(unit: &str) -> bool {
    let short = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    let stems = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    short.contains(&unit) || stems.iter().any(|stem| unit.starts_with(stem))
}
