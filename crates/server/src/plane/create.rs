//! A new object of any kind, for clients that write the whole object themselves.

use std::sync::Arc;

use jangar_api::{Kind, agents::agent_run::AgentRun, labels::CREATED_BY};
use jangar_engine::{
    queue::{Lane, no_room, repository_of},
    waiting::Full,
};
use serde_json::{Value, json};

use super::{Caller, ControlPlane};
use crate::{
    access::Question,
    audit::Deed,
    refusal::{Refusal, Trouble},
    world::{Object, text},
};

/// When a client that was told that the queue is full may try again.
const QUEUE_RETRY_SECONDS: u32 = 15;

impl ControlPlane {
    /// Creates an object, as the caller; `None` if there is one of that name, which is left as it is.
    pub async fn create_new(
        self: &Arc<Self>,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        manifest: Value,
    ) -> Result<Option<Object>, Refusal> {
        let deed = Deed {
            action: "object.created",
            kind,
            namespace: namespace.to_owned(),
            name: text(&manifest, "/metadata/name").unwrap_or_default(),
        };
        let (plane, maker, namespace) = (Arc::clone(self), caller.clone(), namespace.to_owned());
        let work = async move { plane.created(&maker, kind, &namespace, manifest).await };
        self.audited_if(caller, deed, work, Option::is_some).await
    }

    async fn created(
        &self,
        caller: &Caller,
        kind: Kind,
        namespace: &str,
        mut manifest: Value,
    ) -> Result<Option<Object>, Refusal> {
        // Whoever may not make it learns nothing of what there is.
        let create = Question::on("create", kind, namespace, "");
        self.gatekeeper.require(&caller.identity, &create).await?;
        if kind.is_run() {
            sign(&mut manifest, Some(&caller.identity.user))?;
        }
        if kind == Kind::AgentRun {
            self.has_room(namespace, &manifest)?;
        }
        match self.create_unrecorded(caller, kind, namespace, manifest).await {
            Ok(object) => Ok(Some(object)),
            // A create collides with nothing but an object of the same name.
            Err(refusal) if refusal.trouble == Trouble::Conflict => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

impl ControlPlane {
    /// Whether one more run of an agent may wait, as with a submission. What makes no sense is left to the API server.
    pub(super) fn has_room(&self, namespace: &str, manifest: &Value) -> Result<(), Refusal> {
        let Ok(run) = serde_json::from_value::<AgentRun>(manifest.clone()) else {
            return Ok(());
        };
        let lane = Lane {
            namespace: namespace.to_owned(),
            agent: run.spec.agent_ref.name.clone(),
            repository: repository_of(&run),
        };
        match no_room(&self.world.waiting(), &lane, &self.settings.limits) {
            None => Ok(()),
            Some(Full { scope, in_use, limit }) => Err(Refusal::new(
                Trouble::TooMany,
                format!("the queue of {scope} is full: {in_use} runs wait, and the limit is {limit}"),
            )
            .remedy("create it when some of them have started, or raise the limit of the queue")
            .retry_after(QUEUE_RETRY_SECONDS)),
        }
    }
}

/// The kind of an object that somebody wrote.
pub fn kind_of(manifest: &Value) -> Result<Kind, Refusal> {
    let word = text(manifest, "/kind").unwrap_or_default();
    kind_named(&word)
}

/// The kind of this name, such as `AgentRun`.
pub fn kind_named(word: &str) -> Result<Kind, Refusal> {
    let found = Kind::ALL.iter().find(|kind| kind.info().kind == word);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().kind.as_str()).collect();
        Refusal::field("kind", word, "this is no kind of Jangar")
            .remedy(format!("give one of {}", names.join(", ")))
    })
}

/// Who makes a run may not let it pass its gates, so that it says who that is, whatever they wrote; or nothing, of one whose maker nobody
/// knows.
pub(super) fn sign(manifest: &mut Value, user: Option<&str>) -> Result<(), Refusal> {
    let unnamed = || Refusal::missing("metadata.name").remedy("give the object a name");
    let metadata = manifest
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or_else(unnamed)?;
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    match annotations.as_object_mut() {
        Some(annotations) => {
            match user {
                Some(user) => annotations.insert(CREATED_BY.to_owned(), json!(user)),
                None => annotations.remove(CREATED_BY),
            };
            Ok(())
        }
        None => Err(
            Refusal::field("metadata.annotations", &*annotations, "these are no annotations")
                .remedy("write a map of texts, or leave them out"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_who_made_it_whatever_they_wrote() {
        let mut run =
            json!({"metadata": {"name": "r", "annotations": {CREATED_BY: "somebody else", "a": "b"}}});
        sign(&mut run, Some("ada")).expect("it has metadata");
        assert_eq!(
            run["metadata"]["annotations"],
            json!({CREATED_BY: "ada", "a": "b"})
        );
        sign(&mut run, None).expect("it has metadata");
        assert_eq!(run["metadata"]["annotations"], json!({"a": "b"}));
        assert!(sign(&mut json!({}), Some("ada")).is_err());
        assert!(sign(&mut json!({"metadata": {"annotations": "none"}}), Some("ada")).is_err());
    }

    #[test]
    fn only_kinds_of_ours_are_known() {
        assert_eq!(kind_of(&json!({"kind": "Agent"})), Ok(Kind::Agent));
        let refusal = kind_of(&json!({"kind": "Pod"})).expect_err("not ours");
        assert!(refusal.to_string().contains("kind=`Pod`"), "{refusal}");
        assert!(kind_of(&json!({})).is_err());
    }
}
