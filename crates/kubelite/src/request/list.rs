//! Options of list and watch requests.

use std::{
    num::{IntErrorKind, NonZeroUsize},
    time::Duration,
};

use super::{ContinueToken, Query, query::parse_error};
use crate::{
    error::{ApiError, Subject},
    field::{FieldError, FieldPath, Problem},
};

/// Enough for some hundreds of `in (…)` values, small enough to parse in no time.
const MAX_SELECTOR_BYTES: usize = 32 * 1024;

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

/// Which state of the collection a list shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListFrom {
    /// The most recent state.
    Latest,
    /// Any state the server has at hand (`resourceVersion=0`).
    Any,
    /// This version or a later one.
    AtLeast(u64),
    Exact(u64),
    /// The next page of an earlier list.
    Continue(ContinueToken),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: Option<NonZeroUsize>,
    pub from: ListFrom,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchFrom {
    /// Every object as ADDED first, from a state at least this recent (`None`: any), then what follows. When bookmarks
    /// are allowed, one with the annotation `k8s.io/initial-events-end` closes the first part.
    State { at_least: Option<u64> },
    /// What happened after this version.
    After(u64),
    /// What happens from now on.
    Now,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub allow_bookmarks: bool,
    /// When the client wants the stream to end; `None` leaves it to the server.
    pub timeout: Option<Duration>,
    pub from: WatchFrom,
}

/// The parameters as they came, before their combination is checked.
struct Raw<'a> {
    resource_version: &'a str,
    version_match: &'a str,
    continues: &'a str,
    send_initial_events: Option<bool>,
}

impl<'a> Raw<'a> {
    fn read(query: &'a Query) -> Self {
        Self {
            resource_version: query.first("resourceVersion").unwrap_or_default(),
            version_match: query.first("resourceVersionMatch").unwrap_or_default(),
            continues: query.first("continue").unwrap_or_default(),
            send_initial_events: query.flag("sendInitialEvents"),
        }
    }
}

impl ListOptions {
    pub fn from_query(query: &Query) -> Result<Self, ApiError> {
        let limit = query
            .integer("limit")?
            .and_then(|limit| usize::try_from(limit).ok());
        query.integer("timeoutSeconds")?;
        let raw = Raw::read(query);
        refuse(&list_errors(&raw))?;
        let limit = limit.and_then(NonZeroUsize::new);
        Ok(Self {
            label_selector: selector(query, "labelSelector")?,
            field_selector: selector(query, "fieldSelector")?,
            from: list_from(&raw, limit.is_some())?,
            limit,
        })
    }
}

fn list_errors(raw: &Raw<'_>) -> Vec<FieldError> {
    let path = || FieldPath::new("resourceVersionMatch");
    let mut errors = Vec::new();
    let chosen = raw.version_match;
    if !chosen.is_empty() {
        if raw.resource_version.is_empty() {
            errors.push(FieldError::forbidden(
                path(),
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !raw.continues.is_empty() {
            errors.push(FieldError::forbidden(
                path(),
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if chosen != EXACT && chosen != NOT_OLDER_THAN {
            errors.push(unsupported(path(), chosen, &[EXACT, NOT_OLDER_THAN, ""]));
        }
        if chosen == EXACT && raw.resource_version == "0" {
            errors.push(FieldError::forbidden(
                path(),
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if raw.send_initial_events.is_some() {
        errors.push(FieldError::forbidden(
            FieldPath::new("sendInitialEvents"),
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

fn list_from(raw: &Raw<'_>, limited: bool) -> Result<ListFrom, ApiError> {
    if !raw.continues.is_empty() {
        let token = ContinueToken::decode(raw.continues)?;
        if !matches!(raw.resource_version, "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return Ok(ListFrom::Continue(token));
    }
    if raw.resource_version.is_empty() {
        return Ok(ListFrom::Latest);
    }
    let version = version(raw.resource_version)?;
    Ok(match (version, raw.version_match) {
        (0, _) => ListFrom::Any,
        (version, EXACT) => ListFrom::Exact(version),
        // Without a match rule, a version together with a limit has always meant exactly that version.
        (version, "") if limited => ListFrom::Exact(version),
        (version, _) => ListFrom::AtLeast(version),
    })
}

impl WatchOptions {
    pub fn from_query(query: &Query) -> Result<Self, ApiError> {
        query.integer("limit")?;
        let timeout = match query.integer("timeoutSeconds")? {
            None | Some(0) => None,
            // A negative time has passed already: the stream ends at once.
            Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())),
        };
        let mut raw = Raw::read(query);
        let from_scratch = matches!(raw.resource_version, "" | "0");
        if raw.send_initial_events.is_none() && raw.version_match.is_empty() && from_scratch {
            // Such a watch has always begun with the state; since watch lists exist it also says where the state ends.
            raw.send_initial_events = Some(true);
            raw.version_match = NOT_OLDER_THAN;
        }
        refuse(&watch_errors(&raw))?;
        let version = version(raw.resource_version)?;
        let from = match (raw.send_initial_events, version) {
            (Some(true), version) => WatchFrom::State {
                at_least: (version > 0).then_some(version),
            },
            (_, 0) => WatchFrom::Now,
            (_, version) => WatchFrom::After(version),
        };
        Ok(Self {
            label_selector: selector(query, "labelSelector")?,
            field_selector: selector(query, "fieldSelector")?,
            allow_bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            timeout,
            from,
        })
    }
}

fn watch_errors(raw: &Raw<'_>) -> Vec<FieldError> {
    let path = || FieldPath::new("resourceVersionMatch");
    let mut errors = Vec::new();
    let chosen = raw.version_match;
    if raw.send_initial_events.is_some() && chosen != NOT_OLDER_THAN {
        errors.push(FieldError::forbidden(
            path(),
            format!("sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"),
        ));
    }
    if !chosen.is_empty() {
        if raw.send_initial_events.is_none() {
            errors.push(FieldError::forbidden(
                path(),
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if chosen != NOT_OLDER_THAN {
            errors.push(unsupported(path(), chosen, &[NOT_OLDER_THAN]));
        }
        if !raw.continues.is_empty() {
            errors.push(FieldError::forbidden(
                path(),
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    errors
}

/// The version that a get must at least show (`resourceVersion` of `GetOptions`).
pub fn minimum_version(query: &Query) -> Result<Option<u64>, ApiError> {
    let version = version(query.first("resourceVersion").unwrap_or_default())?;
    Ok((version > 0).then_some(version))
}

/// A version as the client gave it; an empty one is 0, which asks for nothing in particular.
fn version(text: &str) -> Result<u64, ApiError> {
    if text.is_empty() {
        return Ok(0);
    }
    let why = match text.parse() {
        // Rust takes a leading plus sign for part of a number, strconv.ParseUint does not.
        Ok(version) if !text.starts_with('+') => return Ok(version),
        Ok(_) => parse_error("ParseUint", text, IntErrorKind::InvalidDigit),
        Err(error) => parse_error("ParseUint", text, *error.kind()),
    };
    let error = FieldError::invalid(FieldPath::new("resourceVersion"), text, why);
    Err(ApiError::bad_request(format!(
        "invalid resource version: {error}"
    )))
}

fn selector(query: &Query, name: &str) -> Result<String, ApiError> {
    let text = query.first(name).unwrap_or_default();
    if text.len() > MAX_SELECTOR_BYTES {
        return Err(ApiError::bad_request(format!(
            "{name} is longer than {MAX_SELECTOR_BYTES} bytes"
        )));
    }
    Ok(text.to_owned())
}

fn unsupported(path: FieldPath, value: &str, allowed: &[&str]) -> FieldError {
    let allowed = allowed.iter().map(ToString::to_string).collect();
    FieldError::new(path, Problem::NotSupported(value.into(), allowed), "")
}

fn refuse(errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: "meta.k8s.io",
        resource: "",
        kind: "ListOptions",
        name: "",
    };
    Err(ApiError::invalid(subject, errors))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use proptest::prelude::*;

    use super::*;

    fn list(query: &str) -> Result<ListOptions, ApiError> {
        ListOptions::from_query(&Query::parse(Some(query)).unwrap())
    }

    fn watch(query: &str) -> Result<WatchOptions, ApiError> {
        WatchOptions::from_query(&Query::parse(Some(query)).unwrap())
    }

    #[test]
    fn a_list_starts_where_its_version_and_match_say() {
        let token = ContinueToken::after(5, "a/b");
        let continued = format!("continue={}&limit=2", token.encode());
        let cases = [
            ("", ListFrom::Latest),
            ("limit=5", ListFrom::Latest),
            ("resourceVersion=0", ListFrom::Any),
            (
                "resourceVersion=0&resourceVersionMatch=NotOlderThan",
                ListFrom::Any,
            ),
            ("resourceVersion=7", ListFrom::AtLeast(7)),
            ("resourceVersion=7&limit=5", ListFrom::Exact(7)),
            (
                "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan",
                ListFrom::AtLeast(7),
            ),
            ("resourceVersion=7&resourceVersionMatch=Exact", ListFrom::Exact(7)),
            (&continued, ListFrom::Continue(token)),
        ];
        for (query, expected) in cases {
            assert_eq!(list(query).map(|options| options.from), Ok(expected), "{query}");
        }
        assert_eq!(list("limit=-1").unwrap().limit, None);
        assert_eq!(
            list("limit=500&labelSelector=a%3Db").unwrap().label_selector,
            "a=b"
        );
    }

    #[test]
    fn contradictory_list_options_are_invalid() {
        let cases = [
            (
                "resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Newer",
                "resourceVersionMatch: Unsupported value: \"Newer\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
            (
                "sendInitialEvents=true",
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
        ];
        for (query, why) in cases {
            let error = list(query).unwrap_err();
            assert_eq!(error.code, StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!(
                error.message,
                format!("ListOptions.meta.k8s.io \"\" is invalid: {why}")
            );
        }
    }

    #[test]
    fn malformed_list_options_are_bad_requests() {
        let cases = [
            ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                "resourceVersion=abc",
                "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
            ),
            (
                "resourceVersion=%2B7",
                "invalid resource version: resourceVersion: Invalid value: \"+7\": strconv.ParseUint: parsing \"+7\": invalid syntax",
            ),
            (
                "resourceVersion=99999999999999999999",
                "invalid resource version: resourceVersion: Invalid value: \"99999999999999999999\": strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "continue=%21",
                "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
            ),
        ];
        for (query, message) in cases {
            let error = list(query).unwrap_err();
            assert_eq!(
                (error.code, error.message.as_str()),
                (StatusCode::BAD_REQUEST, message)
            );
        }
        let token = ContinueToken::after(5, "a").encode();
        assert_eq!(
            list(&format!("continue={token}&resourceVersion=3"))
                .unwrap_err()
                .message,
            "specifying resource version is not allowed when using continue"
        );
        assert!(list(&format!("labelSelector={}", "a".repeat(MAX_SELECTOR_BYTES + 1))).is_err());
    }

    #[test]
    fn a_watch_starts_where_its_version_says() {
        let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let silent = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let cases = [
            (String::new(), WatchFrom::State { at_least: None }),
            (
                "resourceVersion=0".to_owned(),
                WatchFrom::State { at_least: None },
            ),
            ("resourceVersion=9".to_owned(), WatchFrom::After(9)),
            (initial.to_owned(), WatchFrom::State { at_least: None }),
            (
                format!("{initial}&resourceVersion=9"),
                WatchFrom::State { at_least: Some(9) },
            ),
            (silent.to_owned(), WatchFrom::Now),
            (format!("{silent}&resourceVersion=9"), WatchFrom::After(9)),
        ];
        for (query, expected) in cases {
            assert_eq!(watch(&query).map(|options| options.from), Ok(expected), "{query}");
        }
        let options = watch("timeoutSeconds=30&allowWatchBookmarks=true").unwrap();
        assert_eq!(
            (options.timeout, options.allow_bookmarks),
            (Some(Duration::from_secs(30)), true)
        );
        assert_eq!(watch("timeoutSeconds=0").unwrap().timeout, None);
        assert_eq!(watch("timeoutSeconds=-1").unwrap().timeout, Some(Duration::ZERO));
    }

    #[test]
    fn contradictory_watch_options_are_invalid() {
        let cases = [
            (
                "resourceVersion=1&sendInitialEvents=true",
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Exact&sendInitialEvents=true",
                "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
            ),
        ];
        for (query, why) in cases {
            let message = watch(query).unwrap_err().message;
            assert_eq!(message, format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
        }
    }

    #[test]
    fn a_get_may_ask_for_a_minimum_version() {
        let minimum = |query| minimum_version(&Query::parse(Some(query)).unwrap());
        assert_eq!(minimum(""), Ok(None));
        assert_eq!(minimum("resourceVersion=0"), Ok(None));
        assert_eq!(minimum("resourceVersion=12"), Ok(Some(12)));
        assert!(minimum("resourceVersion=x").is_err());
    }

    proptest! {
        #[test]
        fn no_options_panic(
            version in "[0-9+-]{0,21}", chosen in "(Exact|NotOlderThan|x)?", limit in "-?[0-9]{0,20}", rest in "\\PC{0,20}",
        ) {
            let query = format!(
                "resourceVersion={version}&resourceVersionMatch={chosen}&limit={limit}&continue={rest}&labelSelector={rest}&timeoutSeconds={limit}"
            );
            let _ = list(&query);
            let _ = watch(&query);
        }
    }
}
