//! The rules for names, labels and keys, each answering with the messages of `k8s.io/apimachinery` for what is wrong.

use std::sync::LazyLock;

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const PORT_NAME_MAX: usize = 15;

/// A syntax with the text that explains it.
struct Rule {
    matches: fn(&str) -> bool,
    message: LazyLock<String>,
}

fn regex_message(text: &str, regex: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    let examples = if quoted.is_empty() {
        String::new()
    } else {
        format!("e.g. {}", quoted.join(" or "))
    };
    format!("{text} ({examples}regex used for validation is '{regex}')")
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The newer of Kubernetes' two libraries counts what it always counted, but calls it by its name.
fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn check(value: &str, max: usize, rule: &Rule) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > max {
        messages.push(too_long(max));
    }
    if !(rule.matches)(value) {
        messages.push(rule.message.clone());
    }
    messages
}

fn lower(byte: u8) -> bool {
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

fn is_config_key(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
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
static CONFIG_KEY: Rule = Rule {
    matches: is_config_key,
    message: LazyLock::new(|| {
        regex_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
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

/// A key in a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut messages = check(value, SUBDOMAIN_MAX, &CONFIG_KEY);
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// The name of an environment variable.
pub fn env_name(value: &str) -> Vec<String> {
    if value
        .bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
    {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// The name of a container's port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut push = |wrong: bool, message: &str| {
        if wrong {
            messages.push(message.to_owned());
        }
    };
    push(value.len() > PORT_NAME_MAX, &too_long(PORT_NAME_MAX));
    push(
        value.is_empty() || !value.bytes().all(|byte| lower(byte) || byte == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    push(
        !value.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    push(value.contains("--"), "must not contain consecutive hyphens");
    push(
        value.starts_with('-') || value.ends_with('-'),
        "must not begin or end with a hyphen",
    );
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
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert!(label_value("").is_empty());
        assert!(config_key("a_b.C-d").is_empty());
        assert!(env_name("1 weird:name").is_empty());
        assert!(port_name("http-2").is_empty());
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
        assert_eq!(
            config_key("..").last().map(String::as_str),
            Some("must not be '..'")
        );
        assert_eq!(env_name("a=b").len(), 1);
        assert_eq!(port_name("1"), ["must contain at least one letter (a-z)"]);
    }
}
