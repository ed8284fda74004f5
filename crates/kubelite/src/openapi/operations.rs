//! The paths of a document: which methods a kind has, with their parameters, bodies and answers.

use serde_json::{Map, Value, json};

use super::{
    KIND_EXTENSION,
    components::{DELETE_OPTIONS, Names, PATCH, STATUS},
    kind_extension, reference,
};
use crate::{
    builtin::Builtin,
    negotiate::{BUILTIN_PATCHES, CUSTOM_PATCHES},
    request::Verb,
    resource::{Resource, Scope, Version},
};

/// What a method on a path does.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Action {
    List,
    Create,
    DeleteCollection,
    Get,
    Replace,
    Patch,
    Delete,
}

impl Action {
    fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get => "get",
            Self::Create => "post",
            Self::Replace => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// The verb that the resource must have.
    fn verb(self) -> Verb {
        match self {
            Self::List => Verb::List,
            Self::Create => Verb::Create,
            Self::DeleteCollection => Verb::DeleteCollection,
            Self::Get => Verb::Get,
            Self::Replace => Verb::Update,
            Self::Patch => Verb::Patch,
            Self::Delete => Verb::Delete,
        }
    }

    /// `x-kubernetes-action`
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::Replace => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// What the action is called in operation ids, and its description.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::List => ("list", "list or watch objects of kind"),
            Self::Create => ("create", "create an object of kind"),
            Self::DeleteCollection => ("deletecollection", "delete collection of"),
            Self::Get => ("read", "read the specified"),
            Self::Replace => ("replace", "replace the specified"),
            Self::Patch => ("patch", "partially update the specified"),
            Self::Delete => ("delete", "delete an object of kind"),
        }
    }

    fn parameters(self) -> &'static [Parameter] {
        match self {
            Self::List => LIST_PARAMETERS,
            Self::Create | Self::Replace => WRITE_PARAMETERS,
            Self::DeleteCollection => DELETE_COLLECTION_PARAMETERS,
            Self::Get => &[],
            Self::Patch => PATCH_PARAMETERS,
            Self::Delete => DELETE_PARAMETERS,
        }
    }
}

/// Name, type and meaning of a query parameter.
type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = ("dryRun", "string", "All: do everything but store the result.");
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "string",
    "Who makes this change, in at most 128 printable characters. Apply requires it.",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What happens with unknown or duplicate fields: Ignore drops them, Warn (the default) drops them with a warning, Strict refuses the request.",
);
const FORCE: Parameter = (
    "force",
    "boolean",
    "Take over fields that other managers own. For apply only.",
);
const FIELD_SELECTOR: Parameter = (
    "fieldSelector",
    "string",
    "Restricts the objects by their fields. Defaults to everything.",
);
const LABEL_SELECTOR: Parameter = (
    "labelSelector",
    "string",
    "Restricts the objects by their labels. Defaults to everything.",
);
const RESOURCE_VERSION: Parameter = (
    "resourceVersion",
    "string",
    "Which version of the objects the answer may be made from.",
);
const GRACE_PERIOD: Parameter = (
    "gracePeriodSeconds",
    "integer",
    "How long the object may take to end. Zero means at once.",
);
const PROPAGATION: Parameter = (
    "propagationPolicy",
    "string",
    "What happens to dependents: Orphan, Background or Foreground.",
);

const WRITE_PARAMETERS: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH_PARAMETERS: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
const DELETE_PARAMETERS: &[Parameter] = &[DRY_RUN, GRACE_PERIOD, PROPAGATION];
const DELETE_COLLECTION_PARAMETERS: &[Parameter] = &[
    DRY_RUN,
    FIELD_SELECTOR,
    GRACE_PERIOD,
    LABEL_SELECTOR,
    PROPAGATION,
    RESOURCE_VERSION,
];
const LIST_PARAMETERS: &[Parameter] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "Allows BOOKMARK events in a watch.",
    ),
    ("continue", "string", "The token of the page before."),
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    ("limit", "integer", "How many objects the answer holds at most."),
    RESOURCE_VERSION,
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion applies: Exact or NotOlderThan.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "Begins a watch with the state, closed by a bookmark.",
    ),
    ("timeoutSeconds", "integer", "When a watch ends."),
    (
        "watch",
        "boolean",
        "Follow the changes instead of listing the objects.",
    ),
];

/// Adds the paths of one kind.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource, version: &Version, names: &Names) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", version.name)
    } else {
        format!("/apis/{}/{}", resource.group, version.name)
    };
    let builder = Builder {
        resource,
        version,
        names,
    };
    let everywhere = format!("{root}/{}", resource.plural);
    let base = match resource.scope {
        Scope::Cluster => everywhere,
        Scope::Namespaced => {
            paths.extend(builder.item(everywhere, &[Action::List], "", "ForAllNamespaces"));
            format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
        }
    };
    let name = format!("{base}/{{name}}");
    paths.extend(builder.item(
        base,
        &[Action::List, Action::Create, Action::DeleteCollection],
        "",
        "",
    ));
    paths.extend(builder.item(
        name.clone(),
        &[Action::Get, Action::Replace, Action::Patch, Action::Delete],
        "",
        "",
    ));
    let mut subresource = |sub: &str, actions: &[Action]| {
        paths.extend(builder.item(format!("{name}/{sub}"), actions, sub, ""));
    };
    if version.has_status {
        subresource("status", &[Action::Get, Action::Replace, Action::Patch]);
    }
    if version.has_scale {
        subresource("scale", &[Action::Get, Action::Replace, Action::Patch]);
    }
    match resource.builtin {
        Some(Builtin::Namespace) => subresource("finalize", &[Action::Replace]),
        Some(Builtin::Pod) => subresource("log", &[Action::Get]),
        _ => {}
    }
}

struct Builder<'a> {
    resource: &'a Resource,
    version: &'a Version,
    names: &'a Names,
}

impl Builder<'_> {
    /// A path and its methods; nothing if the kind has none of them.
    fn item(&self, path: String, actions: &[Action], sub: &str, suffix: &str) -> Option<(String, Value)> {
        let mut item = Map::new();
        for action in actions
            .iter()
            .filter(|action| self.resource.verbs.contains(&action.verb()))
        {
            item.insert(action.method().to_owned(), self.operation(*action, sub, suffix));
        }
        if item.is_empty() {
            return None;
        }
        let mut parameters = Vec::new();
        for (name, description) in [
            ("name", format!("name of the {}", self.resource.kind)),
            (
                "namespace",
                "object name and auth scope, such as for teams and projects".to_owned(),
            ),
        ] {
            if path.contains(&format!("{{{name}}}")) {
                parameters.push(json!({
                    "name": name, "in": "path", "description": description, "required": true,
                    "schema": { "type": "string", "uniqueItems": true },
                }));
            }
        }
        parameters.push(query_parameter(&(
            "pretty",
            "string",
            "Whether the output is indented.",
        )));
        item.insert("parameters".to_owned(), parameters.into());
        Some((path, Value::Object(item)))
    }

    fn operation(&self, action: Action, sub: &str, suffix: &str) -> Value {
        let resource = self.resource;
        let (word, description) = action.words();
        let scope = match resource.scope {
            Scope::Namespaced if suffix.is_empty() => "Namespaced",
            Scope::Namespaced | Scope::Cluster => "",
        };
        let id = format!(
            "{word}{}{}{scope}{}{}{suffix}",
            capital(
                resource
                    .group
                    .split('.')
                    .next()
                    .filter(|group| !group.is_empty())
                    .unwrap_or("core")
            ),
            capital(&self.version.name),
            resource.kind,
            capital(sub)
        );
        let group = if resource.group.is_empty() {
            "core"
        } else {
            &resource.group
        };
        let mut operation = json!({
            "tags": [format!("{}_{}", group.replace(['.', '-'], ""), self.version.name)],
            "description": if sub.is_empty() {
                format!("{description} {}", resource.kind)
            } else {
                format!("{description} {} ({sub})", resource.kind)
            },
            "operationId": id,
            "parameters": action.parameters().iter().map(query_parameter).collect::<Vec<_>>(),
            "responses": self.responses(action, sub),
            "x-kubernetes-action": action.name(),
        });
        if sub == "scale" {
            operation[KIND_EXTENSION] = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
        } else {
            operation[KIND_EXTENSION] = kind_extension(resource, self.version, &resource.kind);
        }
        if let Some(body) = self.body(action, sub) {
            operation["requestBody"] = body;
        }
        operation
    }

    fn body(&self, action: Action, sub: &str) -> Option<Value> {
        match action {
            Action::List | Action::Get => None,
            Action::Create | Action::Replace => {
                Some(json!({ "content": { "*/*": { "schema": self.object(sub) } }, "required": true }))
            }
            Action::Patch => {
                let types = if self.resource.is_custom() {
                    CUSTOM_PATCHES
                } else {
                    BUILTIN_PATCHES
                };
                let content: Map<String, Value> = types
                    .iter()
                    .map(|patch| {
                        (
                            patch.media_type().to_owned(),
                            json!({ "schema": reference(PATCH) }),
                        )
                    })
                    .collect();
                Some(json!({ "content": content, "required": true }))
            }
            Action::Delete | Action::DeleteCollection => {
                Some(json!({ "content": { "*/*": { "schema": reference(DELETE_OPTIONS) } } }))
            }
        }
    }

    fn object(&self, sub: &str) -> Value {
        // `autoscaling/v1` has no document of its own here.
        if sub == "scale" {
            json!({ "type": "object" })
        } else {
            reference(&self.names.kind)
        }
    }

    fn responses(&self, action: Action, sub: &str) -> Value {
        let answer = |description: &str, schema: &Value, media_types: &[&str]| {
            let content: Map<String, Value> = media_types
                .iter()
                .map(|name| ((*name).to_owned(), json!({ "schema": schema })))
                .collect();
            json!({ "description": description, "content": content })
        };
        let plain = ["application/json", "application/yaml"];
        let mut responses = json!({ "401": { "description": "Unauthorized" } });
        match action {
            Action::List => {
                let media_types = [
                    "application/json",
                    "application/json;stream=watch",
                    "application/yaml",
                ];
                responses["200"] = answer("OK", &reference(&self.names.list), &media_types);
            }
            Action::Get if sub == "log" => {
                responses["200"] = answer("OK", &json!({ "type": "string" }), &["text/plain"]);
            }
            Action::Get => responses["200"] = answer("OK", &self.object(sub), &plain),
            Action::Create | Action::Replace | Action::Patch => {
                responses["200"] = answer("OK", &self.object(sub), &plain);
                responses["201"] = answer("Created", &self.object(sub), &plain);
            }
            Action::Delete | Action::DeleteCollection => {
                responses["200"] = answer("OK", &reference(STATUS), &plain);
            }
        }
        responses
    }
}

fn query_parameter((name, type_, description): &Parameter) -> Value {
    json!({
        "name": name, "in": "query", "description": description,
        "schema": { "type": type_, "uniqueItems": true },
    })
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().collect::<String>() + characters.as_str(),
        None => String::new(),
    }
}
