//! `wait`: until a run has ended, or something else is true. The exit code tells the outcome.

use std::{fmt::Write as _, io, pin::Pin, time::Duration};

use futures::StreamExt as _;
use jangar_api::Kind;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{
    cli::WaitArgs,
    clock::Clock,
    error::{self, Error},
    logs::{Reading, Told},
    object::{Condition, Object},
    output,
    resource::{self, word},
    session::Session,
    transport::{Change, Transport},
};

/// How often the line with the elapsed time is drawn.
const TICK: Duration = Duration::from_secs(1);
/// A year: longer than anybody waits, and no clock overflows.
const FOREVER: Duration = Duration::from_hours(366 * 24);

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The end of a run, in whatever way.
    Complete,
    Deleted,
    Phase(String),
    Condition {
        type_: String,
        status: String,
    },
}

impl Goal {
    /// Reads what was written after `--for`.
    pub fn parse(text: Option<&str>, kind: Kind) -> Result<Self, Error> {
        let Some(text) = text else {
            return Ok(if kind.is_run() {
                Self::Complete
            } else {
                Self::Condition {
                    type_: "Ready".to_owned(),
                    status: "True".to_owned(),
                }
            });
        };
        match text.split_once('=') {
            None if text == "complete" && kind.is_run() => Ok(Self::Complete),
            None if text == "delete" => Ok(Self::Deleted),
            Some(("phase", phase)) if !phase.is_empty() => Ok(Self::Phase(phase.to_owned())),
            Some(("condition", condition)) if !condition.is_empty() => {
                let (type_, status) = condition.split_once('=').unwrap_or((condition, "True"));
                Ok(Self::Condition {
                    type_: type_.to_owned(),
                    status: status.to_owned(),
                })
            }
            _ => Err(Error::Validation(format!(
                "--for is '{text}': give complete (runs only), delete, phase=PHASE or condition=TYPE[=STATUS]"
            ))),
        }
    }

    /// What the state of the object means for it; `None` if it has to be waited for.
    fn verdict(&self, kind: Kind, object: &Object) -> Option<Outcome> {
        let ended = (kind.is_run() && object.has_ended()).then(|| object.phase());
        let reached = match self {
            Self::Complete => return ended.map(Outcome::of_phase),
            Self::Deleted => return None,
            Self::Phase(phase) => object.phase().eq_ignore_ascii_case(phase),
            Self::Condition { type_, status } => object.conditions().any(|condition| {
                condition.type_.eq_ignore_ascii_case(type_) && condition.status.eq_ignore_ascii_case(status)
            }),
        };
        if reached {
            return Some(Outcome::Reached);
        }
        // A run that is over stays as it is.
        ended.map(|phase| match Outcome::of_phase(phase) {
            Outcome::Reached => Outcome::Missed,
            other => other,
        })
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Reached,
    Failed,
    Cancelled,
    /// The run is over, and what was waited for will not come.
    Missed,
    Gone,
    TimedOut,
    Interrupted,
}

impl Outcome {
    /// Whether the run writes nothing more.
    const fn is_over(self) -> bool {
        !matches!(self, Self::TimedOut | Self::Interrupted)
    }

    fn of_phase(phase: &str) -> Self {
        match phase {
            "Failed" => Self::Failed,
            "Cancelled" => Self::Cancelled,
            _ => Self::Reached,
        }
    }

    /// The code that the program ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Reached => error::OK,
            Self::Failed => error::RUN_FAILED,
            Self::Cancelled => error::RUN_CANCELLED,
            Self::Missed => error::RUNTIME,
            Self::Gone => error::WAIT_GONE,
            Self::TimedOut => error::WAIT_TIMED_OUT,
            Self::Interrupted => error::INTERRUPTED,
        }
    }
}

pub async fn wait(session: &mut Session, arguments: &WaitArgs) -> Result<(), Error> {
    let bare = matches!(arguments.what.as_slice(), [one] if !one.contains('/'));
    let (kind, name) = if bare {
        let transport = session.connect().await?;
        let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
        (kind, object.name().to_owned())
    } else {
        resource::one(&arguments.what)?
    };
    let goal = Goal::parse(arguments.condition.as_deref(), kind)?;
    let transport = session.connect().await?;
    let object = match transport.find(kind, &session.namespace(), &name).await? {
        Some(object) => object,
        None if goal == Goal::Deleted => return Ok(()),
        None => resource::object(&transport, kind, &session.namespace(), &name).await?,
    };
    resource::note_if_gone(session, kind, &object)?;
    let watched = Watched::new(kind, object, arguments.timeout, None);
    until(session, &transport, watched, &goal).await
}

/// Waits for the end of a run that is at hand, and shows meanwhile what it writes, if that is read.
pub async fn until_complete(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    object: Object,
    timeout: Option<Duration>,
    logs: Option<Reading>,
) -> Result<(), Error> {
    let watched = Watched::new(kind, object, timeout, logs);
    until(session, transport, watched, &Goal::Complete).await
}

async fn until(
    session: &mut Session,
    transport: &Transport,
    mut watched: Watched,
    goal: &Goal,
) -> Result<(), Error> {
    // Whoever has read that we wait may press Ctrl-C: from then on it is heard.
    let mut interrupt: Interrupt = Box::pin(tokio::signal::ctrl_c());
    let _ = futures::poll!(interrupt.as_mut());
    let mut outcome = watched.follow(session, transport, goal, &mut interrupt).await?;
    if outcome.is_over() {
        outcome = watched.read_out(session, outcome, &mut interrupt).await?;
    }
    watched.tell(session, outcome)?;
    match outcome {
        Outcome::Reached => Ok(()),
        other => Err(Error::Silent(other.code())),
    }
}

/// Ctrl-C.
type Interrupt = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// One object that is waited for.
struct Watched {
    kind: Kind,
    object: Object,
    started: Instant,
    /// When nobody waits any longer.
    end: Instant,
    told: String,
    /// Whether it was seen since all was listed anew.
    seen: bool,
    /// What it writes, if that is shown meanwhile.
    logs: Option<Reading>,
}

impl Watched {
    fn new(kind: Kind, object: Object, timeout: Option<Duration>, logs: Option<Reading>) -> Self {
        let started = Instant::now();
        Self {
            kind,
            object,
            started,
            end: started + timeout.unwrap_or(FOREVER),
            told: String::new(),
            seen: true,
            logs,
        }
    }

    async fn follow(
        &mut self,
        session: &mut Session,
        transport: &Transport,
        goal: &Goal,
        interrupt: &mut Interrupt,
    ) -> Result<Outcome, Error> {
        self.report(session)?;
        if let Some(outcome) = goal.verdict(self.kind, &self.object) {
            return Ok(outcome);
        }
        let (namespace, name) = (self.object.namespace().to_owned(), self.object.name().to_owned());
        let mut changes = transport.watch(self.kind, Some(&namespace), Some(&name), None);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let change = tokio::select! {
                biased;
                change = changes.next() => change,
                () = sleep_until(self.end) => return Ok(Outcome::TimedOut),
                _ = &mut *interrupt => return Ok(Outcome::Interrupted),
                told = next_of(&mut self.logs) => {
                    match told {
                        Some(told) => told.show(session)?,
                        None => self.logs_end(session).await?,
                    }
                    continue;
                }
                _ = tick.tick() => {
                    let line = self.live_line(session);
                    session.console.progress(&line)?;
                    continue;
                }
            };
            if matches!(change, Some(Change::Listed))
                && !self.seen
                && !transport.is_gone(self.kind, &namespace, &name).await
            {
                continue;
            }
            if let Some(outcome) = self.take(session, transport, goal, change)? {
                return Ok(outcome);
            }
        }
    }

    /// Shows what is left to read of a run that is over.
    async fn read_out(
        &mut self,
        session: &mut Session,
        outcome: Outcome,
        interrupt: &mut Interrupt,
    ) -> Result<Outcome, Error> {
        while self.logs.is_some() {
            tokio::select! {
                biased;
                told = next_of(&mut self.logs) => match told {
                    Some(told) => told.show(session)?,
                    None => self.logs_end(session).await?,
                },
                () = sleep_until(self.end) => {
                    session.console.note("the time is over before all was read that it wrote")?;
                    break;
                }
                _ = &mut *interrupt => return Ok(Outcome::Interrupted),
            }
        }
        Ok(outcome)
    }

    /// There is nothing more to read. How the run ended does not depend on whether its log could be read.
    async fn logs_end(&mut self, session: &mut Session) -> Result<(), Error> {
        let Some(logs) = self.logs.take() else {
            return Ok(());
        };
        match logs.finish().await {
            Ok(0) => session.console.note(&format!(
                "{} {} has written nothing that can be shown",
                word(self.kind),
                self.object.name()
            )),
            Ok(_) => Ok(()),
            Err(error) => session
                .console
                .note(&format!("what it writes cannot be shown: {error}")),
        }
    }

    fn take(
        &mut self,
        session: &mut Session,
        transport: &Transport,
        goal: &Goal,
        change: Option<Change>,
    ) -> Result<Option<Outcome>, Error> {
        let gone = || match goal {
            Goal::Deleted => Outcome::Reached,
            _ => Outcome::Gone,
        };
        match change {
            Some(Change::Seen(object)) => {
                self.seen = true;
                if object.uid() != self.object.uid() {
                    // Another one has taken its name.
                    return Ok(Some(gone()));
                }
                self.object = object;
                self.report(session)?;
                Ok(goal.verdict(self.kind, &self.object))
            }
            Some(Change::Gone(_)) => Ok(Some(gone())),
            Some(Change::Relisting) => {
                self.seen = false;
                Ok(None)
            }
            Some(Change::Listed) => Ok((!self.seen).then(gone)),
            Some(Change::Trouble { words, hopeless }) if hopeless => Err(transport.trouble(format!(
                "{} {} cannot be watched: {words}",
                self.object.kind(),
                self.object.name()
            ))),
            Some(Change::Trouble { words, .. }) => {
                session
                    .console
                    .note(&format!("the line is disturbed, trying again: {words}"))?;
                Ok(None)
            }
            None => Err(transport.trouble(format!("{} ended the watch", transport.answering()))),
        }
    }

    /// Says where it stands, once for each change.
    fn report(&mut self, session: &mut Session) -> Result<(), Error> {
        let standing = standing(self.kind, &self.object);
        if standing != self.told {
            self.told.clone_from(&standing);
            session
                .console
                .note(&format!("{}/{}: {standing}", word(self.kind), self.object.name()))?;
        }
        Ok(())
    }

    fn live_line(&self, session: &Session) -> String {
        let elapsed = i64::try_from(self.started.elapsed().as_secs()).unwrap_or(i64::MAX);
        live_line(self.kind, &self.object, elapsed, session.clock)
    }

    /// The last words.
    fn tell(&self, session: &mut Session, outcome: Outcome) -> Result<(), Error> {
        let (name, kind) = (self.object.name(), word(self.kind));
        let namespace = self.object.namespace();
        match outcome {
            Outcome::Gone => {
                return session.console.note(&format!("{kind} {name} was deleted"));
            }
            Outcome::TimedOut => {
                let verb = if self.kind.is_run() { "explain" } else { "describe" };
                session.console.note(&format!(
                    "the time is over, and that has not come. Why: agentctl {verb} {kind} {name} -n {namespace}"
                ))?;
            }
            Outcome::Interrupted => {
                session.console.note(&format!(
                    "no longer waiting; {kind} {name} goes on. Wait again: agentctl wait {kind} {name} -n {namespace}. Stop it: \
                     agentctl cancel {kind} {name} -n {namespace}"
                ))?;
            }
            Outcome::Missed => {
                session
                    .console
                    .note(&format!("{kind} {name} is over, and that will not come any more"))?;
            }
            Outcome::Failed | Outcome::Cancelled => {
                session.console.note(&format!(
                    "{}; more: agentctl explain {kind} {name} -n {namespace}",
                    reason(&self.object)
                ))?;
            }
            Outcome::Reached => {}
        }
        let format = session.format();
        if output::is_for_programs(&format) || session.asked_format().is_some() {
            return output::object(session, self.kind, &self.object);
        }
        let standing = match self.object.standing() {
            standing if standing.is_empty() => "Pending".to_owned(),
            standing => standing,
        };
        session.console.line(&format!("{kind}/{name} {standing}"))
    }
}

/// What is to be shown next of a log; nothing ever comes if none is read.
async fn next_of(logs: &mut Option<Reading>) -> Option<Told> {
    match logs {
        Some(logs) => logs.next().await,
        None => std::future::pending().await,
    }
}

/// Where something stands in a few words: its phase, the step it is at, what it waits for.
pub fn standing(kind: Kind, object: &Object) -> String {
    let mut text = match object.standing() {
        standing if standing.is_empty() && kind.is_run() => "Pending".to_owned(),
        standing if standing.is_empty() => "not looked at yet".to_owned(),
        standing => standing,
    };
    if object.has_ended() {
        return text;
    }
    if let Some(step) = running_step(object) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, " · {step}");
    }
    let blocked = object
        .condition("Blocked")
        .filter(|condition| condition.status == "True");
    if let Some(blocked) = blocked {
        let _ = write!(text, " · {}", blocked.reason);
    }
    text
}

/// The step that works, of a workflow or of an orchestration; of several, how many.
fn running_step(object: &Object) -> Option<String> {
    let steps = ["/status/stepStatuses", "/status/workflow/steps"]
        .into_iter()
        .find_map(|place| object.value().pointer(place)?.as_array())?;
    let running: Vec<&str> = steps
        .iter()
        .filter(|step| {
            matches!(
                step.get("phase").and_then(|phase| phase.as_str()),
                Some("Running" | "Retrying")
            )
        })
        .filter_map(|step| step.get("name")?.as_str())
        .collect();
    match running.as_slice() {
        [] => None,
        [one] => Some(format!("step {one}")),
        several => Some(format!("{} steps", several.len())),
    }
}

/// Where it stands, for how long somebody has waited, and what happened last.
fn live_line(kind: Kind, object: &Object, elapsed: i64, clock: Clock) -> String {
    let last = newest_condition(object)
        .and_then(|condition| {
            let age = clock.age(condition.since?)?;
            let word = Some(condition.reason).filter(|reason| !reason.is_empty());
            Some(format!(" · {} {age} ago", word.unwrap_or(condition.type_)))
        })
        .unwrap_or_default();
    let elapsed = crate::clock::short(elapsed);
    format!("{} · {elapsed}{last}", standing(kind, object))
}

/// The condition that changed last.
fn newest_condition(object: &Object) -> Option<Condition<'_>> {
    let conditions = object.conditions();
    conditions
        .filter(|condition| condition.since.is_some())
        .max_by_key(|condition| condition.since)
}

/// Why a run ended as it did.
pub fn reason(object: &Object) -> String {
    let told = ["Failed", "Cancelled", "Succeeded"]
        .into_iter()
        .filter_map(|type_| object.condition(type_))
        .find(|condition| !condition.reason.is_empty() && condition.status == "True")
        .or_else(|| object.condition("Succeeded"));
    match told {
        Some(condition) if condition.message.is_empty() => condition.reason.to_owned(),
        Some(condition) => format!("{}: {}", condition.reason, condition.message),
        None => object.phase().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "every caller makes the value on the spot"
    )]
    fn run(status: Value) -> Object {
        Object::from_value(json!({"kind": "AgentRun", "metadata": {"name": "a"}, "status": status}))
    }

    fn verdict(goal: &Goal, status: Value) -> Option<Outcome> {
        goal.verdict(Kind::AgentRun, &run(status))
    }

    #[test]
    fn the_outcome_of_a_run_is_its_phase() {
        for (phase, outcome) in [
            ("Succeeded", Some(Outcome::Reached)),
            ("Failed", Some(Outcome::Failed)),
            ("Cancelled", Some(Outcome::Cancelled)),
            ("Running", None),
            ("Cancelling", None),
            ("Hibernating", None),
        ] {
            assert_eq!(
                verdict(&Goal::Complete, json!({"phase": phase})),
                outcome,
                "{phase}"
            );
        }
        assert_eq!(verdict(&Goal::Complete, json!(null)), None);
    }

    #[test]
    fn the_live_line_says_what_happened_last() {
        let clock = Clock::fixed_at(Some("2026-03-01T12:01:00Z"));
        let line = |status: Value| live_line(Kind::AgentRun, &run(status), 65, clock);
        let condition = |type_: &str, reason: &str, since: &str| json!({"type": type_, "status": "True", "reason": reason, "lastTransitionTime": since});
        let created = condition("InProgress", "JobCreated", "2026-03-01T12:00:57Z");
        let accepted = condition("Accepted", "Valid", "2026-03-01T12:00:30Z");
        let told = line(json!({"phase": "Running", "conditions": [created, accepted]}));
        assert!(told.starts_with("Running"), "{told}");
        assert!(told.ends_with(" · 1m5s · JobCreated 3s ago"), "{told}");
        let unnamed = condition("Accepted", "", "2026-03-01T12:00:30Z");
        let told = line(json!({"phase": "Running", "conditions": [unnamed]}));
        assert!(told.ends_with(" · 1m5s · Accepted 30s ago"), "{told}");
        assert!(line(json!(null)).ends_with(" · 1m5s"));
    }

    #[test]
    fn what_can_no_longer_come_is_not_waited_for() {
        let running = Goal::Phase("running".to_owned());
        assert_eq!(
            verdict(&running, json!({"phase": "Running"})),
            Some(Outcome::Reached)
        );
        assert_eq!(
            verdict(&running, json!({"phase": "Failed"})),
            Some(Outcome::Failed)
        );
        assert_eq!(
            verdict(&running, json!({"phase": "Succeeded"})),
            Some(Outcome::Missed)
        );
        assert_eq!(verdict(&running, json!({"phase": "Pending"})), None);
    }

    #[test]
    fn goals_are_read_and_bad_ones_refused() {
        let ready = Goal::parse(None, Kind::Agent).expect("a goal");
        assert_eq!(
            ready,
            Goal::parse(Some("condition=Ready"), Kind::Agent).expect("a goal")
        );
        assert_eq!(
            Goal::parse(Some("condition=Blocked=False"), Kind::AgentRun).expect("a goal"),
            Goal::Condition {
                type_: "Blocked".to_owned(),
                status: "False".to_owned()
            }
        );
        for wrong in ["", "done", "phase=", "condition="] {
            assert!(Goal::parse(Some(wrong), Kind::AgentRun).is_err(), "{wrong}");
        }
        assert!(Goal::parse(Some("complete"), Kind::Agent).is_err());
    }

    #[test]
    fn every_outcome_has_a_code_of_its_own() {
        let outcomes = [
            Outcome::Reached,
            Outcome::Failed,
            Outcome::Cancelled,
            Outcome::Missed,
            Outcome::Gone,
            Outcome::TimedOut,
            Outcome::Interrupted,
        ];
        let codes: std::collections::BTreeSet<u8> = outcomes.iter().map(|outcome| outcome.code()).collect();
        assert_eq!(codes.len(), outcomes.len());
    }
}
