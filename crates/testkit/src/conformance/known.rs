//! The differences that are known: the tables of `docs/kubelite-differences.md`.
//!
//! The first column of a row says where a difference shows, as `area: place` or `area: title: place` between backquotes, one or
//! more of them. `*` stands for any text, but not for another status: where kubelite answers with one, the place is `status` and
//! the status it answers with.

use std::fmt;

use super::Difference;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kubelite-differences.md");

/// One place, or many alike, where a difference may show.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    area: String,
    title: Option<String>,
    place: String,
}

/// Everything that the page lists.
pub fn listed() -> std::io::Result<Vec<Known>> {
    Ok(parse(&std::fs::read_to_string(PAGE)?))
}

fn parse(page: &str) -> Vec<Known> {
    let columns = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = columns.filter_map(|row| row.split(" | ").next());
    let quoted = cells.flat_map(|cell| cell.split('`').step_by(2).filter(|text| !text.trim().is_empty()));
    quoted.filter_map(Known::read).collect()
}

impl Known {
    fn read(text: &str) -> Option<Self> {
        let (area, rest) = text.split_once(": ")?;
        let (title, place) = match rest.rsplit_once(": ") {
            Some((title, place)) => (Some(title.to_owned()), place),
            None => (None, rest),
        };
        Some(Self {
            area: area.to_owned(),
            title,
            place: place.to_owned(),
        })
    }

    pub fn area(&self) -> &str {
        &self.area
    }

    pub fn covers(&self, difference: &Difference) -> bool {
        let title = self.title.as_deref().unwrap_or("*");
        like(&self.area, &difference.area)
            && like(title, &difference.title)
            && match difference.place.as_str() {
                "status" => self.place == format!("status {}", difference.found),
                place => like(&self.place, place),
            }
    }
}

/// Whether a difference is in what clients decide by. Words may differ where it is listed, this may only where the status is
/// listed as another one.
fn is_verdict(difference: &Difference) -> bool {
    matches!(difference.place.as_str(), "body/reason" | "body/code")
}

/// What the list and the differences do not agree on.
#[derive(Debug, Default)]
pub struct Disagreement<'a> {
    /// Differences that are not listed.
    pub unlisted: Vec<&'a Difference>,
    /// Entries of the list that nothing shows any more.
    pub outlived: Vec<&'a Known>,
}

/// A sentence for each, and nothing if they agree.
impl fmt::Display for Disagreement<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.unlisted {
            writeln!(formatter, "not listed: {difference}")?;
        }
        for known in &self.outlived {
            writeln!(formatter, "listed, and no longer so: {known:?}")?;
        }
        Ok(())
    }
}

pub fn disagreement<'a>(listed: &'a [Known], found: &'a [Difference]) -> Disagreement<'a> {
    let covered = |difference: &Difference| listed.iter().any(|known| known.covers(difference));
    let has_other_status = |of: &Difference| {
        let mut same = found
            .iter()
            .filter(|other| (&other.area, &other.title) == (&of.area, &of.title));
        same.any(|other| other.place == "status" && covered(other))
    };
    let is_listed = |difference: &&Difference| {
        covered(difference) && (!is_verdict(difference) || has_other_status(difference))
    };
    let shows = |known: &&Known| found.iter().any(|difference| known.covers(difference));
    Disagreement {
        unlisted: found.iter().filter(|difference| !is_listed(difference)).collect(),
        outlived: listed.iter().filter(|known| !shows(known)).collect(),
    }
}

/// Whether a text is like a pattern in which `*` stands for any text.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part).and_then(|start| rest.get(start + part.len()..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const PAGE: &str = "# Title\n\n| where | what |\n|---|---|\n| `pods: body/spec/tolerations*`, `jobs: a title: status 405` | text |\n";

    fn difference(area: &str, title: &str, place: &str) -> Difference {
        Difference {
            area: area.to_owned(),
            title: title.to_owned(),
            place: place.to_owned(),
            expected: Value::Null,
            found: Value::from(405),
        }
    }

    #[test]
    fn the_list_is_exact_when_all_of_it_shows_and_nothing_else_does() {
        let listed = parse(PAGE);
        let tolerations = difference("pods", "any", "body/spec/tolerations/0");
        let status = difference("jobs", "a title", "status");

        let exact = [tolerations.clone(), status.clone()];
        let exact = disagreement(&listed, &exact);
        assert!(
            exact.unlisted.is_empty() && exact.outlived.is_empty(),
            "{exact:?}"
        );

        let other = [tolerations, difference("jobs", "another title", "status")];
        let other = disagreement(&listed, &other);
        assert_eq!((other.unlisted.len(), other.outlived.len()), (1, 1), "{other:?}");
    }

    #[test]
    fn another_status_is_covered_by_itself_alone() {
        let of = |status: u16| Difference {
            found: status.into(),
            ..difference("jobs", "a title", "status")
        };
        let covers =
            |text: &str, difference| Known::read(text).is_some_and(|known| known.covers(&difference));

        assert!(covers("jobs: a title: status 405", of(405)));
        assert!(!covers("jobs: a title: status 405", of(500)));
        assert!(!covers("jobs: a title: *", of(405)));
        assert!(!covers("jobs: a title: status", of(405)));
    }

    #[test]
    fn another_reason_is_covered_only_beside_another_status() {
        let listed = parse("| `jobs: a title: body*`, `jobs: a title: status 405` | text |\n");
        let reason = difference("jobs", "a title", "body/reason");
        let words = difference("jobs", "a title", "body/message");
        let status = difference("jobs", "a title", "status");

        let alone = [words.clone(), reason.clone()];
        assert_eq!(disagreement(&listed, &alone).unlisted, [&reason]);
        let beside = [words, reason, status];
        assert!(disagreement(&listed, &beside).unlisted.is_empty());
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("a*c", "abc", true),
            ("a*c", "abx", false),
            ("*/0/*", "body/0/x", true),
            ("*", "", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(like(pattern, text), expected, "{pattern} {text}");
        }
    }
}
