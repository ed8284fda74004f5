//! Finds what an earlier executor on the same data directory left: what runs, what has ended, and what is lost.

use std::{fs, io};

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};
use tokio::sync::watch;

use super::{Current, Worker, begin::Process, end::with_message};
use crate::node::executor::{
    attempt::{self, State, make_private_dir},
    lifecycle::{ContainerState, Role},
    logs::Live,
    manager,
    prepare::Places,
    run::{self, Cause, Exit, Files},
};

/// The file that says where the volumes of a pod are. It is there if they are complete.
pub(crate) const PLACES: &str = "volumes.json";

impl Worker {
    pub(super) fn recover(&mut self) {
        if manager::has_ended(&self.pod) {
            self.over = true;
            self.settled = true;
        }
        for index in 0..self.records.len() {
            if let Err(error) = self.recover_container(index) {
                tracing::warn!(%error, uid = self.uid, "the record of a container cannot be read");
                self.set_aside(
                    index,
                    ContainerState::Terminated(Exit::lost(None, self.shared.now())),
                );
            }
        }
        match run::read::<Places>(&self.dir.join(PLACES)) {
            Ok(Some(places)) if !self.over => self.use_places(places),
            Ok(_) => {}
            Err(error) => self.note(Err(error)),
        }
    }

    fn recover_container(&mut self, index: usize) -> io::Result<()> {
        let Some(newest) = self.newest_attempt(index)? else {
            return self.recover_from_status(index);
        };
        let Some(files) = self.files(index, newest) else {
            return Ok(());
        };
        let before = newest
            .checked_sub(1)
            .and_then(|attempt| self.files(index, attempt));
        let last = match before {
            Some(files) => run::read::<Exit>(&files.exit())?.map(|exit| self.told(index, &files, exit)),
            None => None,
        };
        let (attempts, state) = match attempt::find(&files, self.shared.now())? {
            State::Prepared => (newest, ContainerState::Waiting),
            State::Alive(wake) => {
                let since = attempt::started_at(&files)?;
                self.monitor(index, files, Process::found(wake));
                let state = since.map_or(ContainerState::Starting, |since| ContainerState::Running {
                    since,
                });
                (newest + 1, state)
            }
            State::Ended(exit) => {
                let exit = self.told(index, &files, exit);
                self.keep_log(index, files);
                (newest + 1, ContainerState::Terminated(exit))
            }
        };
        if let Some(record) = self.records.get_mut(index) {
            record.attempts = attempts;
            record.state = state;
            record.last = last;
        }
        Ok(())
    }

    fn told(&self, index: usize, files: &Files, exit: Exit) -> Exit {
        match self.container(index) {
            Some(container) => with_message(files, container, exit),
            None => exit,
        }
    }

    /// The log of a container that has ended.
    fn keep_log(&mut self, index: usize, files: Files) {
        let (_, live) = watch::channel(Live {
            changes: 0,
            ended: true,
        });
        // Nobody may have cleared away what it left.
        self.spent.push((files.clone(), live.clone()));
        if let Some(current) = self.current.get_mut(index) {
            *current = Some(Current { files, live });
        }
    }

    fn newest_attempt(&self, index: usize) -> io::Result<Option<u32>> {
        let Some(record) = self.records.get(index) else {
            return Ok(None);
        };
        let entries = match fs::read_dir(self.dir.join("containers").join(&record.name)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let numbers = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(numbers.max())
    }

    /// Without a record of our own, what the API says has happened has happened, and what it says is running is lost.
    fn recover_from_status(&mut self, index: usize) -> io::Result<()> {
        let Some((record, status)) = self.records.get(index).zip(self.pod.status.as_ref()) else {
            return Ok(());
        };
        let statuses = match record.role {
            Role::Init => &status.init_container_statuses,
            Role::Main => &status.container_statuses,
        };
        let Some(found) = statuses
            .iter()
            .flatten()
            .find(|status| status.name == record.name)
        else {
            return Ok(());
        };
        let Some(exit) = self.exit_in(found) else {
            return Ok(());
        };
        let newest = u32::try_from(found.restart_count).unwrap_or(0);
        if let Some(files) = self.files(index, newest).filter(|_| !self.over) {
            make_private_dir(&files.dir)?;
            run::write_durably(&files.exit(), &exit)?;
        }
        if let Some(record) = self.records.get_mut(index) {
            record.attempts = newest + 1;
            record.state = ContainerState::Terminated(exit);
        }
        Ok(())
    }

    fn exit_in(&self, status: &ContainerStatus) -> Option<Exit> {
        let state = status.state.as_ref()?;
        if let Some(running) = &state.running {
            let started = running.started_at.as_ref().map(|time| time.0);
            return Some(Exit::lost(started, self.shared.now()));
        }
        let last = status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        state
            .terminated
            .as_ref()
            .or(last)
            .map(|ended| self.exit_of(ended))
    }

    fn exit_of(&self, ended: &ContainerStateTerminated) -> Exit {
        Exit {
            cause: Cause::Exited,
            code: ended.exit_code,
            signal: ended.signal,
            message: ended.message.clone().unwrap_or_default(),
            started_at: ended.started_at.as_ref().map(|time| time.0),
            finished_at: ended
                .finished_at
                .as_ref()
                .map_or_else(|| self.shared.now(), |time| time.0),
        }
    }
}
