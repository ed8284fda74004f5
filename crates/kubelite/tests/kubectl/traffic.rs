//! Requests and answers as `traffic.jsonl` keeps them.
//!
//! Times stay as they are, since the clock of the fixture is fixed. Versions, UIDs, continue tokens and generated names
//! depend on how many writes the server makes for itself, which is its own affair. They are replaced by symbols that are
//! numbered as they appear, so that a later request still says which earlier value it means.

use std::{collections::HashMap, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// The clock moves by so many seconds.
    Advance(i64),
    Exchange(Exchange),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    /// Of a watch: the number of steps that had begun when it last sent something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<usize>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) uri: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) accept: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Content>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Content>,
}

/// A body, in the form that reads best.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    Json(Value),
    Text(String),
    Base64(String),
    /// The events of a watch.
    Lines(Vec<Value>),
}

impl Content {
    pub(crate) fn of(bytes: &[u8], content_type: &str) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        if let Ok(value) = serde_json::from_slice(bytes) {
            return Some(Self::Json(value));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if !content_type.contains("protobuf") => Some(Self::Text(text.to_owned())),
            _ => Some(Self::Base64(STANDARD.encode(bytes))),
        }
    }

    pub(crate) fn lines(bytes: &[u8]) -> Self {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Self::Lines(
            lines
                .map(|line| serde_json::from_slice(line).expect("an event is JSON"))
                .collect(),
        )
    }
}

impl Answer {
    pub(crate) fn new(status: http::StatusCode, headers: &http::HeaderMap) -> Self {
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        Self {
            status: status.as_u16(),
            content_type: headers
                .get(http::header::CONTENT_TYPE)
                .map(text)
                .unwrap_or_default(),
            warnings: headers.get_all(http::header::WARNING).iter().map(text).collect(),
            body: None,
        }
    }
}

/// Whether the answer goes on until somebody ends it.
pub(crate) fn is_watch(uri: &str) -> bool {
    uri.contains("watch=true") || uri.contains("watch=1")
}

/// Whether the body of the answer is kept. OpenAPI documents are large, say the same each time and have tests of their own.
pub(crate) fn keeps_body(uri: &str) -> bool {
    !uri.starts_with("/openapi/")
}

static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
    let patterns = [
        "(?<uid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
        r#""resourceVersion":"(?<version>[1-9][0-9]*)""#,
        "resourceVersion=(?<asked_version>[1-9][0-9]*)",
        r#""continue":"(?<continue>[^"]+)""#,
        "continue=(?<asked_continue>[^&\"]+)",
        // All generated names of the script begin like this.
        "generated-(?<name>[a-z0-9]{5})\\b",
    ];
    Regex::new(&patterns.join("|")).expect("the pattern is valid")
});
static SYMBOL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{(uid|version|continue|name)-[0-9]+\}").expect("the pattern is valid"));

/// Replaces values that may differ from run to run by symbols, and back.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    of_value: HashMap<(&'static str, String), String>,
    value_of: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl Symbols {
    /// The same with symbols in place of the values that may differ.
    pub(crate) fn hide<T: Serialize + serde::de::DeserializeOwned>(&mut self, shown: &T) -> T {
        let text = serde_json::to_string(shown).expect("it has a JSON form");
        let hidden = VOLATILE.replace_all(&text, |captures: &Captures<'_>| self.replacement(captures));
        serde_json::from_str(&hidden).expect("symbols do not change the form")
    }

    fn replacement(&mut self, captures: &Captures<'_>) -> String {
        let groups = [
            ("uid", "uid"),
            ("version", "version"),
            ("asked_version", "version"),
            ("continue", "continue"),
            ("asked_continue", "continue"),
            ("name", "name"),
        ];
        let (kind, value) = groups
            .iter()
            .find_map(|(group, kind)| captures.name(group).map(|value| (*kind, value.as_str())))
            .expect("one of the groups matched");
        let symbol = self.symbol(kind, value);
        captures[0].replace(value, &symbol)
    }

    fn symbol(&mut self, kind: &'static str, value: &str) -> String {
        if let Some(symbol) = self.of_value.get(&(kind, value.to_owned())) {
            return symbol.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let symbol = format!("{{{kind}-{count}}}");
        self.of_value.insert((kind, value.to_owned()), symbol.clone());
        self.value_of.insert(symbol.clone(), value.to_owned());
        symbol
    }
}

impl Symbols {
    /// The same with values in place of the symbols that stand for them.
    pub(crate) fn show<T: Serialize + serde::de::DeserializeOwned>(&self, hidden: &T) -> T {
        let text = serde_json::to_string(hidden).expect("it has a JSON form");
        let shown = SYMBOL.replace_all(&text, |captures: &Captures<'_>| {
            let symbol = &captures[0];
            // A value that no answer has shown is one that the client made up.
            self.value_of
                .get(symbol)
                .cloned()
                .unwrap_or_else(|| symbol.to_owned())
        });
        serde_json::from_str(&shown).expect("values do not change the form")
    }
}
