//! What is wrong with the environment, in words for the person who has to correct it.

use std::fmt;

/// How much of a value or of a library's message is repeated, so that each mistake stays one readable line.
const SHOWN_MAX: usize = 120;

/// Every mistake that was found, at least one: it would be tiresome to learn of them one start at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// The mistakes, unless there are none.
    pub(super) fn some(mistakes: Vec<Mistake>) -> Option<Self> {
        (!mistakes.is_empty()).then_some(Self(mistakes))
    }

    /// The mistakes, in the order of the reference; values that contradict each other come last.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

/// One value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub variable: &'static str,
    /// The value, in one line and cut if it is long. None of these variables holds a secret.
    pub value: String,
    pub wrong: Wrong,
    /// What to do about it.
    pub remedy: String,
}

impl Mistake {
    pub(super) fn new(variable: &'static str, value: &str, wrong: Wrong, remedy: String) -> Self {
        Self {
            variable,
            value: shown(value),
            wrong,
            remedy,
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            variable,
            value,
            wrong,
            remedy,
        } = self;
        write!(f, "{variable}='{value}': {wrong}; {remedy}")
    }
}

/// Why a value cannot be used. Texts in it are ready to be shown: in one line, and cut if they are long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("this is neither true nor false")]
    NotBoolean,
    #[error("this is not a whole number")]
    NotWhole,
    #[error("this number is out of range")]
    OutOfRange,
    #[error("this is not legal")]
    Illegal,
    #[error("entry {position} is empty")]
    EmptyEntry { position: usize },
    #[error("entry {position}, `{entry}`, is not legal")]
    IllegalEntry { position: usize, entry: String },
    #[error("entry {position} is {found}")]
    EntryType { position: usize, found: &'static str },
    #[error("this names no namespace")]
    NoNamespace,
    #[error("`*` stands for every namespace and for nothing beside it")]
    AllAndOthers,
    #[error("this is not JSON ({error})")]
    NotJson { error: String },
    #[error("this is {found}")]
    JsonType { found: &'static str },
    #[error("`{path}` cannot be read ({error})")]
    Field { path: String, error: String },
    #[error("`{key}` cannot be the key of a label")]
    LabelKey { key: String },
    #[error("`{value}`, for `{key}`, cannot be the value of a label")]
    LabelValue { key: String, value: String },
    #[error("every namespace needs rights in the whole cluster, and JANGAR_RBAC_CLUSTER_SCOPED is not true")]
    NotClusterScoped,
    #[error("this must be less than {other}, which is {seconds}")]
    NotLess { other: &'static str, seconds: u64 },
    #[error("this must be more than {other}, which is {seconds}")]
    NotMore { other: &'static str, seconds: u64 },
    #[error("this is of no use without {other}")]
    Alone { other: &'static str },
}

/// A text as a message repeats it: in one line, and cut if it is long.
pub(super) fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown = String::new();
    for character in characters.by_ref().take(SHOWN_MAX) {
        // The two others end a line for some who read it, although they are no control characters.
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_a_short_one_is_whole() {
        let exact = "ä".repeat(SHOWN_MAX);
        assert_eq!(shown(&exact), exact);
        assert_eq!(shown(&format!("{exact}b")), format!("{exact}…"));
    }

    #[test]
    fn a_text_of_several_lines_is_shown_in_one() {
        assert_eq!(shown("a\nb\tc\u{2028}d"), "a\\nb\\tc\\u{2028}d");
    }
}
