//! Templates as kubectl has them: `{.status.phase}`, `{.items[*].metadata.name}`, `.a[?(@.b=="c")].d`.

use serde_json::Value;

/// The most bytes of a template: whatever is longer is a program, for which there is jq.
const TEMPLATE_BYTES_MAX: usize = 4096;
/// How many values one template may come to. A list of a whole cluster has fewer.
const VALUES_MAX: usize = 1_000_000;

/// A template that can be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// Every entry of a list or an object.
    All,
    /// Every value below, at any depth.
    Descend,
    Filter {
        path: Vec<Step>,
        /// Absent: the value only has to be there.
        test: Option<(bool, Value)>,
    },
}

impl JsonPath {
    /// Reads a template. A path without braces is one as well.
    pub fn parse(template: &str) -> Result<Self, String> {
        if template.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("the template has more than {TEMPLATE_BYTES_MAX} bytes"));
        }
        let wrong = |why: String| {
            format!("'{template}' is no JSONPath: {why}; write, for example, {{.status.phase}}")
        };
        if !template.contains('{') {
            let mut reader = Reader::new(template);
            let path = reader.path(None).map_err(wrong)?;
            return Ok(Self(vec![Part::Path(path)]));
        }
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('{') {
            if !text.is_empty() {
                parts.push(Part::Text(unescaped(text)));
            }
            let end = closing(after).ok_or_else(|| wrong("a brace is not closed".to_owned()))?;
            let (inner, further) = after.split_at(end);
            parts.push(part(inner.trim()).map_err(wrong)?);
            rest = further.get(1..).unwrap_or("");
        }
        if !rest.is_empty() {
            parts.push(Part::Text(unescaped(rest)));
        }
        Ok(Self(parts))
    }

    /// What the template says of a value. What is not there is empty; several values have a space between them.
    pub fn render(&self, value: &Value) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(words) => text.push_str(words),
                Part::Path(steps) => {
                    let found: Vec<String> = select(steps, value).into_iter().map(shown).collect();
                    text.push_str(&found.join(" "));
                }
            }
        }
        text
    }
}

/// The brace that closes, which is none within quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '}') => return Some(at),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn part(inner: &str) -> Result<Part, String> {
    for word in ["range", "end"] {
        if inner == word || inner.starts_with(&format!("{word} ")) {
            return Err(format!("{{{word}}} is not understood; use -o json and jq"));
        }
    }
    if let Some(text) = quoted(inner) {
        return Ok(Part::Text(unescaped(text)));
    }
    let mut reader = Reader::new(inner.strip_prefix('$').unwrap_or(inner));
    reader.path(None).map(Part::Path)
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    })
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t")
}

/// Reads a path letter by letter.
struct Reader<'t> {
    letters: std::iter::Peekable<std::str::Chars<'t>>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            letters: text.chars().peekable(),
        }
    }

    /// The steps up to the end, or up to one of the letters that end it.
    fn path(&mut self, ends: Option<&str>) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        while let Some(letter) = self.letters.peek().copied() {
            if ends.is_some_and(|ends| ends.contains(letter)) {
                break;
            }
            self.letters.next();
            match letter {
                '.' => self.after_dot(&mut steps)?,
                '[' => steps.push(self.bracket()?),
                other => return Err(format!("'{other}' is where a dot or a bracket has to be")),
            }
        }
        Ok(steps)
    }

    fn after_dot(&mut self, steps: &mut Vec<Step>) -> Result<(), String> {
        match self.letters.peek() {
            // The root itself, or a bracket that says where to go on.
            None | Some('[') => {}
            Some('.') => {
                self.letters.next();
                steps.push(Step::Descend);
                if let Some(name) = self.name()? {
                    steps.push(Step::Field(name));
                }
            }
            Some('*') => {
                self.letters.next();
                steps.push(Step::All);
            }
            Some(_) => match self.name()? {
                Some(name) => steps.push(Step::Field(name)),
                None => return Err("a name is missing after a dot".to_owned()),
            },
        }
        Ok(())
    }

    /// A name of a field. A dot that belongs to it has a backslash before it.
    fn name(&mut self) -> Result<Option<String>, String> {
        let mut name = String::new();
        while let Some(letter) = self.letters.peek().copied() {
            match letter {
                '\\' => {
                    self.letters.next();
                    match self.letters.next() {
                        Some(escaped) => name.push(escaped),
                        None => return Err("it ends in a backslash".to_owned()),
                    }
                }
                '.' | '[' | ']' | '=' | '!' | ')' | ' ' => break,
                other => {
                    self.letters.next();
                    name.push(other);
                }
            }
        }
        Ok((!name.is_empty()).then_some(name))
    }

    fn bracket(&mut self) -> Result<Step, String> {
        let step = match self.letters.peek().copied() {
            Some('*') => {
                self.letters.next();
                Step::All
            }
            Some(quote @ ('\'' | '"')) => Step::Field(self.text_in(quote)?),
            Some('?') => self.filter()?,
            Some(letter) if letter == '-' || letter.is_ascii_digit() => {
                let mut digits = String::new();
                while let Some(letter) = self
                    .letters
                    .next_if(|letter| *letter == '-' || letter.is_ascii_digit())
                {
                    digits.push(letter);
                }
                Step::Index(digits.parse().map_err(|_| format!("[{digits}] is no position"))?)
            }
            _ => {
                return Err(
                    "what is in brackets is neither a number, nor *, nor a name, nor ?(…)".to_owned(),
                );
            }
        };
        match self.letters.next() {
            Some(']') => Ok(step),
            _ => Err("a bracket is not closed".to_owned()),
        }
    }

    fn text_in(&mut self, quote: char) -> Result<String, String> {
        self.letters.next();
        let mut text = String::new();
        for letter in self.letters.by_ref() {
            if letter == quote {
                return Ok(text);
            }
            text.push(letter);
        }
        Err("a quote is not closed".to_owned())
    }

    /// `?(@.path==value)`, `?(@.path!=value)` or `?(@.path)`.
    fn filter(&mut self) -> Result<Step, String> {
        for expected in ['?', '(', '@'] {
            if self.letters.next() != Some(expected) {
                return Err("a filter is written as [?(@.field==\"value\")]".to_owned());
            }
        }
        let path = self.path(Some("=!) "))?;
        self.spaces();
        let test = match self.letters.peek().copied() {
            Some(sign @ ('=' | '!')) => {
                self.letters.next();
                if self.letters.next() != Some('=') {
                    return Err("a filter compares with == or !=".to_owned());
                }
                self.spaces();
                Some((sign == '=', self.operand()?))
            }
            _ => None,
        };
        self.spaces();
        match self.letters.next() {
            Some(')') => Ok(Step::Filter { path, test }),
            _ => Err("a filter is not closed".to_owned()),
        }
    }

    fn operand(&mut self) -> Result<Value, String> {
        if let Some(quote @ ('\'' | '"')) = self.letters.peek().copied() {
            return self.text_in(quote).map(Value::String);
        }
        let mut word = String::new();
        while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, ')' | ' ')) {
            word.push(letter);
        }
        serde_json::from_str(&word).map_err(|_| format!("{word} has to be in quotes, or be a number"))
    }

    fn spaces(&mut self) {
        while self.letters.next_if_eq(&' ').is_some() {}
    }
}

/// The values that a path leads to.
fn select<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in steps {
        let mut next: Vec<&Value> = found.into_iter().flat_map(|value| advance(step, value)).collect();
        next.truncate(VALUES_MAX);
        found = next;
    }
    found
}

fn advance<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(at) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let at = match usize::try_from(*at) {
                Ok(at) => Some(at),
                Err(_) => items
                    .len()
                    .checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
            };
            at.and_then(|at| items.get(at)).into_iter().collect()
        }
        Step::All => entries(value),
        Step::Descend => {
            let mut all = vec![value];
            let mut at = 0;
            while let Some(value) = all.get(at).copied() {
                all.extend(entries(value));
                at += 1;
                if all.len() > VALUES_MAX {
                    break;
                }
            }
            all
        }
        Step::Filter { path, test } => entries(value)
            .into_iter()
            .filter(|entry| {
                let found = select(path, entry);
                match test {
                    None => !found.is_empty(),
                    Some((equal, wanted)) => found.contains(&wanted) == *equal,
                }
            })
            .collect(),
    }
}

fn entries(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(template: &str, value: &Value) -> String {
        JsonPath::parse(template).expect(template).render(value)
    }

    #[test]
    fn paths_find_what_kubectl_finds() {
        let value = json!({
            "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}},
            "items": [{"n": 1, "on": true}, {"n": 2}, {"n": "two"}],
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"}]},
        });
        for (template, text) in [
            ("{.metadata.name}", "a"),
            (".metadata.name", "a"),
            ("{$.metadata.name}", "a"),
            (r"{.metadata.labels.app\.kubernetes\.io/name}", "x"),
            ("{.metadata.labels['app.kubernetes.io/name']}", "x"),
            ("{.items[*].n}", "1 2 two"),
            ("{.items[-1].n}{\"\\n\"}", "two\n"),
            ("{.items[0].n}, {.items[1].n}", "1, 2"),
            ("{.items[?(@.n==2)].n}", "2"),
            ("{.items[?(@.on)].n}", "1"),
            ("{.items[?(@.n!=\"two\")].n}", "1 2"),
            (".status.conditions[?(@.type==\"Ready\")].status", "True"),
            ("{..type}", "Ready Failed"),
            ("{.not.there}", ""),
            ("{.items[0]}", r#"{"n":1,"on":true}"#),
        ] {
            assert_eq!(rendered(template, &value), text, "{template}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_never_panics() {
        for wrong in [
            "{.a",
            "{.a[}",
            "{.a[1}",
            "{.a[?(@.b)}",
            "{.a[?(@.b=1)]}",
            "{range .items[*]}{.a}{end}",
            "{a}",
            "{.a\\}",
            "{.a['b]}",
            "{.a[?(@.b==c)]}",
        ] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
        assert!(JsonPath::parse(&".a".repeat(5000)).is_err());
    }
}
