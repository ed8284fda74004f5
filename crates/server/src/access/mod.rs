//! Who asks, and what they may do. Kubernetes answers both: its RBAC is the only policy.
//!
//! The caller's own token asks who it belongs to (`SelfSubjectReview`) and what it may do (`SelfSubjectAccessReview`), so that the
//! control plane needs no right to ask on behalf of others. Answers are kept for seconds, in caches with a bound. What is changed
//! is changed with the caller's token.

mod connection;
mod recent;
mod token;

use std::{fmt, sync::Arc, time::Duration};

use jangar_api::{Kind, rights::Right};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    },
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::Instant};

pub(crate) use self::recent::Recent;
use self::token::unauthenticated;
pub use self::{
    connection::Connection,
    token::{Token, TokenId},
};
use crate::{
    metrics::{Metrics, Review},
    refusal::{Refusal, Trouble},
};

/// How long a token is taken for whom it belonged to. A token that is withdrawn works that much longer.
const IDENTITY_AGE: Duration = Duration::from_secs(10);
/// How long a right is taken for granted, or its absence. A right that is taken away works that much longer.
const ANSWER_AGE: Duration = Duration::from_secs(5);
/// Callers at once whose tokens are remembered; more are asked about more often.
const IDENTITIES_MAX: usize = 4_096;
/// Wrong tokens that are remembered, apart from the right ones: so that nobody pushes those out by guessing.
const UNKNOWN_MAX: usize = 1_024;
/// Each caller asks about a few kinds in a few namespaces.
const ANSWERS_MAX: usize = 16_384;
/// Questions to the API server at once. Whoever guesses tokens cannot make us ask more.
const ASKING_MAX: usize = 64;
/// How long the API server has for an answer.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Who holds the break-glass token, as the audit names them.
const BREAK_GLASS_USER: &str = "jangar:break-glass";
const ANONYMOUS: &str = "system:anonymous";

/// Somebody whom Kubernetes knows.
#[derive(Clone)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
    id: TokenId,
    client: Client,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("user", &self.user)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Speaks to the API server with the caller's own token.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// Something that a caller may do, or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    Object {
        verb: &'static str,
        kind: Kind,
        namespace: String,
        /// Empty: all of them.
        name: String,
    },
    /// To read what pods write.
    Logs { namespace: String },
    /// One of the rights that people need for what they do with Jangar.
    Right { right: Right, namespace: String },
    /// A path that is no object, such as `/metrics`.
    Path(String),
}

impl Question {
    pub fn list(kind: Kind, namespace: &str) -> Self {
        Self::on("list", kind, namespace, "")
    }

    pub fn get(kind: Kind, namespace: &str, name: &str) -> Self {
        Self::on("get", kind, namespace, name)
    }

    pub fn on(verb: &'static str, kind: Kind, namespace: &str, name: &str) -> Self {
        Self::Object {
            verb,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn spec(&self) -> SelfSubjectAccessReviewSpec {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        match self {
            Self::Object {
                verb,
                kind,
                namespace,
                name,
            } => SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some((*verb).to_owned()),
                    group: Some(kind.info().group.clone()),
                    version: Some(kind.info().version.clone()),
                    resource: Some(kind.info().plural.clone()),
                    namespace: given(namespace),
                    name: given(name),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            Self::Logs { namespace } => SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("get".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("pods".to_owned()),
                    subresource: Some("log".to_owned()),
                    namespace: given(namespace),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            Self::Right { right, namespace } => SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(right.verb.to_owned()),
                    group: Some(right.group.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    subresource: Some(right.subresource.to_owned()).filter(|name| !name.is_empty()),
                    namespace: given(namespace),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            Self::Path(path) => SelfSubjectAccessReviewSpec {
                resource_attributes: None,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.clone()),
                    verb: Some("get".to_owned()),
                }),
            },
        }
    }

    /// The answer where it is no. Reading says the same as if there were nothing: whoever may not see a namespace does not learn
    /// whether there is one.
    fn refused(&self) -> Refusal {
        match self {
            Self::Object {
                verb: "get",
                kind,
                namespace,
                name,
            } => Refusal::not_found(&kind.info().kind, namespace, name),
            Self::Object {
                verb: "list" | "watch",
                kind,
                namespace,
                ..
            } => Refusal::new(
                Trouble::NotFound,
                format!(
                    "there are no {} that you may see in namespace {namespace}",
                    kind.info().plural
                ),
            )
            .remedy(format!(
                "name another namespace, or ask for the verbs get, list and watch on {}.{}",
                kind.info().plural,
                kind.info().group
            )),
            Self::Object {
                verb,
                kind,
                namespace,
                name,
            } => {
                let info = kind.info();
                let object = if name.is_empty() { "" } else { "/" };
                Refusal::new(
                    Trouble::Forbidden,
                    format!("you may not {verb} {} {namespace}{object}{name}", info.kind),
                )
                .remedy(format!(
                    "ask for a role with the verb {verb} on {}.{} in namespace {namespace}",
                    info.plural, info.group
                ))
            }
            Self::Logs { namespace } => Refusal::new(
                Trouble::Forbidden,
                format!("you may not read logs of pods in namespace {namespace}"),
            )
            .remedy(format!(
                "ask for a role with the verb get on pods/log in namespace {namespace}"
            )),
            Self::Right { right, namespace } => Refusal::new(
                Trouble::Forbidden,
                format!(
                    "you may not {} {} in namespace {namespace}",
                    right.verb,
                    right.named()
                ),
            )
            .remedy(format!(
                "ask for a role with the verb {} on {} in namespace {namespace}",
                right.verb,
                right.named()
            )),
            Self::Path(path) => Refusal::new(Trouble::Forbidden, format!("you may not get {path}")).remedy(
                format!("ask for a cluster role with the verb get on nonResourceURLs {path}"),
            ),
        }
    }
}

/// Asks Kubernetes who calls and what they may do.
#[derive(Debug)]
pub struct Gatekeeper {
    connection: Connection,
    break_glass: Option<Identity>,
    identities: Recent<TokenId, Arc<Identity>>,
    unknown: Recent<TokenId, ()>,
    answers: Recent<(TokenId, Question), bool>,
    asking: Semaphore,
    metrics: Arc<Metrics>,
}

impl Gatekeeper {
    /// Whoever holds `break_glass` acts as the control plane itself, through `own`: with its rights, and no others.
    pub fn new(
        connection: Connection,
        own: &Client,
        break_glass: Option<&Token>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            connection,
            break_glass: break_glass.map(|token| Identity {
                user: BREAK_GLASS_USER.to_owned(),
                groups: Vec::new(),
                id: token.id(),
                client: own.clone(),
            }),
            identities: Recent::new(IDENTITY_AGE, IDENTITIES_MAX),
            unknown: Recent::new(IDENTITY_AGE, UNKNOWN_MAX),
            answers: Recent::new(ANSWER_AGE, ANSWERS_MAX),
            asking: Semaphore::new(ASKING_MAX),
            metrics,
        }
    }

    /// Whose token it is.
    pub async fn identify(&self, token: &Token) -> Result<Arc<Identity>, Refusal> {
        let (id, now) = (token.id(), Instant::now());
        if let Some(keeper) = self.break_glass.as_ref().filter(|keeper| keeper.id.is_same(&id)) {
            return Ok(Arc::new(keeper.clone()));
        }
        if let Some(known) = self.identities.get(&id, now) {
            self.metrics.review(Review::IdentityKnown);
            return Ok(known);
        }
        let unknown = || unauthenticated("Kubernetes does not know the token");
        if self.unknown.get(&id, now).is_some() {
            self.metrics.review(Review::Unknown);
            return Err(unknown());
        }
        let client = self.connection.of_caller(token);
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        let question = SelfSubjectReview::default();
        self.metrics.review(Review::IdentityAsked);
        let answer = self
            .ask(async { reviews.create(&PostParams::default(), &question).await })
            .await;
        let user = match answer {
            Ok(review) => review.status.and_then(|status| status.user_info),
            Err(refusal) if refusal.trouble == Trouble::Unauthenticated => None,
            Err(refusal) => return Err(refusal),
        };
        let user = user.filter(|user| {
            let name = user.username.as_deref().unwrap_or_default();
            !name.is_empty() && name != ANONYMOUS
        });
        let Some(user) = user else {
            self.unknown.put(id, (), now);
            self.metrics.review(Review::Unknown);
            return Err(unknown());
        };
        let identity = Arc::new(Identity {
            user: user.username.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            id,
            client,
        });
        self.identities.put(id, Arc::clone(&identity), now);
        self.metrics.identities(self.identities.len());
        Ok(identity)
    }

    /// Whether they may.
    pub async fn may(&self, caller: &Identity, question: &Question) -> Result<bool, Refusal> {
        let (key, now) = ((caller.id, question.clone()), Instant::now());
        if let Some(answer) = self.answers.get(&key, now) {
            self.metrics.review(Review::AccessKnown);
            return Ok(answer);
        }
        let reviews: Api<SelfSubjectAccessReview> = Api::all(caller.client());
        let review = SelfSubjectAccessReview {
            spec: question.spec(),
            ..SelfSubjectAccessReview::default()
        };
        self.metrics.review(Review::AccessAsked);
        let answer = self
            .ask(async { reviews.create(&PostParams::default(), &review).await })
            .await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.answers.put(key, allowed, now);
        Ok(allowed)
    }

    /// Nothing, if they may; else the answer that they get.
    pub async fn require(&self, caller: &Identity, question: &Question) -> Result<(), Refusal> {
        if self.may(caller, question).await? {
            Ok(())
        } else {
            self.metrics.review(Review::Refused);
            Err(question.refused().denied())
        }
    }

    async fn ask<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
        let asked = async {
            // The semaphore is never closed.
            let _place = self.asking.acquire().await;
            request.await
        };
        match tokio::time::timeout(REVIEW_TIMEOUT, asked).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Refusal::unavailable(
                "the Kubernetes API did not say in time who you are and what you may do",
            )),
        }
    }
}
