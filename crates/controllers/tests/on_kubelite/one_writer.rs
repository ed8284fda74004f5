//! Whatever happens on the way to the API server, and whenever processes die or step down: no two of them write at once.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jangar_controllers::{
    clock::Clock,
    lease::{Elector, Gate},
};
use jangar_engine::settings::LeaseSettings;
use jiff::SignedDuration;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep, timeout_at};

use crate::support::{Cluster, Fault, OddClock, Weather, identity, seconds};

/// How many different courses of events are tried.
const SEEDS: u64 = 20;
/// How long each lasts, in virtual time: some twenty leases.
const COURSE: Duration = Duration::from_mins(10);
/// How long a write that was given up may still take to be done: less than a sixth of a lease.
const STRAGGLE: Duration = Duration::from_millis(4900);

/// Who writes at the moment, and whose gates are open.
#[derive(Default)]
struct Scene {
    seed: u64,
    /// Each process with the number of its writes under way.
    writing: Vec<(String, usize)>,
    gates: Vec<(String, Gate)>,
    terms: usize,
    writes: usize,
}

impl Scene {
    fn check(&self) {
        let mut open: Vec<&str> = Vec::new();
        for (name, gate) in &self.gates {
            if gate.is_open() && !open.contains(&name.as_str()) {
                open.push(name);
            }
        }
        assert!(open.len() <= 1, "seed {}: open gates of {open:?}", self.seed);
        let writing = self.writing.iter().filter(|(_, count)| *count > 0);
        let writing: Vec<&str> = writing.map(|(name, _)| name.as_str()).collect();
        assert!(
            writing.len() <= 1,
            "seed {}: {writing:?} write at once",
            self.seed
        );
    }

    fn count(&mut self, name: &str) -> &mut usize {
        let at = self.writing.iter().position(|(writer, _)| writer == name);
        let at = at.unwrap_or_else(|| {
            self.writing.push((name.to_owned(), 0));
            self.writing.len() - 1
        });
        &mut self.writing[at].1
    }
}

type Shared = Arc<Mutex<Scene>>;

/// A write under way. Given up, it goes on for a while where nobody can reach it.
struct Write {
    scene: Shared,
    name: String,
    answered: bool,
}

impl Write {
    fn begin(scene: &Shared, name: &str) -> Self {
        let mut guard = scene.lock().unwrap();
        *guard.count(name) += 1;
        guard.writes += 1;
        guard.check();
        Self {
            scene: Arc::clone(scene),
            name: name.to_owned(),
            answered: false,
        }
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let (scene, name) = (Arc::clone(&self.scene), self.name.clone());
        if self.answered {
            *scene.lock().unwrap().count(&name) -= 1;
        } else {
            tokio::spawn(async move {
                sleep(STRAGGLE).await;
                *scene.lock().unwrap().count(&name) -= 1;
            });
        }
    }
}

#[derive(Clone, Copy)]
enum Sky {
    Fair,
    /// Anything may happen to a request.
    Storm {
        until: Instant,
    },
    /// Nothing arrives.
    Outage {
        until: Instant,
    },
}

/// Mostly fair; now and then a storm or an outage of up to a minute.
fn weather(seed: u64) -> Weather {
    let state = Mutex::new((Sky::Fair, StdRng::seed_from_u64(seed)));
    Arc::new(move |_| {
        let mut guard = state.lock().unwrap();
        let (sky, random) = &mut *guard;
        let now = Instant::now();
        match *sky {
            Sky::Storm { until } | Sky::Outage { until } if now < until => {}
            _ => {
                let until = now + seconds(random.random_range(1..60));
                *sky = match random.random_range(0..40) {
                    0 => Sky::Storm { until },
                    1..=3 => Sky::Outage { until },
                    _ => Sky::Fair,
                };
            }
        }
        let kinds = match sky {
            Sky::Fair => 20,
            Sky::Storm { .. } => 6,
            Sky::Outage { .. } => 2,
        };
        match random.random_range(0..kinds) {
            0 => Fault::Refuse,
            1 => Fault::Hang,
            2 => Fault::LoseAnswer,
            3 => Fault::Late(Duration::from_millis(random.random_range(1..25_000))),
            4 => Fault::Late(Duration::from_millis(random.random_range(1..2_000))),
            5 => Fault::LateAnswer(Duration::from_millis(random.random_range(1..10_000))),
            _ => Fault::None,
        }
    })
}

fn clock(random: &mut StdRng) -> Arc<dyn Clock> {
    match random.random_range(0..4) {
        0 => OddClock::stopped(),
        1 => OddClock::off_by(SignedDuration::from_secs(random.random_range(-100_000..100_000))),
        _ => OddClock::right(),
    }
}

/// One process after the other under the same name: each leads, writes, and dies, steps down or loses the lease.
async fn processes(cluster: &Cluster, name: &str, scene: &Shared, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let end = Instant::now() + COURSE;
    while Instant::now() < end {
        let client = cluster.client_in(weather(random.random()));
        // One that holds on almost until the lease ends is kept in bounds by its gate alone.
        let settings = LeaseSettings {
            renew_deadline: seconds(random.random_range(15..30)),
            ..LeaseSettings::default()
        };
        let mut elector = Elector::new(
            client,
            settings,
            identity(name),
            clock(&mut random),
            Arc::default(),
        );
        for _ in 0..random.random_range(1..4) {
            let Ok(leadership) = timeout_at(end, elector.lead()).await else {
                return;
            };
            {
                let mut scene = scene.lock().unwrap();
                scene.terms += 1;
                scene.gates.push((name.to_owned(), leadership.gate()));
            }
            let (gate, writes) = (leadership.gate(), random.random());
            let term = seconds(random.random_range(1..300));
            tokio::select! {
                () = leadership.lost() => {}
                () = sleep(term) => {}
                () = write_on(&gate, name, scene, writes) => {}
            }
            if random.random_bool(0.5) {
                // It may fail: then the lease runs out.
                let _ = leadership.release().await;
            }
        }
    }
}

/// Writes, two at a time, as long as it may.
async fn write_on(gate: &Gate, name: &str, scene: &Shared, seed: u64) {
    let one = async |seed| {
        let mut random = StdRng::seed_from_u64(seed);
        loop {
            let takes = Duration::from_millis(random.random_range(1..12_000));
            // What it comes to is of no interest here: the scene is watched.
            let _ = gate
                .write(async {
                    let mut write = Write::begin(scene, name);
                    sleep(takes).await;
                    write.answered = true;
                    Ok(())
                })
                .await;
            sleep(Duration::from_millis(random.random_range(1..700))).await;
        }
    };
    tokio::join!(one(seed), one(seed ^ 1));
}

#[tokio::test(start_paused = true)]
async fn no_two_processes_write_at_once_whatever_happens() {
    let (mut terms, mut writes) = (0, 0);
    for seed in 0..SEEDS {
        let cluster = Cluster::start().await;
        let scene = Shared::default();
        scene.lock().unwrap().seed = seed;
        let watched = async {
            loop {
                scene.lock().unwrap().check();
                sleep(Duration::from_millis(250)).await;
            }
        };
        let all = async {
            tokio::join!(
                processes(&cluster, "a", &scene, seed * 3),
                processes(&cluster, "b", &scene, seed * 3 + 1),
                processes(&cluster, "c", &scene, seed * 3 + 2),
            )
        };
        tokio::select! {
            _ = all => {}
            () = watched => {}
        }
        let scene = scene.lock().unwrap();
        terms += scene.terms;
        writes += scene.writes;
    }
    // It would be no wonder if nobody ever wrote.
    assert!(terms > 3 * usize::try_from(SEEDS).unwrap(), "{terms} terms");
    assert!(writes > 20 * usize::try_from(SEEDS).unwrap(), "{writes} writes");
}
