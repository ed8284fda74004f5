//! One term of leadership: caches that begin empty, and the controllers that work from them. Nothing of it outlives the
//! term.

use std::{fmt, sync::Arc, time::Duration};

use jangar_engine::settings::Settings;
use kube::Client;
use tokio::task::JoinSet;

use super::{Context, Deletions, Leisure, station::Station};
use crate::{
    caches::{Caches, Listener, Scope, World, spawn_watches},
    clock::Clock,
    events::Reporter,
    forges::Forges,
    halt::Halt,
    lease::Gate,
    metrics::Metrics,
    outbox::{AT_ONCE, Outbox},
    outside::Outside,
};

/// How long an end waits for Events that nobody has been told of yet.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);

/// What a term is begun with.
pub struct TermSetup {
    pub client: Client,
    pub settings: Arc<Settings>,
    pub clock: Arc<dyn Clock>,
    pub gate: Gate,
    pub reporter: Reporter,
    pub metrics: Arc<Metrics>,
    pub halt: Halt,
    /// What answers for forges.
    pub forges: Arc<dyn Forges>,
    pub outside: Arc<Outside>,
}

impl fmt::Debug for TermSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermSetup")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A term of leadership. Dropping it ends all its tasks at once.
#[derive(Debug)]
pub struct Term {
    context: Arc<Context>,
    stations: JoinSet<()>,
    /// They tell what the controllers leave them to tell.
    messengers: JoinSet<()>,
    /// They end when they are dropped: they only read.
    _watches: JoinSet<()>,
}

impl Term {
    /// Starts the watches, and each controller once all caches have been listed.
    pub fn begin(setup: TermSetup, controllers: Vec<Arc<dyn Station>>) -> Self {
        if let Some(archiver) = setup.outside.archiver() {
            archiver.count_in(Arc::clone(&setup.metrics));
        }
        let listeners = controllers
            .iter()
            .map(|station| Arc::clone(station) as Arc<dyn Listener>)
            .collect();
        let (context, watches) = open(setup, listeners);
        let mut messengers = JoinSet::new();
        for _ in 0..AT_ONCE {
            let context = Arc::clone(&context);
            messengers.spawn(async move { context.outbox.empty(&context.reporter, &context.gate).await });
        }
        let mut stations = JoinSet::new();
        for station in controllers {
            let context = Arc::clone(&context);
            stations.spawn(async move {
                tokio::select! {
                    biased;
                    () = context.halt.requested() => return,
                    () = context.world.until(Caches::are_ready) => {}
                }
                station.run(context).await;
            });
        }
        Self {
            context,
            stations,
            messengers,
            _watches: watches,
        }
    }

    /// Returns when all caches have been listed.
    pub async fn ready(&self) {
        self.context.world.until(Caches::are_ready).await;
    }

    /// Returns when every controller has ended, after a request to stop, and what they had to tell is told, as far as that does
    /// not take long: the next leader waits for it, and a status tells the same.
    pub async fn ended(mut self) {
        while self.stations.join_next().await.is_some() {}
        self.context.outbox.close();
        let told = async { while self.messengers.join_next().await.is_some() {} };
        if tokio::time::timeout(EVENTS_PATIENCE, told).await.is_err() {
            self.messengers.shutdown().await;
            self.context.outbox.abandon(&self.context.metrics);
        }
    }
}

/// Starts the watches, which tell the listeners, and makes what every reconcile works with.
pub(crate) fn open(setup: TermSetup, listeners: Vec<Arc<dyn Listener>>) -> (Arc<Context>, JoinSet<()>) {
    let scopes = Scope::covering(&setup.settings);
    let archiver = setup.outside.archiver().cloned();
    let world = Arc::new(World::new(&scopes, &setup.settings, listeners, archiver));
    let mut watches = JoinSet::new();
    spawn_watches(
        &mut watches,
        &setup.client,
        &world,
        &scopes,
        &setup.settings,
        &setup.metrics,
    );
    let context = Context {
        client: setup.client,
        world,
        deletions: Deletions::of(&setup.settings),
        leisure: Leisure::of(&setup.settings),
        settings: setup.settings,
        clock: setup.clock,
        gate: setup.gate,
        reporter: setup.reporter,
        outbox: Outbox::default(),
        metrics: setup.metrics,
        halt: setup.halt,
        forges: setup.forges,
        outside: setup.outside,
    };
    (Arc::new(context), watches)
}
