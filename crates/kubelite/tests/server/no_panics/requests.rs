//! Requests: most go where their body belongs, some are put together from parts that have nothing to do with each other.

use std::fmt;

use axum::body::Body;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Method, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use super::{
    YAML,
    documents::{body, damaged, edits, json_patch, objects},
};
use crate::support::{
    APPLY, CONFIG_MAPS, DEFINITIONS, JSON, JSON_PATCH, MERGE, NAMESPACES, PODS, STRATEGIC, WIDGETS,
};

/// Stands for the version that the object has when the request is sent.
pub(super) const CURRENT: &str = "CURRENT";

/// One request, as it can be printed when it did harm.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) method: Method,
    pub(super) uri: String,
    content_type: String,
    accept: String,
    pub(super) body: Vec<u8>,
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            method,
            uri,
            content_type,
            accept,
            body,
        } = self;
        let body = String::from_utf8_lossy(body);
        write!(
            f,
            "{method} {uri} content-type={content_type:?} accept={accept:?} body={body:?}"
        )
    }
}

impl Sent {
    /// `None` where no HTTP client could even send it.
    pub(super) fn request(&self) -> Option<Request<Body>> {
        Request::builder()
            .method(self.method.clone())
            .uri(&self.uri)
            .header(header::CONTENT_TYPE, &self.content_type)
            .header(header::ACCEPT, &self.accept)
            .header(header::USER_AGENT, "fuzz")
            .body(Body::from(self.body.clone()))
            .ok()
    }
}

fn path() -> impl Strategy<Value = String> {
    let valid = prop::sample::select(vec![
        CONFIG_MAPS.to_owned(),
        format!("{CONFIG_MAPS}/a"),
        WIDGETS.to_owned(),
        format!("{WIDGETS}/a"),
        format!("{WIDGETS}/a/status"),
        format!("{WIDGETS}/new"),
        "/apis/example.com/v1/widgets".to_owned(),
        PODS.to_owned(),
        format!("{PODS}/a"),
        format!("{PODS}/a/status"),
        format!("{PODS}/a/log"),
        format!("{PODS}/a/eviction"),
        NAMESPACES.to_owned(),
        format!("{NAMESPACES}/other"),
        format!("{NAMESPACES}/other/finalize"),
        format!("{NAMESPACES}/default/status"),
        DEFINITIONS.to_owned(),
        format!("{DEFINITIONS}/widgets.example.com"),
        format!("{DEFINITIONS}/widgets.example.com/status"),
        "/api/v1/nodes".to_owned(),
        "/api/v1/nodes/node/status".to_owned(),
        "/api/v1/namespaces/default/secrets/a".to_owned(),
        "/api/v1/namespaces/default/events".to_owned(),
        "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
        "/apis/events.k8s.io/v1/namespaces/default/events/a".to_owned(),
        "/apis/batch/v1/namespaces/default/jobs".to_owned(),
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/a".to_owned(),
        "/api/v1/namespaces/default/persistentvolumeclaims".to_owned(),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
        "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
        "/".to_owned(),
        "/version".to_owned(),
        "/healthz".to_owned(),
        "/metrics".to_owned(),
        "/api".to_owned(),
        "/apis".to_owned(),
        "/apis/example.com/v1".to_owned(),
        "/openapi/v3".to_owned(),
        "/openapi/v3/apis/example.com/v1".to_owned(),
    ]);
    let segment = prop_oneof![
        Just("..".to_owned()),
        Just("%2e%2E".to_owned()),
        Just("%00".to_owned()),
        Just("%ff".to_owned()),
        Just("%".to_owned()),
        Just("a%2Fb".to_owned()),
        Just("x".repeat(5_000)),
        "\\PC{0,6}".prop_map(|text| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string()),
    ];
    (valid, prop::option::weighted(0.15, (any::<Index>(), segment))).prop_map(|(valid, replaced)| {
        let mut segments: Vec<&str> = valid.split('/').collect();
        if let Some((place, segment)) = &replaced {
            let place = place.index(segments.len());
            segments[place] = segment;
        }
        format!("/{}", segments.join("/").trim_start_matches('/'))
    })
}

/// A parameter with values that it takes, values that it nearly takes, and nonsense.
fn parameter() -> impl Strategy<Value = String> {
    let selector = prop_oneof![
        prop::sample::select(vec![
            "a=b",
            "a==b",
            "a!=b",
            "a in (b,c)",
            "a notin ()",
            "!a",
            "a>1",
            "a<x",
            "a in (",
            ",",
            "=",
            "a=b,,c",
            "!",
            "a.b/c/d=e",
            "metadata.name=a",
            "metadata.namespace!=x",
            "spec.size=1",
            "status.phase=Running",
            "a=\\,b",
        ])
        .prop_map(ToOwned::to_owned),
        "[a-z!=<>,() ./\\\\]{0,16}",
        "\\PC{0,10}",
    ];
    let token = (
        prop_oneof![Just("meta.k8s.io/v1".to_owned()), "\\PC{0,4}"],
        prop_oneof![
            Just(-2_i64),
            Just(-1),
            Just(0),
            Just(1),
            1..40_i64,
            Just(i64::MAX)
        ],
        prop_oneof![
            Just("default/a\0".to_owned()),
            Just("/../x".to_owned()),
            "\\PC{0,8}"
        ],
    )
        .prop_map(|(v, rv, start)| {
            URL_SAFE_NO_PAD.encode(json!({ "v": v, "rv": rv, "start": start }).to_string())
        });
    let number = prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "-1",
            "+1",
            "5",
            "99999999",
            "18446744073709551616",
            "x",
            "1.5",
            "0x1"
        ])
        .prop_map(ToOwned::to_owned),
        (0_u32..40).prop_map(|number| number.to_string()),
    ];
    let flag = prop::sample::select(vec!["true", "false", "1", "0", "", "maybe"]).prop_map(ToOwned::to_owned);
    let word = prop::sample::select(vec![
        "All",
        "Exact",
        "NotOlderThan",
        "Strict",
        "Warn",
        "Ignore",
        "Foreground",
        "Orphan",
        "Metadata",
        "None",
        "Object",
        "fuzz",
        "",
    ])
    .prop_map(ToOwned::to_owned);
    let pair = |keys: Vec<&'static str>, value: BoxedStrategy<String>| (prop::sample::select(keys), value);
    prop_oneof![
        pair(vec!["labelSelector", "fieldSelector"], selector.boxed()),
        pair(vec!["continue"], prop_oneof![token, "\\PC{0,8}"].boxed()),
        pair(
            vec![
                "resourceVersion",
                "limit",
                "timeoutSeconds",
                "gracePeriodSeconds",
                "tailLines",
                "sinceSeconds"
            ],
            number.boxed()
        ),
        pair(
            vec![
                "watch",
                "allowWatchBookmarks",
                "sendInitialEvents",
                "force",
                "pretty",
                "follow",
                "orphanDependents"
            ],
            flag.boxed()
        ),
        pair(
            vec![
                "dryRun",
                "resourceVersionMatch",
                "fieldValidation",
                "propagationPolicy",
                "includeObject",
                "fieldManager"
            ],
            word.boxed()
        ),
        pair(
            vec!["fieldManager", "container", "unknown"],
            "\\PC{0,200}".boxed()
        ),
    ]
    .prop_map(|(key, value)| format!("{key}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)))
}

/// Where the objects of `objects` live.
pub(super) fn collection(object: &Value) -> &'static str {
    match object["kind"].as_str().unwrap_or_default() {
        "Widget" => WIDGETS,
        "Pod" => PODS,
        "CustomResourceDefinition" => DEFINITIONS,
        "Secret" => "/api/v1/namespaces/default/secrets",
        "Namespace" => NAMESPACES,
        "Node" => "/api/v1/nodes",
        "Job" => "/apis/batch/v1/namespaces/default/jobs",
        "Lease" => "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "Event" => "/apis/events.k8s.io/v1/namespaces/default/events",
        "PersistentVolumeClaim" => "/api/v1/namespaces/default/persistentvolumeclaims",
        "SelfSubjectAccessReview" => "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        _ => CONFIG_MAPS,
    }
}

#[derive(Clone, Copy, Debug)]
enum Aim {
    List,
    Watch,
    Create,
    CreateYaml,
    Update,
    UpdateStatus,
    Merge,
    Strategic,
    Json,
    Apply,
    ApplyStatus,
    Delete,
    DeleteAll,
}

impl Aim {
    const ALL: [Self; 13] = [
        Self::List,
        Self::Watch,
        Self::Create,
        Self::CreateYaml,
        Self::Update,
        Self::UpdateStatus,
        Self::Merge,
        Self::Strategic,
        Self::Json,
        Self::Apply,
        Self::ApplyStatus,
        Self::Delete,
        Self::DeleteAll,
    ];

    /// The method, the form of the body, and what comes after the path of the collection.
    fn way(self) -> (Method, &'static str, &'static str) {
        match self {
            Self::List => (Method::GET, JSON, "?"),
            Self::Watch => (Method::GET, JSON, "?watch=true&timeoutSeconds=5&"),
            Self::Create => (Method::POST, JSON, "?"),
            Self::CreateYaml => (Method::POST, YAML, "?"),
            Self::Update => (Method::PUT, JSON, "/NAME?"),
            Self::UpdateStatus => (Method::PUT, JSON, "/NAME/status?"),
            Self::Merge => (Method::PATCH, MERGE, "/NAME?"),
            Self::Strategic => (Method::PATCH, STRATEGIC, "/NAME?"),
            Self::Json => (Method::PATCH, JSON_PATCH, "/NAME?"),
            Self::Apply => (Method::PATCH, APPLY, "/NAME?fieldManager=fuzz&force=true&"),
            Self::ApplyStatus => (Method::PATCH, APPLY, "/NAME/status?fieldManager=fuzz&"),
            Self::Delete => (Method::DELETE, JSON, "/NAME?"),
            Self::DeleteAll => (Method::DELETE, JSON, "?"),
        }
    }
}

/// A request that goes where its body belongs, and may be damaged in its body and its parameters.
fn aimed() -> impl Strategy<Value = Sent> {
    let aim = prop::sample::select(Aim::ALL.to_vec());
    let parameters = prop::collection::vec(parameter(), 0..2);
    let object = prop::sample::select(objects());
    (aim, object, edits(), json_patch(), parameters, any::<bool>()).prop_map(
        |(aim, mut object, edits, patch, parameters, fresh)| {
            let (method, content_type, rest) = aim.way();
            let path = collection(&object);
            let name = object["metadata"]["name"].as_str().unwrap_or("a").to_owned();
            match aim {
                Aim::Create | Aim::CreateYaml if fresh => {
                    object["metadata"] = json!({ "generateName": "fresh-" })
                }
                Aim::Update | Aim::UpdateStatus => object["metadata"]["resourceVersion"] = CURRENT.into(),
                _ => {}
            }
            let body = match aim {
                Aim::Json => patch.to_string(),
                Aim::List | Aim::Watch => String::new(),
                Aim::Delete | Aim::DeleteAll if fresh => String::new(),
                Aim::CreateYaml => serde_saphyr::to_string(&damaged(&object, &edits)).unwrap_or_default(),
                _ => damaged(&object, &edits).to_string(),
            };
            Sent {
                method,
                uri: format!("{path}{}{}", rest.replace("NAME", &name), parameters.join("&")),
                content_type: content_type.to_owned(),
                accept: JSON.to_owned(),
                body: body.into_bytes(),
            }
        },
    )
}

/// A request of parts that need not belong together.
fn wild() -> impl Strategy<Value = Sent> {
    let method = prop::sample::select(vec![
        Method::GET,
        Method::GET,
        Method::POST,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::PATCH,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::TRACE,
    ]);
    let content_type = prop_oneof![
        8 => prop::sample::select(vec![JSON, YAML, MERGE, JSON_PATCH, STRATEGIC, APPLY, "application/apply-patch+cbor",
            "application/vnd.kubernetes.protobuf", "application/json; charset=utf-8", ""]).prop_map(ToOwned::to_owned),
        1 => "[ -~]{0,20}",
    ];
    let accept = prop_oneof![
        8 => prop::sample::select(vec![JSON, YAML, "*/*", "", "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;stream=watch",
            "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io,*/*;q=0.1", "text/html",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/vnd.kubernetes.protobuf"]).prop_map(ToOwned::to_owned),
        1 => "[ -~]{0,20}",
    ];
    let query = prop::collection::vec(parameter(), 0..4);
    (method, path(), query, content_type, accept, body()).prop_map(
        |(method, path, query, content_type, accept, body)| {
            let uri = if query.is_empty() {
                path
            } else {
                format!("{path}?{}", query.join("&"))
            };
            Sent {
                method,
                uri,
                content_type,
                accept,
                body,
            }
        },
    )
}

pub(super) fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![3 => aimed(), 1 => wild()]
}
