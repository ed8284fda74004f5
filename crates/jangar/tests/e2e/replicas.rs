//! Two processes, of which one leads. It is killed in the middle of its work, or frozen until the other one leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{self, Write as _},
    pin::pin,
    time::Duration,
};

use futures::StreamExt;
use jangar_api::{agents::agent_run::AgentRun, labels, phase::RunPhase};
use jangar_testkit::cluster::{Failure, Scene, until, until_list, until_true};
use k8s_openapi::api::{batch::v1::Job, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use crate::{
    fake_nodes::Nodes,
    replica::{LEASE, Replica, Settings, holder},
    rights,
    runs::status,
    stage::{Stage, beside_others},
};

/// How often the leader is killed, unless `JANGAR_SOAK` says otherwise.
const KILLS: usize = 10;
/// How many runs are at work at each kill, so that the leader has several things to do.
const RUNS_PER_KILL: usize = 3;

/// A moment in the life of a run at which the leader is killed: what the outside sees first.
const MOMENTS: [&str; 5] = [
    "a Job appears",
    "a pod appears",
    "a pod works",
    "a pod has ended",
    "a run says so",
];

/// As quick a lease as makes sense.
pub(crate) fn hasty(settings: Settings) -> Settings {
    settings
        .with("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "3")
        .with("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "2")
        .with("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "1")
}

/// Every object of a kind that there ever was while this watched: by UID, the run that it belongs to.
struct Census {
    seen: watch::Receiver<BTreeMap<String, String>>,
    task: JoinHandle<()>,
}

impl Drop for Census {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Census {
    fn of<K>(scene: &Scene) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let api = scene.api::<K>();
        let (sender, seen) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(async move {
            let config = watcher::Config::default().labels(labels::AGENT_RUN);
            let mut events = pin!(watcher(api, config).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) = event {
                    let run = object.labels().get(labels::AGENT_RUN).cloned();
                    sender.send_modify(|seen| {
                        seen.insert(object.uid().unwrap_or_default(), run.unwrap_or_default());
                    });
                }
            }
        });
        Self { seen, task }
    }

    /// How many there were of each run.
    fn count(&self) -> BTreeMap<String, usize> {
        let mut count = BTreeMap::new();
        for run in self.seen.borrow().values() {
            *count.entry(run.clone()).or_default() += 1;
        }
        count
    }
}

/// Waits until the lease changes hands, and says how long that took.
/// With "nobody" it is who holds it now.
pub(crate) async fn handed_over(stage: &Stage<'_>, from: &str) -> Result<(String, Duration), Failure> {
    let start = Instant::now();
    let what = format!("to be held by another one than {from}");
    let lease = until(&stage.scene.api::<Lease>(), LEASE, &what, |lease| {
        holder(lease).is_some_and(|holder| holder != from && !holder.is_empty())
    })
    .await?;
    Ok((holder(&lease).cloned().unwrap_or_default(), start.elapsed()))
}

/// Waits until one of the given runs is at this moment of its life.
async fn until_moment(stage: &Stage<'_>, moment: &str, runs: &BTreeSet<String>) -> Result<(), Failure> {
    let labels = format!(
        "{} in ({})",
        labels::AGENT_RUN,
        runs.iter().cloned().collect::<Vec<_>>().join(",")
    );
    let pods = stage.scene.api::<Pod>();
    let phases = |wanted: &'static [&'static str]| {
        move |pods: &[&Pod]| pods.iter().any(|pod| wanted.contains(&crate::runs::phase(pod)))
    };
    match moment {
        "a Job appears" => {
            until_list(&stage.scene.api::<Job>(), &labels, moment, |jobs| {
                !jobs.is_empty()
            })
            .await?;
        }
        "a pod appears" => {
            until_list(&pods, &labels, moment, |pods| !pods.is_empty()).await?;
        }
        "a pod works" => {
            until_list(&pods, &labels, moment, phases(&["Running", "Succeeded"])).await?;
        }
        "a pod has ended" => {
            until_list(&pods, &labels, moment, phases(&["Succeeded"])).await?;
        }
        _ => {
            until_list(&stage.scene.api::<AgentRun>(), "", moment, |all| {
                all.iter().any(|run| {
                    runs.contains(&run.name_any())
                        && run.status.as_ref().is_some_and(|status| status.phase.is_some())
                })
            })
            .await?;
        }
    }
    Ok(())
}

fn kills() -> Result<usize, Failure> {
    match env::var("JANGAR_SOAK") {
        Ok(count) => Ok(count.parse()?),
        Err(_) => Ok(KILLS),
    }
}

/// Not with a macro, whose words a test that passes keeps to itself.
fn tell(mut times: Vec<Duration>) -> Result<(), Failure> {
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let count = times.len();
    writeln!(
        io::stderr(),
        "hand-over after kill -9, lease 3/2/1 s, {count} times: median {median:.1?}, longest {longest:.1?}"
    )?;
    Ok(())
}

#[tokio::test]
async fn no_run_is_lost_or_doubled_when_the_leader_is_killed() -> Result<(), Failure> {
    beside_others("killed-leader", async |stage| {
        let mut nodes = Nodes::of(stage, "2s");
        nodes.add("zone-a").await?;
        let settings = hasty(nodes.settings(stage.settings()));
        let (jobs, pods) = (Census::of::<Job>(stage.scene), Census::of::<Pod>(stage.scene));
        stage.agent("worker", "true").await?;
        let mut replicas = BTreeMap::<String, Replica>::new();
        for name in ["a", "b"] {
            let replica = stage.start(name, rights::ACCOUNT, None, &settings).await?;
            replicas.insert(replica.identity.clone(), replica);
        }
        let mut times = Vec::new();
        let mut expected = BTreeMap::new();

        for number in 0..kills()? {
            let mut batch = BTreeSet::new();
            for each in 0..RUNS_PER_KILL {
                let name = format!("run-{number}-{each}");
                stage.run("worker", &name, &json!({})).await?;
                expected.insert(name.clone(), 1);
                batch.insert(name);
            }
            until_moment(stage, MOMENTS[number % MOMENTS.len()], &batch).await?;
            let (leader, _) = handed_over(stage, "nobody").await?;
            let victim = replicas
                .remove(&leader)
                .ok_or_else(|| format!("{leader} is not one of ours"))?;
            victim.kill().await?;
            times.push(handed_over(stage, &leader).await?.1);
            let replica = stage
                .start(["a", "b"][number % 2], rights::ACCOUNT, None, &settings)
                .await?;
            replicas.insert(replica.identity.clone(), replica);
        }

        for name in expected.keys() {
            let run = stage.reached(name, &RunPhase::Succeeded).await?;
            assert_eq!(
                status(&run)
                    .runtime_ref
                    .as_ref()
                    .and_then(|job| job.0.get("attempt")),
                Some(&json!(1))
            );
        }
        assert_eq!(jobs.count(), expected, "one Job for each run");
        assert_eq!(pods.count(), expected, "one pod for each run");
        tell(times)?;
        nodes.remove_all().await
    })
    .await
}

/// Each replica has an account of its own here, by which the audit log tells them apart.
#[tokio::test]
async fn what_a_frozen_leader_sends_after_its_lease_has_no_effect() -> Result<(), Failure> {
    beside_others("frozen-leader", async |stage| {
        let mut nodes = Nodes::of(stage, "1s");
        nodes.add("zone-a").await?;
        // Long enough that an API server with much to do does not take the lease from a leader that is well: what it writes then
        // would be taken for what a frozen one wrote.
        let settings = nodes
            .settings(stage.settings())
            .with("JANGAR_LEADER_ELECTION_LEASE_DURATION_SECONDS", "12")
            .with("JANGAR_LEADER_ELECTION_RENEW_DEADLINE_SECONDS", "8")
            .with("JANGAR_LEADER_ELECTION_RETRY_PERIOD_SECONDS", "2");
        for account in ["first", "second"] {
            rights::grant(stage.scene, account, &rights::role()?).await?;
        }
        let (jobs, pods) = (Census::of::<Job>(stage.scene), Census::of::<Pod>(stage.scene));
        stage.agent("worker", "true").await?;
        let mut first = stage.start("first", "first", None, &settings).await?;
        first.until_leading(stage.scene).await?;
        let second = stage.start("second", "second", None, &settings).await?;

        // It is frozen with its hands full: Jobs to create, statuses to write.
        let mut expected = BTreeMap::new();
        for number in 0..20 {
            let name = format!("run-{number}");
            stage.run("worker", &name, &json!({})).await?;
            expected.insert(name, 1);
        }
        until_list(
            &stage.scene.api::<Job>(),
            labels::AGENT_RUN,
            "to be some",
            |jobs| !jobs.is_empty(),
        )
        .await?;
        first.freeze()?;
        second.until_leading(stage.scene).await?;
        for name in expected.keys() {
            stage.reached(name, &RunPhase::Succeeded).await?;
        }
        // It is thawed to new work, which the second one has in hand: both see something to write.
        let late: Vec<_> = (0..10).map(|number| format!("late-{number}")).collect();
        for name in &late {
            stage.run("worker", name, &json!({})).await?;
            expected.insert(name.clone(), 1);
        }
        first.thaw()?;

        // It has understood when it has looked at the Lease, and does not take it.
        until_true("the thawed leader to notice that it leads no more", async || {
            Ok::<_, Failure>(first.log()?.contains("no longer leading"))
        })
        .await?;
        assert!(first.is_alive()?, "it waits for its turn");
        for name in &late {
            stage.reached(name, &RunPhase::Succeeded).await?;
        }
        // The second one ends and hands over in order: the first one works again.
        assert!(second.stop().await?.success());
        stage.run("worker", "after", &json!({})).await?;
        expected.insert("after".to_owned(), 1);
        stage.reached("after", &RunPhase::Succeeded).await?;

        assert_eq!(jobs.count(), expected, "one Job for each run");
        assert_eq!(pods.count(), expected, "one pod for each run");
        between_leases(stage).await?;
        nodes.remove_all().await
    })
    .await
}

/// From when the second one took the Lease until it gave it back, the first one wrote nothing that was accepted.
async fn between_leases(stage: &Stage<'_>) -> Result<(), Failure> {
    let bench = stage.scene.bench();
    let of = async |account: &str| {
        let user = rights::user(stage.scene, account).name();
        bench.audit(&stage.scene.admin(), &user).await
    };
    let (first, second) = (of("first").await?, of("second").await?);
    let mut taken = second
        .iter()
        .filter(|request| request.resource() == "leases" && request.is_write() && request.succeeded());
    let begin = taken
        .next()
        .ok_or("the second one never took the Lease")?
        .received;
    let end = taken
        .next_back()
        .ok_or("the second one never gave the Lease back")?
        .received;
    // An Event has no version by which the API server could refuse one that was on its way when the process was frozen. It
    // tells what had been done before.
    let effective: Vec<_> = first
        .iter()
        .filter(|request| request.resource() != "events")
        .filter(|request| {
            request.is_write() && request.succeeded() && (begin..end).contains(&request.received)
        })
        .collect();
    assert!(effective.is_empty(), "{effective:#?}");
    // A frozen process asks for nothing, so the first question since then is that of a thawed one.
    let thawed = first.iter().map(|request| request.received);
    let thawed = thawed
        .filter(|received| (begin..end).contains(received))
        .min()
        .ok_or("the first one asked for nothing after it was thawed")?;
    assert!(
        second.iter().any(|request| {
            let effective = request.is_write() && request.succeeded();
            effective && request.resource() == "agentruns/status" && request.received > thawed
        }),
        "there was something left to write when the first one was thawed"
    );
    assert!(
        first
            .iter()
            .any(|request| request.is_write() && request.succeeded() && request.received < begin),
        "it had begun to work"
    );
    Ok(())
}
