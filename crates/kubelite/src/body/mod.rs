//! Bodies of requests: read within a bound, decoded without surprises, refused in the words of a real API server.

mod decode;
mod syntax;

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

pub use self::{
    decode::{DecodeError, Decoded, Format, decode},
    syntax::go_json_message,
};
use crate::{
    error::{ApiError, Reason, Subject},
    field::{FieldError, FieldPath, json_type_name},
    resource::Resource,
};

/// What kube-apiserver accepts: twice what etcd stores in one request.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// How much of an unreadable body is repeated in the error.
const SUMMARY_BYTES: usize = 30;

/// Reads a body of at most `MAX_BODY_BYTES`.
pub async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let name = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(ApiError::new(
            Reason::UnsupportedMediaType,
            format!("the body of the request has the content encoding {name:?}, which is not supported"),
        ));
    }
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::bad_request(format!(
            "the body of the request could not be read: {error}"
        ))),
    }
}

fn too_large() -> ApiError {
    ApiError::new(
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {MAX_BODY_BYTES}"),
    )
}

/// Decodes an object of a kind at a version. The result carries that `apiVersion` and `kind`.
pub fn decode_object(
    bytes: &[u8],
    format: Format,
    resource: &Resource,
    version: &str,
) -> Result<Decoded, ApiError> {
    let unrecognized = |why: &str| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            resource.kind,
            summary(bytes)
        ))
    };
    let mut decoded = decode(bytes, format).map_err(|error| match error {
        DecodeError::Json(why) => {
            unrecognized(&format!("couldn't get version/kind; json parse error: {why}"))
        }
        DecodeError::Yaml(why) => unrecognized(&format!("error converting YAML to JSON: yaml: {why}")),
    })?;
    if decoded.value.is_null() {
        decoded.value = Value::Object(serde_json::Map::new());
    }
    let expected = resource.api_version(version);
    let Value::Object(object) = &mut decoded.value else {
        let why = format!(
            "{TYPE_META_ERROR_START}{}{TYPE_META_ERROR_END}",
            json_type_name(&decoded.value)
        );
        return Err(unrecognized(&why));
    };
    let mut texts = [("apiVersion", String::new()), ("kind", String::new())];
    for (name, text) in &mut texts {
        match object.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::String(found)) => text.clone_from(found),
            Some(other) => {
                return Err(unrecognized(&format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{name} of type string",
                    json_type_name(other)
                )));
            }
        }
    }
    let [(_, api_version), (_, kind)] = texts;
    if kind.is_empty() && resource.is_custom() {
        let body = String::from_utf8_lossy(bytes).into_owned();
        return Err(unrecognized(&format!("Object 'Kind' is missing in '{body}'")));
    }
    if api_version != expected && (resource.is_custom() || !api_version.is_empty()) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        return Err(wrong_kind(&kind, resource, version, &decoded.value));
    }
    if let Value::Object(object) = &mut decoded.value {
        if api_version.is_empty() {
            object.insert("apiVersion".to_owned(), expected.into());
        }
        if kind.is_empty() {
            object.insert("kind".to_owned(), resource.kind.as_str().into());
        }
    }
    Ok(decoded)
}

/// What Go says about a body that is no object: its decoder reads the type into this anonymous struct first.
const TYPE_META_ERROR_START: &str = "couldn't get version/kind; json parse error: json: cannot unmarshal ";
const TYPE_META_ERROR_END: &str = " into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

pub(crate) fn wrong_kind(kind: &str, resource: &Resource, version: &str, value: &Value) -> ApiError {
    if resource.is_custom() {
        let subject = Subject {
            group: &resource.group,
            resource: &resource.plural,
            // Kubernetes names the kind that was sent.
            kind,
            name: value
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        };
        let why = format!("must be {}", resource.kind);
        return ApiError::invalid(subject, &[FieldError::invalid(FieldPath::new("kind"), kind, why)]);
    }
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: no kind {kind:?} is registered for version {:?}",
        resource.kind,
        resource.api_version(version)
    ))
}

/// The beginning of a body, as text if it looks like JSON and in hexadecimal otherwise.
fn summary(bytes: &[u8]) -> String {
    let start = bytes.get(..SUMMARY_BYTES).unwrap_or(bytes);
    let mut text = match start.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        }),
    };
    if start.len() < bytes.len() {
        text.push_str(" ...");
    }
    text
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{builtin::Builtin, testing};

    fn custom(body: &str) -> Result<Decoded, ApiError> {
        decode_object(body.as_bytes(), Format::Json, &testing::widget(), "v1")
    }

    fn builtin(body: &str) -> Result<Decoded, ApiError> {
        decode_object(
            body.as_bytes(),
            Format::Json,
            &testing::builtin("", "ConfigMap", Builtin::ConfigMap),
            "v1",
        )
    }

    #[test]
    fn built_in_objects_need_not_say_what_they_are() {
        for body in [
            "{}",
            "null",
            "{\"kind\":\"ConfigMap\"}",
            "{\"apiVersion\":\"v1\"}",
            "{\"kind\":\"\"}",
        ] {
            let value = builtin(body).unwrap().value;
            assert_eq!(
                (&value["apiVersion"], &value["kind"]),
                (&json!("v1"), &json!("ConfigMap")),
                "{body}"
            );
        }
        assert!(custom("{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\"}").is_ok());
    }

    #[test]
    fn unreadable_objects_are_refused_in_the_words_of_the_api_server() {
        let cases = [
            (
                builtin("{\"a\":"),
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\":)",
            ),
            (
                builtin(""),
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                builtin("nonsense that goes on and on and on"),
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365207468617420676f6573206f6e20616e64206f6e2061 ...)",
            ),
            (
                builtin("[]"),
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" } (5b5d)",
            ),
            (
                builtin("{\"kind\":3}"),
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":3})",
            ),
            (
                custom("{\"apiVersion\":\"example.com/v1\"}"),
                "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\"}' ({\"apiVersion\":\"example.com/v1\" ...)",
            ),
            (
                custom("{\"kind\":\"Widget\"}"),
                "the API version in the data () does not match the expected API version (example.com/v1)",
            ),
            (
                builtin("{\"apiVersion\":\"v2\",\"kind\":\"ConfigMap\"}"),
                "the API version in the data (v2) does not match the expected API version (v1)",
            ),
            (
                builtin("{\"apiVersion\":\"v1\",\"kind\":\"Nonsense\"}"),
                "Nonsense in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nonsense\" is registered for version \"v1\"",
            ),
        ];
        for (result, message) in cases {
            let error = result.unwrap_err();
            assert_eq!(
                (error.reason, error.message.as_str()),
                (Reason::BadRequest, message)
            );
        }
        let other =
            custom("{\"apiVersion\":\"example.com/v1\",\"kind\":\"Gadget\",\"metadata\":{\"name\":\"a\"}}");
        assert_eq!(
            other.unwrap_err().message,
            "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget"
        );
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        let none = HeaderMap::new();
        let exact = Bytes::from(vec![b' '; MAX_BODY_BYTES]);
        assert_eq!(read(&none, Full::new(exact.clone())).await, Ok(exact));
        let more = Full::new(Bytes::from(vec![b' '; MAX_BODY_BYTES + 1]));
        let error = read(&none, more).await.unwrap_err();
        assert_eq!(error.message, "Request entity too large: limit is 3145728");
        assert_eq!(error.code.as_u16(), 413);

        // A body that does not announce its length is stopped where the limit is.
        let chunk = Bytes::from(vec![b' '; 1024 * 1024]);
        let endless = StreamBody::new(futures::stream::repeat_with(move || {
            Ok::<_, std::io::Error>(Frame::data(chunk.clone()))
        }));
        assert_eq!(
            read(&none, endless).await.unwrap_err().reason,
            Reason::RequestEntityTooLarge
        );
    }

    #[tokio::test]
    async fn compressed_bodies_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        let error = read(&headers, Full::new(Bytes::new())).await.unwrap_err();
        assert_eq!(error.reason, Reason::UnsupportedMediaType);
        headers.insert(header::CONTENT_ENCODING, "identity".parse().unwrap());
        assert!(read(&headers, Full::new(Bytes::new())).await.is_ok());
    }

    proptest! {
        #[test]
        fn no_body_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}:,\"a\\\\ \n*&0-9.e+-]{0,64}") {
            let widget = testing::widget();
            for body in [bytes.as_slice(), text.as_bytes()] {
                for format in [Format::Json, Format::Yaml] {
                    let _ = decode_object(body, format, &widget, "v1");
                }
            }
        }
    }
}
