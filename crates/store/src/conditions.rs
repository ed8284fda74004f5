//! Conditions of a query.

use crate::{Error, Namespaces, database::Arg};

/// A caller who may see so many namespaces by name asks for all of them or for one.
pub(crate) const MAX_NAMESPACES: usize = 500;

/// Conditions of a query, put together from fixed words; whatever callers say is a parameter.
#[derive(Debug)]
pub(crate) struct Conditions {
    conditions: Vec<String>,
    args: Vec<Arg>,
}

impl Conditions {
    pub(crate) fn new() -> Self {
        Self {
            conditions: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Adds `what` with the value in place of its `?`.
    pub(crate) fn add(&mut self, what: &str, value: impl Into<Arg>) {
        self.args.push(value.into());
        self.conditions
            .push(what.replace('?', &format!("${}", self.args.len())));
    }

    /// Adds what needs no value.
    pub(crate) fn add_words(&mut self, what: &str) {
        self.conditions.push(what.to_owned());
    }

    /// Adds `what` with two values in place of its `?1` and `?2`.
    pub(crate) fn add_both(&mut self, what: &str, first: i64, second: i64) {
        self.args.extend([Arg::from(first), Arg::from(second)]);
        let last = self.args.len();
        let what = what.replace("?1", &format!("${}", last - 1));
        self.conditions.push(what.replace("?2", &format!("${last}")));
    }

    pub(crate) fn add_if<T: Into<Arg>>(&mut self, what: &str, value: Option<T>) {
        if let Some(value) = value {
            self.add(what, value);
        }
    }

    /// Adds that a column has one of these values. Without any, nothing has.
    pub(crate) fn add_any<'a>(&mut self, column: &str, values: impl Iterator<Item = &'a str>) {
        let mut numbers = Vec::new();
        for value in values {
            self.args.push(value.into());
            numbers.push(format!("${}", self.args.len()));
        }
        self.conditions.push(if numbers.is_empty() {
            "1 = 0".to_owned()
        } else {
            format!("{column} IN ({})", numbers.join(", "))
        });
    }

    pub(crate) fn add_namespaces(&mut self, column: &str, namespaces: &Namespaces) -> Result<(), Error> {
        match namespaces {
            Namespaces::All => {}
            Namespaces::Only(names) if names.len() > MAX_NAMESPACES => {
                return Err(Error::Query {
                    field: "namespaces",
                    value: names.len().to_string(),
                    why: format!(
                        "at most {MAX_NAMESPACES} can be asked for by name; ask for one, or for all"
                    ),
                });
            }
            Namespaces::Only(names) => self.add_any(column, names.iter().map(String::as_str)),
        }
        Ok(())
    }

    /// The WHERE clause, and begins another one: the numbers of values go on.
    pub(crate) fn take_clause(&mut self) -> String {
        let clause = self.clause();
        self.conditions.clear();
        clause
    }

    /// The number of a value that stands outside of conditions.
    pub(crate) fn number(&mut self, value: impl Into<Arg>) -> String {
        self.args.push(value.into());
        format!("${}", self.args.len())
    }

    pub(crate) fn into_args(self) -> Vec<Arg> {
        self.args
    }

    /// The WHERE clause, if there is anything to say in it.
    pub(crate) fn clause(&self) -> String {
        if self.conditions.is_empty() {
            return String::new();
        }
        format!(" WHERE {}", self.conditions.join(" AND "))
    }

    /// Adds a last value, for a LIMIT, and says its number.
    pub(crate) fn finish(mut self, last: i64) -> (String, Vec<Arg>) {
        self.args.push(last.into());
        (format!("${}", self.args.len()), self.args)
    }
}
