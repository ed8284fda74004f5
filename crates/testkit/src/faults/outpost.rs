//! The way of one process to the endpoint: every call of it goes through here, and is numbered as a write is.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jangar_controllers::outside::{Call, Endpoints};
use jangar_engine::custom::call::Answer;
use tokio::sync::oneshot;

use super::{
    Trouble,
    line::fate,
    wire::{Order, Process, Wire},
};
use crate::endpoint::SimEndpoint;

/// Calls the simulated endpoint on behalf of one process.
#[derive(Clone, Debug)]
pub struct Outpost {
    wire: Arc<Wire>,
    process: Arc<Process>,
    endpoint: Arc<SimEndpoint>,
}

impl Outpost {
    pub fn new(wire: Arc<Wire>, process: Arc<Process>, endpoint: Arc<SimEndpoint>) -> Self {
        Self {
            wire,
            process,
            endpoint,
        }
    }

    async fn send(&self, call: Call) -> Answer {
        self.process.passes().await;
        self.wire.travel().await;
        self.process.passes().await;
        let (number, troubles) = self.wire.count();
        self.wire.trace.note(
            &self.process.name,
            format_args!("write {number}: calls the endpoint"),
        );
        let fate = fate(&self.wire, &self.process, number, troubles);
        let answer = match fate {
            Some(trouble) => self.suffer(trouble, call).await,
            None => self.endpoint.take(&call),
        };
        self.wire.travel().await;
        answer
    }

    async fn suffer(&self, trouble: Trouble, call: Call) -> Answer {
        let unknown = |words: &str| Answer::Unknown {
            words: words.to_owned(),
        };
        match trouble {
            Trouble::CrashBefore => self.crash().await,
            Trouble::CrashAfter => {
                self.endpoint.take(&call);
                self.crash().await
            }
            Trouble::LostAnswer | Trouble::NoAnswer => {
                self.endpoint.take(&call);
                unknown("the connection broke")
            }
            Trouble::GatewayTimeout => {
                self.endpoint.take(&call);
                unknown("HTTP 504")
            }
            Trouble::Late(by) => {
                let endpoint = Arc::clone(&self.endpoint);
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    endpoint.take(&call);
                });
                unknown("the connection broke")
            }
            Trouble::Broken => unknown("HTTP 500"),
            Trouble::NotSent => Answer::NotTaken {
                words: "it cannot be connected to".to_owned(),
                retry_after: None,
            },
            Trouble::Busy => Answer::NotTaken {
                words: "HTTP 429".to_owned(),
                retry_after: Some(Duration::from_secs(1)),
            },
            Trouble::Conflict => Answer::Refused {
                words: "HTTP 409".to_owned(),
            },
            Trouble::Takeover(time) => {
                self.process.freeze_for(time);
                self.wire.order(Order::Rival);
                self.process.passes().await;
                self.endpoint.take(&call)
            }
            Trouble::Freeze(..)
            | Trouble::Skip(..)
            | Trouble::Lag(..)
            | Trouble::Expire
            | Trouble::DeleteJob(_)
            | Trouble::DeletePod(_)
            | Trouble::ClockForward(_)
            | Trouble::ClockBack(_) => self.endpoint.take(&call),
        }
    }

    async fn crash(&self) -> Answer {
        self.process.kill();
        self.wire.order(Order::Restart);
        std::future::pending().await
    }
}

impl Endpoints for Outpost {
    /// What was sent is on its way even if the process does not wait for the answer, so it has a task of its own.
    fn post(&self, call: Call) -> BoxFuture<'static, Answer> {
        let outpost = self.clone();
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let found = outpost.send(call).await;
            outpost.process.passes().await;
            // An error means that nobody waits any more.
            let _gave_up = answer.send(found);
        });
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Answer::Unknown {
                words: "the connection broke".to_owned(),
            })
        })
    }
}
