//! Label selectors: `app=web,tier in (a,b),!legacy,weight>5`.

use std::fmt;

use serde_json::Value;

use crate::{
    field::{FieldError, FieldPath},
    names::{label_value, qualified_name},
    selector::{MAX_REQUIREMENTS, SelectorError, check_length},
};

/// How a requirement relates its key to its values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    Equals,
    /// `==`, which means the same and is printed as it was written.
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One term of a selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, each once.
    values: Vec<String>,
}

/// Requirements that must all hold. The empty selector matches everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut parser = Parser {
            tokens: tokens(text),
            position: 0,
        };
        let mut requirements = parser.requirements()?;
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Self { requirements })
    }

    /// Reads a `metav1.LabelSelector` object (`matchLabels` and `matchExpressions`), as `spec.selector` of a Job has one.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flatten() {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    let message = format!("\"{other}\" is not a valid label selector operator");
                    return Err(SelectorError::Requirement(message));
                }
            };
            let values = expression.get("values").and_then(Value::as_array);
            let values = values
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            requirements.push(Requirement::new(text("key"), operator, values)?);
        }
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels, given by a way to look one up, satisfy every requirement.
    pub fn matches<'l>(&self, lookup: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(lookup(&requirement.key)))
    }

    /// Whether an object's `metadata.labels` do.
    pub fn matches_object(&self, object: &Value) -> bool {
        if self.is_empty() {
            return true;
        }
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Self, SelectorError> {
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        let problems = qualified_name(key);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(
                FieldPath::new("key"),
                key,
                problems.join("; "),
            ));
        }
        let path = FieldPath::new("values");
        let listed = || Value::from(values.clone());
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                let detail = "for 'in', 'notin' operators, values set can't be empty";
                errors.push(FieldError::invalid(path.clone(), listed(), detail));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                let detail = "values set must be empty for exists and does not exist";
                errors.push(FieldError::invalid(path.clone(), listed(), detail));
            }
            Operator::GreaterThan | Operator::LessThan => {
                let wrong = values
                    .iter()
                    .enumerate()
                    .filter(|(_, value)| value.parse::<i64>().is_err());
                errors.extend(wrong.map(|(position, value)| {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    FieldError::invalid(path.index(position), value.as_str(), detail)
                }));
            }
            _ => {}
        }
        for (position, value) in values.iter().enumerate() {
            let problems = label_value(value);
            if !problems.is_empty() {
                let path = path.index(position).key(key);
                errors.push(FieldError::invalid(path, value.as_str(), problems.join("; ")));
            }
        }
        match errors.as_slice() {
            [] => Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            }),
            [one] => Err(SelectorError::Requirement(one.to_string())),
            many => {
                let many: Vec<String> = many.iter().map(ToString::to_string).collect();
                Err(SelectorError::Requirement(format!("[{}]", many.join(", "))))
            }
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let holds = |label: &str| {
            self.values
                .binary_search_by(|value| value.as_str().cmp(label))
                .is_ok()
        };
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => label.is_some_and(holds),
            Operator::NotEquals | Operator::NotIn => !label.is_some_and(holds),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::GreaterThan => self.compare(label).is_some_and(std::cmp::Ordering::is_gt),
            Operator::LessThan => self.compare(label).is_some_and(std::cmp::Ordering::is_lt),
        }
    }

    fn compare(&self, label: Option<&str>) -> Option<std::cmp::Ordering> {
        let bound: i64 = self.values.first()?.parse().ok()?;
        let label: i64 = label?.parse().ok()?;
        Some(label.cmp(&bound))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A piece of a selector. `in` and `notin` are words like any other; the parser knows where they are operators.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Token<'t> {
    Word(&'t str),
    Symbol(&'t str),
    End,
}

impl<'t> Token<'t> {
    fn text(self) -> &'t str {
        match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let bytes = rest.as_bytes();
        let Some(first) = bytes.first() else { break };
        let is_word = !is_symbol(*first);
        // Every byte that ends a token is ASCII, so the split is at a character's border.
        let length = if is_word {
            bytes
                .iter()
                .position(|byte| is_symbol(*byte) || is_space(*byte))
                .unwrap_or(bytes.len())
        } else if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else {
            1
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(if is_word {
            Token::Word(token)
        } else {
            Token::Symbol(token)
        });
        rest = tail;
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    position: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                Token::End => return Ok(requirements),
                other @ Token::Symbol(_) => {
                    return Err(unexpected(other, "!, identifier, or 'end of string'"));
                }
            }
            if requirements.len() == MAX_REQUIREMENTS {
                return Err(SelectorError::TooMany);
            }
            requirements.push(self.requirement()?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(unexpected(other, "identifier after ','")),
                },
                other => return Err(unexpected(other, "',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(in_requirement(other, ", expected: identifier")),
        };
        let problems = qualified_name(key);
        if !problems.is_empty() {
            let error = FieldError::invalid(FieldPath::root(), key, problems.join("; "));
            return Err(SelectorError::Requirement(error.to_string()));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => return Err(in_requirement(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.value_set()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                Ok(value.to_owned())
            }
            other @ Token::Symbol(_) => Err(in_requirement(other, ", expected: identifier")),
        }
    }

    /// `(a,b)`, where nothing between two commas means the empty value.
    fn value_set(&mut self) -> Result<Vec<String>, SelectorError> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(in_requirement(other, " expected: '('")),
        }
        let mut values = Vec::new();
        match self.peek() {
            Token::Symbol(")") => {
                self.next();
                return Ok(vec![String::new()]);
            }
            Token::Word(_) | Token::Symbol(",") => {}
            other => return Err(in_requirement(other, ", expected: ',', ')' or identifier")),
        }
        loop {
            match self.peek() {
                Token::Word(value) => {
                    self.next();
                    values.push(value.to_owned());
                    if !matches!(self.peek(), Token::Symbol("," | ")")) {
                        return Err(in_requirement(self.peek(), ", expected: ',' or ')'"));
                    }
                }
                Token::Symbol("," | ")") => values.push(String::new()),
                other => return Err(in_requirement(other, ", expected: ',', or identifier")),
            }
            if self.next() == Token::Symbol(")") {
                return Ok(values);
            }
        }
    }
}

fn unexpected(token: Token<'_>, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected {
        found: token.text().to_owned(),
        expected,
    }
}

fn in_requirement(token: Token<'_>, expected: &str) -> SelectorError {
    SelectorError::Requirement(format!("found '{}'{expected}", token.text()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_read_and_printed_in_canonical_form() {
        for (text, canonical) in [
            ("", ""),
            (" ", ""),
            ("a", "a"),
            ("! a", "!a"),
            ("a=b", "a=b"),
            ("a==b", "a==b"),
            ("a != b", "a!=b"),
            ("a in (y,x,y)", "a in (x,y)"),
            ("a notin (y,x,)", "a notin (,x,y)"),
            ("a in ()", "a in ()"),
            ("a in (,)", "a in ()"),
            ("a in (,,)", "a in ()"),
            ("a in (x,,y)", "a in (,x,y)"),
            ("a>5", "a>5"),
            ("a<5", "a<5"),
            ("a=,b", "a=,b"),
            ("in in (in)", "in in (in)"),
            ("notin", "notin"),
            ("a=in", "a=in"),
            ("a\tin\n(b)", "a in (b)"),
            ("a=b,a!=c,0z", "0z,a=b,a!=c"),
            ("example.com/a=b", "example.com/a=b"),
        ] {
            let parsed = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(parsed.to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_kubernetes() {
        for (text, message) in [
            (
                "a<-",
                "[values[0]: Invalid value: \"-\": for 'Gt', 'Lt' operators, the value must be an integer, ",
            ),
            (
                "a<x",
                "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("a in", "found '' expected: '('"),
            ("a in x", "found 'x' expected: '('"),
            ("a in (x", "found '', expected: ',' or ')'"),
            ("a in (x y)", "found 'y', expected: ',' or ')'"),
            ("a in (=)", "found '=', expected: ',', ')' or identifier"),
            ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a!b", "found '!', expected: in, notin, =, ==, !=, gt, lt"),
            ("a gt 5", "found 'gt', expected: in, notin, =, ==, !=, gt, lt"),
            ("!", "found '', expected: identifier"),
            ("a===b", "found '=', expected: identifier"),
            (
                "/a",
                "<nil>: Invalid value: \"/a\": prefix part must be non-empty",
            ),
            (
                "x=-a",
                "values[0][x]: Invalid value: \"-a\": a valid label must be an empty string or consist of",
            ),
        ] {
            let error = LabelSelector::parse(text).expect_err(text).to_string();
            let expected = format!("unable to parse requirement: {message}");
            assert!(error.starts_with(&expected), "{text}: {error}");
        }
        for (text, message) in [
            ("a=b,", "found '', expected: identifier after ','"),
            ("a=b,,c", "found ',', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ] {
            let error = LabelSelector::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text}");
        }
    }

    #[test]
    fn labels_match_by_every_operator() {
        let object = json!({"metadata": {"labels": {"app": "web", "weight": "7", "empty": "", "text": "x"}}});
        for (text, matches) in [
            ("", true),
            ("app", true),
            ("none", false),
            ("!app", false),
            ("!none", true),
            ("app=web", true),
            ("app==api", false),
            ("app!=api", true),
            ("none!=api", true),
            ("none=api", false),
            ("app in (api,web)", true),
            ("app notin (api,web)", false),
            ("none notin (api)", true),
            ("none in (api)", false),
            ("empty=", true),
            ("empty in ()", true),
            ("none=", false),
            ("weight>6", true),
            ("weight>7", false),
            ("weight<8", true),
            ("text<8", false),
            ("none>1", false),
            ("app=web,weight>1", true),
            ("app=web,weight>100", false),
        ] {
            let selector = LabelSelector::parse(text).expect(text);
            assert_eq!(selector.matches_object(&object), matches, "{text}");
        }
        let unlabelled = json!({"metadata": {}});
        assert!(
            LabelSelector::parse("!a")
                .expect("a selector")
                .matches_object(&unlabelled)
        );
        assert!(
            !LabelSelector::parse("a")
                .expect("a selector")
                .matches_object(&unlabelled)
        );
    }

    #[test]
    fn a_selector_object_reads_like_its_text() {
        let selector = json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "NotIn", "values": ["y", "x"]},
                {"key": "d", "operator": "Exists"},
            ],
        });
        let parsed = LabelSelector::from_object(&selector).expect("a selector");
        assert_eq!(parsed.to_string(), "a=1,b=2,c notin (x,y),d");
        for wrong in [
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            json!({"matchExpressions": [{"key": "", "operator": "Exists"}]}),
        ] {
            assert!(LabelSelector::from_object(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn endless_selectors_are_refused() {
        let long = "a".repeat(crate::selector::MAX_BYTES + 1);
        assert_eq!(LabelSelector::parse(&long), Err(SelectorError::TooLong));
        let most = vec!["a"; MAX_REQUIREMENTS].join(",");
        assert!(LabelSelector::parse(&most).is_ok());
        assert_eq!(
            LabelSelector::parse(&format!("{most},a")),
            Err(SelectorError::TooMany)
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn what_is_printed_reads_the_same(text in "(a|b|in|notin|!|=|==|!=|,|\\(|\\)|<|>|5| ){0,12}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let printed = selector.to_string();
                prop_assert_eq!(LabelSelector::parse(&printed), Ok(selector), "{}", printed);
            }
        }
    }
}
