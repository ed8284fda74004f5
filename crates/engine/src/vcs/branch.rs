//! The branches of a run: the one its work starts from, and the one it goes to.

use std::collections::BTreeMap;

use jangar_api::{
    agents::{
        agent_run::AgentRun,
        implementation_spec::ImplementationSpecSpec,
        version_control_provider::{VcsDefaults, VersionControlProvider},
    },
    reason::Reason,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{auth::present, repository::REPOSITORY};
use crate::{decision::Rejection, job::Metadata, template};

/// The branch of a run that may write, and for which nobody says one.
const DEFAULT_TEMPLATE: &str = "agents/{{ agentRun.name }}";
/// The most bytes of a branch's name: git keeps each part of it as the name of a file.
const NAME_MAX: usize = 200;

/// A branch that a run would take, if no other run works on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WantedBranch {
    /// In lower case: to most forges the case means nothing.
    pub repository: String,
    pub head: String,
}

impl WantedBranch {
    pub fn new(repository: &str, head: &str) -> Self {
        Self {
            repository: repository.to_lowercase(),
            head: head.to_owned(),
        }
    }
}

/// The branch that a run would take. Only a provider that says what to do about two runs on one branch wants to know.
pub fn wanted_branch(
    run: &AgentRun,
    implementation: &ImplementationSpecSpec,
    provider: &VersionControlProvider,
) -> Option<WantedBranch> {
    let defaults = provider.spec.defaults.as_ref()?;
    present(defaults.branch_conflict_suffix_template.as_deref())?;
    let metadata = Metadata::new(&run.spec.parameters, implementation);
    let head = head_without_suffix(run, &metadata, defaults, true).ok()??;
    Some(WantedBranch::new(metadata.get(REPOSITORY)?, &head))
}

/// The branch that the work starts from; absent, the repository's own.
pub(super) fn base(metadata: &Metadata<'_>, defaults: &VcsDefaults) -> Result<Option<String>, Rejection> {
    let (name, field) = match (metadata.get("base"), present(defaults.base_branch.as_deref())) {
        (Some(own), _) => (own, "spec.parameters.base"),
        (None, Some(default)) => (default, "spec.defaults.baseBranch of the VersionControlProvider"),
        (None, None) => return Ok(None),
    };
    legal(name, field)?;
    Ok(Some(name.to_owned()))
}

/// The branch that the work goes to; absent for a run that does not write and names none. `rival` is another run that
/// works on a branch of that name.
pub(super) fn head(
    run: &AgentRun,
    metadata: &Metadata<'_>,
    defaults: &VcsDefaults,
    writes: bool,
    rival: Option<&str>,
) -> Result<Option<String>, Rejection> {
    let Some(mut head) = head_without_suffix(run, metadata, defaults, writes)? else {
        return Ok(None);
    };
    let suffix = present(defaults.branch_conflict_suffix_template.as_deref());
    if let (Some(suffix), Some(_)) = (suffix, rival) {
        let field = "spec.defaults.branchConflictSuffixTemplate of the VersionControlProvider";
        head = format!("{head}-{}", rendered(suffix, field, run, metadata)?.trim());
        legal(&head, field)?;
    }
    Ok(Some(head))
}

fn head_without_suffix(
    run: &AgentRun,
    metadata: &Metadata<'_>,
    defaults: &VcsDefaults,
    writes: bool,
) -> Result<Option<String>, Rejection> {
    if let Some(own) = metadata.get("head") {
        legal(own, "spec.parameters.head")?;
        return Ok(Some(own.to_owned()));
    }
    let field = "spec.defaults.branchTemplate of the VersionControlProvider";
    let template = match present(defaults.branch_template.as_deref()) {
        Some(template) => template,
        None if writes => DEFAULT_TEMPLATE,
        None => return Ok(None),
    };
    let head = rendered(template, field, run, metadata)?.trim().to_owned();
    legal(&head, field)?;
    Ok(Some(head))
}

fn rendered(
    template: &str,
    field: &str,
    run: &AgentRun,
    metadata: &Metadata<'_>,
) -> Result<String, Rejection> {
    template::render(template, &context(run, metadata))
        .map_err(|error| Rejection::new(Reason::InvalidTemplate, format!("{field}: {error}")))
}

/// What the templates of branches can refer to: what the run knows, by itself and under the names of where it comes from.
fn context(run: &AgentRun, metadata: &Metadata<'_>) -> Value {
    let parameters = &run.spec.parameters;
    let flat: BTreeMap<&String, &String> = parameters.iter().chain(metadata.map()).collect();
    let mut context = json!(flat);
    if let Value::Object(fields) = &mut context {
        let own = json!({"name": run.name_any(), "namespace": run.namespace().unwrap_or_default()});
        fields.insert("agentRun".to_owned(), own);
        fields.insert("parameters".to_owned(), json!(parameters));
        fields.insert("metadata".to_owned(), json!(metadata.map()));
        fields.insert("event".to_owned(), json!(metadata.payload()));
    }
    context
}

/// Whether git takes the text as the name of a branch, and no program for an option.
pub(super) fn legal(name: &str, field: &str) -> Result<(), Rejection> {
    let good_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !has_lock_suffix(part);
    let good_char = |c: char| !c.is_control() && !c.is_whitespace() && !"~^:?*[\\\"'".contains(c);
    let good = name.len() <= NAME_MAX
        && name.split('/').all(good_part)
        && name.chars().all(good_char)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.ends_with('.')
        && name != "@"
        && name != "HEAD";
    if good {
        return Ok(());
    }
    Err(Rejection::new(
        Reason::InvalidBranch,
        format!(
            "{field} gives the branch {name:?}, which git does not take: use letters, digits, -, _ and ., with / between \
             parts, at most {NAME_MAX} bytes"
        ),
    ))
}

/// Git keeps its locks under such names.
fn has_lock_suffix(part: &str) -> bool {
    part.strip_suffix(".lock").is_some()
}
