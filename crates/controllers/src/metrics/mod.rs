//! What the controllers count about themselves, for Prometheus.
//!
//! One struct holds every counter, with one method for each thing that can happen, so that a counter cannot be counted with
//! labels that do not belong to it. A time series appears once something has been counted.

mod labels;

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{phase::RunPhase, reason::Reason};
use jangar_engine::{
    decision::{Effect, Question},
    queue::Told,
    retention::Ladder,
};
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

pub use self::labels::{
    Answer, ArchiveResult, CallbackResult, CanaryOutcome, DeletionResult, EffectKind, EffectResult,
    EventResult, Kept, LogTailResult, ObjectKind, QuestionKind, QueueGate, ReconcileResult, RenewalResult,
    RequestResult, Role, Verb, WatchEvent, WriteStop,
};
use self::labels::{
    ArchiveLabels, CallbackLabels, CanaryLabels, ControllerLabels, DeletionLabels, EffectLabels, EventLabels,
    GateLabels, JobLabels, KeptLabels, LogTailLabels, QuestionLabels, ReconcileLabels, RenewalLabels,
    RequestLabels, RoleLabels, RunLabels, ScopeLabels, WatchLabels, Word, WriteStopLabels,
};

/// What every name begins with.
const PREFIX: &str = "jangar";

/// The counters of one process. Clones count together. The default ones stand in no registry, which is enough for tests.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_duration: Family<ControllerLabels, Histogram>,
    queue_depth: Family<ControllerLabels, Gauge>,
    watch_events: Family<WatchLabels, Counter>,
    api_requests: Family<RequestLabels, Counter>,
    effects: Family<EffectLabels, Counter>,
    retries: Family<ControllerLabels, Counter>,
    statuses_refused: Family<ControllerLabels, Counter>,
    questions: Family<QuestionLabels, Counter>,
    barrier_waits: Family<ControllerLabels, Counter>,
    barrier_timeouts: Family<ControllerLabels, Counter>,
    events: Family<EventLabels, Counter>,
    leader: Gauge,
    leader_changes: Family<RoleLabels, Counter>,
    lease_renewals: Family<RenewalLabels, Counter>,
    writes_stopped: Family<WriteStopLabels, Counter>,
    canary_objects: Family<CanaryLabels, Gauge>,
    runs_finished: Family<RunLabels, Counter>,
    job_missing: Family<JobLabels, Counter>,
    jobs_uncaptured: Gauge,
    run_deletions: Family<DeletionLabels, Counter>,
    run_deletions_waiting: Gauge,
    retention: Family<KeptLabels, Gauge>,
    archived: Family<ArchiveLabels, Counter>,
    archive_waiting: Gauge,
    transitions_lost: Counter,
    archive_down: Gauge,
    log_tails: Family<LogTailLabels, Counter>,
    runs_waiting: Family<GateLabels, Gauge>,
    runs_admitted: Counter,
    run_wait: Histogram,
    active_runs: Gauge,
    rate_limited: Family<ScopeLabels, Counter>,
    callbacks: Family<CallbackLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            // From a millisecond, which is a pass without a request, to the sixteen seconds of one that timed out.
            reconcile_duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            queue_depth: Family::default(),
            watch_events: Family::default(),
            api_requests: Family::default(),
            effects: Family::default(),
            retries: Family::default(),
            statuses_refused: Family::default(),
            questions: Family::default(),
            barrier_waits: Family::default(),
            barrier_timeouts: Family::default(),
            events: Family::default(),
            leader: Gauge::default(),
            leader_changes: Family::default(),
            lease_renewals: Family::default(),
            writes_stopped: Family::default(),
            canary_objects: Family::default(),
            runs_finished: Family::default(),
            job_missing: Family::default(),
            jobs_uncaptured: Gauge::default(),
            run_deletions: Family::default(),
            run_deletions_waiting: Gauge::default(),
            retention: Family::default(),
            archived: Family::default(),
            archive_waiting: Gauge::default(),
            transitions_lost: Counter::default(),
            archive_down: Gauge::default(),
            log_tails: Family::default(),
            runs_waiting: Family::default(),
            runs_admitted: Counter::default(),
            // From a tenth of a second to the nine hours that a full queue can take.
            run_wait: Histogram::new(exponential_buckets(0.1, 2.5, 14)),
            active_runs: Gauge::default(),
            rate_limited: Family::default(),
            callbacks: Family::default(),
        }
    }
}

impl Metrics {
    /// Makes the counters and puts them into a registry, which adds `_total` to the names of those that only grow.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix(PREFIX);
        metrics.register_pipeline(registry);
        metrics.register_leadership(registry);
        metrics.register_results(registry);
        metrics.register_retention(registry);
        metrics.register_queue(registry);
        metrics
    }

    /// What is observed, planned and done.
    fn register_pipeline(&self, registry: &mut Registry) {
        registry.register("reconciles", "Passes over one object", self.reconciles.clone());
        registry.register_with_unit(
            "reconcile_duration",
            "How long a pass over one object took",
            Unit::Seconds,
            self.reconcile_duration.clone(),
        );
        registry.register(
            "queue_depth",
            "Objects that wait for a pass",
            self.queue_depth.clone(),
        );
        registry.register(
            "watch_events",
            "What the watches delivered",
            self.watch_events.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server, watches apart",
            self.api_requests.clone(),
        );
        registry.register("effects", "Effects carried out", self.effects.clone());
        registry.register(
            "retries",
            "Passes that were put off after an error",
            self.retries.clone(),
        );
        registry.register(
            "statuses_refused",
            "Statuses that the API server refused for good",
            self.statuses_refused.clone(),
        );
        registry.register(
            "questions",
            "Live reads, made where a cache proves nothing",
            self.questions.clone(),
        );
        registry.register(
            "barrier_waits",
            "Passes that waited until a cache showed our own write",
            self.barrier_waits.clone(),
        );
        registry.register(
            "barrier_timeouts",
            "Waits for our own write that a live read had to end",
            self.barrier_timeouts.clone(),
        );
    }

    /// Who writes.
    fn register_leadership(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this process leads", self.leader.clone());
        registry.register(
            "leader_changes",
            "How often this process began or ceased to lead",
            self.leader_changes.clone(),
        );
        registry.register(
            "lease_renewals",
            "Attempts to renew the lease",
            self.lease_renewals.clone(),
        );
        registry.register(
            "writes_stopped",
            "Writes not sent, or cut off, so as not to outlast the lease",
            self.writes_stopped.clone(),
        );
        registry.register(
            "canary_objects",
            "What a canary that does not lead would do about the objects",
            self.canary_objects.clone(),
        );
    }

    /// What came out.
    fn register_results(&self, registry: &mut Registry) {
        registry.register("events", "Events told about objects", self.events.clone());
        registry.register("runs_finished", "Runs that ended", self.runs_finished.clone());
        registry.register(
            "job_missing",
            "Jobs that vanished before their end was recorded",
            self.job_missing.clone(),
        );
        registry.register(
            "callbacks",
            "Reports of endpoints that do the work of runs",
            self.callbacks.clone(),
        );
    }

    /// What is kept, and what goes.
    fn register_retention(&self, registry: &mut Registry) {
        registry.register(
            "jobs_uncaptured",
            "Finished Jobs that are held, because their end is not recorded in their run yet or was a moment ago",
            self.jobs_uncaptured.clone(),
        );
        registry.register(
            "run_deletions",
            "Deletions of runs whose time had come: begun, or put off because there were too many at once",
            self.run_deletions.clone(),
        );
        registry.register(
            "run_deletions_waiting",
            "Runs whose time has come and that wait for their turn to be deleted",
            self.run_deletions_waiting.clone(),
        );
        registry.register_with_unit(
            "retention",
            "How long things are kept after their end unless a run says otherwise; 0 is for good",
            Unit::Seconds,
            self.retention.clone(),
        );
        registry.register(
            "runs_archived",
            "Finished runs that were to be written into history",
            self.archived.clone(),
        );
        registry.register(
            "runs_archive_waiting",
            "Finished runs that are not written into history yet, and are kept until they are",
            self.archive_waiting.clone(),
        );
        registry.register(
            "transitions_lost",
            "Changes of conditions of runs that history does not get, because there were too many to keep them until the run is written",
            self.transitions_lost.clone(),
        );
        registry.register(
            "runs_archive_down",
            "1 while writing into history fails",
            self.archive_down.clone(),
        );
        registry.register(
            "log_tails",
            "Ends of logs that were to be written into history",
            self.log_tails.clone(),
        );
    }

    /// Who may start.
    fn register_queue(&self, registry: &mut Registry) {
        registry.register(
            "agents_queue_depth",
            "Runs that wait for their turn, by the gate that they were told of",
            self.runs_waiting.clone(),
        );
        registry.register(
            "agents_active_concurrency",
            "Slots that are taken",
            self.active_runs.clone(),
        );
        registry.register(
            "agents_admitted",
            "How often a run was let in",
            self.runs_admitted.clone(),
        );
        registry.register_with_unit(
            "agents_queue_wait",
            "How long after its creation a run was let in",
            Unit::Seconds,
            self.run_wait.clone(),
        );
        registry.register(
            "agents_rate_limit_rejections",
            "How often a run had to wait because too many had started lately",
            self.rate_limited.clone(),
        );
    }

    /// So many wait at each gate, and so many slots are taken.
    pub fn queue(&self, waiting: &BTreeMap<Told, usize>, taken: u32) {
        for (told, count) in waiting {
            let labels = GateLabels {
                gate: QueueGate::from(*told),
            };
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.runs_waiting.get_or_create(&labels).set(count);
        }
        self.active_runs.set(taken.into());
    }

    /// A run was let in, that long after its creation.
    pub fn run_admitted(&self, waited: Duration) {
        self.runs_admitted.inc();
        self.run_wait.observe(waited.as_secs_f64());
    }

    /// A run has to wait because too many of this scope have started lately.
    pub fn rate_limited(&self, scope: &'static str) {
        self.rate_limited.get_or_create(&ScopeLabels { scope }).inc();
    }

    /// A pass over one object ended.
    pub fn reconciled(&self, controller: ObjectKind, result: ReconcileResult, took: Duration) {
        let labels = ControllerLabels {
            controller: controller.clone(),
        };
        self.reconcile_duration
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        self.reconciles
            .get_or_create(&ReconcileLabels { controller, result })
            .inc();
    }

    /// So many objects wait for a pass.
    pub fn queue_depth(&self, controller: ObjectKind, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.queue_depth
            .get_or_create(&ControllerLabels { controller })
            .set(depth);
    }

    /// A watch delivered something.
    pub fn watch_event(&self, kind: ObjectKind, event: WatchEvent) {
        self.watch_events
            .get_or_create(&WatchLabels { kind, event })
            .inc();
    }

    /// A request ended.
    pub fn request(&self, verb: Verb, kind: ObjectKind, result: RequestResult) {
        let labels = RequestLabels { verb, kind, result };
        self.api_requests.get_or_create(&labels).inc();
    }

    /// An effect was carried out, or was not.
    pub fn effect(&self, effect: &Effect, result: EffectResult) {
        let effect = EffectKind::from(effect);
        self.effects.get_or_create(&EffectLabels { effect, result }).inc();
    }

    /// A pass is put off after an error.
    pub fn retry(&self, controller: ObjectKind) {
        self.retries.get_or_create(&ControllerLabels { controller }).inc();
    }

    /// The API server refused a status, and would do so again.
    pub fn status_refused(&self, controller: ObjectKind) {
        self.statuses_refused
            .get_or_create(&ControllerLabels { controller })
            .inc();
    }

    /// A live read ended.
    pub fn question(&self, question: &Question, answer: Answer) {
        let question = QuestionKind::from(question);
        self.questions
            .get_or_create(&QuestionLabels { question, answer })
            .inc();
    }

    /// A pass waits until a cache shows our own write.
    pub fn barrier_wait(&self, controller: ObjectKind) {
        self.barrier_waits
            .get_or_create(&ControllerLabels { controller })
            .inc();
    }

    /// The cache did not show our own write in time.
    pub fn barrier_timeout(&self, controller: ObjectKind) {
        self.barrier_timeouts
            .get_or_create(&ControllerLabels { controller })
            .inc();
    }

    /// An Event was told, or was not.
    pub fn event(&self, result: EventResult) {
        self.events.get_or_create(&EventLabels { result }).inc();
    }

    /// This process began or ceased to lead.
    pub fn role(&self, to: Role) {
        self.leader.set(match to {
            Role::Leader => 1,
            Role::Follower => 0,
        });
        if to == Role::Follower {
            // Only who leads knows, and its successor counts anew.
            self.jobs_uncaptured.set(0);
            self.run_deletions_waiting.set(0);
            self.runs_waiting.clear();
            self.active_runs.set(0);
            self.archive_waiting.set(0);
            self.archive_down.set(0);
        }
        self.leader_changes.get_or_create(&RoleLabels { to }).inc();
    }

    /// An attempt to renew the lease ended.
    pub fn renewal(&self, result: RenewalResult) {
        self.lease_renewals.get_or_create(&RenewalLabels { result }).inc();
    }

    /// The gate did not let a write through to its end.
    pub fn write_stopped(&self, cause: WriteStop) {
        self.writes_stopped
            .get_or_create(&WriteStopLabels { cause })
            .inc();
    }

    /// A run of this kind ended.
    pub fn run_finished(&self, kind: ObjectKind, phase: &RunPhase, reason: &Reason) {
        let labels = RunLabels {
            kind,
            phase: Word::from(phase),
            reason: Word::from(reason),
        };
        self.runs_finished.get_or_create(&labels).inc();
    }

    /// So many finished Jobs wait for their result to be recorded.
    pub fn jobs_uncaptured(&self, jobs: usize) {
        self.jobs_uncaptured.set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// A run whose time has come is deleted now, or later; so many wait.
    pub fn run_deletion(&self, result: DeletionResult, waiting: u64) {
        self.run_deletions.get_or_create(&DeletionLabels { result }).inc();
        self.run_deletions_waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// How long things are kept.
    pub fn kept(&self, ladder: &Ladder) {
        for (what, kept) in [
            (Kept::Job, ladder.job),
            (Kept::Logs, Some(ladder.logs)),
            (Kept::Run, ladder.run),
        ] {
            let seconds = kept.unwrap_or_default().as_secs();
            self.retention
                .get_or_create(&KeptLabels { what })
                .set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }

    /// So many objects of a controller are like this to a canary.
    pub fn canary(&self, controller: &'static str, outcome: CanaryOutcome, count: usize) {
        self.canary_objects
            .get_or_create(&CanaryLabels { controller, outcome })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A finished run was to be written into history.
    pub fn archived(&self, result: ArchiveResult) {
        self.archived.get_or_create(&ArchiveLabels { result }).inc();
    }

    /// So many changes of conditions are not kept for history: there were too many.
    pub fn transitions_lost(&self, lost: usize) {
        self.transitions_lost
            .inc_by(u64::try_from(lost).unwrap_or(u64::MAX));
    }

    /// So many finished runs are not written into history yet.
    pub fn archive_waiting(&self, waiting: usize) {
        self.archive_waiting
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Whether writing into history fails.
    pub fn archive_down(&self, down: bool) {
        self.archive_down.set(i64::from(down));
    }

    /// The end of a log was to be written into history.
    pub fn log_tail(&self, result: LogTailResult) {
        self.log_tails.get_or_create(&LogTailLabels { result }).inc();
    }

    /// An endpoint reported.
    pub fn callback(&self, result: CallbackResult) {
        self.callbacks.get_or_create(&CallbackLabels { result }).inc();
    }

    /// A Job vanished; its run is in this phase now, for this reason.
    pub fn job_missing(&self, phase: &RunPhase, reason: &Reason) {
        let labels = JobLabels {
            phase: Word::from(phase),
            reason: Word::from(reason),
        };
        self.job_missing.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::agents::agent_run::AgentRun;
    use jangar_engine::{
        decision::{ObjectId, Uid},
        settings::Settings,
    };
    use k8s_openapi::api::batch::v1::Job;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn rendered(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    /// Counts each thing once.
    fn counted(metrics: &Metrics) {
        let run = ObjectKind::of::<AgentRun>;
        let effect = Effect::StopJob {
            job: ObjectId {
                name: "job".to_owned(),
                uid: Uid("uid".to_owned()),
            },
        };
        metrics.reconciled(run(), ReconcileResult::Settled, Duration::from_millis(3));
        metrics.queue_depth(run(), 7);
        metrics.watch_event(run(), WatchEvent::Applied);
        metrics.request(Verb::Create, ObjectKind::of::<Job>(), RequestResult::Done);
        metrics.effect(&effect, EffectResult::Already);
        metrics.retry(run());
        metrics.status_refused(run());
        metrics.question(&Question::Agent("smith".to_owned()), Answer::Absent);
        metrics.barrier_wait(run());
        metrics.barrier_timeout(run());
        metrics.event(EventResult::Published);
        metrics.role(Role::Leader);
        metrics.renewal(RenewalResult::Renewed);
        metrics.write_stopped(WriteStop::TimedOut);
        metrics.run_finished(run(), &RunPhase::Succeeded, &Reason::Completed);
        metrics.job_missing(&RunPhase::Failed, &Reason::JobMissing);
        metrics.jobs_uncaptured(2);
        metrics.run_deletion(DeletionResult::PutOff, 3);
        metrics.kept(&Ladder::of_settings(&Settings::default()));
        metrics.archived(ArchiveResult::GivenUp);
        metrics.archive_waiting(6);
        metrics.transitions_lost(2);
        metrics.archive_down(true);
        metrics.log_tail(LogTailResult::Missing);
        metrics.queue(&BTreeMap::from([(Told::Agent, 4)]), 5);
        metrics.run_admitted(Duration::from_secs(2));
        metrics.rate_limited("namespace");
        metrics.callback(CallbackResult::Recorded);
        metrics.canary("agent-run", CanaryOutcome::Differs, 6);
    }

    #[test]
    fn every_metric_has_its_public_name_help_and_labels() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);

        counted(&metrics);

        let text = rendered(&registry);
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains("_bucket{")).collect();
        // The series of one metric come in any order.
        let name = |line: &str| line.split('{').next().map(str::to_owned);
        for series in lines.chunk_by_mut(|one, other| name(one) == name(other)) {
            series.sort_unstable();
        }
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// The gauges of all processes are added up, so that what a former leader knew would count for ever.
    #[test]
    fn who_no_longer_leads_forgets_what_only_a_leader_knows() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        counted(&metrics);

        metrics.role(Role::Follower);

        let text = rendered(&registry);
        let of_leaders = [
            "jangar_leader ",
            "jangar_jobs_uncaptured ",
            "jangar_agents_active_concurrency ",
            "jangar_runs_archive_down ",
        ];
        for name in of_leaders {
            assert!(text.contains(&format!("\n{name}0\n")), "{name}\n{text}");
        }
        assert!(!text.contains("\njangar_agents_queue_depth{"), "{text}");
    }

    #[test]
    fn words_of_another_version_share_one_time_series() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);

        for word in ["Hibernating", "Dreaming"] {
            metrics.job_missing(&RunPhase::from(word), &Reason::from(word));
        }

        let text = rendered(&registry);
        let series = text
            .lines()
            .filter(|line| line.starts_with("jangar_job_missing_total"));
        assert_eq!(
            series.collect::<Vec<_>>(),
            ["jangar_job_missing_total{phase=\"Other\",reason=\"Other\"} 2"]
        );
    }
}
