//! What one run writes: its pods one after the other, each from where the last line left off.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::mpsc::Sender, time::sleep};

use super::{Wanted, place::Place};
use crate::{
    error::Error,
    object::Object,
    resource::word,
    transport::{Change, KeptLine, KeptPart, Lines, LogPart, LogTrouble, RunRef, Transport},
};

/// How often a log that breaks off is asked for again without a new line of it: for three minutes, in which most things come back.
const RECONNECTS_MAX: u32 = 10;
/// How long to wait before that, which is twice as long each time, and the most that this grows to.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(30);

/// What a reader has to say.
#[derive(Debug)]
pub enum Told {
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
        let there = self.pods().await?;
        let mut known: BTreeSet<String> = there.iter().map(|pod| pod.name().to_owned()).collect();
        // Pods that are gone wrote before those that are there.
        let is_all = there.is_empty() && !self.wanted.follow;
        let mut read = self.kept_logs(&mut known, is_all).await?;
        if self.wanted.follow {
            read += self.follow(&mut known).await?;
            // Some came and went without having been seen.
            read += self.kept_logs(&mut known, read == 0).await?;
            return Ok(read);
        }
        for pod in &there {
            if has_started(pod) && self.stream(pod).await? {
                read += 1;
            }
        }
        Ok(read)
    }

    fn step(&self) -> Option<&str> {
        self.wanted.step.as_deref()
    }

    /// The pods of the run, the oldest first.
    async fn pods(&self) -> Result<Vec<Object>, Error> {
        let mut pods = match self.transport.pods(&self.run, self.step()).await {
            // The run is gone, and its pods with it.
            Err(error) if error.is_not_found() => Vec::new(),
            other => other?,
        };
        pods.sort_by_key(age);
        Ok(pods)
    }

    /// Shows what is kept of the logs of pods other than those that are known. How many there are. If that is not all there can be, it
    /// must not stand in the way of the rest.
    async fn kept_logs(&self, known: &mut BTreeSet<String>, is_all: bool) -> Result<usize, Error> {
        match self.kept_logs_of_others(known).await {
            Err(error) if !is_all && !matches!(error, Error::BrokenPipe) => {
                self.note(format!(
                    "what was kept of pods that are gone cannot be read: {error}"
                ))
                .await?;
                Ok(0)
            }
            other => other,
        }
    }

    async fn kept_logs_of_others(&self, known: &mut BTreeSet<String>) -> Result<usize, Error> {
        let part = KeptPart {
            pod: None,
            step: self.step(),
            tail: self.wanted.tail,
        };
        let Some(mut lines) = self.transport.kept_log(&self.run, &part).await? else {
            return Ok(0);
        };
        let mut count = 0;
        let mut current: Option<String> = None;
        while let Some(line) = lines.next().await {
            let line = line?;
            let goes_on = current.as_deref() == Some(line.pod.as_str());
            if self.is_of_another_container(&line) || (!goes_on && known.contains(&line.pod)) {
                continue;
            }
            if !goes_on {
                count += 1;
                known.insert(line.pod.clone());
                self.note(self.about_kept(&line)).await?;
            }
            self.show(&line.text).await?;
            current = Some(line.pod);
        }
        Ok(count)
    }

    fn is_of_another_container(&self, line: &KeptLine) -> bool {
        let wanted = self.wanted.container.as_ref();
        wanted.is_some_and(|wanted| *wanted != line.container)
    }

    /// What is to be known of a log that is kept before its first line is read.
    fn about_kept(&self, first: &KeptLine) -> String {
        let mut words = format!("pod {}", first.pod);
        if !first.step.is_empty() {
            // Writing to a String cannot fail, here and below.
            let _ = write!(words, " of step {}", first.step);
        }
        words.push_str(" is gone: this is what was kept of its log");
        if first.cut && self.wanted.tail.is_none() {
            words.push_str(", without its beginning");
        }
        if self.wanted.timestamps || self.wanted.since.is_some() {
            words.push_str("; its lines have no times, so that --since and --timestamps do nothing");
        }
        words
    }

    async fn follow(&self, known: &mut BTreeSet<String>) -> Result<usize, Error> {
        let RunRef {
            kind,
            namespace,
            name,
        } = &self.run;
        let mut pods = self.transport.watch_pods(&self.run, self.step());
        let mut runs = self.transport.watch(*kind, Some(namespace), Some(name), None);
        let mut there: BTreeMap<String, Object> = BTreeMap::new();
        let mut read: BTreeSet<String> = BTreeSet::new();
        let mut count = 0;
        let mut told = false;
        let mut seen = true;
        loop {
            let next = there
                .values()
                .filter(|pod| has_started(pod) && !read.contains(pod.uid()))
                .min_by_key(|pod| age(pod))
                .cloned();
            if let Some(pod) = next {
                read.insert(pod.uid().to_owned());
                known.insert(pod.name().to_owned());
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
                    Some(Change::Seen(pod)) => { there.insert(pod.uid().to_owned(), pod); }
                    Some(Change::Gone(pod)) => { there.remove(pod.uid()); }
                    other => self.disturbed(other).await?,
                },
                change = runs.next() => match change {
                    Some(Change::Seen(run)) if run.has_ended() => break,
                    Some(Change::Gone(_)) => break,
                    Some(Change::Seen(_)) => seen = true,
                    Some(Change::Relisting) => seen = false,
                    Some(Change::Listed) if !seen => {
                        if self.transport.is_gone(*kind, namespace, name).await {
                            break;
                        }
                    }
                    other => self.disturbed(other).await?,
                },
            }
        }
        // The two watches are not in step: the run may be known to have ended before its last pod is known to have started.
        for pod in self.pods().await? {
            if has_started(&pod) && !read.contains(pod.uid()) {
                known.insert(pod.name().to_owned());
                if self.stream(&pod).await? {
                    count += 1;
                }
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
        let mut why = String::new();
        loop {
            place.begin_again();
            let shown = place.shown();
            let part = self.part(pod, place.since());
            let is_whole = match self.transport.log(&self.run, pod.name(), &part).await {
                Ok(lines) => {
                    why.clear();
                    self.lines(lines, &mut place).await?
                }
                // It was removed meanwhile.
                Err(LogTrouble::Gone) => return self.rest(pod, &place, true).await,
                // What could be read a moment ago can be again: a node that has just come back does not know its pods yet.
                Err(LogTrouble::Refused(error)) if self.wanted.follow && place.shown() > 0 => {
                    why = format!(": {error}");
                    false
                }
                Err(LogTrouble::Refused(error)) => return Err(error),
                Err(LogTrouble::Broken) => false,
            };
            if is_whole {
                if !self.wanted.follow {
                    return Ok(true);
                }
                match self.now(pod).await? {
                    Some(now) if has_ended(&now) => return Ok(true),
                    Some(_) => {}
                    None => {
                        self.rest(pod, &place, false).await?;
                        return Ok(true);
                    }
                }
            }
            failures = if place.shown() == shown { failures + 1 } else { 0 };
            if failures > RECONNECTS_MAX {
                self.note(format!(
                    "the log of pod {} breaks off, and is given up{why}",
                    pod.name()
                ))
                .await?;
                return Ok(true);
            }
            sleep(pause(failures)).await;
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

    /// Whether the log ended by itself, and did not break off.
    async fn lines(&self, mut lines: Lines, place: &mut Place) -> Result<bool, Error> {
        while let Some(line) = lines.next().await {
            let Ok(line) = line else {
                return Ok(false);
            };
            let (time, text) = split_time(&line);
            if !place.is_new(time, text) {
                continue;
            }
            let shown = if self.wanted.timestamps {
                line.as_str()
            } else {
                text
            };
            self.show(shown).await?;
        }
        Ok(true)
    }

    /// Goes on with what is kept of a pod that is gone, from where its log ended or, if it `broke`, may have gone on. Whether there was
    /// a log at all.
    async fn rest(&self, pod: &Object, place: &Place, broke: bool) -> Result<bool, Error> {
        let nothing_shown = place.shown() == 0;
        let part = KeptPart {
            pod: Some(pod.name()),
            step: None,
            tail: self.wanted.tail.filter(|_| nothing_shown),
        };
        let kept: Result<Vec<KeptLine>, Error> = match self.transport.kept_log(&self.run, &part).await {
            Ok(Some(lines)) => lines.try_collect().await,
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        let mut kept = kept.unwrap_or_default();
        kept.retain(|line| line.pod == pod.name() && !self.is_of_another_container(line));
        let Some(first) = kept.first() else {
            if broke && !nothing_shown {
                self.note(format!(
                    "pod {} is gone, and nothing of its log was kept: the end may be missing",
                    pod.name()
                ))
                .await?;
            }
            return Ok(!nothing_shown);
        };
        let texts: Vec<&str> = kept.iter().map(|line| line.text.as_str()).collect();
        let counts = !first.cut && self.wanted.tail.is_none() && self.wanted.since.is_none();
        let from = place.next_in(&texts, counts);
        let rest = texts.get(from.unwrap_or(0)..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(true);
        }
        let words = match from {
            Some(0) | None => self.about_kept(first),
            Some(_) => format!("pod {} is gone: the rest is what was kept of its log", pod.name()),
        };
        self.note(words).await?;
        for text in rest {
            self.show(text).await?;
        }
        Ok(true)
    }

    /// The pod as it is now, unless it is gone.
    async fn now(&self, pod: &Object) -> Result<Option<Object>, Error> {
        let now = self.transport.find_pod(&self.run, pod).await?;
        Ok(now.filter(|now| now.uid() == pod.uid()))
    }

    async fn show(&self, text: &str) -> Result<(), Error> {
        self.tell(Told::Line(format!("{}{text}", self.prefix))).await
    }

    async fn note(&self, words: String) -> Result<(), Error> {
        self.tell(Told::Note(words)).await
    }

    async fn tell(&self, told: Told) -> Result<(), Error> {
        // Whoever listened has gone: there is nothing left to do, and nobody to tell.
        self.told.send(told).await.map_err(|_| Error::BrokenPipe)
    }
}

/// How long to wait after so many failures.
fn pause(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    RECONNECT_PAUSE.saturating_mul(factor).min(RECONNECT_PAUSE_MAX)
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
    fn a_log_that_breaks_off_is_asked_for_ever_more_rarely_for_some_minutes() {
        let pauses: Vec<u64> = (0..=RECONNECTS_MAX)
            .map(|failures| pause(failures).as_secs())
            .collect();
        assert_eq!(pauses, [1, 1, 2, 4, 8, 16, 30, 30, 30, 30, 30]);
    }

    #[test]
    fn the_time_is_taken_from_a_line_and_nothing_else_is() {
        let (time, text) = split_time("2026-03-01T12:00:00.5Z hello  world");
        assert_eq!(text, "hello  world");
        assert!(time.is_some());
        assert_eq!(split_time("hello world"), (None, "hello world"));
        assert_eq!(split_time("2026-03-01T12:00:00Z").1, "");
    }
}
