//! `explain`: why a run waits or failed, who can change that, and with which command. Of a kind: what its fields mean.

use jangar_api::Kind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Value, json};

use crate::{
    cli::ExplainArgs,
    error::Error,
    nearest::nearest,
    object::Object,
    output::{self, Cell, Format, Table},
    resource::{self, word},
    session::Session,
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
    let answer = Answer::of(kind, &object);
    match session.format() {
        Format::Table | Format::Wide | Format::Name => {
            let text = answer.text();
            session.console.data(&text)
        }
        _ => output::value(session, &answer.to_value()),
    }
}

/// The answer to "why?".
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    subject: String,
    state: &'static str,
    reason: String,
    headline: String,
    because: Vec<String>,
    /// Commands, with what each does.
    commands: Vec<(String, &'static str)>,
}

impl Answer {
    fn of(kind: Kind, object: &Object) -> Self {
        let (name, namespace) = (object.name(), object.namespace());
        let word = word(kind);
        let subject = format!("{} {namespace}/{name}", kind.info().kind);
        let line = |verb: &str| format!("agentctl {verb} {word} {name} -n {namespace}");
        let logs = (line("logs"), "shows what it wrote");
        let blocked = object
            .condition("Blocked")
            .filter(|condition| condition.status == "True");
        let (state, condition, commands) = match object.phase() {
            "Succeeded" => ("succeeded", object.condition("Succeeded"), vec![logs]),
            "Failed" => {
                let retry = (line("retry"), "does the work again, as a new run");
                ("failed", object.condition("Failed"), vec![retry, logs])
            }
            "Cancelled" => {
                let again = (line("resubmit"), "does the work again, as a new run");
                ("cancelled", object.condition("Cancelled"), vec![again, logs])
            }
            "Cancelling" => (
                "stopping",
                object
                    .condition("Cancelled")
                    .or_else(|| object.condition("Succeeded")),
                vec![(line("wait"), "waits until its pods are gone")],
            ),
            "Running" if blocked.is_none() => {
                let follow = (
                    format!("agentctl logs -f {word} {name} -n {namespace}"),
                    "follows what it writes",
                );
                (
                    "working",
                    object.condition("Succeeded"),
                    vec![follow, (line("cancel"), "stops it")],
                )
            }
            _ => ("waiting", blocked, vec![(line("cancel"), "gives it up")]),
        };
        let reason = condition.map_or_else(String::new, |condition| condition.reason.to_owned());
        let message = condition.map_or("", |condition| condition.message);
        let phase = object.phase();
        let headline = match (reason.as_str(), message) {
            ("", _) if state == "waiting" => format!(
                "{subject} is {phase}, and no controller has looked at it yet: `agentctl doctor` says whether they run"
            ),
            ("", _) => format!("{subject} is {phase}"),
            (reason, "") => format!("{subject} is {phase} ({reason})"),
            (reason, message) => format!("{subject} is {phase} ({reason}): {message}"),
        };
        Self {
            subject,
            state,
            reason,
            headline,
            because: details(object),
            commands,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.headline);
        for detail in &self.because {
            text.push_str(&format!("  - {detail}\n"));
        }
        for (line, effect) in &self.commands {
            text.push_str(&format!("  $ {line}   # {effect}\n"));
        }
        text
    }

    fn to_value(&self) -> Value {
        let commands: Vec<Value> = self
            .commands
            .iter()
            .map(|(line, effect)| json!({"line": line, "effect": effect}))
            .collect();
        json!({
            "subject": self.subject, "state": self.state, "reason": self.reason, "headline": self.headline,
            "because": self.because, "commands": commands,
        })
    }
}

/// What its steps and its other conditions add.
fn details(object: &Object) -> Vec<String> {
    let mut details = Vec::new();
    let steps = ["/status/stepStatuses", "/status/workflow/steps"]
        .into_iter()
        .find_map(|place| object.value().pointer(place)?.as_array());
    for step in steps.into_iter().flatten() {
        let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
        let (phase, reason, message) = (text("phase"), text("reason"), text("message"));
        if matches!(phase, "Failed" | "Running" | "Retrying" | "Cancelled") {
            let why: Vec<&str> = [reason, message]
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(" ({})", why.join(": "))
            };
            details.push(format!("step {} is {phase}{why}", text("name")));
        }
    }
    if let Some(message) = object.text("/status/outcome/message") {
        details.push(message.to_owned());
    }
    for condition in object.conditions() {
        if condition.type_ == "Warning" && condition.status == "True" {
            details.push(format!("{}: {}", condition.reason, condition.message));
        }
    }
    details
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: Value) -> Answer {
        let object = Object::from_value(json!({
            "kind": "AgentRun", "metadata": {"name": "fix", "namespace": "agents"}, "status": status,
        }));
        Answer::of(Kind::AgentRun, &object)
    }

    #[test]
    fn a_wait_is_told_with_its_reason_and_its_words() {
        let waiting = answer(json!({"phase": "Pending", "conditions": [
            {"type": "Blocked", "status": "True", "reason": "ConcurrencyLimit", "message": "wait your turn"},
        ]}));
        assert_eq!(
            (waiting.state, waiting.reason.as_str()),
            ("waiting", "ConcurrencyLimit")
        );
        assert!(
            waiting.headline.ends_with("(ConcurrencyLimit): wait your turn"),
            "{}",
            waiting.headline
        );
    }

    #[test]
    fn a_run_that_nobody_looked_at_says_so() {
        let unseen = answer(json!(null));
        assert!(
            unseen.headline.contains("no controller has looked at it"),
            "{}",
            unseen.headline
        );
    }

    #[test]
    fn a_failure_is_told_with_the_step_and_the_command_that_tries_again() {
        let failed = answer(json!({"phase": "Failed",
            "conditions": [{"type": "Failed", "status": "True", "reason": "WorkflowStepFailed", "message": "step two failed"}],
            "workflow": {"steps": [{"name": "one", "phase": "Succeeded"}, {"name": "two", "phase": "Failed", "message": "exit 1"}]},
        }));
        assert_eq!(failed.because, ["step two is Failed (exit 1)"]);
        assert_eq!(failed.commands[0].0, "agentctl retry run fix -n agents");
    }
}
