//! From the variables of the environment to the settings: all mistakes at once, or none.

use std::{collections::BTreeMap, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    AuthSecret, Namespaces, NatsAuth, RepositoryLimits, RunnerSettings, Settings,
    control_plane::TlsDraft,
    limits::names,
    mistakes::{Mistake, Mistakes, Wrong},
    table::{
        self, AUTH_SECRET_KEY, AUTH_SECRET_MOUNT_PATH, CLUSTER_SCOPED, JOB_TTL, LEASE_DURATION, NAMESPACES,
        NATS_PASSWORD_KEY, NATS_USERNAME_KEY, ORCHESTRATION_NAMESPACES, RENEW_DEADLINE, RETRY_PERIOD,
        RUN_RETENTION,
    },
    unread,
};
use crate::{
    as_given::AsGiven,
    retention::{Ladder, UpsideDown},
};

/// What all variables of Jangar's own begin with. Those of Temporal are what its other clients read as well.
const PREFIX: &str = "JANGAR_";

/// Whether a variable of the environment is one of Jangar, would like to be, or was in an earlier version.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(PREFIX)
        || table::variables().any(|variable| variable.name == name)
        || unread::gone(name).is_some()
}

/// The settings, and what an operator should hear about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub settings: Settings,
    /// Variables that begin with `JANGAR_` and that no part of Jangar reads: most likely a slip in the name.
    pub unknown: Vec<String>,
    /// What can be used, but is hardly meant.
    pub warnings: Vec<String>,
}

/// The settings on their way, with those values beside them that only count together with others.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) settings: Settings,
    pub(super) cluster_scoped: bool,
    pub(super) pod_namespace: Option<String>,
    pub(super) lease_namespace: Option<String>,
    /// The older name of the default image.
    pub(super) agent_image: Option<String>,
    pub(super) auth_secret: AuthSecretDraft,
    pub(super) nats_auth: NatsAuthDraft,
    pub(super) repositories: RepositoriesDraft,
    pub(super) tls: TlsDraft,
}

/// The limits on repositories. Unless they are switched on, they say nothing.
#[derive(Default)]
pub(super) struct RepositoriesDraft {
    pub(super) enabled: bool,
    pub(super) limits: RepositoryLimits,
}

/// The parts of an [`AuthSecret`]. Without a name the others say nothing.
#[derive(Default)]
pub(super) struct AuthSecretDraft {
    pub(super) name: Option<String>,
    pub(super) key: Option<String>,
    pub(super) mount_path: Option<String>,
}

impl AuthSecretDraft {
    fn finish(self) -> Option<AuthSecret> {
        Some(AuthSecret {
            name: self.name?,
            key: self.key.unwrap_or_else(|| AUTH_SECRET_KEY.to_owned()),
            mount_path: self
                .mount_path
                .unwrap_or_else(|| AUTH_SECRET_MOUNT_PATH.to_owned()),
        })
    }
}

/// The parts of a [`NatsAuth`]. Without a name the others say nothing.
#[derive(Default)]
pub(super) struct NatsAuthDraft {
    pub(super) secret: Option<String>,
    pub(super) username_key: Option<String>,
    pub(super) password_key: Option<String>,
}

impl NatsAuthDraft {
    fn finish(self) -> Option<NatsAuth> {
        Some(NatsAuth {
            secret: self.secret?,
            username_key: self.username_key.unwrap_or_else(|| NATS_USERNAME_KEY.to_owned()),
            password_key: self.password_key.unwrap_or_else(|| NATS_PASSWORD_KEY.to_owned()),
        })
    }
}

/// The variables of Jangar that are set, without blanks around their values. A blank one counts as unset.
struct Given(BTreeMap<String, String>);

impl Given {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl Settings {
    /// Reads the settings from the variables of an environment.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Parsed, Mistakes> {
        let given = Given(
            vars.into_iter()
                .filter(|(name, value)| is_variable(name) && !value.trim().is_empty())
                .map(|(name, value)| (name, value.trim().to_owned()))
                .collect(),
        );
        let mut draft = Draft::default();
        let mut mistakes = Vec::new();
        for variable in table::variables() {
            let Some(text) = given.text(variable.name) else {
                continue;
            };
            if let Err(wrong) = variable.reader.read(&mut draft, text) {
                let remedy = format!("give {}", variable.reader);
                mistakes.push(Mistake::new(variable.name, text, wrong, remedy));
            }
        }
        mistakes.extend(contradictions(&draft, &given, &mistakes));
        match Mistakes::some(mistakes) {
            Some(mistakes) => Err(mistakes),
            None => Ok(parsed(draft, &given)),
        }
    }
}

fn parsed(draft: Draft, given: &Given) -> Parsed {
    let Draft {
        mut settings,
        cluster_scoped: _,
        pod_namespace,
        lease_namespace,
        agent_image,
        auth_secret,
        nats_auth,
        repositories,
        tls,
    } = draft;
    if let Some(namespace) = lease_namespace.or(pod_namespace) {
        settings.lease.namespace = namespace;
    }
    settings.runner.image = settings.runner.image.or(agent_image);
    settings.runner.auth_secret = auth_secret.finish();
    settings.runner.nats_auth = nats_auth.finish();
    settings.control_plane.tls = tls.finish();
    let idle_limits = idle_repository_limits(&repositories);
    settings.limits.concurrency.repositories = repositories.enabled.then_some(repositories.limits);
    Parsed {
        warnings: upside_down_retention(&settings)
            .into_iter()
            .chain(idle_limits)
            .chain(nowhere(&settings))
            .chain(unknown_fields(&settings.runner))
            .chain(given.0.keys().filter_map(|name| unread::gone(name)))
            .chain(unread::idle(|name| given.text(name)))
            .collect(),
        unknown: given
            .0
            .keys()
            .filter(|name| {
                table::variables().all(|variable| variable.name != **name) && !unread::is_others(name)
            })
            .cloned()
            .collect(),
        settings,
    }
}

/// Namespaces for orchestrations that are not looked after at all.
fn nowhere(settings: &Settings) -> Option<String> {
    let Namespaces::These(names) = &settings.orchestration_namespaces else {
        return None;
    };
    let outside: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !settings.namespaces.contains(name))
        .collect();
    (!outside.is_empty()).then(|| {
        format!(
            "{ORCHESTRATION_NAMESPACES} names {}, which {NAMESPACES} does not, so that nothing is looked after there: name it \
             in both, or take it out",
            outside.join(", ")
        )
    })
}

/// Values that are right by themselves but not together. Where one of them could not be read, its own mistake says enough.
fn contradictions(draft: &Draft, given: &Given, mistakes: &[Mistake]) -> Vec<Mistake> {
    let readable = |name: &str| mistakes.iter().all(|mistake| mistake.variable != name);
    let mut found = Vec::new();
    if draft.settings.namespaces == Namespaces::All && !draft.cluster_scoped && readable(CLUSTER_SCOPED) {
        found.push(Mistake::new(
            NAMESPACES,
            given.text(NAMESPACES).unwrap_or_default(),
            Wrong::NotClusterScoped,
            format!("give Jangar those rights and set {CLUSTER_SCOPED}=true, or name the namespaces"),
        ));
    }
    let lease = &draft.settings.lease;
    let retry = (RETRY_PERIOD, lease.retry_period);
    let renew = (RENEW_DEADLINE, lease.renew_deadline);
    let whole = (LEASE_DURATION, lease.duration);
    for (less, more) in [(retry, renew), (renew, whole)] {
        if readable(less.0) && readable(more.0) {
            found.extend(out_of_order(less, more, given));
        }
    }
    if let Some((set, missing)) = draft.tls.alone() {
        found.push(Mistake::new(
            set,
            given.text(set).unwrap_or_default(),
            Wrong::Alone { other: missing },
            format!("set {missing} as well, or neither"),
        ));
    }
    found
}

/// The mistake, if the one time is not less than the other. It is laid to the one that was set: a default is never wrong.
fn out_of_order(
    (less, shorter): (&'static str, Duration),
    (more, longer): (&'static str, Duration),
    given: &Given,
) -> Option<Mistake> {
    if shorter < longer {
        return None;
    }
    let (shorter, longer) = (shorter.as_secs(), longer.as_secs());
    Some(match given.text(less) {
        Some(text) => Mistake::new(
            less,
            text,
            Wrong::NotLess {
                other: more,
                seconds: longer,
            },
            format!("lower it, or raise {more} above {shorter}"),
        ),
        None => Mistake::new(
            more,
            given.text(more).unwrap_or_default(),
            Wrong::NotMore {
                other: less,
                seconds: shorter,
            },
            format!("raise it, or lower {less} below {longer}"),
        ),
    })
}

/// A Job goes with its run at the latest, so keeping it longer than the run cannot work.
fn upside_down_retention(settings: &Settings) -> Option<String> {
    let UpsideDown {
        job_seconds: job,
        run_seconds: run,
    } = Ladder::of_settings(settings).upside_down()?;
    Some(format!(
        "a finished Job should be kept for {job} s ({JOB_TTL}) but its run only for {run} s ({RUN_RETENTION}), \
         and the Job is deleted with the run: keep the run longer, or the Job shorter"
    ))
}

/// Limits that somebody wrote down and that nothing keeps.
fn idle_repository_limits(repositories: &RepositoriesDraft) -> Option<String> {
    let RepositoriesDraft { enabled, limits } = repositories;
    let written = limits.default.is_some() || !limits.overrides.is_empty();
    (written && !enabled).then(|| {
        format!(
            "{} or {} is set, and {} is not true, so that repositories are not limited: set it, or take the limits out",
            names::REPO_DEFAULT,
            names::REPO_OVERRIDES,
            names::REPO_ENABLED
        )
    })
}

/// Fields of Kubernetes that this version does not know. They may be of a newer Kubernetes, or misspelt: only the API server
/// can tell, and it refuses the Jobs of runs if they are wrong.
fn unknown_fields(runner: &RunnerSettings) -> impl Iterator<Item = String> {
    fn of_each<T: DeserializeOwned + Serialize>(list: &[AsGiven<T>]) -> impl Iterator<Item = String> {
        let unknown =
            |(index, given): (usize, &AsGiven<T>)| Some(format!("[{index}].{}", given.unknown_field()?));
        list.iter().enumerate().filter_map(unknown)
    }
    let affinity = runner.affinity.as_ref().and_then(AsGiven::unknown_field);
    let security = runner.pod_security_context.as_ref();
    let security = security.and_then(AsGiven::unknown_field);
    let named = |variable: &'static str| move |path: String| (variable, path);
    of_each(&runner.tolerations)
        .map(named("JANGAR_AGENT_RUNNER_TOLERATIONS"))
        .chain(
            of_each(&runner.topology_spread_constraints)
                .map(named("JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS")),
        )
        .chain(affinity.into_iter().map(named("JANGAR_AGENT_RUNNER_AFFINITY")))
        .chain(security.into_iter().map(named("JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT")))
        .map(|(variable, path)| {
            format!(
                "{variable} has `{path}`, which is no field that this version knows: it is passed on to Kubernetes as it is, \
                 which refuses every Job if it does not know it either"
            )
        })
}
