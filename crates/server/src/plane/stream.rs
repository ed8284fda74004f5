//! Changes as they happen, from the one list of changes that all clients share.
//!
//! A stream is a number and a filter. It asks again now and then whether its caller may still look, and ends if not.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{Stream, stream};
use jangar_api::Kind;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};

use super::{Caller, ControlPlane};
use crate::{
    access::Question,
    metrics::{Loss, Protocol, StreamGuard},
    refusal::{Refusal, Trouble},
    world::{Action, Change, Filter, Object},
};

/// How often a silent stream says that it is there, and whether its caller may still look.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// The shortest time between two looks at the changes. The first is told at once; those that follow it closely are told together, which
/// many streams of a busy namespace would otherwise cost more than all that is done there.
pub const GATHER: Duration = Duration::from_millis(250);
/// Changes or objects that a stream takes at once: all that is kept for a client that does not read.
const BATCH_MAX: usize = 32;
/// Objects that a stream tells of when it begins, or begins again. Beyond that a client pages through lists.
const SNAPSHOT_MAX: usize = 2_000;

/// Which changes are wanted.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub kinds: Vec<Kind>,
    pub filter: Filter,
    /// Only this object.
    pub name: Option<String>,
    /// Where the client was, as it was told; absent: it knows nothing yet.
    pub last_id: Option<String>,
    /// Whether a client that knows nothing is told what is there.
    pub snapshot: bool,
}

impl Subscription {
    fn wants(&self, object: &Object) -> bool {
        self.kinds.contains(&object.kind)
            && self.name.as_ref().is_none_or(|name| *name == object.name)
            && self.filter.matches(object)
    }

    /// What a change is to this client; nothing, if neither what the object was nor what it is concerns them.
    fn seen(&self, change: Change) -> Option<(Action, Arc<Object>)> {
        let Change {
            action,
            object,
            before,
            ..
        } = change;
        let before = before.filter(|before| self.wants(before));
        match (self.wants(&object), before) {
            (true, None) if action == Action::Modified => Some((Action::Added, object)),
            (true, _) => Some((action, object)),
            // It is there, and no longer among those that are looked at.
            (false, Some(before)) => Some((Action::Deleted, before)),
            (false, None) => None,
        }
    }
}

/// Something that a stream says.
#[derive(Clone, Debug)]
pub enum Told {
    /// An object, and where the client is after it; absent while it is told what is there: it cannot go on from the middle of that.
    Object {
        id: Option<String>,
        action: Action,
        object: Arc<Object>,
    },
    /// What the client knows may be outdated: what follows is what is there now.
    Reset { cut: bool },
    /// The client knows what was there. What follows are changes, and this is where it is.
    Synced { id: String },
    /// Nothing has happened that the client wants to know, and this is where it is.
    Heartbeat { id: String },
}

/// What a stream needs while it is open.
struct Open {
    plane: Arc<ControlPlane>,
    caller: Caller,
    subscription: Subscription,
    position: u64,
    /// What is still to be told of what was there, at most [`SNAPSHOT_MAX`]. Whatever goes or changes before its turn is not kept for
    /// it: the list of changes tells of that.
    listing: VecDeque<Weak<Object>>,
    /// Whether the client is being told what is there.
    syncing: bool,
    /// At most [`BATCH_MAX`], and what announces them.
    pending: VecDeque<Told>,
    checked: Instant,
    /// When changes were taken last.
    taken: Option<Instant>,
    ended: bool,
    _place: OwnedSemaphorePermit,
    _counted: StreamGuard,
}

impl ControlPlane {
    /// Opens a stream of changes for a caller who may watch all that is asked for.
    pub async fn changes(
        self: &Arc<Self>,
        caller: Caller,
        subscription: Subscription,
        protocol: Protocol,
    ) -> Result<impl Stream<Item = Result<Told, Refusal>> + Send + use<>, Refusal> {
        self.may_watch(&caller, &subscription).await?;
        let place = self.place(&self.streams)?;
        let mut open = Open {
            position: self.world.log.latest(),
            plane: Arc::clone(self),
            caller,
            listing: VecDeque::new(),
            syncing: false,
            pending: VecDeque::new(),
            checked: Instant::now(),
            taken: None,
            ended: false,
            _place: place,
            _counted: self.metrics.stream(protocol),
            subscription,
        };
        open.begin();
        Ok(stream::unfold(open, |mut open| async move {
            let told = open.next().await?;
            Some((told, open))
        }))
    }

    /// A place for one more stream.
    pub(super) fn place(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
        let _ = self;
        Arc::clone(places).try_acquire_owned().map_err(|_| {
            Refusal::new(Trouble::Unavailable, "too many streams are open")
                .remedy("close one, or read lists instead")
                .retry_after(30)
        })
    }

    async fn may_watch(&self, caller: &Caller, subscription: &Subscription) -> Result<(), Refusal> {
        let namespace = subscription.filter.namespace.clone();
        for kind in &subscription.kinds {
            let question = Question::on(
                "watch",
                *kind,
                namespace.as_deref().unwrap_or_default(),
                subscription.name.as_deref().unwrap_or_default(),
            );
            self.gatekeeper.require(&caller.identity, &question).await?;
        }
        match namespace {
            Some(namespace) if !self.world.covers(&namespace) => Err(self.not_covered(&namespace)),
            _ => Ok(()),
        }
    }
}

impl Open {
    /// Goes on where the client was, or tells it what is there.
    fn begin(&mut self) {
        let log = &self.plane.world.log;
        match self.subscription.last_id.as_deref() {
            None if self.subscription.snapshot => self.snapshot(),
            None => self.syncing = true,
            Some(id) => match log.number(id).filter(|number| log.since(*number, 1).is_some()) {
                Some(number) => self.position = number,
                None => self.snapshot(),
            },
        }
    }

    fn snapshot(&mut self) {
        let world = &self.plane.world;
        let Subscription {
            kinds, filter, name, ..
        } = &self.subscription;
        // First the number, then the objects: what changes in between is told twice rather than not at all.
        self.position = world.log.latest();
        self.listing.clear();
        for kind in kinds {
            let room = (SNAPSHOT_MAX + 1).saturating_sub(self.listing.len());
            let listed = match (name, &filter.namespace) {
                (Some(name), Some(namespace)) => world.get(*kind, namespace, name).into_iter().collect(),
                _ => world.list(*kind, filter, None, room),
            };
            let wanted = listed.iter().filter(|object| self.subscription.wants(object));
            self.listing.extend(wanted.map(Arc::downgrade));
        }
        let cut = self.listing.len() > SNAPSHOT_MAX;
        self.listing.truncate(SNAPSHOT_MAX);
        self.syncing = true;
        self.pending.push_back(Told::Reset { cut });
    }

    /// Takes some more of what was there; whether there was any.
    fn take_listed(&mut self) -> bool {
        while let Some(object) = self.listing.pop_front() {
            if let Some(object) = object.upgrade() {
                let (id, action) = (None, Action::Added);
                self.pending.push_back(Told::Object { id, action, object });
            }
            if self.pending.len() == BATCH_MAX {
                return true;
            }
        }
        if self.syncing {
            self.syncing = false;
            let id = self.plane.world.log.id(self.position);
            self.pending.push_back(Told::Synced { id });
        }
        !self.pending.is_empty()
    }

    async fn next(&mut self) -> Option<Result<Told, Refusal>> {
        let mut latest = self.plane.world.log.subscribe();
        let mut closing = self.plane.closing.subscribe();
        loop {
            if self.ended {
                return None;
            }
            if self.checked.elapsed() >= HEARTBEAT {
                self.checked = Instant::now();
                if let Err(refusal) = self.plane.may_watch(&self.caller, &self.subscription).await {
                    self.ended = true;
                    return Some(Err(refusal));
                }
            }
            if let Some(told) = self.pending.pop_front() {
                return Some(Ok(told));
            }
            latest.borrow_and_update();
            if self.take_listed() || self.take_changes() {
                continue;
            }
            let wait = HEARTBEAT.saturating_sub(self.checked.elapsed());
            tokio::select! {
                changed = latest.changed() => {
                    // Without the world there is nothing to tell.
                    changed.ok()?;
                    if let Some(taken) = self.taken {
                        tokio::time::sleep_until(taken + GATHER).await;
                    }
                }
                () = tokio::time::sleep(wait) => {
                    let id = self.plane.world.log.id(self.position);
                    self.pending.push_back(Told::Heartbeat { id });
                }
                () = closed(&mut closing) => return None,
            }
        }
    }

    /// Takes what has happened since; whether anything did.
    fn take_changes(&mut self) -> bool {
        let log = &self.plane.world.log;
        let Some(changes) = log.since(self.position, BATCH_MAX) else {
            self.plane.metrics.loss(Loss::Stream);
            self.snapshot();
            return true;
        };
        let Some(last) = changes.last() else {
            return false;
        };
        self.position = last.number;
        self.taken = Some(Instant::now());
        let told = changes.into_iter().filter_map(|change| {
            let id = Some(log.id(change.number));
            let (action, object) = self.subscription.seen(change)?;
            Some(Told::Object { id, action, object })
        });
        self.pending.extend(told);
        true
    }
}

/// Waits until the program ends.
pub(super) async fn closed(closing: &mut watch::Receiver<bool>) {
    // Without a sender it has ended.
    let _ = closing.wait_for(|closing| *closing).await;
}

#[cfg(test)]
mod tests;
