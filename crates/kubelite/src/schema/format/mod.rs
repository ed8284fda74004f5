//! String formats that Kubernetes checks. Any other word in `format` is only documentation.

mod time;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::LazyLock,
};

use regex::Regex;

/// A format with a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

impl Format {
    /// The format of that name, if it is one that is checked. Dashes do not count: `datetime` is `date-time`.
    pub(super) fn known(name: &str) -> Option<Self> {
        let normal: String;
        let name = if name.contains('-') {
            normal = name.replace('-', "");
            &normal
        } else {
            name
        };
        Some(match name {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "datetime" => Self::DateTime,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    pub(super) fn accepts(self, text: &str) -> bool {
        match self {
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            Self::Uri => is_request_uri(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => sloppy_ip(text).is_some() && text.contains('.'),
            Self::Ipv6 => Ipv6Addr::from_str(text).is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Uuid => is_uuid(text, None, false),
            Self::Uuid3 => is_uuid(text, Some(b'3'), false),
            Self::Uuid4 => is_uuid(text, Some(b'4'), true),
            Self::Uuid5 => is_uuid(text, Some(b'5'), true),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => text.len() == 11 && SSN.as_ref().is_some_and(|regex| regex.is_match(text)),
            Self::HexColor => is_hex_color(text),
            Self::RgbColor => RGB.as_ref().is_some_and(|regex| regex.is_match(text)),
            Self::Byte => is_base64(text),
            Self::Password => true,
            Self::Date => time::is_date(text),
            Self::Duration => time::is_duration(text),
            Self::DateTime => time::is_date_time(text),
            Self::ShortName => is_short_name(text) && text.len() <= 63,
            Self::LongName => text.len() <= 253 && text.split('.').all(is_short_name),
        }
    }
}

// The patterns are constants that the tests below exercise; `None` cannot happen, and would only refuse every value.
static SSN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
static RGB: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
});
static CREDIT_CARD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|\
         3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
    .ok()
});
static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let sign = r"a-zA-Z0-9\p{S}\p{L}";
    Regex::new(&format!(
        r"^([{sign}]((-?[{sign}]{{0,62}})?)|([{sign}](([-{sign}]{{0,61}}[{sign}])?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
    .ok()
});

fn is_hostname(text: &str) -> bool {
    HOSTNAME.as_ref().is_some_and(|regex| regex.is_match(text))
        && text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
}

/// What Go's `url.ParseRequestURI` takes: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|char| char.is_ascii_control()) {
        return false;
    }
    let rest = match scheme(text) {
        Ok(Some((_, rest))) => rest,
        Ok(None) => text,
        Err(()) => return false,
    };
    let has_scheme = rest.len() != text.len();
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !path.starts_with('/') {
        // Something like `mailto:x` is opaque and fine; a relative path is not.
        return has_scheme;
    }
    if (has_scheme || !path.starts_with("///"))
        && let Some(after) = path.strip_prefix("//")
    {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        return is_authority(authority) && has_valid_escapes(path);
    }
    has_valid_escapes(path)
}

/// Splits off a scheme; an error if the text begins with a colon.
fn scheme(text: &str) -> Result<Option<(&str, &str)>, ()> {
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' => {
                if position == 0 {
                    return Ok(None);
                }
            }
            b':' => {
                return if position == 0 {
                    Err(())
                } else {
                    Ok(text.split_once(':'))
                };
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn is_authority(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((name, rest)) => (name, rest),
            None => return false,
        },
        None => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let port_is_valid = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name_is_valid = name
        .chars()
        .all(|char| !matches!(char, ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '}' | '|'));
    port_is_valid && name_is_valid && has_valid_escapes(name)
}

/// Whether every `%` is followed by two hexadecimal digits.
fn has_valid_escapes(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some(position) = rest.iter().position(|&byte| byte == b'%') {
        match rest.get(position + 1..position + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {}
            _ => return false,
        }
        rest = rest.get(position + 3..).unwrap_or_default();
    }
    true
}

/// The common subset of what Go's `mail.ParseAddress` takes: an address, bare or as `Name <address>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(open) => match open.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    (is_dot_atom(local) || is_quoted_local(local)) && is_domain(domain)
}

fn is_quoted_local(local: &str) -> bool {
    local.len() > 2 && local.starts_with('"') && local.ends_with('"')
}

fn is_domain(domain: &str) -> bool {
    is_dot_atom(domain) || (domain.starts_with('[') && domain.ends_with(']'))
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.')
        .all(|atom| !atom.is_empty() && atom.chars().all(is_atom_char))
}

fn is_atom_char(char: char) -> bool {
    !char.is_ascii() || char.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(char)
}

/// An address as Go read it before 1.17: zeros may lead the parts of an IPv4 address.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if let Ok(address) = IpAddr::from_str(text) {
        return Some(address);
    }
    let mut parts = [0_u8; 4];
    let mut found = text.split('.');
    for part in &mut parts {
        let digits = found.next()?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *part = digits.trim_start_matches('0').parse().or(digits.parse()).ok()?;
    }
    found.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(parts)))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let Some(address) = sloppy_ip(address) else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// 6, 8 or 20 bytes, as `00:00:5e:…`, `00-00-5e-…` or `0000.5e00.…`.
fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes() {
        [_, _, b':', ..] => (':', 2),
        [_, _, b'-', ..] => ('-', 2),
        [_, _, _, _, b'.', ..] => ('.', 4),
        _ => return false,
    };
    let mut groups = 0;
    for group in text.split(separator) {
        if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        groups += 1;
    }
    matches!(groups * digits / 2, 6 | 8 | 20)
}

/// A UUID, of which each dash may be left out. `version` is the first digit of its third group; with `variant`, the
/// first of its fourth is one of 8, 9, a and b.
fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut rest = text.as_bytes();
    for (group, length) in [8_usize, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0
            && let [b'-', after @ ..] = rest
        {
            rest = after;
        }
        let Some((digits, after)) = rest.split_at_checked(length) else {
            return false;
        };
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        let first = digits.first().copied();
        if group == 2 && version.is_some() && first != version {
            return false;
        }
        if group == 3 && variant && !matches!(first, Some(b'8' | b'9' | b'a' | b'b' | b'A' | b'B')) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn without_dashes(text: &str) -> Vec<char> {
    text.chars()
        .filter(|char| *char != '-' && !matches!(char, ' ' | '\t' | '\n' | '\r' | '\u{c}'))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_dashes(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (weight, (position, char)) in (1_u32..).zip(digits.into_iter().enumerate()) {
        let Some(digit) = (if char == 'X' && position == 9 {
            Some(10)
        } else {
            char.to_digit(10)
        }) else {
            return false;
        };
        sum += weight * digit;
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let Some(digits) = without_dashes(text)
        .into_iter()
        .map(|char| char.to_digit(10))
        .collect::<Option<Vec<_>>>()
    else {
        return false;
    };
    let sum: u32 = digits
        .iter()
        .zip([1, 3].into_iter().cycle())
        .map(|(digit, factor)| digit * factor)
        .sum();
    digits.len() == 13 && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.as_ref().is_some_and(|regex| regex.is_match(&digits)) {
        return false;
    }
    let sum: u32 = digits
        .chars()
        .rev()
        .filter_map(|char| char.to_digit(10))
        .enumerate()
        .map(|(position, digit)| match (position % 2 == 1, digit * 2) {
            (false, _) => digit,
            (true, doubled) if doubled >= 10 => doubled % 10 + 1,
            (true, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Padded base64 of the standard alphabet, at least one group of it.
fn is_base64(text: &str) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let body = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && body.len() % 4 != 1
        && body.as_bytes().iter().all(is_sign)
}

fn is_short_name(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            is_sign(first) && is_sign(last) && bytes.iter().all(|&byte| is_sign(byte) || byte == b'-')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one row per case")]
    fn formats_accept_and_refuse() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
            (
                "uri",
                &["https://a.b/c?d", "/abs", "mailto:x", "http://[::1]:80/"],
                &["", "rel/path", ":x", "http://a b/", "http://a/%zz"],
            ),
            (
                "email",
                &["a@b.c", "A <a@b.c>"],
                &["a", "a@", "@b", "a b@c", "<a@b.c"],
            ),
            (
                "hostname",
                &["a.example", "host", "1host"],
                &["", "-a.example", "a..example"],
            ),
            ("ipv4", &["1.2.3.4", "01.2.3.4"], &["1.2.3", "::1", "1.2.3.256"]),
            ("ipv6", &["::1", "2001:db8::1"], &["1.2.3.4", ":"]),
            (
                "cidr",
                &["10.0.0.0/8", "::/0"],
                &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"],
            ),
            (
                "mac",
                &["00:00:5e:00:53:01", "0000.5e00.5301"],
                &["00:00:5e", "00:00:5e:00:53:0g"],
            ),
            (
                "uuid",
                &[
                    "550e8400-e29b-41d4-a716-446655440000",
                    "550E8400e29b41d4a716446655440000",
                ],
                &["550e8400", "550e8400-e29b-41d4-a716-44665544000g"],
            ),
            (
                "uuid3",
                &["550e8400-e29b-31d4-1716-446655440000"],
                &["550e8400-e29b-41d4-a716-446655440000"],
            ),
            (
                "uuid4",
                &["550e8400-e29b-41d4-a716-446655440000"],
                &["550e8400-e29b-41d4-1716-446655440000"],
            ),
            (
                "uuid5",
                &["550e8400-e29b-51d4-a716-446655440000"],
                &["550e8400-e29b-41d4-a716-446655440000"],
            ),
            ("isbn10", &["0321751043"], &["0321751044", "x"]),
            ("isbn13", &["978-0321751041"], &["978-0321751042"]),
            ("isbn", &["0321751043", "9780321751041"], &["1"]),
            ("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112"]),
            ("ssn", &["111-11-1111"], &["111111111", "111-11-111a"]),
            ("hexcolor", &["#FFFFFF", "fff"], &["#ffff"]),
            ("rgbcolor", &["rgb(255, 0,1)"], &["rgb(256,0,1)"]),
            (
                "byte",
                &["YQ==", "YWI=", "YWJj"],
                &["", "YQ", "YQ=", "Y===", "Y!=="],
            ),
            ("password", &["", "x"], &[]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9", "x"]),
            (
                "date-time",
                &["2024-02-29T23:59:59Z", "2024-02-29t10:00:00.5+01:00"],
                &["2024-02-29", "2024-02-29T24:00:00Z", "2024-02-29T10:00:00"],
            ),
            ("datetime", &["2024-02-29T23:59:59Z"], &["x"]),
            (
                "duration",
                &["1h30m", "0", "-1.5s", "2 weeks", "22 ns"],
                &["", "1", "h", "1x"],
            ),
            ("k8s-short-name", &["a-b"], &["A", "a.b", "-a", ""]),
            ("k8s-long-name", &["a-b.c"], &["A", "a..b", ""]),
        ];
        for (name, accepted, refused) in table {
            let format = Format::known(name).expect(name);
            for text in *accepted {
                assert!(format.accepts(text), "{name} should accept {text}");
            }
            for text in *refused {
                assert!(!format.accepts(text), "{name} should refuse {text}");
            }
        }
    }

    #[test]
    fn other_formats_are_documentation() {
        for name in ["", "int32", "int64", "double", "float", "quantity"] {
            assert_eq!(Format::known(name), None, "{name}");
        }
    }
}
