//! What one run writes: its pods one after the other, each from where the last line left off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::mpsc::Sender, time::sleep};

use super::{Wanted, place::Place};
use crate::{
    error::Error,
    object::Object,
    resource::word,
    transport::{Change, Lines, LogPart, LogTrouble, RunRef, Transport},
};

/// How often a log that breaks off is asked for again without a new line of it.
const RECONNECTS_MAX: u32 = 10;
/// How long to wait before that.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// What a reader has to say.
#[derive(Debug)]
pub(super) enum Told {
    Line(String),
    Note(String),
}

/// The reader of one run.
pub(super) struct Tail {
    pub transport: Transport,
    pub run: RunRef,
    pub wanted: Arc<Wanted>,
    /// Stands before every line.
    pub prefix: String,
    pub told: Sender<Told>,
}

impl Tail {
    /// Reads all there is, or follows until the run has ended. The number of logs that were read.
    pub(super) async fn read(self) -> Result<usize, Error> {
        let read = if self.wanted.follow {
            self.follow().await?
        } else {
            let mut read = 0;
            for pod in self.pods().await? {
                if has_started(&pod) && self.stream(&pod).await? {
                    read += 1;
                }
            }
            read
        };
        if read > 0 {
            return Ok(read);
        }
        self.archived().await
    }

    /// What is kept of a run whose pods are gone. Whether something is.
    async fn archived(&self) -> Result<usize, Error> {
        let Some(lines) = self.transport.archived_log(&self.run, self.wanted.tail).await? else {
            return Ok(0);
        };
        self.note(format!(
            "the pods of {} {} are gone: this is what was kept of the last one",
            word(self.run.kind),
            self.run.name
        ))
        .await?;
        self.plain_lines(lines).await?;
        Ok(1)
    }

    fn step(&self) -> Option<&str> {
        self.wanted.step.as_deref()
    }

    /// The pods of the run, the oldest first.
    async fn pods(&self) -> Result<Vec<Object>, Error> {
        let mut pods = self.transport.pods(&self.run, self.step()).await?;
        pods.sort_by_key(age);
        Ok(pods)
    }

    async fn follow(&self) -> Result<usize, Error> {
        let RunRef {
            kind,
            namespace,
            name,
        } = &self.run;
        let mut pods = self.transport.watch_pods(&self.run, self.step());
        let mut runs = self.transport.watch(*kind, Some(namespace), Some(name), None);
        let mut known: BTreeMap<String, Object> = BTreeMap::new();
        let mut read: BTreeSet<String> = BTreeSet::new();
        let mut count = 0;
        let mut told = false;
        loop {
            let next = known
                .values()
                .filter(|pod| has_started(pod) && !read.contains(pod.uid()))
                .min_by_key(|pod| age(pod))
                .cloned();
            if let Some(pod) = next {
                read.insert(pod.uid().to_owned());
                if self.stream(&pod).await? {
                    count += 1;
                }
                continue;
            }
            if !told {
                told = true;
                self.note(format!("waiting for a pod of {} {name}", word(*kind)))
                    .await?;
            }
            tokio::select! {
                change = pods.next() => match change {
                    Some(Change::Seen(pod)) => { known.insert(pod.uid().to_owned(), pod); }
                    Some(Change::Gone(pod)) => { known.remove(pod.uid()); }
                    other => self.disturbed(other).await?,
                },
                change = runs.next() => match change {
                    Some(Change::Seen(run)) if run.has_ended() => break,
                    Some(Change::Gone(_)) => break,
                    Some(Change::Seen(_)) => {}
                    other => self.disturbed(other).await?,
                },
            }
        }
        // The two watches are not in step: the run may be known to have ended before its last pod is known to have started.
        for pod in self.pods().await? {
            if has_started(&pod) && !read.contains(pod.uid()) && self.stream(&pod).await? {
                count += 1;
            }
        }
        Ok(count)
    }

    async fn disturbed(&self, change: Option<Change>) -> Result<(), Error> {
        match change {
            Some(Change::Trouble {
                words,
                hopeless: true,
            }) => Err(self.transport.trouble(words)),
            Some(Change::Trouble { words, .. }) => {
                self.note(format!("the line is disturbed, trying again: {words}"))
                    .await
            }
            Some(_) => Ok(()),
            None => {
                let words = format!("{} ended the watch", self.transport.answering());
                Err(self.transport.trouble(words))
            }
        }
    }

    /// Shows the log of one pod to its end. Whether there was one to read.
    async fn stream(&self, pod: &Object) -> Result<bool, Error> {
        let mut place = Place::default();
        let mut failures = 0;
        loop {
            place.begin_again();
            let part = self.part(pod, place.since());
            let progressed = match self.transport.log(&self.run, pod.name(), &part).await {
                Ok(lines) => self.lines(lines, &mut place).await?,
                // It was removed meanwhile.
                Err(LogTrouble::Gone) => return Ok(place.since().is_some()),
                Err(LogTrouble::Refused(error)) => return Err(error),
                Err(LogTrouble::Broken) => false,
            };
            if !self.wanted.follow || self.has_stopped(pod).await? {
                return Ok(true);
            }
            failures = if progressed { 0 } else { failures + 1 };
            if failures > RECONNECTS_MAX {
                self.note(format!(
                    "the log of pod {} breaks off, and is given up",
                    pod.name()
                ))
                .await?;
                return Ok(true);
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// What is still to be read.
    fn part(&self, pod: &Object, last: Option<Timestamp>) -> LogPart {
        let wanted = &self.wanted;
        LogPart {
            container: wanted.container.clone().or_else(|| first_container(pod)),
            follow: wanted.follow,
            tail: wanted.tail.filter(|_| last.is_none()),
            since_seconds: wanted
                .since
                .map(|since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
                .filter(|_| last.is_none()),
            since_time: last,
        }
    }

    /// Whether a line was new.
    async fn lines(&self, mut lines: Lines, place: &mut Place) -> Result<bool, Error> {
        let mut progressed = false;
        while let Some(line) = lines.next().await {
            let (time, text) = split_time(&line);
            if !place.is_new(time) {
                continue;
            }
            progressed = true;
            let shown = if self.wanted.timestamps {
                line.as_str()
            } else {
                text
            };
            self.tell(Told::Line(format!("{}{shown}", self.prefix))).await?;
        }
        Ok(progressed)
    }

    /// Shows lines that have no time before them: one at the beginning is the program's own.
    async fn plain_lines(&self, mut lines: Lines) -> Result<(), Error> {
        while let Some(line) = lines.next().await {
            self.tell(Told::Line(format!("{}{line}", self.prefix))).await?;
        }
        Ok(())
    }

    /// Whether the container will write nothing more.
    async fn has_stopped(&self, pod: &Object) -> Result<bool, Error> {
        let now = self.transport.find_pod(&self.run, pod).await?;
        Ok(now.is_none_or(|now| now.uid() != pod.uid() || has_ended(&now)))
    }

    async fn note(&self, words: String) -> Result<(), Error> {
        self.tell(Told::Note(words)).await
    }

    async fn tell(&self, told: Told) -> Result<(), Error> {
        // Whoever listened has gone: there is nothing left to do, and nobody to tell.
        self.told.send(told).await.map_err(|_| Error::BrokenPipe)
    }
}

fn age(pod: &Object) -> (String, String) {
    (
        pod.created().unwrap_or_default().to_owned(),
        pod.name().to_owned(),
    )
}

fn first_container(pod: &Object) -> Option<String> {
    let name = pod.value().pointer("/spec/containers/0/name")?.as_str()?;
    Some(name.to_owned())
}

/// Whether there is a log to read.
fn has_started(pod: &Object) -> bool {
    has_ended(pod) || containers(pod).any(|status| status.pointer("/state/running").is_some())
}

fn has_ended(pod: &Object) -> bool {
    matches!(pod.text("/status/phase"), Some("Succeeded" | "Failed"))
        || containers(pod).any(|status| status.pointer("/state/terminated").is_some())
}

fn containers(pod: &Object) -> impl Iterator<Item = &Value> {
    let statuses = pod
        .value()
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array);
    statuses.into_iter().flatten()
}

/// The time at the start of a line, and the rest.
fn split_time(line: &str) -> (Option<Timestamp>, &str) {
    match line.split_once(' ') {
        Some((time, rest)) => match time.parse() {
            Ok(time) => (Some(time), rest),
            Err(_) => (None, line),
        },
        None => match line.parse() {
            // An empty line has its time and nothing else.
            Ok(time) => (Some(time), ""),
            Err(_) => (None, line),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_taken_from_a_line_and_nothing_else_is() {
        let (time, text) = split_time("2026-03-01T12:00:00.5Z hello  world");
        assert_eq!(text, "hello  world");
        assert!(time.is_some());
        assert_eq!(split_time("hello world"), (None, "hello world"));
        assert_eq!(split_time("2026-03-01T12:00:00Z").1, "");
    }
}
