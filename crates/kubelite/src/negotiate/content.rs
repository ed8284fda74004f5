//! `Content-Type`: which form the body of a request has.

use http::{HeaderMap, header};

use super::{JSON, YAML};
use crate::{
    error::{ApiError, Reason},
    patch::PatchKind,
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How a body is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

/// The patches that built-in kinds take.
pub const BUILTIN_PATCHES: &[PatchKind] = &[
    PatchKind::Json,
    PatchKind::Merge,
    PatchKind::Strategic,
    PatchKind::Apply,
];
/// The patches that custom resources take: nothing says how to merge their lists strategically.
pub const CUSTOM_PATCHES: &[PatchKind] = &[PatchKind::Json, PatchKind::Merge, PatchKind::Apply];

fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// How the body of a create, update or delete is written. Only review kinds take protobuf.
pub fn body_format(headers: &HeaderMap, protobuf: bool) -> Result<BodyFormat, ApiError> {
    let media_type = content_type(headers);
    if media_type.is_empty() || media_type.eq_ignore_ascii_case(JSON) {
        Ok(BodyFormat::Json)
    } else if media_type.eq_ignore_ascii_case(YAML) {
        Ok(BodyFormat::Yaml)
    } else if protobuf && media_type.eq_ignore_ascii_case(PROTOBUF) {
        Ok(BodyFormat::Protobuf)
    } else if protobuf {
        Err(unsupported_media_type(&[JSON, YAML, PROTOBUF]))
    } else {
        Err(unsupported_media_type(&[JSON, YAML]))
    }
}

/// Which patch the body is, of those that the kind takes.
pub fn patch_type(headers: &HeaderMap, taken: &[PatchKind]) -> Result<PatchKind, ApiError> {
    let media_type = content_type(headers);
    taken
        .iter()
        .copied()
        .find(|patch| patch.media_type() == media_type)
        .ok_or_else(|| {
            let names: Vec<&str> = taken.iter().map(|patch| patch.media_type()).collect();
            unsupported_media_type(&names)
        })
}

fn unsupported_media_type(accepted: &[&str]) -> ApiError {
    ApiError::new(
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn bodies_are_json_or_yaml_and_reviews_also_protobuf() {
        let of = |value: &str, protobuf| body_format(&with(value), protobuf);
        assert_eq!(body_format(&HeaderMap::new(), false), Ok(BodyFormat::Json));
        assert_eq!(of("application/json; charset=utf-8", false), Ok(BodyFormat::Json));
        assert_eq!(of("application/yaml", false), Ok(BodyFormat::Yaml));
        assert_eq!(of(PROTOBUF, true), Ok(BodyFormat::Protobuf));
        let error = of(PROTOBUF, false).unwrap_err();
        assert_eq!(error.reason, Reason::UnsupportedMediaType);
        assert_eq!(
            error.message,
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
        );
        assert!(of("text/plain", true).unwrap_err().message.ends_with(PROTOBUF));
    }

    #[test]
    fn custom_resources_take_no_strategic_patch() {
        let of = |value: &str, taken| patch_type(&with(value), taken);
        for patch in BUILTIN_PATCHES {
            assert_eq!(of(patch.media_type(), BUILTIN_PATCHES), Ok(*patch));
        }
        assert_eq!(
            of("application/merge-patch+json; charset=utf-8", CUSTOM_PATCHES),
            Ok(PatchKind::Merge)
        );
        let expected = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        for refused in [
            "application/strategic-merge-patch+json",
            "application/apply-patch+cbor",
            "application/json",
            "",
        ] {
            assert_eq!(
                of(refused, CUSTOM_PATCHES).unwrap_err().message,
                expected,
                "{refused}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_content_type_panics(value in "[ -~]{0,80}") {
            let _ = body_format(&with(&value), true);
            let _ = patch_type(&with(&value), BUILTIN_PATCHES);
        }
    }
}
