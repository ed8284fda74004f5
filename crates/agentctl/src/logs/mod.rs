//! `logs`: what runs write. `tail` reads one run, pod after pod, and what is kept of those that are gone; here its lines are put
//! together and shown.

mod place;
mod tail;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::StreamExt as _;
use jangar_api::Kind;
use serde_json::Value;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::{JoinHandle, JoinSet},
};

use self::tail::Tail;
pub use self::tail::Told;
use crate::{
    cli::LogArgs,
    error::{self, Error},
    object::Object,
    resource::{self, word},
    session::Session,
    transport::{Change, Changes, RunRef, Transport},
};

/// How many lines may wait to be shown: a terminal that is slow slows the reading down.
const LINES_WAITING_MAX: usize = 1024;

/// What is to be read of each pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub follow: bool,
    pub step: Option<String>,
    pub container: Option<String>,
    pub tail: Option<u32>,
    pub since: Option<Duration>,
    pub timestamps: bool,
}

pub async fn logs(session: &mut Session, arguments: &LogArgs) -> Result<(), Error> {
    let transport = session.connect().await?;
    let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
    let wanted = Wanted {
        follow: arguments.follow,
        step: arguments.step.clone(),
        container: arguments.container.clone(),
        tail: arguments.tail,
        since: arguments.since,
        timestamps: arguments.timestamps,
    };
    show(session, &transport, kind, &object, wanted).await
}

async fn show(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    object: &Object,
    mut wanted: Wanted,
) -> Result<(), Error> {
    // What is gone writes nothing more.
    wanted.follow &= object.remembered().is_none();
    // An orchestration may have had nothing but gates.
    let may_be_silent = kind == Kind::OrchestrationRun && wanted.follow;
    let step = wanted.step.clone();
    let mut reading = Reading::begin(transport, kind, object, wanted);
    loop {
        let told = tokio::select! {
            told = reading.next() => told,
            _ = tokio::signal::ctrl_c() => return Err(Error::Silent(error::INTERRUPTED)),
        };
        match told {
            Some(told) => told.show(session)?,
            None => break,
        }
    }
    if reading.finish().await? > 0 {
        return Ok(());
    }
    if let Some(unknown) = step.filter(|step| !steps_of(object).contains(&step.as_str())) {
        return Err(Error::Validation(no_such_step(kind, object, &unknown)));
    }
    if may_be_silent {
        return Ok(());
    }
    Err(transport.trouble(nothing_left(transport, kind, object)))
}

/// The names of the steps of a run, as far as it has any.
fn steps_of(object: &Object) -> Vec<&str> {
    let steps = [
        "/status/stepStatuses",
        "/status/workflow/steps",
        "/spec/workflow/steps",
    ]
    .into_iter()
    .find_map(|place| object.value().pointer(place)?.as_array());
    let names = steps.into_iter().flatten();
    names
        .filter_map(|step| step.get("name").and_then(Value::as_str))
        .collect()
}

fn no_such_step(kind: Kind, object: &Object, step: &str) -> String {
    let hint = match steps_of(object).as_slice() {
        [] => "it has none, or none yet: leave --step out".to_owned(),
        steps => format!("it has {}", steps.join(", ")),
    };
    format!("{} {} has no step {step}: {hint}", word(kind), object.name())
}

/// Why there is nothing to read, and where there may be.
fn nothing_left(transport: &Transport, kind: Kind, object: &Object) -> String {
    let (name, namespace) = (object.name(), object.namespace());
    let word = word(kind);
    if object.has_ended() || object.remembered().is_some() {
        let elsewhere = match transport {
            Transport::Kube(_) => format!(
                "The control plane has what was kept of it: agentctl --grpc logs {word} {name} -n {namespace}"
            ),
            Transport::Grpc(_) => "The history has nothing of it: there is none, the pods went before they could be read, or the \
                                   time that logs are kept is over"
                .to_owned(),
        };
        format!(
            "the pods of {word} {name} are gone, and their logs with them: a pod is kept for as long as its Job \
             (JANGAR_AGENT_RUNNER_JOB_TTL_SECONDS). {elsewhere}. What the run came to: agentctl describe {word} {name} -n \
             {namespace}"
        )
    } else {
        format!(
            "{word} {name} has no pod to read yet: give -f to wait for it. Why it has none: agentctl explain {word} {name} -n \
             {namespace}"
        )
    }
}

/// Logs that are being read.
#[derive(Debug)]
pub struct Reading {
    told: Receiver<Told>,
    reader: JoinHandle<Result<usize, Error>>,
}

impl Reading {
    /// Follows a run that was just made, to its end.
    pub fn follow(transport: &Transport, kind: Kind, object: &Object) -> Self {
        let wanted = Wanted {
            follow: true,
            ..Wanted::default()
        };
        Self::begin(transport, kind, object, wanted)
    }

    fn begin(transport: &Transport, kind: Kind, object: &Object, wanted: Wanted) -> Self {
        let (sender, told) = channel(LINES_WAITING_MAX);
        let reader = if kind == Kind::OrchestrationRun {
            Steps::begin_reading(transport, object, wanted, sender)
        } else {
            let tail = Tail {
                transport: transport.clone(),
                run: RunRef {
                    kind,
                    namespace: object.namespace().to_owned(),
                    name: object.name().to_owned(),
                },
                wanted: Arc::new(wanted),
                prefix: String::new(),
                told: sender,
            };
            tokio::spawn(tail.read())
        };
        Self { told, reader }
    }

    /// What is to be shown next; absent when all was read.
    pub async fn next(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// How many logs there were.
    pub async fn finish(self) -> Result<usize, Error> {
        self.reader
            .await
            .map_err(|error| Error::Unknown(format!("the reader of the log failed: {error}")))?
    }
}

impl Told {
    pub fn show(&self, session: &mut Session) -> Result<(), Error> {
        match self {
            Self::Line(line) => session.console.line(line),
            Self::Note(words) => session.console.note(words),
        }
    }
}

/// A run that does the work of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Child {
    step: String,
    kind: Kind,
    name: String,
}

/// The runs that did or do the work of the steps, in the order of the steps.
fn children(object: &Object) -> Vec<Child> {
    let steps = object
        .value()
        .pointer("/status/stepStatuses")
        .and_then(Value::as_array);
    let child = |step: &Value| {
        let kind = step.pointer("/resourceRef/kind")?.as_str()?;
        Some(Child {
            step: step.get("name")?.as_str()?.to_owned(),
            kind: Kind::ALL
                .iter()
                .copied()
                .find(|known| known.info().kind == kind)?,
            name: step.pointer("/resourceRef/name")?.as_str()?.to_owned(),
        })
    };
    steps.into_iter().flatten().filter_map(child).collect()
}

/// The readers of an orchestration's steps.
struct Steps {
    transport: Transport,
    namespace: String,
    run: String,
    only: Option<String>,
    wanted: Arc<Wanted>,
    told: Sender<Told>,
    begun: BTreeSet<Child>,
    readers: JoinSet<Result<usize, Error>>,
}

impl Steps {
    /// Reads the logs of all steps, each line with the step before it.
    fn begin_reading(
        transport: &Transport,
        object: &Object,
        wanted: Wanted,
        told: Sender<Told>,
    ) -> JoinHandle<Result<usize, Error>> {
        let steps = Self {
            transport: transport.clone(),
            namespace: object.namespace().to_owned(),
            run: object.name().to_owned(),
            only: wanted.step.clone(),
            // What was the name of a step of the orchestration is none of a step of a workflow.
            wanted: Arc::new(Wanted { step: None, ..wanted }),
            told,
            begun: BTreeSet::new(),
            readers: JoinSet::new(),
        };
        if !steps.wanted.follow {
            return tokio::spawn(steps.read(children(object)));
        }
        let changes = transport.watch(
            Kind::OrchestrationRun,
            Some(object.namespace()),
            Some(object.name()),
            None,
        );
        tokio::spawn(steps.follow(changes))
    }

    /// Begins to read a step, once.
    fn begin(&mut self, child: Child) {
        let other = self.only.as_ref().is_some_and(|only| *only != child.step);
        if other || !self.begun.insert(child.clone()) {
            return;
        }
        if child.kind == Kind::OrchestrationRun {
            let words = format!(
                "step {} is an orchestration of its own: agentctl logs orchestrationrun {} -n {}",
                child.step, child.name, self.namespace
            );
            // It is a hint: one that does not fit is not worth waiting for.
            let _ = self.told.try_send(Told::Note(words));
            return;
        }
        let tail = Tail {
            transport: self.transport.clone(),
            run: RunRef {
                kind: child.kind,
                namespace: self.namespace.clone(),
                name: child.name,
            },
            wanted: Arc::clone(&self.wanted),
            prefix: format!("[{}] ", child.step),
            told: self.told.clone(),
        };
        self.readers.spawn(tail.read());
    }

    /// Reads one step after the other. How many there were.
    async fn read(mut self, children: Vec<Child>) -> Result<usize, Error> {
        for child in children {
            self.begin(child);
            self.finish().await?;
        }
        Ok(self.begun.len())
    }

    /// Waits for all readers that have begun.
    async fn finish(&mut self) -> Result<(), Error> {
        while let Some(read) = self.readers.join_next().await {
            read.map_err(|error| Error::Unknown(format!("the reader of a log failed: {error}")))??;
        }
        Ok(())
    }

    /// Begins with each step when it starts, until the run has ended.
    async fn follow(mut self, mut changes: Changes) -> Result<usize, Error> {
        let mut seen = true;
        while let Some(change) = changes.next().await {
            match change {
                Change::Seen(object) => {
                    seen = true;
                    for child in children(&object) {
                        self.begin(child);
                    }
                    if object.has_ended() {
                        break;
                    }
                }
                Change::Gone(_) => break,
                Change::Trouble {
                    words,
                    hopeless: true,
                } => return Err(self.transport.trouble(words)),
                Change::Relisting => seen = false,
                Change::Listed if !seen => {
                    if self
                        .transport
                        .is_gone(Kind::OrchestrationRun, &self.namespace, &self.run)
                        .await
                    {
                        break;
                    }
                }
                Change::Trouble { .. } | Change::Listed => {}
            }
        }
        self.finish().await?;
        Ok(self.begun.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_that_is_not_there_is_told_with_those_that_are() {
        let workflow = Object::from_value(
            json!({"metadata": {"name": "one"}, "spec": {"workflow": {"steps": [
                {"name": "plan"}, {"name": "implement"},
            ]}}}),
        );
        assert_eq!(
            no_such_step(Kind::AgentRun, &workflow, "plam"),
            "run one has no step plam: it has plan, implement"
        );
        let job = Object::from_value(json!({"metadata": {"name": "one"}}));
        assert_eq!(
            no_such_step(Kind::AgentRun, &job, "plan"),
            "run one has no step plan: it has none, or none yet: leave --step out"
        );
    }

    #[test]
    fn the_children_of_a_run_are_found_in_its_status() {
        let run = Object::from_value(json!({"status": {"stepStatuses": [
            {"name": "build", "kind": "AgentRun", "resourceRef": {"kind": "AgentRun", "name": "r-build-1"}},
            {"name": "gate", "kind": "ApprovalGate"},
            {"name": "deploy", "kind": "ToolRun", "resourceRef": {"kind": "ToolRun", "name": "r-deploy-1"}},
        ]}}));
        let names: Vec<String> = children(&run).into_iter().map(|child| child.name).collect();
        assert_eq!(names, ["r-build-1", "r-deploy-1"]);
    }
}
