//! Which repositories may be used.

use jangar_api::{
    agents::version_control_provider::{ForgeKind, RepositoryPolicy},
    reason::Reason,
};

use crate::{decision::Rejection, job::matches_pattern, settings::VcsSettings};

/// The name under which a run knows its repository.
pub(crate) const REPOSITORY: &str = "repository";

/// The most characters of a repository's name, with its owner: more than any forge takes.
const NAME_MAX: usize = 400;

/// The repository, if the text can be one. It becomes part of addresses, and is compared with patterns: a text that a server
/// would read as another repository than it looks like is none.
pub(super) fn legal(text: &str) -> Result<&str, Rejection> {
    let parts = text.split('/');
    let good = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !matches!(part, "." | "..")
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~'))
    };
    let ends_in_git = text.to_ascii_lowercase().ends_with(".git");
    if text.chars().count() <= NAME_MAX
        && parts.clone().count() > 1
        && parts.clone().all(good)
        && !ends_in_git
    {
        return Ok(text);
    }
    Err(Rejection::new(
        Reason::MissingRepository,
        format!(
            "the repository of the run is {text:?}, which is no repository: set spec.parameters.repository to owner/name, \
             without an address before it and without .git behind it"
        ),
    ))
}

/// Whether runs may use the repository: what the operator allows comes first, then what the provider denies, then what it
/// allows.
pub(super) fn permitted(
    repository: &str,
    provider: &str,
    forge: &ForgeKind,
    policy: Option<&RepositoryPolicy>,
    settings: &VcsSettings,
) -> Result<(), Rejection> {
    let denied = |why: String| Err(Rejection::new(Reason::VcsPolicyDenied, why));
    // To most forges the case of a name means nothing, so no pattern can be got around by it. Where it may mean something,
    // only what is exactly allowed is.
    let same = |pattern: &str| matches_pattern(&pattern.trim().to_lowercase(), &repository.to_lowercase());
    let exact = |pattern: &str| match forge {
        ForgeKind::Generic => matches_pattern(pattern.trim(), repository),
        _ => same(pattern),
    };
    let operator = &settings.repositories_allowed;
    if !operator.is_empty() && !operator.iter().any(|pattern| exact(pattern)) {
        return denied(format!(
            "the repository of the run is {repository}, and runs may only use those that match {} \
             (JANGAR_GITHUB_REPOS_ALLOWED): use one of those, or add it there",
            operator.join(", ")
        ));
    }
    let none = RepositoryPolicy::default();
    let RepositoryPolicy { allow, deny } = policy.unwrap_or(&none);
    if let Some(pattern) = deny.iter().find(|pattern| same(pattern)) {
        return denied(format!(
            "the repository of the run is {repository}, which spec.repositoryPolicy.deny of VersionControlProvider {provider} \
             forbids (it matches {pattern}): use another repository, or take the pattern out"
        ));
    }
    if !allow.is_empty() && !allow.iter().any(|pattern| exact(pattern)) {
        return denied(format!(
            "the repository of the run is {repository}, and spec.repositoryPolicy.allow of VersionControlProvider {provider} \
             has only {}: use one of those, or add it there",
            allow.join(", ")
        ));
    }
    Ok(())
}
