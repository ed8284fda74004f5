//! Manifests that are applied at the start: read whole, checked whole, and only then applied.
//!
//! `read` turns files into documents, `apply` into objects. Nothing is applied as long as one document is known to be wrong.

mod apply;
mod read;

use std::fmt;

use kube::core::GroupVersionKind;
use serde_json::Value;

pub(crate) use self::{
    apply::apply,
    read::{parse, read},
};

/// How many mistakes are listed: more than that are most often one mistake, repeated.
const LISTED_MAX: usize = 20;

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: String,
    /// Counted from one; empty documents are not counted.
    pub(crate) number: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.number)
    }
}

/// One object as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    origin: Origin,
    kind: GroupVersionKind,
    name: String,
    namespace: Option<String>,
    value: Value,
}

impl Document {
    fn is_namespace(&self) -> bool {
        self.kind == GroupVersionKind::gvk("", "v1", "Namespace")
    }

    /// With what it is called, for messages about an object that has a name.
    fn mistake(&self, text: impl fmt::Display) -> Mistake {
        Mistake {
            place: format!("{} ({} {})", self.origin, self.kind.kind, self.name),
            text: text.to_string(),
        }
    }
}

/// What is wrong with a file or a document: names the field and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    place: String,
    text: String,
}

impl Mistake {
    fn new(place: impl fmt::Display, text: impl fmt::Display) -> Self {
        Self {
            place: place.to_string(),
            text: text.to_string(),
        }
    }
}

/// Everything that is wrong with the manifests.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing was applied, because of what the manifests say:")?;
        for Mistake { place, text } in self.0.iter().take(LISTED_MAX) {
            write!(f, "\n  {place}: {text}")?;
        }
        match self.0.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            left => write!(f, "\n  and {left} more"),
        }
    }
}

/// The values, or everything that is wrong with them.
fn all<T>(results: impl IntoIterator<Item = Result<T, Mistake>>) -> Result<Vec<T>, Mistakes> {
    let mut values = Vec::new();
    let mut mistakes = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() {
        Ok(values)
    } else {
        Err(Mistakes(mistakes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_mistakes_is_cut_and_says_so() {
        let mistakes = (0..LISTED_MAX + 3).map(|number| Mistake::new("f", number));
        let text = all::<()>(mistakes.map(Err)).unwrap_err().to_string();
        assert_eq!(text.lines().count(), 1 + LISTED_MAX + 1);
        assert!(text.ends_with("\n  and 3 more"), "{text}");
    }
}
