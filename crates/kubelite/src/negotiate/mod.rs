//! Which form an answer takes (`Accept`) and which form a body has (`Content-Type`).
//!
//! The server speaks JSON and YAML. Protobuf is understood only in the bodies of review requests, because kubectl
//! sends those in no other form.

mod content;

use http::{HeaderMap, header};
use serde::Serialize;

pub use self::content::{BUILTIN_PATCHES, BodyFormat, CUSTOM_PATCHES, body_format, patch_type};
use crate::{
    error::{ApiError, Reason},
    request::Query,
};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// Clients offer a handful of media types; the rest of a longer header is not read.
const MAX_CLAUSES: usize = 32;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoding {
    Json,
    /// JSON for people: indented.
    PrettyJson,
    Yaml,
}

impl Encoding {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::PrettyJson => JSON,
            Self::Yaml => YAML,
        }
    }

    /// Writes a value. JSON ends with a newline, as Go's encoder writes it.
    pub fn encode(self, value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
        let mut bytes = match self {
            Self::Json => serde_json::to_vec(value).map_err(ApiError::internal)?,
            Self::PrettyJson => serde_json::to_vec_pretty(value).map_err(ApiError::internal)?,
            Self::Yaml => {
                return Ok(serde_saphyr::to_string(value)
                    .map_err(ApiError::internal)?
                    .into_bytes());
            }
        };
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The version of `meta.k8s.io` in which a table or metadata is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum MetaVersion {
    V1,
    V1beta1,
}

impl MetaVersion {
    /// The `apiVersion` of the answer.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What objects are turned into before they are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// Themselves.
    Object,
    Table(MetaVersion),
    PartialObjectMetadata(MetaVersion),
    PartialObjectMetadataList(MetaVersion),
}

/// The agreed form of an answer with objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    pub encoding: Encoding,
    pub shape: Shape,
}

/// The version of `apidiscovery.k8s.io`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum DiscoveryVersion {
    V2,
    V2beta1,
}

/// The agreed form of `/api` and `/apis`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Discovery {
    /// Groups only; each group version is asked for on its own.
    Legacy(Encoding),
    /// Everything in one document.
    Aggregated(DiscoveryVersion, Encoding),
}

impl Discovery {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Legacy(encoding) => encoding.content_type(),
            Self::Aggregated(DiscoveryVersion::V2, Encoding::Json | Encoding::PrettyJson) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Aggregated(DiscoveryVersion::V2beta1, Encoding::Json | Encoding::PrettyJson) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            Self::Aggregated(DiscoveryVersion::V2, Encoding::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Aggregated(DiscoveryVersion::V2beta1, Encoding::Yaml) => {
                "application/yaml;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    pub fn encoding(self) -> Encoding {
        match self {
            Self::Legacy(encoding) | Self::Aggregated(_, encoding) => encoding,
        }
    }
}

/// One media range of an `Accept` header.
#[derive(Debug, Default)]
struct Clause<'a> {
    type_: &'a str,
    subtype: &'a str,
    quality: f32,
    /// `as`, `g` and `v`, if any of them is given.
    convert: Option<Convert<'a>>,
    pretty: bool,
    /// `stream` other than `watch`, or `sv`: nothing this server has.
    impossible: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Convert<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let range = parts.next()?.trim();
        let (type_, subtype) = match range.split_once('/') {
            Some((type_, subtype)) if !subtype.is_empty() && !subtype.contains('/') => {
                (type_.trim(), subtype.trim())
            }
            None if range == "*" => ("*", "*"),
            _ => return None,
        };
        let mut clause = Self {
            type_,
            subtype,
            quality: 1.0,
            ..Self::default()
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim();
            match name.trim() {
                "q" => clause.quality = value.parse().unwrap_or_default(),
                "as" => clause.convert.get_or_insert_default().kind = value,
                "g" => clause.convert.get_or_insert_default().group = value,
                "v" => clause.convert.get_or_insert_default().version = value,
                "pretty" => clause.pretty = value == "1",
                "stream" => clause.impossible |= !matches!(value, "" | "watch"),
                "sv" => clause.impossible |= !value.is_empty(),
                _ => {}
            }
        }
        Some(clause)
    }

    /// The encodings that this range allows, the preferred one first.
    fn encodings(&self) -> &'static [Encoding] {
        match (self.type_, self.subtype) {
            _ if self.impossible => &[],
            ("*" | "application", "*") if self.pretty => &[Encoding::PrettyJson, Encoding::Yaml],
            ("*" | "application", "*") => &[Encoding::Json, Encoding::Yaml],
            ("application", "json") if self.pretty => &[Encoding::PrettyJson],
            ("application", "json") => &[Encoding::Json],
            ("application", "yaml") => &[Encoding::Yaml],
            _ => &[],
        }
    }

    fn specificity(&self) -> u8 {
        u8::from(self.type_ != "*") + u8::from(self.subtype != "*")
    }
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if accept.is_empty() {
        return vec![Clause {
            type_: "*",
            subtype: "*",
            quality: 1.0,
            ..Clause::default()
        }];
    }
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .take(MAX_CLAUSES)
        .filter_map(Clause::parse)
        .collect();
    clauses.sort_by(|a, b| {
        b.quality
            .total_cmp(&a.quality)
            .then(b.specificity().cmp(&a.specificity()))
    });
    clauses
}

/// The form of an answer with objects. The first range that the server can satisfy wins.
pub fn resource(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    choose(headers, |clause| match clause.convert {
        None => Some(Shape::Object),
        Some(Convert {
            kind,
            group: "meta.k8s.io",
            version,
        }) => {
            let version = version.parse().ok()?;
            match kind {
                "Table" => Some(Shape::Table(version)),
                "PartialObjectMetadata" => Some(Shape::PartialObjectMetadata(version)),
                "PartialObjectMetadataList" => Some(Shape::PartialObjectMetadataList(version)),
                _ => None,
            }
        }
        Some(_) => None,
    })
    .map(|(encoding, shape)| Accepted { encoding, shape })
    .ok_or_else(|| not_acceptable(&[JSON, YAML]))
}

/// The form of a watch: one JSON document per line, whatever their shape.
pub fn watch(headers: &HeaderMap) -> Result<Shape, ApiError> {
    match resource(headers) {
        Ok(Accepted {
            encoding: Encoding::Json | Encoding::PrettyJson,
            shape,
        }) => Ok(shape),
        Ok(Accepted {
            encoding: Encoding::Yaml,
            ..
        })
        | Err(_) => Err(not_acceptable(&["application/json;stream=watch"])),
    }
}

/// The form of an answer that is not made of objects: discovery below the roots, OpenAPI, `Status`.
pub fn plain(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    choose(headers, |clause| clause.convert.is_none().then_some(()))
        .map(|(encoding, ())| encoding)
        .ok_or_else(|| not_acceptable(&[JSON, YAML]))
}

/// The form of `/api` and `/apis`.
pub fn discovery(headers: &HeaderMap) -> Result<Discovery, ApiError> {
    let aggregated = choose(headers, |clause| match clause.convert {
        Some(Convert {
            kind: "APIGroupDiscoveryList",
            group: "apidiscovery.k8s.io",
            version,
        }) => version.parse::<DiscoveryVersion>().ok(),
        _ => None,
    });
    match aggregated {
        Some((encoding, version)) => Ok(Discovery::Aggregated(version, encoding)),
        None => plain(headers).map(Discovery::Legacy),
    }
}

/// The encoding of an error, which must reach the client whatever it accepts.
pub fn error_encoding(headers: &HeaderMap) -> Encoding {
    resource(headers).map_or(Encoding::Json, |accepted| accepted.encoding)
}

fn choose<T>(headers: &HeaderMap, allow: impl Fn(&Clause<'_>) -> Option<T>) -> Option<(Encoding, T)> {
    clauses(headers).iter().find_map(|clause| {
        let encoding = clause.encodings().first()?;
        allow(clause).map(|found| (*encoding, found))
    })
}

fn not_acceptable(offered: &[&str]) -> ApiError {
    ApiError::new(
        Reason::NotAcceptable,
        format!(
            "only the following media types are accepted: {}",
            offered.join(", ")
        ),
    )
}

/// Whether an answer is for a person's eyes: `pretty` in the query, or a tool that prints what it gets.
pub fn wants_pretty(query: &Query, headers: &HeaderMap) -> bool {
    if let Some(pretty) = query.first("pretty").filter(|value| !value.is_empty()) {
        return matches!(pretty, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|prefix| agent.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn accept(value: &str) -> HeaderMap {
        with(header::ACCEPT, value)
    }

    #[test]
    fn the_first_range_that_can_be_served_wins() {
        use Encoding::{Json, PrettyJson, Yaml};
        let table = Shape::Table(MetaVersion::V1);
        let cases = [
            ("application/json", Json, Shape::Object),
            ("application/yaml", Yaml, Shape::Object),
            ("*/*", Json, Shape::Object),
            ("*", Json, Shape::Object),
            ("application/*", Json, Shape::Object),
            ("application/json;pretty=1", PrettyJson, Shape::Object),
            ("application/json;stream=watch", Json, Shape::Object),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Json,
                Shape::Object,
            ),
            ("application/vnd.kubernetes.protobuf, */*", Json, Shape::Object),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Json,
                table,
            ),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Yaml, table),
            (
                "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
                Json,
                Shape::Object,
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Json,
                Shape::Table(MetaVersion::V1beta1),
            ),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Json,
                Shape::PartialObjectMetadata(MetaVersion::V1),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Json,
                Shape::PartialObjectMetadataList(MetaVersion::V1),
            ),
            (
                "application/json;q=0.5, application/yaml;q=0.9",
                Yaml,
                Shape::Object,
            ),
            ("*/*, application/yaml", Yaml, Shape::Object),
        ];
        for (header, encoding, shape) in cases {
            assert_eq!(
                resource(&accept(header)),
                Ok(Accepted { encoding, shape }),
                "{header}"
            );
        }
        assert_eq!(
            resource(&HeaderMap::new()),
            Ok(Accepted {
                encoding: Json,
                shape: Shape::Object
            })
        );
    }

    #[test]
    fn what_cannot_be_served_is_not_acceptable() {
        for header in [
            "application/vnd.kubernetes.protobuf",
            "text/html",
            "application/json;as=Nonsense;v=v1;g=meta.k8s.io",
            "application/json;as=Table;v=v1;g=example.com",
            "application/json;stream=other",
            "nonsense",
        ] {
            let error = resource(&accept(header)).unwrap_err();
            assert_eq!(error.reason, Reason::NotAcceptable, "{header}");
            assert_eq!(
                error.message,
                "only the following media types are accepted: application/json, application/yaml"
            );
        }
        assert_eq!(
            watch(&accept("application/yaml")).unwrap_err().message,
            "only the following media types are accepted: application/json;stream=watch"
        );
        assert_eq!(error_encoding(&accept("text/html")), Encoding::Json);
    }

    #[test]
    fn discovery_is_aggregated_for_those_who_ask() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        let v2 = discovery(&accept(kubectl)).unwrap();
        assert_eq!(v2, Discovery::Aggregated(DiscoveryVersion::V2, Encoding::Json));
        assert_eq!(
            v2.content_type(),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList;profile=nopeer";
        assert_eq!(
            discovery(&accept(beta)),
            Ok(Discovery::Aggregated(DiscoveryVersion::V2beta1, Encoding::Json))
        );
        let newer = "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(&accept(newer)), Ok(Discovery::Legacy(Encoding::Json)));
        assert_eq!(discovery(&accept("*/*")), Ok(Discovery::Legacy(Encoding::Json)));
        assert!(discovery(&accept("text/html")).is_err());
    }

    #[test]
    fn people_get_indented_json() {
        let query = |text| Query::parse(Some(text)).unwrap();
        let agent = |text| with(header::USER_AGENT, text);
        assert!(wants_pretty(&query(""), &agent("curl/8.5.0")));
        assert!(!wants_pretty(&query(""), &agent("kubectl/v1.35.8")));
        assert!(wants_pretty(&query("pretty=true"), &agent("kubectl/v1.35.8")));
        assert!(!wants_pretty(&query("pretty=false"), &agent("curl/8.5.0")));
    }

    #[test]
    fn yaml_reads_back_as_what_was_written() {
        let value = json!({
            "a": ["yes", "no", "on", "1e3", "0644", "0x1f", "null", "~", "", " padded ", "a: b", "#x", "true", "2001-01-01"],
            "b": { "multi": "line one\nline two\n", "n": 1, "f": 1.5, "t": true, "z": null, "e": {}, "l": [] },
        });
        let bytes = Encoding::Yaml.encode(&value).unwrap();
        let back: Value = serde_saphyr::from_slice(&bytes).unwrap();
        assert_eq!(back, value, "{}", String::from_utf8_lossy(&bytes));
        assert_eq!(Encoding::Json.encode(&json!({ "a": 1 })).unwrap(), b"{\"a\":1}\n");
    }

    proptest! {
        #[test]
        fn no_header_panics(value in "[ -~]{0,80}") {
            let headers = accept(&value);
            let _ = (resource(&headers), watch(&headers), discovery(&headers), plain(&headers));
        }
    }
}
