//! The node: what makes Jobs run, as a cluster with one node shows it through the API.
//!
//! A Job controller, TTL-after-finished and the node's heartbeat follow the store in one task, in one order, so that the same
//! writes always lead to the same consequences. The scheduler has a task of its own: a place that became free is given away
//! at once, and not only when the writes of the others are done. Nothing polls: each waits for a change or for a time.
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

use jiff::Timestamp;
use tokio::{runtime::Handle, sync::watch as signal, task::JoinHandle};

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
    /// How many more are given to the node, which then has the next one ready when a pod ends ([`executor::Config::ahead`]).
    pub ahead: u32,
    /// How often the node's Lease is renewed.
    pub lease_renewal: Duration,
    /// How long the Job controller lets changes of pods gather before it looks at their Job. The one in Kubernetes waits
    /// for one second.
    pub job_sync_delay: Duration,
    /// Where the Job controller and the like work, if not where the scheduler does: a crowd of new Jobs is much work, and whoever
    /// waits for a place that has become free should not stand in line with it.
    pub controllers_on: Option<Handle>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "kubelite".to_owned(),
            // What a kubelet allows by default.
            pods: 110,
            ahead: 0,
            lease_renewal: Duration::from_secs(10),
            job_sync_delay: Duration::ZERO,
            controllers_on: None,
        }
    }
}

/// The running controllers. Dropping it ends them.
#[derive(Debug)]
pub struct Node {
    stop: signal::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
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
            heartbeat,
        };
        let scheduler = Scheduler::new(manager.named("kube-scheduler"), config);
        let stop = signal::Sender::new(false);
        let there = config.controllers_on.clone().unwrap_or_else(Handle::current);
        let tasks = [
            there.spawn(follow(manager.clone(), controllers, stop.subscribe())),
            tokio::spawn(follow(manager, scheduler, stop.subscribe())),
        ];
        Ok(Self { stop, tasks })
    }

    /// Ends the controllers after what they are doing now.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        for task in &mut self.tasks {
            // It ends by itself; if it panicked there is nothing left to end.
            let _ = task.await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What follows the store.
trait Follower {
    /// Makes due what a change concerns.
    fn note(&mut self, event: &Event);
    /// Makes everything due.
    fn note_everything(&mut self);
    /// Does what is due, or a part of it.
    fn act(&mut self) -> impl Future<Output = ()> + Send;
    /// When it has something to do although nothing changes.
    fn next(&self) -> Option<Timestamp>;
    /// How long it may wait for that, so that a clock that was set meanwhile is noticed.
    fn longest_wait(&self) -> Duration;
}

async fn follow<F: Follower>(client: Client, mut follower: F, mut stop: signal::Receiver<bool>) {
    let mut changes = client.store().follow();
    follower.note_everything();
    loop {
        follower.act().await;
        let batch = tokio::select! {
            biased;
            // An error means that the node is gone, which is the end as well.
            _ = stop.wait_for(|stopping| *stopping) => return,
            () = client.stopping() => return,
            batch = changes.next() => Some(batch),
            () = sleep(&client, &follower) => None,
        };
        match batch {
            Some(Ok(Batch { events, .. })) => {
                for event in &events {
                    follower.note(event);
                }
            }
            // Changes were missed, so look at everything once.
            Some(Err(_lagged)) => {
                changes = client.store().follow();
                follower.note_everything();
            }
            None => {}
        }
    }
}

/// Sleeps until something is due.
async fn sleep(client: &Client, follower: &impl Follower) {
    let Some(next) = follower.next() else {
        return std::future::pending().await;
    };
    // What is due already is negative.
    let left = Duration::try_from(next.duration_since(client.now())).unwrap_or(Duration::ZERO);
    tokio::time::sleep(left.min(follower.longest_wait())).await;
}

#[derive(Debug)]
struct Controllers {
    jobs: Jobs,
    ttl: Ttl,
    heartbeat: Heartbeat,
}

impl Follower for Controllers {
    fn note(&mut self, event: &Event) {
        self.jobs.note(event);
        self.ttl.note(event);
        self.heartbeat.note(event);
    }

    fn note_everything(&mut self) {
        self.jobs.note_everything();
        self.ttl.note_everything();
    }

    async fn act(&mut self) {
        if let Err(error) = self.heartbeat.act().await {
            tracing::warn!(%error, "could not report that the node is alive");
        }
        self.jobs.act().await;
        self.ttl.act().await;
    }

    fn next(&self) -> Option<Timestamp> {
        let times = [self.jobs.next(), self.ttl.next()];
        let next = times.into_iter().flatten().fold(self.heartbeat.next(), Ord::min);
        Some(next)
    }

    fn longest_wait(&self) -> Duration {
        self.heartbeat.interval()
    }
}

fn collection(kind: Builtin) -> Collection {
    let info = kind.info();
    Collection::new(info.group, info.plural)
}
