//! The text of an expression made fit for the parser, which drops signs: to it `!!a` is `!a` and `--a` is `-a`.
//!
//! Two equal signs in a row undo each other, so they are blanked out before the text is parsed. Blanks keep every other
//! sign at its place, where messages will look for it.

use std::{borrow::Cow, iter};

/// A text without signs that undo each other.
pub(super) fn without_double_signs(source: &str) -> Cow<'_, str> {
    let mut blanked = Vec::new();
    let mut run = Run::default();
    // Whether a `-` at this place would subtract, because an operand stands before it.
    let mut after_operand = false;
    for (offset, token) in tokens(source) {
        let is_sign = token == "!" || (token == "-" && !after_operand);
        if is_sign {
            run.add(token, offset, &mut blanked);
        } else {
            run = Run::default();
        }
        after_operand = is_operand_end(token);
    }
    if blanked.is_empty() {
        return Cow::Borrowed(source);
    }
    let mut bytes = source.as_bytes().to_vec();
    for offset in blanked {
        if let Some(byte) = bytes.get_mut(offset) {
            *byte = b' ';
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(source), Cow::Owned)
}

/// The sign that is still waiting for one that undoes it.
#[derive(Default)]
struct Run<'s> {
    open: Option<(&'s str, usize)>,
}

impl<'s> Run<'s> {
    fn add(&mut self, sign: &'s str, offset: usize, blanked: &mut Vec<usize>) {
        self.open = match self.open {
            Some((before, at)) if before == sign => {
                blanked.extend([at, offset]);
                None
            }
            _ => Some((sign, offset)),
        };
    }
}

fn is_operand_end(token: &str) -> bool {
    let first = token.chars().next().unwrap_or_default();
    let is_name_or_literal = first.is_alphanumeric() || matches!(first, '_' | '"' | '\'' | '`');
    (is_name_or_literal && token != "in") || matches!(first, ')' | ']' | '}')
}

/// Whether a text calls a function or macro. Some are told from others only here, for the parser treats them alike.
pub(super) fn calls(source: &str, name: &str) -> bool {
    let mut is_named = false;
    tokens(source).any(|(_, token)| {
        let is_called = is_named && token == "(";
        is_named = token == name;
        is_called
    })
}

/// The tokens of a text and where they begin, without blanks and comments.
fn tokens(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = source;
    iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (token, after) = rest.split_at_checked(token_length(rest, first))?;
        let offset = source.len() - rest.len();
        rest = after;
        Some((offset, token))
    })
    .filter(|(_, token)| !token.starts_with("//") && !token.starts_with(char::is_whitespace))
}

/// The bytes of the token that a text begins with.
fn token_length(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("!=") {
        return 2;
    }
    if let Some(length) = string_length(rest) {
        return length;
    }
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    if first.is_ascii_digit() {
        return number_length(rest);
    }
    if is_word(first) {
        return rest.find(|char| !is_word(char)).unwrap_or(rest.len());
    }
    first.len_utf8()
}

/// The `-` of an exponent is part of the number.
fn number_length(rest: &str) -> usize {
    let is_hex = rest.starts_with("0x");
    let mut before = ' ';
    for (offset, char) in rest.char_indices() {
        let is_exponent_sign = matches!(char, '-' | '+') && matches!(before, 'e' | 'E') && !is_hex;
        if !(char.is_ascii_alphanumeric() || char == '.' || is_exponent_sign) {
            return offset;
        }
        before = char;
    }
    rest.len()
}

/// The bytes of a string literal with its prefix. One that does not end is for the parser to refuse.
fn string_length(rest: &str) -> Option<usize> {
    let prefix = rest
        .bytes()
        .take(2)
        .take_while(|byte| matches!(byte, b'r' | b'R' | b'b' | b'B'))
        .count();
    let is_raw = rest.get(..prefix)?.contains(['r', 'R']);
    let text = rest.get(prefix..)?;
    let quote = ["\"\"\"", "'''", "\"", "'", "`"]
        .into_iter()
        .find(|quote| text.starts_with(quote))?;
    let mut inside = text.get(quote.len()..)?;
    while !inside.is_empty() && !inside.starts_with(quote) {
        let mut chars = inside.chars();
        if chars.next() == Some('\\') && !is_raw {
            chars.next();
        }
        inside = chars.as_str();
    }
    let end = rest.len() - inside.len();
    Some((end + quote.len()).min(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_undo_each_other_are_blanked_out() {
        let table = [
            ("!!true", "  true"),
            ("!!!a", "  !a"),
            ("! !a", "   a"),
            ("! // why\n !a", "  // why\n  a"),
            ("--1 == 1", "  1 == 1"),
            ("- -1", "   1"),
            ("---a", "  -a"),
            ("a --b", "a --b"),
            ("a---b", "a-  b"),
            ("f(x)--1", "f(x)--1"),
            ("a[0]- -1", "a[0]- -1"),
            ("(--a)", "(  a)"),
            ("a in --b", "a in   b"),
            ("1e-1--2", "1e-1--2"),
            ("a != !b", "a != !b"),
            ("a == '--' && !!b", "a == '--' &&   b"),
            (r"r'\'--'", r"r'\'--'"),
            (r#""\"--""#, r#""\"--""#),
            ("'''it's --'''", "'''it's --'''"),
            ("!(!a)", "!(!a)"),
            ("é --b", "é --b"),
            ("'--", "'--"),
        ];
        for (source, expected) in table {
            assert_eq!(without_double_signs(source), expected, "{source}");
        }
    }
}
