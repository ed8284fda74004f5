//! The rules for keys, variables and ports, which only built-in kinds have. Those for names and labels are in `crate::names`.

use std::sync::LazyLock;

use crate::names::{Rule, SUBDOMAIN_MAX, check, lower, regex_message, too_long};
pub use crate::names::{dns_1035_label, dns_label, dns_subdomain, label_value, qualified_name};

const PORT_NAME_MAX: usize = 15;

fn is_config_key(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

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
    fn good_keys_have_no_messages() {
        assert!(config_key("a_b.C-d").is_empty());
        assert!(env_name("1 weird:name").is_empty());
        assert!(port_name("http-2").is_empty());
    }

    #[test]
    fn wrong_keys_are_explained_in_the_words_of_kubernetes() {
        assert_eq!(
            config_key("..").last().map(String::as_str),
            Some("must not be '..'")
        );
        assert_eq!(env_name("a=b").len(), 1);
        assert_eq!(port_name("1"), ["must contain at least one letter (a-z)"]);
    }
}
