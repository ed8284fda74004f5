//! Webhooks: issues of GitHub and Linear become ImplementationSpecs, for each ImplementationSource that takes them in.
//!
//! A delivery carries no token. It is known by its [`signature`], which is checked over the bytes that arrived before anything is
//! made of them; a source takes deliveries only if its `spec.webhook.enabled` says so and its Secret made the signature. Then
//! [`github`] or [`linear`] reads the [`issue`], [`work`] has each source take it in, with a bounded queue and bounded attempts,
//! [`apply`] writes the ImplementationSpec and [`report`] the status of the source.
//!
//! **A good answer means that it is written.** What was not written in time is told so with 503: whoever sends may send it again,
//! and nothing is lost if this process dies. So that neither repetition nor order matters, a spec remembers the version of the
//! issue that it was made from, and an older one never takes the place of a newer one, on any replica.

mod apply;
mod github;
mod issue;
mod linear;
mod report;
mod secrets;
mod signature;
mod work;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use jangar_api::{
    Kind,
    agents::implementation_source::{ImplementationSource, ImplementationSourceSpec},
};
use jangar_engine::settings::WebhookSettings;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Mutex, Semaphore},
    time::Instant,
};

use self::{
    issue::{BadPayload, Issue, News},
    report::Verdict,
    secrets::Secrets,
    signature::Signature,
};
use crate::{
    access::Recent,
    metrics::Webhook,
    plane::ControlPlane,
    refusal::{Refusal, Trouble, shown},
    world::Filter,
};

/// Sources of one sender that are looked at. Each costs the hash of the whole body.
const SOURCES_MAX: usize = 256;
/// Deliveries whose signature is checked at once: whoever sends rubbish does not get the whole processor, nor the threads of everybody
/// else.
const CHECKING_MAX: usize = 2;
/// Specs that are written at once, so that a burst of deliveries does not crowd out people.
const WRITING_MAX: usize = 4;
/// How long a delivery that was taken in is remembered. Whoever repeats one does so sooner, and later it does no harm either.
const REMEMBERED_FOR: Duration = Duration::from_hours(1);
/// Deliveries that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// The longest id of a delivery and the longest name of an event; both come from headers.
const HEADER_MAX: usize = 128;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Github,
    Linear,
}

impl Sender {
    /// As sources and labels write it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Linear => "linear",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Github => "GitHub",
            Self::Linear => "Linear",
        }
    }
}

/// What the headers of a delivery say.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    sender: Sender,
    signature: Signature,
    /// Only GitHub needs it: Linear says it in the body.
    event: Option<String>,
    /// As the sender numbers its deliveries.
    delivery_id: Option<String>,
}

impl Envelope {
    pub(crate) fn read(sender: Sender, headers: &HeaderMap) -> Result<Self, Refusal> {
        let signature = Signature::of(sender, headers)?;
        let (event, id) = match sender {
            Sender::Github => ("X-GitHub-Event", "X-GitHub-Delivery"),
            Sender::Linear => ("Linear-Event", "Linear-Delivery"),
        };
        Ok(Self {
            sender,
            signature,
            event: header(headers, event)?,
            delivery_id: header(headers, id)?,
        })
    }
}

fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text.is_empty() || text.len() > HEADER_MAX {
        return Err(Refusal::field(
            name,
            String::from_utf8_lossy(value.as_bytes()),
            "this is blank, too long or no plain text",
        )
        .remedy("send at most 128 characters"));
    }
    Ok(Some(text.to_owned()))
}

/// A source that takes a delivery.
#[derive(Clone, Debug)]
struct Source {
    namespace: String,
    name: String,
    spec: ImplementationSourceSpec,
}

impl Source {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A delivery as far as statuses and the audit tell of it.
#[derive(Clone, Debug)]
struct Delivery {
    sender: Sender,
    signature: Signature,
    id: Option<String>,
    received_at: Timestamp,
    /// The address it came from.
    peer: String,
}

impl Delivery {
    /// By what a repetition is recognised.
    fn key(&self, issue: &Issue) -> String {
        match &self.id {
            Some(id) => format!("{}:{id}", self.sender.word()),
            None => format!("{}:{}", issue.external_id, issue.version.text),
        }
    }
}

/// What came of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It is nothing for any source, and why.
    Ignored(String),
    Taken(Taken),
}

/// What sources made of a delivery; all of them have ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Sources that it was given to.
    pub(crate) queued: usize,
    /// Sources that had it before.
    pub(crate) deduped: usize,
    /// Sources whose ImplementationSpec is as the issue is.
    pub(crate) synced: usize,
    /// Sources whose ImplementationSpec was of a later version already.
    pub(crate) outdated: usize,
}

/// What webhooks need beside the control plane.
#[derive(Debug)]
pub(crate) struct Webhooks {
    settings: WebhookSettings,
    secrets: Secrets,
    /// What was taken in: source, key and signature. The signature is there because nobody vouches for the headers.
    remembered: Recent<(String, String, Signature), ()>,
    checking: Semaphore,
    places: Arc<Semaphore>,
    writing: Semaphore,
    /// The status of a source is written by one delivery at a time.
    reporting: Mutex<()>,
}

impl Webhooks {
    pub(crate) fn new(settings: &WebhookSettings) -> Self {
        let places = usize::try_from(settings.queue_size).unwrap_or(usize::MAX);
        Self {
            settings: settings.clone(),
            secrets: Secrets::new(),
            remembered: Recent::new(REMEMBERED_FOR, REMEMBERED_MAX),
            checking: Semaphore::new(CHECKING_MAX),
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            writing: Semaphore::new(WRITING_MAX),
            reporting: Mutex::new(()),
        }
    }

    fn is_known(&self, source: &Source, key: &str, signature: Signature) -> bool {
        let entry = (source.key(), key.to_owned(), signature);
        self.remembered.get(&entry, Instant::now()).is_some()
    }

    fn remember(&self, source: &Source, key: &str, signature: Signature) {
        let entry = (source.key(), key.to_owned(), signature);
        self.remembered.put(entry, (), Instant::now());
    }
}

/// Takes a delivery. It is answered well only when everything is written.
pub(crate) async fn receive(
    plane: &Arc<ControlPlane>,
    envelope: Envelope,
    peer: String,
    body: &[u8],
) -> Result<Received, Refusal> {
    let Envelope {
        sender,
        signature,
        event,
        delivery_id,
    } = envelope;
    let delivery = Delivery {
        sender,
        signature,
        id: delivery_id,
        received_at: plane.now(),
        peer,
    };
    let signed = signed(plane, &delivery, body).await?;
    let news = match sender {
        Sender::Github => match event {
            Some(event) => github::news(&event, body),
            None => Err(BadPayload::new("X-GitHub-Event", "the header is missing")),
        },
        Sender::Linear => linear::news(body, delivery.received_at),
    };
    let issue = match news {
        Ok(News::Issue(issue)) => *issue,
        Ok(News::Nothing(why)) => return Ok(ignored(plane, sender, why)),
        Err(bad) => return Err(invalid(plane, &delivery, &signed, &bad).await),
    };
    let targets: Vec<Source> = signed
        .into_iter()
        .filter(|source| issue::takes(source.spec.scope.as_ref(), &issue))
        .collect();
    if targets.is_empty() {
        let why = format!("{} is in the scope of no ImplementationSource", issue.external_id);
        return Ok(ignored(plane, sender, why));
    }
    work::enqueue(plane, delivery, issue, targets)
        .await
        .map(Received::Taken)
}

fn ignored(plane: &ControlPlane, sender: Sender, why: String) -> Received {
    plane.metrics.webhook(sender.word(), Webhook::Ignored);
    Received::Ignored(why)
}

/// A delivery that makes no sense is told to its sender, and to whoever looks at the sources it was meant for.
async fn invalid(plane: &ControlPlane, delivery: &Delivery, signed: &[Source], bad: &BadPayload) -> Refusal {
    plane.metrics.webhook(delivery.sender.word(), Webhook::Refused);
    for source in signed {
        let verdict = Verdict::Unreadable(bad.to_string());
        report::write(plane, source, delivery, None, &verdict, 1).await;
    }
    Refusal::new(
        Trouble::BadRequest,
        format!(
            "the delivery cannot be read: {}: {}",
            bad.field,
            shown(&bad.wrong)
        ),
    )
    .named(&bad.field)
    .remedy("docs/webhooks.md says what is taken")
}

/// The sources whose secret made the signature. Whoever has none learns nothing, not even whether there are any.
async fn signed(plane: &ControlPlane, delivery: &Delivery, body: &[u8]) -> Result<Vec<Source>, Refusal> {
    if !plane.missing().is_empty() {
        return Err(Refusal::unavailable("the caches are not filled yet"));
    }
    let sender = delivery.sender;
    // The semaphore is never closed.
    let _turn = plane.webhooks.checking.acquire().await;
    let mut candidates = Vec::new();
    for source in sources(plane, sender) {
        // A Secret that cannot be read just now may be the one that signed, so that it is all to be sent again. A source with a
        // mistake is told of it, and takes nothing.
        let key = plane.webhooks.secrets.of(plane, &source, delivery).await?;
        candidates.extend(key.map(|key| (source, key)));
    }
    let (signature, body) = (delivery.signature, body.to_vec());
    // Hashing a megabyte for each of many sources takes a while, in which nobody else would get a turn.
    let checked = tokio::task::spawn_blocking(move || {
        let mine = candidates
            .into_iter()
            .filter(|(_, key)| key.made(&signature, &body));
        mine.map(|(source, _)| source).collect::<Vec<Source>>()
    });
    let signed = checked
        .await
        .map_err(|_| Refusal::unavailable("the signature was not checked"))?;
    if !signed.is_empty() {
        return Ok(signed);
    }
    plane.metrics.webhook(sender.word(), Webhook::Refused);
    Err(Refusal::new(
        Trouble::Unauthenticated,
        format!(
            "no ImplementationSource takes deliveries of {} with this signature",
            sender.name()
        ),
    )
    .remedy("compare the secret there with the Secret that the source names, and set spec.webhook.enabled"))
}

/// The sources that take deliveries of this sender, as the caches have them.
fn sources(plane: &ControlPlane, sender: Sender) -> Vec<Source> {
    let all = plane
        .world
        .list(Kind::ImplementationSource, &Filter::default(), None, usize::MAX);
    let mut sources: Vec<Source> = all
        .iter()
        .filter_map(|object| {
            // One that cannot be read takes nothing. The API server lets none in.
            let source: ImplementationSource = serde_json::from_value(object.json.clone()).ok()?;
            issue::listens(&source.spec, sender).then(|| Source {
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                spec: source.spec,
            })
        })
        .collect();
    if sources.len() > SOURCES_MAX {
        tracing::warn!(
            sender = sender.word(),
            count = sources.len(),
            "only the newest 256 ImplementationSources of a provider take deliveries"
        );
        sources.truncate(SOURCES_MAX);
    }
    sources
}

/// Reads a body that is one JSON document.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadPayload> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string().as_str() {
            "." => "body".to_owned(),
            path => path.to_owned(),
        };
        BadPayload::new(field, error.inner().to_string())
    })?;
    json.end()
        .map_err(|error| BadPayload::new("body", error.to_string()))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_that_are_too_long_or_no_text_are_refused() {
        let digits = "0".repeat(64);
        let envelope = |id: &[u8]| {
            let mut headers = HeaderMap::new();
            let signature = HeaderValue::from_str(&format!("sha256={digits}")).expect("a header");
            headers.insert("x-hub-signature-256", signature);
            headers.insert("x-github-event", HeaderValue::from_static("issues"));
            headers.insert(
                "x-github-delivery",
                HeaderValue::from_bytes(id).expect("a header"),
            );
            Envelope::read(Sender::Github, &headers)
        };
        let good = envelope(b"72d3162e-cc78").expect("an envelope");
        assert_eq!(good.delivery_id.as_deref(), Some("72d3162e-cc78"));
        assert_eq!(good.event.as_deref(), Some("issues"));
        for bad in [&b" "[..], b"\xff\xfe", &[b'a'; 129]] {
            let refusal = envelope(bad).expect_err("it is refused");
            assert_eq!(refusal.trouble, Trouble::BadRequest);
        }
    }
}
