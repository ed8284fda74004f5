//! The way of one process to the Temporal server: every start and stop goes through here, and is numbered as a write is.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use jangar_controllers::outside::{Temporal, Waited};
use jangar_engine::{
    decision::{Key, Uid},
    temporal::call::{Start, StartAnswer, Stop, StopAnswer, Workflow},
};
use tokio::sync::oneshot;

use super::{
    Trouble,
    line::fate,
    wire::{Order, Process, Wire},
};
use crate::temporal::SimTemporal;

/// Calls the simulated server on behalf of one process.
#[derive(Clone, Debug)]
pub struct Embassy {
    wire: Arc<Wire>,
    process: Arc<Process>,
    server: Arc<SimTemporal>,
}

/// What came of a call on its way.
enum Sent<A> {
    Answered(A),
    /// It surely did not arrive.
    Kept,
    /// Nobody knows.
    Lost,
}

impl Embassy {
    pub fn new(wire: Arc<Wire>, process: Arc<Process>, server: Arc<SimTemporal>) -> Self {
        Self {
            wire,
            process,
            server,
        }
    }

    /// Sends a call. `arrive` is what the server does when it has it.
    async fn send<A: Send + 'static>(
        &self,
        what: &str,
        arrive: impl Fn(&Arc<SimTemporal>) -> A + Send + 'static,
    ) -> Sent<A> {
        let mut waited = self.process.passes().await;
        self.wire.travel().await;
        waited |= self.process.passes().await;
        if waited {
            // A call has seconds to arrive, by a deadline of its own, and its process was cut off for longer.
            return Sent::Lost;
        }
        let (number, troubles) = self.wire.count();
        self.wire
            .trace
            .note(&self.process.name, format_args!("write {number}: {what}"));
        let sent = match fate(&self.wire, &self.process, number, troubles) {
            Some(trouble) => self.suffer(trouble, arrive).await,
            None => Sent::Answered(arrive(&self.server)),
        };
        self.wire.travel().await;
        sent
    }

    async fn suffer<A: Send + 'static>(
        &self,
        trouble: Trouble,
        arrive: impl Fn(&Arc<SimTemporal>) -> A + Send + 'static,
    ) -> Sent<A> {
        match trouble {
            Trouble::CrashBefore => self.crash().await,
            Trouble::CrashAfter => {
                arrive(&self.server);
                self.crash().await
            }
            Trouble::LostAnswer | Trouble::NoAnswer | Trouble::GatewayTimeout => {
                arrive(&self.server);
                Sent::Lost
            }
            Trouble::Late(by) => {
                let server = Arc::clone(&self.server);
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    arrive(&server);
                });
                Sent::Lost
            }
            Trouble::Broken | Trouble::Conflict => Sent::Lost,
            Trouble::NotSent | Trouble::Busy => Sent::Kept,
            Trouble::Takeover(time) => {
                self.process.freeze_for(time);
                self.wire.order(Order::Rival);
                self.process.passes().await;
                Sent::Lost
            }
            Trouble::Freeze(..)
            | Trouble::Skip(..)
            | Trouble::Lag(..)
            | Trouble::Expire
            | Trouble::DeleteJob(_)
            | Trouble::DeletePod(_)
            | Trouble::ClockForward(_)
            | Trouble::ClockBack(_) => Sent::Answered(arrive(&self.server)),
        }
    }

    async fn crash<A>(&self) -> Sent<A> {
        self.process.kill();
        self.wire.order(Order::Restart);
        std::future::pending().await
    }

    /// What was sent is on its way even if the process does not wait for the answer, so it has a task of its own.
    fn by_itself<A: Send + 'static>(
        &self,
        call: impl Future<Output = A> + Send + 'static,
        lost: A,
    ) -> BoxFuture<'static, A> {
        let process = Arc::clone(&self.process);
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let found = call.await;
            process.passes().await;
            // An error means that nobody waits any more.
            let _gave_up = answer.send(found);
        });
        Box::pin(async move { answered.await.unwrap_or(lost) })
    }
}

fn broke() -> String {
    "the connection broke".to_owned()
}

fn refused() -> String {
    "it cannot be connected to".to_owned()
}

impl Temporal for Embassy {
    fn start(&self, run: &Key, uid: &Uid, workflow: Workflow, _: Start) -> BoxFuture<'static, StartAnswer> {
        let embassy = self.clone();
        let (run, uid) = (run.clone(), uid.clone());
        let call = async move {
            let arrive = move |server: &Arc<SimTemporal>| server.start(&run, &uid, &workflow);
            match embassy.send("starts a workflow", arrive).await {
                Sent::Answered(answer) => answer,
                Sent::Kept => StartAnswer::NotTaken { words: refused() },
                Sent::Lost => StartAnswer::Unclear { words: broke() },
            }
        };
        self.by_itself(call, StartAnswer::Unclear { words: broke() })
    }

    fn wait(&self, workflow: Workflow, _: String) -> BoxFuture<'static, Waited> {
        let embassy = self.clone();
        Box::pin(async move {
            embassy.process.passes().await;
            embassy.wire.travel().await;
            let waited = embassy.server.wait(&workflow).await;
            embassy.process.passes().await;
            waited
        })
    }

    fn stop(&self, workflow: Workflow, stop: Stop) -> BoxFuture<'static, StopAnswer> {
        let embassy = self.clone();
        let call = async move {
            let arrive = move |server: &Arc<SimTemporal>| server.stop(&workflow, stop.means);
            match embassy.send("stops a workflow", arrive).await {
                Sent::Answered(answer) => answer,
                Sent::Kept => StopAnswer::NotTaken { words: refused() },
                Sent::Lost => StopAnswer::NotTaken { words: broke() },
            }
        };
        self.by_itself(call, StopAnswer::NotTaken { words: broke() })
    }
}
