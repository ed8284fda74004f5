//! Kubernetes itself, by the kubeconfig: no control plane is needed.

use std::{path::Path, time::Duration};

use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use jangar_api::{Kind, labels};
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Pod,
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams,
        ValidationDirective,
    },
    client::Body,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::GroupVersionKind,
    discovery::{Scope, pinned_kind},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use super::{Applied, ApplyOptions, BreaksOff, Change, Changes, Identity, Lines, LogPart, LogTrouble};
use crate::{
    config::Choices,
    error::{Error, status_code},
    object::Object,
};

/// Who our fields belong to.
pub const FIELD_MANAGER: &str = "agentctl";
/// How long a connection may take: a person waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many objects are asked for at once, as kubectl does.
const PAGE: u32 = 500;
/// How many objects a list may have. More than this is no list for a person, and would fill the memory of a laptop.
const LIST_MAX: usize = 100_000;

/// A client of the API server.
#[derive(Clone)]
pub struct Kube {
    client: Client,
    server: String,
}

impl std::fmt::Debug for Kube {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kube")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Kube {
    /// Reads the kubeconfig. Nothing is asked yet. The namespace is that of the context, if it names one.
    pub async fn connect(choices: &Choices) -> Result<(Self, Option<String>), Error> {
        let mut config = configuration(choices).await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let server = config.cluster_url.to_string();
        // "default" is what the library says where the context says nothing.
        let namespace = Some(config.default_namespace.clone()).filter(|name| name != "default");
        let client = Client::try_from(config).map_err(|error| {
            Error::Validation(format!(
                "the kubeconfig cannot be used: {}",
                crate::error::kube_words(&error)
            ))
        })?;
        Ok((Self { client, server }, namespace))
    }

    pub fn server(&self) -> &str {
        self.server.trim_end_matches('/')
    }

    pub const fn client(&self) -> &Client {
        &self.client
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    pub async fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        self.list_any(&resource(kind), namespace, selector, None).await
    }

    /// All objects of any kind, page by page.
    pub async fn list_any(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Vec<Object>, Error> {
        let api = self.api(resource, namespace);
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = selector.map(str::to_owned);
        params.field_selector = fields.map(str::to_owned);
        let mut objects = Vec::new();
        loop {
            let doing = format!("{} cannot be listed at {}", resource.plural, self.server());
            let page = api.list(&params).await.map_err(Error::kube(doing))?;
            for item in &page.items {
                objects.push(Object::of(item, &resource.api_version, &resource.kind)?);
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(objects);
            }
            if objects.len() >= LIST_MAX {
                return Err(Error::Validation(format!(
                    "there are more than {LIST_MAX} {}: name a namespace with -n, or labels with -l",
                    resource.plural
                )));
            }
        }
    }

    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Object, Error> {
        self.get_any(&resource(kind), Some(namespace), name).await
    }

    pub async fn get_any(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Object, Error> {
        let found = self.api(resource, namespace).get(name).await;
        let doing = format!("{} {name} cannot be read", resource.kind);
        Object::of(
            &found.map_err(Error::kube(doing))?,
            &resource.api_version,
            &resource.kind,
        )
    }

    pub async fn create(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Option<Object>, Error> {
        let resource = resource(kind);
        let mut object = object.clone();
        if kind.is_run() {
            sign(&mut object, self.creator().await.as_deref());
        }
        let new: DynamicObject = serde_json::from_value(object)?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match self.api(&resource, Some(namespace)).create(&params, &new).await {
            Ok(made) => Object::of(&made, &resource.api_version, &resource.kind).map(Some),
            Err(error) if status_code(&error) == Some(409) => Ok(None),
            Err(error) => Err(refused(&error, &resource.kind)
                .unwrap_or_else(|| Error::kube(format!("the {} cannot be created", resource.kind))(error))),
        }
    }

    pub async fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Object, Error> {
        let resource = resource(kind);
        let params = manager();
        let patched = self
            .api(&resource, Some(namespace))
            .patch(name, &params, &Patch::Merge(patch))
            .await
            .map_err(Error::kube(format!("{} {name} cannot be changed", resource.kind)))?;
        Object::of(&patched, &resource.api_version, &resource.kind)
    }

    /// Changes the status of an object by a merge patch. The answer of the API server is left to whoever asked.
    pub async fn patch_status(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), kube::Error> {
        let api = self.api(&resource(kind), Some(namespace));
        api.patch_status(name, &manager(), &Patch::Merge(patch))
            .await
            .map(drop)
    }

    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Error> {
        let resource = resource(kind);
        self.api(&resource, Some(namespace))
            .delete(name, &DeleteParams::background())
            .await
            .map(drop)
            .map_err(Error::kube(format!("{} {name} cannot be deleted", resource.kind)))
    }

    /// Applies an object of any kind that is served, in its own namespace or in the one given.
    pub async fn apply(
        &self,
        object: &Value,
        namespace: &str,
        options: ApplyOptions,
    ) -> Result<(Object, Applied), Error> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, scope) = self.served(&gvk).await?;
        let namespace = match (scope, text("/metadata/namespace")) {
            (Scope::Cluster, _) => None,
            (Scope::Namespaced, "") => Some(namespace),
            (Scope::Namespaced, own) => Some(own),
        };
        let api = self.api(&resource, namespace);
        let doing = || format!("{kind} {name} cannot be applied");
        let before = api.get_opt(name).await.map_err(Error::kube(doing()))?;
        let mut object = object.clone();
        if is_run(&resource) {
            let creator = match &before {
                None => self.creator().await,
                // What is left out of what one manager applies would be taken away.
                Some(before) => before.annotations().get(labels::CREATED_BY).cloned(),
            };
            sign(&mut object, creator.as_deref());
        }
        let params = PatchParams {
            dry_run: options.dry_run,
            force: options.force,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        };
        let after = match api.patch(name, &params, &Patch::Apply(&object)).await {
            Ok(after) => after,
            Err(error) if status_code(&error) == Some(409) => {
                return Err(Error::Validation(format!(
                    "{}: {}; give --force-conflicts to take the fields over",
                    doing(),
                    api_words(&error)
                )));
            }
            Err(error) => {
                return Err(refused(&error, kind).unwrap_or_else(|| Error::kube(doing())(error)));
            }
        };
        let applied = match before {
            None => Applied::Created,
            Some(before) if before.metadata.resource_version == after.metadata.resource_version => {
                Applied::Unchanged
            }
            Some(_) => Applied::Configured,
        };
        let after = Object::of(&after, &resource.api_version, &resource.kind)?;
        Ok((after, applied))
    }

    /// Under which name a kind is served. Ours are known; others are asked for.
    async fn served(&self, gvk: &GroupVersionKind) -> Result<(ApiResource, Scope), Error> {
        let ours = Kind::ALL
            .iter()
            .map(|kind| resource(*kind))
            .find(|resource| resource.kind == gvk.kind && resource.group == gvk.group);
        if let Some(resource) = ours {
            if resource.version == gvk.version {
                return Ok((resource, Scope::Namespaced));
            }
            return Err(Error::Validation(format!(
                "apiVersion {} of {} is not served: write {}",
                gvk.api_version(),
                gvk.kind,
                resource.api_version
            )));
        }
        let (resource, can) = pinned_kind(&self.client, gvk).await.map_err(|error| {
            Error::Validation(format!(
                "kind {} of {} is not served here ({})",
                gvk.kind,
                gvk.api_version(),
                crate::error::kube_words(&error)
            ))
        })?;
        Ok((resource, can.scope))
    }

    pub fn watch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        selector: Option<&str>,
    ) -> Changes {
        let fields = name.map(|name| format!("metadata.name={name}"));
        self.watch_any(resource(kind), namespace, fields.as_deref(), selector)
    }

    /// Follows objects of any kind. What is lost on the way is listed anew.
    pub fn watch_any(
        &self,
        resource: ApiResource,
        namespace: Option<&str>,
        fields: Option<&str>,
        selector: Option<&str>,
    ) -> Changes {
        let mut config = watcher::Config::default();
        if let Some(fields) = fields {
            config = config.fields(fields);
        }
        if let Some(selector) = selector {
            config = config.labels(selector);
        }
        let events = watcher(self.api(&resource, namespace), config).default_backoff();
        let changes = events.filter_map(move |event| {
            let change = change(event, &resource);
            async move { change }
        });
        changes.boxed()
    }

    pub async fn identity(&self) -> Result<Identity, Error> {
        let api: Api<SelfSubjectReview> = Api::all(self.client.clone());
        let answer = api
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
            .map_err(Error::kube("the cluster does not say who you are"))?;
        let info = answer
            .status
            .and_then(|status| status.user_info)
            .unwrap_or_default();
        Ok(Identity {
            user: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
        })
    }

    /// Who a run that is made now is made by. A cluster that does not tell has runs that nobody made.
    async fn creator(&self) -> Option<String> {
        let identity = self.identity().await.ok()?;
        Some(identity.user).filter(|user| !user.is_empty())
    }

    /// Whether the caller may do this.
    pub async fn may(&self, attributes: ResourceAttributes) -> Result<bool, Error> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = api
            .create(&PostParams::default(), &review)
            .await
            .map_err(Error::kube("the cluster does not say what you may do"))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// What a container of a pod writes.
    pub async fn log(&self, namespace: &str, pod: &str, part: &LogPart) -> Result<Lines, LogTrouble> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let params = LogParams {
            container: part.container.clone(),
            follow: part.follow,
            tail_lines: part.tail.map(i64::from),
            since_seconds: part.since_seconds.map(i64::from),
            since_time: part.since_time,
            timestamps: true,
            ..LogParams::default()
        };
        match pods.log_stream(pod, &params).await {
            Ok(log) => Ok(log.lines().map_err(|_| BreaksOff).boxed()),
            Err(error) => Err(match status_code(&error) {
                Some(404) => LogTrouble::Gone,
                Some(500) | None => LogTrouble::Broken,
                Some(_) => {
                    LogTrouble::Refused(Error::kube(format!("the log of pod {pod} cannot be read"))(error))
                }
            }),
        }
    }

    /// The version of the API server.
    pub async fn version(&self) -> Result<String, Error> {
        let info = self
            .client
            .apiserver_version()
            .await
            .map_err(Error::kube(format!("{} does not answer", self.server())))?;
        Ok(info.git_version)
    }

    /// The time of day at the API server, to the second, if it says it.
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        let request = http::Request::get("/version")
            .body(Body::empty())
            .map_err(|error| Error::Unknown(error.to_string()))?;
        let answer = self
            .client
            .send(request)
            .await
            .map_err(Error::kube(format!("{} does not answer", self.server())))?;
        let date = answer.headers().get(http::header::DATE);
        let parsed = date
            .and_then(|value| value.to_str().ok())
            .and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
        Ok(parsed.map(|zoned| zoned.timestamp()))
    }
}

fn is_run(resource: &ApiResource) -> bool {
    Kind::ALL
        .iter()
        .any(|kind| kind.is_run() && kind.info().kind == resource.kind && kind.info().group == resource.group)
}

/// Who makes a run may not let it pass its gates, so that it says who that is, whatever they wrote.
fn sign(object: &mut Value, creator: Option<&str>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    // Whatever else was written there is for the API server to refuse.
    if let Some(annotations) = annotations.as_object_mut() {
        match creator {
            Some(creator) => annotations.insert(labels::CREATED_BY.to_owned(), json!(creator)),
            None => annotations.remove(labels::CREATED_BY),
        };
    }
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// How one of our kinds is called in requests.
pub fn resource(kind: Kind) -> ApiResource {
    let info = kind.info();
    let gvk = GroupVersionKind::gvk(&info.group, &info.version, &info.kind);
    ApiResource::from_gvk_with_plural(&gvk, &info.plural)
}

/// How a kind of Kubernetes itself is called in requests.
pub fn builtin(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

async fn configuration(choices: &Choices) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: choices.context.value.clone(),
        ..KubeConfigOptions::default()
    };
    let remedy = "name another file with --kubeconfig, or another context with --context";
    let file = match &choices.kubeconfig.value {
        Some(path) => Kubeconfig::read_from(Path::new(path))
            .map_err(|error| Error::Validation(format!("kubeconfig {path}: {error}; {remedy}")))?,
        None => match Kubeconfig::read() {
            Ok(file) => file,
            Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) => return without_file(),
            Err(error) => return Err(Error::Validation(format!("kubeconfig: {error}; {remedy}"))),
        },
    };
    Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| Error::Validation(format!("kubeconfig: {error}; {remedy}")))
}

/// In a pod there is no kubeconfig, and none is needed.
fn without_file() -> Result<Config, Error> {
    Config::incluster().map_err(|_| {
        Error::Validation(
            "there is no kubeconfig: name one with --kubeconfig or KUBECONFIG; `jangar up` writes one for the cluster that \
             it starts on this machine"
                .to_owned(),
        )
    })
}

fn api_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.trim_end_matches('.').to_owned(),
        other => other.to_string(),
    }
}

/// An object that the API server will never take is for whoever wrote it to correct.
fn refused(error: &kube::Error, kind: &str) -> Option<Error> {
    // What does not fit the schema is answered with 500 where fields are applied.
    let kube::Error::Api(status) = error else {
        return None;
    };
    let unfit = status.code == 500 && status.message.contains("typed patch object");
    (unfit || matches!(status.code, 400 | 422)).then(|| {
        Error::Validation(format!(
            "the API server refuses the {kind}: {}; correct that field",
            api_words(error)
        ))
    })
}

fn change(
    event: Result<watcher::Event<DynamicObject>, watcher::Error>,
    resource: &ApiResource,
) -> Option<Change> {
    let object = |found: &DynamicObject| Object::of(found, &resource.api_version, &resource.kind).ok();
    match event {
        Ok(watcher::Event::Init) => Some(Change::Relisting),
        Ok(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => {
            object(&found).map(Change::Seen)
        }
        Ok(watcher::Event::Delete(found)) => object(&found).map(Change::Gone),
        Ok(watcher::Event::InitDone) => Some(Change::Listed),
        Err(error) => Some(trouble(&error)),
    }
}

fn trouble(error: &watcher::Error) -> Change {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Change::Trouble {
            words: crate::error::kube_words(error),
            hopeless: matches!(status_code(error), Some(401 | 403 | 404)),
        },
        other => Change::Trouble {
            words: other.to_string(),
            hopeless: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_who_made_it_whatever_they_wrote() {
        let mut run = json!({"metadata": {"annotations": {labels::CREATED_BY: "somebody else", "a": "b"}}});
        sign(&mut run, Some("ada"));
        assert_eq!(
            run,
            json!({"metadata": {"annotations": {labels::CREATED_BY: "ada", "a": "b"}}})
        );
        sign(&mut run, None);
        assert_eq!(run, json!({"metadata": {"annotations": {"a": "b"}}}));
        let mut bare = json!({"metadata": {}});
        sign(&mut bare, Some("ada"));
        assert_eq!(
            bare,
            json!({"metadata": {"annotations": {labels::CREATED_BY: "ada"}}})
        );
    }

    #[test]
    fn only_runs_are_signed() {
        assert!(is_run(&resource(Kind::OrchestrationRun)));
        assert!(!is_run(&resource(Kind::Agent)));
        assert!(!is_run(&builtin("", "v1", "Pod", "pods")));
    }
}
