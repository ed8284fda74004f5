//! What the control plane tells as it happens. A line that breaks is taken up again, and all is told anew then.

use std::{collections::VecDeque, time::Duration};

use futures::{StreamExt as _, stream};
use jangar_proto::v1::{WatchObjectsRequest, WatchObjectsResponse, watch_objects_response};
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::{
    super::{Change, Changes, RunRef},
    Grpc,
};
use crate::error::{Error, grpc_words};

/// How long to wait before a line is taken up again, and the most that this grows to.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the pods of a run are looked at while one is waited for: the control plane watches runs, not pods.
const LOOK: Duration = Duration::from_secs(1);

/// Whether trying again cannot help.
fn is_hopeless(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::Unimplemented
    )
}

/// A line that changes come by.
struct Line {
    grpc: Grpc,
    request: WatchObjectsRequest,
    open: Option<Streaming<WatchObjectsResponse>>,
    pause: Duration,
}

pub(super) fn objects(grpc: Grpc, request: WatchObjectsRequest) -> Changes {
    let line = Line {
        grpc,
        request,
        open: None,
        pause: Duration::ZERO,
    };
    stream::unfold(line, |mut line| async move {
        let change = line.next().await;
        Some((change, line))
    })
    .boxed()
}

impl Line {
    async fn next(&mut self) -> Change {
        loop {
            let Some(open) = &mut self.open else {
                if let Err(status) = self.begin().await {
                    return self.broken(&status);
                }
                continue;
            };
            match open.message().await {
                Ok(Some(answer)) => {
                    self.pause = Duration::ZERO;
                    if let Some(change) = self.told(&answer) {
                        return change;
                    }
                }
                Ok(None) => {
                    // It ended in good order: the control plane is stopping, and another one may answer.
                    self.open = None;
                    self.slower();
                }
                Err(status) => return self.broken(&status),
            }
        }
    }

    async fn begin(&mut self) -> Result<(), Status> {
        sleep(self.pause).await;
        let mut client = self.grpc.client();
        let answer = client
            .watch_objects(self.grpc.asked(self.request.clone()))
            .await?;
        self.open = Some(answer.into_inner());
        Ok(())
    }

    fn slower(&mut self) {
        self.pause = self.pause.saturating_mul(2).clamp(PAUSE, PAUSE_MAX);
    }

    fn broken(&mut self, status: &Status) -> Change {
        self.open = None;
        self.slower();
        Change::Trouble {
            words: grpc_words(self.grpc.address(), status),
            hopeless: is_hopeless(status.code()),
        }
    }

    fn told(&self, answer: &WatchObjectsResponse) -> Option<Change> {
        let object = || self.grpc.object(&answer.json).ok();
        match answer.change() {
            watch_objects_response::Change::Relisting => Some(Change::Relisting),
            watch_objects_response::Change::Listed => Some(Change::Listed),
            watch_objects_response::Change::Seen => object().map(Change::Seen),
            watch_objects_response::Change::Gone => object().map(Change::Gone),
            // A later version of the contract says something that this one need not know.
            watch_objects_response::Change::Unspecified => None,
        }
    }
}

/// The pods of a run, looked at now and then.
struct Looking {
    grpc: Grpc,
    run: RunRef,
    step: Option<String>,
    pause: Duration,
    pending: VecDeque<Change>,
}

pub(super) fn pods(grpc: Grpc, run: RunRef, step: Option<String>) -> Changes {
    let looking = Looking {
        grpc,
        run,
        step,
        pause: Duration::ZERO,
        pending: VecDeque::new(),
    };
    stream::unfold(looking, |mut looking| async move {
        let change = looking.next().await;
        Some((change, looking))
    })
    .boxed()
}

impl Looking {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return change;
            }
            sleep(self.pause).await;
            self.pause = LOOK;
            match self.grpc.pods(&self.run, self.step.as_deref()).await {
                Ok(pods) => {
                    self.pending.push_back(Change::Relisting);
                    self.pending.extend(pods.into_iter().map(Change::Seen));
                    self.pending.push_back(Change::Listed);
                }
                Err(error) => {
                    let hopeless = matches!(&error, Error::Grpc { status, .. } if is_hopeless(status.code()));
                    return Change::Trouble {
                        words: error.to_string(),
                        hopeless,
                    };
                }
            }
        }
    }
}
