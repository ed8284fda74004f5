//! How a container is started.

use std::{collections::BTreeSet, fs, io, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    process::Child,
    sync::{mpsc, watch},
};

use super::{Counted, Current, Event, Worker, report::MANAGER};
use crate::node::executor::{
    Shared,
    attempt::{self, Begun, make_private_dir, remove_tree},
    gate::OpenGate,
    lifecycle::{ContainerState, WaitReason, after},
    logs::Live,
    objects::{ConfigError, Objects, Reference, env_references, volume_references},
    prepare::{Place, Places, PrepareError, prepare},
    run::{self, Cause, Exit, Files, Run, START_FAILED_CODE},
    volumes::{self, Content, Surroundings},
};

/// When to try again what failed for a reason that no event will tell of.
const RETRY: Duration = Duration::from_secs(5);

/// Why a container was not started.
#[derive(Debug)]
pub(super) struct Blocked {
    reason: WaitReason,
    pub(super) message: String,
    on: BTreeSet<Reference>,
    retry: bool,
}

impl Blocked {
    pub(super) fn files(error: &io::Error) -> Self {
        Self {
            reason: WaitReason::RunContainerError,
            message: error.to_string(),
            on: BTreeSet::new(),
            retry: true,
        }
    }
}

/// Whether a later try may succeed although no object changes.
fn is_passing(error: &ConfigError) -> bool {
    matches!(error, ConfigError::Unavailable { .. })
}

impl Worker {
    /// Starts the next attempt of a container, or notes why it cannot be started.
    pub(super) async fn begin(&mut self, index: usize) {
        let begun = self.try_begin(index).await;
        let state = match begun {
            Ok(()) => {
                if let Some(record) = self.records.get_mut(index) {
                    record.attempts += 1;
                }
                ContainerState::Starting
            }
            Err(blocked) => ContainerState::Blocked {
                reason: blocked.reason,
                message: blocked.message,
                on: blocked.on,
                retry_at: blocked.retry.then(|| after(self.shared.now(), RETRY)),
            },
        };
        if state == ContainerState::Starting {
            self.starting = Some(Counted::among(&self.shared.starting));
        }
        self.set_aside(index, state);
    }

    async fn try_begin(&mut self, index: usize) -> Result<(), Blocked> {
        if self.begin_from_standby(index).await {
            return Ok(());
        }
        let files = self.next_files(index)?;
        if files.gate().exists() {
            // Who stood by is gone, and what it left could not be removed until now.
            self.undo().map_err(|error| Blocked::files(&error))?;
        }
        let run = self.prepared(index, &files).await?;
        let begun = attempt::start(&files, &self.shared.settings.config.shim, &run)
            .map_err(|error| Blocked::files(&error))?;
        self.monitor(index, files, Process::begun(begun, None));
        // From here on it runs, and must be counted as begun: what cannot be tidied up is no reason to begin it again.
        self.note(self.keep_attempts(index));
        Ok(())
    }

    /// Where the files of the next attempt of a container are.
    pub(super) fn next_files(&self, index: usize) -> Result<Files, Blocked> {
        let next = self.records.get(index).map(|record| record.attempts);
        next.and_then(|attempt| self.files(index, attempt))
            .ok_or_else(|| Blocked::files(&io::Error::other("the container is not in the pod")))
    }

    /// Makes all that the next attempt of a container needs, and describes it.
    pub(super) async fn prepared(&mut self, index: usize, files: &Files) -> Result<Run, Blocked> {
        let Some(container) = self.container(index).cloned() else {
            return Err(Blocked::files(&io::Error::other(
                "the container is not in the pod",
            )));
        };
        let places = match self.places.clone() {
            Some(places) => places,
            None => self.set_up_volumes().await?,
        };
        let on = env_references(&container);
        let objects = Objects::fetch(&self.shared.client, self.namespace(), &on).await;
        objects
            .map_err(PrepareError::from)
            .and_then(|objects| {
                prepare(
                    &self.shared.settings,
                    &self.pod,
                    &container,
                    &objects,
                    &places,
                    files,
                )
            })
            .map_err(|error| not_prepared(&error, on))
    }

    /// Follows a process of an attempt.
    pub(super) fn monitor(&mut self, index: usize, files: Files, process: Process) {
        let (sender, live) = watch::channel(Live::default());
        if let Some(current) = self.current.get_mut(index) {
            *current = Some(Current {
                files: files.clone(),
                live,
            });
        }
        let monitor = Monitor {
            shared: self.shared.clone(),
            index,
            files,
            events: self.sender.clone(),
            live: sender,
        };
        self.monitors.spawn(monitor.run(process));
    }

    /// Only the attempt before the present one is kept, for its log.
    fn keep_attempts(&self, index: usize) -> io::Result<()> {
        let attempt = self.records.get(index).map_or(0, |record| record.attempts);
        match attempt.checked_sub(2).and_then(|old| self.files(index, old)) {
            Some(files) => remove_tree(&files.dir),
            None => Ok(()),
        }
    }

    /// Makes the volumes of the pod. They stay as they are for as long as it runs.
    async fn set_up_volumes(&mut self) -> Result<Places, Blocked> {
        let on = volume_references(&self.pod);
        let failed = |name: &str, error: &dyn std::fmt::Display| {
            format!("MountVolume.SetUp failed for volume {name:?} : {error}")
        };
        let blocked = |name: &str, error: ConfigError| Blocked {
            reason: WaitReason::ContainerCreating,
            message: failed(name, &error),
            on: on.clone(),
            retry: is_passing(&error),
        };
        let objects = Objects::fetch(&self.shared.client, self.namespace(), &on)
            .await
            .map_err(|error| blocked("", error))?;
        let around = Surroundings {
            objects: &objects,
            facts: &self.shared.settings.facts,
            token: self.shared.settings.config.service_account_token.as_deref(),
        };
        let volumes = self
            .spec()
            .and_then(|spec| spec.volumes.clone())
            .unwrap_or_default();
        let mut contents = Vec::new();
        for volume in &volumes {
            let content =
                volumes::content(&self.pod, volume, around).map_err(|error| blocked(&volume.name, error))?;
            contents.push((volume.name.as_str(), content));
        }
        let mut places = Places::new();
        for (name, content) in contents {
            if let Content::Claim { .. } = &content {
                self.bind_claim(name, &objects)
                    .await
                    .map_err(|error| blocked(name, error))?;
            }
            let place = self.make_volume(name, content).map_err(|error| Blocked {
                message: failed(name, &error),
                reason: WaitReason::ContainerCreating,
                on: BTreeSet::new(),
                retry: true,
            })?;
            places.insert(name.to_owned(), place);
        }
        make_private_dir(&self.dir)
            .and_then(|()| run::write(&self.dir.join(super::recover::PLACES), &places))
            .map_err(|error| Blocked::files(&error))?;
        self.use_places(places.clone());
        Ok(places)
    }

    /// Remembers where volumes are, and that their claims are in use.
    pub(super) fn use_places(&mut self, places: Places) {
        for claim in places.values().filter_map(|place| place.claim.as_deref()) {
            self.shared.claims.take(claim);
        }
        self.places = Some(places);
    }

    fn make_volume(&self, name: &str, content: Content) -> io::Result<Place> {
        let own = self.dir.join("volumes").join(name);
        make_private_dir(&self.dir.join("volumes"))?;
        Ok(match content {
            Content::Files(files) => {
                // A crash may have left a part of it.
                remove_tree(&own)?;
                volumes::write(&own, &files)?;
                Place {
                    path: own,
                    read_only: true,
                    claim: None,
                }
            }
            Content::Scratch => {
                fs::create_dir_all(&own)?;
                Place {
                    path: own,
                    read_only: false,
                    claim: None,
                }
            }
            Content::Claim { uid, read_only } => {
                let path = self.shared.settings.claims_dir().join(&uid);
                fs::create_dir_all(&path)?;
                Place {
                    path,
                    read_only,
                    claim: Some(uid),
                }
            }
        })
    }

    /// Says that a claim has its volume: a directory of this machine.
    async fn bind_claim(&self, volume: &str, objects: &Objects) -> Result<(), ConfigError> {
        let volumes = self.spec().and_then(|spec| spec.volumes.as_ref());
        let name = volumes
            .into_iter()
            .flatten()
            .filter(|found| found.name == volume)
            .find_map(|found| found.persistent_volume_claim.as_ref())
            .map(|source| source.claim_name.clone())
            .unwrap_or_default();
        let claim = objects.claim(&name)?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Bound") {
            return Ok(());
        }
        let spec = claim.spec.as_ref();
        let requests = spec
            .and_then(|spec| spec.resources.as_ref())
            .and_then(|resources| resources.requests.as_ref());
        let patch = json!({
            "metadata": {"uid": claim.metadata.uid},
            "status": {
                "phase": "Bound",
                "accessModes": spec.and_then(|spec| spec.access_modes.as_ref()),
                "capacity": requests,
            }
        });
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.shared.client.clone(), self.namespace());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match api.patch_status(&name, &params, &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(ConfigError::Unavailable {
                message: error.to_string(),
            }),
        }
    }
}

fn not_prepared(error: &PrepareError, on: BTreeSet<Reference>) -> Blocked {
    let message = error.to_string();
    let (reason, retry) = match error {
        PrepareError::Config(error) => (WaitReason::CreateContainerConfigError, is_passing(error)),
        PrepareError::NoCommand { .. } => (WaitReason::CreateContainerError, false),
        PrepareError::Files(_) => (WaitReason::CreateContainerError, true),
    };
    Blocked {
        reason,
        message,
        on,
        retry,
    }
}

/// The process that holds a container.
#[derive(Debug)]
pub(super) struct Process {
    wake: Receiver,
    /// `None` if an earlier executor started it.
    child: Option<Child>,
    /// What it begins through, if it stood by.
    gate: Option<OpenGate>,
}

impl Process {
    pub(super) fn begun(begun: Begun, gate: Option<OpenGate>) -> Self {
        Self {
            wake: begun.wake,
            child: Some(begun.child),
            gate,
        }
    }

    pub(super) fn found(wake: Receiver) -> Self {
        Self {
            wake,
            child: None,
            gate: None,
        }
    }
}

/// Follows one process and tells the worker what becomes of it.
struct Monitor {
    shared: Arc<Shared>,
    index: usize,
    files: Files,
    events: mpsc::Sender<Event>,
    live: watch::Sender<Live>,
}

impl Monitor {
    async fn run(self, process: Process) {
        let Process {
            mut wake,
            child,
            mut gate,
        } = process;
        let mut bytes = [0; 512];
        let mut started = false;
        let mut told = false;
        // The end of the pipe is the end of the process, and so is a broken one.
        while matches!(wake.read(&mut bytes).await, Ok(1..)) {
            self.live.send_modify(|live| live.changes += 1);
            if !started && let Ok(Some(at)) = attempt::started_at(&self.files) {
                started = true;
                gate = None;
                // Without a worker there is nobody to tell.
                let _ = self.events.send(Event::Started(self.index, at)).await;
            }
            // Once its end is recorded nothing of the container lives any more, but for the process that held it, which takes the
            // sandbox down. Nobody has to wait for that who waits for the place.
            if started
                && !told
                && let Ok(Some(exit)) = run::read::<Exit>(&self.files.exit())
            {
                told = true;
                let _ = self.events.send(Event::Ended(self.index, exit)).await;
            }
        }
        drop(gate);
        if let Some(mut child) = child {
            // How it ended is in its files; this only lets go of it.
            let _ = child.wait().await;
        }
        if !told {
            let exit = self.exit();
            let _ = self.events.send(Event::Ended(self.index, exit)).await;
        }
        self.live.send_modify(|live| live.ended = true);
        let _ = self.events.send(Event::Gone).await;
    }

    fn exit(&self) -> Exit {
        let now = self.shared.now();
        match attempt::ended(&self.files, now) {
            Ok(Some(exit)) => exit,
            // It ended before it could even say that it was there.
            Ok(None) => Exit {
                cause: Cause::StartFailed,
                code: START_FAILED_CODE,
                signal: None,
                message: fs::read_to_string(self.files.complaints()).unwrap_or_default(),
                started_at: None,
                finished_at: now,
            },
            Err(error) => Exit {
                message: format!("the record of its end cannot be read: {error}"),
                ..Exit::lost(None, now)
            },
        }
    }
}
