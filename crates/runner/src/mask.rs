//! Takes the values of secrets out of everything the runner writes itself.
//!
//! What the agent prints is the agent's own: it streams through unchanged.

use serde_json::{Map, Value};

use crate::environment::Environment;

/// What stands in the place of a secret.
pub(crate) const MASK: &str = "***";

/// Shorter values are left alone: masking `1` or `main` wherever it occurs would ruin the text and protect nothing.
const SECRET_MIN_BYTES: usize = 6;

/// A variable whose name is one of these, or ends in `_` and one of these, holds a secret.
const SECRET_WORDS: [&str; 4] = ["TOKEN", "PASSWORD", "SECRET", "KEY"];

/// Replaces secrets in text.
#[derive(Clone, Default)]
pub(crate) struct Masker {
    /// The longest first, so that no secret is spoilt by a shorter one that it contains.
    secrets: Vec<String>,
}

// By hand, so that no debugging output ever shows a secret.
impl std::fmt::Debug for Masker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Masker({} secrets)", self.secrets.len())
    }
}

impl Masker {
    /// Learns the secrets from the variables whose names look like it or are `listed`.
    pub(crate) fn new(environment: &Environment, listed: &[String]) -> Self {
        let mut secrets: Vec<String> = environment
            .iter()
            .filter(|(name, _)| looks_secret(name) || listed.iter().any(|listed| listed == name))
            .flat_map(|(_, value)| forms(value))
            .collect();
        secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self { secrets }
    }

    pub(crate) fn text(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for secret in &self.secrets {
            if masked.contains(secret.as_str()) {
                masked = masked.replace(secret.as_str(), MASK);
            }
        }
        masked
    }

    /// Masks every string, number and key. The recursion is as deep as the parser lets a document be: 128 levels.
    pub(crate) fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Number(number) => {
                let digits = number.to_string();
                let masked = self.text(&digits);
                if masked == digits {
                    Value::Number(number)
                } else {
                    Value::String(masked)
                }
            }
            Value::Null | Value::Bool(_) => value,
        }
    }

    pub(crate) fn fields(&self, fields: Map<String, Value>) -> Map<String, Value> {
        fields
            .into_iter()
            .map(|(key, value)| (self.text(&key), self.value(value)))
            .collect()
    }
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| {
        name.strip_suffix(word)
            .is_some_and(|before| before.is_empty() || before.ends_with('_'))
    })
}

/// The value, and of a value of several lines, such as a private key, also each line: a tool may print one of them.
fn forms(value: &str) -> impl Iterator<Item = String> + '_ {
    std::iter::once(value.trim())
        .chain(value.lines().map(str::trim))
        .filter(|form| form.len() >= SECRET_MIN_BYTES)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_hold_secrets_are_recognised() {
        for (name, expected) in [
            ("VCS_TOKEN", true),
            ("NATS_PASSWORD", true),
            ("openai_api_key", true),
            ("SECRET", true),
            ("VCS_SSH_KEY_PATH", false),
            ("MONKEY", false),
            ("HOME", false),
        ] {
            assert_eq!(looks_secret(name), expected, "{name}");
        }
    }

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        let masker = Masker::new(&Environment::from([("VCS_TOKEN", "s3cr3t-token")]), &[]);

        let masked = masker.value(json!({
            "text": "https://x:s3cr3t-token@host",
            "list": [{"s3cr3t-token": "s3cr3t-token"}],
            "other": 5,
        }));

        assert_eq!(
            masked,
            json!({"text": "https://x:***@host", "list": [{"***": "***"}], "other": 5})
        );
    }

    #[test]
    fn a_secret_that_is_a_number_is_masked_as_a_number_too() {
        let masker = Masker::new(&Environment::from([("DB_PASSWORD", "12345678")]), &[]);

        assert_eq!(masker.value(json!([12_345_678, 1234])), json!(["***", 1234]));
    }

    #[test]
    fn a_listed_name_is_masked_though_it_looks_harmless() {
        let environment = Environment::from([("HANDLE", "quite-private")]);

        assert_eq!(
            Masker::new(&environment, &[]).text("quite-private"),
            "quite-private"
        );
        assert_eq!(
            Masker::new(&environment, &["HANDLE".to_owned()]).text("a quite-private b"),
            "a *** b"
        );
    }

    #[test]
    fn a_secret_within_another_does_not_leave_a_rest() {
        let masker = Masker::new(
            &Environment::from([("A_TOKEN", "abcdef"), ("B_TOKEN", "abcdefghij")]),
            &[],
        );

        assert_eq!(masker.text("abcdefghij abcdef"), "*** ***");
    }

    #[test]
    fn each_line_of_a_private_key_is_a_secret() {
        let masker = Masker::new(
            &Environment::from([("SSH_KEY", "first-line\nsecond-line\nend\n")]),
            &[],
        );

        assert_eq!(masker.text("read second-line"), "read ***");
        assert_eq!(masker.text("the end"), "the end");
    }

    #[test]
    fn short_values_are_left_alone() {
        let masker = Masker::new(&Environment::from([("SORT_KEY", "main")]), &[]);

        assert_eq!(masker.text("the main branch"), "the main branch");
    }
}
