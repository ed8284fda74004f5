//! Why a run waits, or how it ended: what the engine says of it, with what the caches show around it, or with what history has of
//! the runs of its steps.

use jangar_api::{
    Kind, agents::agent_run::AgentRun, approvals::ApprovalPolicy, labels,
    orchestration::orchestration_run::OrchestrationRun, tools::ToolRun,
};
use jangar_engine::{
    explain::{Context, Explanation, Subject, counts_all_namespaces, explain, explain_gone, stands_in_line},
    settings::Namespaces,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Caller, ControlPlane, runs::Run};
use crate::{
    access::Question,
    refusal::{Refusal, Trouble},
    world::{Filter, Selector, text},
};

/// Objects of one kind and phase that are looked at. Of a longer line no place is told: those who came first are not among the newest.
const AROUND_MAX: usize = 2_000;
/// And so many of all namespaces together, about.
const LINE_MAX: usize = 5 * AROUND_MAX;
/// All namespaces, as a question about rights has them.
const EVERYWHERE: &str = "";
/// Where a run stands that has not ended: it may hold a slot, or wait for one.
const UNDER_WAY: [&str; 3] = ["Pending", "Running", "Cancelling"];
const ENDED: [&str; 3] = ["Succeeded", "Failed", "Cancelled"];

/// What is known beside a run.
#[derive(Default)]
struct Around {
    agent_runs: Vec<AgentRun>,
    /// Whether more of them wait or work.
    more_agent_runs: bool,
    tool_runs: Vec<ToolRun>,
    orchestration_runs: Vec<OrchestrationRun>,
    policies: Vec<ApprovalPolicy>,
    /// How many runs of steps history was asked for, if it has more.
    only: Option<usize>,
}

impl Around {
    fn context(&self) -> Context<'_> {
        Context {
            agent_runs: self.agent_runs.iter().collect(),
            more_agent_runs: self.more_agent_runs,
            tool_runs: self.tool_runs.iter().collect(),
            orchestration_runs: self.orchestration_runs.iter().collect(),
            policies: self.policies.iter().collect(),
            position: None,
        }
    }
}

/// The newest objects of a kind.
struct Newest<T> {
    items: Vec<T>,
    /// Whether there are older ones.
    more: bool,
}

/// A run, read.
enum Legible {
    Agent(Box<AgentRun>),
    Tool(Box<ToolRun>),
    Orchestration(Box<OrchestrationRun>),
}

impl Legible {
    fn subject(&self) -> Subject<'_> {
        match self {
            Self::Agent(run) => Subject::AgentRun(run),
            Self::Tool(run) => Subject::ToolRun(run),
            Self::Orchestration(run) => Subject::OrchestrationRun(run),
        }
    }
}

impl ControlPlane {
    /// Why the run stands where it does, or how it ended.
    pub async fn explain(&self, caller: &Caller, run: &Run) -> Result<Explanation, Refusal> {
        let document = run.document();
        let legible = match run.kind() {
            Kind::OrchestrationRun => Legible::Orchestration(readable(document)?),
            Kind::ToolRun => Legible::Tool(readable(document)?),
            _ => Legible::Agent(readable(document)?),
        };
        match run {
            Run::Live(object) => {
                let around = match &legible {
                    Legible::Agent(run) if stands_in_line(run) => {
                        self.line(caller, run, &object.namespace).await?
                    }
                    _ => self.around(caller, object.kind, &object.namespace).await?,
                };
                Ok(explain(legible.subject(), &around.context(), self.now()))
            }
            Run::Archived {
                kind, document, at, ..
            } => {
                let around = match kind {
                    Kind::OrchestrationRun => self.remembered(caller, document).await?,
                    _ => Around::default(),
                };
                let mut explanation = explain_gone(legible.subject(), &around.context(), *at);
                if let Some(only) = around.only {
                    explanation.because.push(format!(
                        "of the runs of its steps only {only} were looked at, those that failed first: there are more"
                    ));
                }
                Ok(explanation)
            }
        }
    }

    /// Who stands in line with a run and who holds slots, in all namespaces that are looked after, as far as the caller may list
    /// them. Who sees a part of a line that goes through all of them is told no place in it.
    async fn line(&self, caller: &Caller, run: &AgentRun, namespace: &str) -> Result<Around, Refusal> {
        let mut around = Around::default();
        let places = match self.world.namespaces() {
            Namespaces::All => vec![EVERYWHERE.to_owned()],
            Namespaces::These(these) => these.iter().cloned().collect(),
        };
        let mut seen = Vec::new();
        for place in &places {
            if self.may_list(caller, Kind::AgentRun, place).await? {
                seen.push(place.clone());
            }
        }
        let sees_own = seen.iter().any(|place| place == EVERYWHERE || place == namespace);
        around.more_agent_runs = !sees_own || (seen.len() < places.len() && counts_all_namespaces(run));
        if seen.is_empty() {
            seen.push(namespace.to_owned());
        }
        for place in seen {
            if around.agent_runs.len() > LINE_MAX {
                around.more_agent_runs = true;
                break;
            }
            for phase in UNDER_WAY {
                let filter = of_phase(phase, Selector::default());
                let runs = self.listed(caller, Kind::AgentRun, &place, filter).await?;
                around.more_agent_runs |= runs.more;
                around.agent_runs.extend(runs.items);
            }
            // Whose turn it is next hangs on who had one last, which may be over.
            for phase in ENDED {
                let filter = of_phase(phase, Selector::default());
                let runs = self.listed(caller, Kind::AgentRun, &place, filter).await?;
                around.agent_runs.extend(runs.items);
            }
        }
        Ok(around)
    }

    /// What is there beside a run of this kind, as far as the caller may list it: the answer names nothing that they may not see.
    async fn around(&self, caller: &Caller, kind: Kind, namespace: &str) -> Result<Around, Refusal> {
        let mut around = Around::default();
        if kind == Kind::ToolRun {
            return Ok(around);
        }
        for phase in UNDER_WAY {
            let filter = of_phase(phase, Selector::default());
            let runs = self.listed(caller, Kind::AgentRun, namespace, filter).await?;
            around.more_agent_runs |= runs.more;
            around.agent_runs.extend(runs.items);
        }
        if kind != Kind::OrchestrationRun {
            return Ok(around);
        }
        // Only steps of orchestrations have other runs do their work, and wait at gates.
        let children = Selector::parse("labelSelector", labels::ORCHESTRATION_RUN)?;
        for phase in ENDED {
            let filter = of_phase(phase, children.clone());
            let runs = self.listed(caller, Kind::AgentRun, namespace, filter).await?;
            around.agent_runs.extend(runs.items);
        }
        let of_steps = || Filter {
            selector: children.clone(),
            ..Filter::default()
        };
        around.tool_runs = self
            .listed(caller, Kind::ToolRun, namespace, of_steps())
            .await?
            .items;
        around.orchestration_runs = self
            .listed(caller, Kind::OrchestrationRun, namespace, of_steps())
            .await?
            .items;
        around.policies = self
            .listed(caller, Kind::ApprovalPolicy, namespace, Filter::default())
            .await?
            .items;
        Ok(around)
    }

    async fn listed<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        filter: Filter,
    ) -> Result<Newest<T>, Refusal> {
        if !self.may_list(caller, kind, namespace).await? {
            return Ok(Newest {
                items: Vec::new(),
                more: false,
            });
        }
        let filter = Filter {
            namespace: Some(namespace.to_owned()).filter(|namespace| namespace != EVERYWHERE),
            ..filter
        };
        let objects = self.world.list(kind, &filter, None, AROUND_MAX + 1);
        // One that cannot be read says nothing about another.
        let read = |json: &Value| serde_json::from_value(json.clone()).ok();
        Ok(Newest {
            items: objects
                .iter()
                .take(AROUND_MAX)
                .filter_map(|object| read(&object.json))
                .collect(),
            more: objects.len() > AROUND_MAX,
        })
    }

    async fn may_list(&self, caller: &Caller, kind: Kind, namespace: &str) -> Result<bool, Refusal> {
        let question = Question::list(kind, namespace);
        self.gatekeeper.may(&caller.identity, &question).await
    }

    /// What history has of the runs of the steps of a run that is gone, as far as the caller may list such runs.
    async fn remembered(&self, caller: &Caller, document: &Value) -> Result<Around, Refusal> {
        let mut around = Around::default();
        let uid = text(document, "/metadata/uid").unwrap_or_default();
        let namespace = text(document, "/metadata/namespace").unwrap_or_default();
        let Some(history) = &self.history else {
            return Ok(around);
        };
        let children = history.children(&namespace, &uid).await;
        let children = children.map_err(|error| error.refusal("the run is gone from the cluster"))?;
        let agents = self.may_list(caller, Kind::AgentRun, &namespace).await?;
        let tools = self.may_list(caller, Kind::ToolRun, &namespace).await?;
        let orchestrations = self.may_list(caller, Kind::OrchestrationRun, &namespace).await?;
        around.only = children.more.then_some(children.runs.len());
        for child in children.runs {
            // One that cannot be read says nothing about another.
            match text(&child.document, "/kind").as_deref() {
                Some("AgentRun") if agents => {
                    let run: Option<AgentRun> = serde_json::from_value(child.document).ok();
                    around.agent_runs.extend(run);
                }
                Some("ToolRun") if tools => {
                    let run: Option<ToolRun> = serde_json::from_value(child.document).ok();
                    around.tool_runs.extend(run);
                }
                Some("OrchestrationRun") if orchestrations => {
                    let run: Option<OrchestrationRun> = serde_json::from_value(child.document).ok();
                    around.orchestration_runs.extend(run);
                }
                _ => {}
            }
        }
        Ok(around)
    }
}

fn of_phase(phase: &str, selector: Selector) -> Filter {
    Filter {
        phase: Some(phase.to_owned()),
        selector,
        ..Filter::default()
    }
}

fn readable<T: DeserializeOwned>(document: &Value) -> Result<T, Refusal> {
    serde_json::from_value(document.clone()).map_err(|error| {
        Refusal::new(Trouble::Conflict, format!("the run cannot be read: {error}"))
            .remedy("mend the field that is named, or delete the run")
    })
}
