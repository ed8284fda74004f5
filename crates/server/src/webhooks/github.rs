//! Deliveries of GitHub: the event `issues`.

use jangar_api::names::DnsLabel;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    Sender,
    issue::{BadPayload, Issue, News, Place, Version, address, described, labels},
    read,
};
use crate::refusal::shown;

/// The event that tells of an issue.
const ISSUES: &str = "issues";
/// The longest name of an owner or a repository; GitHub allows 100.
const PART_MAX_BYTES: usize = 128;

#[derive(Debug, Deserialize)]
struct Payload {
    action: String,
    issue: Told,
    repository: Repository,
}

#[derive(Debug, Deserialize)]
struct Told {
    number: u64,
    title: String,
    body: Option<String>,
    labels: Option<Vec<Label>>,
    html_url: Option<String>,
    updated_at: String,
    state: Option<String>,
    /// There only if the issue is a pull request.
    pull_request: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Label {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Repository {
    full_name: String,
}

/// What a delivery tells, by the event that its header names.
pub(super) fn news(event: &str, body: &[u8]) -> Result<News, BadPayload> {
    if !event.eq_ignore_ascii_case(ISSUES) {
        return Ok(News::Nothing(format!(
            "the event {event} tells nothing of issues"
        )));
    }
    let Payload {
        action,
        issue,
        repository,
    } = read(body)?;
    if issue.pull_request.is_some() {
        return Ok(News::Nothing("it is a pull request".to_owned()));
    }
    // What is closed or gone is no work. What was made of it stays: somebody may be at it.
    if matches!(action.as_str(), "closed" | "deleted" | "transferred") {
        return Ok(News::Nothing(format!("the issue was {action}")));
    }
    if let Some(state) = issue.state.as_deref().filter(|state| *state != "open") {
        return Ok(News::Nothing(format!("the issue is {}", shown(state))));
    }
    let Some((owner, name)) = repository.full_name.split_once('/').filter(legal) else {
        return Err(BadPayload::new("repository.full_name", "this is no `owner/name`"));
    };
    let (text, summary) = described(&issue.title, issue.body.as_deref())
        .ok_or_else(|| BadPayload::new("issue.title", "title and body are blank"))?;
    let number = issue.number;
    Ok(News::Issue(Box::new(Issue {
        sender: Sender::Github,
        external_id: format!("{owner}/{name}#{number}"),
        spec_name: DnsLabel::join(&format!("{owner}-{name}-{number}"), "impl").into(),
        text,
        summary,
        labels: labels(issue.labels.into_iter().flatten().map(|label| label.name)),
        url: address(issue.html_url),
        version: Version::parse(&issue.updated_at)
            .ok_or_else(|| BadPayload::new("issue.updated_at", "this is no time"))?,
        place: Place::Repository {
            owner: owner.to_owned(),
            name: name.to_owned(),
        },
    })))
}

fn legal((owner, name): &(&str, &str)) -> bool {
    let legal = |part: &str| {
        !part.is_empty()
            && part.len() <= PART_MAX_BYTES
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    legal(owner) && legal(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn payload(action: &str) -> Value {
        json!({
            "action": action,
            "issue": {
                "number": 7, "title": "Add two numbers", "body": "It should add.", "state": "open",
                "labels": [{"name": "agent", "color": "fff"}, {"name": "bug"}],
                "html_url": "https://github.com/Team/My.App/issues/7", "updated_at": "2026-03-01T12:00:00Z",
            },
            "repository": {"full_name": "Team/My.App", "private": true},
            "sender": {"login": "somebody"},
        })
    }

    fn told(payload: &Value) -> Result<News, BadPayload> {
        news("issues", payload.to_string().as_bytes())
    }

    fn issue(payload: &Value) -> Issue {
        match told(payload) {
            Ok(News::Issue(issue)) => *issue,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_issue_becomes_a_spec_with_a_name_of_its_own() {
        let issue = issue(&payload("opened"));
        assert_eq!(issue.spec_name, "team-my-app-7-impl");
        assert_eq!(issue.external_id, "Team/My.App#7");
        assert_eq!(issue.labels, ["agent", "bug"]);
        let spec = serde_json::to_value(issue.spec()).expect("JSON");
        assert_eq!(
            spec,
            json!({
                "text": "It should add.", "summary": "Add two numbers", "labels": ["agent", "bug"],
                "source": {"provider": "github", "externalId": "Team/My.App#7",
                           "url": "https://github.com/Team/My.App/issues/7"},
            })
        );
    }

    #[test]
    fn every_action_on_an_open_issue_tells_how_it_is() {
        for action in [
            "opened",
            "edited",
            "reopened",
            "labeled",
            "unlabeled",
            "pinned",
            "new-one",
        ] {
            assert!(matches!(told(&payload(action)), Ok(News::Issue(_))), "{action}");
        }
    }

    #[test]
    fn what_is_closed_or_gone_or_a_pull_request_is_no_news() {
        for action in ["closed", "deleted", "transferred"] {
            assert!(matches!(told(&payload(action)), Ok(News::Nothing(_))), "{action}");
        }
        let mut edited = payload("edited");
        edited["issue"]["state"] = json!("closed");
        assert_eq!(
            told(&edited),
            Ok(News::Nothing("the issue is `closed`".to_owned()))
        );
        let mut request = payload("opened");
        request["issue"]["pull_request"] = json!({"url": "x"});
        assert!(matches!(told(&request), Ok(News::Nothing(_))));
        assert!(matches!(news("ping", b"not even JSON"), Ok(News::Nothing(_))));
        assert!(matches!(news("issue_comment", b"{}"), Ok(News::Nothing(_))));
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_field() {
        let broken = |pointer: &str, value: Value| {
            let mut payload = payload("opened");
            *payload.pointer_mut(pointer).expect(pointer) = value;
            told(&payload).expect_err(pointer).field
        };
        assert_eq!(broken("/issue/number", json!("7")), "issue.number");
        assert_eq!(broken("/issue/labels/0", json!({})), "issue.labels[0]");
        assert_eq!(broken("/issue/updated_at", json!("soon")), "issue.updated_at");
        assert_eq!(
            broken("/repository/full_name", json!("a/../b")),
            "repository.full_name"
        );
        assert_eq!(
            broken("/repository/full_name", json!("app")),
            "repository.full_name"
        );
        let mut blank = payload("opened");
        blank["issue"]["title"] = json!(" ");
        blank["issue"]["body"] = Value::Null;
        assert_eq!(told(&blank).expect_err("blank").field, "issue.title");
        for body in [&b""[..], b"{", b"[]", b"\xff", b"{} {}"] {
            assert!(news("issues", body).is_err(), "{body:?}");
        }
    }
}
