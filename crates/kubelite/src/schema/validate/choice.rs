//! `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::Value;

use crate::{
    field::{FieldError, go_quoted},
    schema::{
        Schema,
        trail::Trail,
        validate::{Checker, Matches},
    },
};
use std::sync::Arc;

/// What became of one alternative.
struct Attempt {
    errors: Vec<FieldError>,
    matches: Matches,
}

/// Where a node stands, for all alternatives alike.
#[derive(Clone, Copy)]
struct At<'a> {
    value: &'a Value,
    trail: &'a Trail<'a>,
    depth: usize,
}

impl Checker<'_> {
    pub(super) fn choices(
        &mut self,
        value: &Value,
        schema: &Schema,
        trail: &Trail<'_>,
        depth: usize,
    ) -> Matches {
        let at = At { value, trail, depth };
        let mut matches = 1;
        if !schema.any_of.is_empty() {
            matches += self.any_of(at, &schema.any_of);
        }
        if !schema.one_of.is_empty() {
            matches += self.one_of(at, &schema.one_of);
        }
        if !schema.all_of.is_empty() {
            matches += self.all_of(at, &schema.all_of);
        }
        if let Some(not) = &schema.not
            && self.attempt(at, not).errors.is_empty()
        {
            self.about_choice(trail, "must not validate the schema (not)");
        }
        matches
    }

    fn attempt(&self, at: At<'_>, alternative: &Schema) -> Attempt {
        let mut checker = Checker {
            base: self.base,
            errors: Vec::new(),
        };
        let matches = checker.node(at.value, None, alternative, at.trail, at.depth + 1);
        Attempt {
            errors: checker.errors,
            matches,
        }
    }

    fn any_of(&mut self, at: At<'_>, alternatives: &[Arc<Schema>]) -> Matches {
        let mut best: Option<Attempt> = None;
        for alternative in alternatives {
            let attempt = self.attempt(at, alternative);
            if attempt.errors.is_empty() {
                return attempt.matches;
            }
            if best.as_ref().is_none_or(|best| attempt.matches > best.matches) {
                best = Some(attempt);
            }
        }
        self.about_choice(at.trail, "must validate at least one schema (anyOf)");
        best.map_or(0, |best| self.merge(best))
    }

    fn one_of(&mut self, at: At<'_>, alternatives: &[Arc<Schema>]) -> Matches {
        let mut best: Option<Attempt> = None;
        let mut valid = Vec::new();
        for alternative in alternatives {
            let attempt = self.attempt(at, alternative);
            if attempt.errors.is_empty() {
                valid.push(attempt.matches);
            } else if best.as_ref().is_none_or(|best| attempt.matches > best.matches) {
                best = Some(attempt);
            }
        }
        match valid.as_slice() {
            [matches] => *matches,
            [] => {
                self.about_choice(
                    at.trail,
                    "must validate one and only one schema (oneOf). Found none valid",
                );
                best.map_or(0, |best| self.merge(best))
            }
            several => {
                let count = several.len();
                let what = format!(
                    "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                );
                self.about_choice(at.trail, &what);
                0
            }
        }
    }

    fn all_of(&mut self, at: At<'_>, parts: &[Arc<Schema>]) -> Matches {
        let mut matches = 0;
        let mut valid = 0;
        for part in parts {
            let attempt = self.attempt(at, part);
            valid += usize::from(attempt.errors.is_empty());
            matches += self.merge(attempt);
        }
        if valid != parts.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.about_choice(at.trail, &format!("must validate all the schemas (allOf){none}"));
        }
        matches
    }

    /// Takes over an attempt's errors, but for those that were told already.
    fn merge(&mut self, attempt: Attempt) -> Matches {
        for error in attempt.errors {
            self.push(error);
        }
        attempt.matches
    }

    /// These messages name the node in their text, and stand at the root.
    fn about_choice(&mut self, trail: &Trail<'_>, what: &str) {
        let detail = format!("{} {what}", go_quoted(&trail.render()));
        self.push(FieldError::invalid(self.base.clone(), "", detail));
    }
}
