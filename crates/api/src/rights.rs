//! What people do with Jangar, as the rights in Kubernetes that it takes.

/// A right, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Right {
    pub group: &'static str,
    pub resource: &'static str,
    /// Empty: the resource itself.
    pub subresource: &'static str,
    pub verb: &'static str,
    /// What it takes the right to do, in words.
    pub purpose: &'static str,
}

impl Right {
    const fn on(
        group: &'static str,
        resource: &'static str,
        verb: &'static str,
        purpose: &'static str,
    ) -> Self {
        Self {
            group,
            resource,
            subresource: "",
            verb,
            purpose,
        }
    }

    const fn below(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    /// The resource as roles name it.
    pub fn named(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

const AGENTS: &str = "agents.proompteng.ai";
const ORCHESTRATION: &str = "orchestration.proompteng.ai";

/// What it takes to submit, follow and stop runs, with the control plane and without.
pub const FOR_RUNS: &[Right] = &[
    Right::on(AGENTS, "agentruns", "create", "submit runs"),
    Right::on(AGENTS, "agentruns", "list", "list runs"),
    Right::on(AGENTS, "agentruns", "watch", "wait for runs"),
    Right::on(AGENTS, "agentruns", "patch", "cancel runs"),
    Right::on(
        ORCHESTRATION,
        "orchestrationruns",
        "create",
        "submit runs of orchestrations",
    ),
    Right::on(
        ORCHESTRATION,
        "orchestrationruns",
        "patch",
        "cancel runs of orchestrations",
    ),
    Right::on("", "pods", "list", "find the pods of runs"),
    Right::on("", "pods", "get", "read logs").below("log"),
    Right::on("", "events", "list", "describe runs with their events"),
];

/// What it takes to decide gates through the control plane, which writes the decision.
pub const TO_APPROVE: Right = Right::on(ORCHESTRATION, "orchestrationruns", "approve", "approve gates");

/// What it takes to decide gates where there is no control plane.
pub const TO_APPROVE_ALONE: Right = Right::on(
    ORCHESTRATION,
    "orchestrationruns",
    "patch",
    "approve gates without the control plane",
)
.below("status");
