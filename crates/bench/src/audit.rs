//! Who wrote what, by the audit log of the API server.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// One line of the log, as far as it is read here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<Object>,
    request_received_timestamp: Timestamp,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    resource: Option<String>,
    subresource: Option<String>,
    api_group: Option<String>,
}

/// The requests of one user that asked for a change, by verb and resource, whatever came of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    counts: BTreeMap<(String, String), usize>,
    /// When the API server got the last of each.
    last: BTreeMap<(String, String), Timestamp>,
}

#[derive(Debug, thiserror::Error)]
#[error("a line of the audit log cannot be read: {0}")]
pub struct AuditError(#[from] serde_json::Error);

impl Writes {
    /// Counts those of `user` in a further part of the log, which is made of whole lines.
    pub fn take(&mut self, lines: &str, user: &str) -> Result<(), AuditError> {
        // Most lines are about others, and need not be read.
        for line in lines.lines().filter(|line| line.contains(user)) {
            let line: Line = serde_json::from_str(line)?;
            if line.user.username != user || line.stage != "ResponseComplete" || !is_write(&line.verb) {
                continue;
            }
            let Some(object) = line.object_ref.filter(is_about_work) else {
                continue;
            };
            let resource = object.resource.unwrap_or_default();
            let resource = match object.subresource {
                Some(subresource) => format!("{resource}/{subresource}"),
                None => resource,
            };
            let kind = (line.verb, resource);
            let last = self.last.entry(kind.clone()).or_default();
            *last = line.request_received_timestamp.max(*last);
            *self.counts.entry(kind).or_default() += 1;
        }
        Ok(())
    }

    /// All but Events, which a controller may lose without harm.
    pub fn without_events(&self) -> usize {
        let counts = self.counts.iter();
        counts
            .filter(|((_, resource), _)| resource != "events")
            .map(|(_, count)| count)
            .sum()
    }

    pub fn events(&self) -> usize {
        self.total() - self.without_events()
    }

    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// When the API server got the last request of a kind.
    pub fn last(&self, verb: &str, resource: &str) -> Option<Timestamp> {
        self.last.get(&(verb.to_owned(), resource.to_owned())).copied()
    }

    /// What there is of each, such as `create pods`.
    pub fn by_kind(&self) -> impl Iterator<Item = (String, usize)> {
        let counts = self.counts.iter();
        counts.map(|((verb, resource), count)| (format!("{verb} {resource}"), *count))
    }
}

fn is_write(verb: &str) -> bool {
    matches!(
        verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    )
}

/// A Lease is renewed whether there is work or not, and a review asks what one may do.
fn is_about_work(object: &Object) -> bool {
    let review = object
        .api_group
        .as_deref()
        .is_some_and(|group| group.starts_with("auth"));
    !review && object.resource.as_deref() != Some("leases")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USER: &str = "system:serviceaccount:a:controller";

    fn line(user: &str, verb: &str, resource: &str, subresource: Option<&str>) -> String {
        line_at("2026-03-01T10:00:00.000000Z", user, verb, resource, subresource)
    }

    fn line_at(at: &str, user: &str, verb: &str, resource: &str, subresource: Option<&str>) -> String {
        let line = json!({
            "requestReceivedTimestamp": at,
            "kind": "Event", "level": "Metadata", "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
            "objectRef": {"resource": resource, "subresource": subresource, "namespace": "a"},
        });
        format!("{line}\n")
    }

    #[test]
    fn writes_are_counted_by_verb_and_resource() {
        let log = [
            line(USER, "create", "pods", None),
            line(USER, "patch", "agentruns", Some("status")),
            line(USER, "create", "events", None),
        ]
        .concat();

        let mut writes = Writes::default();
        writes.take(&log, USER).expect("a log");
        writes
            .take(&line(USER, "create", "pods", None), USER)
            .expect("more of it");

        let kinds: Vec<_> = writes.by_kind().collect();
        let expected = [
            ("create events", 1),
            ("create pods", 2),
            ("patch agentruns/status", 1),
        ];
        assert_eq!(kinds, expected.map(|(kind, count)| (kind.to_owned(), count)));
        assert_eq!(
            (writes.without_events(), writes.events(), writes.total()),
            (3, 1, 4)
        );
    }

    #[test]
    fn reads_leases_reviews_and_other_users_are_not_counted() {
        let review = json!({
            "stage": "ResponseComplete", "verb": "create", "user": {"username": USER},
            "requestReceivedTimestamp": "2026-03-01T10:00:00.000000Z",
            "objectRef": {"resource": "selfsubjectaccessreviews", "apiGroup": "authorization.k8s.io"},
        });
        let begun = json!({
            "stage": "ResponseStarted", "verb": "create", "user": {"username": USER}, "objectRef": {"resource": "pods"},
            "requestReceivedTimestamp": "2026-03-01T10:00:00.000000Z",
        });
        let log = [
            line(USER, "get", "pods", None),
            line(USER, "watch", "pods", None),
            line(USER, "update", "leases", None),
            line("system:serviceaccount:a:controller-2", "create", "pods", None),
            format!("{review}\n{begun}\n"),
        ]
        .concat();

        let mut writes = Writes::default();
        writes.take(&log, USER).expect("a log");

        assert_eq!(writes, Writes::default());
    }

    #[test]
    fn the_last_request_is_the_one_that_came_last_whatever_was_answered_first() {
        let at = |time: &str| line_at(time, USER, "delete", "jobs", None);
        let log = [
            at("2026-03-01T10:00:00.400000Z"),
            at("2026-03-01T10:00:00.250000Z"),
        ]
        .concat();

        let mut writes = Writes::default();
        writes.take(&log, USER).expect("a log");

        let last = writes.last("delete", "jobs").expect("a request");
        assert_eq!(last.to_string(), "2026-03-01T10:00:00.4Z");
        assert_eq!(writes.last("delete", "pods"), None);
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        let mut writes = Writes::default();

        writes
            .take(&format!("{USER} did something\n"), USER)
            .expect_err("no JSON");
    }
}
