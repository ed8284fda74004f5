//! The corpus as text. A file is a list of requests, each below a line that says what it is about:
//!
//! ```text
//! # What the area is about. Lines like this one are comments.
//! @widgets = /apis/{{group}}/v1/namespaces/{{namespace}}/widgets
//!
//! ### a second object of the same name is refused
//! POST {{widgets}}?fieldManager=tests
//! ~ keep version /metadata/resourceVersion
//!
//! {"apiVersion": "{{group}}/v1", "kind": "Widget", "metadata": {"name": "a"}}
//! ```
//!
//! `MERGE`, `JSON`, `STRATEGIC` and `APPLY` are `PATCH` with the content type of that kind of patch. `WATCH name path` begins a
//! watch that stays open, and `EVENTS name count` is what it said next. Lines `Name: value` are headers. Lines `~` are for the
//! one who plays it:
//!
//! - `~ keep NAME POINTER` keeps a value of the answer for later requests, as `{{NAME}}`;
//! - `~ until STATUS`, `~ until POINTER VALUE` asks again until the answer is so, whenever something has changed;
//! - `~ only POINTER` compares this part of the answer only; `~ pick POINTER KEY VALUE` picks the one object out of a list
//!   whose `KEY` (a pointer) has that value.

use std::{collections::BTreeMap, str::FromStr};

use http::Method;
use serde_json::Value;

/// The label, with the value `real`, of a node on which pods really run. A script whose pods ask for it needs one.
pub const NODE_LABEL: &str = "jangar.test/node";

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Script {
    /// The name of the file.
    pub area: String,
    /// Whether it is about a kind that has to be defined first.
    pub needs_kind: bool,
    /// Whether its pods have to run.
    pub needs_node: bool,
    pub variables: BTreeMap<String, String>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub title: String,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    Request(Request),
    /// Begins a watch that stays open under this name.
    Watch {
        name: String,
        path: String,
    },
    /// The next so many events of an open watch.
    Events {
        name: String,
        count: usize,
    },
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub keep: Vec<(String, String)>,
    pub until: Vec<Condition>,
    pub focus: Option<Focus>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Status(u16),
    /// The value at a pointer; `Null` also stands for nothing there.
    Value {
        pointer: String,
        value: Value,
    },
}

/// The part of an answer that counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Focus {
    Only(String),
    Pick {
        list: String,
        key: String,
        value: String,
    },
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    line: usize,
    what: String,
}

/// Content types by the word that stands for them in the place of a method.
const PATCHES: [(&str, &str); 4] = [
    ("MERGE", "application/merge-patch+json"),
    ("JSON", "application/json-patch+json"),
    ("STRATEGIC", "application/strategic-merge-patch+json"),
    ("APPLY", "application/apply-patch+yaml"),
];

impl Script {
    pub fn parse(area: &str, text: &str) -> Result<Self, ScriptError> {
        let mut script = Self {
            area: area.to_owned(),
            needs_kind: text.contains("{{group}}"),
            needs_node: text.contains(NODE_LABEL),
            variables: BTreeMap::new(),
            steps: Vec::new(),
        };
        let mut block: Option<Block<'_>> = None;
        for (index, line) in text.lines().enumerate() {
            if let Some(title) = line.strip_prefix("### ") {
                script.steps.extend(block.take().map(Block::read).transpose()?);
                block = Some(Block {
                    line: index + 1,
                    title: title.trim(),
                    lines: Vec::new(),
                });
            } else if let Some(block) = &mut block {
                block.lines.push(line);
            } else {
                script.preamble(index + 1, line)?;
            }
        }
        script.steps.extend(block.take().map(Block::read).transpose()?);
        script.check_titles()?;
        Ok(script)
    }

    fn preamble(&mut self, number: usize, line: &str) -> Result<(), ScriptError> {
        if line.trim().is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let definition = line.strip_prefix('@').and_then(|rest| rest.split_once('='));
        let (name, value) = definition.ok_or_else(|| error(number, "neither a comment nor @name = value"))?;
        self.variables
            .insert(name.trim().to_owned(), value.trim().to_owned());
        Ok(())
    }

    /// Differences are listed by title.
    fn check_titles(&self) -> Result<(), ScriptError> {
        for (index, step) in self.steps.iter().enumerate() {
            if self
                .steps
                .iter()
                .take(index)
                .any(|other| other.title == step.title)
            {
                return Err(error(0, &format!("two requests are called {:?}", step.title)));
            }
        }
        Ok(())
    }
}

/// The lines of one request.
struct Block<'a> {
    line: usize,
    title: &'a str,
    lines: Vec<&'a str>,
}

impl Block<'_> {
    fn read(self) -> Result<Step, ScriptError> {
        let mut lines = self.lines.iter().skip_while(|line| line.trim().is_empty());
        let first = lines
            .next()
            .ok_or_else(|| error(self.line, "no request follows"))?;
        let words: Vec<_> = first.split_whitespace().collect();
        let action = match words.as_slice() {
            ["WATCH", name, path] => Action::Watch {
                name: (*name).to_owned(),
                path: (*path).to_owned(),
            },
            ["EVENTS", name, count] => Action::Events {
                name: (*name).to_owned(),
                count: count.parse().map_err(|_| error(self.line, "how many events?"))?,
            },
            [method, path] => Action::Request(self.request(method, path, lines.copied())?),
            _ => return Err(error(self.line, &format!("{first:?} is no request"))),
        };
        Ok(Step {
            title: self.title.to_owned(),
            action,
        })
    }

    fn request<'a>(
        &self,
        word: &str,
        path: &str,
        mut lines: impl Iterator<Item = &'a str>,
    ) -> Result<Request, ScriptError> {
        let patch = PATCHES.iter().find(|(name, _)| *name == word);
        let method = match patch {
            Some(_) => Method::PATCH,
            None => {
                Method::from_str(word).map_err(|_| error(self.line, &format!("{word:?} is no method")))?
            }
        };
        let mut request = Request {
            method,
            path: path.to_owned(),
            headers: patch
                .map(|(_, content)| ("Content-Type".to_owned(), (*content).to_owned()))
                .into_iter()
                .collect(),
            body: String::new(),
            keep: Vec::new(),
            until: Vec::new(),
            focus: None,
        };
        for line in lines.by_ref().take_while(|line| !line.trim().is_empty()) {
            match line.strip_prefix("~ ") {
                Some(directive) => self.directive(&mut request, directive)?,
                None => {
                    let header = line.split_once(": ");
                    let (name, value) =
                        header.ok_or_else(|| error(self.line, &format!("{line:?} is no header")))?;
                    request.headers.push((name.to_owned(), value.to_owned()));
                }
            }
        }
        let body: Vec<_> = lines.filter(|line| !line.starts_with("# ")).collect();
        body.join("\n").trim().clone_into(&mut request.body);
        Ok(request)
    }

    fn directive(&self, request: &mut Request, directive: &str) -> Result<(), ScriptError> {
        let mut words = directive.splitn(2, ' ');
        let (word, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let unclear = || error(self.line, &format!("~ {directive} is not clear"));
        match word {
            "keep" => {
                let (name, pointer) = rest.split_once(' ').ok_or_else(unclear)?;
                request.keep.push((name.to_owned(), pointer.to_owned()));
            }
            "until" => request.until.push(match rest.split_once(' ') {
                None => Condition::Status(rest.parse().map_err(|_| unclear())?),
                Some((pointer, value)) => Condition::Value {
                    pointer: pointer.to_owned(),
                    value: serde_json::from_str(value).map_err(|_| unclear())?,
                },
            }),
            "only" => request.focus = Some(Focus::Only(rest.to_owned())),
            "pick" => {
                let words: Vec<_> = rest.splitn(3, ' ').map(str::to_owned).collect();
                let [list, key, value] = <[String; 3]>::try_from(words).map_err(|_| unclear())?;
                request.focus = Some(Focus::Pick { list, key, value });
            }
            _ => return Err(unclear()),
        }
        Ok(())
    }
}

fn error(line: usize, what: &str) -> ScriptError {
    ScriptError {
        line,
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_headers_directives_and_a_body() {
        let text = "# about\n@w = /apis/{{group}}\n\n### first\nMERGE {{w}}/a?x=1\nAccept: text/plain\n~ keep v /metadata/uid\n\
                    ~ until 200\n~ until /status/n 2\n\n{\"a\":\n 1}\n\n### second\nGET /version\n";

        let script = Script::parse("area", text).expect("a script");

        assert_eq!(script.variables["w"], "/apis/{{group}}");
        assert_eq!(script.steps.len(), 2);
        let Action::Request(request) = &script.steps[0].action else {
            panic!("{:?} is a request", script.steps[0]);
        };
        assert_eq!(request.method, Method::PATCH);
        assert_eq!(request.path, "{{w}}/a?x=1");
        let headers: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(headers, ["Content-Type", "Accept"]);
        assert_eq!(request.body, "{\"a\":\n 1}");
        assert_eq!(request.keep, [("v".to_owned(), "/metadata/uid".to_owned())]);
        let counted = Condition::Value {
            pointer: "/status/n".to_owned(),
            value: 2.into(),
        };
        assert_eq!(request.until, [Condition::Status(200), counted]);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("what", "line 1: neither a comment nor @name = value"),
            ("### a", "line 1: no request follows"),
            ("\n### a\nGET", "line 2: \"GET\" is no request"),
            ("### a\nGET /\nno header\n", "line 1: \"no header\" is no header"),
            ("### a\nGET /\n~ jump\n", "line 1: ~ jump is not clear"),
            (
                "### a\nGET /\n### a\nGET /\n",
                "line 0: two requests are called \"a\"",
            ),
        ];
        for (text, expected) in cases {
            let found = Script::parse("area", text).expect_err(text).to_string();
            assert_eq!(found, expected);
        }
    }
}
