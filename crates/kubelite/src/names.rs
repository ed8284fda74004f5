//! The rules for names and labels, each answering with the messages of `k8s.io/apimachinery` for what is wrong.

use std::sync::LazyLock;

const LABEL_MAX: usize = 63;
pub(crate) const SUBDOMAIN_MAX: usize = 253;

/// A syntax with the text that explains it.
pub(crate) struct Rule {
    pub(crate) matches: fn(&str) -> bool,
    pub(crate) message: LazyLock<String>,
}

pub(crate) fn regex_message(text: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = if quoted.is_empty() {
        String::new()
    } else {
        format!("e.g. {}", quoted.join(" or "))
    };
    format!("{text} ({examples}regex used for validation is '{regex}')")
}

pub(crate) fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The newer of Kubernetes' two libraries counts what it always counted, but calls it by its name.
fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub(crate) fn check(value: &str, max: usize, rule: &Rule) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > max {
        messages.push(too_long(max));
    }
    if !(rule.matches)(value) {
        messages.push(rule.message.clone());
    }
    messages
}

pub(crate) fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn is_label(value: &str) -> bool {
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if lower(*first) && lower(*last))
        && bytes.iter().all(|byte| lower(*byte) || *byte == b'-')
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_1035_label(value: &str) -> bool {
    is_label(value) && value.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn is_qualified_part(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

static LABEL: Rule = Rule {
    matches: is_label,
    message: LazyLock::new(|| {
        regex_message(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "123-abc"],
        )
    }),
};
static SUBDOMAIN: Rule = Rule {
    matches: is_subdomain,
    message: LazyLock::new(|| {
        regex_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        )
    }),
};
static DNS_1035: Rule = Rule {
    matches: is_1035_label,
    message: LazyLock::new(|| {
        regex_message(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        )
    }),
};
static QUALIFIED_PART: LazyLock<String> = LazyLock::new(|| {
    regex_message(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        &["MyName", "my.name", "123-abc"],
    )
});
static LABEL_VALUE: LazyLock<String> = LazyLock::new(|| {
    regex_message(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        &["MyValue", "my_value", "12345"],
    )
});

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
            Self::Subdomain => dns_subdomain(name),
            Self::Label => dns_label(name),
            Self::Label1035 | Self::PathSegment => dns_1035_label(name),
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

/// RFC 1123 label: the name of a namespace or a container.
pub fn dns_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(too_long(LABEL_MAX));
    }
    if !is_label(value) {
        let dotted = is_subdomain(value);
        messages.push(if dotted {
            "must not contain dots".to_owned()
        } else {
            LABEL.message.clone()
        });
    }
    messages
}

/// RFC 1123 subdomain: the name of most objects.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    check(value, SUBDOMAIN_MAX, &SUBDOMAIN)
}

/// RFC 1035 label: the names of a custom resource.
pub fn dns_1035_label(value: &str) -> Vec<String> {
    check(value, LABEL_MAX, &DNS_1035)
}

/// The key of a label or annotation, or another name with an optional prefix.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    messages.push(format!("prefix part {}", too_many_bytes(SUBDOMAIN_MAX)));
                }
                if !is_subdomain(prefix) {
                    messages.push(format!("prefix part {}", *SUBDOMAIN.message));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                *QUALIFIED_PART
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        messages.push(format!("name part {}", too_many_bytes(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        messages.push(format!("name part {}", *QUALIFIED_PART));
    }
    messages
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_MAX {
        messages.push(too_many_bytes(LABEL_MAX));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        messages.push(LABEL_VALUE.clone());
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_have_no_messages() {
        assert!(dns_label("my-name-1").is_empty());
        assert!(dns_subdomain("a.b-c.d").is_empty());
        assert!(dns_1035_label("widgets").is_empty());
        for key in ["a", "A.b_c-9", "example.com/a", "a.b-c.d/E", &"a".repeat(63)] {
            assert!(qualified_name(key).is_empty(), "{key}");
        }
        for value in ["", "a", "1.2_3-x"] {
            assert!(label_value(value).is_empty(), "{value}");
        }
    }

    #[test]
    fn wrong_names_are_explained_in_the_words_of_kubernetes() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns_subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
        assert_eq!(dns_1035_label("1a").len(), 1);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(
            qualified_name("a/").first().map(String::as_str),
            Some("name part must be non-empty")
        );
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist of"));
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn wrong_keys_and_values_are_refused() {
        for key in [
            "",
            "-a",
            "a-",
            "a b",
            "/a",
            "a/",
            "a/b/c",
            "A.b/c",
            "a..b/c",
            "é",
            &"a".repeat(64),
        ] {
            assert!(!qualified_name(key).is_empty(), "{key}");
        }
        for value in ["-", "a b", "a/b", "ü", &"a".repeat(64)] {
            assert!(!label_value(value).is_empty(), "{value}");
        }
    }
}
