//! Real answers held against the OpenAPI document: what is said there is what comes.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use jangar_api::Kind;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    approvals, history,
    stage::{NAMESPACE, Stage, agent, agent_run, call, request},
};

/// What needs a pod, a forge or a stream; their bodies are types like the others.
const NOT_ASKED: [&str; 4] = ["agentRunLogs", "githubWebhook", "linearWebhook", "stream"];

/// As much of JSON Schema as the document uses.
struct Checker<'a>(&'a Value);

impl Checker<'_> {
    fn resolved<'s>(&'s self, schema: &'s Value) -> &'s Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.0.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        }
    }

    /// What is wrong with a value.
    fn check(&self, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
        let schema = self.resolved(schema);
        let part = |word: &str| schema.get(word);
        if let Some(kinds) = part("type") {
            let is = |kind: &str| match kind {
                "null" => value.is_null(),
                "boolean" => value.is_boolean(),
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                // A type that is not known here fits nothing, so that it is told.
                _ => false,
            };
            let kinds: Vec<&str> = match kinds {
                Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                kind => kind.as_str().into_iter().collect(),
            };
            if !kinds.iter().any(|kind| is(kind)) {
                wrong.push(format!("{at}: {value} is none of {kinds:?}"));
            }
        }
        if part("const").is_some_and(|only| only != value) {
            wrong.push(format!("{at}: {value} is another constant"));
        }
        if part("enum").is_some_and(|words| !words.as_array().unwrap().contains(value)) {
            wrong.push(format!("{at}: {value} is none of the words"));
        }
        for each in part("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.check(each, value, at, wrong);
        }
        for word in ["anyOf", "oneOf"] {
            let Some(choices) = part(word).and_then(Value::as_array) else {
                continue;
            };
            let fits = choices.iter().any(|choice| {
                let mut found = Vec::new();
                self.check(choice, value, at, &mut found);
                found.is_empty()
            });
            if !fits {
                wrong.push(format!("{at}: {value} fits none of {choices:?}"));
            }
        }
        if let Some(fields) = value.as_object() {
            for field in part("required").and_then(Value::as_array).into_iter().flatten() {
                if !fields.contains_key(field.as_str().unwrap()) {
                    wrong.push(format!("{at}: {field} is not there"));
                }
            }
            for (name, value) in fields {
                let known = schema.pointer(&format!("/properties/{name}"));
                let other = part("additionalProperties").filter(|other| other.is_object());
                if let Some(schema) = known.or(other) {
                    self.check(schema, value, &format!("{at}.{name}"), wrong);
                }
            }
        }
        for (number, item) in value.as_array().into_iter().flatten().enumerate() {
            if let Some(schema) = part("items") {
                self.check(schema, item, &format!("{at}[{number}]"), wrong);
            }
        }
    }

    /// The fields that a schema names.
    fn fields(&self, schema: &Value) -> BTreeSet<String> {
        let schema = self.resolved(schema);
        let own = schema.get("properties").and_then(Value::as_object);
        let mut fields: BTreeSet<String> = own.into_iter().flatten().map(|(name, _)| name.clone()).collect();
        for word in ["allOf", "anyOf", "oneOf"] {
            for each in schema.get(word).and_then(Value::as_array).into_iter().flatten() {
                fields.extend(self.fields(each));
            }
        }
        fields
    }
}

/// What a refusal is, with everything that it says named by the document.
fn check_refusal(document: &Value, route: &str, method: &Method, status: StatusCode, answer: &Value) {
    let operation = &document["paths"][route][&method.as_str().to_lowercase()];
    let id = operation["operationId"].as_str().unwrap();
    let responses = &operation["responses"];
    let response = responses.get(status.as_str()).unwrap_or(&responses["default"]);
    let schema = &response["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/Refusal", "{id} {status}");
    let checker = Checker(document);
    let mut wrong = Vec::new();
    checker.check(schema, answer, id, &mut wrong);
    assert!(wrong.is_empty(), "{id} {status}: {wrong:#?}");
    let details = checker.resolved(schema).pointer("/properties/details").unwrap();
    for (schema, told) in [(schema, answer), (details, &answer["details"])] {
        let known = checker.fields(schema);
        let unsaid: Vec<&String> = told
            .as_object()
            .into_iter()
            .flat_map(|told| told.keys())
            .filter(|field| !known.contains(*field))
            .collect();
        assert!(
            unsaid.is_empty(),
            "{id} {status} tells {unsaid:?}, which the document does not"
        );
    }
}

/// Asks, and holds the answer against the document.
struct Asking<'a> {
    stage: &'a Stage,
    document: Value,
    asked: BTreeSet<String>,
}

impl Asking<'_> {
    async fn send(
        &mut self,
        user: &str,
        method: Method,
        route: &str,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let key = (method == Method::POST).then_some(path);
        let word = method.as_str().to_lowercase();
        let (status, answer) = call(&self.stage.http, request(method, user, path, key, body)).await;
        let operation = &self.document["paths"][route][&word];
        let id = operation["operationId"].as_str().unwrap();
        let response = operation["responses"].get(status.as_str());
        assert!(
            response.is_some(),
            "{id} does not say that it answers {status}: {answer}"
        );
        let response = response.unwrap();
        let schema = &response["content"]["application/json"]["schema"];
        let checker = Checker(&self.document);
        let mut wrong = Vec::new();
        checker.check(schema, &answer, id, &mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
        let known = checker.fields(schema);
        if !known.is_empty() {
            let told: BTreeSet<String> = answer.as_object().unwrap().keys().cloned().collect();
            let unsaid: Vec<&String> = told.difference(&known).collect();
            assert!(
                unsaid.is_empty(),
                "{id} tells {unsaid:?}, which the document does not"
            );
        }
        self.asked.insert(id.to_owned());
        (status, answer)
    }

    async fn get(&mut self, user: &str, route: &str, path: &str) -> Value {
        self.send(user, Method::GET, route, path, None).await.1
    }

    async fn post(&mut self, user: &str, path: &str, body: Value) -> Value {
        self.send(user, Method::POST, path, path, Some(body)).await.1
    }
}

async fn asking(stage: &Stage) -> Asking<'_> {
    let (status, document) = stage.get("reader", "/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    Asking {
        stage,
        document,
        asked: BTreeSet::from(["openapi".to_owned()]),
    }
}

async fn objects(asking: &mut Asking<'_>) {
    let here = "namespace=agents";
    asking.get("", "/health", "/health").await;
    asking.get("", "/ready", "/ready").await;
    let agent = json!({"name": "coder", "namespace": NAMESPACE, "spec": {"providerRef": {"name": "p"}}});
    asking.post("submitter", "/v1/agents", agent).await;
    let memory = json!({"name": "m", "namespace": NAMESPACE,
                        "spec": {"type": "postgres", "connection": {"secretRef": {"name": "db"}}}});
    asking.post("submitter", "/v1/memories", memory).await;
    let steps = json!([{"name": "only", "kind": "Checkpoint"}]);
    let orchestration = json!({"name": "o", "namespace": NAMESPACE, "spec": {"steps": steps}});
    asking
        .post("submitter", "/v1/orchestrations", orchestration)
        .await;
    let resource = "/api/agents/control-plane/resource";
    let spec =
        json!({"kind": "ImplementationSpec", "namespace": NAMESPACE, "name": "work", "spec": {"text": "x"}});
    asking.post("submitter", resource, spec).await;
    asking.post("submitter", "/v1/memory-queries", json!({})).await;
    asking
        .get("reader", "/api/agents/events", "/api/agents/events")
        .await;
    for (route, name) in [
        ("/v1/agents/{name}", "coder"),
        ("/v1/memories/{name}", "m"),
        ("/v1/orchestrations/{name}", "o"),
    ] {
        let path = format!("{}?{here}", route.replace("{name}", name));
        asking.get("reader", route, &path).await;
    }
    let events: Api<Event> = Api::namespaced(asking.stage.admin.clone(), NAMESPACE);
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "e", "namespace": NAMESPACE}, "reason": "Happened", "message": "it did", "type": "Normal",
        "involvedObject": {"kind": "Agent", "name": "coder", "namespace": NAMESPACE},
        "firstTimestamp": "2026-03-01T12:00:00Z", "lastTimestamp": "2026-03-01T12:00:01Z", "count": 2,
    }))
    .unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();
    let control_plane = "/api/agents/control-plane";
    for (route, query) in [
        ("resources", "kind=Agent&limit=1"),
        ("resource", "kind=Agent&name=coder"),
        ("events", "kind=Agent&name=coder"),
        ("status", ""),
        ("summary", ""),
    ] {
        let route = format!("{control_plane}/{route}");
        asking
            .get("reader", &route, &format!("{route}?{here}&{query}"))
            .await;
    }
    let path = format!("{resource}?{here}&kind=ImplementationSpec&name=work");
    asking
        .send("submitter", Method::DELETE, resource, &path, None)
        .await;
}

async fn runs(asking: &mut Asking<'_>) {
    let run = json!({"agentRef": {"name": "coder"}, "namespace": NAMESPACE, "runtime": {"type": "job"},
                     "implementation": {"text": "do it"}});
    let made = asking.post("submitter", "/v1/agent-runs", run.clone()).await;
    let again = asking
        .send(
            "submitter",
            Method::POST,
            "/v1/agent-runs",
            "/v1/agent-runs",
            Some(run),
        )
        .await;
    assert_eq!(again.0, StatusCode::OK, "{}", again.1);
    let new = json!({"orchestrationRef": {"name": "o"}, "namespace": NAMESPACE});
    let orchestrated = asking.post("submitter", "/v1/orchestration-runs", new).await;
    let (run, other) = (&made["agentRun"]["id"], &orchestrated["orchestrationRun"]["id"]);
    let (run, other) = (run.as_str().unwrap(), other.as_str().unwrap());
    let world = &asking.stage.plane.world;
    let seen = || {
        world.by_uid(Kind::AgentRun, run).is_some() && world.by_uid(Kind::OrchestrationRun, other).is_some()
    };
    asking.stage.eventually(seen).await;
    for route in ["/v1/agent-runs", "/v1/orchestration-runs"] {
        asking
            .get("reader", route, &format!("{route}?namespace=agents"))
            .await;
    }
    for (route, id) in [
        ("/v1/agent-runs/{id}", run),
        ("/v1/orchestration-runs/{id}", other),
        ("/v1/runs/{id}", run),
        ("/v1/runs/{id}/explain", run),
        ("/v1/runs/{id}/events", run),
    ] {
        asking.get("reader", route, &route.replace("{id}", id)).await;
    }
    let (cancel, path) = ("/v1/runs/{id}/cancel", format!("/v1/runs/{run}/cancel"));
    asking.send("submitter", Method::POST, cancel, &path, None).await;
    let mut failed = agent_run("failed");
    failed["status"] = json!({"phase": "Failed"});
    asking.stage.create(Kind::AgentRun, NAMESPACE, failed).await;
    let (retry, path) = ("/v1/runs/{id}/retry", "/v1/runs/failed/retry?namespace=agents");
    asking.send("submitter", Method::POST, retry, path, None).await;
}

async fn gates(asking: &mut Asking<'_>) {
    let list = asking
        .get("reader", "/v1/approvals", "/v1/approvals?namespace=agents")
        .await;
    assert_eq!(list["approvals"].as_array().unwrap().len(), 1);
    for word in ["approve", "reject"] {
        let route = format!("/v1/approvals/{{namespace}}/{{run}}/{{step}}/{word}");
        let path = format!("/v1/approvals/agents/r/gate/{word}");
        let body = Some(json!({"digest": "d1"}));
        asking.send("approver", Method::POST, &route, &path, body).await;
    }
}

#[tokio::test]
async fn refusals_are_as_the_document_says() {
    let (_directory, store) = history::store();
    history::remember(&store, &history::gone("AgentRun", "fix", "Failed", &json!({}))).await;
    let stage = Stage::remembering(&store).await;
    stage.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let (_, document) = stage.get("reader", "/openapi.json").await;
    let run = |agent: &str, text: &str| {
        json!({"agentRef": {"name": agent}, "namespace": NAMESPACE, "runtime": {"type": "job"},
               "implementation": {"text": text}})
    };
    let huge = run("coder", &"a".repeat(1024 * 1024));
    let (runs, one) = ("/v1/agent-runs", "/v1/runs/{id}");
    let mut seen = BTreeSet::new();
    for (user, method, route, path, body, expected) in [
        (
            "submitter",
            Method::POST,
            runs,
            runs,
            Some(json!({"agentReff": {}})),
            400,
        ),
        ("reader", Method::GET, runs, "/v1/agent-runs?limit=501", None, 400),
        ("", Method::GET, runs, runs, None, 401),
        ("nobody", Method::GET, runs, runs, None, 401),
        (
            "reader",
            Method::POST,
            runs,
            runs,
            Some(run("coder", "do it")),
            403,
        ),
        ("reader", Method::GET, one, "/v1/runs/nowhere", None, 404),
        (
            "reader",
            Method::GET,
            runs,
            "/v1/agent-runs?namespace=hidden",
            None,
            404,
        ),
        (
            "submitter",
            Method::POST,
            "/v1/runs/{id}/cancel",
            "/v1/runs/uid-fix/cancel",
            None,
            409,
        ),
        (
            "submitter",
            Method::POST,
            "/v1/runs/{id}/retry",
            "/v1/runs/uid-fix/retry",
            None,
            409,
        ),
        ("submitter", Method::POST, runs, runs, Some(huge), 413),
    ] {
        let key = (method == Method::POST).then_some(path);
        let asked = request(method.clone(), user, path, key, body);
        let (status, answer) = call(&stage.http, asked).await;
        assert_eq!(status.as_u16(), expected, "{path}: {answer}");
        check_refusal(&document, route, &method, status, &answer);
        seen.insert(expected);
    }
    assert_eq!(seen, BTreeSet::from([400, 401, 403, 404, 409, 413]));

    let full = Stage::with(|settings| settings.limits.queue.namespace = Some(1)).await;
    full.create(Kind::Agent, NAMESPACE, agent("coder")).await;
    let work = run("coder", "do it");
    let (status, answer) = full.post("submitter", runs, Some("one"), work.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    full.eventually(|| full.plane.world.waiting().len() == 1).await;
    let (status, answer) = full.post("submitter", runs, Some("two"), work).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    check_refusal(&document, runs, &Method::POST, status, &answer);

    store.close().await;
    let (status, answer) = stage.get("reader", "/v1/runs/uid-fix").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    check_refusal(&document, one, &Method::GET, status, &answer);
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let gated = approvals::stage().await;
    let mut asking_gates = asking(&gated).await;
    gates(&mut asking_gates).await;
    let mut asked = asking_gates.asked;

    let (_directory, store) = history::store();
    let steps = json!({"/status/workflow": {"steps": [{"name": "build", "phase": "Succeeded"}]}});
    history::remember(&store, &history::gone("AgentRun", "fix", "Failed", &steps)).await;
    history::log(&store, "fix", 1, "the end\n").await;
    let stage = Stage::remembering(&store).await;
    stage.create(Kind::Agent, NAMESPACE, agent("other")).await;
    let mut asking = asking(&stage).await;
    objects(&mut asking).await;
    runs(&mut asking).await;
    let past = asking.get("reader", "/v1/runs/{id}", "/v1/runs/uid-fix").await;
    assert!(
        !past["history"]["transitions"].as_array().unwrap().is_empty(),
        "{past}"
    );
    assert!(!past["history"]["logs"].as_array().unwrap().is_empty(), "{past}");
    let archived = "/v1/agent-runs?namespace=agents&archived=true";
    let list = asking.get("reader", "/v1/agent-runs", archived).await;
    assert_eq!(list["agentRuns"].as_array().unwrap().len(), 1, "{list}");
    asking
        .get("reader", "/v1/runs/{id}/logs", "/v1/runs/uid-fix/logs")
        .await;
    stage.plane.settled().await;
    let audit = asking.get("admin", "/v1/audit", "/v1/audit?limit=5").await;
    assert!(!audit["entries"].as_array().unwrap().is_empty(), "{audit}");
    asked.extend(asking.asked);

    asked.extend(NOT_ASKED.map(str::to_owned));
    let paths = asking.document["paths"].as_object().unwrap();
    let all: BTreeSet<String> = paths
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(asked, all);
}
