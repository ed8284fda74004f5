//! What a run knows about its work, under the names that agents look for, and whether that is all the work asks for.

use std::collections::BTreeMap;

use jangar_api::{
    agents::{
        agent_run_status::ContractStatus,
        implementation_spec::{Contract, ImplementationSpecSpec, OriginProvider},
    },
    reason::Reason,
};
use serde::Serialize;

use super::policy::present;
use crate::{decision::Rejection, vcs::VersionControl};

/// Other names for what a run knows, by the name they fill. The first that has a value fills it, unless it has one.
const ALIASES: &[(&str, &[&str])] = &[
    ("repository", &["repo", "issueRepository"]),
    ("issueNumber", &["issue", "issueId", "issue_id", "issue_number"]),
    ("issueTitle", &["title"]),
    ("issueBody", &["body"]),
    ("issueUrl", &["url"]),
    ("base", &["baseBranch", "base_ref", "baseRef"]),
    ("head", &["headBranch", "head_ref", "headRef"]),
    ("stage", &["workflowStage", "codexStage"]),
];

/// What a run knows about its work.
#[derive(Debug)]
pub(crate) struct Metadata<'a> {
    map: BTreeMap<String, String>,
    implementation: &'a ImplementationSpecSpec,
}

/// The part of what a run knows that stands at the top of `run.json`, where agents look for it first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Payload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issue_number: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issue_title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issue_body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issue_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<WholeMap<'a>>,
}

impl<'a> Payload<'a> {
    /// The same, with the branches that the run came to where it named none itself.
    pub(super) fn with_branches(self, vcs: Option<&'a VersionControl>) -> Self {
        let Some(vcs) = vcs else { return self };
        Self {
            base: self.base.or(vcs.base.as_deref()),
            // A suffix may have been added to the one that the run named.
            head: vcs.head.as_deref().or(self.head),
            ..self
        }
    }
}

#[derive(Debug, Serialize)]
struct WholeMap<'a> {
    map: &'a BTreeMap<String, String>,
}

impl<'a> Metadata<'a> {
    /// Puts together what the run says in its parameters and what its implementation says.
    pub(crate) fn new(
        parameters: &BTreeMap<String, String>,
        implementation: &'a ImplementationSpecSpec,
    ) -> Self {
        let mut map: BTreeMap<String, String> = parameters
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), present(value)?.to_owned())))
            .collect();
        for (target, names) in ALIASES {
            let known = names.iter().find_map(|name| map.get(*name).cloned());
            fill(&mut map, target, known);
        }
        for mapping in implementation
            .contract
            .iter()
            .flat_map(|contract| &contract.mappings)
        {
            let known = map.get(mapping.from.trim()).cloned();
            fill(&mut map, mapping.to.trim(), known);
        }
        let own = |text: Option<&String>| text.and_then(|text| present(text)).map(str::to_owned);
        let source = implementation.source.as_ref();
        let url = source.and_then(|source| own(source.url.as_ref()));
        fill(&mut map, "issueTitle", own(implementation.summary.as_ref()));
        fill(&mut map, "issueUrl", url.clone());
        fill(&mut map, "url", url);
        let issue = source
            .filter(|source| source.provider == OriginProvider::Github)
            .and_then(|source| source.external_id.as_deref()?.split_once('#'));
        if let Some((repository, number)) = issue {
            fill(&mut map, "repository", present(repository).map(str::to_owned));
            fill(&mut map, "issueNumber", present(number).map(str::to_owned));
        }
        Self { map, implementation }
    }

    /// What is known under a name. The text of the implementation can be large and is in `run.json` already, so where it
    /// stands in for something it is not copied into the map.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let text = present(&self.implementation.text);
        let of_implementation = match key {
            "issueBody" => text,
            "prompt" => text.or_else(|| self.implementation.summary.as_deref().and_then(present)),
            _ => None,
        };
        self.map.get(key).map(String::as_str).or(of_implementation)
    }

    /// What is known by name, without the text of the implementation.
    pub(crate) const fn map(&self) -> &BTreeMap<String, String> {
        &self.map
    }

    pub(crate) fn payload(&self) -> Payload<'_> {
        Payload {
            prompt: self.get("prompt"),
            repository: self.get("repository"),
            issue_number: self.get("issueNumber"),
            issue_title: self.get("issueTitle"),
            issue_body: self.get("issueBody"),
            issue_url: self.get("issueUrl"),
            base: self.get("base"),
            head: self.get("head"),
            stage: self.get("stage"),
            metadata: (!self.map.is_empty()).then_some(WholeMap { map: &self.map }),
        }
    }

    fn status(&self, contract: &Contract) -> ContractStatus {
        let required = contract.required_keys.iter().filter_map(|key| present(key));
        ContractStatus {
            required_keys: required.clone().map(str::to_owned).collect(),
            missing_keys: required
                .filter(|key| self.get(key).is_none())
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// Sets a key that has no value yet.
fn fill(map: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    if let Some(value) = value {
        map.entry(key.to_owned()).or_insert(value);
    }
}

/// What the implementation asks for and what of it is missing; `None` if it has no contract.
pub fn contract_status(
    parameters: &BTreeMap<String, String>,
    implementation: &ImplementationSpecSpec,
) -> Option<ContractStatus> {
    let contract = implementation.contract.as_ref()?;
    Some(Metadata::new(parameters, implementation).status(contract))
}

/// Whether the contract makes sense and the run fulfils it. `place` is where the implementation stands.
pub(super) fn check(metadata: &Metadata<'_>, place: &str) -> Result<Option<ContractStatus>, Rejection> {
    let Some(contract) = &metadata.implementation.contract else {
        return Ok(None);
    };
    if let Some(field) = first_blank(contract) {
        return Err(Rejection::new(
            Reason::InvalidContract,
            format!("{place}.contract.{field} is blank: give it a name or take it out"),
        ));
    }
    let status = metadata.status(contract);
    if status.missing_keys.is_empty() {
        return Ok(Some(status));
    }
    Err(Rejection::new(
        Reason::MissingRequiredMetadata,
        format!(
            "the run does not say {}, which {place}.contract.requiredKeys asks for: set it in spec.parameters",
            status.missing_keys.join(", ")
        ),
    ))
}

fn first_blank(contract: &Contract) -> Option<String> {
    let keys = contract.required_keys.iter().enumerate();
    let key = keys
        .filter(|(_, key)| present(key).is_none())
        .map(|(index, _)| format!("requiredKeys[{index}]"))
        .next();
    key.or_else(|| {
        contract.mappings.iter().enumerate().find_map(|(index, mapping)| {
            [("from", &mapping.from), ("to", &mapping.to)]
                .into_iter()
                .find(|(_, name)| present(name).is_none())
                .map(|(field, _)| format!("mappings[{index}].{field}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn implementation(fields: &Value) -> ImplementationSpecSpec {
        let mut spec = json!({"text": "do it"});
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn parameters(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        entries.iter().map(owned).collect()
    }

    fn map(entries: &[(&str, &str)], fields: &Value) -> BTreeMap<String, String> {
        Metadata::new(&parameters(entries), &implementation(fields)).map
    }

    #[test]
    fn parameters_are_trimmed_and_blank_ones_left_out() {
        assert_eq!(
            map(&[("a", " x "), ("b", " ")], &json!({})),
            parameters(&[("a", "x")])
        );
    }

    #[test]
    fn aliases_fill_what_has_no_value_the_first_one_first() {
        for (given, key, expected) in [
            (&[("repo", "a"), ("issueRepository", "b")][..], "repository", "a"),
            (&[("issueRepository", "b")], "repository", "b"),
            (&[("repository", "own"), ("repo", "a")], "repository", "own"),
            (&[("issue_number", "7"), ("issueId", "8")], "issueNumber", "8"),
            (&[("title", "t")], "issueTitle", "t"),
            (&[("body", "b")], "issueBody", "b"),
            (&[("url", "u")], "issueUrl", "u"),
            (&[("baseRef", "main")], "base", "main"),
            (&[("head_ref", "fix")], "head", "fix"),
            (&[("codexStage", "plan")], "stage", "plan"),
        ] {
            let map = map(given, &json!({}));
            assert_eq!(map.get(key).map(String::as_str), Some(expected), "{given:?}");
        }
    }

    #[test]
    fn mappings_come_after_aliases_and_before_what_the_implementation_says() {
        let fields = json!({
            "summary": "from the summary",
            "contract": {"mappings": [
                {"from": "ticket", "to": "issueNumber"},
                {"from": "heading", "to": "issueTitle"},
                {"from": "issueNumber", "to": "key"},
            ]},
        });

        let mapped = map(&[("ticket", "7"), ("issue", "8"), ("heading", "h")], &fields);

        assert_eq!(mapped["issueNumber"], "8", "the alias was there first");
        assert_eq!(mapped["issueTitle"], "h");
        assert_eq!(mapped["key"], "8", "what a mapping filled can be mapped again");
        assert_eq!(map(&[], &fields)["issueTitle"], "from the summary");
    }

    #[test]
    fn the_origin_says_repository_number_and_address() {
        let source = |provider: &str| {
            json!({"source": {
                "provider": provider, "externalId": "example/adder#7", "url": "https://forge.example/7",
            }})
        };
        let from_github = map(&[("issueNumber", "9")], &source("github"));
        let from_linear = map(&[], &source("linear"));

        assert_eq!(
            from_github,
            parameters(&[
                ("issueNumber", "9"),
                ("issueUrl", "https://forge.example/7"),
                ("repository", "example/adder"),
                ("url", "https://forge.example/7"),
            ])
        );
        assert!(!from_linear.contains_key("repository"));
    }

    #[test]
    fn the_text_stands_in_for_prompt_and_body_without_being_copied_into_the_map() {
        let implementation = implementation(&json!({}));
        let metadata = Metadata::new(&BTreeMap::new(), &implementation);
        let own = parameters(&[("prompt", "do that instead")]);
        let with_prompt = Metadata::new(&own, &implementation);

        assert_eq!(
            serde_json::to_value(metadata.payload()).unwrap(),
            json!({"prompt": "do it", "issueBody": "do it"})
        );
        assert_eq!(with_prompt.get("prompt"), Some("do that instead"));
    }

    #[test]
    fn a_contract_counts_everything_that_is_known() {
        let fields = json!({
            "summary": "s",
            "contract": {"requiredKeys": ["prompt", " issueBody ", "issueTitle", "head", "repository"]},
        });
        let status = contract_status(&parameters(&[("headRef", "fix")]), &implementation(&fields)).unwrap();

        assert_eq!(
            status.required_keys,
            ["prompt", "issueBody", "issueTitle", "head", "repository"]
        );
        assert_eq!(status.missing_keys, ["repository"]);
        assert_eq!(
            contract_status(&BTreeMap::new(), &implementation(&json!({}))),
            None
        );
    }
}
