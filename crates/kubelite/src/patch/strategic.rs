//! Strategic merge patch: a merge patch that knows, from the schema of a built-in kind, which lists to merge and by which key.
//!
//! The patch may carry directives: `$patch` on an object or a list element, `$retainKeys`, and beside a list
//! `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.
//!
//! Where Kubernetes answers such a patch with 500 because the cause has no class of its own (a list element without its
//! merge key, an unknown directive), the answer here is 400 with the same words: the patch is wrong, not the server.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::{
    patch::{PatchError, discard_nulls, object_from},
    schema::{PatchStrategy, Schema},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

type Members = Map<String, Value>;

/// Applies a strategic merge patch. As in a merge patch, no level is added that neither side has, so the decoder's bound on
/// nesting bounds the recursion too.
pub fn apply(mut live: Value, body: &[u8], schema: &Schema) -> Result<Value, PatchError> {
    let Value::Object(patch) = object_from(body, "")? else {
        return Ok(live);
    };
    let Value::Object(members) = &mut live else {
        return Err(PatchError::DoesNotApply(
            "the stored object is no JSON object".to_owned(),
        ));
    };
    merge_members(members, patch, Some(schema))?;
    Ok(live)
}

fn merge_members(
    original: &mut Members,
    mut patch: Members,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            let mut replacement = Value::Object(patch);
            discard_nulls(&mut replacement);
            if let Value::Object(members) = replacement {
                *original = members;
            }
            return Ok(());
        }
        Some(directive) if directive == "delete" => {
            original.clear();
            return Ok(());
        }
        Some(_) => return Err(unknown_directive(&patch)),
    }
    retain_keys(original, &mut patch)?;
    let orders: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in orders {
        merge_in_order(original, &mut patch, &directive, schema)?;
    }
    for (name, value) in patch {
        let (field, deletion) = match name.strip_prefix(DELETE_FROM_LIST) {
            None => (name.as_str(), false),
            Some(rest) => {
                let field = rest
                    .strip_prefix('/')
                    .ok_or_else(|| bad_format("primitive list"))?;
                (field, true)
            }
        };
        merge_member(original, field, value, schema, deletion)?;
    }
    Ok(())
}

fn merge_member(
    original: &mut Members,
    field: &str,
    value: Value,
    schema: Option<&Schema>,
    deletion: bool,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(field);
        return Ok(());
    }
    let member = schema.and_then(|schema| schema.member(field)).map(AsRef::as_ref);
    match (original.get_mut(field), value) {
        (Some(Value::Object(members)), Value::Object(changes)) => merge_members(members, changes, member),
        (Some(Value::Array(items)), Value::Array(changes)) if deletion => {
            delete_from(items, &changes);
            Ok(())
        }
        (Some(Value::Array(items)), Value::Array(changes)) => {
            merge_list(items, changes, ListRule::of(member))
        }
        (_, _) if deletion => Ok(()),
        (_, mut value) => {
            discard_nulls(&mut value);
            match without_directives(value) {
                Some(value) => original.insert(field.to_owned(), value),
                None => original.remove(field),
            };
            Ok(())
        }
    }
}

/// Keeps only the members that the directive names, and demands that the patch sets no other.
fn retain_keys(original: &mut Members, patch: &mut Members) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(names) = &directive else {
        return Err(bad_format("retainKeys"));
    };
    let retained: HashSet<&str> = names.iter().filter_map(Value::as_str).collect();
    let strays = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM_LIST)
            && !name.starts_with(SET_ELEMENT_ORDER)
            && !retained.contains(name.as_str())
    });
    if strays {
        return Err(bad_format("retainKeys"));
    }
    original.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Merges one list for which the patch also says the order of its elements.
fn merge_in_order(
    original: &mut Members,
    patch: &mut Members,
    directive: &str,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    let order = into_list(patch.remove(directive).unwrap_or_default())?;
    let field = directive
        .strip_prefix(SET_ELEMENT_ORDER)
        .and_then(|rest| rest.strip_prefix('/'))
        .ok_or_else(|| bad_format("setElementOrder list"))?;
    let member = schema.and_then(|schema| schema.member(field)).map(AsRef::as_ref);
    let rule = ListRule::of(member);
    let live = match original.get_mut(field) {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(other) => return Err(not_a_list(other)),
    };
    let changes = patch.remove(field).map(into_list).transpose()?;
    if let Some(changes) = &changes {
        check_order(changes, &order, rule.key)?;
    }
    let (server_rank, merged) = match (live, changes) {
        (None, None) => return Ok(()),
        (Some(live), None) => (ranks(live, rule.key), std::mem::take(live)),
        (None, Some(changes)) => {
            let mut added = Value::Array(changes);
            discard_nulls(&mut added);
            (
                HashMap::new(),
                into_list(without_directives(added).unwrap_or_default())?,
            )
        }
        (Some(live), Some(changes)) => {
            let length = live.len();
            combine(live, changes, rule)?;
            // Upstream takes the old order from memory in which new elements have already taken the place of deleted ones;
            // what it answers can only be had by doing the same.
            let old_order = live.get(..length).unwrap_or(live);
            (ranks(old_order, rule.key), std::mem::take(live))
        }
    };
    let arranged = arrange(merged, rule.key, &ranks(&order, rule.key), &server_rank)?;
    original.insert(field.to_owned(), Value::Array(arranged));
    Ok(())
}

/// How the schema wants a list to be merged.
#[derive(Clone, Copy)]
struct ListRule<'s> {
    merges: bool,
    key: Option<&'s str>,
    items: Option<&'s Schema>,
}

impl<'s> ListRule<'s> {
    fn of(list: Option<&'s Schema>) -> Self {
        let items = list.and_then(|schema| schema.items.as_deref());
        match list.map(|schema| &schema.patch_strategy) {
            Some(PatchStrategy::Merge { key, .. }) => Self {
                merges: true,
                key: key.as_deref(),
                items,
            },
            Some(PatchStrategy::Replace | PatchStrategy::RetainKeys) | None => Self {
                merges: false,
                key: None,
                items,
            },
        }
    }
}

fn merge_list(live: &mut Vec<Value>, changes: Vec<Value>, rule: ListRule<'_>) -> Result<(), PatchError> {
    if let Some(orders) = combine(live, changes, rule)? {
        *live = arrange(std::mem::take(live), rule.key, &orders.patch, &orders.server)?;
    }
    Ok(())
}

/// Where elements stood in the patch and in the live list before they were put together.
struct Orders {
    patch: HashMap<Value, usize>,
    server: HashMap<Value, usize>,
}

/// Puts the elements of both lists together; those that are new come last. There is no order to restore when the patch's
/// list simply takes the place of the live one.
fn combine(
    live: &mut Vec<Value>,
    changes: Vec<Value>,
    rule: ListRule<'_>,
) -> Result<Option<Orders>, PatchError> {
    if !rule.merges {
        let mut replacement = Value::Array(changes);
        discard_nulls(&mut replacement);
        *live = into_list(replacement)?;
        return Ok(None);
    }
    if live.is_empty() && changes.is_empty() {
        return Ok(None);
    }
    match element_kind(live, &changes)? {
        ElementKind::Scalar => {
            let orders = Orders {
                patch: ranks(&changes, None),
                server: ranks(live, None),
            };
            let mut seen: HashSet<Value> = HashSet::new();
            live.extend(changes);
            live.retain(|item| seen.insert(item.clone()));
            Ok(Some(orders))
        }
        ElementKind::Object => {
            let key = rule.key.ok_or_else(|| {
                PatchError::Malformed("cannot merge lists without merge key for struct".to_owned())
            })?;
            let changes = apply_element_directives(live, changes, key)?;
            let orders = Orders {
                patch: ranks(&changes, Some(key)),
                server: ranks(live, Some(key)),
            };
            merge_elements(live, changes, key, rule.items)?;
            Ok(Some(orders))
        }
    }
}

/// Carries out the `$patch` elements of a list and gives back the ordinary ones.
fn apply_element_directives(
    live: &mut Vec<Value>,
    changes: Vec<Value>,
    key: &str,
) -> Result<Vec<Value>, PatchError> {
    let mut ordinary = Vec::with_capacity(changes.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for change in changes {
        match change.get(DIRECTIVE).map(Value::as_str) {
            None => ordinary.push(change),
            Some(Some("delete")) => {
                deleted.insert(merge_key(&change, key)?.clone());
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Malformed(message.to_owned()));
            }
            Some(_) => {
                return Err(change
                    .as_object()
                    .map_or_else(|| bad_format("list"), unknown_directive));
            }
        }
    }
    if replace {
        let mut replacement = Value::Array(ordinary);
        discard_nulls(&mut replacement);
        *live = into_list(replacement)?;
        return Ok(Vec::new());
    }
    if !deleted.is_empty() {
        live.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(value)));
    }
    Ok(ordinary)
}

fn merge_elements(
    live: &mut Vec<Value>,
    changes: Vec<Value>,
    key: &str,
    items: Option<&Schema>,
) -> Result<(), PatchError> {
    let mut places = ranks(live, Some(key));
    for mut change in changes {
        let id = merge_key(&change, key)?.clone();
        match (places.get(&id).and_then(|place| live.get_mut(*place)), change) {
            (Some(Value::Object(members)), Value::Object(fields)) => merge_members(members, fields, items)?,
            (_, new) => {
                change = new;
                discard_nulls(&mut change);
                places.insert(id, live.len());
                live.push(change);
            }
        }
    }
    Ok(())
}

/// Puts a merged list in order: what the patch names in the patch's order, the rest in the order it had, and both woven
/// together so that the old neighbours stay neighbours where they can.
fn arrange(
    merged: Vec<Value>,
    key: Option<&str>,
    patch_rank: &HashMap<Value, usize>,
    server_rank: &HashMap<Value, usize>,
) -> Result<Vec<Value>, PatchError> {
    let total = merged.len();
    let mut named: Vec<(usize, Option<usize>, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for item in merged {
        let id = match key {
            Some(key) => merge_key(&item, key)?,
            None => &item,
        };
        let server = server_rank.get(id).copied();
        match patch_rank.get(id) {
            Some(rank) => named.push((*rank, server, item)),
            None => others.push((server.unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    others.sort_by_key(|(rank, _)| *rank);
    let mut result = Vec::with_capacity(total);
    let mut others = others.into_iter().peekable();
    for (_, server, item) in named {
        while let Some((_, other)) = others.next_if(|(rank, _)| server.is_some_and(|place| *rank < place)) {
            result.push(other);
        }
        result.push(item);
    }
    result.extend(others.map(|(_, item)| item));
    Ok(result)
}

/// Where each element first stands, by its merge key or, among scalars, by itself.
fn ranks(items: &[Value], key: Option<&str>) -> HashMap<Value, usize> {
    let mut ranks = HashMap::with_capacity(items.len());
    for (rank, item) in items.iter().enumerate() {
        let id = match key {
            Some(key) => item.get(key),
            None => Some(item),
        };
        if let Some(id) = id {
            ranks.entry(id.clone()).or_insert(rank);
        }
    }
    ranks
}

fn delete_from(items: &mut Vec<Value>, unwanted: &[Value]) {
    let unwanted: HashSet<&Value> = unwanted.iter().collect();
    items.retain(|item| !unwanted.contains(item));
}

/// The elements of the patch must all be in the order list, and in the same order.
fn check_order(changes: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    let id = |item| match key {
        Some(key) => merge_key(item, key),
        None => Ok(item),
    };
    let mismatch = || {
        PatchError::Malformed(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            go_list(changes),
            go_list(order)
        ))
    };
    let mut remaining = order.iter();
    for change in changes {
        match change.get(DIRECTIVE) {
            Some(directive) if directive == "delete" => {}
            // Other directives are passed over, though upstream misses that once the order list has come to its end.
            Some(_) if remaining.as_slice().is_empty() => return Err(mismatch()),
            Some(_) => {}
            None => {
                let wanted = id(change)?;
                loop {
                    let candidate = remaining.next().ok_or_else(mismatch)?;
                    if id(candidate)? == wanted {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

enum ElementKind {
    Object,
    Scalar,
}

/// All elements of both lists must be of one kind, and none may be a list.
fn element_kind(live: &[Value], changes: &[Value]) -> Result<ElementKind, PatchError> {
    let mut elements = live.iter().chain(changes);
    let first = elements.next().unwrap_or(&Value::Null);
    if first.is_array() {
        return Err(PatchError::DoesNotApply(
            "lists of lists are not supported".to_owned(),
        ));
    }
    if first.is_null() || elements.any(|element| !same_kind(first, element)) {
        return Err(PatchError::Malformed(format!(
            "list element types are not identical: [{} {}]",
            go_list(live),
            go_list(changes)
        )));
    }
    Ok(if first.is_object() {
        ElementKind::Object
    } else {
        ElementKind::Scalar
    })
}

fn same_kind(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.is_f64() == right.is_f64(),
        _ => std::mem::discriminant(left) == std::mem::discriminant(right),
    }
}

/// Drops every object that carries a `$patch`: there is nothing it could be about. `None` when the value is such an object.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => Some(Value::Object(
            members
                .into_iter()
                .filter_map(|(name, member)| Some((name, without_directives(member)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        scalar => Some(scalar),
    }
}

fn merge_key<'v>(item: &'v Value, key: &str) -> Result<&'v Value, PatchError> {
    item.get(key).ok_or_else(|| {
        PatchError::Malformed(format!(
            "map: {} does not contain declared merge key: {key}",
            go_text(item)
        ))
    })
}

fn into_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(not_a_list(&other)),
    }
}

fn not_a_list(value: &Value) -> PatchError {
    let actual = match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    PatchError::Malformed(format!("expected a []interface {{}}, but received a {actual}"))
}

fn bad_format(what: &str) -> PatchError {
    PatchError::Malformed(format!("invalid patch format of {what}"))
}

fn unknown_directive(patch: &Members) -> PatchError {
    let directive = patch.get(DIRECTIVE).map(go_text).unwrap_or_default();
    PatchError::Malformed(format!(
        "unknown patch type: {directive} in map: {}",
        go_members(patch)
    ))
}

/// A value as Go's `%v` prints it.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(members) => go_members(members),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" "))
}

fn go_members(members: &Members) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, member)| format!("{name}:{}", go_text(member)))
        .collect();
    format!("map[{}]", members.join(" "))
}

#[cfg(test)]
mod tests;
