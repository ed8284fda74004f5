//! A canary that does not lead: what it says it would do, and that it does nothing.

use std::sync::Arc;

use jangar_api::agents::agent::Agent;
use jangar_controllers::{Controllers, Setup, State, start};
use jangar_engine::settings::{LeaseSettings, Settings};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::time::sleep;

use super::{
    illegible::loosen_agents,
    life::controllers,
    stage::{Props, cluster_with_kinds, settings},
    tap::{Answer, Tap},
};
use crate::support::{Cluster, OddClock, identity, seconds, settle};

/// A canary, what it counts, and every request that it made.
struct Canary {
    controllers: Controllers,
    registry: Registry,
    tap: Tap,
    file: NamedTempFile,
}

impl Canary {
    fn start(cluster: &Cluster) -> Self {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "canary").unwrap();
        let settings = Settings {
            lease: LeaseSettings {
                role_file: Some(file.path().to_str().unwrap().to_owned()),
                ..LeaseSettings::default()
            },
            ..settings()
        };
        let (mut registry, tap) = (Registry::default(), Tap::new());
        let controllers = start(Setup {
            client: tap.client(&cluster.server),
            lease_client: tap.client(&cluster.server),
            settings: Arc::new(settings),
            clock: OddClock::right(),
            identity: identity("canary"),
            registry: &mut registry,
            outside: Arc::default(),
        });
        Self {
            controllers,
            registry,
            tap,
            file,
        }
    }

    fn state(&self) -> State {
        self.controllers.state().borrow().clone()
    }

    /// How many objects of a controller it says this of.
    fn says(&self, controller: &str, outcome: &str) -> u32 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let series = format!("jangar_canary_objects{{controller=\"{controller}\",outcome=\"{outcome}\"}} ");
        let number = text.lines().find_map(|line| line.strip_prefix(&series));
        number.expect("it is not counted").parse().unwrap()
    }

    /// What it asked of the API server that is no reading.
    fn writes(&self) -> Vec<String> {
        let requests = self.tap.requests().into_iter();
        requests.filter(|request| !request.starts_with("GET ")).collect()
    }
}

fn agreed() -> State {
    State::Canary {
        unplannable: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_canary_of_the_same_version_agrees_with_the_leader() {
    let cluster = cluster_with_kinds().await;
    let _leader = controllers(&cluster, &Tap::new(), "leader");
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    props.run("a", "coder").await;
    settle().await;

    let canary = Canary::start(&cluster);
    sleep(seconds(60)).await;

    assert_eq!(canary.state(), agreed());
    for controller in ["agent-provider", "agent", "agent-run"] {
        assert_eq!(canary.says(controller, "same"), 1, "{controller}");
        assert_eq!(canary.says(controller, "differs"), 0, "{controller}");
    }
    assert_eq!(canary.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_canary_is_nothing_before_it_has_looked_at_everything_also_if_its_role_cannot_be_read() {
    let cluster = cluster_with_kinds().await;
    let mut idle = cluster.elector("idle");
    let _leadership = idle.lead().await;
    for readable in [true, false] {
        let canary = Canary::start(&cluster);
        if !readable {
            std::fs::remove_file(canary.file.path()).unwrap();
        }
        // The first one asks whether the kind is served, the next one fills the cache, slowly.
        let mut asked = 0;
        canary.tap.answer(move |what| {
            asked += u32::from(what.ends_with(" agents"));
            match what {
                "LIST agents" | "WATCH agents" if asked > 1 => Answer::Later(seconds(60)),
                _ => Answer::Server,
            }
        });
        sleep(seconds(30)).await;
        assert_eq!(canary.state(), State::Surveying, "{readable}");
        sleep(seconds(120)).await;
        assert_eq!(canary.state(), agreed(), "{readable}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_canary_tells_what_the_leader_leaves_undone_and_does_not_do_it() {
    let cluster = cluster_with_kinds().await;
    // It holds the lease, and that is all it does.
    let mut idle = cluster.elector("idle");
    let _leadership = idle.lead().await;
    let props = Props { cluster: &cluster };
    props.provider("shell").await;
    props.agent("coder", "shell").await;
    let run = props.run("a", "coder").await;

    let canary = Canary::start(&cluster);
    sleep(seconds(25)).await;
    assert_eq!(canary.says("agent", "recent"), 1);
    assert_eq!(canary.says("agent", "differs"), 0);
    sleep(seconds(25)).await;
    assert_eq!(canary.says("agent", "recent"), 0);
    assert_eq!(canary.says("agent", "differs"), 1);

    assert_eq!(canary.state(), agreed());
    assert_eq!(canary.writes(), Vec::<String>::new());
    assert_eq!(props.job_names().await, Vec::<String>::new());
    assert_eq!(props.runs().get("a").await.unwrap(), run);
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_cannot_plan_what_the_leader_has_accepted_says_so_until_it_is_stable() {
    let cluster = cluster_with_kinds().await;
    loosen_agents(&cluster).await;
    let mut idle = cluster.elector("idle");
    let _leadership = idle.lead().await;
    let kind = ApiResource::erase::<Agent>(&());
    let agents: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    for name in ["accepted", "new"] {
        let agent = json!({
            "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "Agent", "metadata": { "name": name },
            "spec": { "providerRef": { "name": "shell" }, "env": "many" },
        });
        let agent: DynamicObject = serde_json::from_value(agent).unwrap();
        agents.create(&PostParams::default(), &agent).await.unwrap();
    }
    let observed = Patch::Merge(json!({ "status": { "observedGeneration": 1 } }));
    let params = PatchParams::default();
    agents.patch_status("accepted", &params, &observed).await.unwrap();

    let canary = Canary::start(&cluster);
    sleep(seconds(15)).await;

    let State::Canary { unplannable } = canary.state() else {
        panic!("{:?}", canary.state());
    };
    assert_eq!(unplannable.len(), 1, "{unplannable:?}");
    assert!(
        unplannable[0].contains("/accepted: ") && unplannable[0].contains("spec.env"),
        "{unplannable:?}"
    );
    assert_eq!(canary.says("agent", "unplannable"), 2);

    std::fs::write(canary.file.path(), "stable").unwrap();
    sleep(seconds(15)).await;
    assert_eq!(canary.state(), State::Standby);
    assert_eq!(canary.says("agent", "unplannable"), 0);
}
