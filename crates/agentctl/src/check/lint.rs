//! `lint`: manifests without a cluster, by the rules of the API server and of the controllers.

use std::{collections::BTreeSet, sync::Arc};

use jangar_api::{Kind, condition::ConditionType};
use jangar_engine::{
    agent_provider, approval_policy, decision::Decision, implementation_spec, job, orchestration,
    settings::Settings, tool, vcs,
};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::schema;
use crate::{
    cli::FilesArgs,
    error::{self, Error},
    manifest::{Document, Manifests, Mistake},
    output,
    session::Session,
};

/// One thing that is to be said of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub mistake: Mistake,
    /// Otherwise it is something that cannot be told without a cluster.
    pub is_error: bool,
}

pub fn lint(session: &mut Session, arguments: &FilesArgs) -> Result<(), Error> {
    let manifests = Manifests::read(&arguments.all());
    let files = manifests.files;
    let mut found: Vec<Finding> = manifests
        .mistakes
        .iter()
        .map(|mistake| Finding {
            mistake: mistake.clone(),
            is_error: true,
        })
        .collect();
    found.extend(findings(&manifests.documents));
    if found.is_empty() && manifests.documents.is_empty() {
        return Err(Error::Validation(
            "there is no document in what was given: give a YAML or JSON file with at least one object"
                .to_owned(),
        ));
    }
    let errors = found.iter().filter(|finding| finding.is_error).count();
    let format = session.format();
    if output::is_for_programs(&format) {
        let all: Vec<Value> = found
            .iter()
            .map(|finding| {
                json!({
                    "level": if finding.is_error { "error" } else { "warning" },
                    "place": finding.mistake.place, "message": finding.mistake.text,
                })
            })
            .collect();
        output::value(session, &Value::Array(all))?;
    } else {
        for finding in &found {
            let level = if finding.is_error { "error" } else { "warning" };
            session.console.line(&format!("{level}: {}", finding.mistake))?;
        }
    }
    session.console.note(&format!(
        "documents: {}, files: {files}, errors: {errors}, warnings: {}",
        manifests.documents.len(),
        found.len() - errors
    ))?;
    if errors > 0 {
        return Err(Error::Silent(error::VALIDATION));
    }
    Ok(())
}

/// Everything that is to be said of the documents, each by itself and together.
pub fn findings(documents: &[Document]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for document in documents {
        let mut say = |text: String, is_error: bool| {
            found.push(Finding {
                mistake: Mistake {
                    place: document.called(),
                    text,
                },
                is_error,
            });
        };
        let key = (
            document.text("/kind").to_owned(),
            document.text("/metadata/namespace").to_owned(),
            document.name().to_owned(),
        );
        if !names.insert(key) {
            say("it stands here twice: the later one would win".to_owned(), true);
        }
        let Some(kind) = document.kind() else {
            if let Some(text) = foreign(document) {
                let is_error = text.contains("is not served");
                say(text, is_error);
            }
            continue;
        };
        let wrong = schema::mistakes(kind, &document.value);
        if wrong.is_empty() {
            for text in decided(kind, &document.value) {
                say(text, true);
            }
        }
        for text in wrong {
            say(text, true);
        }
    }
    found.extend(dangling(documents));
    found
}

/// A document of another group is not ours to judge, unless it was meant to be ours.
fn foreign(document: &Document) -> Option<String> {
    let (api_version, kind) = (document.text("/apiVersion"), document.text("/kind"));
    let (group, _) = api_version.split_once('/')?;
    if !group.ends_with("proompteng.ai") {
        return None;
    }
    let meant = Kind::ALL
        .iter()
        .find(|known| known.info().kind == kind)
        .map(|known| known.info());
    Some(match meant {
        Some(info) => format!(
            "{kind} of apiVersion {api_version} is not served: write {}/{}",
            info.group, info.version
        ),
        None => format!(
            "kind {kind} of apiVersion {api_version} is not served: `agentctl get kinds` lists what is"
        ),
    })
}

/// What the controllers would say of an object by itself.
fn decided(kind: Kind, value: &Value) -> Vec<String> {
    let now = Timestamp::UNIX_EPOCH;
    let settings = settings();
    match kind {
        Kind::AgentProvider => with(value, |provider| {
            invalid(
                agent_provider::plan(&agent_provider::Observed { provider }, now),
                |status| status.common,
            )
        }),
        Kind::ImplementationSpec => with(value, |spec| {
            invalid(
                implementation_spec::plan(&implementation_spec::Observed { spec }, now),
                |status| status.common,
            )
        }),
        Kind::Tool => with(value, |tool| {
            invalid(tool::plan(&tool::Observed { tool }, &settings, now), |status| {
                status.common
            })
        }),
        Kind::ApprovalPolicy => with(value, |policy| {
            let runs = Vec::new();
            invalid(
                approval_policy::plan(&approval_policy::Observed { policy, runs }, &settings, now),
                |status| status.common,
            )
        }),
        Kind::VersionControlProvider => with(value, |provider| {
            let observed = vcs::provider::Observed {
                provider,
                keys: std::collections::BTreeMap::new(),
            };
            // One that asks for a Secret is well formed so far.
            invalid(vcs::provider::plan(&observed, &settings, now), |status| {
                status.common
            })
        }),
        Kind::Orchestration => with(value, |found: Arc<jangar_api::orchestration::Orchestration>| {
            let name = found.metadata.name.as_deref().unwrap_or_default();
            match orchestration::read_named(name, &found.spec) {
                Ok(_) => Vec::new(),
                Err(mistakes) => mistakes.iter().map(|mistake| mistake.message.clone()).collect(),
            }
        }),
        Kind::AgentRun => with(value, |run: Arc<jangar_api::agents::agent_run::AgentRun>| {
            let checked = match run.spec.runtime.type_.as_str() {
                "temporal" | "custom" => job::check_any_runtime(&run, &settings),
                _ => job::check_run(&run, &settings),
            };
            let inline = run
                .spec
                .implementation
                .as_ref()
                .map(|work| implementation_spec::check(&work.inline, "spec.implementation.inline"));
            [checked.err(), inline.and_then(Result::err)]
                .into_iter()
                .flatten()
                .map(|rejection| rejection.message)
                .collect()
        }),
        // What remains is checked against what it refers to, or not at all.
        Kind::Agent
        | Kind::ImplementationSource
        | Kind::Memory
        | Kind::OrchestrationRun
        | Kind::Budget
        | Kind::SecretBinding
        | Kind::Signal
        | Kind::SignalDelivery
        | Kind::Schedule
        | Kind::ToolRun
        | Kind::Workspace
        | Kind::Artifact => Vec::new(),
    }
}

/// The settings of controllers that nobody configured, but for the image: whether there is one is for a cluster to say.
pub(super) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.runner.image = Some(super::plan::PLACEHOLDER_IMAGE.to_owned());
    settings
}

fn with<K: DeserializeOwned>(value: &Value, check: impl FnOnce(Arc<K>) -> Vec<String>) -> Vec<String> {
    match serde_json::from_value(value.clone()) {
        Ok(object) => check(Arc::new(object)),
        Err(error) => vec![format!("it cannot be read: {error}")],
    }
}

/// What a plan would write into the condition that says what is wrong.
fn invalid<S>(
    decision: Decision<S>,
    common: impl FnOnce(S) -> jangar_api::condition::CommonStatus,
) -> Vec<String> {
    let Decision::Act(plan) = decision else {
        return Vec::new();
    };
    let status = plan.status.map(common).unwrap_or_default();
    let wrong = status
        .condition(&ConditionType::InvalidSpec)
        .filter(|condition| condition.status.as_str() == "True");
    wrong
        .map(|condition| condition.message.clone())
        .into_iter()
        .collect()
}

/// References to what these documents do not hold. They may be in the cluster, so they are no errors.
fn dangling(documents: &[Document]) -> Vec<Finding> {
    let held: BTreeSet<(Kind, String)> = documents
        .iter()
        .filter_map(|document| Some((document.kind()?, document.name().to_owned())))
        .collect();
    let mut found = Vec::new();
    for document in documents {
        let Some(kind) = document.kind() else { continue };
        for (field, of, name) in references(kind, document) {
            if !held.contains(&(of, name.clone())) {
                found.push(Finding {
                    mistake: Mistake {
                        place: document.called(),
                        text: format!(
                            "{field} is {name}, and there is no {} of that name in these files",
                            of.info().kind
                        ),
                    },
                    is_error: false,
                });
            }
        }
    }
    found
}

/// What a document refers to: the field, the kind and the name.
fn references(kind: Kind, document: &Document) -> Vec<(&'static str, Kind, String)> {
    let fields: &[(&'static str, &str, Kind)] = match kind {
        Kind::Agent => &[
            (
                "spec.providerRef.name",
                "/spec/providerRef/name",
                Kind::AgentProvider,
            ),
            ("spec.memoryRef.name", "/spec/memoryRef/name", Kind::Memory),
            (
                "spec.vcsRef.name",
                "/spec/vcsRef/name",
                Kind::VersionControlProvider,
            ),
        ],
        Kind::AgentRun => &[
            ("spec.agentRef.name", "/spec/agentRef/name", Kind::Agent),
            (
                "spec.implementationSpecRef.name",
                "/spec/implementationSpecRef/name",
                Kind::ImplementationSpec,
            ),
            ("spec.memoryRef.name", "/spec/memoryRef/name", Kind::Memory),
            (
                "spec.vcsRef.name",
                "/spec/vcsRef/name",
                Kind::VersionControlProvider,
            ),
        ],
        Kind::OrchestrationRun => &[(
            "spec.orchestrationRef.name",
            "/spec/orchestrationRef/name",
            Kind::Orchestration,
        )],
        Kind::ToolRun => &[("spec.toolRef.name", "/spec/toolRef/name", Kind::Tool)],
        _ => &[],
    };
    fields
        .iter()
        .filter_map(|(field, pointer, of)| {
            let name = document.text(pointer);
            (!name.is_empty()).then(|| (*field, *of, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linted(text: &str) -> Vec<String> {
        let mut manifests = Manifests::default();
        manifests.parse("f.yaml", text);
        findings(&manifests.documents)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.is_error, finding.mistake.text))
            .collect()
    }

    #[test]
    fn an_orchestration_is_told_all_its_mistakes() {
        let found = linted(
            "apiVersion: orchestration.proompteng.ai/v1alpha1\nkind: Orchestration\nmetadata: {name: o}\nspec:\n  steps:\n  - {name: \
             a, kind: Checkpoint, dependsOn: [b]}\n  - {name: b, kind: Checkpoint, dependsOn: [a, c]}\n",
        );
        let all = found.join("\n");
        assert!(all.contains("names c"), "{all}");
        assert!(found.iter().all(|text| text.starts_with("true")), "{all}");
        assert!(!found.is_empty());
    }

    #[test]
    fn a_policy_is_held_to_the_rules_of_its_controller() {
        let found = linted(
            "apiVersion: approvals.proompteng.ai/v1alpha1\nkind: ApprovalPolicy\nmetadata: {name: p}\nspec: {defaultDecision: maybe}\n",
        );
        assert!(found.join("\n").contains("spec.defaultDecision"), "{found:?}");
    }

    #[test]
    fn what_is_not_in_the_files_is_only_warned_about() {
        let found = linted(
            "apiVersion: agents.proompteng.ai/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {providerRef: {name: p}}\n",
        );
        assert_eq!(
            found,
            ["false: spec.providerRef.name is p, and there is no AgentProvider of that name in these files"]
        );
    }

    #[test]
    fn a_wrong_version_of_ours_is_an_error_and_kinds_of_others_are_passed_over() {
        let found = linted(
            "apiVersion: agents.proompteng.ai/v1\nkind: Agent\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: \
             {name: m}\n",
        );
        assert_eq!(
            found,
            [
                "true: Agent of apiVersion agents.proompteng.ai/v1 is not served: write agents.proompteng.ai/v1alpha1"
            ]
        );
    }
}
