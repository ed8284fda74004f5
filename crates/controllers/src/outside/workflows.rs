//! The workflows of a Temporal server that do the work of runs.
//!
//! An effect begins a call, which goes on by itself; what came of it is kept until the run is over, and the run is looked at
//! again when it comes. Every call is safe to repeat, so that nothing in here has to outlive the process, or the time in which
//! it leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use jangar_engine::{
    decision::{Key, Uid},
    temporal::call::{
        Call, Closed, Following, Known, Sight, Start, StartAnswer, Stop, StopAnswer, What, Workflow,
    },
};
use thiserror::Error;
use tokio::{
    sync::Semaphore,
    task::AbortHandle,
    time::{Instant, sleep},
};

use super::Outside;

/// How many runs are remembered. It is more than a cluster has under way.
const RUNS_MAX: usize = 20_000;
/// How many workflows are waited for at once; the others take turns. A Temporal server lets clients of one namespace make some
/// 1,200 requests at once that wait.
pub(super) const WAITS_MAX: usize = 512;
/// How many starts and stops are under way at once; the others wait for their turn.
pub(super) const CALLS_MAX: usize = 64;
/// How long to wait before a server that could not be asked is asked again; each later wait is twice as long.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// The longest of these waits.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// How long a wait takes at least: a server that says at once that a workflow is open is not asked without a pause.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// How long a server may be silent before runs say so. It is replaced in less.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What speaks to a Temporal server.
pub trait Temporal: fmt::Debug + Send + Sync {
    /// Starts a workflow for this run, or finds that it was started for it before. It takes a bounded time.
    fn start(
        &self,
        run: &Key,
        uid: &Uid,
        workflow: Workflow,
        start: Start,
    ) -> BoxFuture<'static, StartAnswer>;

    /// Waits for the end of a workflow, for some time.
    fn wait(&self, workflow: Workflow, task_queue: String) -> BoxFuture<'static, Waited>;

    /// Makes a workflow end. It takes a bounded time.
    fn stop(&self, workflow: Workflow, stop: Stop) -> BoxFuture<'static, StopAnswer>;
}

/// What came of a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Waited {
    /// It is open, and this may be why. The words must not change with the time.
    Open {
        note: Option<String>,
    },
    Closed(Closed),
    /// The server could not be asked.
    Silent {
        words: String,
    },
}

/// Knows no server: the runtime is not set up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoServer;

const NO_SERVER: &str = "this installation knows no Temporal server: set TEMPORAL_ADDRESS";

impl Temporal for NoServer {
    fn start(&self, _: &Key, _: &Uid, _: Workflow, _: Start) -> BoxFuture<'static, StartAnswer> {
        let words = NO_SERVER.to_owned();
        Box::pin(std::future::ready(StartAnswer::NotTaken { words }))
    }

    fn wait(&self, _: Workflow, _: String) -> BoxFuture<'static, Waited> {
        let words = NO_SERVER.to_owned();
        Box::pin(std::future::ready(Waited::Silent { words }))
    }

    fn stop(&self, _: Workflow, _: Stop) -> BoxFuture<'static, StopAnswer> {
        let words = NO_SERVER.to_owned();
        Box::pin(std::future::ready(StopAnswer::NotTaken { words }))
    }
}

/// Too many runs are remembered to look after another one.
#[derive(Clone, Copy, Debug, Error)]
#[error("{RUNS_MAX} runs with a Temporal workflow are looked after already")]
pub struct TooMany;

/// What this process knows of workflows, by the run.
#[derive(Debug, Default)]
pub(super) struct Workflows {
    known: BTreeMap<Uid, Entry>,
    /// The runs that something is known of, by their key.
    runs: BTreeMap<Key, BTreeSet<Uid>>,
}

#[derive(Debug)]
struct Entry {
    sight: Sight,
    /// What is under way for it.
    tasks: Vec<AbortHandle>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Workflows {
    pub(super) fn sight(&self, run: &Uid) -> Sight {
        self.known
            .get(run)
            .map(|entry| entry.sight.clone())
            .unwrap_or_default()
    }

    /// The run of this key is over, or gone.
    pub(super) fn over(&mut self, key: &Key) {
        for run in self.runs.remove(key).into_iter().flatten() {
            self.known.remove(&run);
        }
    }

    /// Somebody else looks after runs from now on.
    pub(super) fn discard(&mut self) {
        self.known.clear();
        self.runs.clear();
    }

    /// Whether a call is to be begun: the same one was not yet.
    fn begin(&mut self, call: &Call) -> Result<bool, TooMany> {
        if !self.known.contains_key(&call.uid) && self.known.len() >= RUNS_MAX {
            return Err(TooMany);
        }
        let of_key = self.runs.entry(call.run.clone()).or_default();
        of_key.insert(call.uid.clone());
        let entry = self.known.entry(call.uid.clone()).or_insert_with(|| Entry {
            sight: Sight::default(),
            tasks: Vec::new(),
        });
        entry.tasks.retain(|task| !task.is_finished());
        let sight = &mut entry.sight;
        Ok(match &call.what {
            What::Start(start) => is_new(&mut sight.start, start.number),
            What::Stop(stop) => is_new(&mut sight.stop, stop.number),
            What::Follow { .. } => {
                let new = sight.following.is_none();
                sight.following.get_or_insert_default();
                new
            }
        })
    }

    fn under_way(&mut self, run: &Uid, task: AbortHandle) {
        match self.known.get_mut(run) {
            Some(entry) => entry.tasks.push(task),
            None => task.abort(),
        }
    }

    /// Changes what is known of a run, if it is still looked after; says whether that is something new.
    fn learn(&mut self, run: &Uid, change: impl FnOnce(&mut Sight)) -> bool {
        let Some(entry) = self.known.get_mut(run) else {
            return false;
        };
        let before = entry.sight.clone();
        change(&mut entry.sight);
        entry.sight != before
    }
}

fn is_new<A>(known: &mut Option<Known<A>>, number: u32) -> bool {
    if known.as_ref().is_some_and(|known| known.number == number) {
        return false;
    }
    *known = Some(Known { number, answer: None });
    true
}

impl Outside {
    /// Begins a call of the Temporal server, unless it was begun already.
    pub(crate) fn call_temporal(self: &Arc<Self>, call: &Call) -> Result<(), TooMany> {
        let mut state = self.state();
        if !state.workflows.begin(call)? {
            return Ok(());
        }
        // Those that have ended are forgotten.
        while state.calls.try_join_next().is_some() {}
        let this = Arc::downgrade(self);
        let (server, call) = (Arc::clone(&self.temporal), call.clone());
        let uid = call.uid.clone();
        let places = match &call.what {
            What::Start(_) | What::Stop(_) => Arc::clone(&self.temporal_calls),
            What::Follow { .. } => Arc::clone(&self.temporal_waits),
        };
        let task = state.calls.spawn(async move {
            let Call { run, uid, workflow, what } = call;
            let learn = |change: &dyn Fn(&mut Sight)| {
                if let Some(this) = this.upgrade() {
                    this.learn_of_workflow(&run, &uid, change);
                }
            };
            match what {
                What::Start(start) => {
                    let number = start.number;
                    // Nobody closes the semaphore.
                    let Ok(_place) = places.acquire_owned().await else { return };
                    let answer = server.start(&run, &uid, workflow, *start).await;
                    tracing::info!(run = %run, number, ?answer, "a Temporal workflow was to be started");
                    learn(&|sight| answered(&mut sight.start, number, answer.clone()));
                }
                What::Stop(stop) => {
                    let number = stop.number;
                    let means = stop.means.word();
                    let Ok(_place) = places.acquire_owned().await else { return };
                    let answer = server.stop(workflow, stop).await;
                    tracing::info!(run = %run, number, means, ?answer, "a Temporal workflow was to be stopped");
                    learn(&|sight| answered(&mut sight.stop, number, answer.clone()));
                }
                What::Follow { task_queue } => {
                    follow(&*server, &places, &workflow, &task_queue, &|following| {
                        learn(&|sight| sight.following = Some(following.clone()));
                    })
                    .await;
                }
            }
        });
        state.workflows.under_way(&uid, task);
        Ok(())
    }

    fn learn_of_workflow(&self, run: &Key, uid: &Uid, change: &dyn Fn(&mut Sight)) {
        let mut state = self.state();
        let new = state.workflows.learn(uid, change);
        let desk = state.desk.clone();
        drop(state);
        if let (true, Some(desk)) = (new, desk) {
            desk.wake(run);
        }
    }
}

fn answered<A>(known: &mut Option<Known<A>>, number: u32, answer: A) {
    if let Some(known) = known.as_mut().filter(|known| known.number == number) {
        known.answer = Some(answer);
    }
}

/// Waits until a workflow is closed, and tells what is heard meanwhile.
async fn follow(
    server: &dyn Temporal,
    places: &Semaphore,
    workflow: &Workflow,
    task_queue: &str,
    tell: &(dyn Fn(Following) + Sync),
) {
    let mut pause = BACKOFF_FIRST;
    let mut heard = Instant::now();
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = places.acquire().await else { return };
        let begun = Instant::now();
        let waited = server.wait(workflow.clone(), task_queue.to_owned()).await;
        drop(place);
        match waited {
            Waited::Open { note } => {
                pause = BACKOFF_FIRST;
                heard = Instant::now();
                tell(Following {
                    trouble: note,
                    closed: None,
                });
                sleep(WAIT_MIN.saturating_sub(begun.elapsed())).await;
            }
            Waited::Closed(closed) => {
                tell(Following {
                    trouble: None,
                    closed: Some(closed),
                });
                return;
            }
            Waited::Silent { words } => {
                if heard.elapsed() >= SILENCE_MAX {
                    tell(Following {
                        trouble: Some(words),
                        closed: None,
                    });
                }
                sleep(pause).await;
                pause = (pause * 2).min(BACKOFF_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{Mutex, PoisonError},
    };

    use jangar_engine::temporal::call::{Means, Returned, Timeouts};

    use super::*;

    /// A server that answers as it is told, one answer after the other, and then not at all.
    #[derive(Debug, Default)]
    struct Scripted {
        waits: Mutex<VecDeque<Waited>>,
        calls: Mutex<Vec<String>>,
    }

    impl Scripted {
        fn note(&self, words: String) {
            self.calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(words);
        }

        fn calls(&self) -> Vec<String> {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    impl Temporal for Scripted {
        fn start(
            &self,
            _: &Key,
            uid: &Uid,
            workflow: Workflow,
            start: Start,
        ) -> BoxFuture<'static, StartAnswer> {
            self.note(format!("start {} of {} for {uid}", start.number, workflow.id));
            let run_id = "r".to_owned();
            Box::pin(std::future::ready(StartAnswer::Started { run_id }))
        }

        fn wait(&self, _: Workflow, _: String) -> BoxFuture<'static, Waited> {
            self.note("wait".to_owned());
            let next = self
                .waits
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            match next {
                Some(waited) => Box::pin(std::future::ready(waited)),
                None => Box::pin(std::future::pending()),
            }
        }

        fn stop(&self, _: Workflow, stop: Stop) -> BoxFuture<'static, StopAnswer> {
            self.note(format!("{} {}", stop.means.word(), stop.number));
            Box::pin(std::future::ready(StopAnswer::Told))
        }
    }

    fn outside(waits: Vec<Waited>) -> (Arc<Outside>, Arc<Scripted>) {
        let server = Arc::new(Scripted {
            waits: Mutex::new(waits.into()),
            ..Scripted::default()
        });
        let outside = Outside::default().with_temporal(Arc::clone(&server) as Arc<dyn Temporal>);
        (Arc::new(outside), server)
    }

    fn call(what: What) -> Call {
        Call {
            run: Key {
                namespace: "agents".to_owned(),
                name: "mend".to_owned(),
            },
            uid: uid(),
            workflow: Workflow {
                namespace: "default".to_owned(),
                id: "w".to_owned(),
                run_id: None,
            },
            what,
        }
    }

    fn uid() -> Uid {
        Uid("u".to_owned())
    }

    fn start(number: u32) -> Call {
        call(What::Start(Box::new(Start {
            number,
            workflow_type: "Agent".to_owned(),
            task_queue: "agents".to_owned(),
            timeouts: Timeouts::default(),
            argument: serde_json::Value::Null,
        })))
    }

    fn following() -> Call {
        let task_queue = "agents".to_owned();
        call(What::Follow { task_queue })
    }

    async fn rest() {
        sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_begun_once_for_each_number() {
        let (outside, server) = outside(Vec::new());
        for number in [1, 1, 2, 2] {
            outside.call_temporal(&start(number)).unwrap();
            rest().await;
        }
        let stop = Stop {
            number: 1,
            means: Means::Cancel,
            reason: String::new(),
        };
        outside.call_temporal(&call(What::Stop(stop.clone()))).unwrap();
        outside.call_temporal(&call(What::Stop(stop))).unwrap();
        rest().await;
        assert_eq!(
            server.calls(),
            ["start 1 of w for u", "start 2 of w for u", "cancel 1"]
        );
        let sight = outside.state().workflows.sight(&uid());
        assert_eq!(sight.start.unwrap().number, 2);
        assert_eq!(sight.stop.unwrap().answer, Some(StopAnswer::Told));
    }

    #[tokio::test(start_paused = true)]
    async fn a_workflow_is_waited_for_until_it_is_closed() {
        let closed = Closed::Completed(Returned::Nothing);
        let silent = Waited::Silent {
            words: "gone".to_owned(),
        };
        let waits = vec![
            Waited::Open { note: None },
            silent,
            Waited::Closed(closed.clone()),
        ];
        let (outside, server) = outside(waits);
        outside.call_temporal(&following()).unwrap();
        outside.call_temporal(&following()).unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(server.calls(), ["wait", "wait", "wait"]);
        let heard = outside.state().workflows.sight(&uid()).following.unwrap();
        assert_eq!(heard.closed, Some(closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_for_long_is_told_of() {
        let silent = || Waited::Silent {
            words: "gone".to_owned(),
        };
        let (outside, _) = outside((0..20).map(|_| silent()).collect());
        outside.call_temporal(&following()).unwrap();
        let trouble = || outside.state().workflows.sight(&uid()).following.unwrap().trouble;
        sleep(Duration::from_secs(20)).await;
        assert_eq!(trouble(), None);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(trouble().as_deref(), Some("gone"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_of_a_run_goes_with_it_and_its_calls_end() {
        let (outside, server) = outside(vec![Waited::Open { note: None }]);
        outside.call_temporal(&following()).unwrap();
        rest().await;
        outside.state().workflows.over(&following().run);
        assert_eq!(outside.state().workflows.sight(&uid()), Sight::default());
        rest().await;
        assert_eq!(Arc::strong_count(&server), 2);
        outside.call_temporal(&following()).unwrap();
        rest().await;
        assert_eq!(server.calls().len(), 2);
    }
}
