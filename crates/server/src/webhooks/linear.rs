//! Deliveries of Linear: changes of the type `Issue`.

use std::time::Duration;

use jangar_api::names::DnsLabel;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Sender,
    issue::{BadPayload, Issue, News, Place, Version, address, described, labels},
    read,
};
use crate::refusal::shown;

/// How far the time of a delivery may be from ours: Linear itself advises a minute. It is part of what is signed, so that a
/// delivery that somebody recorded is worth nothing later.
const DRIFT_MAX: Duration = Duration::from_mins(1);
/// The type that tells of an issue.
const ISSUE: &str = "Issue";
/// The longest identifier: the key of a team and a number.
const IDENTIFIER_MAX_BYTES: usize = 64;

/// What every delivery has, whatever it tells of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    #[serde(rename = "type")]
    type_: String,
    action: Option<String>,
    /// In milliseconds.
    webhook_timestamp: Option<i64>,
    organization_id: Option<String>,
    url: Option<String>,
    data: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    identifier: String,
    title: String,
    description: Option<String>,
    labels: Option<Vec<Named>>,
    url: Option<String>,
    updated_at: String,
    team: Option<Team>,
    project: Option<Named>,
    state: Option<State>,
    archived_at: Option<String>,
    trashed: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Team {
    key: String,
}

#[derive(Debug, Deserialize)]
struct State {
    #[serde(rename = "type")]
    type_: String,
}

/// What a delivery tells, if it is of now.
pub(super) fn news(body: &[u8], now: Timestamp) -> Result<News, BadPayload> {
    let payload: Payload = read(body)?;
    is_of_now(payload.webhook_timestamp, now)?;
    if !payload.type_.eq_ignore_ascii_case(ISSUE) {
        let type_ = shown(&payload.type_);
        return Ok(News::Nothing(format!("the type {type_} tells nothing of issues")));
    }
    let action = payload.action.unwrap_or_default();
    if action.eq_ignore_ascii_case("remove") {
        return Ok(News::Nothing("the issue was removed".to_owned()));
    }
    let data = payload
        .data
        .ok_or_else(|| BadPayload::new("data", "it is missing"))?;
    let told: Told = serde_path_to_error::deserialize(data).map_err(|error| {
        let field = match error.path().to_string().as_str() {
            "." => "data".to_owned(),
            path => format!("data.{path}"),
        };
        BadPayload::new(field, error.inner().to_string())
    })?;
    if let Some(why) = over(&told) {
        return Ok(News::Nothing(why));
    }
    let identifier = told.identifier.trim().to_owned();
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if identifier.is_empty() || identifier.len() > IDENTIFIER_MAX_BYTES || !identifier.chars().all(legal) {
        return Err(BadPayload::new(
            "data.identifier",
            "this is no identifier of an issue, such as `ENG-7`",
        ));
    }
    let (text, summary) = described(&told.title, told.description.as_deref())
        .ok_or_else(|| BadPayload::new("data.title", "title and description are blank"))?;
    Ok(News::Issue(Box::new(Issue {
        sender: Sender::Linear,
        spec_name: DnsLabel::join(&format!("linear-{identifier}"), "impl").into(),
        external_id: identifier,
        text,
        summary,
        labels: labels(told.labels.into_iter().flatten().map(|label| label.name)),
        url: address(told.url.or(payload.url)),
        version: Version::parse(&told.updated_at)
            .ok_or_else(|| BadPayload::new("data.updatedAt", "this is no time"))?,
        place: Place::Workspace {
            organization: payload.organization_id,
            team: told.team.map(|team| team.key),
            project: told.project.map(|project| project.name),
        },
    })))
}

fn is_of_now(sent: Option<i64>, now: Timestamp) -> Result<(), BadPayload> {
    const FIELD: &str = "webhookTimestamp";
    let sent =
        sent.ok_or_else(|| BadPayload::new(FIELD, "it is missing, so that nobody knows how old this is"))?;
    let sent = Timestamp::from_millisecond(sent).map_err(|_| BadPayload::new(FIELD, "this is no time"))?;
    if now.duration_since(sent).unsigned_abs() > DRIFT_MAX {
        return Err(BadPayload::new(
            FIELD,
            format!(
                "the delivery is of {sent} and it is {now}: more than 60 s apart; have it sent again, or set the clock"
            ),
        ));
    }
    Ok(())
}

/// Why an issue is no work any more. What was made of it stays: somebody may be at it.
fn over(told: &Told) -> Option<String> {
    if told.archived_at.is_some() || told.trashed == Some(true) {
        return Some("the issue was archived or thrown away".to_owned());
    }
    let state = told.state.as_ref().map(|state| state.type_.as_str());
    state
        .filter(|state| matches!(*state, "completed" | "canceled"))
        .map(|state| format!("the issue is {state}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().expect("a time")
    }

    fn payload() -> Value {
        json!({
            "action": "update", "type": "Issue", "organizationId": "org-1", "webhookId": "w",
            "webhookTimestamp": now().as_millisecond(), "url": "https://linear.app/acme/issue/ENG-7",
            "data": {
                "id": "2b6e", "identifier": "ENG-7", "number": 7, "title": "Add two numbers",
                "description": "It should add.", "updatedAt": "2026-03-01T11:59:58.123Z",
                "labels": [{"id": "1", "name": "agent", "color": "#fff"}],
                "team": {"id": "t", "key": "ENG", "name": "Engineering"},
                "project": {"id": "p", "name": "Launch"}, "state": {"name": "Todo", "type": "unstarted"},
            },
        })
    }

    fn told(payload: &Value) -> Result<News, BadPayload> {
        news(payload.to_string().as_bytes(), now())
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut payload = payload();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        payload.pointer_mut(parent).expect(pointer)[field] = value;
        payload
    }

    #[test]
    fn an_issue_becomes_a_spec_with_a_name_of_its_own() {
        let Ok(News::Issue(issue)) = told(&payload()) else {
            panic!("{:?}", told(&payload()))
        };
        assert_eq!(issue.spec_name, "linear-eng-7-impl");
        assert_eq!(issue.external_id, "ENG-7");
        assert_eq!(issue.version.text, "2026-03-01T11:59:58.123Z");
        assert_eq!(issue.url.as_deref(), Some("https://linear.app/acme/issue/ENG-7"));
        assert_eq!(
            issue.place,
            Place::Workspace {
                organization: Some("org-1".to_owned()),
                team: Some("ENG".to_owned()),
                project: Some("Launch".to_owned()),
            }
        );
    }

    #[test]
    fn a_delivery_has_to_be_of_now() {
        let sent = |seconds: i64| {
            let at = now().as_millisecond() + seconds * 1_000;
            told(&with("/webhookTimestamp", json!(at))).is_ok()
        };
        assert!(sent(0) && sent(60) && sent(-60));
        assert!(!sent(61) && !sent(-61) && !sent(-86_400));
        let absent = told(&with("/webhookTimestamp", Value::Null)).expect_err("it is missing");
        assert_eq!(absent.field, "webhookTimestamp");
        let huge = told(&with("/webhookTimestamp", json!(i64::MAX))).expect_err("no time");
        assert_eq!(huge.field, "webhookTimestamp");
        // Nothing else is looked at before.
        let old = json!({"type": "Comment", "webhookTimestamp": 0});
        assert!(told(&old).is_err());
    }

    #[test]
    fn what_is_done_or_gone_or_no_issue_is_no_news() {
        for payload in [
            with("/action", json!("remove")),
            with("/type", json!("Comment")),
            with("/data/state/type", json!("completed")),
            with("/data/state/type", json!("canceled")),
            with("/data/archivedAt", json!("2026-03-01T11:00:00Z")),
            with("/data/trashed", json!(true)),
        ] {
            assert!(matches!(told(&payload), Ok(News::Nothing(_))), "{payload}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_field() {
        for (pointer, value) in [
            ("/data/identifier", json!("ENG/7")),
            ("/data/title", json!(5)),
            ("/data/updatedAt", json!("soon")),
            ("/data", Value::Null),
        ] {
            let field = told(&with(pointer, value)).expect_err(pointer).field;
            assert_eq!(format!("/{}", field.replace('.', "/")), pointer);
        }
    }
}
