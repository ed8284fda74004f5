//! That a key makes one run: what it made before is found, and what is made is remembered.

use std::{sync::Arc, time::Duration};

use jangar_api::{Kind, labels, names::label_value};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        Caller, ControlPlane, live,
        runs::{RunRecord, record},
    },
    draft::Draft,
};
use crate::{
    access::Question,
    audit::Deed,
    history::SubmittedKey,
    metrics::Loss,
    refusal::{Refusal, Trouble},
    world::{Object, resource, text},
};

/// How long a submission waits for the database. The API server keeps runs from being made twice; history only remembers the keys of
/// those that are gone.
const HISTORY_PATIENCE: Duration = Duration::from_secs(2);

/// What came of a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    pub kind: Kind,
    /// The run as Kubernetes has it, or had it.
    pub resource: Value,
    /// The same in short, as earlier versions kept it in their database.
    pub record: RunRecord,
    /// Whether the key was used before: what is returned is what was made then.
    pub idempotent: bool,
}

impl Submitted {
    fn of(kind: Kind, resource: Value, idempotent: bool) -> Self {
        Self {
            kind,
            record: record(kind, &resource),
            resource,
            idempotent,
        }
    }
}

impl ControlPlane {
    /// Makes the run of a draft, or finds what its key made before. `allowed` is asked before one is made.
    ///
    /// All of it is recorded, also that it was refused, unless nothing came of it because the key was used before.
    pub(super) async fn once<A, F>(
        self: &Arc<Self>,
        caller: &Caller,
        draft: Draft,
        allowed: A,
    ) -> Result<Submitted, Refusal>
    where
        A: FnOnce(Arc<Self>, Draft) -> F + Send + 'static,
        F: Future<Output = Result<Draft, Refusal>> + Send + 'static,
    {
        let deed = Deed {
            action: draft.action,
            kind: draft.kind,
            namespace: draft.namespace.clone(),
            name: draft.name(),
        };
        let (plane, submitter) = (Arc::clone(self), caller.clone());
        let work = async move {
            plane
                .require_create(&submitter, draft.kind, &draft.namespace)
                .await?;
            let submitted = match plane.made_before(&draft).await? {
                Some(before) => before,
                None => {
                    let draft = allowed(Arc::clone(&plane), draft).await?;
                    plane.create_run(&submitter, draft).await?
                }
            };
            plane.visible(&submitter, submitted).await
        };
        self.audited_if(caller, deed, work, |submitted| !submitted.idempotent)
            .await
    }

    /// Who may create runs need not be allowed to read them: they learn that the key was used, and for which run.
    async fn visible(&self, caller: &Caller, submitted: Submitted) -> Result<Submitted, Refusal> {
        let resource = &submitted.resource;
        let named = |pointer| text(resource, pointer).unwrap_or_default();
        let (namespace, name) = (named("/metadata/namespace"), named("/metadata/name"));
        let get = Question::get(submitted.kind, &namespace, &name);
        if !submitted.idempotent || self.gatekeeper.may(&caller.identity, &get).await? {
            return Ok(submitted);
        }
        let bare = json!({
            "apiVersion": resource.get("apiVersion"), "kind": resource.get("kind"),
            "metadata": {"namespace": namespace, "name": name, "uid": named("/metadata/uid")},
        });
        Ok(Submitted::of(submitted.kind, bare, true))
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
            .create_unrecorded(caller, draft.kind, &draft.namespace, draft.manifest())
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
