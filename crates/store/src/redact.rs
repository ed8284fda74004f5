//! What never reaches the database: secrets.
//!
//! A run refers to Secrets by name; values get into one only by mistake, and a history that keeps them would turn a mistake of a
//! minute into one of years. So everything that goes in passes through here, and what is doubtful is left out:
//!
//! - of environment variables only the name and what they refer to, never a value that is written out;
//! - of annotations only ours: kubectl keeps a copy of the whole object in one of its own;
//! - no value under a key that is called like a secret (`token`, `password`, `apiKey`, …), nor anything below one;
//! - in any text, such as the log of an agent that prints its environment, no value behind such a name (`DB_PASSWORD=…`,
//!   `"apiKey": "…"`), and nothing that has the shape of a credential: keys and tokens of well-known services, private keys,
//!   passwords in addresses, bearer tokens.
//!
//! A secret without a name or a shape is not recognised: nothing can tell a password from a word.

mod text;

use std::borrow::Cow;

use serde_json::{Map, Value};

pub use self::text::withhold_text;

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
    "accesskeys",
    "secretkey",
    "secretkeys",
    "signingkey",
    "privatekey",
    "privatekeys",
    "apikeys",
    "sshkey",
    "deploykey",
    "masterkey",
    "encryptionkey",
    "accountkey",
    "passcode",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "connectionstring",
    "databaseurl",
    "dsn",
];
/// The same for whole words: `DB_PASS` is a secret, and `bypass` is not.
const SECRET_WORDS: &[&str] = &["pass", "pwd", "pat"];
/// Below a key that is called like a secret, what is called like this only says where the secret is.
const REFERENCES: &[&str] = &["ref", "valuefrom", "secretname"];

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
        Value::Object(map) if is_secret_key(key) => withhold_below(map),
        Value::Object(map) => walk_map(map, key),
        // Many count tokens, and nobody has a token that is a number.
        Value::Number(_) if is_secret_key(key) && !key.to_lowercase().ends_with("token") => {
            *value = Value::String(WITHHELD.to_owned());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Leaves out everything below a key that is called like a secret, but for where it can be found.
fn withhold_below(map: &mut Map<String, Value>) {
    for (name, value) in map.iter_mut() {
        let name = bare(name);
        if REFERENCES.iter().any(|end| name.ends_with(end)) {
            walk(value, "");
        } else {
            withhold_whole(value);
        }
    }
}

fn withhold_whole(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(withhold_whole),
        Value::Object(map) => withhold_below(map),
        Value::Null | Value::Bool(_) => {}
        Value::String(_) | Value::Number(_) => *value = Value::String(WITHHELD.to_owned()),
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

fn bare(key: &str) -> String {
    let letters = key.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn is_secret_key(key: &str) -> bool {
    let bare = bare(key);
    SECRET_KEYS.iter().any(|end| bare.ends_with(end)) || SECRET_WORDS.contains(&last_word(key).as_str())
}

/// The last word of a key that is written like `two_words` or `twoWords`, in small letters.
fn last_word(key: &str) -> String {
    let word = key.rsplit(|letter: char| !letter.is_alphanumeric()).next();
    let word = word.unwrap_or_default();
    let shouted = !word.contains(char::is_lowercase);
    let begin = if shouted {
        None
    } else {
        word.rfind(char::is_uppercase)
    };
    word.get(begin.unwrap_or_default()..)
        .unwrap_or_default()
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clean(mut value: Value) -> Value {
        withhold(&mut value);
        value
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
            "DB_PASS",
            "mysqlPwd",
            "GH_PAT",
            "SSH_KEY",
            "apiKeys",
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
            "bypass",
            "compat",
            "path",
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
    fn what_stands_below_such_a_key_goes_and_where_it_is_stays() {
        assert_eq!(
            clean(
                json!({"password": {"value": "x", "list": [1, {"a": "b"}], "known": true}, "pin_passcode": 1234})
            ),
            json!({"password": {"value": WITHHELD, "list": [WITHHELD, {"a": WITHHELD}], "known": true},
                   "pin_passcode": WITHHELD})
        );
        let refers = json!({"token": {"secretKeyRef": {"name": "forge", "key": "token-of-forge"}}});
        assert_eq!(clean(refers.clone()), refers);
    }

    #[test]
    fn names_of_secrets_stay() {
        let spec = json!({"secrets": ["forge"], "auth": {"secretRef": {"name": "forge", "key": "value"}}});
        assert_eq!(clean(spec.clone()), spec);
    }
}
