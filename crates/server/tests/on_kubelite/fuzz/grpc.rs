//! Frames and messages of gRPC, and the manifests in them.

use std::sync::LazyLock;

use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use jangar_proto::{
    DESCRIPTORS, SERVICE,
    v1::{
        ApplyRequest, CancelRequest, CreateImplementationSpecRequest, DecideRequest, GetRequest, KeyValue,
        ListRequest, RuntimeConfigEntry, StreamAgentRunLogsRequest, SubmitAgentRunRequest,
        SubmitOrchestrationRunRequest,
    },
};
use proptest::{collection::vec, prelude::*, sample};
use prost::Message;
use prost_types::{FileDescriptorSet, ListValue, Struct, value::Kind as ValueKind};
use tonic::Code;
use tower::ServiceExt;

use super::{
    PATIENCE,
    damage::{Bytes, bytes},
    play,
};
use crate::stage::NAMESPACE;

const MANIFEST: &str = "apiVersion: agents.proompteng.ai/v1alpha1\nkind: Agent\nmetadata:\n  name: coder\n  labels: {a: b}\n\
                        spec:\n  providerRef: {name: p}\n  defaults: &d\n    timeoutSeconds: 5\n";

static METHODS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let contract = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let services = contract.file.iter().flat_map(|file| &file.service);
    let methods = services.flat_map(|service| &service.method);
    methods
        .map(|method| format!("/{SERVICE}/{}", method.name()))
        .collect()
});

/// A good message of each shape. What is good for one method is nonsense for another, and that is wanted.
static MESSAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let namespace = || NAMESPACE.to_owned();
    let text = |text: &str| text.to_owned();
    let pair = || KeyValue {
        key: text("stage"),
        value: text("build"),
    };
    vec![
        ListRequest {
            namespace: namespace(),
            label_selector: text("a in (b, c),!d"),
            limit: 5,
            cursor: text("eyJvZiI6IngifQ"),
            ..ListRequest::default()
        }
        .encode_to_vec(),
        GetRequest {
            namespace: namespace(),
            name: text("coder"),
            ..GetRequest::default()
        }
        .encode_to_vec(),
        ApplyRequest {
            namespace: namespace(),
            manifest_yaml: text(MANIFEST),
            ..ApplyRequest::default()
        }
        .encode_to_vec(),
        CancelRequest {
            namespace: namespace(),
            name: text("run"),
            reason: text("enough"),
        }
        .encode_to_vec(),
        CreateImplementationSpecRequest {
            namespace: namespace(),
            text: text("do it"),
            ..CreateImplementationSpecRequest::default()
        }
        .encode_to_vec(),
        DecideRequest {
            namespace: namespace(),
            run: text("run"),
            step: text("gate"),
            digest: text("d1"),
            comment: text("good"),
        }
        .encode_to_vec(),
        StreamAgentRunLogsRequest {
            namespace: namespace(),
            name: text("run"),
            follow: true,
            tail_lines: 5,
            ..StreamAgentRunLogsRequest::default()
        }
        .encode_to_vec(),
        SubmitAgentRunRequest {
            namespace: namespace(),
            agent_name: text("coder"),
            implementation_name: text("work"),
            runtime_type: text("job"),
            runtime_config: vec![RuntimeConfigEntry {
                key: text("topologySpreadConstraints"),
                value: String::new(),
                structured: Some(nested(8)),
            }],
            parameters: vec![pair()],
            idempotency_key: text("k"),
            ..SubmitAgentRunRequest::default()
        }
        .encode_to_vec(),
        SubmitOrchestrationRunRequest {
            namespace: namespace(),
            orchestration_name: text("o"),
            parameters: vec![pair()],
            idempotency_key: text("k"),
            ..SubmitOrchestrationRunRequest::default()
        }
        .encode_to_vec(),
        // Deeper than messages are read.
        SubmitAgentRunRequest {
            runtime_config: vec![RuntimeConfigEntry {
                structured: Some(nested(200)),
                ..RuntimeConfigEntry::default()
            }],
            ..SubmitAgentRunRequest::default()
        }
        .encode_to_vec(),
    ]
});

/// Lists within objects within lists.
fn nested(depth: usize) -> prost_types::Value {
    let kind = match depth {
        0 => ValueKind::NumberValue(1.5),
        depth if depth.is_multiple_of(2) => ValueKind::ListValue(ListValue {
            values: vec![nested(depth - 1)],
        }),
        depth => ValueKind::StructValue(Struct {
            fields: [("a".to_owned(), nested(depth - 1))].into(),
        }),
    };
    prost_types::Value { kind: Some(kind) }
}

/// How a message is wrapped: rightly, or not.
#[derive(Clone, Debug)]
enum Frame {
    Right,
    /// With a flag that says how it is compressed, which it is not.
    Flagged(u8),
    /// With another length than it has.
    Length(u32),
    Twice,
    Bare,
}

impl Frame {
    fn wrap(&self, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        let frame = |flag: u8, length: u32| {
            let mut frame = vec![flag];
            frame.extend(length.to_be_bytes());
            frame.extend(message);
            frame
        };
        match self {
            Self::Right => frame(0, length),
            Self::Flagged(flag) => frame(*flag, length),
            Self::Length(length) => frame(0, *length),
            Self::Twice => frame(0, length).repeat(2),
            Self::Bare => message.to_vec(),
        }
    }
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        12 => Just(Frame::Right),
        1 => any::<u8>().prop_map(Frame::Flagged),
        1 => any::<u32>().prop_map(Frame::Length),
        1 => Just(Frame::Twice),
        1 => Just(Frame::Bare),
    ]
}

/// One call.
#[derive(Clone, Debug)]
struct Sent {
    method: String,
    body: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    (
        sample::select(METHODS.clone()),
        sample::select(MESSAGES.clone()),
        vec(bytes(), 0..3),
        frame(),
    )
        .prop_map(|(method, message, changes, frame)| {
            let damaged = changes
                .iter()
                .fold(message, |message, change: &Bytes| change.apply(message));
            Sent {
                method,
                body: frame.wrap(&damaged),
            }
        })
}

/// Texts that look like YAML, and good ones that were damaged.
fn manifest() -> impl Strategy<Value = Vec<u8>> {
    let token = sample::select(vec![
        "a: ",
        "- ",
        "\n",
        "  ",
        "&a ",
        "*a",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        "|\n",
        ">\n",
        "!!int ",
        "? ",
        "---\n",
        "...\n",
        "\t",
        "0x1",
        "~",
        "<<: *a",
        "%YAML 1.2\n",
        "\u{feff}",
        "kind: Agent\n",
        ":",
        ",",
        "#",
        "1e999",
    ]);
    let bomb = (0..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        text + &format!(
            "a{}: &a{} [*a{level}, *a{level}, *a{level}]\n",
            level + 1,
            level + 1
        )
    });
    prop_oneof![
        4 => vec(token, 0..40).prop_map(|tokens| tokens.concat().into_bytes()),
        4 => vec(bytes(), 1..4).prop_map(|changes| {
            let good = MANIFEST.as_bytes().to_vec();
            changes.iter().fold(good, |text, change: &Bytes| change.apply(text))
        }),
        1 => Just(bomb.into_bytes()),
        1 => Just("- ".repeat(10_000).into_bytes()),
    ]
}

/// The code of an answer. One in which something here went wrong is none.
async fn code(router: &Router, sent: &Sent) -> Code {
    let request = Request::post(&sent.method)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", "Bearer token-of-submitter")
        .body(Body::from(sent.body.clone()))
        .unwrap();
    let answer = tokio::time::timeout(PATIENCE, router.clone().oneshot(request));
    let response = answer.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{sent:?}");
    let told = |headers: &HeaderMap| {
        let code = headers.get("grpc-status")?;
        Some(Code::from_bytes(code.as_bytes()))
    };
    let at_once = told(response.headers());
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect());
    let body = body.await.unwrap().unwrap();
    let code = at_once.or_else(|| told(body.trailers()?)).unwrap();
    assert!(
        !matches!(code, Code::Unknown | Code::Unavailable | Code::DeadlineExceeded),
        "{code:?} to {sent:?}"
    );
    code
}

#[test]
fn every_call_of_grpc_is_done_or_told_what_is_wrong() {
    play(&sent(), &async |target, sent| {
        code(&target.grpc, &sent).await;
    });
}

#[test]
fn a_manifest_is_applied_or_told_what_is_wrong_with_it() {
    play(&manifest(), &async |target, manifest| {
        // A text of protobuf is UTF-8, or the message cannot be read at all.
        let request = ApplyRequest {
            namespace: NAMESPACE.to_owned(),
            manifest_yaml: String::from_utf8_lossy(&manifest).into_owned(),
            ..ApplyRequest::default()
        };
        let sent = Sent {
            method: format!("/{SERVICE}/ApplyAgent"),
            body: Frame::Right.wrap(&request.encode_to_vec()),
        };
        let code = code(&target.grpc, &sent).await;
        assert!(
            matches!(code, Code::Ok | Code::InvalidArgument | Code::FailedPrecondition),
            "{code:?}: {}",
            request.manifest_yaml
        );
    });
}
