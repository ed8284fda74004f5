//! Which functions a rule may call: those that Kubernetes 1.35 offers and the interpreter knows.

use kube::core::cel::cel::common::ast::CallExpr;

/// What is to be said about a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// It can be evaluated, on a target if it has one.
    Known,
    /// It can be evaluated, and what looks like its target is the name of a library.
    KnownInLibrary,
    /// Kubernetes has it, but it would fail on every object here.
    NotSupported,
    /// Kubernetes does not have it.
    Unknown,
}

#[rustfmt::skip]
const PLAIN: [&str; 90] = [
    "add", "asApproximateFloat", "asInteger", "bytes", "charAt", "cidr", "compareTo", "contains",
    "containsCIDR", "containsIP", "distinct", "double", "duration", "dyn", "endsWith", "family", "find",
    "findAll", "first", "flatten", "format", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
    "getEscapedPath", "getFullYear", "getHost", "getHostname", "getHours", "getMilliseconds", "getMinutes",
    "getMonth", "getPort", "getQuery", "getScheme", "getSeconds", "hasValue", "indexOf", "int", "ip", "isCIDR",
    "isGlobalUnicast", "isGreaterThan", "isIP", "isInteger", "isLessThan", "isLinkLocalMulticast",
    "isLinkLocalUnicast", "isLoopback", "isQuantity", "isSemver", "isSorted", "isURL", "isUnspecified", "join",
    "last", "lastIndexOf", "lowerAscii", "major", "masked", "matches", "max", "min", "minor", "or", "orValue",
    "patch", "prefixLength", "quantity", "replace", "reverse", "semver", "sign", "size", "slice", "sort",
    "split", "startsWith", "string", "sub", "substring", "sum", "timestamp", "trim", "uint", "upperAscii",
    "url", "validate", "value",
];

/// Functions that are called as `library.function(…)`.
const IN_LIBRARIES: [(&str, &[&str]); 6] = [
    ("optional", &["none", "of", "ofNonZeroValue"]),
    ("sets", &["contains", "equivalent", "intersects"]),
    ("lists", &["range"]),
    ("strings", &["quote"]),
    ("ip", &["isCanonical"]),
    (
        "format",
        &[
            "byte",
            "date",
            "datetime",
            "dns1035Label",
            "dns1035LabelPrefix",
            "dns1123Label",
            "dns1123LabelPrefix",
            "dns1123Subdomain",
            "dns1123SubdomainPrefix",
            "labelValue",
            "named",
            "qualifiedName",
            "uri",
            "uuid",
        ],
    ),
];

const NOT_SUPPORTED: [&str; 10] = [
    "bool",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "type",
    "unwrap",
    "unwrapOpt",
];

/// Macros that also come with two variables. The parser expands those with one, so that calls by these names remain
/// only where there are two, or too few arguments.
const WITH_TWO_VARIABLES: [&str; 4] = ["all", "exists", "existsOne", "exists_one"];

/// Operators have names that no identifier has.
pub(super) fn is_operator(name: &str) -> bool {
    name.contains(|char: char| !char.is_ascii_alphanumeric() && !matches!(char, '_' | '.'))
}

/// What is to be said about a call that is no operator. `library` is the name before the dot, if it is a bare name that
/// stands for nothing else.
pub(super) fn standing(call: &CallExpr, library: Option<&str>) -> Standing {
    let name = call.func_name.as_str();
    if let Some(library) = library {
        let functions = IN_LIBRARIES
            .iter()
            .find(|(known, _)| *known == library)
            .map_or(&[][..], |(_, functions)| functions);
        return match name {
            _ if functions.contains(&name) => Standing::KnownInLibrary,
            "unwrap" => Standing::NotSupported,
            _ => Standing::Unknown,
        };
    }
    let has_two_variables = WITH_TWO_VARIABLES.contains(&name) && call.args.len() == 3;
    if PLAIN.contains(&name) {
        Standing::Known
    } else if has_two_variables || NOT_SUPPORTED.contains(&name) {
        Standing::NotSupported
    } else {
        Standing::Unknown
    }
}
