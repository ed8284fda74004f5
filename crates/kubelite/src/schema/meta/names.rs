//! The rules for names, label keys and label values.

use crate::field::{FieldError, FieldPath};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// Which names a kind takes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NameRule {
    /// Dots allowed, 253 bytes at most. What every custom resource and most built-in kinds have.
    #[default]
    Subdomain,
    /// No dots, 63 bytes at most.
    Label,
    /// As `Label`, but it must begin with a letter.
    Label1035,
    /// Anything that can stand in a URL path.
    PathSegment,
}

impl NameRule {
    /// What is wrong with a name or, if a suffix is still to come, with the beginning of one.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        if self == Self::PathSegment {
            return path_segment(name, prefix);
        }
        let masked = mask_trailing_dash(name);
        let name = if prefix { &masked } else { name };
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::Label => dns1123_label(name),
            Self::Label1035 | Self::PathSegment => dns1035_label(name),
        }
    }
}

/// Makes a beginning that ends in a dash look like a whole name, the way Kubernetes does it.
fn mask_trailing_dash(name: &str) -> String {
    match name
        .strip_suffix('-')
        .and_then(|name| name.char_indices().next_back().map(|(last, _)| (name, last)))
    {
        Some((name, last)) => format!("{}a", name.get(..last).unwrap_or_default()),
        None => name.to_owned(),
    }
}

/// Errors for a name at `path` that must be a DNS subdomain.
pub fn check_name_subdomain(name: &str, path: &FieldPath) -> Vec<FieldError> {
    dns1123_subdomain(name)
        .into_iter()
        .map(|wrong| FieldError::invalid(path.clone(), name, wrong))
        .collect()
}

/// Errors for a name at `path` that must be a DNS label.
pub fn check_name_label(name: &str, path: &FieldPath) -> Vec<FieldError> {
    dns1123_label(name)
        .into_iter()
        .map(|wrong| FieldError::invalid(path.clone(), name, wrong))
        .collect()
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|sign| name.contains(sign))
        .map(|sign| format!("may not contain '{sign}'"))
        .collect()
}

/// What is wrong with a name as a DNS subdomain (RFC 1123).
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, MAX_SUBDOMAIN);
    if !name.split('.').all(is_label) {
        wrong.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    wrong
}

/// What is wrong with a name as a DNS label (RFC 1123).
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, MAX_LABEL);
    if !is_label(name) {
        if name.split('.').all(is_label) {
            wrong.push("must not contain dots".to_owned());
        } else {
            wrong.push(regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    wrong
}

/// What is wrong with a name as a DNS label that begins with a letter (RFC 1035).
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut wrong = too_long(name, MAX_LABEL);
    if !is_label(name) || !name.starts_with(|char: char| char.is_ascii_lowercase()) {
        wrong.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// What is wrong with the key of a label or annotation, or the name of a finalizer.
pub fn qualified_name(name: &str) -> Vec<String> {
    const RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];

    let mut wrong = Vec::new();
    let name = match name.split_once('/') {
        None => name,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_error(RULE, KEY, &EXAMPLES)
            )];
        }
        Some(("", rest)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            rest
        }
        Some((prefix, rest)) => {
            wrong.extend(
                dns1123_subdomain(prefix)
                    .into_iter()
                    .map(|wrong| format!("prefix part {wrong}")),
            );
            rest
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    }
    wrong.extend(
        too_long(name, MAX_LABEL)
            .into_iter()
            .map(|wrong| format!("name part {wrong}")),
    );
    if !is_key(name) {
        wrong.push(format!("name part {}", regex_error(RULE, KEY, &EXAMPLES)));
    }
    wrong
}

/// What is wrong with the value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = too_long(value, MAX_LABEL);
    if !value.is_empty() && !is_key(value) {
        wrong.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

fn is_label(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    between(text, is_sign, |byte| is_sign(byte) || byte == b'-')
}

fn is_key(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric();
    between(text, is_sign, |byte| {
        is_sign(byte) || matches!(byte, b'-' | b'_' | b'.')
    })
}

/// Whether a text is not empty, begins and ends with an `edge` and has only `inner` bytes.
fn between(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&byte| edge(byte))
        && bytes.last().is_some_and(|&byte| edge(byte))
        && bytes.iter().all(|&byte| inner(byte))
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most {
        vec![format!("must be no more than {most} bytes")]
    } else {
        Vec::new()
    }
}

fn regex_error(rule: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{regex}')",
        examples.join(" or ")
    )
}
