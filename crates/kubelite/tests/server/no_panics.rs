//! Bad input: whatever comes in, the server answers as an API server does and goes on.
//!
//! Requests are made from valid ones by small damage, because most of what is wholly random is refused at the door.

use std::{fmt, ops::ControlFlow};

use axum::body::Body;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Method, Request, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::{prelude::*, sample::Index, test_runner::FileFailurePersistence};
use serde_json::{Value, json};

use crate::support::{
    APPLY, Answer, CONFIG_MAPS, DEFINITIONS, JSON, JSON_PATCH, MERGE, NAMESPACES, PODS, STRATEGIC,
    TestServer, WIDGETS, config_map, definition, names, pod, widget,
};

/// Each case is a fresh server and some requests; together they take about ten seconds in a debug build. `PROPTEST_CASES`
/// asks for more.
const CASES: u32 = 128;
const REQUESTS_MAX: usize = 24;

const YAML: &str = "application/yaml";

/// One request, as it can be printed when it did harm.
#[derive(Clone)]
struct Sent {
    method: Method,
    uri: String,
    content_type: String,
    accept: String,
    body: Vec<u8>,
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
    fn request(&self) -> Option<Request<Body>> {
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

/// Valid objects to begin with.
fn objects() -> Vec<Value> {
    vec![
        config_map("a"),
        widget("a"),
        rich_widget(),
        pod("a"),
        definition(&rich_spec()),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "stringData": { "k": "v" }, "type": "Opaque" }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" }, "spec": { "finalizers": ["kubernetes"] } }),
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "node", "labels": { "a": "b" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": { "capacity": { "cpu": "2", "memory": "4Gi" } },
        }),
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": "a" },
            "spec": { "backoffLimit": 1, "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "i", "resources": { "limits": { "cpu": "100m" } } }],
            } } },
        }),
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "a" },
            "spec": { "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T12:00:00.000000Z" },
        }),
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "a", "namespace": "default" },
            "eventTime": "2026-03-01T12:00:00.000000Z",
            "action": "A",
            "reason": "R",
            "type": "Normal",
            "reportingController": "c",
            "reportingInstance": "i",
            "regarding": { "kind": "Widget", "name": "a", "namespace": "default" },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": { "name": "a" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }),
        json!({
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": 5,
            "preconditions": { "uid": "x", "resourceVersion": "5" },
            "dryRun": ["All"],
        }),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } },
        }),
    ]
}

fn rich_spec() -> Value {
    json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "format": "int32", "minimum": 0, "multipleOf": 1, "default": 1 },
            "name": { "type": "string", "pattern": "^[a-z]*$", "maxLength": 20, "enum": ["a", "b", "c"] },
            "when": { "type": "string", "format": "date-time" },
            "either": { "x-kubernetes-int-or-string": true },
            "open": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "map": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 5 },
            "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": { "name": { "type": "string" }, "count": { "type": "integer", "default": 1 } },
                },
            },
        },
        "x-kubernetes-validations": [{ "rule": "!has(self.name) || self.size < 100" }],
    })
}

fn rich_widget() -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "a",
            "labels": { "colour": "red" },
            "annotations": { "k": "v" },
            "finalizers": ["example.com/held"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "x" }],
        },
        "spec": {
            "size": 1, "name": "a", "when": "2026-03-01T12:00:00Z", "either": "50%", "open": { "x": [1] },
            "map": { "k": "v" }, "set": ["a", "b"], "parts": [{ "name": "p", "count": 2 }],
        },
        "status": { "phase": "Busy" },
    })
}

/// Values that are right somewhere and wrong almost everywhere.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(1), Just(i64::MAX)].prop_map(Value::from),
        Just(json!(u64::MAX)),
        prop_oneof![Just(0.5), Just(-1e308), Just(1e-300)].prop_map(Value::from),
        prop_oneof![
            Just(String::new()),
            Just("a".to_owned()),
            Just("x".repeat(300)),
            Just("$patch".to_owned()),
            Just("2026-13-45T99:00:00Z".to_owned()),
            Just("1e999Gi".to_owned()),
            Just("\u{0}\u{feff}ß🦀".to_owned()),
            Just("has(self.x".to_owned()),
            Just("(((((a+)+)+)+)+)+$".to_owned()),
            "\\PC{0,12}",
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map(key(), inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Names of fields that mean something somewhere.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "name",
            "metadata",
            "spec",
            "status",
            "labels",
            "finalizers",
            "ownerReferences",
            "managedFields",
            "kind",
            "apiVersion",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "f:spec",
            ".",
            "default",
            "type",
            "items",
            "properties",
            "x-kubernetes-validations",
            "pattern",
            "size",
            "resourceVersion",
            "uid",
            "generation",
            "deletionTimestamp",
            "creationTimestamp",
            "generateName",
            "namespace",
            "fieldsV1",
            "manager",
            "operation",
            "time",
            "$ref",
            "additionalProperties",
            "enum",
            "~1",
            "",
        ])
        .prop_map(ToOwned::to_owned),
        "\\PC{0,6}",
    ]
}

/// One small damage to a document.
#[derive(Clone, Debug)]
enum Edit {
    Replace(Value),
    /// Takes away one of the things in it.
    Remove(Index),
    Insert(String, Value),
    /// Puts the value into this many lists.
    Bury(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => odd_value().prop_map(Edit::Replace),
        2 => any::<Index>().prop_map(Edit::Remove),
        3 => (key(), odd_value()).prop_map(|(key, value)| Edit::Insert(key, value)),
        1 => (1_usize..300).prop_map(Edit::Bury),
    ]
}

/// Calls `visit` with each value of a document until it breaks.
fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value) -> ControlFlow<()>) -> ControlFlow<()> {
    visit(value)?;
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(item, visit)),
        Value::Object(fields) => fields.values_mut().try_for_each(|field| walk(field, visit)),
        _ => ControlFlow::Continue(()),
    }
}

fn damage(document: &mut Value, place: &Index, edit: &Edit) {
    let mut count = 0;
    let _ = walk(document, &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    });
    let mut left = place.index(count);
    let _ = walk(document, &mut |value| {
        if left > 0 {
            left -= 1;
            return ControlFlow::Continue(());
        }
        match edit {
            Edit::Replace(new) => *value = new.clone(),
            Edit::Remove(which) => match value {
                Value::Array(items) if !items.is_empty() => drop(items.remove(which.index(items.len()))),
                Value::Object(fields) if !fields.is_empty() => {
                    let key = fields.keys().nth(which.index(fields.len())).cloned();
                    fields.remove(&key.unwrap_or_default());
                }
                other => *other = Value::Null,
            },
            Edit::Insert(key, new) => match value {
                Value::Array(items) => items.push(new.clone()),
                Value::Object(fields) => drop(fields.insert(key.clone(), new.clone())),
                other => *other = json!({ key: new }),
            },
            Edit::Bury(depth) => {
                for _ in 0..*depth {
                    *value = Value::Array(vec![value.take()]);
                }
            }
        }
        ControlFlow::Break(())
    });
}

fn document() -> impl Strategy<Value = Value> {
    let edits = prop::collection::vec((any::<Index>(), edit()), 0..4);
    (prop::sample::select(objects()), edits).prop_map(|(mut document, edits)| {
        for (place, edit) in &edits {
            damage(&mut document, place, edit);
        }
        document
    })
}

fn json_patch() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        prop::sample::select(vec![
            "",
            "/",
            "/metadata",
            "/metadata/labels",
            "/metadata/labels/a~1b",
            "/metadata/finalizers/-",
            "/metadata/finalizers/0",
            "/metadata/finalizers/99999999999999999999",
            "/metadata/finalizers/-1",
            "/spec",
            "/spec/size",
            "/spec/parts/0",
            "/spec/parts/1/name",
            "/status",
            "/kind",
            "/metadata/name",
            "/data/x",
            "/metadata/resourceVersion",
            "nonsense",
            "/~",
            "/~2",
        ])
        .prop_map(ToOwned::to_owned),
        "(/\\PC{0,4}){0,4}",
    ];
    let operation = prop::sample::select(vec![
        "add", "remove", "replace", "move", "copy", "test", "", "nope",
    ]);
    let step = (operation, path.clone(), path, odd_value()).prop_map(|(operation, path, from, value)| {
        json!({ "op": operation, "path": path, "from": from, "value": value })
    });
    prop::collection::vec(step, 0..5).prop_map(Value::from)
}

/// The bytes of a body.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        6 => document().prop_map(|document| document.to_string()),
        2 => json_patch().prop_map(|patch| patch.to_string()),
        2 => document().prop_map(|document| serde_saphyr::to_string(&document).unwrap_or_default()),
        1 => (0_usize..20_000).prop_map(|depth| "[".repeat(depth)),
        1 => (0_usize..20_000).prop_map(|depth| "{\"a\":".repeat(depth)),
        1 => (0_usize..5_000).prop_map(|depth| "- ".repeat(depth)),
        1 => Just("a: &a [*a, *a]\nb: &b [*a, *a, *b]".to_owned()),
        1 => Just("k8s\0\n\u{7f}\u{1}".to_owned()),
        1 => Just(String::new()),
    ];
    let cuts = prop::collection::vec((any::<Index>(), any::<u8>()), 0..3);
    (text, prop::bool::weighted(0.2), cuts, any::<Index>()).prop_map(|(text, broken, cuts, end)| {
        let mut bytes = text.into_bytes();
        if broken && !bytes.is_empty() {
            for (place, byte) in cuts {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(end.index(bytes.len()) + 1);
        }
        bytes
    })
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

fn sent() -> impl Strategy<Value = Sent> {
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

/// What an API server may answer. The failures of its own are those that Kubernetes gives for the same request.
fn check_answer(sent: &Sent, answer: &Answer) {
    let message = answer.body["message"].as_str().unwrap_or_default();
    match answer.code {
        200..=299 => return,
        500 => assert!(
            [
                "failed to create typed patch object",
                "failed to create manager",
                "resourceVersion should not be set"
            ]
            .iter()
            .any(|known| message.contains(known)),
            "an internal error: {sent:?}\n{}",
            answer.text
        ),
        // Nothing runs pods in this server, so their logs are not available.
        503 => assert!(
            sent.uri.contains("/log"),
            "unavailable: {sent:?}\n{}",
            answer.text
        ),
        504 => assert!(
            message.contains("Too large resource version"),
            "{sent:?}\n{}",
            answer.text
        ),
        400..=499 => {}
        other => panic!("the code {other}: {sent:?}\n{}", answer.text),
    }
    // The answer to HEAD has no body, and what no route serves is told as Go's multiplexer tells it.
    if sent.method == Method::HEAD || (answer.code == 404 && answer.text == "404 page not found\n") {
        return;
    }
    let status = if answer.headers[header::CONTENT_TYPE] == YAML {
        serde_saphyr::from_str(&answer.text).unwrap_or_default()
    } else {
        answer.body.clone()
    };
    assert_eq!(
        (&status["kind"], &status["status"], &status["code"]),
        (&json!("Status"), &json!("Failure"), &json!(answer.code)),
        "{sent:?}\n{}",
        answer.text
    );
}

async fn play(requests: &[Sent]) {
    let server = TestServer::start().await;
    server.define(definition(&rich_spec())).await;
    server.post(CONFIG_MAPS, &config_map("a")).await.created();
    server.post(WIDGETS, &rich_widget()).await.created();
    server.post(PODS, &pod("a")).await.created();
    for sent in requests {
        if let Some(request) = sent.request() {
            check_answer(sent, &server.send(request).await);
        }
    }
    // It still answers, and what it does on its own still gets done.
    server
        .post(NAMESPACES, &json!({ "metadata": { "name": "afterwards" } }))
        .await
        .created();
    server.settle().await;
    let accounts = server
        .get("/api/v1/namespaces/afterwards/serviceaccounts")
        .await
        .ok();
    assert_eq!(names(&accounts), ["default"]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_comes_in_gets_a_proper_answer(requests in prop::collection::vec(sent(), 1..REQUESTS_MAX)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(&requests));
    }
}
