//! JSON patch (RFC 6902), as the library inside kube-apiserver understands it.
//!
//! That library departs from the RFC, and clients have come to rely on it: an absent member equals null in `test` (finalizer
//! helpers guard with it), `replace` of an absent member sets it, a negative index counts from the end of a list, and an
//! operation on the whole document is allowed for `replace` and `test` only. A crate that follows the RFC would have to be
//! worked around in each of these points, so the six operations are written out here.

use std::io;

use serde_json::{Map, Value};

use crate::{
    field::json_type_name,
    patch::{MAX_DEPTH, PatchError},
};

/// The bound of kube-apiserver. It keeps one request from holding the writer for long.
pub const MAX_OPERATIONS: usize = 10_000;

/// The bound of kube-apiserver on what all `copy` operations of a patch add together, so that copying an object into itself
/// cannot grow it beyond measure: as much as a request body may have.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A decoded patch.
#[derive(Clone, Debug)]
pub struct Patch {
    operations: Vec<Operation>,
    unknown_fields: Vec<String>,
}

#[derive(Clone, Debug)]
struct Operation {
    /// As the client wrote it: an unknown one is an error only when its turn comes.
    op: String,
    path: Option<String>,
    from: Option<String>,
    /// An absent value counts as null.
    value: Value,
}

/// Applies a patch in one go.
pub fn apply(live: Value, body: &[u8]) -> Result<Value, PatchError> {
    Patch::parse(body)?.apply(live)
}

impl Patch {
    pub fn parse(body: &[u8]) -> Result<Self, PatchError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
        let items = match value {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => return Err(mistyped(&other, "Go value of type []handlers.jsonPatchOp")),
        };
        if items.len() > MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations { actual: items.len() });
        }
        let mut patch = Self {
            operations: Vec::with_capacity(items.len()),
            unknown_fields: Vec::new(),
        };
        for (position, item) in items.into_iter().enumerate() {
            let mut members = match item {
                Value::Object(members) => members,
                Value::Null => Map::new(),
                other => return Err(mistyped(&other, "Go value of type handlers.jsonPatchOp")),
            };
            patch.operations.push(Operation {
                op: text(&mut members, "op")?.unwrap_or_else(|| "unknown".to_owned()),
                path: text(&mut members, "path")?,
                from: text(&mut members, "from")?,
                value: members.remove("value").unwrap_or_default(),
            });
            let unknown = members
                .keys()
                .map(|name| format!("json patch unknown field \"[{position}].{name}\""));
            patch.unknown_fields.extend(unknown);
        }
        Ok(patch)
    }

    /// One sentence for each member of an operation that means nothing, for strict field validation.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown_fields
    }

    pub fn apply(self, live: Value) -> Result<Value, PatchError> {
        let mut document = live;
        let mut copied_bytes = 0;
        for operation in self.operations {
            operation
                .run(&mut document, &mut copied_bytes)
                .map_err(PatchError::DoesNotApply)?;
        }
        if document.is_object() {
            Ok(document)
        } else {
            Err(PatchError::DoesNotApply(format!(
                "patch turned the object into {}",
                json_type_name(&document)
            )))
        }
    }
}

fn malformed(why: &str) -> PatchError {
    PatchError::Malformed(format!("error decoding patch: {why}"))
}

fn mistyped(value: &Value, target: &str) -> PatchError {
    malformed(&format!(
        "json: cannot unmarshal {} into {target}",
        json_type_name(value)
    ))
}

fn text(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, PatchError> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(mistyped(
            &other,
            &format!("Go struct field jsonPatchOp.{name} of type string"),
        )),
    }
}

/// The list or object that a pointer's last part names a place in.
struct Place<'d> {
    container: &'d mut Value,
    key: String,
    /// How deep the container lies; the document itself is at 1.
    depth: usize,
}

impl Operation {
    fn run(self, document: &mut Value, copied_bytes: &mut usize) -> Result<(), String> {
        let Self {
            op,
            path,
            from,
            value,
        } = self;
        let path = path
            .as_deref()
            .ok_or_else(|| format!("{op} operation failed to decode path: missing value"));
        let from = from
            .as_deref()
            .ok_or_else(|| format!("{op} operation failed to decode from: missing value"));
        match op.as_str() {
            "add" => {
                let path = path?;
                let place = find(document, path).ok_or_else(|| missing("add", path))?;
                place
                    .add(value)
                    .map_err(|why| format!("error in add for path: '{path}': {why}"))
            }
            "remove" => {
                let path = path?;
                let place = find(document, path).ok_or_else(|| missing("remove", path))?;
                place
                    .remove()
                    .map(drop)
                    .map_err(|why| format!("error in remove for path: '{path}': {why}"))
            }
            "replace" => replace(document, path?, value),
            "move" => relocate(document, from?, path?),
            "copy" => copy(document, from?, path?, copied_bytes),
            "test" => test(document, path?, &value),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *document = value;
        return Ok(());
    }
    let place = find(document, path).ok_or_else(|| missing("replace", path))?;
    place.check_depth(&value)?;
    match place.container {
        Value::Array(items) => {
            let position = index(&place.key, items.len())
                .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}"))?;
            if let Some(item) = items.get_mut(position) {
                *item = value;
            }
        }
        Value::Object(members) => {
            members.insert(place.key, value);
        }
        _ => return Err(missing("replace", path)),
    }
    Ok(())
}

fn relocate(document: &mut Value, from: &str, path: &str) -> Result<(), String> {
    let source = find(document, from).ok_or_else(|| missing("move", from))?;
    let value = source
        .remove()
        .map_err(|why| format!("error in move for path: '{from}': {why}"))?;
    let place = find(document, path).ok_or_else(|| missing("move", path))?;
    place
        .add(value)
        .map_err(|why| format!("error in move for path: '{path}': {why}"))
}

fn copy(document: &mut Value, from: &str, path: &str, copied_bytes: &mut usize) -> Result<(), String> {
    let source = find(document, from).ok_or_else(|| missing("copy", from))?;
    let found = source
        .get()
        .map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
    let value = found.cloned().unwrap_or_default();
    *copied_bytes += encoded_size(&value);
    if *copied_bytes > MAX_COPIED_BYTES {
        return Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, \
             exceeding the limit {MAX_COPIED_BYTES}"
        ));
    }
    let place = find(document, path).ok_or_else(|| missing("copy", path))?;
    place
        .add(value)
        .map_err(|why| format!("error while adding value during copy: {why}"))
}

fn test(document: &mut Value, path: &str, expected: &Value) -> Result<(), String> {
    let found = if path.is_empty() {
        Some(&*document)
    } else {
        let place = find(document, path)
            .ok_or_else(|| format!("test operation does not apply: is missing path: {path}"))?;
        place
            .get()
            .map_err(|why| format!("error in test for path: '{path}': {why}"))?
    };
    if found.unwrap_or(&Value::Null) == expected {
        Ok(())
    } else {
        Err(format!("testing value {path} failed: test failed"))
    }
}

fn missing(op: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value")
}

/// Follows a pointer up to its last part. What stands before the first slash is ignored, as upstream does.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<Place<'d>> {
    let (parents, key) = path.rsplit_once('/')?;
    let mut container = document;
    let mut depth = 1;
    for part in parents.split('/').skip(1) {
        let part = unescape(part);
        container = match container {
            Value::Object(members) => members.get_mut(&part)?,
            Value::Array(items) => {
                let position = index(&part, items.len()).ok()?;
                items.get_mut(position)?
            }
            _ => return None,
        };
        depth += 1;
    }
    matches!(container, Value::Object(_) | Value::Array(_)).then(|| Place {
        container,
        key: unescape(key),
        depth,
    })
}

fn unescape(part: &str) -> String {
    if part.contains('~') {
        part.replace("~1", "/").replace("~0", "~")
    } else {
        part.to_owned()
    }
}

/// The position of an element that exists; a negative one counts from the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let position: i64 = key
        .parse()
        .map_err(|error| format!("strconv.Atoi: parsing \"{key}\": {error}"))?;
    resolve(position, length).ok_or_else(|| out_of_range(position))
}

fn resolve(position: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let position = if position < 0 {
        position.checked_add(length)?
    } else {
        position
    };
    (0..length)
        .contains(&position)
        .then(|| usize::try_from(position).ok())
        .flatten()
}

fn out_of_range(position: i64) -> String {
    format!("Unable to access invalid index: {position}: invalid index referenced")
}

impl<'d> Place<'d> {
    fn get(self) -> Result<Option<&'d Value>, String> {
        match self.container {
            Value::Array(items) => {
                let position = index(&self.key, items.len())?;
                Ok(items.get(position))
            }
            Value::Object(members) => Ok(members.get(&self.key)),
            _ => Ok(None),
        }
    }

    fn add(self, value: Value) -> Result<(), String> {
        self.check_depth(&value)?;
        match self.container {
            Value::Array(items) if self.key == "-" => items.push(value),
            Value::Array(items) => {
                let position: i64 = self.key.parse().map_err(|error| {
                    format!("value was not a proper array index: '{}': {error}", self.key)
                })?;
                // One more place than there are elements: the one after the last.
                let place = resolve(position, items.len() + 1).ok_or_else(|| out_of_range(position))?;
                items.insert(place, value);
            }
            Value::Object(members) => {
                members.insert(self.key, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self.container {
            Value::Array(items) => {
                let position = index(&self.key, items.len())?;
                Ok(items.remove(position))
            }
            Value::Object(members) => members
                .remove(&self.key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", self.key)),
            _ => Ok(Value::Null),
        }
    }

    /// Values moved into values, over and over, would nest without bound although each of them is shallow.
    fn check_depth(&self, value: &Value) -> Result<(), String> {
        if self.depth + nesting(value) > MAX_DEPTH {
            return Err(format!("the object would nest more than {MAX_DEPTH} levels deep"));
        }
        Ok(())
    }
}

/// How many lists and objects lie within each other. The recursion is as deep as the value, which the decoder has bounded.
fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(nesting).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encoded_size(value: &Value) -> usize {
    let mut counter = ByteCounter(0);
    // Neither the counter nor a JSON value can fail; were it otherwise, the copy would count as too large.
    serde_json::to_writer(&mut counter, value).map_or(MAX_COPIED_BYTES, |()| counter.0)
}

#[cfg(test)]
mod tests;
