//! The words that a run is found by.
//!
//! Both databases can split texts, each by rules of its own. So texts are split here, and the databases only keep words: a
//! search finds the same on both. A word is what stands between characters that are neither letters nor digits, in small
//! letters. `owner/repo#12` is three of them.

use std::collections::HashSet;

use crate::{Error, database::Dialect};

/// A run is found by its names and by what was said about it, not by every word of a long specification.
const MAX_WORDS: usize = 1_000;
const MAX_BYTES: usize = 16 << 10;
/// Longer ones are hashes and encodings; their beginning is enough to find them by.
const MAX_WORD_CHARS: usize = 64;
/// People look for a few words.
const MAX_QUERY_WORDS: usize = 16;
const MAX_QUERY_BYTES: usize = 1_000;
/// From this length on the beginning of a word is enough. Shorter beginnings would find nearly everything.
const PREFIX_CHARS: usize = 3;
/// How much of a value Postgres has as a mark, which bounds its words. Names in Kubernetes are shorter.
const MAX_MARK_CHARS: usize = 300;

/// Stands for the number of a piece of the list.
const HOLE: char = '¤';

/// The distinct words of texts, in the order in which they come, until there is enough.
#[derive(Debug, Default)]
pub(crate) struct Words {
    seen: HashSet<String>,
    text: String,
}

impl Words {
    pub(crate) fn add(&mut self, text: &str) {
        for word in split(text) {
            let full = self.seen.len() >= MAX_WORDS || self.text.len() + word.len() >= MAX_BYTES;
            if full {
                return;
            }
            if self.seen.contains(&word) {
                continue;
            }
            if !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(&word);
            self.seen.insert(word);
        }
    }

    /// The words with a space between each two.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

fn split(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.chars()
                .flat_map(char::to_lowercase)
                .filter(|letter| letter.is_alphanumeric())
        })
        .map(|letters| letters.take(MAX_WORD_CHARS).collect())
}

/// What a person looks for, in the language of the database. All of the words have to be there.
///
/// Words hold letters and digits only, so none of them can mean anything in either language.
pub(crate) fn query(text: &str, dialect: Dialect) -> Result<String, Error> {
    let wrong = |why: &str| Error::Query {
        field: "text",
        value: text.chars().take(MAX_WORD_CHARS).collect(),
        why: why.to_owned(),
    };
    if text.len() > MAX_QUERY_BYTES {
        return Err(wrong("it is longer than 1000 bytes; look for a few words"));
    }
    let mut words: Vec<String> = split(text).collect();
    words.dedup();
    if words.is_empty() {
        return Err(wrong("there is no letter or digit in it to look for"));
    }
    if words.len() > MAX_QUERY_WORDS {
        return Err(wrong("it has more than 16 words; look for fewer"));
    }
    let prefix = match dialect {
        Dialect::Postgres => ":*",
        Dialect::Sqlite => "*",
    };
    let term = |word: &String| {
        let (quote, long) = match dialect {
            Dialect::Postgres => ('\'', word.chars().count() >= PREFIX_CHARS),
            Dialect::Sqlite => ('"', word.chars().count() >= PREFIX_CHARS),
        };
        format!("{quote}{word}{quote}{}", if long { prefix } else { "" })
    };
    Ok(words.iter().map(term).collect::<Vec<_>>().join(and(dialect)))
}

/// What stands between two that both have to be there.
pub(crate) fn and(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => " & ",
        Dialect::Sqlite => " AND ",
    }
}

/// What stands between two of which one has to be there.
pub(crate) fn or(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => " | ",
        Dialect::Sqlite => " OR ",
    }
}

/// What a run is filtered by as a word, which no text has: its first character is neither letter nor digit. The schema makes
/// the same of the columns of a run.
pub(crate) fn mark(letter: char, value: &str, dialect: Dialect) -> String {
    let value = value.replace('\0', "\u{fffd}");
    match dialect {
        // Within quotes all is as it is, but for quotes and backslashes.
        Dialect::Postgres => {
            let value: String = value.chars().take(MAX_MARK_CHARS).collect();
            format!("'§{letter}{}'", value.replace('\\', r"\\").replace('\'', "''"))
        }
        Dialect::Sqlite => {
            let digits = value.bytes().map(|byte| format!("{byte:02x}"));
            format!("\"§{letter}{}\"", digits.collect::<String>())
        }
    }
}

/// What Postgres looks up in a piece of the list: words as [`query`] gives them, and of each of `any` one. Before each stands, as the
/// second of the two says it, what is to be replaced with the number of the piece. It is found nowhere else in them.
pub(crate) fn in_a_piece(query: &str, any: &[Vec<String>]) -> (String, String) {
    let (and, or) = (and(Dialect::Postgres), or(Dialect::Postgres));
    let mut hole = String::from(HOLE);
    while any.iter().flatten().any(|mark| mark.contains(&hole)) {
        hole.push(HOLE);
    }
    let there = |term: &str| format!("'{hole}§{}", term.strip_prefix('\'').unwrap_or(term));
    // Words hold letters and digits only, so that what stands between two of them is nowhere else.
    let words = query.split(and).map(there);
    let marks = any.iter().map(|marks| {
        let marks: Vec<String> = marks.iter().map(|mark| there(mark)).collect();
        format!("({})", marks.join(or))
    });
    let all: Vec<String> = words.chain(marks).collect();
    (all.join(and), hole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> String {
        let mut words = Words::default();
        for text in texts {
            words.add(text);
        }
        words.into_text()
    }

    #[test]
    fn texts_are_split_at_all_that_is_no_letter_or_digit() {
        assert_eq!(
            words(&["Fix owner/repo#12: 'naïve' CAFÉ_test"]),
            "fix owner repo 12 naïve café test"
        );
        assert_eq!(words(&["", " - ", "a"]), "a");
    }

    #[test]
    fn each_word_is_kept_once_and_not_more_than_enough() {
        assert_eq!(words(&["one two", "TWO three"]), "one two three");
        let many: Vec<String> = (0..5_000).map(|number| format!("word{number}")).collect();
        assert_eq!(words(&[&many.join(" ")]).split(' ').count(), MAX_WORDS);
        let long = "x".repeat(200);
        assert_eq!(words(&[&long]).chars().count(), MAX_WORD_CHARS);
    }

    #[test]
    fn what_people_look_for_means_nothing_to_the_database() {
        assert_eq!(
            query("fix Bug-7", Dialect::Postgres).expect("words"),
            "'fix':* & 'bug':* & '7'"
        );
        assert_eq!(
            query("fix Bug-7", Dialect::Sqlite).expect("words"),
            r#""fix"* AND "bug"* AND "7""#
        );
        assert_eq!(query("x' | !y:*", Dialect::Postgres).expect("words"), "'x' & 'y'");
        assert_eq!(
            query(r#"NEAR("a" b) OR c*"#, Dialect::Sqlite).expect("words"),
            r#""near"* AND "a" AND "b" AND "or" AND "c""#
        );
    }

    #[test]
    fn a_mark_is_one_word_whatever_it_holds() {
        assert_eq!(mark('s', r"it's \a", Dialect::Postgres), r"'§sit''s \\a'");
        assert_eq!(mark('n', "team-3", Dialect::Sqlite), "\"§n7465616d2d33\"");
        let long = mark('s', &"ü".repeat(1_000), Dialect::Postgres);
        assert_eq!(long.chars().count(), MAX_MARK_CHARS + 4);
    }

    #[test]
    fn the_number_of_a_piece_goes_before_each_word_and_nowhere_else() {
        let words = query("fix Bug-7", Dialect::Postgres).expect("words");
        let marks = |name| {
            vec![vec![
                mark('s', name, Dialect::Postgres),
                mark('p', "x", Dialect::Postgres),
            ]]
        };
        assert_eq!(
            in_a_piece(&words, &marks("a & 'b")),
            (
                "'¤§fix':* & '¤§bug':* & '¤§7' & ('¤§§sa & ''b' | '¤§§px')".to_owned(),
                "¤".to_owned()
            )
        );
        let (text, hole) = in_a_piece(&words, &marks("¤¤"));
        assert_eq!(
            text.replace(&hole, "3"),
            "'3§fix':* & '3§bug':* & '3§7' & ('3§§s¤¤' | '3§§px')"
        );
    }

    #[test]
    fn a_search_for_nothing_or_for_too_much_is_told() {
        let why = |text: &str| query(text, Dialect::Sqlite).expect_err("no search").to_string();
        assert!(why("--").contains("no letter or digit"));
        assert!(why(&"a b ".repeat(20)).contains("more than 16"));
        assert!(why(&"a".repeat(2_000)).contains("1000 bytes"));
    }
}
