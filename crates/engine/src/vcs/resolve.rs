//! What one run gets of version control: a repository with branches and credentials, nothing, or a reason why not.

use std::{collections::BTreeMap, fmt};

use jangar_api::{
    agents::{
        agent::Agent,
        agent_run::{AgentRun, VcsMode},
        implementation_spec::ImplementationSpecSpec,
        version_control_provider::{
            ForgeKind, VcsDefaults, VersionControlProvider, VersionControlProviderSpec,
        },
    },
    reason::Reason,
    refs::LocalRef,
};

use super::{
    addresses::Addresses,
    auth::{Auth, Credentials, Presence, presence, present},
    branch, repository,
};
use crate::{
    decision::{KeyHolder, Keys, Question, Rejection, Sight},
    job::{Metadata, secret_allowed, secret_blocked},
    settings::Settings,
};

/// Everything that decides about a run's version control.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub run: &'a AgentRun,
    pub agent: &'a Agent,
    pub implementation: &'a ImplementationSpecSpec,
    /// The provider that the run comes to; `None` if nobody names one.
    pub provider: Option<&'a Sight<VersionControlProvider>>,
    /// What is known of Secrets and ConfigMaps.
    pub keys: &'a BTreeMap<KeyHolder, Keys>,
    /// Another run that works on the branch this one would take.
    pub rival: Option<&'a str>,
    /// The branch that the run has worked on already.
    pub begun: Option<Begun<'a>>,
}

/// A branch that a run has worked on already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun<'a> {
    /// An earlier attempt did, at the same work.
    Attempt(&'a str),
    /// An earlier step of the workflow did, or an earlier attempt of this one. Steps may have branches of their own.
    Step { repository: &'a str, head: &'a str },
}

/// What a run may do to its repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    ReadOnly,
}

impl Access {
    pub const fn mode(self) -> VcsMode {
        match self {
            Self::ReadWrite => VcsMode::ReadWrite,
            Self::ReadOnly => VcsMode::ReadOnly,
        }
    }
}

/// A repository that a run works on, and all it takes to do so.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionControl {
    /// Name of the VersionControlProvider.
    pub provider: String,
    pub forge: ForgeKind,
    pub repository: String,
    /// Absent: the repository's own.
    pub base: Option<String>,
    /// Present wherever the run may write.
    pub head: Option<String>,
    pub access: Access,
    pub pull_requests: bool,
    pub auth: Auth,
    /// The Secret with the run's token of a GitHub App, where it has one.
    pub token_secret: Option<String>,
    pub addresses: Addresses,
    pub defaults: VcsDefaults,
    /// How often pull requests may be opened, as the operator has it for this forge.
    pub rate_limits: Option<String>,
}

/// What a run gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// Nobody asked for version control.
    Unasked,
    /// The run goes on without, for this reason.
    Skipped(Rejection),
    Ready(Box<VersionControl>),
}

/// Why it cannot be said yet, or never, what a run gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Unclear {
    /// A cache does not show it, which proves nothing.
    Ask(Question),
    /// It is not there and may come, or be mended.
    Lacking {
        why: Rejection,
        /// Whether it is there and has to be mended.
        mend: bool,
        /// Whether an event tells when it is there.
        watched: bool,
        /// Whether the run goes on without when it has waited for long enough.
        optional: bool,
    },
    /// The run can never work.
    Wrong(Rejection),
}

/// The provider that a run comes to: what the run names goes before its implementation, and that before its Agent.
pub fn reference<'a>(
    run: &'a AgentRun,
    implementation: Option<&'a ImplementationSpecSpec>,
    agent: Option<&'a Agent>,
) -> Option<&'a str> {
    let named = |reference: &'a Option<LocalRef>| present(reference.as_ref().map(|own| own.name.as_str()));
    named(&run.spec.vcs_ref)
        .or_else(|| implementation.and_then(|work| named(&work.vcs_ref)))
        .or_else(|| agent.and_then(|agent| named(&agent.spec.vcs_ref)))
}

/// Whether a run has to do with version control at all.
fn is_asked_for(run: &AgentRun, implementation: &ImplementationSpecSpec, agent: &Agent) -> bool {
    let policy = run.spec.vcs_policy.as_ref();
    let required = policy.is_some_and(|policy| policy.required == Some(true));
    required || reference(run, Some(implementation), Some(agent)).is_some()
}

/// What the run gets.
pub fn resolve(request: &Request<'_>, settings: &Settings) -> Result<Resolution, Unclear> {
    if !is_asked_for(request.run, request.implementation, request.agent) {
        return Ok(Resolution::Unasked);
    }
    let policy = request.run.spec.vcs_policy.clone().unwrap_or_default();
    let required = policy.required == Some(true);
    let wanted = match policy.mode {
        None | Some(VcsMode::ReadWrite) => Access::ReadWrite,
        Some(VcsMode::ReadOnly) => Access::ReadOnly,
        Some(VcsMode::None) => return Ok(Resolution::Skipped(switched_off())),
        Some(VcsMode::Other(word)) => return Err(Unclear::Wrong(unknown_mode(&word))),
    };
    let found = with_provider(request, settings, wanted, required);
    match found {
        Ok(ready) => Ok(Resolution::Ready(Box::new(ready))),
        Err(Obstacle::Ask(question)) => Err(Unclear::Ask(question)),
        Err(Obstacle::Absent { why, mend, watched }) => Err(Unclear::Lacking {
            why,
            mend,
            watched,
            optional: !required,
        }),
        Err(Obstacle::Fatal(why)) => Err(Unclear::Wrong(why)),
        Err(Obstacle::Unless(why)) if required => Err(Unclear::Wrong(in_the_way(why))),
        Err(Obstacle::Unless(why)) => Ok(Resolution::Skipped(why)),
    }
}

/// What a run is told that is executed elsewhere, by `whom`, an endpoint or a workflow: that one gets neither a checkout nor
/// credentials from here. `None` if nobody asked for them; the error is that the run insists.
pub fn elsewhere(
    whom: &str,
    run: &AgentRun,
    implementation: &ImplementationSpecSpec,
    agent: &Agent,
) -> Result<Option<Rejection>, Rejection> {
    if !is_asked_for(run, implementation, agent) {
        return Ok(None);
    }
    let policy = run.spec.vcs_policy.clone().unwrap_or_default();
    match policy.mode {
        Some(VcsMode::None) => Ok(Some(switched_off())),
        Some(VcsMode::Other(word)) => Err(unknown_mode(&word)),
        None | Some(VcsMode::ReadWrite | VcsMode::ReadOnly) if policy.required == Some(true) => {
            Err(Rejection::new(
                Reason::VcsUnavailable,
                format!(
                    "spec.vcsPolicy.required is true, and {whom} gets neither a checkout nor credentials from here: set it to \
                     false and let it use its own, or use the runtime job or workflow"
                ),
            ))
        }
        None | Some(VcsMode::ReadWrite | VcsMode::ReadOnly) => Ok(Some(Rejection::new(
            Reason::VcsUnavailable,
            format!(
                "a vcsRef is set, and {whom} gets neither a checkout nor credentials from here: it finds the repository in the \
                 parameters of the run, and uses credentials of its own"
            ),
        ))),
    }
}

fn switched_off() -> Rejection {
    Rejection::new(
        Reason::VcsDisabled,
        "spec.vcsPolicy.mode is none: the run has nothing to do with a repository",
    )
}

fn unknown_mode(word: &impl fmt::Display) -> Rejection {
    Rejection::new(
        Reason::InvalidSpec,
        format!("spec.vcsPolicy.mode is {word}: use read-write, read-only or none"),
    )
}

/// What stands between a run and its repository.
enum Obstacle {
    Ask(Question),
    Absent {
        why: Rejection,
        mend: bool,
        watched: bool,
    },
    /// It fails every run.
    Fatal(Rejection),
    /// It fails the run that insists, and others go on without.
    Unless(Rejection),
}

/// The same reason, for a run that insists.
fn in_the_way(Rejection { reason, message }: Rejection) -> Rejection {
    Rejection::new(
        reason,
        format!("{message}; without spec.vcsPolicy.required the run would go on without version control"),
    )
}

fn with_provider(
    request: &Request<'_>,
    settings: &Settings,
    wanted: Access,
    required: bool,
) -> Result<VersionControl, Obstacle> {
    let unless = |reason, message: String| Obstacle::Unless(Rejection::new(reason, message));
    let Some(name) = reference(request.run, Some(request.implementation), Some(request.agent)) else {
        return Err(unless(
            Reason::MissingVcsProvider,
            "spec.vcsPolicy.required is true, and nobody names a VersionControlProvider: set spec.vcsRef.name of the run".to_owned(),
        ));
    };
    if !settings.vcs.enabled {
        return Err(unless(
            Reason::VcsProvidersDisabled,
            format!(
                "vcsRef.name is {name}, and version control is switched off (JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED is \
                 false): set it to true, or take vcsRef out"
            ),
        ));
    }
    let provider = seen(request, name)?;
    let spec = &provider.spec;
    let metadata = Metadata::new(&request.run.spec.parameters, request.implementation);
    let Some(repository) = metadata.get(repository::REPOSITORY) else {
        return Err(unless(
            Reason::MissingRepository,
            format!(
                "the run uses VersionControlProvider {name}, and does not say which repository: set spec.parameters.repository to owner/name"
            ),
        ));
    };
    let repository = repository::legal(repository).map_err(Obstacle::Unless)?;
    let policy = spec.repository_policy.as_ref();
    repository::permitted(repository, name, &spec.provider, policy, &settings.vcs)
        .map_err(Obstacle::Fatal)?;
    let access = capable(spec, name, wanted, required)?;
    let auth = Auth::of(spec, &settings.vcs).map_err(|flaw| Obstacle::Unless(flaw.of_run(name)))?;
    secrets_usable(request, settings, &auth, name)?;
    let access = authorised(access, &auth, name, required)?;
    let addresses = Addresses::of(spec, &auth).map_err(|why| {
        unless(
            Reason::VcsUnavailable,
            format!("VersionControlProvider {name}: {}", why.message),
        )
    })?;
    let defaults = spec.defaults.clone().unwrap_or_default();
    let base = branch::base(&metadata, &defaults).map_err(Obstacle::Fatal)?;
    let writes = access == Access::ReadWrite;
    let head = head(request, repository, &metadata, &defaults, writes).map_err(Obstacle::Fatal)?;
    if writes && head.is_some() && head == base {
        return Err(Obstacle::Fatal(own_base(head.as_deref().unwrap_or_default())));
    }
    Ok(VersionControl {
        provider: name.to_owned(),
        forge: spec.provider.clone(),
        repository: repository.to_owned(),
        base,
        head,
        access,
        pull_requests: writes && pull_requests(spec) && addresses.api.is_some() && auth.speaks_to_the_api(),
        auth,
        token_secret: None,
        addresses,
        defaults,
        rate_limits: settings
            .vcs
            .rate_limits
            .get(&spec.provider)
            .map(ToString::to_string),
    })
}

/// The branch of the work: the one that it was begun on, or a new one.
fn head(
    request: &Request<'_>,
    repository: &str,
    metadata: &Metadata<'_>,
    defaults: &VcsDefaults,
    writes: bool,
) -> Result<Option<String>, Rejection> {
    let new = |rival| branch::head(request.run, metadata, defaults, writes, rival);
    // With the suffix or without it: whichever it had, it was the branch of this run.
    let is_own = |head: &str| {
        let own = |rival| new(rival).is_ok_and(|own| own.as_deref() == Some(head));
        own(None) || own(Some(""))
    };
    match request.begun {
        // It goes on where the first attempt began, whatever other runs do by now.
        Some(Begun::Attempt(head)) => Ok(Some(head.to_owned())),
        Some(Begun::Step {
            repository: before,
            head,
        }) if before.eq_ignore_ascii_case(repository) && is_own(head) => Ok(Some(head.to_owned())),
        Some(Begun::Step { .. }) | None => new(request.rival),
    }
}

fn own_base(branch: &str) -> Rejection {
    Rejection::new(
        Reason::InvalidBranch,
        format!(
            "the work of the run would go to {branch}, the branch it starts from: set spec.parameters.head to another branch, or \
             spec.vcsPolicy.mode to read-only"
        ),
    )
}

/// The provider, if it is there and can be read.
fn seen<'a>(request: &Request<'a>, name: &str) -> Result<&'a VersionControlProvider, Obstacle> {
    let absent = |reason, problem: String, mend| Obstacle::Absent {
        why: Rejection::new(reason, problem),
        mend,
        watched: true,
    };
    match request.provider {
        Some(Sight::Seen(provider)) => Ok(provider),
        Some(Sight::Unseen) | None => Err(Obstacle::Ask(Question::VersionControlProvider(name.to_owned()))),
        Some(Sight::Absent) => Err(absent(
            Reason::MissingVcsProvider,
            format!(
                "vcsRef.name is {name}, and there is no VersionControlProvider of that name in this namespace"
            ),
            false,
        )),
        Some(Sight::Illegible(words)) => Err(absent(
            Reason::UnreadableReference,
            format!("vcsRef.name is {name}, and VersionControlProvider {name} cannot be read ({words})"),
            true,
        )),
    }
}

/// What is left of what the run wants after what can be done at the forge.
fn capable(
    spec: &VersionControlProviderSpec,
    name: &str,
    wanted: Access,
    required: bool,
) -> Result<Access, Obstacle> {
    let capabilities = spec.capabilities.clone().unwrap_or_default();
    let says = |field: &str| format!("spec.capabilities.{field} of VersionControlProvider {name} is false");
    if capabilities.read == Some(false) {
        let reason = if required {
            Reason::VcsCapabilityDenied
        } else {
            Reason::VcsDisabled
        };
        return Err(Obstacle::Unless(Rejection::new(
            reason,
            format!("{}: set it to true, or use another provider", says("read")),
        )));
    }
    if wanted == Access::ReadOnly || capabilities.write != Some(false) {
        return Ok(wanted);
    }
    if required {
        return Err(Obstacle::Fatal(Rejection::new(
            Reason::VcsCapabilityDenied,
            format!(
                "{}, and the run insists on read-write: set it to true, or spec.vcsPolicy.mode of the run to read-only",
                says("write")
            ),
        )));
    }
    Ok(Access::ReadOnly)
}

/// Whether the run may use the Secrets, and they are there.
fn secrets_usable(
    request: &Request<'_>,
    settings: &Settings,
    auth: &Auth,
    name: &str,
) -> Result<(), Obstacle> {
    // The private key of an App stays with the controllers: what runs may use does not concern it.
    let of_run = !matches!(auth.credentials, Credentials::App(_));
    for value in auth.credentials.stored().filter(|_| of_run) {
        if let KeyHolder::Secret(secret) = &value.holder {
            let field = format!("{} of VersionControlProvider {name}", value.field);
            secret_blocked(&field, secret, &settings.policy).map_err(Obstacle::Unless)?;
            secret_allowed(request.run, request.agent, &field, secret).map_err(Obstacle::Unless)?;
        }
    }
    for value in auth.credentials.stored() {
        match presence(value, request.keys) {
            Presence::Assumed => {}
            Presence::Unknown(question) => return Err(Obstacle::Ask(question)),
            Presence::HolderMissing(why) | Presence::KeyMissing(why) => {
                let problem = why
                    .message
                    .split_once(": ")
                    .map_or(why.message.as_str(), |(problem, _)| problem);
                return Err(Obstacle::Absent {
                    why: Rejection::new(
                        Reason::VcsAuthUnavailable,
                        format!("VersionControlProvider {name}: {problem}"),
                    ),
                    mend: false,
                    watched: false,
                });
            }
        }
    }
    Ok(())
}

/// Nobody can write without showing who they are.
fn authorised(access: Access, auth: &Auth, name: &str, required: bool) -> Result<Access, Obstacle> {
    if access == Access::ReadOnly || auth.credentials != Credentials::None {
        return Ok(access);
    }
    if required {
        return Err(Obstacle::Fatal(Rejection::new(
            Reason::VcsAuthUnavailable,
            format!(
                "spec.auth of VersionControlProvider {name} gives no credentials, and the run insists on read-write: set spec.auth, \
                 or spec.vcsPolicy.mode of the run to read-only"
            ),
        )));
    }
    Ok(Access::ReadOnly)
}

/// Whether the forge has an API for branches and pull requests.
pub(super) fn has_api(forge: &ForgeKind) -> bool {
    !matches!(forge, ForgeKind::Generic | ForgeKind::Other(_))
}

/// Whether a pull request is opened for what a run has pushed.
pub(super) fn pull_requests(spec: &VersionControlProviderSpec) -> bool {
    let capable = spec
        .capabilities
        .as_ref()
        .and_then(|capabilities| capabilities.pull_requests);
    let defaults = spec
        .defaults
        .as_ref()
        .and_then(|defaults| defaults.pull_request.as_ref());
    has_api(&spec.provider)
        && capable != Some(false)
        && defaults.and_then(|defaults| defaults.enabled) != Some(false)
}
