//! What the tests of the generated schemas share.

use jangar_api::Kind;
use serde_json::Value;

/// The OpenAPI schema of a kind, as the API server gets it.
pub(crate) fn schema(kind: Kind) -> Value {
    let crd = serde_json::to_value(kind.crd()).expect("a definition is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// The node at a path such as `spec.steps[].name`, if there is one.
pub(crate) fn node<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(root, |node, segment| {
        let name = segment.trim_end_matches("[]");
        let property = node.get("properties")?.get(name)?;
        if segment.ends_with("[]") {
            property.get("items")
        } else {
            Some(property)
        }
    })
}

/// Calls `visit` with the path of every node below `node`, itself included. Items of lists are `path[]`, values of maps
/// `path{}`.
pub(crate) fn walk<'a>(node: &'a Value, path: &str, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(path, node);
    for (name, property) in node
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        walk(property, &path, visit);
    }
    if let Some(items) = node.get("items") {
        walk(items, &format!("{path}[]"), visit);
    }
    if let Some(values) = node.get("additionalProperties") {
        walk(values, &format!("{path}{{}}"), visit);
    }
}
