//! `fieldPath` of a rule: a path below the node of the rule, of which every step must be in its schema.

use crate::schema::{Additional, Schema};

/// Turns `.spec.labels['a']` into `spec.labels[a]`. `None` if it is malformed or leads out of the schema.
pub(in crate::schema) fn normalize(path: &str, schema: &Schema) -> Option<String> {
    let mut out = String::new();
    let mut schema = Some(schema);
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            (after.get(..end)?.to_owned(), after.get(end..)?)
        } else {
            let (quoted, after) = bracketed(rest.strip_prefix('[')?)?;
            (unescape(quoted)?, after)
        };
        if name.is_empty() {
            return None;
        }
        schema = Some(step(schema?, &name, &mut out)?);
        rest = after;
    }
    Some(out)
}

fn step<'s>(schema: &'s Schema, name: &str, out: &mut String) -> Option<&'s Schema> {
    if !schema.properties.is_empty() {
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        return schema.properties.get(name).map(AsRef::as_ref);
    }
    let Additional::Schema(shape) = &schema.additional else {
        return None;
    };
    out.push('[');
    out.push_str(name);
    out.push(']');
    Some(shape)
}

/// Splits `'name']rest`.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('\'')?;
    let mut escaped = false;
    for (position, char) in inner.char_indices() {
        match char {
            '\\' if !escaped => escaped = true,
            '\'' if !escaped => {
                let after = inner.get(position + 1..)?.strip_prefix(']')?;
                return Some((inner.get(..position)?, after));
            }
            _ => escaped = false,
        }
    }
    None
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        out.push(match chars.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\'' => '\'',
            '\\' => '\\',
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::parse::parse;

    #[test]
    fn paths_follow_the_schema() {
        let schema = parse(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        }}))
        .expect("schema");
        let table = [
            (".a", Some("a")),
            (".a['b.c']", Some("a.b.c")),
            ("['a']", Some("a")),
            (".m.k", Some("m[k]")),
            (".m['it\\'s']", Some("m[it's]")),
            ("a", None),
            (".z", None),
            (".a.b.c", None),
            (".a[", None),
            (".a['b.c'", None),
            (".m.k.x", None),
            (".", None),
        ];
        for (path, expected) in table {
            assert_eq!(normalize(path, &schema).as_deref(), expected, "{path}");
        }
    }
}
