//! What a request asks for: its path as a `Route`, its method as a `Verb`, its query string as typed options.
//!
//! The rules are those of `RequestInfo` and the option types in `k8s.io/apiserver` and `k8s.io/apimachinery`, wording included.

mod list;
mod query;
mod token;
mod write;

use http::Method;
use percent_encoding::percent_decode_str;

pub use self::{
    list::{ListFrom, ListOptions, WatchFrom, WatchOptions, minimum_version},
    query::Query,
    token::ContinueToken,
    write::{
        DeleteOptions, FieldValidation, Preconditions, Propagation, Write, WriteOptions,
        manager_from_user_agent,
    },
};
use crate::error::{ApiError, Reason};

/// The longest path that makes sense: a group, version, namespace, plural, name and subresource of the longest
/// permitted lengths come to 0.8 KiB, and percent-encoding may triple that.
const MAX_PATH_BYTES: usize = 4096;

/// Below `namespaces/<name>/` these are subresources of the Namespace, everything else is a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Which health endpoint is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Probe {
    Healthz,
    Livez,
    Readyz,
}

/// What a path leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Route {
    /// `/`: the list of paths.
    Root,
    /// A health endpoint and the single check below it, if one is named.
    Health(Probe, Option<String>),
    Version,
    Metrics,
    /// `/api`
    ApiRoot,
    /// `/apis`
    ApisRoot,
    /// `/apis/<group>`
    Group(String),
    /// `/api/<version>` (with an empty group) or `/apis/<group>/<version>`.
    GroupVersion {
        group: String,
        version: String,
    },
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/<version>` (with an empty group) or `/openapi/v3/apis/<group>/<version>`.
    OpenApiDocument {
        group: String,
        version: String,
    },
    /// `/openapi/v2`
    OpenApiV2,
    Resource(ResourceRequest),
    Unknown,
}

/// A path to objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceRequest {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub resource: String,
    /// The namespace that holds the object. For a Namespace itself this is its own name, as in `RequestInfo`.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// What is to be done with the objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Route {
    /// Reads a request path, still percent-encoded.
    pub fn parse(path: &str) -> Result<Self, ApiError> {
        if path.len() > MAX_PATH_BYTES {
            return Err(ApiError::bad_request(format!(
                "the request path is longer than {MAX_PATH_BYTES} bytes"
            )));
        }
        let decoded = percent_decode_str(path)
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the request path is not valid UTF-8"))?;
        let trimmed = decoded.trim_matches('/');
        if trimmed.is_empty() {
            return Ok(Self::Root);
        }
        let parts: Vec<&str> = trimmed.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Ok(Self::Unknown);
        }
        match parts.as_slice() {
            ["version"] => Ok(Self::Version),
            ["metrics"] => Ok(Self::Metrics),
            ["healthz", check @ ..] => Ok(Self::Health(Probe::Healthz, joined(check))),
            ["livez", check @ ..] => Ok(Self::Health(Probe::Livez, joined(check))),
            ["readyz", check @ ..] => Ok(Self::Health(Probe::Readyz, joined(check))),
            ["openapi", "v2"] => Ok(Self::OpenApiV2),
            ["openapi", "v3"] => Ok(Self::OpenApiIndex),
            ["openapi", "v3", "api", version] => Ok(Self::OpenApiDocument {
                group: String::new(),
                version: (*version).to_owned(),
            }),
            ["openapi", "v3", "apis", group, version] => Ok(Self::OpenApiDocument {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
            }),
            ["api"] => Ok(Self::ApiRoot),
            ["apis"] => Ok(Self::ApisRoot),
            ["apis", group] => Ok(Self::Group((*group).to_owned())),
            ["api", version] => Ok(Self::GroupVersion {
                group: String::new(),
                version: (*version).to_owned(),
            }),
            ["apis", group, version] => Ok(Self::GroupVersion {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
            }),
            ["api", version, rest @ ..] => ResourceRequest::parse("", version, rest),
            ["apis", group, version, rest @ ..] => ResourceRequest::parse(group, version, rest),
            _ => Ok(Self::Unknown),
        }
    }
}

fn joined(parts: &[&str]) -> Option<String> {
    if parts.is_empty() {
        None
    } else {
        Some(parts.join("/"))
    }
}

impl ResourceRequest {
    fn parse(group: &str, version: &str, parts: &[&str]) -> Result<Route, ApiError> {
        let (namespace, parts) = match parts {
            ["namespaces", name, sub, ..] if !NAMESPACE_SUBRESOURCES.contains(sub) => {
                (Some(*name), parts.get(2..).unwrap_or_default())
            }
            ["namespaces", name, ..] => (Some(*name), parts),
            _ => (None, parts),
        };
        let (resource, name, subresource) = match parts {
            [resource] => (*resource, None, None),
            [resource, name] => (*resource, Some(*name), None),
            [resource, name, subresource] => (*resource, Some(*name), Some(*subresource)),
            _ => return Ok(Route::Unknown),
        };
        if let Some(name) = name {
            check_name(name)?;
        }
        Ok(Route::Resource(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.map(ToOwned::to_owned),
            subresource: subresource.map(ToOwned::to_owned),
        }))
    }
}

/// Refuses names that could never be a path segment, as `IsValidPathSegmentName` does.
fn check_name(name: &str) -> Result<(), ApiError> {
    let why = match name {
        "." => "may not be '.'",
        ".." => "may not be '..'",
        _ if name.contains('%') => "may not contain '%'",
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(format!(
        "Name parameter invalid: {name:?}: {why}"
    )))
}

impl Verb {
    /// What a method means on this path. A method that the path does not have is 405.
    pub fn of(method: &Method, request: &ResourceRequest, query: &Query) -> Result<Self, ApiError> {
        let named = request.name.is_some();
        match *method {
            Method::GET | Method::HEAD if named => Ok(Self::Get),
            Method::GET | Method::HEAD if query.flag("watch").unwrap_or_default() => Ok(Self::Watch),
            Method::GET | Method::HEAD => Ok(Self::List),
            Method::POST if !named || request.subresource.is_some() => Ok(Self::Create),
            Method::PUT if named => Ok(Self::Update),
            Method::PATCH if named => Ok(Self::Patch),
            Method::DELETE if named => Ok(Self::Delete),
            Method::DELETE => Ok(Self::DeleteCollection),
            _ => Err(method_not_allowed()),
        }
    }

    /// As in RBAC rules, discovery documents and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// 405, worded as for a path that exists without this method.
pub fn method_not_allowed() -> ApiError {
    let message = "the server does not allow this method on the requested resource";
    ApiError {
        details: Some(Box::default()),
        ..ApiError::new(Reason::MethodNotAllowed, message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resource(group: &str, version: &str, rest: [Option<&str>; 4]) -> Route {
        let [namespace, resource, name, subresource] = rest.map(|part| part.map(ToOwned::to_owned));
        Route::Resource(ResourceRequest {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.unwrap(),
            namespace,
            name,
            subresource,
        })
    }

    #[test]
    fn paths_lead_where_request_info_says() {
        check([
            ("/", Route::Root),
            ("", Route::Root),
            ("/version", Route::Version),
            ("/version/", Route::Version),
            ("/metrics", Route::Metrics),
            ("/healthz", Route::Health(Probe::Healthz, None)),
            ("/livez/ping", Route::Health(Probe::Livez, Some("ping".into()))),
            (
                "/readyz/poststarthook/a",
                Route::Health(Probe::Readyz, Some("poststarthook/a".into())),
            ),
            ("/api", Route::ApiRoot),
            ("/apis/", Route::ApisRoot),
            ("/apis/batch", Route::Group("batch".into())),
            (
                "/api/v1",
                Route::GroupVersion {
                    group: String::new(),
                    version: "v1".into(),
                },
            ),
            (
                "/apis/batch/v1",
                Route::GroupVersion {
                    group: "batch".into(),
                    version: "v1".into(),
                },
            ),
            ("/openapi/v2", Route::OpenApiV2),
            ("/openapi/v3", Route::OpenApiIndex),
            (
                "/openapi/v3/api/v1",
                Route::OpenApiDocument {
                    group: String::new(),
                    version: "v1".into(),
                },
            ),
            (
                "/openapi/v3/apis/batch/v1",
                Route::OpenApiDocument {
                    group: "batch".into(),
                    version: "v1".into(),
                },
            ),
            ("/openapi/v3/logs", Route::Unknown),
            ("/api//v1", Route::Unknown),
            ("/favicon.ico", Route::Unknown),
        ]);
    }

    #[test]
    fn paths_below_a_version_lead_to_objects() {
        check([
            (
                "/api/v1/pods",
                resource("", "v1", [None, Some("pods"), None, None]),
            ),
            (
                "/api/v1/namespaces",
                resource("", "v1", [None, Some("namespaces"), None, None]),
            ),
            (
                "/api/v1/namespaces/x",
                resource("", "v1", [Some("x"), Some("namespaces"), Some("x"), None]),
            ),
            (
                "/api/v1/namespaces/x/finalize",
                resource(
                    "",
                    "v1",
                    [Some("x"), Some("namespaces"), Some("x"), Some("finalize")],
                ),
            ),
            (
                "/api/v1/namespaces/x/status",
                resource(
                    "",
                    "v1",
                    [Some("x"), Some("namespaces"), Some("x"), Some("status")],
                ),
            ),
            (
                "/api/v1/namespaces/x/pods",
                resource("", "v1", [Some("x"), Some("pods"), None, None]),
            ),
            (
                "/api/v1/namespaces/x/pods/y/log",
                resource("", "v1", [Some("x"), Some("pods"), Some("y"), Some("log")]),
            ),
            ("/api/v1/namespaces/x/pods/y/log/z", Route::Unknown),
            (
                "/apis/example.com/v1/namespaces/x/widgets/a%20b",
                resource(
                    "example.com",
                    "v1",
                    [Some("x"), Some("widgets"), Some("a b"), None],
                ),
            ),
            (
                "/apis/example.com/v1/widgets/a/status",
                resource(
                    "example.com",
                    "v1",
                    [None, Some("widgets"), Some("a"), Some("status")],
                ),
            ),
        ]);
    }

    fn check<const N: usize>(cases: [(&str, Route); N]) {
        for (path, expected) in cases {
            assert_eq!(Route::parse(path), Ok(expected), "{path}");
        }
    }

    #[test]
    fn names_that_cannot_be_path_segments_are_refused() {
        let cases = [
            (
                "/api/v1/namespaces/x/pods/..",
                "Name parameter invalid: \"..\": may not be '..'",
            ),
            ("/api/v1/nodes/.", "Name parameter invalid: \".\": may not be '.'"),
            (
                "/api/v1/nodes/a%25",
                "Name parameter invalid: \"a%\": may not contain '%'",
            ),
            ("/api/v1/nodes/%ff", "the request path is not valid UTF-8"),
        ];
        for (path, message) in cases {
            assert_eq!(Route::parse(path), Err(ApiError::bad_request(message)), "{path}");
        }
        assert!(Route::parse(&"/x".repeat(MAX_PATH_BYTES)).is_err());
    }

    #[test]
    fn methods_become_verbs() {
        let cases = [
            (Method::GET, "/api/v1/pods", "", Some(Verb::List)),
            (Method::GET, "/api/v1/pods", "watch=true", Some(Verb::Watch)),
            (Method::GET, "/api/v1/pods", "watch", Some(Verb::Watch)),
            (Method::GET, "/api/v1/pods", "watch=FALSE", Some(Verb::List)),
            (Method::GET, "/api/v1/pods", "watch=0", Some(Verb::List)),
            (Method::HEAD, "/api/v1/nodes/a", "watch=1", Some(Verb::Get)),
            (Method::POST, "/api/v1/pods", "", Some(Verb::Create)),
            (Method::POST, "/api/v1/nodes/a", "", None),
            (
                Method::POST,
                "/api/v1/namespaces/x/pods/a/eviction",
                "",
                Some(Verb::Create),
            ),
            (Method::PUT, "/api/v1/nodes/a", "", Some(Verb::Update)),
            (Method::PUT, "/api/v1/nodes", "", None),
            (Method::PATCH, "/api/v1/nodes/a/status", "", Some(Verb::Patch)),
            (Method::PATCH, "/api/v1/nodes", "", None),
            (Method::DELETE, "/api/v1/nodes/a", "", Some(Verb::Delete)),
            (Method::DELETE, "/api/v1/nodes", "", Some(Verb::DeleteCollection)),
            (Method::OPTIONS, "/api/v1/nodes", "", None),
        ];
        for (method, path, query, expected) in cases {
            let Ok(Route::Resource(request)) = Route::parse(path) else {
                panic!("{path}")
            };
            let query = Query::parse(Some(query)).unwrap();
            assert_eq!(
                Verb::of(&method, &request, &query).ok(),
                expected,
                "{method} {path}?{query:?}"
            );
        }
        assert_eq!(Verb::DeleteCollection.as_str(), "deletecollection");
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "(/(api|apis|v1|namespaces|x|\\.\\.|%[0-9a-f]{0,2}|\\PC{0,4})){0,8}/?") {
            let _ = Route::parse(&path);
        }
    }
}
