//! What never reaches the database: secrets.
//!
//! A run refers to Secrets by name; values get into one only by mistake, and a history that keeps them would turn a mistake of a
//! minute into one of years. So everything that goes in passes through here, and what is doubtful is left out:
//!
//! - of environment variables only the name and what they refer to, never a value that is written out;
//! - of annotations only ours: kubectl keeps a copy of the whole object in one of its own;
//! - no value under a key that is called like a secret (`token`, `password`, `apiKey`, …);
//! - in any text, nothing that has the shape of a credential: keys and tokens of well-known services, private keys, passwords
//!   in addresses, bearer tokens.
//!
//! A secret without a name or a shape is not recognised: nothing can tell a password from a word.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// What stands in place of what was left out.
pub const WITHHELD: &str = "[withheld]";

/// Ends of keys whose values are secrets, in small letters and without separators. Words like `secretRef`, `secretName` and
/// `maxTokens` end otherwise.
const SECRET_KEYS: &[&str] = &[
    "token",
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "signingkey",
    "privatekey",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "connectionstring",
    "databaseurl",
    "dsn",
];

/// How tokens of well-known services begin, and how many characters they have at least.
const SHAPES: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 15),
    ("gldt-", 15),
    ("glcbt-", 15),
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xoxa-", 16),
    ("xoxs-", 16),
    ("xapp-", 16),
    ("lin_api_", 16),
    ("lin_oauth_", 16),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("hf_", 20),
    ("dop_v1_", 30),
    ("hvs.", 20),
    ("eyJhbGciOi", 30),
];

/// Words after which a credential stands, as in an `Authorization` header.
const SCHEMES: &[&str] = &["bearer", "basic"];
/// A word after one of them that is shorter is an ordinary word: "bearer of news".
const SCHEME_CREDENTIAL: usize = 16;

const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";

/// Leaves secrets out of a document, whatever it is.
pub fn withhold(value: &mut Value) {
    walk(value, "");
}

fn walk(value: &mut Value, key: &str) {
    match value {
        Value::String(text) => {
            if is_secret_key(key) && !text.is_empty() {
                WITHHELD.clone_into(text);
            } else if let Cow::Owned(clean) = withhold_text(text) {
                *text = clean;
            }
        }
        Value::Array(items) => {
            let variables = key.eq_ignore_ascii_case("env");
            for item in items {
                if variables {
                    withhold_variable(item);
                }
                // Entries of such a list are not such a map.
                walk(item, if variables { "" } else { key });
            }
        }
        Value::Object(map) => walk_map(map, key),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn walk_map(map: &mut Map<String, Value>, key: &str) {
    if key == "annotations" {
        map.retain(|name, _| name.contains("proompteng.ai/"));
    }
    // A map of variables is another way to write a list of them.
    let variables = key.eq_ignore_ascii_case("env");
    for (name, value) in map.iter_mut() {
        match value {
            Value::String(text) if variables && !text.is_empty() => WITHHELD.clone_into(text),
            _ => walk(value, name),
        }
    }
}

/// Of a variable, what is written out is left out; what it refers to stays.
fn withhold_variable(item: &mut Value) {
    if let Some(value) = item.get_mut("value")
        && !value.is_null()
    {
        *value = Value::String(WITHHELD.to_owned());
    }
}

fn is_secret_key(key: &str) -> bool {
    let bare: String = key.chars().filter(|letter| letter.is_alphanumeric()).collect();
    let bare = bare.to_lowercase();
    SECRET_KEYS.iter().any(|end| bare.ends_with(end))
}

/// Leaves out of a text what has the shape of a credential.
pub fn withhold_text(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for step in [private_keys, passwords_in_addresses, tokens] {
        if let Some(cleaner) = step(&clean) {
            clean = Cow::Owned(cleaner);
        }
    }
    clean
}

/// From `-----BEGIN … PRIVATE KEY-----` to its end, or to the end of the text if that is cut.
fn private_keys(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = find_private_key(rest) {
        clean.push_str(rest.get(..start)?);
        clean.push_str(WITHHELD);
        let key = rest.get(start + KEY_BEGINS.len()..)?;
        let end = key.find(KEY_ENDS).and_then(|end| {
            let after = key.get(end + KEY_ENDS.len()..)?;
            Some(end + KEY_ENDS.len() + after.find("-----")? + 5)
        });
        rest = end.and_then(|end| key.get(end..)).unwrap_or_default();
    }
    (!clean.is_empty()).then(|| clean + rest)
}

fn find_private_key(text: &str) -> Option<usize> {
    text.match_indices(KEY_BEGINS)
        .map(|(start, _)| start)
        .find(|start| {
            let title = text.get(start + KEY_BEGINS.len()..).unwrap_or_default();
            title
                .split("-----")
                .next()
                .is_some_and(|title| title.ends_with("PRIVATE KEY"))
        })
}

/// `scheme://user:password@host` keeps scheme, user and host.
fn passwords_in_addresses(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        clean.push_str(before);
        let end = after.find(|letter: char| letter.is_whitespace() || "/?#\"'<>`".contains(letter));
        let authority = after.get(..end.unwrap_or(after.len())).unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                // A user alone may be a token: https://TOKEN@host is a common way to write one.
                match user.split_once(':') {
                    Some((name, _)) if !name.is_empty() && name.len() < SCHEME_CREDENTIAL => {
                        clean.push_str(name);
                    }
                    Some(_) => {}
                    None if user.len() < SCHEME_CREDENTIAL => clean.push_str(user),
                    None => clean.push_str(WITHHELD),
                }
                if user.contains(':') {
                    clean.push(':');
                    clean.push_str(WITHHELD);
                }
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(authority),
        }
        rest = after.get(authority.len()..).unwrap_or_default();
    }
    clean.push_str(rest);
    (clean != text).then_some(clean)
}

/// Words that begin like a token of a well-known service, and those after `Bearer` and `Basic`.
fn tokens(text: &str) -> Option<String> {
    let in_token = |letter: char| letter.is_ascii_alphanumeric() || "_-.+/=~".contains(letter);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_scheme = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !in_token(letter)).unwrap_or(rest.len());
        let (word, others) = rest.split_at(end);
        if is_token(word) || (after_scheme && word.len() >= SCHEME_CREDENTIAL) {
            clean.push_str(WITHHELD);
        } else {
            clean.push_str(word);
        }
        if !word.is_empty() {
            after_scheme = SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        }
        let gap = others.find(in_token).unwrap_or(others.len());
        let (gap, next) = others.split_at(gap);
        after_scheme &= gap.chars().all(char::is_whitespace);
        clean.push_str(gap);
        rest = next;
    }
    (clean != text).then_some(clean)
}

/// A token may stand behind a name, as in `key=token`, or a path.
fn is_token(word: &str) -> bool {
    let parts = word.split(['=', '/']);
    parts.into_iter().any(|part| {
        SHAPES
            .iter()
            .any(|(begin, least)| part.starts_with(begin) && part.len() >= *least)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clean(mut value: Value) -> Value {
        withhold(&mut value);
        value
    }

    /// Put together here, so that nothing that looks for secrets in this file finds one.
    fn token() -> String {
        format!("ghp_{}", "a1B2".repeat(9))
    }

    #[test]
    fn variables_keep_what_they_refer_to_and_not_what_is_written_out() {
        let env = json!({"env": [
            {"name": "MODE", "value": "plain words"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "forge", "key": "token"}}},
        ]});
        assert_eq!(
            clean(env),
            json!({"env": [
                {"name": "MODE", "value": WITHHELD},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "forge", "key": "token"}}},
            ]})
        );
        assert_eq!(
            clean(json!({"env": {"MODE": "plain"}})),
            json!({"env": {"MODE": WITHHELD}})
        );
    }

    #[test]
    fn annotations_of_others_are_left_out() {
        let metadata = json!({"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\": {\"password\": \"hunter2\"}}",
            "agents.proompteng.ai/retain": "true",
        }});
        assert_eq!(
            clean(metadata),
            json!({"annotations": {"agents.proompteng.ai/retain": "true"}})
        );
    }

    #[test]
    fn keys_that_are_called_like_secrets_lose_their_values() {
        for key in [
            "token",
            "GITHUB_TOKEN",
            "db-password",
            "apiKey",
            "client_secret",
            "Authorization",
        ] {
            assert_eq!(clean(json!({key: "hunter2"})), json!({key: WITHHELD}), "{key}");
        }
        for key in [
            "secretRef",
            "secretName",
            "maxTokens",
            "tokenExpiresAt",
            "keyboard",
            "name",
        ] {
            assert_eq!(clean(json!({key: "plain"})), json!({key: "plain"}), "{key}");
        }
        assert_eq!(
            clean(json!({"passwords": ["a", "b"]})),
            json!({"passwords": [WITHHELD, WITHHELD]})
        );
        assert_eq!(
            clean(json!({"usage": {"token": 12}})),
            json!({"usage": {"token": 12}})
        );
    }

    #[test]
    fn names_of_secrets_stay() {
        let spec = json!({"secrets": ["forge"], "auth": {"secretRef": {"name": "forge", "key": "value"}}});
        assert_eq!(clean(spec.clone()), spec);
    }

    #[test]
    fn tokens_are_recognised_wherever_they_stand() {
        let token = token();
        for text in [
            token.clone(),
            format!("use {token}, please"),
            format!("x={token}"),
            format!("see https://example.com/{token}/x"),
            format!("https://{token}@example.com/x"),
            format!("Authorization: Bearer {}", "abcdefgh".repeat(3)),
            format!("eyJhbGciOi{}.e30.sig", "x".repeat(40)),
        ] {
            let clean = withhold_text(&text);
            assert!(clean.contains(WITHHELD), "{text} became {clean}");
            assert!(
                !clean.contains(&token) && !clean.contains("abcdefghabcdefgh"),
                "{text} became {clean}"
            );
        }
    }

    #[test]
    fn passwords_in_addresses_go_and_the_rest_stays() {
        assert_eq!(
            withhold_text("postgres://app:hunter2@db:5432/x and https://example.com/a@b"),
            "postgres://app:[withheld]@db:5432/x and https://example.com/a@b"
        );
        assert_eq!(
            withhold_text("ssh://git@example.com/x"),
            "ssh://git@example.com/x"
        );
    }

    #[test]
    fn private_keys_go_as_a_whole_even_if_their_end_is_cut() {
        let begin = format!("{KEY_BEGINS}RSA PRIVATE KEY-----");
        let whole = format!("before {begin}\nMIIabc\n{KEY_ENDS}RSA PRIVATE KEY----- after");
        assert_eq!(withhold_text(&whole), "before [withheld] after");
        assert_eq!(
            withhold_text(&format!("before {begin}\nMIIabc")),
            "before [withheld]"
        );
        let public = format!("{KEY_BEGINS}CERTIFICATE-----\nMIIabc\n{KEY_ENDS}CERTIFICATE-----");
        assert_eq!(withhold_text(&public), public);
    }

    #[test]
    fn ordinary_texts_are_not_touched() {
        for text in [
            "",
            "fix the sk-learn import",
            "bearer of news",
            "a/b#12",
            "0123456789abcdef0123456789abcdef01234567",
            "AKIA",
        ] {
            assert!(matches!(withhold_text(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
