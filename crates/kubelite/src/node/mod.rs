//! The node: what makes Jobs run, as a cluster with one node shows it through the API.
//!
//! A Job controller, TTL-after-finished, a scheduler and the node's heartbeat follow the store in one task, in one order,
//! so that the same writes always lead to the same consequences. Nothing polls: each waits for a change or for a time.
//!
//! `executor` runs the pods: it plays the kubelet, and speaks to the API server as a kubelet does.

pub mod executor;
mod heartbeat;
mod jobs;
mod scheduler;
mod timers;
mod ttl;
mod warnings;

use std::time::Duration;

use tokio::{sync::watch as signal, task::JoinHandle};

use self::{heartbeat::Heartbeat, jobs::Jobs, scheduler::Scheduler, ttl::Ttl};
use crate::{
    builtin::Builtin,
    error::ApiError,
    server::{Client, Server},
    store::{Batch, Collection, Event},
};

/// How many objects a controller brings forward at once: enough to share the disk's commits, and few enough that it is soon
/// the turn of the others. A crowd of new Jobs must not keep the scheduler from giving away a place that became free.
const AT_ONCE: usize = 16;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the Node object and its `kubernetes.io/hostname`.
    pub name: String,
    /// How many pods may run at once; the rest stay Pending.
    pub pods: u32,
    /// How often the node's Lease is renewed.
    pub lease_renewal: Duration,
    /// How long the Job controller lets changes of pods gather before it looks at their Job. The one in Kubernetes waits
    /// for one second.
    pub job_sync_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "kubelite".to_owned(),
            // What a kubelet allows by default.
            pods: 110,
            lease_renewal: Duration::from_secs(10),
            job_sync_delay: Duration::ZERO,
        }
    }
}

/// The running controllers. Dropping it ends them.
#[derive(Debug)]
pub struct Node {
    stop: signal::Sender<bool>,
    task: JoinHandle<()>,
}

impl Node {
    /// Registers the node and starts to follow the server's objects.
    pub async fn start(server: &Server, config: &Config) -> Result<Self, ApiError> {
        let manager = server.client("kube-controller-manager");
        let mut heartbeat = Heartbeat::new(manager.named("kubelet"), config);
        heartbeat.act().await?;
        let controllers = Controllers {
            jobs: Jobs::new(manager.clone(), config.job_sync_delay),
            ttl: Ttl::new(manager.clone()),
            scheduler: Scheduler::new(manager.named("kube-scheduler"), config),
            heartbeat,
            client: manager,
        };
        let stop = signal::Sender::new(false);
        let task = tokio::spawn(controllers.run(stop.subscribe()));
        Ok(Self { stop, task })
    }

    /// Ends the controllers after what they are doing now.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // The task ends by itself; if it panicked there is nothing left to end.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Controllers {
    client: Client,
    jobs: Jobs,
    ttl: Ttl,
    scheduler: Scheduler,
    heartbeat: Heartbeat,
}

impl Controllers {
    async fn run(mut self, mut stop: signal::Receiver<bool>) {
        let mut follow = self.client.store().follow();
        self.note_everything();
        loop {
            self.act().await;
            let batch = tokio::select! {
                biased;
                // An error means that the node is gone, which is the end as well.
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = self.client.stopping() => return,
                batch = follow.next() => Some(batch),
                () = self.sleep() => None,
            };
            match batch {
                Some(Ok(Batch { events, .. })) => {
                    for event in &events {
                        self.note(event);
                    }
                }
                // Changes were missed, so look at everything once.
                Some(Err(_lagged)) => {
                    follow = self.client.store().follow();
                    self.note_everything();
                }
                None => {}
            }
        }
    }

    fn note(&mut self, event: &Event) {
        self.jobs.note(event);
        self.ttl.note(event);
        self.scheduler.note(event);
        self.heartbeat.note(event);
    }

    fn note_everything(&mut self) {
        self.jobs.note_everything();
        self.ttl.note_everything();
        self.scheduler.note_everything();
    }

    async fn act(&mut self) {
        if let Err(error) = self.heartbeat.act().await {
            tracing::warn!(%error, "could not report that the node is alive");
        }
        self.jobs.act().await;
        self.scheduler.act().await;
        self.ttl.act().await;
    }

    /// Sleeps until something is due.
    async fn sleep(&self) {
        let times = [self.jobs.next(), self.ttl.next(), self.scheduler.next()];
        let next = times.into_iter().flatten().fold(self.heartbeat.next(), Ord::min);
        let left = next.duration_since(self.client.now());
        // What is due already is negative.
        let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
        // Never longer than between two renewals, so that a clock that was set meanwhile is noticed.
        tokio::time::sleep(left.min(self.heartbeat.interval())).await;
    }
}

fn collection(kind: Builtin) -> Collection {
    let info = kind.info();
    Collection::new(info.group, info.plural)
}
