//! An API server in the test's own process, and a line to it that can be disturbed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Body as AnswerBody;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use jangar_controllers::{
    clock::Clock,
    lease::{Elector, Gate, Identity},
    metrics::Metrics,
};
use jangar_engine::settings::LeaseSettings;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    core::v1::{ConfigMap, Namespace},
};
use kube::{Api, Client, api::PostParams, client::Body};
use kubelite::{
    clock::{Ids, TokioClock},
    error::ApiError,
    server::{Config, LogRequest, PodLogs, Server, User},
    store::{Limits, Store},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceExt, service_fn};

pub(crate) const NAMESPACE: &str = "agents";
const START: &str = "2026-03-01T12:00:00Z";

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns once nobody has anything left to do: paused time moves only when every task waits.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// As `settle`, once runs whose pods do not start have said so.
pub(crate) async fn settle_silence() {
    sleep(Duration::from_secs(6)).await;
}

/// What happens to a request on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// It never arrives, and no answer comes.
    Hang,
    /// It is refused before anything is done.
    Refuse,
    /// It is done, and the answer is lost.
    LoseAnswer,
    /// It arrives later, whether or not the sender still waits.
    Late(Duration),
    /// It is done at once, and the answer takes this long.
    LateAnswer(Duration),
}

/// Decides what happens to each request.
pub(crate) type Weather = Arc<dyn Fn(&Method) -> Fault + Send + Sync>;

/// The same for every read and for every write, until it is changed.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<Mutex<LineFaults>>);

#[derive(Default)]
struct LineFaults {
    reads: Fault,
    writes: Fault,
}

impl Line {
    pub(crate) fn set(&self, fault: Fault) {
        *self.0.lock().unwrap() = LineFaults {
            reads: fault,
            writes: fault,
        };
    }

    pub(crate) fn set_writes(&self, fault: Fault) {
        self.0.lock().unwrap().writes = fault;
    }

    pub(crate) fn weather(&self) -> Weather {
        let faults = Arc::clone(&self.0);
        Arc::new(move |method| {
            let faults = faults.lock().unwrap();
            if *method == Method::GET {
                faults.reads
            } else {
                faults.writes
            }
        })
    }
}

/// A clock that is off by a fixed time, or stands still.
#[derive(Debug)]
pub(crate) struct OddClock {
    pub(crate) start: Timestamp,
    pub(crate) origin: Option<Instant>,
}

impl OddClock {
    pub(crate) fn off_by(offset: SignedDuration) -> Arc<dyn Clock> {
        let start: Timestamp = START.parse().unwrap();
        Arc::new(Self {
            start: start + offset,
            origin: Some(Instant::now()),
        })
    }

    pub(crate) fn stopped() -> Arc<dyn Clock> {
        Arc::new(Self {
            start: START.parse().unwrap(),
            origin: None,
        })
    }

    pub(crate) fn right() -> Arc<dyn Clock> {
        Self::off_by(SignedDuration::ZERO)
    }
}

impl Clock for OddClock {
    fn now(&self) -> Timestamp {
        let passed = self.origin.map_or(Duration::ZERO, |origin| origin.elapsed());
        self.start + SignedDuration::try_from(passed).unwrap()
    }
}

/// What pods have written, whichever they are.
#[derive(Debug)]
struct Said;

impl PodLogs for Said {
    fn read(&self, request: LogRequest) -> BoxFuture<'_, Result<AnswerBody, ApiError>> {
        let text = format!("{} of {} was here\n", request.container, request.pod);
        Box::pin(async move { Ok(AnswerBody::from(text)) })
    }
}

/// An API server with one namespace.
pub(crate) struct Cluster {
    pub(crate) server: Server,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let config = Config {
            clock: Arc::new(TokioClock::starting_at(START.parse().unwrap())),
            ids: Ids::seeded(7),
            logs: Some(Arc::new(Said)),
            ..Config::new(Store::in_memory(Limits::default()))
        };
        let server = Server::start(config).await.unwrap();
        let this = Self { server };
        settle().await;
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(NAMESPACE.to_owned());
        Api::all(this.client())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        this
    }

    /// A client with an undisturbed line.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.server.local(User::system("tester")), NAMESPACE)
    }

    /// A client in this weather.
    pub(crate) fn client_in(&self, weather: Weather) -> Client {
        let router = self.server.local(User::system("tester"));
        let service = service_fn(move |request: Request<Body>| {
            let router = router.clone();
            let fault = weather(request.method());
            async move {
                let arrive = async move {
                    let response = router.oneshot(request).await?;
                    Ok::<_, BoxError>(response)
                };
                match fault {
                    Fault::None => arrive.await,
                    Fault::Hang => std::future::pending().await,
                    Fault::Refuse => Ok(Response::builder().status(500).body(AnswerBody::empty())?),
                    Fault::LoseAnswer => {
                        arrive.await?;
                        Err("the connection broke".into())
                    }
                    Fault::Late(delay) => {
                        let arrival = tokio::spawn(async move {
                            sleep(delay).await;
                            arrive.await
                        });
                        arrival.await?
                    }
                    Fault::LateAnswer(delay) => {
                        let answer = arrive.await;
                        sleep(delay).await;
                        answer
                    }
                }
            }
        });
        Client::new(service, NAMESPACE)
    }

    pub(crate) fn elector(&self, name: &str) -> Elector {
        self.elector_on(name, &Line::default())
    }

    pub(crate) fn elector_on(&self, name: &str, line: &Line) -> Elector {
        self.elector_with(name, line, LeaseSettings::default())
    }

    pub(crate) fn elector_with(&self, name: &str, line: &Line, settings: LeaseSettings) -> Elector {
        let client = self.client_in(line.weather());
        Elector::new(
            client,
            settings,
            identity(name),
            OddClock::right(),
            Arc::default(),
        )
    }

    pub(crate) fn elector_by(&self, name: &str, clock: Arc<dyn Clock>) -> Elector {
        let settings = LeaseSettings::default();
        Elector::new(self.client(), settings, identity(name), clock, Arc::default())
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::default_namespaced(self.client())
    }

    pub(crate) async fn lease(&self) -> LeaseSpec {
        let name = LeaseSettings::default().name;
        self.leases().get(&name).await.unwrap().spec.unwrap()
    }

    pub(crate) async fn holder(&self) -> String {
        self.lease().await.holder_identity.unwrap()
    }
}

pub(crate) fn identity(name: &str) -> Identity {
    Identity::new(name).unwrap()
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

/// Waits until the gate is shut, and says how long that took.
pub(crate) async fn shut(gate: &Gate) -> Duration {
    let start = Instant::now();
    while gate.is_open() {
        sleep(Duration::from_millis(10)).await;
        assert!(start.elapsed() < seconds(600), "the gate stays open");
    }
    start.elapsed()
}

/// Counters together with the registry they stand in.
pub(crate) struct Counted {
    pub(crate) metrics: Arc<Metrics>,
    registry: Registry,
}

impl Counted {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
        Self { metrics, registry }
    }

    /// The value of one time series, as `name{labels}`.
    pub(crate) fn value(&self, series: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}
