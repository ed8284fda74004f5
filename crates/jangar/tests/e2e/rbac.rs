//! The Role of `tests/cluster/role.yaml` is enough for the whole life of runs, and no more than that.

use std::collections::BTreeSet;

use jangar_api::{
    agents::{
        agent_run::AgentRun, implementation_spec::ImplementationSpec,
        version_control_provider::VersionControlProvider,
    },
    approvals::ApprovalPolicy,
    condition::ConditionType,
    orchestration::{Orchestration, orchestration_run::OrchestrationRun},
    phase::{RunPhase, StepPhase},
    reason::Reason,
    signals::{Signal, SignalDelivery},
    tools::{Tool, ToolRun},
};
use jangar_testkit::cluster::{Failure, Request, until, until_gone, until_list, until_true};
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod, Secret},
    events::v1::Event,
    rbac::v1::{PolicyRule, Role},
};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    replica::{LEASE, Settings, holder},
    rights,
    stage::{BUSYBOX, Stage, beside_others, object},
};

/// Rights that the requests of an ordinary life do not show, and why they are needed all the same.
const UNSEEN: [(&str, &str, &str); 9] = [
    // The API server asks for these itself when a Job names its run, or the run of a step its parent, as an owner that waits for it.
    // The test below takes the first one away.
    ("update", "agents.proompteng.ai", "agentruns/finalizers"),
    ("update", "tools.proompteng.ai", "toolruns/finalizers"),
    (
        "update",
        "orchestration.proompteng.ai",
        "orchestrationruns/finalizers",
    ),
    ("update", "batch", "jobs/finalizers"),
    // After a DELETE that found another pod of the same name, which the names of Jobs' pods leave to chance.
    ("get", "", "pods"),
    // Where a watch is so late that it does not show what was written some time ago.
    ("get", "signals.proompteng.ai", "signaldeliveries"),
    // Tokens of GitHub Apps, for runs that work on a repository; no forge is part of the bench.
    ("create", "", "secrets"),
    ("patch", "", "secrets"),
    ("delete", "", "secrets"),
];

/// Every right of a Role, one by one: verb, group, resource.
pub(crate) fn rights_of(role: &Role) -> BTreeSet<(String, String, String)> {
    let each = |rule: &PolicyRule| {
        let resources = rule.resources.clone().unwrap_or_default();
        let groups = rule.api_groups.clone().unwrap_or_default();
        let verbs = rule.verbs.clone();
        let mut rights = Vec::new();
        for verb in &verbs {
            for group in &groups {
                for resource in &resources {
                    rights.push((verb.clone(), group.clone(), resource.clone()));
                }
            }
        }
        rights
    };
    role.rules.iter().flatten().flat_map(each).collect()
}

pub(crate) fn right_of(request: &Request) -> (String, String, String) {
    (
        request.verb.clone(),
        request.object_ref.api_group.clone(),
        request.resource(),
    )
}

#[tokio::test]
async fn the_role_is_enough_for_the_whole_life_of_runs_and_every_right_is_used() -> Result<(), Failure> {
    beside_others("role", async |stage| {
        // What the pods of agents are given, and what is therefore looked for.
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "auth"}, "stringData": {"auth.json": "{}"},
        }))?;
        stage
            .scene
            .api::<Secret>()
            .create(&PostParams::default(), &secret)
            .await?;
        let settings = stage
            .on_the_real_node()?
            .with("JANGAR_AGENTS_CONTROLLER_AUTH_SECRET_NAME", "auth");
        with_history(stage, &settings).await?;
        let controllers = stage.lead("one", &settings).await?;
        succeeds_and_is_forgotten(stage).await?;
        cancelled(stage).await?;
        robbed(stage).await?;
        missing(stage).await?;
        deleted(stage).await?;
        refers_to_what_is_missing(stage).await?;
        with_large_files(stage).await?;
        runs_of_tools(stage).await?;
        steps_of_every_kind(stage).await?;
        steps_that_lack_something(stage).await?;
        deleted_while_a_step_works(stage).await?;
        let lease = stage.scene.api::<Lease>();
        until(&lease, LEASE, "to be held", |lease| holder(lease).is_some()).await?;
        let events = stage.scene.api::<Event>();
        until_list(&events, "", "to tell of a cancel", |events| {
            events
                .iter()
                .any(|event| event.reason.as_deref() == Some("Cancelled"))
        })
        .await?;
        assert!(controllers.stop().await?.success());
        with_own_jobs(stage, &settings).await?;

        let user = rights::user(stage.scene, rights::ACCOUNT).name();
        let requests = stage.scene.bench().audit(&stage.scene.admin(), &user).await?;
        let outside: Vec<_> = requests
            .iter()
            .filter(|request| request.object_ref.namespace != stage.namespace())
            .map(|request| &request.uri)
            .collect();
        assert!(
            outside.is_empty(),
            "it looked outside of its namespace: {outside:#?}"
        );
        let refused: Vec<_> = requests
            .iter()
            .filter(|request| matches!(request.response_status.code, 401 | 403))
            .map(|request| (&request.verb, &request.uri))
            .collect();
        assert!(refused.is_empty(), "the Role lacks something: {refused:#?}");

        let used: BTreeSet<_> = requests.iter().map(right_of).collect();
        let unseen =
            UNSEEN.map(|(verb, group, resource)| (verb.to_owned(), group.to_owned(), resource.to_owned()));
        let unused: Vec<_> = rights_of(&rights::role()?)
            .into_iter()
            .filter(|right| !used.contains(right) && !unseen.contains(right))
            .collect();
        assert!(unused.is_empty(), "nothing needs these rights: {unused:#?}");
        Ok(())
    })
    .await
}

/// Waits until the controllers have used all of these rights.
async fn until_used(stage: &Stage<'_>, rights: &[(&str, &str, &str)]) -> Result<(), Failure> {
    let user = rights::user(stage.scene, rights::ACCOUNT).name();
    let admin = stage.scene.admin();
    let what = format!("these rights to be used: {rights:?}");
    until_true(&what, async || {
        let requests = stage.scene.bench().audit(&admin, &user).await?;
        let used: BTreeSet<_> = requests.iter().map(right_of).collect();
        let is_used = |(verb, group, resource): &(&str, &str, &str)| {
            used.contains(&((*verb).to_owned(), (*group).to_owned(), (*resource).to_owned()))
        };
        Ok::<_, Failure>(rights.iter().all(is_used))
    })
    .await
}

/// Controllers that have a database keep the ends of logs. They do nothing else here, so that no run waits for a history that is gone
/// at the end.
async fn with_history(stage: &Stage<'_>, settings: &Settings) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let address = format!("sqlite://{}", directory.path().join("history.db").display());
    let settings = settings.clone().with("DATABASE_URL", &address);
    let controllers = stage.lead("archivists", &settings).await?;
    stage.script("logged", "echo something").await?;
    stage.reached("logged", &RunPhase::Succeeded).await?;
    until_used(stage, &[("get", "", "pods/log"), ("get", "", "secrets")]).await?;
    assert!(controllers.stop().await?.success());
    Ok(())
}

/// Jobs that Kubernetes leaves to us: their pods are made, told of and let go.
async fn with_own_jobs(stage: &Stage<'_>, settings: &Settings) -> Result<(), Failure> {
    let settings = settings
        .clone()
        .with("JANGAR_AGENT_RUNNER_JOB_CONTROLLER", "jangar");
    let controllers = stage.lead("own", &settings).await?;
    stage.script("own", "true").await?;
    stage.reached("own", &RunPhase::Succeeded).await?;
    until(&stage.scene.api::<Job>(), "own-job", "to be let go", |job| {
        job.finalizers().is_empty()
    })
    .await?;
    assert!(controllers.stop().await?.success());
    Ok(())
}

/// A run from its ImplementationSpec to its own deletion.
async fn succeeds_and_is_forgotten(stage: &Stage<'_>) -> Result<(), Failure> {
    let spec = object("ImplementationSpec", "work", &json!({"text": "Do it."}));
    let spec: ImplementationSpec = serde_json::from_value(spec)?;
    stage
        .scene
        .api::<ImplementationSpec>()
        .create(&PostParams::default(), &spec)
        .await?;
    stage.agent("forgotten", "true").await?;
    let changes = json!({
        "implementation": null, "implementationSpecRef": {"name": "work"}, "ttlSecondsAfterFinished": 1,
    });
    stage.run("forgotten", "forgotten", &changes).await?;
    until_gone(&stage.scene.api::<AgentRun>(), "forgotten").await?;
    Ok(())
}

async fn cancelled(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.script("cancelled", "sleep 3600").await?;
    stage.working("cancelled", 1).await?;
    stage.cancel("cancelled").await?;
    stage.reached("cancelled", &RunPhase::Cancelled).await?;
    Ok(())
}

/// A Job that is deleted without its pods: they are for us to delete.
async fn robbed(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.script("robbed", "sleep 3600").await?;
    stage.working("robbed", 1).await?;
    stage
        .scene
        .api::<Job>()
        .delete("robbed-job", &DeleteParams::default())
        .await?;
    stage.reached("robbed", &RunPhase::Failed).await?;
    until_list(
        &stage.scene.api::<Pod>(),
        "job-name=robbed-job",
        "to be gone",
        |pods| pods.is_empty(),
    )
    .await?;
    Ok(())
}

/// A Job that vanishes although our finalizer should have held it. That it is gone is read live.
async fn missing(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.script("missing", "sleep 3600").await?;
    stage.working("missing", 1).await?;
    stage.reached("missing", &RunPhase::Running).await?;
    let jobs = stage.scene.api::<Job>();
    let unheld = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    jobs.patch("missing-job", &PatchParams::default(), &unheld)
        .await?;
    jobs.delete("missing-job", &DeleteParams::background()).await?;
    stage.reached("missing", &RunPhase::Failed).await?;
    let failed = stage.told("missing", &ConditionType::Failed).await?;
    assert_eq!(failed.reason, Reason::JobMissing, "{}", failed.message);
    // The run fails with the words of its pod where that could still say them; how the Job went is told beside it.
    let warning = stage.told("missing", &ConditionType::Warning).await?;
    for evidence in ["nothing held it", "it was last seen as version"] {
        assert!(
            warning.message.contains(evidence),
            "{evidence}: {}",
            warning.message
        );
    }
    Ok(())
}

/// A run that is deleted while it works: its Job is held, and let go when the run is known to be gone and the pod is.
async fn deleted(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.script("deleted", "sleep 3600").await?;
    stage.working("deleted", 1).await?;
    let runs = stage.scene.api::<AgentRun>();
    runs.delete("deleted", &DeleteParams::background()).await?;
    until_gone(&stage.scene.api::<Job>(), "deleted-job").await?;
    let pods = stage
        .scene
        .api::<Pod>()
        .list(&ListParams::default().labels("job-name=deleted-job"))
        .await?;
    assert!(
        pods.items.is_empty(),
        "the Job was let go before its pod was gone"
    );
    Ok(())
}

/// That something is missing is concluded from a read of that very object.
async fn refers_to_what_is_missing(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.agent("here", "true").await?;
    let forge = object("VersionControlProvider", "forge", &json!({"provider": "github"}));
    let forge: VersionControlProvider = serde_json::from_value(forge)?;
    let forges = stage.scene.api::<VersionControlProvider>();
    forges.create(&PostParams::default(), &forge).await?;
    until(&forges, "forge", "to be looked at", |forge| {
        forge.status.is_some()
    })
    .await?;
    let provider = object("Agent", "half", &json!({"providerRef": {"name": "nowhere"}}));
    let half: jangar_api::agents::agent::Agent = serde_json::from_value(provider)?;
    stage.scene.api().create(&PostParams::default(), &half).await?;
    for (name, agent, changes, reason) in [
        ("no-agent", "nowhere", json!({}), Reason::MissingAgent),
        ("no-provider", "half", json!({}), Reason::MissingProvider),
        (
            "no-work",
            "here",
            json!({"implementation": null, "implementationSpecRef": {"name": "nowhere"}}),
            Reason::MissingImplementation,
        ),
        (
            "no-memory",
            "here",
            json!({"memoryRef": {"name": "nowhere"}}),
            Reason::MissingMemory,
        ),
        (
            "no-forge",
            "here",
            json!({"vcsRef": {"name": "nowhere"}}),
            Reason::MissingVcsProvider,
        ),
    ] {
        stage.run(agent, name, &changes).await?;
        stage.blocked(name, &reason).await?;
    }
    Ok(())
}

/// Files that need a ConfigMap, whose name another one has: it is read, and left alone until it goes.
async fn with_large_files(stage: &Stage<'_>) -> Result<(), Failure> {
    let maps = stage.scene.api::<ConfigMap>();
    let other: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "large-spec"}}))?;
    maps.create(&PostParams::default(), &other).await?;
    stage.agent("large", "true").await?;
    let text = "word ".repeat(25_000);
    stage
        .run(
            "large",
            "large",
            &json!({"implementation": {"inline": {"text": text}}}),
        )
        .await?;
    let user = rights::user(stage.scene, rights::ACCOUNT).name();
    let read = |requests: &[Request]| {
        let mut requests = requests.iter();
        requests.any(|request| request.verb == "get" && request.resource() == "configmaps")
    };
    let admin = stage.scene.admin();
    until_true("the other ConfigMap to be read", async || {
        let requests = stage.scene.bench().audit(&admin, &user).await?;
        Ok::<_, Failure>(read(&requests))
    })
    .await?;
    maps.delete("large-spec", &DeleteParams::default()).await?;
    stage.reached("large", &RunPhase::Succeeded).await?;
    let files = maps.get("large-spec").await?;
    assert!(
        files
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "AgentRun")
    );
    Ok(())
}

/// A ToolRun that succeeds, one that is forgotten after that, one whose Tool is missing and that is cancelled, and one that is deleted while it
/// works.
async fn runs_of_tools(stage: &Stage<'_>) -> Result<(), Failure> {
    let object = |kind: &str, name: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "tools.proompteng.ai/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        })
    };
    let script = "[ {{ parameters.sleep }} = 0 ] || sleep {{ parameters.sleep }}";
    let tool = json!({"image": BUSYBOX, "command": ["sh", "-c", script]});
    let tool: Tool = serde_json::from_value(object("Tool", "sleeper", tool))?;
    let tools = stage.scene.api::<Tool>();
    tools.create(&PostParams::default(), &tool).await?;
    let runs = stage.scene.api::<ToolRun>();
    for (name, tool, sleep, kept) in [
        ("tool-done", "sleeper", "0", 0),
        ("tool-forgotten", "sleeper", "0", 1),
        ("tool-nowhere", "nowhere", "0", 0),
        ("tool-deleted", "sleeper", "3600", 0),
    ] {
        let spec = json!({
            "toolRef": {"name": tool}, "parameters": {"sleep": sleep}, "ttlSecondsAfterFinished": kept,
        });
        let run: ToolRun = serde_json::from_value(object("ToolRun", name, spec))?;
        runs.create(&PostParams::default(), &run).await?;
    }
    let phase = |run: &ToolRun| run.status.as_ref().and_then(|status| status.phase.clone());
    until(&runs, "tool-done", "to succeed", |run| {
        phase(run) == Some(RunPhase::Succeeded)
    })
    .await?;
    until_gone(&runs, "tool-forgotten").await?;
    until(&runs, "tool-nowhere", "to wait for its Tool", |run| {
        let status = run.status.as_ref();
        let blocked = status.and_then(|status| status.common.condition(&ConditionType::Blocked));
        blocked.is_some_and(|blocked| blocked.reason == Reason::MissingTool)
    })
    .await?;
    // Its first status said that it waits; this one is told beside it.
    let cancel = Patch::Merge(json!({"spec": {"cancel": true}}));
    runs.patch("tool-nowhere", &PatchParams::default(), &cancel)
        .await?;
    until(&runs, "tool-nowhere", "to be cancelled", |run| {
        phase(run) == Some(RunPhase::Cancelled)
    })
    .await?;
    until(&runs, "tool-deleted", "to run", |run| {
        phase(run) == Some(RunPhase::Running)
    })
    .await?;
    runs.delete("tool-deleted", &DeleteParams::background()).await?;
    until_gone(&stage.scene.api::<Job>(), "tool-deleted-job").await?;
    Ok(())
}

/// An object of any group but that of agents.
async fn create<K>(stage: &Stage<'_>, group: &str, kind: &str, name: &str, spec: Value) -> Result<(), Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(json!({
        "apiVersion": format!("{group}.proompteng.ai/v1alpha1"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))?;
    stage
        .scene
        .api::<K>()
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

/// An Orchestration with these steps, and a run of it under the same name with these further fields.
async fn begin(stage: &Stage<'_>, name: &str, steps: Value, more: Value) -> Result<(), Failure> {
    create::<Orchestration>(
        stage,
        "orchestration",
        "Orchestration",
        name,
        json!({"steps": steps}),
    )
    .await?;
    let mut spec = more;
    spec["orchestrationRef"] = json!({"name": name});
    create::<OrchestrationRun>(stage, "orchestration", "OrchestrationRun", name, spec).await
}

/// A run that makes runs of every kind, waits for a decision and for a signal, lets its children go, and is forgotten with them.
async fn steps_of_every_kind(stage: &Stage<'_>) -> Result<(), Failure> {
    let lenient = json!({"expiresAfterSeconds": 1, "defaultDecision": "approve"});
    create::<ApprovalPolicy>(stage, "approvals", "ApprovalPolicy", "lenient", lenient).await?;
    create::<Signal>(stage, "signals", "Signal", "go", json!({})).await?;
    let mark = json!({"steps": [{"name": "mark", "kind": "Checkpoint"}]});
    create::<Orchestration>(stage, "orchestration", "Orchestration", "inner", mark).await?;
    stage.agent("worker", "true").await?;
    let steps = json!([
        {"name": "agent", "kind": "AgentRun", "dependsOn": [], "agentRef": {"name": "worker"},
         "implementation": {"inline": {"text": "Do it."}}},
        {"name": "tool", "kind": "ToolRun", "dependsOn": [], "toolRef": {"name": "sleeper"}, "with": {"sleep": "0"}},
        {"name": "inner", "kind": "SubOrchestration", "dependsOn": [], "orchestrationRef": {"name": "inner"}},
        {"name": "gate", "kind": "ApprovalGate", "dependsOn": [], "policyRef": "lenient"},
        {"name": "signal", "kind": "SignalWait", "dependsOn": [], "signalRef": {"name": "go"}},
    ]);
    begin(stage, "every-kind", steps, json!({"ttlSecondsAfterFinished": 1})).await?;
    let runs = stage.scene.api::<OrchestrationRun>();
    // A delivery counts for runs that are there before it.
    until(&runs, "every-kind", "to wait for its signal", |run| {
        let mut steps = run.status.iter().flat_map(|status| &status.step_statuses);
        steps.any(|step| step.name == "signal" && step.progress.phase == Some(StepPhase::Running))
    })
    .await?;
    let delivery = json!({"signalRef": {"name": "go"}});
    create::<SignalDelivery>(stage, "signals", "SignalDelivery", "go-1", delivery).await?;
    until_gone(&runs, "every-kind").await?;
    Ok(())
}

/// What is missing is looked for by its name.
async fn steps_that_lack_something(stage: &Stage<'_>) -> Result<(), Failure> {
    let nowhere = json!({"orchestrationRef": {"name": "nowhere"}});
    create::<OrchestrationRun>(
        stage,
        "orchestration",
        "OrchestrationRun",
        "no-definition",
        nowhere,
    )
    .await?;
    let gate = json!([{"name": "gate", "kind": "ApprovalGate", "policyRef": "nowhere"}]);
    begin(stage, "no-policy", gate, json!({})).await?;
    let delivery = json!({"signalRef": {"name": "nowhere"}});
    create::<SignalDelivery>(stage, "signals", "SignalDelivery", "no-signal", delivery).await?;
    until_used(
        stage,
        &[
            ("get", "orchestration.proompteng.ai", "orchestrations"),
            ("get", "approvals.proompteng.ai", "approvalpolicies"),
            ("get", "signals.proompteng.ai", "signals"),
        ],
    )
    .await
}

/// Its step is held until it has stopped. That the run itself is gone is read live.
async fn deleted_while_a_step_works(stage: &Stage<'_>) -> Result<(), Failure> {
    stage.agent("endless", "sleep 3600").await?;
    let steps = json!([
        {"name": "work", "kind": "AgentRun", "agentRef": {"name": "endless"}, "implementation": {"inline": {"text": "Do it."}}},
    ]);
    begin(stage, "taken", steps, json!({})).await?;
    stage.working("taken-work-1", 1).await?;
    let runs = stage.scene.api::<OrchestrationRun>();
    runs.delete("taken", &DeleteParams::background()).await?;
    until_gone(&runs, "taken").await?;
    until_gone(&stage.scene.api::<AgentRun>(), "taken-work-1").await?;
    until_used(
        stage,
        &[("get", "orchestration.proompteng.ai", "orchestrationruns")],
    )
    .await
}

/// Where the API server enforces who may hold up the deletion of whom, a Role without that right is told in the run.
#[tokio::test]
async fn without_the_right_to_hold_up_its_run_no_job_is_made_and_the_run_says_why() -> Result<(), Failure> {
    beside_others("role-without-finalizers", async |stage| {
        let mut role = rights::role()?;
        let holds = |rule: &PolicyRule| {
            let resources = rule.resources.iter().flatten();
            resources
                .into_iter()
                .any(|resource| resource == "agentruns/finalizers")
        };
        role.rules.get_or_insert_default().retain(|rule| !holds(rule));
        rights::grant(stage.scene, "lesser", &role).await?;
        let controllers = stage.start("one", "lesser", None, &stage.settings()).await?;
        controllers.until_leading(stage.scene).await?;

        stage.script("held", "true").await?;

        let blocked = stage.blocked("held", &Reason::JobForbidden).await?;
        assert!(blocked.contains("blockOwnerDeletion"), "{blocked}");
        Ok(())
    })
    .await
}
