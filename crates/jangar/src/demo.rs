//! `jangar demo`: what works today, played on the embedded Kubernetes API in a temporary directory. Every line is the answer
//! of the running server to a real request, sent in process; beside each stands the command that sends the same with kubectl.

use std::{
    io::{Write, stdout},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use jangar_api::{Kind, agents::agent_run::AgentRun};
use jangar_engine::settings::Settings;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use kubelite::node::executor::SandboxPolicy;
use serde_json::{Value, json};

use crate::embedded::{Embedded, Options};

const NAMESPACE: &str = "agents";
const MANIFEST: &str = include_str!("../../../examples/first-run.yaml");
const RUN: &str = "fix-the-test-1";
const MANAGER: &str = "demo";

pub(crate) async fn run() -> Result<()> {
    let directory = tempfile::tempdir().context("failed to make a temporary directory")?;

    say("1. A Kubernetes API server starts inside this program: no cluster, no Docker, no key.")?;
    let embedded = Embedded::start(options(directory.path()), &Embedded::instruments()).await?;
    show(&format!(
        "listening on https://{}, kubeconfig in {}",
        embedded.address(),
        embedded.kubeconfig().display()
    ))?;
    show(&format!(
        "{} kinds installed from their definitions",
        Kind::ALL.len()
    ))?;
    let client = embedded.client();

    say("2. One piece of work, described by four objects.")?;
    command("kubectl apply --server-side -f examples/first-run.yaml")?;
    for object in manifest()? {
        show(&apply(&client, &object).await?)?;
    }

    say("3. They can be listed as kubectl lists them.")?;
    command("kubectl get jangar")?;
    for kind in [
        Kind::AgentProvider,
        Kind::Agent,
        Kind::ImplementationSpec,
        Kind::AgentRun,
    ] {
        show(&table(&client, kind).await?)?;
    }

    say("4. Bad input is refused with the field, the value and the reason.")?;
    refuse(&client, &json!({"spec": {"runtime": {"type": "magic"}}})).await?;

    say(
        "5. Once a run is accepted, nobody changes what it was asked to do. (No controller runs yet, so the demo accepts it.)",
    )?;
    accept(&client).await?;
    refuse(
        &client,
        &json!({"spec": {"parameters": {"repository": "example/other"}}}),
    )
    .await?;
    let cancel = json!({"spec": {"cancel": true, "cancelReason": "shown enough"}});
    command(&format!(
        "kubectl patch agentrun {RUN} --type=merge -p '{cancel}'"
    ))?;
    patch(&client, &cancel)
        .await
        .context("a cancel must stay possible")?;
    show(&format!("agentrun.agents.proompteng.ai/{RUN} patched"))?;

    say("6. What was acknowledged survives: the server stops and starts again on the same files.")?;
    embedded.stop(std::future::pending()).await?;
    let embedded = Embedded::start(options(directory.path()), &Embedded::instruments()).await?;
    let client = embedded.client();
    let kept: AgentRun = Api::namespaced(client.clone(), NAMESPACE).get(RUN).await?;
    ensure!(
        kept.spec.stop.is_requested(),
        "the cancel request was lost over the restart"
    );
    show(&table(&client, Kind::AgentRun).await?)?;
    show("the request to cancel is still there")?;
    embedded.stop(std::future::pending()).await?;

    say(
        "Next: `jangar up` serves until you stop it, and kubectl works on it. README.md says what is built and what is not.",
    )
}

fn options(directory: &Path) -> Options {
    Options {
        data_dir: directory.to_owned(),
        api_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        namespace: NAMESPACE.to_owned(),
        sandbox: SandboxPolicy::Required,
        settings: Settings::default(),
        manifests: Vec::new(),
    }
}

fn say(text: &str) -> Result<()> {
    writeln!(stdout(), "\n{text}")?;
    Ok(())
}

fn command(text: &str) -> Result<()> {
    writeln!(stdout(), "   $ {text}")?;
    Ok(())
}

fn show(text: &str) -> Result<()> {
    for line in text.lines() {
        writeln!(stdout(), "     {line}")?;
    }
    Ok(())
}

/// The objects of the example.
fn manifest() -> Result<Vec<DynamicObject>> {
    MANIFEST
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).context("the example is not valid YAML"))
        .collect()
}

fn resource(kind: Kind) -> ApiResource {
    let info = kind.info();
    let gvk = GroupVersionKind::gvk(&info.group, &info.version, &info.kind);
    ApiResource::from_gvk_with_plural(&gvk, &info.plural)
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<String> {
    let types = object
        .types
        .as_ref()
        .context("the example has an object without a kind")?;
    let kind = Kind::ALL.iter().find(|kind| kind.info().kind == types.kind);
    let Some(kind) = kind else {
        bail!("{} is not a kind of Jangar", types.kind)
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource(*kind));
    api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(object))
        .await?;
    let info = kind.info();
    Ok(format!(
        "{}.{}/{name} serverside-applied",
        info.singular, info.group
    ))
}

/// A list as the server prints it.
async fn table(client: &Client, kind: Kind) -> Result<String> {
    let info = kind.info();
    let path = format!(
        "/apis/{}/{}/namespaces/{NAMESPACE}/{}",
        info.group, info.version, info.plural
    );
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    let mut lines = Vec::new();
    let shown: Vec<usize> = list(&table["columnDefinitions"])
        .iter()
        .enumerate()
        .filter(|(_, column)| column["priority"] == 0)
        .map(|(position, _)| position)
        .collect();
    let heads = list(&table["columnDefinitions"]);
    lines.push(
        shown
            .iter()
            .map(|at| text(&heads[*at]["name"]).to_uppercase())
            .collect::<Vec<_>>(),
    );
    for row in list(&table["rows"]) {
        lines.push(shown.iter().map(|at| text(&row["cells"][*at])).collect());
    }
    let widths: Vec<usize> = (0..shown.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0))
        .collect();
    let padded = lines.iter().map(|line| {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("   ").trim_end().to_owned()
    });
    Ok(padded.collect::<Vec<_>>().join("\n"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn runs(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &resource(Kind::AgentRun))
}

fn as_manager() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

async fn patch(client: &Client, body: &Value) -> kube::Result<DynamicObject> {
    runs(client).patch(RUN, &as_manager(), &Patch::Merge(body)).await
}

/// Sends a change that must be refused, and shows the refusal.
async fn refuse(client: &Client, body: &Value) -> Result<()> {
    command(&format!("kubectl patch agentrun {RUN} --type=merge -p '{body}'"))?;
    match patch(client, body).await {
        Err(kube::Error::Api(status)) => show(&status.message),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("the server accepted what it must refuse: {body}"),
    }
}

async fn accept(client: &Client) -> Result<()> {
    let accepted = json!({"status": {
        "phase": "Running",
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Submitted", "message": "accepted by the demo",
            "lastTransitionTime": jiff::Timestamp::now().to_string(),
        }],
    }});
    runs(client)
        .patch_status(RUN, &as_manager(), &Patch::Merge(&accepted))
        .await
        .context("failed to accept the run")?;
    Ok(())
}
