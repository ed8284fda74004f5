//! Regular expressions as Go reads them, compiled by the `regex` crate.
//!
//! Both speak RE2's dialect but for a few corners that patterns in real schemas do touch: the Perl classes are ASCII in
//! Go, a `[` inside a character class is an ordinary character there, and so is a `{` that begins no repetition.

use regex::Regex;

/// Compiles a Go pattern.
pub(super) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translate(pattern))
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(next) = rest.chars().next() {
        let after = rest.get(next.len_utf8()..).unwrap_or_default();
        match next {
            '\\' => {
                rest = escape(after, &mut out);
                continue;
            }
            '[' if !in_class => {
                rest = open_class(after, &mut out);
                in_class = true;
                continue;
            }
            '[' => {
                // A named class such as `[:alpha:]` means the same to both.
                if let Some(end) = after.strip_prefix(':').and_then(|name| name.find(":]")) {
                    let length = 1 + 1 + end + 2;
                    out.push_str(rest.get(..length).unwrap_or_default());
                    rest = rest.get(length..).unwrap_or_default();
                    continue;
                }
                out.push_str("\\[");
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            // Doubled, these are set operations in Rust's classes.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(next);
            }
            '-' if in_class && after.starts_with('-') => out.push_str("\\-"),
            '{' if !in_class && !begins_repetition(after) => out.push_str("\\{"),
            _ => out.push(next),
        }
        rest = after;
    }
    out
}

/// Writes the opening of a class; a `]` right after it is an ordinary character.
fn open_class<'p>(mut after: &'p str, out: &mut String) -> &'p str {
    out.push('[');
    if let Some(rest) = after.strip_prefix('^') {
        out.push('^');
        after = rest;
    }
    if let Some(rest) = after.strip_prefix(']') {
        out.push_str("\\]");
        after = rest;
    }
    after
}

/// Writes one escape, given what follows the backslash, and answers with the rest of the pattern.
fn escape<'p>(after: &'p str, out: &mut String) -> &'p str {
    let Some(kind) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let rest = after.get(kind.len_utf8()..).unwrap_or_default();
    match kind {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str("[\\t\\n\\f\\r ]"),
        'S' => out.push_str("[^\\t\\n\\f\\r ]"),
        'b' => out.push_str("(?-u:\\b)"),
        'B' => out.push_str("(?-u:\\B)"),
        // These are word boundaries in Rust.
        '<' | '>' => out.push(kind),
        'Q' => {
            let (literal, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            return rest;
        }
        _ => {
            out.push('\\');
            out.push(kind);
        }
    }
    rest
}

/// Whether what follows a `{` makes it `{n}`, `{n,}` or `{n,m}`.
fn begins_repetition(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match inside.split_once(',') {
        None => is_number(inside),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        let table: &[(&str, &str, bool)] = &[
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w+$", "é", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[[a]+$", "[a[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "b", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^[a&&b]+$", "&", true),
            (r"^{name}$", "{name}", true),
            (r"^a{2,3}$", "aaa", true),
            (r"^a{2,3}$", "a", false),
            (r"^\<a\>$", "<a>", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "my-name", true),
            (r"^[A-Za-z_][-._A-Za-z0-9]*$", "a.b-c", true),
        ];
        for (pattern, text, matches) in table {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), *matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn patterns_that_go_refuses_do_not_compile() {
        for pattern in ["(", r"(?=a)", r"\1", "[b-a]"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
