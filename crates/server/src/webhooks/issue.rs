//! An issue, whoever sent it: what becomes of it, and which sources take it in.

use jangar_api::agents::{
    implementation_source::{ImplementationSourceSpec, SourceProvider, SourceScope},
    implementation_spec::{ImplementationSpecSpec, Origin, OriginProvider},
};
use jiff::Timestamp;
use thiserror::Error;

use super::Sender;

/// The most characters of a text: the schema of ImplementationSpec takes no more.
const TEXT_MAX: usize = 131_072;
/// The most characters of a summary, for the same reason.
const SUMMARY_MAX: usize = 256;
/// The most labels that are taken over; GitHub has no more on an issue.
const LABELS_MAX: usize = 100;
/// The most characters of a label, of which forges allow fewer.
const LABEL_MAX: usize = 256;
/// The longest address of an issue that is taken over.
const URL_MAX_BYTES: usize = 2_048;
/// The longest time that anybody writes.
const VERSION_MAX_BYTES: usize = 64;

/// A delivery, signed by who may send it, that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {wrong}")]
pub(crate) struct BadPayload {
    pub(crate) field: String,
    pub(crate) wrong: String,
}

impl BadPayload {
    pub(super) fn new(field: impl Into<String>, wrong: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            wrong: wrong.into(),
        }
    }
}

/// What a delivery tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// How an issue is now.
    Issue(Box<Issue>),
    /// Nothing that an ImplementationSpec is made from, and why.
    Nothing(String),
}

/// When the sender changed the issue last, as the sender wrote it. Later ones take the place of earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) text: String,
    at: Timestamp,
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > VERSION_MAX_BYTES {
            return None;
        }
        Some(Self {
            at: text.parse().ok()?,
            text: text.to_owned(),
        })
    }

    /// Whether this one is later. Two of the same moment are taken in the order in which they come: GitHub counts whole seconds.
    pub(crate) fn is_later_than(&self, other: &Self) -> bool {
        self.at > other.at
    }
}

/// Where an issue is, as scopes name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Repository {
        owner: String,
        name: String,
    },
    Workspace {
        organization: Option<String>,
        team: Option<String>,
        project: Option<String>,
    },
}

/// An issue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    pub(crate) sender: Sender,
    /// Its id there, such as `owner/repository#7` or `ENG-7`.
    pub(crate) external_id: String,
    /// The name of the ImplementationSpec that it becomes.
    pub(crate) spec_name: String,
    pub(crate) text: String,
    pub(crate) summary: String,
    pub(crate) labels: Vec<String>,
    pub(crate) url: Option<String>,
    pub(crate) version: Version,
    pub(crate) place: Place,
}

impl Issue {
    /// What is to be done, as the ImplementationSpec says it.
    pub(crate) fn spec(&self) -> ImplementationSpecSpec {
        ImplementationSpecSpec {
            text: self.text.clone(),
            summary: Some(self.summary.clone()),
            labels: self.labels.clone(),
            source: Some(Origin {
                provider: self.provider(),
                external_id: Some(self.external_id.clone()),
                url: self.url.clone(),
            }),
            ..ImplementationSpecSpec::default()
        }
    }

    pub(crate) fn provider(&self) -> OriginProvider {
        match self.sender {
            Sender::Github => OriginProvider::Github,
            Sender::Linear => OriginProvider::Linear,
        }
    }
}

/// Title and body as text and summary. An issue without a body is described by its title.
pub(super) fn described(title: &str, body: Option<&str>) -> Option<(String, String)> {
    let title = title.trim();
    let body = body.map(str::trim).unwrap_or_default();
    let text = if body.is_empty() { title } else { body };
    let line = title.lines().next().unwrap_or_default();
    let line = if line.is_empty() {
        text.lines().next().unwrap_or_default()
    } else {
        line
    };
    (!text.is_empty()).then(|| (cut(text, TEXT_MAX), cut(line, SUMMARY_MAX)))
}

/// The names of labels, without repetition.
pub(super) fn labels(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for name in names {
        let name = cut(name.trim(), LABEL_MAX);
        if !name.is_empty() && labels.len() < LABELS_MAX && !labels.contains(&name) {
            labels.push(name);
        }
    }
    labels
}

/// The address of an issue, if it is one that anybody could open.
pub(super) fn address(url: Option<String>) -> Option<String> {
    url.filter(|url| !url.trim().is_empty() && url.len() <= URL_MAX_BYTES)
}

/// A text of at most so many characters. One that was longer ends with an ellipsis.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Whether a source takes deliveries of this sender at all.
pub(super) fn listens(spec: &ImplementationSourceSpec, sender: Sender) -> bool {
    let same = match (&spec.provider, sender) {
        (SourceProvider::Github, Sender::Github) | (SourceProvider::Linear, Sender::Linear) => true,
        (SourceProvider::Github | SourceProvider::Linear | SourceProvider::Other(_), _) => false,
    };
    same && spec.webhook.as_ref().is_some_and(|webhook| webhook.enabled)
}

/// What of a scope no delivery of this sender can ever be held against. Whoever set it wanted less than everything, so that such
/// a source takes nothing.
pub(super) fn unusable(spec: &ImplementationSourceSpec, sender: Sender) -> Option<String> {
    let scope = spec.scope.clone().unwrap_or_default();
    let foreign = match sender {
        Sender::Github => vec![
            ("team", scope.team),
            ("project", scope.project),
            ("query", scope.query),
        ],
        Sender::Linear => vec![("repository", scope.repository), ("query", scope.query)],
    };
    let set = foreign
        .into_iter()
        .find(|(_, value)| given(value.as_ref()).is_some());
    set.map(|(field, _)| {
        format!(
            "spec.scope.{field} says nothing about a delivery of {}: take it out, or name {}",
            sender.name(),
            match sender {
                Sender::Github => "repository, organization or labels",
                Sender::Linear => "team, project, organization or labels",
            }
        )
    })
}

/// Whether a scope takes in an issue: all that it sets has to hold.
pub(super) fn takes(scope: Option<&SourceScope>, issue: &Issue) -> bool {
    let Some(scope) = scope else { return true };
    let same = |wanted: &Option<String>, found: Option<&str>| match given(wanted.as_ref()) {
        None => true,
        Some(wanted) => found.is_some_and(|found| found.eq_ignore_ascii_case(wanted)),
    };
    let placed = match &issue.place {
        Place::Repository { owner, name } => {
            let whole = format!("{owner}/{name}");
            same(&scope.repository, Some(&whole)) && same(&scope.organization, Some(owner))
        }
        Place::Workspace {
            organization,
            team,
            project,
        } => {
            same(&scope.organization, organization.as_deref())
                && same(&scope.team, team.as_deref())
                && same(&scope.project, project.as_deref())
        }
    };
    let labelled = scope.labels.iter().all(|wanted| {
        let wanted = wanted.trim().to_lowercase();
        wanted.is_empty() || issue.labels.iter().any(|label| label.to_lowercase() == wanted)
    });
    placed && labelled
}

/// A blank value counts as none.
fn given(value: Option<&String>) -> Option<&str> {
    value
        .map(String::as_str)
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn source(provider: &str, scope: &Value) -> ImplementationSourceSpec {
        serde_json::from_value(json!({
            "provider": provider, "auth": {"secretRef": {"name": "s"}}, "scope": scope, "webhook": {"enabled": true},
        }))
        .expect("a source")
    }

    fn issue(place: Place, names: &[&str]) -> Issue {
        Issue {
            sender: Sender::Github,
            external_id: "o/r#1".to_owned(),
            spec_name: "o-r-1-impl".to_owned(),
            text: "t".to_owned(),
            summary: "s".to_owned(),
            labels: names.iter().map(|name| (*name).to_owned()).collect(),
            url: None,
            version: Version::parse("2026-03-01T12:00:00Z").expect("a time"),
            place,
        }
    }

    fn at_github(names: &[&str]) -> Issue {
        let place = Place::Repository {
            owner: "Team".to_owned(),
            name: "App".to_owned(),
        };
        issue(place, names)
    }

    fn at_linear(names: &[&str]) -> Issue {
        let place = Place::Workspace {
            organization: Some("org-1".to_owned()),
            team: Some("ENG".to_owned()),
            project: Some("Launch".to_owned()),
        };
        issue(place, names)
    }

    #[test]
    fn all_that_a_scope_sets_has_to_hold() {
        for (scope, issue, expected) in [
            (json!({}), at_github(&[]), true),
            (json!({"repository": "team/app"}), at_github(&[]), true),
            (json!({"repository": "team/other"}), at_github(&[]), false),
            (json!({"repository": " "}), at_github(&[]), true),
            (json!({"organization": "team"}), at_github(&[]), true),
            (json!({"organization": "tea"}), at_github(&[]), false),
            (
                json!({"labels": ["Agent", "bug"]}),
                at_github(&["agent", "Bug", "x"]),
                true,
            ),
            (json!({"labels": ["agent", "bug"]}), at_github(&["agent"]), false),
            (
                json!({"repository": "team/app", "labels": ["agent"]}),
                at_github(&[]),
                false,
            ),
            (json!({"team": "eng", "project": "launch"}), at_linear(&[]), true),
            (json!({"team": "OPS"}), at_linear(&[]), false),
            (json!({"organization": "org-2"}), at_linear(&[]), false),
        ] {
            let spec = source("github", &scope);
            assert_eq!(takes(spec.scope.as_ref(), &issue), expected, "{scope}");
        }
        assert!(takes(None, &at_github(&[])));
    }

    #[test]
    fn a_source_listens_to_its_own_provider_if_it_is_switched_on() {
        let spec = source("github", &json!({}));
        assert!(listens(&spec, Sender::Github));
        assert!(!listens(&spec, Sender::Linear));
        let off = ImplementationSourceSpec {
            webhook: None,
            ..spec
        };
        assert!(!listens(&off, Sender::Github));
        assert!(!listens(&source("gitlab", &json!({})), Sender::Github));
    }

    #[test]
    fn a_scope_that_cannot_be_held_against_a_delivery_is_told() {
        for (sender, scope, field) in [
            (Sender::Github, json!({"query": "is:open"}), "query"),
            (Sender::Github, json!({"team": "ENG"}), "team"),
            (Sender::Linear, json!({"repository": "a/b"}), "repository"),
            (Sender::Linear, json!({"query": "x"}), "query"),
        ] {
            let told = unusable(&source("github", &scope), sender).expect(field);
            assert!(told.starts_with(&format!("spec.scope.{field} ")), "{told}");
        }
        let usable = json!({"repository": "a/b", "organization": "a", "labels": ["x"], "query": " "});
        assert_eq!(unusable(&source("github", &usable), Sender::Github), None);
    }

    #[test]
    fn text_is_the_body_or_the_title_and_neither_is_too_long() {
        assert_eq!(
            described(" Title ", Some("Body\n")),
            Some(("Body".to_owned(), "Title".to_owned()))
        );
        assert_eq!(
            described("Title", Some("  ")),
            Some(("Title".to_owned(), "Title".to_owned()))
        );
        assert_eq!(
            described("", Some("First\nSecond")),
            Some(("First\nSecond".to_owned(), "First".to_owned()))
        );
        assert_eq!(described(" ", None), None);
        let (text, summary) = described(&"ä".repeat(300), Some(&"ö".repeat(TEXT_MAX + 1))).expect("words");
        assert_eq!(
            (text.chars().count(), summary.chars().count()),
            (TEXT_MAX, SUMMARY_MAX)
        );
        assert!(text.ends_with('…') && summary.ends_with('…'));
        let (text, _) = described("t", Some(&"ö".repeat(TEXT_MAX))).expect("words");
        assert!(!text.ends_with('…'));
    }

    #[test]
    fn labels_are_taken_over_once_and_within_bounds() {
        let many = (0..200).map(|number| format!("label {number}"));
        assert_eq!(labels(many).len(), LABELS_MAX);
        let names = [" a", "a", "", "b"].map(str::to_owned);
        assert_eq!(labels(names), ["a", "b"]);
        let [long]: [String; 1] = labels(["x".repeat(1_000)]).try_into().expect("one");
        assert_eq!(long.chars().count(), LABEL_MAX);
        assert_eq!(address(Some("x".repeat(3_000))), None);
    }

    #[test]
    fn versions_are_compared_as_times_and_not_as_texts() {
        let version = |text| Version::parse(text).expect("a time");
        assert!(version("2026-03-01T13:00:00+02:00").is_later_than(&version("2026-03-01T10:59:59Z")));
        assert!(!version("2026-03-01T13:00:00+02:00").is_later_than(&version("2026-03-01T11:00:00.000Z")));
        for bad in ["", "yesterday", "2026-03-01", "1772366400"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
