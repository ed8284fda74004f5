//! Takes the values of secrets out of everything the runner writes itself.
//!
//! What the agent prints is the agent's own: it streams through unchanged.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::environment::Environment;

/// What stands in the place of a secret.
pub(crate) const MASK: &str = "***";

/// Shorter values are left alone: masking `1` or `main` wherever it occurs would ruin the text and protect nothing.
const SECRET_MIN_BYTES: usize = 6;

/// A variable whose name is one of these, or ends in `_` and one of these, holds a secret.
const SECRET_WORDS: [&str; 9] = [
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "SECRET",
    "KEY",
    "CREDENTIALS",
    "DSN",
    "COOKIE",
];

/// A text within a document of JSON counts as a secret from this length on: shorter ones are names and modes, and keys are longer.
const SECRET_IN_JSON_MIN_BYTES: usize = 16;

/// So many files are read at most: a Secret has fewer keys, and a pod fewer Secrets.
const FILES_MAX: usize = 1_000;

/// So much of a file is read at most: what all of a Secret may have.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// So many lines and texts of one value count for themselves: more than keys and certificates have. Each costs a search of all that is
/// written.
const PARTS_MAX: usize = 1_000;

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
        let mut masker = Self::default();
        masker.learn_variables(environment, listed);
        masker
    }

    /// Learns more secrets from variables. What it knew stays a secret.
    pub(crate) fn learn_variables(&mut self, environment: &Environment, listed: &[String]) {
        let secret = environment
            .iter()
            .filter(|(name, _)| looks_secret(name) || listed.iter().any(|listed| listed == name));
        self.learn(secret.map(|(_, value)| value));
    }

    /// Learns more secrets from files and from directories of files. One that is not there, or is no text, holds none.
    pub(crate) fn learn_files<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) {
        let files = paths.flat_map(files_at).take(FILES_MAX);
        let values: Vec<String> = files.filter_map(|file| content(&file)).collect();
        self.learn(values.iter().map(String::as_str));
    }

    fn learn<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        self.secrets.extend(values.flat_map(forms));
        self.secrets
            .sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.secrets.dedup();
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

/// The value, and what a tool may print of it alone: each line of a private key, the password of a URL, the texts of a JSON document.
/// A line with blanks in it is prose, and its words are no secret.
fn forms(value: &str) -> Vec<String> {
    let lines = value.lines().map(str::trim);
    let lines = lines.filter(|line| !line.contains(char::is_whitespace));
    let mut texts = Vec::new();
    if let Ok(document @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(value) {
        texts_of(document, &mut texts);
    }
    let parts = lines
        .map(str::to_owned)
        .chain(password_of(value.trim()).map(str::to_owned))
        .filter(|form| form.len() >= SECRET_MIN_BYTES)
        .chain(texts)
        .take(PARTS_MAX);
    let whole = value.trim();
    let whole = (whole.len() >= SECRET_MIN_BYTES).then(|| whole.to_owned());
    whole.into_iter().chain(parts).collect()
}

/// The password of a URL, as in `postgres://user:password@host`.
fn password_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// The long texts of a document. The recursion is as deep as the parser lets it be: 128 levels.
fn texts_of(document: Value, texts: &mut Vec<String>) {
    match document {
        Value::String(text) if text.len() >= SECRET_IN_JSON_MIN_BYTES => texts.push(text),
        Value::Array(items) => items.into_iter().for_each(|item| texts_of(item, texts)),
        Value::Object(fields) => fields.into_iter().for_each(|(_, item)| texts_of(item, texts)),
        Value::String(_) | Value::Number(_) | Value::Null | Value::Bool(_) => {}
    }
}

/// The file, or the files of the directory. Those that begin with two dots are how a kubelet keeps a volume up to date.
fn files_at(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let named = entries
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".."));
    named.map(|entry| entry.path()).take(FILES_MAX).collect()
}

/// What a file holds, if it is a text.
fn content(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    // A named pipe would make us wait for ever for whoever writes to it.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
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
    fn the_words_of_a_text_that_is_kept_secret_are_none() {
        let prompt = "You mend code.\nAnswer with one word.\n";
        let masker = Masker::new(&Environment::from([("PROMPT_KEY", prompt)]), &[]);

        assert_eq!(
            masker.text("it said: Answer with one word."),
            "it said: Answer with one word."
        );
        assert_eq!(masker.text(prompt.trim()), "***");
    }

    #[test]
    fn the_password_of_a_url_is_a_secret_by_itself() {
        let masker = Masker::new(
            &Environment::from([("DATABASE_DSN", "postgres://me:hunter2-hunter2@db/app?x=1")]),
            &[],
        );

        assert_eq!(
            masker.text("logged in with hunter2-hunter2"),
            "logged in with ***"
        );
        for (url, expected) in [
            ("postgres://me@db", None),
            ("https://host/a:b@c", None),
            ("plain", None),
            ("amqp://u:p:q@h", Some("p:q")),
        ] {
            assert_eq!(password_of(url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_in_secret_files_is_masked_whatever_the_files_are_called() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("env/..data")).unwrap();
        fs::write(path("env/HANDLE"), "quite-private\n").unwrap();
        fs::write(path("env/binary"), [0xff, 0xfe, 0xfd]).unwrap();
        let auth = json!({"mode": "chatgpt", "tokens": {"access": "eyJhbGciOi.of.a.session"}});
        fs::write(path("auth.json"), auth.to_string()).unwrap();
        let mut masker = Masker::default();
        let paths = [path("env"), path("auth.json"), path("absent")];

        masker.learn_files(paths.iter().map(PathBuf::as_path));

        assert_eq!(
            masker.text("quite-private in chatgpt with eyJhbGciOi.of.a.session"),
            "*** in chatgpt with ***"
        );
    }

    #[test]
    fn short_values_are_left_alone() {
        let masker = Masker::new(&Environment::from([("SORT_KEY", "main")]), &[]);

        assert_eq!(masker.text("the main branch"), "the main branch");
    }
}
