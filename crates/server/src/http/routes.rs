//! The one table of routes: what is served, what is counted, and what the OpenAPI document describes.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{approvals, audit, bodies, control_plane, memories, objects, runs, webhooks};
use crate::plane::{
    ControlPlane,
    approvals::Gates,
    status::StatusDocument,
    submit::{AgentRunSubmission, OrchestrationRunSubmission},
};

/// The methods that routes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }
}

/// What a good answer is. The type is what the handler writes beside `ok`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answered {
    /// 200.
    Told(Described),
    /// 201.
    Made(Described),
    /// 201, or 200 if it was made before with the same key.
    Once(Described),
    /// 200, or server-sent events if the request asks for them. The words say what these hold.
    ToldOrEvents(Described, &'static str),
    /// Server-sent events, and what they hold.
    Events(&'static str),
    /// JSON of another form, without the envelope.
    Document(&'static str),
    /// None, but this status.
    Never(u16),
}

/// Describes a type in the document.
pub(super) type Described = fn(&mut SchemaGenerator) -> Schema;

/// What server-sent events of changes hold.
const CHANGES: &str = "Each event has JSON as its data: {\"type\": \"resource\", kind, action (ADDED, MODIFIED or DELETED), namespace, name, resource} for \
                       an object; {\"type\": \"reset\", cut} before everything is told anew, and {\"type\": \"synced\"} after it; {\"type\": \"status\", \
                       status} for how the control plane is; {\"type\": \"error\", error} before the end if something is wrong.";
/// What server-sent events of a log hold.
const LINES: &str = "Each event has JSON as its data: {\"type\": \"log\", pod, container, stream, message, archived, cut, partial} for a line, from \
                     history with step and attempt; {\"type\": \"error\", error} if something is wrong; {\"type\": \"end\"} at the end.";

/// One route.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What programs call it.
    pub(super) id: &'static str,
    /// One sentence or two.
    pub(super) summary: &'static str,
    pub(super) query: Option<Described>,
    pub(super) body: Option<Described>,
    /// Whether it needs the header `Idempotency-Key`.
    pub(super) key: bool,
    pub(super) answer: Answered,
    /// Whether it needs no token.
    pub(super) anonymous: bool,
    pub(super) handler: fn() -> MethodRouter<Arc<ControlPlane>>,
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// All routes, in the order of the document.
pub(super) static ROUTES: &[Route] = &[
    Route {
        method: Method::Get,
        path: "/health",
        id: "health",
        summary: "Whether the program lives. It depends on nothing.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Alive>),
        anonymous: true,
        handler: || get(control_plane::health),
    },
    Route {
        method: Method::Get,
        path: "/ready",
        id: "ready",
        summary: "Whether requests can be answered, or what is missing.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Ready>),
        anonymous: true,
        handler: || get(control_plane::ready),
    },
    Route {
        method: Method::Get,
        path: "/openapi.json",
        id: "openapi",
        summary: "This document.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Document("An OpenAPI 3.1 document."),
        anonymous: false,
        handler: || get(control_plane::document),
    },
    Route {
        method: Method::Post,
        path: "/v1/agents",
        id: "applyAgent",
        summary: "Creates an Agent, or updates it.",
        query: None,
        body: Some(named::<objects::NewAgent>),
        key: true,
        answer: Answered::Made(named::<bodies::OneObject>),
        anonymous: false,
        handler: || post(objects::post_agent),
    },
    Route {
        method: Method::Get,
        path: "/v1/agents/{name}",
        id: "getAgent",
        summary: "One Agent.",
        query: Some(schema_of::<objects::InNamespace>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneObject>),
        anonymous: false,
        handler: || get(objects::get_agent),
    },
    Route {
        method: Method::Post,
        path: "/v1/agent-runs",
        id: "submitAgentRun",
        summary: "Creates an AgentRun, once for each key.",
        query: None,
        body: Some(named::<AgentRunSubmission>),
        key: true,
        answer: Answered::Once(named::<bodies::MadeAgentRun>),
        anonymous: false,
        handler: || post(runs::post_agent_run),
    },
    Route {
        method: Method::Get,
        path: "/v1/agent-runs",
        id: "listAgentRuns",
        summary: "AgentRuns in short, the newest first.",
        query: Some(schema_of::<runs::RunList>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::AgentRunPage>),
        anonymous: false,
        handler: || get(runs::list_agent_runs),
    },
    Route {
        method: Method::Get,
        path: "/v1/agent-runs/{id}",
        id: "getAgentRun",
        summary: "One AgentRun, by its UID or its name.",
        query: Some(schema_of::<runs::WhichRun>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneAgentRun>),
        anonymous: false,
        handler: || get(runs::get_agent_run),
    },
    Route {
        method: Method::Post,
        path: "/v1/orchestrations",
        id: "applyOrchestration",
        summary: "Creates an Orchestration, or updates it.",
        query: None,
        body: Some(named::<objects::NewOrchestration>),
        key: true,
        answer: Answered::Made(named::<bodies::OneObject>),
        anonymous: false,
        handler: || post(objects::post_orchestration),
    },
    Route {
        method: Method::Get,
        path: "/v1/orchestrations/{name}",
        id: "getOrchestration",
        summary: "One Orchestration.",
        query: Some(schema_of::<objects::InNamespace>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneObject>),
        anonymous: false,
        handler: || get(objects::get_orchestration),
    },
    Route {
        method: Method::Post,
        path: "/v1/orchestration-runs",
        id: "submitOrchestrationRun",
        summary: "Creates an OrchestrationRun, once for each key.",
        query: None,
        body: Some(named::<OrchestrationRunSubmission>),
        key: true,
        answer: Answered::Once(named::<bodies::MadeOrchestrationRun>),
        anonymous: false,
        handler: || post(runs::post_orchestration_run),
    },
    Route {
        method: Method::Get,
        path: "/v1/orchestration-runs",
        id: "listOrchestrationRuns",
        summary: "OrchestrationRuns in short, the newest first.",
        query: Some(schema_of::<runs::RunList>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OrchestrationRunPage>),
        anonymous: false,
        handler: || get(runs::list_orchestration_runs),
    },
    Route {
        method: Method::Get,
        path: "/v1/orchestration-runs/{id}",
        id: "getOrchestrationRun",
        summary: "One OrchestrationRun, by its UID or its name.",
        query: Some(schema_of::<runs::WhichRun>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneOrchestrationRun>),
        anonymous: false,
        handler: || get(runs::get_orchestration_run),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}",
        id: "getRun",
        summary: "A run of any kind, by its UID or its name.",
        query: Some(schema_of::<runs::WhichRun>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneRun>),
        anonymous: false,
        handler: || get(runs::get_run),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/explain",
        id: "explainRun",
        summary: "Why a run waits, or how it ended.",
        query: Some(schema_of::<runs::WhichRun>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Explained>),
        anonymous: false,
        handler: || get(runs::explain_run),
    },
    Route {
        method: Method::Post,
        path: "/v1/runs/{id}/cancel",
        id: "cancelRun",
        summary: "Asks a run to stop.",
        query: Some(schema_of::<runs::WhichRun>),
        body: Some(named::<runs::CancelBody>),
        key: false,
        answer: Answered::Told(named::<bodies::CancelledRun>),
        anonymous: false,
        handler: || post(runs::cancel_run),
    },
    Route {
        method: Method::Post,
        path: "/v1/runs/{id}/retry",
        id: "retryRun",
        summary: "Creates a run like one that has ended, once for each key.",
        query: Some(schema_of::<runs::WhichRun>),
        body: None,
        key: true,
        answer: Answered::Once(named::<bodies::MadeRun>),
        anonymous: false,
        handler: || post(runs::retry_run),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/logs",
        id: "runLogs",
        summary: "What a run wrote; with follow, what it writes, as server-sent events.",
        query: Some(schema_of::<runs::WhichLog>),
        body: None,
        key: false,
        answer: Answered::ToldOrEvents(named::<bodies::LogAnswer>, LINES),
        anonymous: false,
        handler: || get(runs::run_logs),
    },
    Route {
        method: Method::Get,
        path: "/v1/runs/{id}/events",
        id: "runEvents",
        summary: "The Events about a run.",
        query: Some(schema_of::<runs::WhichEvents>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::RunEvents>),
        anonymous: false,
        handler: || get(runs::run_events),
    },
    Route {
        method: Method::Post,
        path: "/v1/memories",
        id: "applyMemory",
        summary: "Creates a Memory, or updates it.",
        query: None,
        body: Some(named::<memories::NewMemory>),
        key: true,
        answer: Answered::Made(named::<bodies::OneMemory>),
        anonymous: false,
        handler: || post(memories::post),
    },
    Route {
        method: Method::Get,
        path: "/v1/memories/{name}",
        id: "getMemory",
        summary: "One Memory, without what its Secret holds.",
        query: Some(schema_of::<objects::InNamespace>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::OneMemory>),
        anonymous: false,
        handler: || get(memories::get),
    },
    Route {
        method: Method::Post,
        path: "/v1/memory-queries",
        id: "queryMemory",
        summary: "Not there in this version: answers 501.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Never(501),
        anonymous: false,
        handler: || post(memories::query),
    },
    Route {
        method: Method::Get,
        path: "/v1/audit",
        id: "listAudit",
        summary: "Who changed what through the control plane. Needs the right to get this path.",
        query: Some(schema_of::<audit::AuditList>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::AuditPage>),
        anonymous: false,
        handler: || get(audit::list),
    },
    Route {
        method: Method::Get,
        path: "/v1/approvals",
        id: "listApprovals",
        summary: "The gates that wait for a decision.",
        query: Some(schema_of::<approvals::GateList>),
        body: None,
        key: false,
        answer: Answered::Told(named::<Gates>),
        anonymous: false,
        handler: || get(approvals::list),
    },
    Route {
        method: Method::Post,
        path: "/v1/approvals/{namespace}/{run}/{step}/approve",
        id: "approve",
        summary: "Lets a run pass a gate.",
        query: None,
        body: Some(named::<approvals::DecisionBody>),
        key: false,
        answer: Answered::Told(named::<bodies::OneObject>),
        anonymous: false,
        handler: || post(approvals::approve),
    },
    Route {
        method: Method::Post,
        path: "/v1/approvals/{namespace}/{run}/{step}/reject",
        id: "reject",
        summary: "Closes a gate of a run for good.",
        query: None,
        body: Some(named::<approvals::DecisionBody>),
        key: false,
        answer: Answered::Told(named::<bodies::OneObject>),
        anonymous: false,
        handler: || post(approvals::reject),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/resources",
        id: "listResources",
        summary: "Objects of a kind, the newest first; with stream, as server-sent events.",
        query: Some(schema_of::<control_plane::ResourceList>),
        body: None,
        key: false,
        answer: Answered::ToldOrEvents(named::<bodies::ObjectPage>, CHANGES),
        anonymous: false,
        handler: || get(control_plane::resources),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/resource",
        id: "getResource",
        summary: "One object; with stream, as server-sent events.",
        query: Some(schema_of::<control_plane::OneResource>),
        body: None,
        key: false,
        answer: Answered::ToldOrEvents(named::<bodies::OneObject>, CHANGES),
        anonymous: false,
        handler: || get(control_plane::get_resource),
    },
    Route {
        method: Method::Post,
        path: "/api/agents/control-plane/resource",
        id: "applyResource",
        summary: "Creates an ImplementationSpec, or updates it.",
        query: None,
        body: Some(named::<control_plane::NewResource>),
        key: true,
        answer: Answered::Made(named::<bodies::OneObject>),
        anonymous: false,
        handler: || post(control_plane::post_resource),
    },
    Route {
        method: Method::Delete,
        path: "/api/agents/control-plane/resource",
        id: "deleteResource",
        summary: "Deletes an object of any kind.",
        query: Some(schema_of::<control_plane::OneResource>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::DeletedObject>),
        anonymous: false,
        handler: || delete(control_plane::delete_resource),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/events",
        id: "listEvents",
        summary: "The Events about an object.",
        query: Some(schema_of::<control_plane::EventList>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::ObjectEvents>),
        anonymous: false,
        handler: || get(control_plane::events),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/logs",
        id: "agentRunLogs",
        summary: "What an AgentRun wrote.",
        query: Some(schema_of::<control_plane::RunLog>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::LogAnswer>),
        anonymous: false,
        handler: || get(control_plane::logs),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/status",
        id: "controlPlaneStatus",
        summary: "How the control plane is.",
        query: Some(schema_of::<objects::InNamespace>),
        body: None,
        key: false,
        answer: Answered::Told(named::<StatusDocument>),
        anonymous: false,
        handler: || get(control_plane::status),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/summary",
        id: "summary",
        summary: "How many objects there are, and in which phases runs are.",
        query: Some(schema_of::<objects::InNamespace>),
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Summary>),
        anonymous: false,
        handler: || get(control_plane::summary),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/control-plane/stream",
        id: "stream",
        summary: "Changes as they happen, as server-sent events.",
        query: Some(schema_of::<control_plane::ChangeStream>),
        body: None,
        key: false,
        answer: Answered::Events(CHANGES),
        anonymous: false,
        handler: || get(control_plane::stream),
    },
    Route {
        method: Method::Get,
        path: "/api/agents/events",
        id: "agentMessages",
        summary: "Not there any more: answers 410 and says what is.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Never(410),
        anonymous: false,
        handler: || get(control_plane::agent_messages),
    },
    Route {
        method: Method::Post,
        path: "/api/agents/implementation-sources/webhooks/github",
        id: "githubWebhook",
        summary: "Takes a delivery of GitHub. X-Hub-Signature-256 has to be the HMAC-SHA-256 of the body.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Delivered>),
        anonymous: true,
        handler: || post(webhooks::github),
    },
    Route {
        method: Method::Post,
        path: "/api/agents/implementation-sources/webhooks/linear",
        id: "linearWebhook",
        summary: "Takes a delivery of Linear. Linear-Signature has to be the HMAC-SHA-256 of the body.",
        query: None,
        body: None,
        key: false,
        answer: Answered::Told(named::<bodies::Delivered>),
        anonymous: true,
        handler: || post(webhooks::linear),
    },
];

/// The method and the route of a request as metrics name them: words of the table, or none.
pub(super) fn known(method: &http::Method, path: Option<&str>) -> (&'static str, &'static str) {
    let method = match method.as_str() {
        "GET" => "get",
        "POST" => "post",
        "DELETE" => "delete",
        _ => "other",
    };
    let route = path.and_then(|path| ROUTES.iter().find(|route| route.path == path));
    (method, route.map_or("other", |route| route.path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_probes_and_webhooks_need_no_token() {
        let anonymous: Vec<&str> = ROUTES
            .iter()
            .filter(|route| route.anonymous)
            .map(|route| route.path)
            .collect();
        assert_eq!(
            anonymous,
            [
                "/health",
                "/ready",
                "/api/agents/implementation-sources/webhooks/github",
                "/api/agents/implementation-sources/webhooks/linear",
            ]
        );
    }

    #[test]
    fn no_route_or_id_is_there_twice() {
        let ids: BTreeSet<&str> = ROUTES.iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), ROUTES.len());
        let addresses: BTreeSet<(&str, &str)> = ROUTES
            .iter()
            .map(|route| (route.method.word(), route.path))
            .collect();
        assert_eq!(addresses.len(), ROUTES.len());
    }
}
