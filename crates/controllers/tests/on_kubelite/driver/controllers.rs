//! The controllers with the engine's own plans.

use std::{
    io,
    sync::{Arc, Mutex},
};

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun, memory::Memory},
    condition::{CommonStatus, ConditionType},
};
use jangar_controllers::{Setup, State, start};
use jangar_engine::settings::Settings;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::PostParams};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::sleep;
use tracing_subscriber::fmt::MakeWriter;

use super::{
    life::controllers,
    stage::{Props, cluster_with_kinds, settings},
    tap::Tap,
};
use crate::support::{Cluster, NAMESPACE, OddClock, identity, seconds, settle};

/// What was sent, apart from the lease.
fn sent(tap: &Tap) -> Vec<String> {
    let requests = tap.requests().into_iter();
    requests.filter(|request| !request.contains("leases")).collect()
}

async fn readiness(cluster: &Cluster, agent: &str) -> (String, String) {
    let agents: Api<Agent> = Api::default_namespaced(cluster.client());
    let status: CommonStatus = agents.get(agent).await.unwrap().status.unwrap().common;
    let ready = status.condition(&ConditionType::Ready).unwrap();
    (ready.status.as_str().to_owned(), ready.reason.as_str().to_owned())
}

#[tokio::test(start_paused = true)]
async fn objects_applied_in_any_order_become_ready_and_the_run_gets_its_job() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let _controllers = controllers(&cluster, &tap, "one");
    settle().await;
    let props = Props { cluster: &cluster };

    props.run("a", "coder").await;
    props.agent("coder", "shell").await;
    sleep(seconds(5)).await;
    assert_eq!(
        readiness(&cluster, "coder").await,
        ("False".to_owned(), "MissingProvider".to_owned())
    );
    assert_eq!(props.job_names().await, [] as [&str; 0]);

    props.provider("shell").await;
    settle().await;

    assert_eq!(readiness(&cluster, "coder").await.0, "True");
    let run = props.runs().get("a").await.unwrap();
    assert_eq!(props.job_names().await.len(), 1, "{:?}", run.status);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_nothing_changes() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let _controllers = controllers(&cluster, &tap, "one");
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    props.run("ended", "coder").await;
    sleep(seconds(5)).await;
    props.end_run("ended").await;
    sleep(seconds(60)).await;
    tap.forget();

    sleep(seconds(3600)).await;

    assert_eq!(sent(&tap), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn switched_off_they_touch_nothing() {
    let cluster = cluster_with_kinds().await;
    let tap = Tap::new();
    let controllers = start(Setup {
        client: tap.client(&cluster.server),
        lease_client: tap.client(&cluster.server),
        settings: Arc::new(Settings {
            agents_enabled: false,
            ..settings()
        }),
        clock: OddClock::right(),
        identity: identity("one"),
        registry: &mut Registry::default(),
        outside: Arc::default(),
    });
    Props { cluster: &cluster }.run("a", "coder").await;

    sleep(seconds(300)).await;

    assert_eq!(*controllers.state().borrow(), State::Leading);
    assert_eq!(sent(&tap), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_run_for_which_nobody_names_a_memory_has_the_first_default_one() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    let memories: Api<Memory> = Api::default_namespaced(cluster.client());
    for (name, default) in [("zoo", true), ("notes", true), ("attic", false)] {
        let memory = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Memory", "metadata": { "name": name },
            "spec": {
                "type": "postgres", "default": default,
                "connection": { "secretRef": { "name": format!("secret-of-{name}") } },
            },
        });
        let memory: Memory = serde_json::from_value(memory).unwrap();
        memories.create(&PostParams::default(), &memory).await.unwrap();
    }
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;

    props.run("a", "coder").await;
    settle().await;

    let job = props.jobs().get("a-job").await.unwrap();
    let template = job.spec.unwrap().template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    let document: serde_json::Value =
        serde_json::from_str(&annotations["agents.proompteng.ai/run.json"]).unwrap();
    assert_eq!(
        document["memory"]["connectionRef"]["name"],
        json!("secret-of-notes")
    );
}

#[tokio::test(start_paused = true)]
async fn a_system_prompt_in_a_secret_is_looked_for_until_it_is_there() {
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;
    let run = json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "AgentRun", "metadata": { "name": "a" },
        "spec": {
            "agentRef": { "name": "coder" },
            "implementation": { "inline": { "text": "mend the roof" } },
            "runtime": { "type": "job" },
            "secrets": ["prompts"],
            "systemPromptRef": { "kind": "Secret", "name": "prompts", "key": "careful" },
        },
    });
    let run: AgentRun = serde_json::from_value(run).unwrap();
    props.runs().create(&PostParams::default(), &run).await.unwrap();
    sleep(seconds(10)).await;
    let status = props.runs().get("a").await.unwrap().status.unwrap();
    let blocked = status.common.condition(&ConditionType::Blocked).unwrap();
    assert_eq!(blocked.reason.as_str(), "MissingSystemPromptRef");

    let secret = json!({ "metadata": { "name": "prompts" }, "stringData": { "careful": "Be careful." } });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    sleep(seconds(6)).await;

    assert_eq!(props.job_names().await, ["a-job"]);
    let status = props.runs().get("a").await.unwrap().status.unwrap();
    // The SHA-256 of `Be careful.`
    assert_eq!(
        status.system_prompt_hash.as_deref(),
        Some("489fb53a49997003c69fb9dce959bf0e843ba893a51a658e95ad4bb1fee0abbd")
    );
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Phase, reason and whether there is a message, of each line about a run, and the log is empty afterwards.
    fn take_phases(&self, run: &str) -> Vec<(String, String, bool)> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let lines = String::from_utf8(bytes).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let text =
            |line: &serde_json::Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
        lines
            .filter(|line| line["level"] == "INFO" && line["run"] == run)
            .map(|line| {
                (
                    text(&line, "phase"),
                    text(&line, "reason"),
                    !text(&line, "message").is_empty(),
                )
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn each_phase_of_a_run_is_one_line_of_the_log_and_rest_is_silent() {
    let log = Log::default();
    // With one subscriber alone, tracing asks whichever thread comes by first whether a line is wanted, and remembers its
    // answer; the threads of other tests want none.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(log.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let cluster = cluster_with_kinds().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    let _controllers = controllers(&cluster, &Tap::new(), "one");
    settle().await;
    let run = format!("{NAMESPACE}/a");
    let told = |phase: &str, reason: &str| (phase.to_owned(), reason.to_owned(), true);

    props.run("a", "coder").await;
    settle().await;
    assert_eq!(log.take_phases(&run), [told("Pending", "MissingAgent")]);
    props.agent("coder", "shell").await;
    settle().await;
    assert_eq!(log.take_phases(&run), [told("Running", "Running")]);
    props.touch_run("a").await;
    props.touch_agent("coder").await;
    sleep(seconds(600)).await;
    assert_eq!(log.take_phases(&run), []);
}
