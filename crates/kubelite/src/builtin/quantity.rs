//! `resource.Quantity`: amounts such as `500m`, `1.5Gi` or `1e3`, read, compared and written as Kubernetes does.

use std::fmt;

/// The largest amount that Kubernetes represents with a binary suffix; anything above is brought down to it.
const BINARY_MAX: i128 = i64::MAX as i128 * NANO;
/// With a decimal suffix Kubernetes knows no bound. This one is a hundred billion times larger than the other.
const DECIMAL_MAX: i128 = 100_000_000_000_000_000_000_000_000_000_000_000_000;
const NANO: i128 = 1_000_000_000;
/// Digits after the decimal point that are looked at. Nine of them matter; the rest only decide about rounding up.
const FRACTION_DIGITS: usize = 18;
/// An exponent beyond this is out of range on either side, whatever the digits before it are in a body of bounded size.
const EXPONENT_MAX: i64 = 10_000_000;

/// Which family of suffixes a quantity was written with, and is written with again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// An amount with a resolution of a billionth.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

/// Why a text is no quantity, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = split(text)?;
        let (scale, mut format) = scale(parts.suffix).ok_or(QuantityError::Suffix)?;
        let nano = match scale {
            Scale::Decimal(exponent) => decimal(parts.whole, parts.fraction, exponent),
            Scale::Binary(bits) => binary(parts.whole, parts.fraction, bits).min(BINARY_MAX),
        };
        if format == Format::BinarySi && nano > 0 && nano < NANO {
            format = Format::DecimalSi;
        }
        Ok(Self {
            nano: if parts.negative { -nano } else { nano },
            format,
        })
    }

    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }

    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Whether it counts whole things.
    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0
    }

    /// The same amount rounded away from zero to thousandths, as Kubernetes rounds what a pod or node asks for.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        const MILLI: i128 = 1_000_000;
        let rest = self.nano % MILLI;
        let nano = if rest == 0 {
            self.nano
        } else {
            self.nano - rest + MILLI * self.nano.signum()
        };
        Self { nano, ..self }
    }

    /// How many of `divisor` it takes to hold this amount; `None` for a divisor of zero.
    pub fn divided_up(self, divisor: Self) -> Option<i128> {
        let whole = self.nano.checked_div(divisor.nano)?;
        let rest = self.nano.checked_rem(divisor.nano)?;
        // Division of whole numbers cuts towards zero, which is up for a negative result already.
        let up = rest != 0 && (rest > 0) == (divisor.nano > 0);
        Some(whole + i128::from(up))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, and the largest suffix that needs none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::BinarySi && !small && self.is_integer() {
            let (amount, steps) = without_factors(self.nano / NANO, 1024, BINARY.len() - 1);
            return write!(f, "{amount}{}", BINARY[steps]);
        }
        let (amount, steps) = without_factors(self.nano, 1000, DECIMAL.len() - 1);
        match (self.format, steps) {
            (Format::DecimalExponent, 3) | (Format::DecimalSi | Format::BinarySi, _) => {
                write!(f, "{amount}{}", DECIMAL[steps])
            }
            (Format::DecimalExponent, _) => {
                // Ten suffixes at most, so the exponent is between -9 and 18.
                let exponent = i64::try_from(steps).unwrap_or_default() * 3 - 9;
                write!(f, "{amount}e{exponent}")
            }
        }
    }
}

/// Divides by `factor` as often as it goes, up to `limit` times.
fn without_factors(mut amount: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < limit && amount % factor == 0 {
        amount /= factor;
        steps += 1;
    }
    (amount, steps)
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Splits at the places where the kind of character changes.
fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = take_while(rest, |c| c.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take_while(rest, |c| c.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, tail) = take_while(suffix, |c| "eEinumkKMGTP".contains(c));
    let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if !tail.chars().all(|c| c.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Parts {
        negative,
        whole,
        fraction,
        suffix,
    })
}

fn take_while(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !wanted(c)).unwrap_or(text.len());
    text.split_at(end)
}

enum Scale {
    /// A power of ten.
    Decimal(i64),
    /// A power of two.
    Binary(u32),
}

fn scale(suffix: &str) -> Option<(Scale, Format)> {
    let decimal = |exponent| Some((Scale::Decimal(exponent), Format::DecimalSi));
    let binary = |bits| Some((Scale::Binary(bits), Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i64 = digits.strip_prefix('+').unwrap_or(digits).parse().ok()?;
            Some((
                Scale::Decimal(exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX)),
                Format::DecimalExponent,
            ))
        }
    }
}

/// `whole.fraction` times ten to the power of `exponent`, in billionths, rounded up.
fn decimal(whole: &str, fraction: &str, exponent: i64) -> i128 {
    let count = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // Digits left of this position are whole billionths.
    let point = count(whole).saturating_add(exponent).saturating_add(9);
    let mut nano: i128 = 0;
    let mut rest = false;
    for (position, digit) in (0_i64..).zip(whole.bytes().chain(fraction.bytes())) {
        if position < point {
            nano = nano.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
            if nano > DECIMAL_MAX {
                return DECIMAL_MAX;
            }
        } else {
            rest |= digit != b'0';
        }
    }
    let missing = point - count(whole) - count(fraction);
    // Forty zeros more overflow the limit for any number but zero.
    for _ in 0..missing.clamp(0, 40) {
        nano = nano.saturating_mul(10);
    }
    nano.min(DECIMAL_MAX) + i128::from(rest)
}

/// `whole.fraction` times two to the power of `bits`, in billionths, rounded up.
fn binary(whole: &str, fraction: &str, bits: u32) -> i128 {
    let multiplier = 1_i128 << bits;
    let mut units: i128 = 0;
    for digit in whole.bytes() {
        units = units.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        if units > BINARY_MAX {
            return BINARY_MAX;
        }
    }
    let mut part: i128 = 0;
    for position in 0..FRACTION_DIGITS {
        part = part * 10
            + fraction
                .as_bytes()
                .get(position)
                .map_or(0, |digit| i128::from(digit - b'0'));
    }
    let rest = fraction.bytes().skip(FRACTION_DIGITS).any(|digit| digit != b'0');
    let scaled = (part + i128::from(rest)) * multiplier;
    let part = scaled / NANO + i128::from(scaled % NANO != 0);
    units
        .saturating_mul(multiplier)
        .saturating_mul(NANO)
        .saturating_add(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .to_string()
    }

    #[test]
    fn quantities_are_written_in_canonical_form() {
        let cases = [
            ("0", "0"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("512", "512"),
            ("1000", "1k"),
            ("1500k", "1500k"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-1", "1200e-3"),
            ("5e0", "5"),
            ("0.0001", "100u"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-2000m", "-2"),
            ("+4", "4"),
            (".5", "500m"),
            ("5.", "5"),
            ("100Ei", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("1.0001Ki", "1024102400u"),
            ("-0.5Mi", "-512Ki"),
            ("1e19", "10e18"),
            ("10e5", "1e6"),
            ("-1.5e3", "-1500"),
            ("1e-10", "1e-9"),
            // No digits at all count as none.
            ("m", "0"),
            ("-", "0"),
            ("1000000000000000000000000e-20", "10e3"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("1e1000000000", "100000000000e18"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn divided_quantities_are_rounded_up() {
        for (amount, divisor, count) in [
            ("1500m", "1", Some(2)),
            ("64Mi", "1Mi", Some(64)),
            ("-1500m", "1", Some(-1)),
            ("0", "1", Some(0)),
            ("1", "1m", Some(1000)),
            ("1", "0", None),
        ] {
            let (amount, divisor) = (
                Quantity::parse(amount).unwrap(),
                Quantity::parse(divisor).unwrap(),
            );
            assert_eq!(amount.divided_up(divisor), count, "{amount} / {divisor}");
        }
    }

    #[test]
    fn wrong_quantities_say_which_part_is_wrong() {
        let cases = [
            ("", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1Gi5x", QuantityError::Format),
            ("1KiKi", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1K", QuantityError::Suffix),
        ];
        for (text, expected) in cases {
            assert_eq!(Quantity::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn equal_amounts_are_equal_whatever_their_suffix() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert_eq!(parse("1Gi"), parse("1073741824"));
        assert!(parse("1G") < parse("1Gi"));
        assert!(parse("-1") < parse("0"));
        assert_eq!(parse("100u").round_up_to_milli().to_string(), "1m");
    }

    proptest! {
        #[test]
        fn canonical_form_is_stable_and_keeps_the_amount(
            whole in "[0-9]{1,25}", fraction in "(\\.[0-9]{0,12})?",
            suffix in prop::sample::select(vec!["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ei", "e3", "e-7"]),
        ) {
            let first = Quantity::parse(&format!("{whole}{fraction}{suffix}")).unwrap();
            let text = first.to_string();
            let second = Quantity::parse(&text).unwrap();
            prop_assert_eq!(first, second);
            prop_assert_eq!(text, second.to_string());
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            let _ = Quantity::parse(&text);
        }
    }
}
