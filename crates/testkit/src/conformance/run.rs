//! Plays a script against a server and writes down what it says.

use std::{collections::BTreeMap, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use http::{Request as HttpRequest, Response, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::Value;

use super::{
    Answer,
    mask::Mask,
    script::{Action, Condition, Focus, Request, Script, Step},
    widgets,
};

/// How the groups of all kinds end that the corpus brings along.
pub const GROUPS: &str = ".conformance.test";
/// No wait for an answer is longer; what the corpus waits for takes a few seconds on a real cluster.
const LIMIT: Duration = Duration::from_secs(90);
/// How often a server is asked for something that cannot be watched, such as whether it serves a kind yet.
const PACE: Duration = Duration::from_millis(100);
/// How deep variables may stand in variables.
const DEPTH: usize = 4;
/// Writes that name no manager are put down to the first word of this.
const AGENT: &str = "conformance/1";

#[derive(Debug, thiserror::Error)]
#[error("{area}: {title:?}: {what}")]
pub struct RunError {
    area: String,
    title: String,
    what: String,
    /// What was answered before, and to the request that did not get what it waited for.
    pub answers: Vec<Answer>,
}

/// Plays the script in a namespace and a group of its own, made from `run`, and returns the answers, hidden behind a mask.
pub async fn play(client: &Client, script: &Script, run: &str) -> Result<Vec<Answer>, RunError> {
    let mut player = Player::new(client, script, run);
    let mut answers = Vec::new();
    let mut outcome = player
        .prepare(script.needs_kind)
        .await
        .map_err(|what| ("its preparation", what));
    if outcome.is_ok() {
        for step in &script.steps {
            match player.step(step).await {
                Ok(answer) => answers.push(answer),
                Err(what) => {
                    answers.extend(player.unwanted.take().map(|answer| player.told(step, answer)));
                    outcome = Err((step.title.as_str(), what));
                    break;
                }
            }
        }
    }
    // What is left goes in the background. It is in nobody's way, so that it need not be waited for.
    player.leave().await;
    match outcome {
        Ok(()) => Ok(answers),
        Err((title, what)) => Err(RunError {
            area: script.area.clone(),
            title: title.to_owned(),
            what,
            answers,
        }),
    }
}

struct Player<'a> {
    client: &'a Client,
    variables: BTreeMap<String, String>,
    mask: Mask,
    watches: BTreeMap<String, BoxStream<'static, Result<Bytes, String>>>,
    /// The last answer to a request that waited for another one in vain, or the events of a watch that waited for more.
    unwanted: Option<Answer>,
}

impl<'a> Player<'a> {
    fn new(client: &'a Client, script: &Script, run: &str) -> Self {
        let mut variables = script.variables.clone();
        let mut mask = Mask::default();
        let own = [
            ("namespace", format!("conformance-{run}")),
            ("group", format!("g{run}{GROUPS}")),
            // As OpenAPI writes the group: in names of schemas, of operations and of tags.
            ("reversed", format!("test.conformance.g{run}")),
            ("Camel", format!("G{run}ConformanceTest")),
            ("camel", format!("g{run}ConformanceTest")),
            // What is left of the group where a message was cut.
            ("start", format!("g{run}")),
        ];
        for (name, value) in own {
            mask.own(name, &value);
            variables.insert(name.to_owned(), value);
        }
        Self {
            client,
            variables,
            mask,
            watches: BTreeMap::new(),
            unwanted: None,
        }
    }

    /// A namespace in which pods may be created and, if need be, the kind that most of the corpus is about.
    async fn prepare(&mut self, needs_kind: bool) -> Result<(), String> {
        let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{namespace}}"}}"#;
        self.must("POST", "/api/v1/namespaces", namespace, 201).await?;
        let account = "/api/v1/namespaces/{{namespace}}/serviceaccounts/default";
        self.until("GET", account, &[], "", &[Condition::Status(200)])
            .await?;
        if !needs_kind {
            return Ok(());
        }
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.must("POST", definitions, widgets(), 201).await?;
        let list = "/apis/{{group}}/v1/namespaces/{{namespace}}/widgets";
        let served = self.until("GET", list, &[], "", &[Condition::Status(200)]);
        served.await.map(|_| ())
    }

    /// The kind stays until all is played: the garbage collector of a real cluster stands still while kinds go.
    async fn leave(&mut self) {
        self.watches.clear();
        // It may be gone already, and if it cannot be deleted, the script has failed for the same reason.
        let _ = self
            .send("DELETE", "/api/v1/namespaces/{{namespace}}", &[], "")
            .await;
    }

    async fn must(&self, method: &str, path: &str, body: &str, status: u16) -> Result<(), String> {
        let answer = self.whole(method, path, &[], body).await?;
        if answer.status == status {
            return Ok(());
        }
        let Answer { status, body, .. } = answer;
        Err(format!("{method} {path} was answered with {status}: {body}"))
    }

    async fn step(&mut self, step: &Step) -> Result<Answer, String> {
        self.mask.next_request();
        let answer = match &step.action {
            Action::Request(request) => self.request(request).await?,
            Action::Watch { name, path } => self.watch(name, path).await?,
            Action::Events { name, count } => self.events(name, *count).await?,
        };
        Ok(self.told(step, answer))
    }

    /// An answer as it is kept.
    fn told(&mut self, step: &Step, mut answer: Answer) -> Answer {
        step.title.clone_into(&mut answer.title);
        self.mask.value(&mut answer.body);
        answer.warnings = answer
            .warnings
            .iter()
            .map(|warning| self.mask.text(warning))
            .collect();
        answer
    }

    async fn request(&mut self, request: &Request) -> Result<Answer, String> {
        let Request {
            method,
            path,
            headers,
            body,
            until,
            ..
        } = request;
        let mut answer = self.until(method.as_str(), path, headers, body, until).await?;
        for (name, pointer) in &request.keep {
            let Some(value) = answer.body.pointer(&self.filled(pointer)) else {
                let what = format!("nothing is at {pointer} of {}", answer.body);
                self.unwanted = Some(answer);
                return Err(what);
            };
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.variables.insert(name.clone(), value);
        }
        self.mask.note_generated_names(&answer.body);
        if let Some(focus) = &request.focus {
            answer.body = self.focused(focus, &answer.body);
        }
        Ok(answer)
    }

    fn focused(&self, focus: &Focus, body: &Value) -> Value {
        let found = match focus {
            Focus::Only(pointer) => body.pointer(&self.filled(pointer)),
            Focus::Pick { list, key, value } => {
                let wanted = self.filled(value);
                let list = body.pointer(list).and_then(Value::as_array);
                let matches = |item: &&Value| item.pointer(key).and_then(Value::as_str) == Some(&wanted);
                list.and_then(|list| list.iter().find(matches))
            }
        };
        found.cloned().unwrap_or_default()
    }

    /// Asks again after every change until the answer is as wanted; at once if nothing is.
    async fn until(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
        conditions: &[Condition],
    ) -> Result<Answer, String> {
        let mut last = None;
        let asked = async {
            let mut changes: Option<BoxStream<'_, Result<Bytes, String>>> = None;
            loop {
                let answer = self.whole(method, path, headers, body).await?;
                if conditions.iter().all(|condition| holds(condition, &answer)) {
                    return Ok(answer);
                }
                last = Some(answer);
                changes = match (changes, method) {
                    (Some(mut changes), _) => changes.next().await.map(|_| changes),
                    // Something may have happened before the watch began, so the next question comes at once.
                    (None, "GET") => self.changes(path).await,
                    (None, _) => None,
                };
                if changes.is_none() {
                    tokio::time::sleep(PACE).await;
                }
            }
        };
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                let what = format!("{path} did not get there; last answer: {last:?}");
                self.unwanted = last;
                Err(what)
            }
        }
    }

    /// The changes of what is at a path, if it can be watched.
    async fn changes(&self, path: &str) -> Option<BoxStream<'static, Result<Bytes, String>>> {
        let path = self.filled(path);
        let (collection, name) = collection_of(&path)?;
        let selector = name.map_or_else(String::new, |name| {
            format!("&fieldSelector=metadata.name%3D{name}")
        });
        let answer = self
            .send("GET", &format!("{collection}?watch=true{selector}"), &[], "")
            .await
            .ok()?;
        answer
            .status()
            .is_success()
            .then(|| lines(answer.into_body()).boxed())
    }

    async fn watch(&mut self, name: &str, path: &str) -> Result<Answer, String> {
        let answer = self.send("GET", path, &[], "").await?;
        let said = head(&answer);
        self.watches
            .insert(name.to_owned(), lines(answer.into_body()).boxed());
        Ok(said)
    }

    async fn events(&mut self, name: &str, count: usize) -> Result<Answer, String> {
        let watch = self
            .watches
            .get_mut(name)
            .ok_or_else(|| format!("no watch is called {name}"))?;
        let mut events = Vec::new();
        while events.len() < count {
            let Ok(line) = tokio::time::timeout(LIMIT, watch.next()).await else {
                let what = format!("only {} of {count} events came", events.len());
                self.unwanted = Some(of_events(events));
                return Err(what);
            };
            let Some(line) = line else { break };
            let event = serde_json::from_slice(&line?).map_err(|error| error.to_string())?;
            events.extend(kept(event));
        }
        Ok(of_events(events))
    }

    /// Asks, and waits for the whole of the answer.
    async fn whole(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Answer, String> {
        whole(self.send(method, path, headers, body).await?).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Response<Body>, String> {
        let request = request_of(method, self.filled(path), headers, self.filled(body))?;
        self.client.send(request).await.map_err(|error| error.to_string())
    }

    /// The text with values in place of `{{variables}}`.
    fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for _ in 0..DEPTH {
            for (name, value) in &self.variables {
                text = text.replace(&format!("{{{{{name}}}}}"), value);
            }
        }
        text
    }
}

fn request_of(
    method: &str,
    path: String,
    headers: &[(String, String)],
    body: String,
) -> Result<HttpRequest<Body>, String> {
    let mut request = HttpRequest::builder()
        .method(method)
        .uri(path)
        .header(header::USER_AGENT, AGENT);
    let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    if !has("Accept") {
        request = request.header(header::ACCEPT, "application/json");
    }
    if !has("Content-Type") && !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request
        .body(Body::from(body.into_bytes()))
        .map_err(|error| error.to_string())
}

fn holds(condition: &Condition, answer: &Answer) -> bool {
    match condition {
        Condition::Status(status) => answer.status == *status,
        Condition::Value { pointer, value } => {
            let found = answer.body.pointer(pointer);
            found.unwrap_or(&Value::Null) == value
        }
    }
}

fn of_events(events: Vec<Value>) -> Answer {
    Answer {
        title: String::new(),
        status: 200,
        content_type: String::new(),
        warnings: Vec::new(),
        body: events.into(),
    }
}

fn head(answer: &Response<Body>) -> Answer {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = answer.headers();
    Answer {
        title: String::new(),
        status: answer.status().as_u16(),
        content_type: headers.get(header::CONTENT_TYPE).map(text).unwrap_or_default(),
        warnings: headers.get_all(header::WARNING).iter().map(text).collect(),
        body: Value::Null,
    }
}

async fn whole(answer: Response<Body>) -> Result<Answer, String> {
    let mut said = head(&answer);
    let body = tokio::time::timeout(LIMIT, answer.into_body().collect()).await;
    let body = body.map_err(|_elapsed| "the answer has no end".to_owned())?;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    said.body = read(&body);
    Ok(said)
}

/// A document, or the events of a watch that has ended, or text.
fn read(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    if let Ok(document) = serde_json::from_slice::<Value>(body) {
        // One event of a watch is a document too; it is what an event looks like.
        let is_event = document.get("type").is_some() && document.get("object").is_some();
        if is_event {
            return kept(document).into_iter().collect::<Vec<_>>().into();
        }
        return document;
    }
    let events: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(body).into_iter().collect();
    match events {
        Ok(events) => events.into_iter().filter_map(kept).collect::<Vec<_>>().into(),
        Err(_) => String::from_utf8_lossy(body).into_owned().into(),
    }
}

/// Bookmarks come when the server sees fit, but for the one that ends the initial events. Its version is that of the server.
fn kept(mut event: Value) -> Option<Value> {
    if event.get("type").and_then(Value::as_str) != Some("BOOKMARK") {
        return Some(event);
    }
    let metadata = event.pointer_mut("/object/metadata")?;
    metadata.pointer("/annotations/k8s.io~1initial-events-end")?;
    *metadata.get_mut("resourceVersion")? = "{version}".into();
    Some(event)
}

fn lines(body: Body) -> impl Stream<Item = Result<Bytes, String>> + Send {
    let chunks = body.into_data_stream().map_err(|error| error.to_string());
    futures::stream::unfold((chunks, BytesMut::new()), async |(mut chunks, mut rest)| {
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line = rest.split_to(end + 1);
                line.truncate(end);
                return Some((Ok(line.freeze()), (chunks, rest)));
            }
            match chunks.next().await {
                Some(Ok(chunk)) => rest.extend_from_slice(&chunk),
                Some(Err(error)) => return Some((Err(error), (chunks, rest))),
                None => return None,
            }
        }
    })
}

/// The collection that a path belongs to, and the name of the object if the path is that of one.
fn collection_of(path: &str) -> Option<(String, Option<&str>)> {
    let path = path.split('?').next()?;
    let parts: Vec<_> = path.split('/').skip(1).collect();
    let (root, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => (format!("/api/{version}"), rest),
        ["apis", group, version, rest @ ..] => (format!("/apis/{group}/{version}"), rest),
        _ => return None,
    };
    match rest {
        // What a pod says changes without a change of the pod.
        [] | ["namespaces", _, "pods", _, "log"] => None,
        ["namespaces", namespace, resource] => {
            Some((format!("{root}/namespaces/{namespace}/{resource}"), None))
        }
        ["namespaces", namespace, resource, name, ..] => {
            Some((format!("{root}/namespaces/{namespace}/{resource}"), Some(name)))
        }
        [resource] => Some((format!("{root}/{resource}"), None)),
        [resource, name, ..] => Some((format!("{root}/{resource}"), Some(name))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_collection_of_a_path_is_found() {
        let cases = [
            ("/api/v1/namespaces/n", Some(("/api/v1/namespaces", Some("n")))),
            (
                "/api/v1/namespaces/n/pods?x=1",
                Some(("/api/v1/namespaces/n/pods", None)),
            ),
            (
                "/api/v1/namespaces/n/pods/p/status",
                Some(("/api/v1/namespaces/n/pods", Some("p"))),
            ),
            ("/apis/g.test/v1/widgets", Some(("/apis/g.test/v1/widgets", None))),
            (
                "/apis/g.test/v1/things/t",
                Some(("/apis/g.test/v1/things", Some("t"))),
            ),
            ("/api/v1/namespaces/n/pods/p/log?tailLines=1", None),
            ("/apis/g.test", None),
            ("/openapi/v3", None),
        ];
        for (path, expected) in cases {
            let expected = expected.map(|(collection, name)| (collection.to_owned(), name));
            assert_eq!(collection_of(path), expected, "{path}");
        }
    }

    #[test]
    fn a_bookmark_counts_only_where_it_ends_the_initial_events() {
        let plain = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}});
        let mut last = plain.clone();
        last["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        let text = format!("{plain}\n{last}\n");
        last["object"]["metadata"]["resourceVersion"] = json!("{version}");

        assert_eq!(read(text.as_bytes()), json!([last]));
        assert_eq!(read(plain.to_string().as_bytes()), json!([]));
    }
}
