//! `quickstart` and `init`: the first steps of somebody who has no manifest yet.

use std::{
    fs,
    io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _},
    path::Path,
};

use jangar_api::{Kind, agents::agent_run::RuntimeType};
use serde_json::{Value, json};

use crate::{
    check,
    cli::{InitArgs, InitKind, InitTarget},
    error::Error,
    manifest::{self, Document, Origin},
    output,
    session::Session,
    transport::ApplyOptions,
    wait,
};

/// The way from nothing to a run that has ended.
const QUICKSTART: &str = "\
# 1. A cluster. On this machine, without any: (in another terminal)
jangar up
# and use the kubeconfig that it names when it is ready:
export KUBECONFIG=$PWD/.jangar/kubeconfig

# 2. Is everything there?
agentctl doctor

# 3. Who does the work: an AgentProvider says which program is called, an Agent gives it a name.
agentctl apply -f - <<'YAML'
apiVersion: agents.proompteng.ai/v1alpha1
kind: AgentProvider
metadata: {name: scripted}
spec: {binary: /bin/sh, argsTemplate: [\"-c\", \"echo working on {{ parameters.repository }}\"]}
---
apiVersion: agents.proompteng.ai/v1alpha1
kind: Agent
metadata: {name: fixer}
spec: {providerRef: {name: scripted}}
YAML

# 4. What is to be done.
agentctl init impl --name fix-the-test --text 'Make the failing test pass' --apply

# 5. Do it, and see what it writes.
agentctl run --agent fixer --impl fix-the-test --param repository=example/adder --logs

# 6. What there is, and why.
agentctl list
agentctl explain @latest
agentctl help
";

pub fn quickstart(session: &mut Session) -> Result<(), Error> {
    session.console.data(QUICKSTART)
}

pub async fn init(session: &mut Session, arguments: InitArgs) -> Result<(), Error> {
    match arguments.kind {
        InitKind::Impl {
            name,
            text,
            summary,
            target,
        } => {
            let name = given(session, name, "--name", "Name of the ImplementationSpec")?;
            let text = given(session, text, "--text", "What is to be done")?;
            let mut spec = json!({"text": manifest::text_argument(&text)?});
            if let (Some(summary), Some(fields)) = (summary, spec.as_object_mut()) {
                fields.insert("summary".to_owned(), json!(summary));
            }
            let document = document(session, Kind::ImplementationSpec, &name, &spec);
            handed_out(session, &document, &target).await?;
            Ok(())
        }
        InitKind::Run {
            name,
            agent,
            implementation,
            runtime,
            target,
            wait,
            timeout,
        } => {
            if wait && !target.apply {
                return Err(Error::Validation(
                    "--wait is for a run that is made: give --apply as well".to_owned(),
                ));
            }
            let agent = given(session, agent, "--agent", "The Agent that does the work")?;
            let implementation = given(
                session,
                implementation,
                "--impl",
                "The ImplementationSpec that describes the work",
            )?;
            let name = name.unwrap_or_else(|| format!("{implementation}-1"));
            let mut spec = json!({
                "agentRef": {"name": agent}, "implementationSpecRef": {"name": implementation},
                "runtime": {"type": runtime},
            });
            if let (true, Some(fields)) = (runtime == RuntimeType::Workflow.as_str(), spec.as_object_mut()) {
                fields.insert("workflow".to_owned(), json!({"steps": [{"name": "implement"}]}));
            }
            let document = document(session, Kind::AgentRun, &name, &spec);
            let made = handed_out(session, &document, &target).await?;
            match made {
                Some((transport, run)) if wait => {
                    wait::until_complete(session, &transport, Kind::AgentRun, run, timeout, None).await
                }
                Some(_) | None => Ok(()),
            }
        }
    }
}

/// What was given, or what a person answers. Where nobody can be asked, the flag is named.
fn given(session: &mut Session, value: Option<String>, flag: &str, question: &str) -> Result<String, Error> {
    if let Some(value) = value {
        return Ok(value);
    }
    let missing = || Error::Validation(format!("{flag} is missing: give it, or call this at a terminal"));
    if session.choices.no_input || !std::io::stdin().is_terminal() {
        return Err(missing());
    }
    session.console.note(&format!("{question}:"))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "" => Err(missing()),
        answer => Ok(answer.to_owned()),
    }
}

fn document(session: &Session, kind: Kind, name: &str, spec: &Value) -> Document {
    let info = kind.info();
    let mut metadata = json!({"name": name});
    // A manifest without a namespace can be applied to any.
    if let (Some(namespace), Some(fields)) = (&session.choices.namespace.value, metadata.as_object_mut()) {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    Document {
        origin: Origin {
            file: format!("{} {name}", info.kind),
            number: 1,
        },
        value: json!({
            "apiVersion": format!("{}/{}", info.group, info.version), "kind": info.kind, "metadata": metadata, "spec": spec,
        }),
    }
}

/// Prints a manifest, writes it to a file, or applies it, or both. What was made, if something was.
async fn handed_out(
    session: &mut Session,
    document: &Document,
    target: &InitTarget,
) -> Result<Option<(crate::transport::Transport, crate::object::Object)>, Error> {
    let mistakes: Vec<manifest::Mistake> = check::lint::findings(std::slice::from_ref(document))
        .into_iter()
        .filter(|finding| finding.is_error)
        .map(|finding| finding.mistake)
        .collect();
    if !mistakes.is_empty() {
        return Err(manifest::refused(&mistakes));
    }
    let text = output::yaml(&document.value)?;
    match &target.file {
        Some(path) => {
            written(session, path, &text)?;
            session.console.note(&format!("{} written", path.display()))?;
        }
        None if !target.apply => session.console.data(&text)?,
        None => {}
    }
    if !target.apply {
        return Ok(None);
    }
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let options = ApplyOptions::default();
    let (object, applied) = transport.apply(&document.value, &namespace, options).await?;
    session.console.line(&format!(
        "{}/{} {}",
        object.kind().to_ascii_lowercase(),
        object.name(),
        applied.word()
    ))?;
    Ok(Some((transport, object)))
}

/// Writes a file. One that is there is replaced only if somebody says so.
fn written(session: &mut Session, path: &Path, text: &str) -> Result<(), Error> {
    let failed =
        |error: std::io::Error| Error::Validation(format!("{} cannot be written: {error}", path.display()));
    match fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            session.confirm(&format!("{} is there already. Replace it?", path.display()))?;
            fs::write(path, text).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}
