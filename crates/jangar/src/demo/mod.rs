//! `jangar demo`: an agent does a piece of work, an orchestration of others looks at it and releases it once a person has signed
//! it off, and yet another one is stopped in the middle of its work. Everything is real: the embedded Kubernetes in a temporary
//! directory, the controllers, the pods, the repository. Only the agents are scripts, and they are called so.

mod agentctl;
mod console;
mod orchestration;
mod processes;
mod stage;
mod table;

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use jangar_api::{Kind, phase::RunPhase};
use jangar_controllers::lease::Identity;
use jangar_engine::settings::Settings;
use kubelite::{
    node::executor::{Isolation, SandboxPolicy},
    server::User,
};

use self::{
    agentctl::Agentctl,
    console::{command, say, show},
    stage::Stage,
    table::table,
};
use crate::{
    embedded::{self, Directory, Embedded, Options},
    probes::Instruments,
    signals::StopRequests,
};

const NAMESPACE: &str = "agents";

/// A file of `examples/demo`, as it is in the repository.
macro_rules! example {
    ($name:literal) => {
        (
            concat!("examples/demo/", $name),
            include_str!(concat!("../../../../examples/demo/", $name)),
        )
    };
}

pub(crate) async fn run() -> Result<ExitCode> {
    // From the beginning: nobody comes back to what an interrupted demo would leave.
    let mut stop = StopRequests::listen()?;
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;
    say("1. A Kubernetes starts inside this program: no cluster, no Docker, no key.")?;
    let instruments = Embedded::instruments();
    let data = Directory::claim(&directory.path().join("data"))?;
    let embedded = Embedded::start(options(data, embedded::identity()?), &instruments).await?;
    let interrupted = tokio::select! {
        told = tell(&embedded, &instruments) => told.map(|()| None),
        code = stop.next_code() => {
            say("Interrupted: everything is being stopped. Once more does not wait for it.").map(|()| Some(code))
        }
    };
    // Whatever became of the story, nothing of it is left running.
    let stopped = embedded.stop(stop.next()).await;
    let removed = directory
        .close()
        .context("failed to remove the temporary directory");
    match interrupted.and_then(|code| stopped.and(removed).map(|()| code))? {
        Some(code) => {
            say("Nothing of it is left.")?;
            Ok(ExitCode::from(code))
        }
        None => {
            say("That was all on this machine, and nothing of it is left. Next:\n\
                 - `jangar up` keeps such a Kubernetes running, and kubectl works on it\n\
                 - examples/demo/ has the manifests of this story; they run unchanged on a cluster\n\
                 - docs/agent-runner.md says what an agent of your own has to do: very little")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn tell(embedded: &Embedded, instruments: &Instruments) -> Result<()> {
    instruments.readiness.complete().await;
    show(&format!(
        "{} kinds are installed, a node is there, and the controllers lead",
        Kind::ALL.len()
    ))?;
    tell_isolation(embedded.isolation())?;
    play(&Stage {
        client: embedded.client(),
        namespace: NAMESPACE,
        agentctl: Agentctl::beside_us(embedded.kubeconfig())?,
    })
    .await
}

fn options(directory: Directory, identity: Identity) -> Options {
    Options {
        directory,
        api_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        namespace: NAMESPACE.to_owned(),
        user: User {
            name: orchestration::PERSON.to_owned(),
            ..User::system("admin")
        },
        // A demo that refuses to run teaches nothing; what it gives up is said.
        sandbox: SandboxPolicy::Preferred,
        exposed: Vec::new(),
        pods: 8,
        settings: Settings::default(),
        manifests: Vec::new(),
        identity,
        outside: Arc::default(),
    }
}

fn tell_isolation(isolation: &Isolation) -> Result<()> {
    match isolation {
        Isolation::Sandboxed => show("pods are processes of this machine, each in namespaces of its own"),
        Isolation::Unsandboxed { reason } | Isolation::Refused { reason } => show(&format!(
            "pods run as plain processes of this machine (--unsandboxed), because {reason}"
        )),
    }
}

async fn play(stage: &Stage) -> Result<()> {
    say("2. A small git repository with a failing test.")?;
    stage.apply(&[example!("repository.yaml")]).await?;
    stage.job_says("make-adder").await?;

    say("3. An agent, and a piece of work for it. (The agent is a script that stands in for a real one.)")?;
    stage
        .apply(&[example!("agent.yaml"), example!("mend.yaml")])
        .await?;

    say("4. It is done as it is described: in a pod, by the agent, with a report at the end.")?;
    let started = [RunPhase::Running, RunPhase::Succeeded, RunPhase::Failed];
    stage.run_is("mend-adder-1", &started).await?;
    stage.follow_run("mend-adder-1", None).await?;
    let ends = [RunPhase::Succeeded, RunPhase::Failed, RunPhase::Cancelled];
    let run = stage.run_is("mend-adder-1", &ends).await?;
    let status = run.status.unwrap_or_default();
    ensure!(
        status.phase == Some(RunPhase::Succeeded),
        "the agent failed; its log is above"
    );
    let outcome = status.outcome.unwrap_or_default();
    show(&format!(
        "commit: {}",
        outcome.commit.as_deref().unwrap_or("none")
    ))?;

    say(
        "5. An orchestration: two agents look at it side by side, a person signs it off, and it is released.",
    )?;
    orchestration::release(stage, example!("release.yaml")).await?;

    say("6. A diamond of which one side fails: what depends on it is skipped, and the other side goes on.")?;
    orchestration::failing_branch(stage, example!("check.yaml")).await?;

    say(
        "7. Another one is cancelled while two agents work, and is called cancelled only when their processes are dead.",
    )?;
    orchestration::cancel(stage, example!("dawdle.yaml")).await?;

    say("8. What came of it all.")?;
    stage.apply(&[example!("show.yaml")]).await?;
    stage.job_says("show-adder").await?;
    for kind in [Kind::OrchestrationRun, Kind::AgentRun] {
        command(&format!("kubectl get {}", kind.info().plural))?;
        show(&table(&stage.client, NAMESPACE, kind).await?)?;
    }
    Ok(())
}
