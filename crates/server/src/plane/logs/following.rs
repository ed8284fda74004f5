//! A log that is read line by line, for as long as its caller may look and somebody reads.

use std::{pin::Pin, sync::Arc};

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use jangar_store::LogTailInfo;
use kube::api::LogParams;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{
    LogQuery, last_lines,
    lines::{Part, parts},
};
use crate::{
    access::Question,
    history::History,
    metrics::{Protocol, StreamGuard},
    plane::{
        Caller, ControlPlane, live,
        runs::Run,
        stream::{HEARTBEAT, closed},
    },
    refusal::{Refusal, Trouble},
    world::text,
};

/// Where a line comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub pod: String,
    pub container: String,
    /// From history: the pod is gone.
    pub archived: bool,
    /// Of what history has.
    pub step: String,
    pub attempt: u32,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub origin: Arc<Origin>,
    pub text: String,
    /// Lines of this log before this one are missing.
    pub cut: bool,
    /// The line is longer than one message, and goes on in the next.
    pub partial: bool,
}

/// Something that the stream of a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Line(Line),
    /// Nothing was written.
    Heartbeat,
}

type Lines = BoxStream<'static, Result<Line, Refusal>>;

/// What such a stream needs while it is open.
struct Open {
    plane: Arc<ControlPlane>,
    caller: Caller,
    /// What its caller has to be allowed for as long as it goes on.
    right: Question,
    lines: Pin<Box<dyn Stream<Item = Result<Line, Refusal>> + Send>>,
    checked: Instant,
    ended: bool,
    _place: OwnedSemaphorePermit,
    _reading: OwnedSemaphorePermit,
    _counted: StreamGuard,
}

impl ControlPlane {
    /// What a run writes, line by line, until its container ends; what it wrote, if its pods are gone.
    pub async fn follow_log(
        self: &Arc<Self>,
        caller: &Caller,
        run: &Run,
        query: &LogQuery,
        follow: bool,
        protocol: Protocol,
    ) -> Result<impl Stream<Item = Result<Said, Refusal>> + Send + use<>, Refusal> {
        let place = self.place(&self.streams)?;
        let reading = self.place(&self.log_streams)?;
        let lines = match self.source(caller, run, query).await {
            Ok(source) => {
                let params = LogParams {
                    container: Some(source.container.clone()),
                    follow,
                    tail_lines: (query.tail_lines > 0).then_some(i64::from(query.tail_lines)),
                    timestamps: query.timestamps,
                    since_seconds: query.since_seconds.map(i64::from),
                    since_time: query.since_time,
                    ..LogParams::default()
                };
                let reader = live(source.pods.log_stream(&source.pod, &params)).await?;
                let origin = Arc::new(Origin {
                    pod: source.pod,
                    container: source.container,
                    ..Origin::default()
                });
                parts(Box::pin(reader))
                    .map(move |part| written(&origin, part))
                    .boxed()
            }
            Err(refusal) if refusal.trouble == Trouble::NotFound => {
                let (history, tails) = self.archived_logs(caller, run, query, refusal).await?;
                kept(history, tails, query.tail_lines)
            }
            Err(refusal) => return Err(refusal),
        };
        let document = run.document();
        let named = |pointer| text(document, pointer).unwrap_or_default();
        let open = Open {
            plane: Arc::clone(self),
            caller: caller.clone(),
            right: Question::get(
                run.kind(),
                &named("/metadata/namespace"),
                &named("/metadata/name"),
            ),
            lines,
            checked: Instant::now(),
            ended: false,
            _place: place,
            _reading: reading,
            _counted: self.metrics.stream(protocol),
        };
        Ok(stream::unfold(open, |mut open| async move {
            let said = open.next().await?;
            Some((said, open))
        }))
    }
}

fn written(origin: &Arc<Origin>, part: std::io::Result<Part>) -> Result<Line, Refusal> {
    let part = part.map_err(|error| Refusal::unavailable(format!("the log broke off: {error}")))?;
    Ok(Line {
        origin: Arc::clone(origin),
        text: part.text,
        cut: false,
        partial: part.goes_on,
    })
}

/// What history has of several logs, read one after the other.
fn kept(history: Arc<dyn History>, tails: Vec<LogTailInfo>, tail_lines: u32) -> Lines {
    let logs = stream::iter(tails).then(move |tail| {
        let history = Arc::clone(&history);
        async move {
            let kept = history.log(&tail).await;
            let lines = match kept.map_err(|error| error.refusal("the pods are gone")) {
                // Its time was over in between.
                Ok(None) => Vec::new(),
                Ok(Some(log)) => lines_of(&tail, &log.text, tail_lines)
                    .into_iter()
                    .map(Ok)
                    .collect(),
                Err(refusal) => vec![Err(refusal)],
            };
            stream::iter(lines)
        }
    });
    logs.flatten().boxed()
}

fn lines_of(tail: &LogTailInfo, text: &str, tail_lines: u32) -> Vec<Line> {
    let origin = Arc::new(Origin {
        pod: tail.pod.clone(),
        container: tail.container.clone(),
        archived: true,
        step: tail.step.clone(),
        attempt: u32::try_from(tail.attempt).unwrap_or_default(),
    });
    let wanted = if tail_lines == 0 { u32::MAX } else { tail_lines };
    let (text, shortened) = last_lines(text, wanted);
    let lines = text.lines().enumerate().map(|(number, line)| Line {
        origin: Arc::clone(&origin),
        text: line.to_owned(),
        cut: number == 0 && (tail.cut || shortened),
        partial: false,
    });
    lines.collect()
}

impl Open {
    async fn next(&mut self) -> Option<Result<Said, Refusal>> {
        if self.ended {
            return None;
        }
        if self.checked.elapsed() >= HEARTBEAT {
            self.checked = Instant::now();
            let allowed = self.plane.gatekeeper.require(&self.caller.identity, &self.right);
            if let Err(refusal) = allowed.await {
                self.ended = true;
                return Some(Err(refusal));
            }
        }
        let mut closing = self.plane.closing.subscribe();
        let wait = HEARTBEAT.saturating_sub(self.checked.elapsed());
        tokio::select! {
            line = self.lines.next() => {
                let line = line?;
                self.ended = line.is_err();
                Some(line.map(Said::Line))
            }
            () = sleep(wait) => Some(Ok(Said::Heartbeat)),
            () = closed(&mut closing) => None,
        }
    }
}
