//! The pod of one attempt: an init container that brings agent-runner, unless the node does, and the container in which it
//! runs the agent.

use jangar_api::{
    agents::workload::{Workload, WorkloadResources},
    labels,
};
use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, LocalObjectReference, PodSecurityContext, PodSpec, ResourceRequirements,
        SeccompProfile, SecurityContext,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    JobRequest,
    config::RuntimeConfig,
    documents::POD_GRACE_SECONDS,
    env::{self, Environment},
    files::{File, Store},
    paths::{self, VolumeNames},
    policy,
    prompt::{self, SystemPrompt},
    scheduling, secrets,
    volumes::{self, Below, Layout},
};
use crate::{
    decision::{KeyHolder, PodFields, Rejection},
    settings::{AuthSecret, Install, RunnerSettings},
    vcs::{self, Credentials, VersionControl},
};

/// Name of the container that runs the agent.
pub const CONTAINER: &str = "agent-runner";
/// Name of the init container that brings agent-runner.
pub const INSTALL_CONTAINER: &str = "install-agent-runner";

/// User and group of the pod: the first ordinary user of most images, so that programs which look for their user's name
/// often find one.
const USER: i64 = 1000;

/// What the pod is made of beside the request.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) image: String,
    pub(super) service_account: Option<String>,
    pub(super) config: &'a RuntimeConfig,
    pub(super) prompt: SystemPrompt<'a>,
    pub(super) vcs: Option<&'a VersionControl>,
    pub(super) environment: Environment,
    pub(super) auth: Option<&'a AuthSecret>,
    pub(super) files: Vec<File>,
    pub(super) store: &'a Store,
    /// Name of the ConfigMap with the files, if they are in one.
    pub(super) config_map: &'a str,
}

/// Puts the pod together, with the fields of its spec that have to be sent as they were given.
pub(super) fn spec(
    request: &JobRequest<'_>,
    run: &str,
    parts: Parts<'_>,
    settings: &RunnerSettings,
) -> Result<(PodSpec, PodFields), Rejection> {
    let mut fields = PodFields::new();
    let names = VolumeNames::of(run);
    let workload = request.run.spec.workload.as_ref();
    let installs = settings.install.as_ref();
    let mut layout = layout(&names, workload, &parts, installs.is_some())?;
    for (number, (secret, directory)) in secrets::listed(request).enumerate() {
        let volume = names.secret_env(number);
        let mut mount = volumes::mount(&volume, &directory);
        mount.read_only = Some(true);
        layout.volume(volumes::secret(&volume, secret));
        layout.mount(mount, Below::Nothing, "a Secret of the run", "spec.secrets")?;
    }
    let (volumes, mounts) = layout.finish();
    let resources = workload
        .and_then(|workload| workload.resources.as_ref())
        .map(resources);
    let env_from = env::from_secrets(policy::run_secrets(request.run));
    let main = Container {
        name: CONTAINER.to_owned(),
        image: Some(parts.image),
        command: Some(vec![paths::RUNNER.to_owned()]),
        working_dir: Some(paths::WORKSPACE.to_owned()),
        env: Some(parts.environment.variables),
        env_from: (!env_from.is_empty()).then_some(env_from),
        resources: resources.clone(),
        security_context: Some(restricted_container()),
        // The runner writes the message itself; the end of a log would be taken for one.
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        ..Default::default()
    };
    let pod = PodSpec {
        init_containers: installs.map(|from| vec![install(from, &names, resources)]),
        containers: vec![main],
        volumes: Some(volumes),
        restart_policy: Some("Never".to_owned()),
        // A token is a key to the cluster: only those who asked for an account get one.
        automount_service_account_token: parts.service_account.is_none().then_some(false),
        service_account_name: parts.service_account,
        image_pull_secrets: pull_secrets(parts.config, settings),
        security_context: pod_security_context(parts.config, settings, &mut fields),
        termination_grace_period_seconds: Some(i64::from(POD_GRACE_SECONDS)),
        // Otherwise the name of any Service in the namespace becomes variables of the agent.
        enable_service_links: Some(false),
        ..Default::default()
    };
    let pod = scheduling::place(pod, parts.config, settings, labels::AGENT_RUN, &mut fields);
    Ok((pod, fields))
}

/// Everything that is mounted into the main container.
fn layout(
    names: &VolumeNames,
    workload: Option<&Workload>,
    parts: &Parts<'_>,
    installs: bool,
) -> Result<Layout, Rejection> {
    let own = workload.map_or(&[][..], |workload| &workload.volumes);
    let mut layout = Layout::default();
    if installs {
        layout.volume(volumes::empty_dir(&names.runner));
        let mut runner = volumes::mount(&names.runner, paths::RUNNER_DIR);
        runner.read_only = Some(true);
        layout.mount(runner, Below::Nothing, "agent-runner", "")?;
    } else {
        layout.reserve(paths::RUNNER_DIR, "agent-runner");
    }
    layout.directory(&names.workspace, paths::WORKSPACE, own)?;
    if parts.environment.own_home {
        layout.directory(&names.home, paths::HOME, own)?;
    }
    if let Some(auth) = parts.auth {
        layout.directory(&names.auth_home, auth.directory(), own)?;
        layout.volume(volumes::secret_file(&names.auth_secret, &auth.name, &auth.key));
        let mount = volumes::file_mount(&names.auth_secret, &auth.key, &auth.path());
        let field = "JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_MOUNT_PATH";
        layout.mount(mount, Below::Nothing, "the agent's credentials", field)?;
    }
    if let Some(volume) = parts.prompt.volume(names.system_prompt.clone()) {
        let mount = volumes::file_mount(&volume.name, prompt::FILE, paths::SYSTEM_PROMPT);
        layout.volume(volume);
        layout.mount(mount, Below::Nothing, "the system prompt", "")?;
    }
    if let Some(vcs) = parts.vcs {
        credential_files(&mut layout, names, vcs)?;
    }
    layout.volume(parts.store.volume(&names.files, parts.config_map, &parts.files));
    for file in &parts.files {
        let mount = volumes::file_mount(&names.files, &file.item, &file.path);
        layout.mount(
            mount,
            Below::Nothing,
            &file.origin,
            &format!("{}.path", file.origin),
        )?;
    }
    layout.workload(own)?;
    Ok(layout)
}

/// The files with which the run shows its forge who it is: an SSH key and the hosts it is for, or a token that is renewed.
fn credential_files(layout: &mut Layout, names: &VolumeNames, vcs: &VersionControl) -> Result<(), Rejection> {
    let secret = |name: &str| KeyHolder::Secret(name.to_owned());
    let places = match (&vcs.auth.credentials, &vcs.token_secret) {
        (Credentials::Ssh { key, known_hosts }, _) => {
            let key = (
                &names.vcs_ssh,
                vcs::SSH_DIRECTORY,
                key.holder.clone(),
                key.key.clone(),
                key.field,
            );
            let hosts = known_hosts.as_ref().map(|hosts| {
                let directory = vcs::KNOWN_HOSTS_DIRECTORY;
                (
                    &names.vcs_known_hosts,
                    directory,
                    hosts.holder.clone(),
                    hosts.key.clone(),
                    hosts.field,
                )
            });
            [Some(key), hosts]
        }
        (Credentials::App(app), Some(name)) => {
            let key = vcs::TOKEN_KEY.to_owned();
            let token = (
                &names.vcs_token,
                vcs::TOKEN_DIRECTORY,
                secret(name),
                key,
                app.private_key.field,
            );
            [Some(token), None]
        }
        (Credentials::App(_) | Credentials::Token(_) | Credentials::None, _) => [None, None],
    };
    for (volume, directory, holder, key, field) in places.into_iter().flatten() {
        layout.volume(volumes::one_value(volume, &holder, &key));
        let mut mount = volumes::mount(volume, directory);
        mount.read_only = Some(true);
        layout.mount(mount, Below::Nothing, "a credential of the run", field)?;
    }
    Ok(())
}

/// The container that copies agent-runner into the pod. It has the resources of the main one: they do not run at the same
/// time, so this costs nothing, satisfies quotas, and does not change the pod's quality of service.
fn install(install: &Install, names: &VolumeNames, resources: Option<ResourceRequirements>) -> Container {
    let mut command = install.command.clone();
    command.push(paths::RUNNER_DIR.to_owned());
    Container {
        name: INSTALL_CONTAINER.to_owned(),
        image: Some(install.image.clone()),
        command: Some(command),
        resources,
        security_context: Some(restricted_container()),
        volume_mounts: Some(vec![volumes::mount(&names.runner, paths::RUNNER_DIR)]),
        ..Default::default()
    }
}

pub(super) fn resources(resources: &WorkloadResources) -> ResourceRequirements {
    let quantities = |map: &std::collections::BTreeMap<String, String>| {
        let quantity = |(name, value): (&String, &String)| (name.clone(), Quantity(value.clone()));
        map.iter().map(quantity).collect()
    };
    ResourceRequirements {
        limits: resources.limits.as_ref().map(quantities),
        requests: resources.requests.as_ref().map(quantities),
        claims: None,
    }
}

pub(super) fn pull_secrets(
    config: &RuntimeConfig,
    settings: &RunnerSettings,
) -> Option<Vec<LocalObjectReference>> {
    let names = config
        .image_pull_secrets
        .as_ref()
        .unwrap_or(&settings.image_pull_secrets);
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    (!names.is_empty()).then(|| names.iter().map(reference).collect())
}

/// What the run says, else what the settings say, else the restricted one. An empty one means none at all.
pub(super) fn pod_security_context(
    config: &RuntimeConfig,
    settings: &RunnerSettings,
    fields: &mut PodFields,
) -> Option<PodSecurityContext> {
    let chosen = config
        .pod_security_context
        .as_ref()
        .or(settings.pod_security_context.as_ref());
    match chosen {
        Some(context) => scheduling::one("securityContext", context, fields),
        None => Some(restricted_pod()),
    }
}

/// What the Pod Security Standard `restricted` asks of a pod, with a user, because many images would run as root.
fn restricted_pod() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        // Otherwise the node walks through the whole of a persistent volume at each start.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..Default::default()
    }
}

/// What the Pod Security Standard `restricted` asks of a container.
pub(super) fn restricted_container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        ..Default::default()
    }
}
