//! Kubernetes' protobuf encoding, as far as reading goes. The typed clients of client-go, and with them `kubectl create
//! configmap` or `kubectl auth can-i`, send it without asking first; they all take JSON as the answer.
//!
//! A body is the magic `k8s\0`, then a `runtime.Unknown` message with the type and the encoded object.

mod message;
mod wire;

use serde_json::{Map, Value, json};

use self::wire::{Fields, Wire};
use super::{
    Builtin,
    schema::{component_name, short_name},
};

/// What every protobuf body starts with.
const MAGIC: &[u8] = b"k8s\0";
/// The media type of such a body.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Why a body could not be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: illegal wireType {0}")]
    WireType(u64),
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: a string is not valid UTF-8")]
    Text,
    #[error("proto: a field has another type than its number says")]
    Type,
    #[error("proto: no fields are known of {0}")]
    Message(String),
    #[error("no protobuf encoding is known here for {api_version}, Kind={kind}")]
    Unsupported { api_version: String, kind: String },
}

/// Turns a protobuf body into the JSON object that it stands for.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let body = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let mut type_meta: &[u8] = &[];
    let mut raw: &[u8] = &[];
    for field in Fields(body) {
        match field? {
            (1, Wire::Bytes(bytes)) => type_meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut api_version, mut kind) = (String::new(), String::new());
    for field in Fields(type_meta) {
        let (number, Wire::Bytes(bytes)) = field? else {
            continue;
        };
        let text = std::str::from_utf8(bytes).map_err(|_| ProtobufError::Text)?;
        match number {
            1 => text.clone_into(&mut api_version),
            2 => text.clone_into(&mut kind),
            _ => {}
        }
    }
    let mut object = Map::new();
    let name = short_type(&api_version, &kind);
    let Some(name) = name.filter(|name| message::is_known(name)) else {
        return Err(ProtobufError::Unsupported { api_version, kind });
    };
    message::read(&name, raw, &mut object)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// The abbreviated type of a built-in kind, or of the body of a delete.
fn short_type(api_version: &str, kind: &str) -> Option<String> {
    // Every group speaks of the same options under its own name.
    if kind == "DeleteOptions" {
        return Some("meta.v1.DeleteOptions".to_owned());
    }
    let builtin = Builtin::ALL.iter().find(|builtin| {
        let info = builtin.info();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        info.kind == kind && info.group == group && info.version == version
    })?;
    Some(short_name(&component_name(*builtin)).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut varint = |mut value: usize| {
            while value >= 128 {
                out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
                value >>= 7;
            }
            out.push(u8::try_from(value).unwrap());
        };
        varint(usize::from(number) << 3 | 2);
        varint(bytes.len());
        out.extend_from_slice(bytes);
        out
    }

    fn number(field: u8, value: u8) -> Vec<u8> {
        vec![field << 3, value]
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [
            MAGIC.to_vec(),
            field(1, &meta),
            field(2, raw),
            field(3, b""),
            field(4, b""),
        ]
        .concat()
    }

    fn review(spec: &[u8]) -> Vec<u8> {
        let raw = [field(1, &[]), field(2, spec), field(3, &[8, 0])].concat();
        body("authorization.k8s.io/v1", "SelfSubjectAccessReview", &raw)
    }

    #[test]
    fn access_review_of_a_resource_is_read() {
        let attributes = [
            field(1, b"default"),
            field(2, b"get"),
            field(3, b"agents.example.com"),
            field(4, b"*"),
            field(5, b"widgets"),
            field(6, b"status"),
            field(7, b"one"),
        ]
        .concat();
        let value = decode(&review(&field(1, &attributes))).unwrap();
        assert_eq!(value["kind"], "SelfSubjectAccessReview");
        assert_eq!(
            value["spec"],
            json!({"resourceAttributes": {
                "namespace": "default", "verb": "get", "group": "agents.example.com", "version": "*",
                "resource": "widgets", "subresource": "status", "name": "one",
            }})
        );
    }

    #[test]
    fn access_review_of_a_path_is_read() {
        let attributes = [field(1, b"/metrics"), field(2, b"get")].concat();
        let value = decode(&review(&field(2, &attributes))).unwrap();
        assert_eq!(
            value["spec"],
            json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})
        );
    }

    #[test]
    fn maps_lists_bytes_and_embedded_structs_are_read() {
        let config = [
            field(1, &[field(1, b"settings"), field(8, &[])].concat()),
            field(2, &[field(1, b"a"), field(2, b"1")].concat()),
            field(2, &[field(1, b"b"), field(2, b"2")].concat()),
            field(3, &[field(1, b"raw"), field(2, &[0, 255])].concat()),
        ]
        .concat();
        assert_eq!(
            decode(&body("v1", "ConfigMap", &config)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "settings", "creationTimestamp": null},
                "data": {"a": "1", "b": "2"}, "binaryData": {"raw": "AP8="},
            })
        );
        let probe = [
            field(
                1,
                &field(
                    2,
                    &field(2, &[number(1, 0), number(2, 80), field(3, b"")].concat()),
                ),
            ),
            number(3, 5),
        ]
        .concat();
        let limits = field(1, &[field(1, b"cpu"), field(2, &field(1, b"500m"))].concat());
        let container = [
            field(1, b"main"),
            field(4, b"run"),
            field(4, b"it"),
            field(8, &limits),
            field(10, &probe),
        ]
        .concat();
        let volume = [field(1, b"tmp"), field(2, &field(2, &field(1, b"Memory")))].concat();
        let spec = [field(1, &volume), field(2, &container), number(11, 1)].concat();
        let pod = decode(&body("v1", "Pod", &field(2, &spec))).unwrap();
        assert_eq!(
            pod["spec"],
            json!({
                "containers": [{
                    "name": "main", "args": ["run", "it"], "resources": {"limits": {"cpu": "500m"}},
                    "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 5},
                }],
                "hostNetwork": true,
                "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
            })
        );
    }

    #[test]
    fn times_keep_the_precision_of_their_type() {
        let time = [number(1, 60), number(2, 100)].concat();
        let lease = decode(&body(
            "coordination.k8s.io/v1",
            "Lease",
            &[field(1, &field(8, &time)), field(2, &field(4, &time))].concat(),
        ))
        .unwrap();
        assert_eq!(lease["metadata"]["creationTimestamp"], "1970-01-01T00:01:00Z");
        assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:01:00.000000Z");
    }

    #[test]
    fn the_body_of_a_delete_is_read() {
        let options = [number(1, 0), field(2, &field(1, b"u-1")), field(4, b"Background")].concat();
        let value = decode(&body("v1", "DeleteOptions", &options)).unwrap();
        assert_eq!(value["preconditions"], json!({"uid": "u-1"}));
        assert_eq!(value["gracePeriodSeconds"], 0);
        assert_eq!(value["propagationPolicy"], "Background");
    }

    #[test]
    fn broken_bodies_are_refused_with_the_reason() {
        let whole = review(&field(1, &field(2, b"get")));
        assert_eq!(decode(b"{}"), Err(ProtobufError::Magic));
        assert_eq!(decode(&whole[..whole.len() - 3]), Err(ProtobufError::Truncated));
        assert_eq!(
            decode(&[MAGIC, &[0x0b]].concat()),
            Err(ProtobufError::WireType(3))
        );
        assert_eq!(
            decode(&[MAGIC, &[0xff; 12]].concat()),
            Err(ProtobufError::Overflow)
        );
        assert_eq!(
            decode(&body("v1", "Pod", &number(2, 1))),
            Err(ProtobufError::Type)
        );
        assert!(matches!(
            decode(&body("v1", "Gadget", b"")),
            Err(ProtobufError::Unsupported { .. })
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = decode(&[MAGIC, &bytes].concat());
            let _ = decode(&body("v1", "Pod", &bytes));
            let _ = decode(&body("batch/v1", "Job", &field(2, &bytes)));
            let _ = decode(&review(&bytes));
        }
    }
}
