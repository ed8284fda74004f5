//! Writes JSON values as YAML that people can read and compare.
//!
//! The generated definitions are committed and compared byte for byte, so their form must not change with the release
//! of a library. Only what they need is here: block style, long texts folded, everything doubtful quoted.

use serde_json::{Map, Value};

/// Texts longer than this are written over several lines of about this length.
const LINE_MAX: usize = 100;
/// Words that some YAML readers take for a boolean, a number or nothing, the last two after a dot.
const RESERVED: [&str; 11] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan",
];

/// The value as a YAML document, ending with a line break.
pub(crate) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::Array(items) if !items.is_empty() => write_list(&mut out, items, 0),
        other => {
            write_value(&mut out, other, 0);
            out.remove(0);
        }
    }
    out
}

fn write_map(out: &mut String, map: &Map<String, Value>, depth: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        // The first key of a list's item follows its dash.
        if index > 0 || !out.ends_with("- ") {
            indent(out, depth);
        }
        out.push_str(&scalar(key));
        out.push(':');
        write_value(out, value, depth);
    }
}

fn write_list(out: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(out, depth);
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push_str("- ");
                write_map(out, map, depth + 1);
            }
            other => {
                out.push('-');
                write_value(out, other, depth + 1);
            }
        }
    }
}

/// Writes what follows a key or a dash, up to and including the line break.
fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(out, map, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_list(out, items, depth);
        }
        Value::String(text) if is_block(text) => write_block(out, text, depth + 1),
        Value::String(text) => {
            out.push(' ');
            out.push_str(&scalar(text));
            out.push('\n');
        }
        other => {
            out.push(' ');
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// Whether a text is long or has several lines, and comes back unchanged when it is written as a block.
fn is_block(text: &str) -> bool {
    let clean = |line: &str| !line.is_empty() && line.trim() == line && !line.contains(char::is_control);
    if text.contains('\n') {
        text.split('\n').all(clean)
    } else {
        text.chars().count() > LINE_MAX && clean(text) && !text.contains("  ")
    }
}

fn write_block(out: &mut String, text: &str, depth: usize) {
    if text.contains('\n') {
        out.push_str(" |-\n");
        for line in text.split('\n') {
            indent(out, depth);
            out.push_str(line);
            out.push('\n');
        }
        return;
    }
    out.push_str(" >-\n");
    let mut column = 0;
    for word in text.split(' ') {
        if column > 0 && column + word.chars().count() >= LINE_MAX {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            indent(out, depth);
        } else {
            out.push(' ');
        }
        out.push_str(word);
        column += word.chars().count() + 1;
    }
    out.push('\n');
}

/// A key or a short text: plain where no reader can take it for anything else, otherwise quoted as in JSON, which every
/// YAML reader understands.
fn scalar(text: &str) -> String {
    // A dot may begin a path, such as `.status.phase`, but also a number.
    let path_or_word = text.strip_prefix('.').unwrap_or(text);
    let plain = path_or_word.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " .,;/_-()[]?@=\"'`<>|&!*+".contains(c))
        && !text.ends_with(' ')
        && !RESERVED.contains(&path_or_word.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let long =
            "words that go on and on: and on, # with \"marks\" that mean something elsewhere ".repeat(5);
        let value = json!({
            "empty": {"map": {}, "list": [], "text": ""},
            "on": "off", "null": null, "n": [true, 1, -2.5, "1", ".5", ".inf", ".nan", "0x1f", "1e3", "~", "-", "- a"],
            "nested": [[["deep"], []], {"a": {"b": [{"c": 1, "d": {"e": "f"}}]}}, "last"],
            "texts": ["a: b", "a #b", "#a", "'q'", "{a}", "[a]", "*a", "&a", "!a", "%a", "@a", "`a", "a ", " a", "ü: ß"],
            "long": long.trim(), "long with space": long, "double": format!("{}  {}", long.trim(), long.trim()),
            "lines": "one\ntwo: 2\n# three", "line at end": "one\n", "indented": "  one\ntwo", "tab": "a\tb\n\tc",
            "list of long": [long.trim(), "one\ntwo"],
        });
        let text = to_string(&value);
        let back: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(back, value, "{text}");
    }

    #[test]
    fn long_texts_are_folded_and_short_ones_left_plain() {
        let value = json!({"path": ".status.conditions[?(@.type==\"Ready\")].status", "text": format!("{} end", "x".repeat(99))});
        let expected = format!(
            "path: .status.conditions[?(@.type==\"Ready\")].status\ntext: >-\n  {}\n  end\n",
            "x".repeat(99)
        );
        assert_eq!(to_string(&value), expected);
    }
}
