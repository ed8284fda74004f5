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
    transport::Transport,
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
    let known = Known::of(&transport, object.namespace()).await;
    let explanation = known.explain(kind, &object, session.clock.now())?;
    match session.format() {
        Format::Table | Format::Wide | Format::Name => session.console.data(&explanation.to_string()),
        _ => {
            let value = serde_json::to_value(&explanation)?;
            output::value(session, &value)
        }
    }
}

/// What the answer can be taken from besides the run. What cannot be read is left out: the answer is less exact then.
#[derive(Default)]
struct Known {
    agent_runs: Vec<AgentRun>,
    tool_runs: Vec<ToolRun>,
    orchestration_runs: Vec<OrchestrationRun>,
    policies: Vec<ApprovalPolicy>,
}

impl Known {
    async fn of(transport: &Transport, namespace: &str) -> Self {
        Self {
            agent_runs: legible(transport, Kind::AgentRun, namespace).await,
            tool_runs: legible(transport, Kind::ToolRun, namespace).await,
            orchestration_runs: legible(transport, Kind::OrchestrationRun, namespace).await,
            policies: legible(transport, Kind::ApprovalPolicy, namespace).await,
        }
    }

    fn explain(&self, kind: Kind, object: &Object, now: Timestamp) -> Result<Explanation, Error> {
        let context = Context {
            agent_runs: self.agent_runs.iter().collect(),
            tool_runs: self.tool_runs.iter().collect(),
            orchestration_runs: self.orchestration_runs.iter().collect(),
            policies: self.policies.iter().collect(),
            position: None,
        };
        Ok(match kind {
            Kind::OrchestrationRun => {
                let run: OrchestrationRun = object.typed()?;
                why::explain(Subject::OrchestrationRun(&run), &context, now)
            }
            Kind::ToolRun => {
                let run: ToolRun = object.typed()?;
                why::explain(Subject::ToolRun(&run), &context, now)
            }
            _ => {
                let run: AgentRun = object.typed()?;
                why::explain(Subject::AgentRun(&run), &context, now)
            }
        })
    }
}

async fn legible<K: DeserializeOwned>(transport: &Transport, kind: Kind, namespace: &str) -> Vec<K> {
    let objects = transport
        .list(kind, Some(namespace), None)
        .await
        .unwrap_or_default();
    objects.iter().filter_map(|object| object.typed().ok()).collect()
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
