//! `explain`: why a run waits or failed, who can change that, and with which command. Of a kind: what its fields mean.

use jangar_api::{
    Kind, agents::agent_run::AgentRun, approvals::ApprovalPolicy,
    orchestration::orchestration_run::OrchestrationRun, tools::ToolRun,
};
use jangar_engine::explain::{self as why, Context, Explanation, Subject};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::de::DeserializeOwned;

use crate::{
    cli::ExplainArgs,
    error::Error,
    nearest::nearest,
    object::Object,
    output::{self, Cell, Format, Table},
    resource,
    session::Session,
    transport::{Transport, grpc::Grpc},
};

pub async fn explain(session: &mut Session, arguments: &ExplainArgs) -> Result<(), Error> {
    if let [one] = arguments.what.as_slice()
        && !one.contains('/')
        && let Ok(kind) = resource::kind(one)
    {
        return fields(session, kind, arguments.field.as_deref());
    }
    if arguments.field.is_some() {
        return Err(Error::Validation(
            "--field is about a kind, as in: agentctl explain agentrun --field spec.runtime".to_owned(),
        ));
    }
    let transport = session.connect().await?;
    let (kind, object) = resource::run(session, &transport, &arguments.what).await?;
    let explanation = match &transport {
        // The control plane knows the line, and what became of the steps of a run that is gone.
        Transport::Grpc(grpc) if kind != Kind::ToolRun => asked(grpc, kind, &object).await?,
        Transport::Grpc(_) | Transport::Kube(_) => {
            let known = Known::of(session, &transport, kind, &object).await?;
            known.explain(kind, &object, session.clock.now())?
        }
    };
    match session.format() {
        Format::Table | Format::Wide | Format::Name => session.console.data(&explanation.to_string()),
        _ => {
            let value = serde_json::to_value(&explanation)?;
            output::value(session, &value)
        }
    }
}

/// What the control plane says.
async fn asked(grpc: &Grpc, kind: Kind, object: &Object) -> Result<Explanation, Error> {
    let answer = grpc.explain(kind, object.namespace(), object.name()).await?;
    serde_json::from_str(&answer.json).map_err(|error| {
        Error::Runtime(format!(
            "this agentctl does not understand the whole answer of the control plane ({error}), which begins: {}",
            answer.text
        ))
    })
}

/// What the answer can be taken from besides the run. What cannot be read is left out: the answer is less exact then.
#[derive(Default)]
struct Known {
    agent_runs: Vec<AgentRun>,
    /// Whether others wait or work that cannot be seen.
    more_agent_runs: bool,
    tool_runs: Vec<ToolRun>,
    orchestration_runs: Vec<OrchestrationRun>,
    policies: Vec<ApprovalPolicy>,
}

impl Known {
    async fn of(
        session: &mut Session,
        transport: &Transport,
        kind: Kind,
        object: &Object,
    ) -> Result<Self, Error> {
        let mut known = Self::default();
        // A run that has ended waits for nobody, and a tool never does.
        if kind == Kind::ToolRun || (kind == Kind::AgentRun && object.has_ended()) {
            return Ok(known);
        }
        let place = object.namespace();
        let waiting: Option<AgentRun> = object.typed().ok().filter(why::stands_in_line);
        if let Some(run) = waiting.filter(|_| kind == Kind::AgentRun) {
            // Lines go through all namespaces; who sees only one of them is told no place in such a line.
            match transport.list(Kind::AgentRun, None, None).await {
                Ok(all) => {
                    known.agent_runs = all.iter().filter_map(|object| object.typed().ok()).collect();
                    return Ok(known);
                }
                Err(_) => known.more_agent_runs = why::counts_all_namespaces(&run),
            }
        }
        known.agent_runs = legible(session, transport, Kind::AgentRun, place).await?;
        if kind == Kind::OrchestrationRun {
            // Only steps of orchestrations have other runs do their work, and wait at gates.
            known.tool_runs = legible(session, transport, Kind::ToolRun, place).await?;
            known.orchestration_runs = legible(session, transport, Kind::OrchestrationRun, place).await?;
            known.policies = legible(session, transport, Kind::ApprovalPolicy, place).await?;
        }
        Ok(known)
    }

    fn explain(&self, kind: Kind, object: &Object, now: Timestamp) -> Result<Explanation, Error> {
        let context = Context {
            agent_runs: self.agent_runs.iter().collect(),
            more_agent_runs: self.more_agent_runs,
            tool_runs: self.tool_runs.iter().collect(),
            orchestration_runs: self.orchestration_runs.iter().collect(),
            policies: self.policies.iter().collect(),
            position: None,
        };
        let told = |subject: Subject<'_>| match object.remembered() {
            None => why::explain(subject, &context, now),
            Some(_) => why::explain_gone(subject, &context, last_seen(object).unwrap_or(now)),
        };
        Ok(match kind {
            Kind::OrchestrationRun => told(Subject::OrchestrationRun(&object.typed()?)),
            Kind::ToolRun => told(Subject::ToolRun(&object.typed()?)),
            _ => told(Subject::AgentRun(&object.typed()?)),
        })
    }
}

/// When something is known of a run for the last time.
fn last_seen(object: &Object) -> Option<Timestamp> {
    [
        "/metadata/deletionTimestamp",
        "/status/finishedAt",
        "/status/startedAt",
    ]
    .into_iter()
    .find_map(|place| object.text(place)?.parse().ok())
}

async fn legible<K: DeserializeOwned>(
    session: &mut Session,
    transport: &Transport,
    kind: Kind,
    namespace: &str,
) -> Result<Vec<K>, Error> {
    match transport.list(kind, Some(namespace), None).await {
        // One that cannot be read says nothing about another.
        Ok(objects) => Ok(objects.iter().filter_map(|object| object.typed().ok()).collect()),
        Err(error) => {
            session
                .console
                .note(&format!("the answer may lack something: {error}"))?;
            Ok(Vec::new())
        }
    }
}

/// What the fields of a kind mean, as its definition tells the API server.
fn fields(session: &mut Session, kind: Kind, path: Option<&str>) -> Result<(), Error> {
    let crd = kind.crd();
    let schema = crd
        .spec
        .versions
        .first()
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let Some(root) = schema else {
        return Err(Error::Unknown(format!("{} has no schema", kind.info().kind)));
    };
    let mut schema = root;
    let mut walked = kind.info().kind.clone();
    for name in path
        .unwrap_or_default()
        .split('.')
        .filter(|name| !name.is_empty())
    {
        let inner = properties(schema);
        let Some(next) = inner.iter().find(|(known, _)| *known == name) else {
            let hint = match nearest(name, inner.iter().map(|(known, _)| *known)) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "leave the last part out to see what there is".to_owned(),
            };
            return Err(Error::Validation(format!("{walked} has no field {name}: {hint}")));
        };
        schema = next.1;
        walked = format!("{walked}.{name}");
    }
    let format = session.format();
    if output::is_for_programs(&format) {
        let value = serde_json::to_value(schema)?;
        return output::value(session, &value);
    }
    session.console.line(&format!("{walked} <{}>", type_of(schema)))?;
    if let Some(words) = &schema.description {
        session.console.line(&format!("  {words}"))?;
    }
    let inner = properties(schema);
    if inner.is_empty() {
        return Ok(());
    }
    let required = schema.required.clone().unwrap_or_default();
    let mut table = Table::new(["FIELD", "TYPE", "MEANING"]);
    for (name, field) in inner {
        let needed = if required.iter().any(|known| known == name) {
            " (required)"
        } else {
            ""
        };
        table.push(vec![
            Cell::plain(name),
            Cell::plain(format!("{}{needed}", type_of(field))),
            Cell::optional(field.description.as_deref()),
        ]);
    }
    session.console.line("")?;
    output::show_table(session, &table)
}

/// The fields of an object, of the items of a list, or of the values of a map.
fn properties(schema: &JSONSchemaProps) -> Vec<(&str, &JSONSchemaProps)> {
    if let Some(properties) = &schema.properties {
        return properties
            .iter()
            .map(|(name, field)| (name.as_str(), field))
            .collect();
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        return properties(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        return properties(values);
    }
    Vec::new()
}

fn type_of(schema: &JSONSchemaProps) -> String {
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        return format!("list of {}", type_of(items));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        return format!("map of {}", type_of(values));
    }
    let words: Vec<String> = schema
        .enum_
        .iter()
        .flatten()
        .filter_map(|value| value.0.as_str().map(str::to_owned))
        .collect();
    if words.is_empty() {
        schema.type_.clone().unwrap_or_else(|| "any".to_owned())
    } else {
        words.join("|")
    }
}
