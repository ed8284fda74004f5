//! Every variable that is read: its name, what it is when unset, its meaning, and its reader.

use std::time::Duration;

use super::{
    Install, JobController, Namespaces, control_plane, custom,
    legal::Rule,
    limit_table::LIMITS,
    mistakes::Wrong,
    parse::Draft,
    reader::{
        Reader, legal, named_words, node_selector, object, objects, topology_spread_constraints, words,
    },
    temporal, vcs, webhooks,
};

/// A group of variables, under a title.
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) variables: &'static [Variable],
}

/// One variable.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) unset: Unset,
    /// One sentence.
    pub(super) meaning: &'static str,
    pub(super) reader: Reader,
}

/// What holds if a variable is not set.
#[derive(Clone, Copy)]
pub(super) enum Unset {
    /// The same as if it were set to this.
    Is(&'static str),
    /// What no value of the variable could say.
    Means(&'static str),
}

pub(super) const NAMESPACES: &str = "JANGAR_AGENTS_CONTROLLER_NAMESPACES";
pub(super) const ORCHESTRATION_NAMESPACES: &str = "JANGAR_ORCHESTRATION_CONTROLLER_NAMESPACES";
pub(super) const CLUSTER_SCOPED: &str = "JANGAR_RBAC_CLUSTER_SCOPED";
pub(super) const LEASE_DURATION: &str = "JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS";
pub(super) const RENEW_DEADLINE: &str = "JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS";
pub(super) const RETRY_PERIOD: &str = "JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS";
pub(super) const RUN_RETENTION: &str = "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_SECONDS";
pub(super) const JOB_TTL: &str = "JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS";

/// What holds of the credentials of agents where only the Secret is named.
pub(super) const AUTH_SECRET_KEY: &str = "auth.json";
pub(super) const AUTH_SECRET_MOUNT_PATH: &str = "/root/.codex";
pub(super) const NATS_USERNAME_KEY: &str = "username";
pub(super) const NATS_PASSWORD_KEY: &str = "password";

/// What stands for every namespace.
const ALL: &str = "*";
/// What a list of namespaces may be.
const NAMESPACE_NAMES: &str =
    "names of namespaces (lower-case letters, digits and dashes, at most 63), separated by commas, or `*`";

/// The longest time that can be chosen where nothing else bounds it: Kubernetes keeps seconds in 32 bits with a sign.
const LONGEST: u32 = 0x7fff_ffff;
/// A leader that died holds everything up for as long as its lease lasts, so more than an hour is taken for a slip.
const LEASE_SECONDS_MAX: u32 = 3_600;
/// Two hundred in a second. An API server that has to remove as many Jobs and pods as well hardly does anything else.
const DELETIONS_MAX: u32 = 12_000;
/// The schema of the status admits no more.
const ARTIFACTS_MAX: u32 = 50;
/// Every further attempt is a whole run of an agent: more than a hundred are taken for a slip.
const BACKOFF_LIMIT_MAX: u32 = 100;
/// A Job that vanishes sooner than this can hardly be looked at.
const JOB_TTL_MIN: u32 = 30;
/// A week. Finished Jobs and their pods weigh on the cluster; what should be kept longer belongs to the run.
const JOB_TTL_MAX: u32 = 604_800;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[
    Section {
        title: "What is looked after",
        variables: CONTROLLERS,
    },
    Section {
        title: "Leader election",
        variables: LEADER_ELECTION,
    },
    Section {
        title: "The life of a run",
        variables: RUNS,
    },
    Section {
        title: "The queue",
        variables: LIMITS,
    },
    Section {
        title: "What a run may ask for",
        variables: POLICY,
    },
    Section {
        title: "The pods of runs",
        variables: PODS,
    },
    Section {
        title: "Credentials of agents",
        variables: CREDENTIALS,
    },
    Section {
        title: "The Jobs of runs",
        variables: JOBS,
    },
    Section {
        title: "Endpoints that do the work of runs",
        variables: custom::VARIABLES,
    },
    Section {
        title: "Version control",
        variables: VERSION_CONTROL,
    },
    Section {
        title: "Temporal",
        variables: temporal::VARIABLES,
    },
    Section {
        title: "The control plane",
        variables: control_plane::VARIABLES,
    },
    Section {
        title: "Webhooks",
        variables: webhooks::VARIABLES,
    },
];

/// All variables, in the order of the reference.
pub(super) fn variables() -> impl Iterator<Item = &'static Variable> {
    SECTIONS.iter().flat_map(|section| section.variables)
}

const CONTROLLERS: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether agents and their runs are looked after at all.",
        reader: Reader::Switch(|draft, on| draft.settings.agents_enabled = on),
    },
    Variable {
        name: "JANGAR_ORCHESTRATION_CONTROLLER_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether Orchestrations and their runs are looked after; without it no step starts and no end of a step is \
                  recorded, and a run of a step stays until somebody deletes it.",
        reader: Reader::Switch(|draft, on| draft.settings.orchestrations_enabled = on),
    },
    Variable {
        name: ORCHESTRATION_NAMESPACES,
        unset: Unset::Is("*"),
        meaning: "In which of the namespaces that are looked after Orchestrations and their runs are; `*` is all of them.",
        reader: Reader::Special {
            takes: NAMESPACE_NAMES,
            read: |draft, text| {
                draft.settings.orchestration_namespaces = read_namespaces(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: NAMESPACES,
        unset: Unset::Is("agents"),
        meaning: "The namespaces that are looked after; `*` is every one, also those made later.",
        reader: Reader::Special {
            takes: NAMESPACE_NAMES,
            read: |draft, text| {
                draft.settings.namespaces = read_namespaces(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: CLUSTER_SCOPED,
        unset: Unset::Is("false"),
        meaning: "Whether Jangar has its rights in the whole cluster, which `*` needs.",
        reader: Reader::Switch(|draft, on| draft.cluster_scoped = on),
    },
    Variable {
        name: "JANGAR_POD_NAMESPACE",
        unset: Unset::Means("unknown"),
        meaning: "The namespace that Jangar itself runs in.",
        reader: Reader::Text(Rule::Namespace, |draft, name| draft.pod_namespace = Some(name)),
    },
];

const LEADER_ELECTION: &[Variable] = &[
    Variable {
        name: "JANGAR_LEADER_ELECTION_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether only the holder of a Lease writes; without it there must be one process only.",
        reader: Reader::Switch(|draft, on| draft.settings.lease.enabled = on),
    },
    Variable {
        name: "JANGAR_LEADER_ELECTION_LEASE_NAME",
        unset: Unset::Is(jangar_api::labels::LEADER_LEASE),
        meaning: "The name of the Lease.",
        reader: Reader::Text(Rule::Name, |draft, name| draft.settings.lease.name = name),
    },
    Variable {
        name: "JANGAR_LEADER_ELECTION_LEASE_NAMESPACE",
        unset: Unset::Means("`JANGAR_POD_NAMESPACE`, else `agents`"),
        meaning: "The namespace of the Lease.",
        reader: Reader::Text(Rule::Namespace, |draft, name| draft.lease_namespace = Some(name)),
    },
    Variable {
        name: LEASE_DURATION,
        unset: Unset::Is("30"),
        meaning: "How long others wait for a leader that is silent.",
        reader: lease_seconds(|draft, number| draft.settings.lease.duration = seconds(number)),
    },
    Variable {
        name: RENEW_DEADLINE,
        unset: Unset::Is("20"),
        meaning: "When a leader that cannot renew gives up; less than the duration of the lease.",
        reader: lease_seconds(|draft, number| draft.settings.lease.renew_deadline = seconds(number)),
    },
    Variable {
        name: RETRY_PERIOD,
        unset: Unset::Is("5"),
        meaning: "How often the lease is renewed, and asked for; less than the renew deadline.",
        reader: lease_seconds(|draft, number| draft.settings.lease.retry_period = seconds(number)),
    },
    Variable {
        name: "JANGAR_ROLLOUT_ROLE_FILE",
        unset: Unset::Means("no canaries"),
        meaning: "A file with `canary` in it where this process is one: it asks for the lease only after nobody has had it for 15 s.",
        reader: Reader::Text(Rule::Directory, |draft, path| {
            draft.settings.lease.role_file = Some(path);
        }),
    },
];

const RUNS: &[Variable] = &[
    Variable {
        name: "JANGAR_REFERENCE_GRACE_SECONDS",
        unset: Unset::Is("60"),
        meaning: "How long a run waits for an object it refers to before it fails.",
        reader: up_to(LONGEST, |draft, number| {
            draft.settings.runs.reference_grace = seconds(number);
        }),
    },
    Variable {
        name: RUN_RETENTION,
        unset: Unset::Is("2592000"),
        meaning: "How many seconds finished runs are kept, unless a run says otherwise; 0 keeps them for good.",
        reader: up_to(LONGEST, |draft, number| {
            draft.settings.runs.retention = (number > 0).then(|| seconds(number));
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_AGENTRUN_RETENTION_DELETES_PER_MINUTE",
        unset: Unset::Is("300"),
        meaning: "How many runs whose time has come are deleted in any minute, at most; the others wait for their turn.",
        reader: Reader::Number {
            from: 1,
            to: DELETIONS_MAX,
            or_zero: false,
            set: |draft, number| draft.settings.runs.deletions_per_minute = number,
        },
    },
    Variable {
        name: "JANGAR_AGENTRUN_IMMUTABILITY_ENFORCED",
        unset: Unset::Is("true"),
        meaning: "Whether a run whose accepted spec was changed is stopped, or only warned about.",
        reader: Reader::Switch(|draft, on| draft.settings.runs.immutability_enforced = on),
    },
    Variable {
        name: "JANGAR_ORCHESTRATION_CANCEL_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether runs are cancelled on request; without it the request is answered with `CancelDisabled`.",
        reader: Reader::Switch(|draft, on| draft.settings.runs.cancel_enabled = on),
    },
    Variable {
        name: "JANGAR_ORCHESTRATION_CANCEL_TIMEOUT_MS",
        unset: Unset::Is("60000"),
        meaning: "How many milliseconds a cancel may take before it is reported as timed out.",
        reader: Reader::Number {
            from: 1,
            to: LONGEST,
            or_zero: false,
            set: |draft, number| {
                draft.settings.runs.cancel_timeout = Duration::from_millis(u64::from(number));
            },
        },
    },
    Variable {
        name: "JANGAR_AGENTRUN_ARTIFACTS_MAX",
        unset: Unset::Is("50"),
        meaning: "How many artifacts the status of a run lists.",
        reader: up_to(ARTIFACTS_MAX, |draft, number| {
            // The bound is far below what any usize holds.
            draft.settings.runs.artifacts_max = usize::try_from(number).unwrap_or(usize::MAX);
        }),
    },
    Variable {
        name: "JANGAR_AGENTRUN_ARTIFACTS_STRICT",
        unset: Unset::Is("false"),
        meaning: "Whether more artifacts than that, or bad ones, fail the run.",
        reader: Reader::Switch(|draft, on| draft.settings.runs.artifacts_strict = on),
    },
];

const POLICY: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_LABELS_REQUIRED",
        unset: Unset::Means("none"),
        meaning: "The labels that every run must have.",
        reader: Reader::List(Rule::LabelKey, |draft, keys| {
            draft.settings.policy.labels_required = keys;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_LABELS_ALLOWED",
        unset: Unset::Means("all"),
        meaning: "The labels that a run may have.",
        reader: Reader::List(Rule::LabelPattern, |draft, patterns| {
            draft.settings.policy.labels_allowed = patterns;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_LABELS_DENIED",
        unset: Unset::Means("none"),
        meaning: "The labels that no run may have, even if they are allowed.",
        reader: Reader::List(Rule::LabelPattern, |draft, patterns| {
            draft.settings.policy.labels_denied = patterns;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_IMAGES_ALLOWED",
        unset: Unset::Means("all"),
        meaning: "The images that a run may use.",
        reader: Reader::List(Rule::ImagePattern, |draft, patterns| {
            draft.settings.policy.images_allowed = patterns;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_IMAGES_DENIED",
        unset: Unset::Means("none"),
        meaning: "The images that no run may use, even if they are allowed.",
        reader: Reader::List(Rule::ImagePattern, |draft, patterns| {
            draft.settings.policy.images_denied = patterns;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_BLOCKED_SECRETS",
        unset: Unset::Means("none"),
        meaning: "The Secrets that no run may use.",
        reader: Reader::List(Rule::Name, |draft, names| {
            draft.settings.policy.blocked_secrets = names.into_iter().collect();
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_SERVICE_ACCOUNTS_ALLOWED",
        unset: Unset::Means("those that the Agent names"),
        meaning: "The service accounts that a run may choose, where its Agent allows them.",
        reader: Reader::List(Rule::Name, |draft, names| {
            draft.settings.policy.service_accounts_allowed = names;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_PRIORITY_CLASSES_ALLOWED",
        unset: Unset::Means("none"),
        meaning: "The priority classes that a run may choose.",
        reader: Reader::List(Rule::Name, |draft, names| {
            draft.settings.policy.priority_classes_allowed = names;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_POD_SECURITY_RESTRICTED",
        unset: Unset::Is("true"),
        meaning: "Whether the security context that a run chooses has to keep to the Pod Security Standard restricted.",
        reader: Reader::Switch(|draft, on| draft.settings.policy.pod_security_restricted = on),
    },
];

const PODS: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENT_RUNNER_IMAGE",
        unset: Unset::Means("`JANGAR_AGENT_IMAGE`"),
        meaning: "The image of runs that name none.",
        reader: Reader::Text(Rule::Image, |draft, image| {
            draft.settings.runner.image = Some(image);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_IMAGE",
        unset: Unset::Means("none: such a run fails"),
        meaning: "The same, by its older name.",
        reader: Reader::Text(Rule::Image, |draft, image| draft.agent_image = Some(image)),
    },
    Variable {
        name: "JANGAR_IMAGE",
        unset: Unset::Is("ghcr.io/proompteng/jangar:latest"),
        meaning: "The image that agent-runner is copied from into every pod.",
        reader: Reader::Text(Rule::Image, |draft, image| {
            draft.settings.runner.install = Some(Install::from_image(image));
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_SERVICE_ACCOUNT",
        unset: Unset::Means("the namespace's `default`"),
        meaning: "The service account of pods.",
        reader: Reader::Text(Rule::Name, |draft, name| {
            draft.settings.runner.service_account = Some(name);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_NODE_SELECTOR",
        unset: Unset::Is("{}"),
        meaning: "The labels that a node must have.",
        reader: Reader::Special {
            takes: "a JSON object of labels, such as `{\"kubernetes.io/os\": \"linux\"}`",
            read: |draft, text| {
                draft.settings.runner.node_selector = node_selector(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_TOLERATIONS",
        unset: Unset::Is("[]"),
        meaning: "The taints of nodes that pods put up with.",
        reader: Reader::Special {
            takes: "a JSON array of tolerations as in a pod's `spec.tolerations`",
            read: |draft, text| {
                draft.settings.runner.tolerations = objects(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_TOPOLOGY_SPREAD_CONSTRAINTS",
        unset: Unset::Is("[]"),
        meaning: "How pods are spread over zones and nodes; without a selector, over all pods of runs.",
        reader: Reader::Special {
            takes: "a JSON array of constraints as in a pod's `spec.topologySpreadConstraints`",
            read: |draft, text| {
                draft.settings.runner.topology_spread_constraints = topology_spread_constraints(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_AFFINITY",
        unset: Unset::Is("{}"),
        meaning: "Which nodes, and which other pods, pods should be near to or far from.",
        reader: Reader::Special {
            takes: "a JSON object as in a pod's `spec.affinity`",
            read: |draft, text| {
                draft.settings.runner.affinity = object(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_POD_SECURITY_CONTEXT",
        unset: Unset::Is("{}"),
        meaning: "The security context of pods; `{}` is the restricted one.",
        reader: Reader::Special {
            takes: "a JSON object as in a pod's `spec.securityContext`",
            read: |draft, text| {
                draft.settings.runner.pod_security_context = object(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_PRIORITY_CLASS",
        unset: Unset::Means("the cluster's own"),
        meaning: "The priority class of pods.",
        reader: Reader::Text(Rule::Name, |draft, name| {
            draft.settings.runner.priority_class = Some(name);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_SCHEDULER_NAME",
        unset: Unset::Means("the cluster's own"),
        meaning: "The scheduler of pods.",
        reader: Reader::Text(Rule::Word, |draft, name| {
            draft.settings.runner.scheduler_name = Some(name);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_IMAGE_PULL_SECRETS",
        unset: Unset::Is("[]"),
        meaning: "The Secrets with which images are pulled.",
        reader: Reader::Special {
            takes: "a comma list or a JSON array of names of Secrets, each a string or `{\"name\": \"…\"}`",
            read: |draft, text| {
                draft.settings.runner.image_pull_secrets = legal(named_words(text)?, Rule::Name)?;
                Ok(())
            },
        },
    },
];

const CREDENTIALS: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME",
        unset: Unset::Means("none"),
        meaning: "The Secret with the credentials file of agents, in the namespace of each run.",
        reader: Reader::Text(Rule::Name, |draft, name| draft.auth_secret.name = Some(name)),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_KEY",
        unset: Unset::Is(AUTH_SECRET_KEY),
        meaning: "The key of that file in the Secret, and its name in the pod.",
        reader: Reader::Text(Rule::DataKey, |draft, key| draft.auth_secret.key = Some(key)),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH",
        unset: Unset::Is(AUTH_SECRET_MOUNT_PATH),
        meaning: "The directory of that file in the pod, to which the pod's user must have a way.",
        reader: Reader::Text(Rule::Directory, |draft, path| {
            draft.auth_secret.mount_path = Some(path);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_NATS_AUTH_SECRET_NAME",
        unset: Unset::Means("none"),
        meaning: "The Secret with user and password for NATS, in the namespace of each run.",
        reader: Reader::Text(Rule::Name, |draft, name| draft.nats_auth.secret = Some(name)),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_NATS_AUTH_USERNAME_KEY",
        unset: Unset::Is(NATS_USERNAME_KEY),
        meaning: "The key of the user in that Secret.",
        reader: Reader::Text(Rule::DataKey, |draft, key| {
            draft.nats_auth.username_key = Some(key);
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_NATS_AUTH_PASSWORD_KEY",
        unset: Unset::Is(NATS_PASSWORD_KEY),
        meaning: "The key of the password in that Secret.",
        reader: Reader::Text(Rule::DataKey, |draft, key| {
            draft.nats_auth.password_key = Some(key);
        }),
    },
];

const JOBS: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENT_RUNNER_BACKOFF_LIMIT",
        unset: Unset::Is("0"),
        meaning: "How many more attempts a failed Job gets.",
        reader: up_to(BACKOFF_LIMIT_MAX, |draft, number| {
            draft.settings.runner.backoff_limit = number;
        }),
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_JOB_CONTROLLER",
        unset: Unset::Is("kubernetes"),
        meaning: "Who makes the pods of new Jobs and says how these ended: the Job controller of Kubernetes, or Jangar itself (`spec.managedBy`), which takes \
                  the API server less (`docs/jobs.md`).",
        reader: Reader::Special {
            takes: "`kubernetes` or `jangar`",
            read: |draft, text| {
                draft.settings.runner.job_controller = match text {
                    "kubernetes" => JobController::Kubernetes,
                    "jangar" => JobController::Jangar,
                    _ => return Err(Wrong::Illegal),
                };
                Ok(())
            },
        },
    },
    Variable {
        name: JOB_TTL,
        unset: Unset::Is("600"),
        meaning: "How many seconds a finished Job is kept; 0 keeps it until its run is deleted.",
        reader: Reader::Number {
            from: JOB_TTL_MIN,
            to: JOB_TTL_MAX,
            or_zero: true,
            set: |draft, number| draft.settings.runner.job_ttl_seconds = (number > 0).then_some(number),
        },
    },
    Variable {
        name: "JANGAR_AGENT_RUNNER_LOG_RETENTION_SECONDS",
        unset: Unset::Is("604800"),
        meaning: "How many seconds archived logs are kept, which does not change how long the Job is.",
        reader: up_to(LONGEST, |draft, number| {
            draft.settings.runner.log_retention_seconds = number;
        }),
    },
];

const VERSION_CONTROL: &[Variable] = &[
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_VCS_PROVIDERS_ENABLED",
        unset: Unset::Is("true"),
        meaning: "Whether VersionControlProviders are looked after and used; without it runs go on with `VcsProvidersDisabled`.",
        reader: Reader::Switch(|draft, on| draft.settings.vcs.enabled = on),
    },
    Variable {
        name: "JANGAR_GITHUB_REPOS_ALLOWED",
        unset: Unset::Means("all"),
        meaning: "The repositories that runs may use, of whatever forge; a provider's `repositoryPolicy` comes after it.",
        reader: Reader::List(Rule::RepositoryPattern, |draft, patterns| {
            draft.settings.vcs.repositories_allowed = patterns;
        }),
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_VCS_DEPRECATED_TOKEN_TYPES",
        unset: Unset::Is("{\"github\": [\"pat\"]}"),
        meaning: "The kinds of token that are warned about, for each forge.",
        reader: Reader::Special {
            takes: "a JSON object of forges with lists of `pat`, `fine_grained`, `api_token` and `access_token`",
            read: |draft, text| {
                draft.settings.vcs.deprecated_token_types = vcs::deprecated_token_types(text)?;
                Ok(())
            },
        },
    },
    Variable {
        name: "JANGAR_AGENTS_CONTROLLER_VCS_PR_RATE_LIMITS",
        unset: Unset::Is("{}"),
        meaning: "How often pull requests may be opened, for each forge, which agent-runner is told.",
        reader: Reader::Special {
            takes: "a JSON object of forges with `windowSeconds`, `maxRequests` (both at least 1) and `backoffSeconds`",
            read: |draft, text| {
                draft.settings.vcs.rate_limits = vcs::rate_limits(text)?;
                Ok(())
            },
        },
    },
];

/// A number from zero.
const fn up_to(to: u32, set: fn(&mut Draft, u32)) -> Reader {
    Reader::Number {
        from: 0,
        to,
        or_zero: false,
        set,
    }
}

/// A time of the lease, in seconds.
const fn lease_seconds(set: fn(&mut Draft, u32)) -> Reader {
    Reader::Number {
        from: 1,
        to: LEASE_SECONDS_MAX,
        or_zero: false,
        set,
    }
}

fn read_namespaces(text: &str) -> Result<Namespaces, Wrong> {
    let names = words(text)?;
    Ok(match names.as_slice() {
        [] => return Err(Wrong::NoNamespace),
        [all] if all == ALL => Namespaces::All,
        several if several.iter().any(|name| name == ALL) => return Err(Wrong::AllAndOthers),
        _ => Namespaces::These(legal(names, Rule::Namespace)?.into_iter().collect()),
    })
}

pub(super) fn seconds(number: u32) -> Duration {
    Duration::from_secs(u64::from(number))
}
