//! Submission: a run is created once for each key.
//!
//! The name of the run is made from namespace, agent and key, and the run is created, never updated. So the API server alone
//! decides who was first, however many replicas are asked at the same moment and wherever one of them dies.

use std::{collections::BTreeMap, time::Duration};

use jangar_api::{
    Kind,
    agents::{
        agent::Agent,
        agent_run::{
            AgentRun, AgentRunSpec, InlineImplementation, Runtime, RuntimeType, VcsPolicy, Workflow,
        },
        implementation_spec::ImplementationSpecSpec,
        workload::Workload,
    },
    budgets::Budget,
    labels,
    names::{DnsLabel, label_value},
    orchestration::{
        Orchestration,
        orchestration_run::{OrchestrationRun, OrchestrationRunSpec},
    },
    refs::LocalRef,
    security::SecretBinding,
    values::Int32,
};
use jangar_engine::{
    queue::{Lane, no_room, repository_of},
    waiting::Full,
};
use kube::{Api, api::DynamicObject};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Caller, ControlPlane, live, objects::checked_name, policy, runs::record};
use crate::{
    access::Question,
    history::SubmittedKey,
    metrics::Loss,
    refusal::{Refusal, Trouble},
    world::{Object, resource},
};

/// The longest key. It is kept in the spec of the run.
const KEY_MAX_BYTES: usize = 256;
/// When a client that was told that the queue is full may try again.
const QUEUE_RETRY_SECONDS: u32 = 15;
/// How long a submission waits for the database. The API server keeps runs from being made twice; history only remembers the keys of
/// those that are gone.
const HISTORY_PATIENCE: Duration = Duration::from_secs(2);

/// What a submission has to keep to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRefs {
    /// The Budget that must not be used up.
    pub budget_ref: Option<String>,
    /// The SecretBinding that covers the Secrets of the run.
    pub secret_binding_ref: Option<String>,
}

/// The work of a run, described in place: the fields of an ImplementationSpec, or the same below `inline`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Described {
    Inline(InlineImplementation),
    Plain(ImplementationSpecSpec),
}

/// A new AgentRun.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentRunSubmission {
    /// The Agent that does the work.
    pub agent_ref: LocalRef,
    /// Where the run is made. Absent: the namespace of Jangar itself.
    pub namespace: Option<String>,
    /// The ImplementationSpec that describes the work.
    pub implementation_spec_ref: Option<LocalRef>,
    /// The work, described in place; goes before `implementationSpecRef`.
    pub implementation: Option<Described>,
    /// How the work is run.
    pub runtime: Runtime,
    /// The steps, which the runtime `workflow` needs.
    pub workflow: Option<Workflow>,
    /// The pod of the run.
    pub workload: Option<Workload>,
    pub memory_ref: Option<LocalRef>,
    pub vcs_ref: Option<LocalRef>,
    pub vcs_policy: Option<VcsPolicy>,
    /// Values for templates and for the agent.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Names of Secrets, which the SecretBinding of `policy` has to cover.
    #[serde(default)]
    pub secrets: Vec<String>,
    pub policy: Option<PolicyRefs>,
    /// How long the finished run is kept, in seconds.
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<Int32>,
    /// Order in the queue: larger numbers start first.
    #[serde(default)]
    pub priority: Int32,
}

/// A new OrchestrationRun.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrchestrationRunSubmission {
    /// The Orchestration to run.
    pub orchestration_ref: LocalRef,
    /// Where the run is made. Absent: the namespace of Jangar itself.
    pub namespace: Option<String>,
    /// Values for the steps.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    pub policy: Option<PolicyRefs>,
}

/// What came of a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// The run as Kubernetes has it, or had it.
    pub resource: Value,
    /// The same in short, as earlier versions kept it in their database.
    pub record: Value,
    /// Whether the key was used before: what is returned is what was made then.
    pub idempotent: bool,
}

impl Submitted {
    fn of(kind: Kind, resource: Value, idempotent: bool) -> Self {
        Self {
            record: record(kind, &resource),
            resource,
            idempotent,
        }
    }
}

/// What a new run is made of.
#[derive(Debug)]
struct Draft {
    kind: Kind,
    action: &'static str,
    namespace: String,
    /// The Agent or the Orchestration.
    subject: String,
    key: String,
    spec: Value,
    annotations: BTreeMap<String, String>,
}

impl Draft {
    fn name(&self) -> String {
        run_name(&self.namespace, &self.subject, &self.key)
    }

    fn manifest(&self) -> Value {
        let info = self.kind.info();
        json!({
            "apiVersion": format!("{}/{}", info.group, info.version),
            "kind": info.kind,
            "metadata": {
                "name": self.name(),
                "namespace": self.namespace,
                "labels": {labels::DELIVERY_ID: label_value(&self.key)},
                "annotations": self.annotations,
            },
            "spec": self.spec,
        })
    }
}

/// The name of the run that a key makes. agentctl makes the same one, so that a key used on both ways is one run.
pub fn run_name(namespace: &str, subject: &str, key: &str) -> String {
    DnsLabel::submission(namespace, subject, key).into()
}

/// Checks the key of a request.
pub fn checked_key(field: &str, key: Option<&str>) -> Result<String, Refusal> {
    let key = key.map(str::trim).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| {
        Refusal::missing(field)
            .remedy("send a text of your own, such as a UUID, and the same one if you repeat the request")
    })?;
    if key.len() > KEY_MAX_BYTES || key.chars().any(char::is_control) {
        return Err(Refusal::field(field, key, "this is too long, or no plain text")
            .remedy("send at most 256 bytes of plain text"));
    }
    Ok(key.to_owned())
}

impl ControlPlane {
    /// Creates an AgentRun, or finds the one that the key made before.
    pub async fn submit_agent_run(
        &self,
        caller: &Caller,
        key: &str,
        submission: AgentRunSubmission,
    ) -> Result<Submitted, Refusal> {
        let namespace = self.namespace(submission.namespace.as_deref())?;
        let agent_name = submission.agent_ref.name.trim().to_owned();
        checked_name("agentRef.name", &agent_name)?;
        self.require_create(caller, Kind::AgentRun, &namespace).await?;
        let policy = submission.policy.clone().unwrap_or_default();
        let spec = agent_run_spec(submission, key)?;
        let draft = Draft {
            kind: Kind::AgentRun,
            action: "agent_run.created",
            namespace: namespace.clone(),
            subject: agent_name.clone(),
            key: key.to_owned(),
            spec: to_json(&spec)?,
            annotations: created_by(caller),
        };
        if let Some(before) = self.made_before(&draft).await? {
            return Ok(before);
        }
        let agent: Agent = self
            .referred(Kind::Agent, "agentRef.name", &namespace, &agent_name)
            .await?;
        let config = spec.runtime.config.as_ref().map(to_json).transpose()?;
        let account = config.as_ref().and_then(|config| config.get("serviceAccount"));
        policy::check_service_account(&agent, account.and_then(Value::as_str))?;
        self.check_budget(&namespace, policy.budget_ref.as_deref())
            .await?;
        let binding: Option<SecretBinding> = match policy.secret_binding_ref.as_deref() {
            Some(name) => Some(
                self.referred(Kind::SecretBinding, "policy.secretBindingRef", &namespace, name)
                    .await?,
            ),
            None => None,
        };
        policy::check_secrets(&agent_name, &spec.secrets, binding.as_ref())?;
        self.check_room(&namespace, &draft)?;
        self.create_run(caller, draft).await
    }

    /// Creates an OrchestrationRun, or finds the one that the key made before.
    pub async fn submit_orchestration_run(
        &self,
        caller: &Caller,
        key: &str,
        submission: OrchestrationRunSubmission,
    ) -> Result<Submitted, Refusal> {
        let namespace = self.namespace(submission.namespace.as_deref())?;
        let orchestration = submission.orchestration_ref.name.trim().to_owned();
        checked_name("orchestrationRef.name", &orchestration)?;
        self.require_create(caller, Kind::OrchestrationRun, &namespace)
            .await?;
        let policy = submission.policy.clone().unwrap_or_default();
        let spec = OrchestrationRunSpec {
            orchestration_ref: LocalRef {
                name: orchestration.clone(),
            },
            parameters: submission.parameters,
            delivery_id: Some(key.to_owned()),
            ..OrchestrationRunSpec::default()
        };
        let draft = Draft {
            kind: Kind::OrchestrationRun,
            action: "orchestration_run.created",
            namespace: namespace.clone(),
            subject: orchestration.clone(),
            key: key.to_owned(),
            spec: orchestration_run_json(spec)?,
            annotations: created_by(caller),
        };
        if let Some(before) = self.made_before(&draft).await? {
            return Ok(before);
        }
        let definition: Orchestration = self
            .referred(
                Kind::Orchestration,
                "orchestrationRef.name",
                &namespace,
                &orchestration,
            )
            .await?;
        self.check_gates(&namespace, &definition.spec).await?;
        self.check_budget(&namespace, policy.budget_ref.as_deref())
            .await?;
        self.create_run(caller, draft).await
    }

    /// Creates a run like one that has ended.
    pub async fn retry(&self, caller: &Caller, run: &Object, key: &str) -> Result<Submitted, Refusal> {
        let (kind, namespace) = (run.kind, run.namespace.clone());
        self.require_create(caller, kind, &namespace).await?;
        let phase = run.phase.clone().unwrap_or_else(|| "Pending".to_owned());
        if !matches!(phase.as_str(), "Succeeded" | "Failed" | "Cancelled") {
            return Err(Refusal::new(
                Trouble::Conflict,
                format!(
                    "{} {namespace}/{} is {phase}, and only a run that has ended is run again",
                    kind.info().kind,
                    run.name
                ),
            )
            .remedy("wait until it has ended, or cancel it"));
        }
        let mut spec = run.json.get("spec").cloned().unwrap_or_else(|| json!({}));
        let key_field = match kind {
            Kind::OrchestrationRun => "deliveryId",
            _ => "idempotencyKey",
        };
        if let Some(fields) = spec.as_object_mut() {
            for stop in ["cancel", "desiredState", "cancelReason"] {
                fields.remove(stop);
            }
            if kind != Kind::ToolRun {
                fields.insert(key_field.to_owned(), json!(key));
            }
        }
        let mut annotations = created_by(caller);
        annotations.insert(labels::RETRY_OF.to_owned(), run.name.clone());
        let draft = Draft {
            kind,
            action: match kind {
                Kind::OrchestrationRun => "orchestration_run.retried",
                _ => "agent_run.retried",
            },
            namespace: namespace.clone(),
            subject: run.subject.clone().unwrap_or_else(|| run.name.clone()),
            key: key.to_owned(),
            spec,
            annotations,
        };
        if let Some(before) = self.made_before(&draft).await? {
            return Ok(before);
        }
        if kind == Kind::AgentRun {
            self.check_room(&namespace, &draft)?;
        }
        self.create_run(caller, draft).await
    }

    /// That the caller may create runs, before they learn anything of what there is.
    async fn require_create(&self, caller: &Caller, kind: Kind, namespace: &str) -> Result<(), Refusal> {
        let question = Question::on("create", kind, namespace, "");
        self.gatekeeper.require(&caller.identity, &question).await?;
        if self.world.covers(namespace) {
            Ok(())
        } else {
            Err(self.not_covered(namespace))
        }
    }

    /// An object that a submission names.
    async fn referred<T: DeserializeOwned>(
        &self,
        kind: Kind,
        field: &str,
        namespace: &str,
        name: &str,
    ) -> Result<T, Refusal> {
        checked_name(field, name)?;
        let info = kind.info();
        let found = self.seen(kind, namespace, name).await?.ok_or_else(|| {
            Refusal::new(
                Trouble::NotFound,
                format!(
                    "{field}=`{name}`: there is no {} of this name in namespace {namespace}",
                    info.kind
                ),
            )
            .named(field)
            .remedy(format!("create the {} first, or name another one", info.kind))
        })?;
        serde_json::from_value(found.json.clone()).map_err(|error| {
            Refusal::new(
                Trouble::Conflict,
                format!(
                    "{field}=`{name}`: {} {namespace}/{name} cannot be read: {error}",
                    info.kind
                ),
            )
            .named(field)
            .remedy("mend it")
        })
    }

    async fn check_budget(&self, namespace: &str, name: Option<&str>) -> Result<(), Refusal> {
        let Some(name) = name else { return Ok(()) };
        let budget: Budget = self
            .referred(Kind::Budget, "policy.budgetRef", namespace, name)
            .await?;
        policy::check_budget(&budget)
    }

    /// Whether one more run may wait.
    fn check_room(&self, namespace: &str, draft: &Draft) -> Result<(), Refusal> {
        let manifest = draft.manifest();
        let repository = serde_json::from_value::<AgentRun>(manifest)
            .ok()
            .and_then(|run| repository_of(&run));
        let lane = Lane {
            namespace: namespace.to_owned(),
            agent: draft.subject.clone(),
            repository,
        };
        let waiting = self.world.waiting();
        match no_room(&waiting, &lane, &self.settings.limits) {
            None => Ok(()),
            Some(full) => Err(queue_is_full(&full)),
        }
    }

    /// The run that this key made, if it did.
    async fn made_before(&self, draft: &Draft) -> Result<Option<Submitted>, Refusal> {
        let name = draft.name();
        if let Some(run) = self.world.get(draft.kind, &draft.namespace, &name) {
            return same_key(draft, &run.json).map(Some);
        }
        let Some(history) = &self.history else {
            return Ok(None);
        };
        let now = self.now();
        let asking = async {
            let key = history
                .key(draft.kind, &draft.namespace, &draft.subject, &draft.key, now)
                .await?;
            match key {
                Some(key) => history.run(&key.run_uid).await,
                None => Ok(None),
            }
        };
        let error = match timeout(HISTORY_PATIENCE, asking).await {
            Ok(Ok(found)) => return Ok(found.map(|run| Submitted::of(draft.kind, run.document, true))),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        // A run that is in the cluster is still made only once. One that is gone from it is made again.
        self.metrics.loss(Loss::History);
        tracing::warn!(error, "the history cannot tell whether a key was used before");
        Ok(None)
    }

    async fn create_run(&self, caller: &Caller, draft: Draft) -> Result<Submitted, Refusal> {
        let created = self
            .create(
                caller,
                draft.action,
                draft.kind,
                &draft.namespace,
                draft.manifest(),
            )
            .await;
        match created {
            Ok(run) => {
                self.remember(&draft, &run).await;
                Ok(Submitted::of(draft.kind, run.json, false))
            }
            // Somebody was first: the same key, most likely.
            Err(refusal) if refusal.trouble == Trouble::Conflict => {
                let name = draft.name();
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.own.clone(), &draft.namespace, &resource(draft.kind));
                match live(api.get_opt(&name)).await? {
                    Some(run) => same_key(&draft, &self.read(draft.kind, run).json),
                    None => Err(Refusal::unavailable(
                        "the run that this key made is being deleted: try again",
                    )),
                }
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn remember(&self, draft: &Draft, run: &Object) {
        let Some(history) = &self.history else {
            return;
        };
        let key = SubmittedKey {
            kind: draft.kind,
            namespace: draft.namespace.clone(),
            subject: draft.subject.clone(),
            key: draft.key.clone(),
            run_uid: run.uid.clone(),
            run_name: run.name.clone(),
        };
        let error = match timeout(HISTORY_PATIENCE, history.remember(&key, self.now())).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it did not answer in time".to_owned(),
        };
        self.metrics.loss(Loss::History);
        tracing::warn!(error, "the key of a run is not remembered after the run is gone");
    }
}

/// The run under the name of the draft, if it was made with the same key.
fn same_key(draft: &Draft, run: &Value) -> Result<Submitted, Refusal> {
    let spec = run.get("spec");
    let key = spec.and_then(|spec| spec.get("idempotencyKey").or_else(|| spec.get("deliveryId")));
    let label = run
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(labels::DELIVERY_ID));
    let same = match key.and_then(Value::as_str) {
        Some(key) => key == draft.key,
        None => label.and_then(Value::as_str) == Some(&label_value(&draft.key)),
    };
    if same {
        return Ok(Submitted::of(draft.kind, run.clone(), true));
    }
    Err(Refusal::new(
        Trouble::Conflict,
        format!(
            "there is a run {}/{} that this key did not make",
            draft.namespace,
            draft.name()
        ),
    )
    .remedy("send another Idempotency-Key"))
}

fn created_by(caller: &Caller) -> BTreeMap<String, String> {
    BTreeMap::from([(labels::CREATED_BY.to_owned(), caller.identity.user.clone())])
}

fn agent_run_spec(submission: AgentRunSubmission, key: &str) -> Result<AgentRunSpec, Refusal> {
    let described = submission.implementation.is_some() || submission.implementation_spec_ref.is_some();
    let has_steps = submission
        .workflow
        .as_ref()
        .is_some_and(|workflow| !workflow.steps.is_empty());
    if let RuntimeType::Other(word) = &submission.runtime.type_ {
        return Err(Refusal::field("runtime.type", word, "there is no such runtime")
            .remedy("give workflow, job, temporal or custom"));
    }
    if submission.runtime.type_ == RuntimeType::Workflow && !has_steps {
        return Err(Refusal::missing("workflow.steps")
            .remedy("give at least one step: the runtime workflow is made of them"));
    }
    if !described && !has_steps {
        return Err(Refusal::missing("implementationSpecRef.name")
            .remedy("name an ImplementationSpec, or describe the work as `implementation`"));
    }
    Ok(AgentRunSpec {
        agent_ref: submission.agent_ref,
        implementation_spec_ref: submission.implementation_spec_ref,
        implementation: submission.implementation.map(|described| match described {
            Described::Inline(inline) => inline,
            Described::Plain(inline) => InlineImplementation { inline },
        }),
        runtime: submission.runtime,
        workflow: submission.workflow,
        workload: submission.workload,
        parameters: submission.parameters,
        secrets: submission.secrets,
        priority: submission.priority,
        idempotency_key: Some(key.to_owned()),
        system_prompt: None,
        system_prompt_ref: None,
        memory_ref: submission.memory_ref,
        vcs_ref: submission.vcs_ref,
        vcs_policy: submission.vcs_policy,
        ttl_seconds_after_finished: submission.ttl_seconds_after_finished,
        stop: jangar_api::cancel::CancelRequest::default(),
    })
}

/// The kind's own way of writing its spec is that of the whole object.
fn orchestration_run_json(spec: OrchestrationRunSpec) -> Result<Value, Refusal> {
    let run = OrchestrationRun::new("run", spec);
    let mut json = to_json(&run)?;
    Ok(json.get_mut("spec").map(Value::take).unwrap_or_default())
}

fn to_json(value: &impl serde::Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(value)
        .map_err(|error| Refusal::new(Trouble::BadRequest, format!("the run cannot be written: {error}")))
}

fn queue_is_full(full: &Full) -> Refusal {
    let Full { scope, in_use, limit } = full;
    Refusal::new(
        Trouble::TooMany,
        format!("the queue of {scope} is full: {in_use} runs wait, and the limit is {limit}"),
    )
    .remedy("submit again when some of them have started, or raise the limit of the queue")
    .details(json!({"scope": scope.word(), "waiting": in_use, "limit": limit}))
    .retry_after(QUEUE_RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_follows_from_namespace_agent_and_key_alone() {
        let name = run_name("a", "coder", "k");
        assert_eq!(name, run_name("a", "coder", "k"));
        assert!(name.starts_with("coder-") && name.len() <= 63, "{name}");
        for other in [
            ("b", "coder", "k"),
            ("a", "coder2", "k"),
            ("a", "coder", "k2"),
            ("a", "coderk", ""),
        ] {
            assert_ne!(name, run_name(other.0, other.1, other.2));
        }
        assert!(run_name("a", &"x".repeat(200), "k").len() <= 63);
        assert_ne!(
            run_name("a", &"x".repeat(200), "k"),
            run_name("a", &"x".repeat(200), "l")
        );
    }

    #[test]
    fn a_key_is_any_plain_text_of_a_bounded_length() {
        assert_eq!(
            checked_key("Idempotency-Key", Some(" ä b/c ")),
            Ok("ä b/c".to_owned())
        );
        for key in [None, Some(""), Some("  "), Some("a\nb")] {
            assert!(checked_key("Idempotency-Key", key).is_err(), "{key:?}");
        }
        assert!(checked_key("Idempotency-Key", Some(&"k".repeat(257))).is_err());
    }

    fn submission(change: &Value) -> Result<AgentRunSubmission, String> {
        let mut body = json!({
            "agentRef": {"name": "coder"}, "runtime": {"type": "job"},
            "implementation": {"text": "do it"},
        });
        for (field, value) in change.as_object().expect("an object") {
            body[field] = value.clone();
        }
        serde_json::from_value(body).map_err(|error| error.to_string())
    }

    #[test]
    fn work_may_be_described_with_and_without_the_word_inline() {
        for described in [json!({"text": "x"}), json!({"inline": {"text": "x"}})] {
            let submission = submission(&json!({"implementation": described})).expect("a submission");
            let spec = agent_run_spec(submission, "k").expect("a spec");
            assert_eq!(
                spec.implementation.map(|work| work.inline.text),
                Some("x".to_owned())
            );
            assert_eq!(spec.idempotency_key.as_deref(), Some("k"));
        }
    }

    #[test]
    fn what_cannot_be_run_is_told_before_anything_is_made() {
        let error = submission(&json!({"systemPrompt": "be nice"})).expect_err("it is not taken");
        assert!(error.contains("systemPrompt"), "{error}");
        let no_steps = submission(&json!({"runtime": {"type": "workflow"}})).expect("a submission");
        let refusal = agent_run_spec(no_steps, "k").expect_err("no steps");
        assert!(refusal.to_string().starts_with("workflow.steps"), "{refusal}");
        let unknown = submission(&json!({"runtime": {"type": "pigeon"}})).expect("a submission");
        let refusal = agent_run_spec(unknown, "k").expect_err("no such runtime");
        assert!(
            refusal.to_string().starts_with("runtime.type=`pigeon`"),
            "{refusal}"
        );
        let nothing = submission(&json!({"implementation": null})).expect("a submission");
        let refusal = agent_run_spec(nothing, "k").expect_err("no work");
        assert!(
            refusal.to_string().starts_with("implementationSpecRef.name"),
            "{refusal}"
        );
    }
}
