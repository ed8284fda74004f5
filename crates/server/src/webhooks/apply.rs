//! Writes an issue as an ImplementationSpec, and never an older version over a newer one.
//!
//! The version of the issue stands in an annotation, so that it is written together with the spec, and each write holds only for
//! the state that was looked at. A spec that is not there is created first with what every issue has: creating is the one write
//! that fails if somebody else was first. The rest is server-side apply under a field manager of its own, so that what people add
//! to the spec, such as acceptance criteria, stays theirs.

use jangar_api::{
    agents::implementation_spec::ImplementationSpec,
    labels::{SOURCE_PROVIDER, SOURCE_VERSION},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::issue::{Issue, Version};
use crate::{
    plane::{ControlPlane, live},
    refusal::{Refusal, Trouble},
};

/// Under this name the writes stand in the managed fields. Not the name of the control plane: what callers apply through it would
/// be taken back by the next delivery.
pub(super) const FIELD_MANAGER: &str = "jangar-webhooks";
/// How often a write is tried again because the spec changed meanwhile. Only its controller and other deliveries change it.
const TRIES_MAX: usize = 8;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The spec is as the issue is.
    Synced,
    /// The spec was of a later version already.
    Outdated,
}

/// Makes the ImplementationSpec of a namespace as the issue is.
pub(super) async fn write(plane: &ControlPlane, namespace: &str, issue: &Issue) -> Result<Written, Refusal> {
    let specs: Api<ImplementationSpec> = Api::namespaced(plane.own.clone(), namespace);
    let name = issue.spec_name.as_str();
    for _ in 0..TRIES_MAX {
        let found = match live(specs.get_opt(name)).await.map_err(may_not)? {
            Some(found) => found,
            None => match create(&specs, namespace, issue).await? {
                Some(created) => created,
                None => continue,
            },
        };
        check_origin(&found, issue)?;
        if version(&found).is_some_and(|known| known.is_later_than(&issue.version)) {
            return Ok(Written::Outdated);
        }
        let manifest = manifest(namespace, issue, found.resource_version().as_deref());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match live(specs.patch(name, &params, &Patch::Apply(&manifest))).await {
            Ok(written) => {
                let unchanged = written.resource_version() == found.resource_version()
                    && source_version(&written) == Some(issue.version.text.as_str());
                if !unchanged {
                    note(plane, &specs, written, issue).await?;
                }
                return Ok(Written::Synced);
            }
            // Somebody else was faster, or it is gone: look again.
            Err(refusal) if matches!(refusal.trouble, Trouble::Conflict | Trouble::NotFound) => {}
            Err(refusal) => return Err(may_not(refusal)),
        }
    }
    Err(too_fast(name))
}

/// Creates the spec; none, if somebody else did meanwhile.
async fn create(
    specs: &Api<ImplementationSpec>,
    namespace: &str,
    issue: &Issue,
) -> Result<Option<ImplementationSpec>, Refusal> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let object: ImplementationSpec = serde_json::from_value(reservation(namespace, issue))
        .map_err(|error| Refusal::new(Trouble::Internal, format!("the spec cannot be made: {error}")))?;
    match live(specs.create(&params, &object)).await {
        Ok(created) => Ok(Some(created)),
        Err(refusal) if refusal.trouble == Trouble::Conflict => Ok(None),
        Err(refusal) => Err(may_not(refusal)),
    }
}

/// What every version of the issue has, and no version of its own: any delivery may go on from here.
fn reservation(namespace: &str, issue: &Issue) -> Value {
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "ImplementationSpec",
        "metadata": {
            "name": issue.spec_name, "namespace": namespace,
            "labels": {SOURCE_PROVIDER: issue.sender.word()},
        },
        "spec": {
            "text": issue.text,
            "source": {"provider": issue.provider(), "externalId": issue.external_id},
        },
    })
}

/// The whole, for the state of the object that was looked at.
fn manifest(namespace: &str, issue: &Issue, resource_version: Option<&str>) -> Value {
    json!({
        "apiVersion": "agents.proompteng.ai/v1alpha1", "kind": "ImplementationSpec",
        "metadata": {
            "name": issue.spec_name, "namespace": namespace, "resourceVersion": resource_version,
            "labels": {SOURCE_PROVIDER: issue.sender.word()},
            "annotations": {SOURCE_VERSION: issue.version.text},
        },
        "spec": issue.spec(),
    })
}

/// Notes in the status when and from which version the spec was made. Whether it can be worked on says its controller.
async fn note(
    plane: &ControlPlane,
    specs: &Api<ImplementationSpec>,
    written: ImplementationSpec,
    issue: &Issue,
) -> Result<(), Refusal> {
    let mut current = written;
    let name = issue.spec_name.as_str();
    for _ in 0..TRIES_MAX {
        let patch = json!({
            "metadata": {"resourceVersion": current.resource_version(), "uid": current.uid()},
            "status": {"sourceVersion": issue.version.text, "syncedAt": plane.now().to_string()},
        });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match live(specs.patch_status(name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(()),
            Err(refusal) if refusal.trouble == Trouble::Conflict => {}
            // It is gone, and with it what was to be noted.
            Err(refusal) if refusal.trouble == Trouble::NotFound => return Ok(()),
            Err(refusal) => return Err(may_not(refusal)),
        }
        match live(specs.get_opt(name)).await.map_err(may_not)? {
            // A later version notes itself.
            Some(found) if annotated(&found) == Some(issue.version.text.as_str()) => current = found,
            Some(_) | None => return Ok(()),
        }
    }
    Err(too_fast(name))
}

/// Two issues can have one name: `a-b/c` and `a/b-c`. And somebody may have written a spec of that name.
fn check_origin(found: &ImplementationSpec, issue: &Issue) -> Result<(), Refusal> {
    let origin = found.spec.source.as_ref();
    let same = origin.is_some_and(|origin| {
        origin.provider == issue.provider()
            && origin
                .external_id
                .as_deref()
                .is_some_and(|id| id.eq_ignore_ascii_case(&issue.external_id))
    });
    if same {
        return Ok(());
    }
    let id = origin.and_then(|origin| origin.external_id.as_deref());
    Err(Refusal::new(
        Trouble::Invalid,
        format!(
            "ImplementationSpec {} is not of {}: its spec.source.externalId is {}",
            issue.spec_name,
            issue.external_id,
            id.unwrap_or("not set")
        ),
    )
    .remedy("rename it, or take the issue into another namespace"))
}

/// The version that a spec was made from. Earlier versions of Jangar noted it in the status alone.
fn version(spec: &ImplementationSpec) -> Option<Version> {
    annotated(spec)
        .or_else(|| source_version(spec))
        .and_then(Version::parse)
}

fn annotated(spec: &ImplementationSpec) -> Option<&str> {
    spec.annotations().get(SOURCE_VERSION).map(String::as_str)
}

fn source_version(spec: &ImplementationSpec) -> Option<&str> {
    spec.status.as_ref()?.source_version.as_deref()
}

fn too_fast(name: &str) -> Refusal {
    Refusal::unavailable(format!("ImplementationSpec {name} changes too fast to write it"))
}

/// That our own account may not is no fault of the sender, and may be mended.
fn may_not(refusal: Refusal) -> Refusal {
    if matches!(refusal.trouble, Trouble::Forbidden | Trouble::Unauthenticated) {
        Refusal::unavailable(format!("the control plane may not take in issues: {refusal}")).remedy(
            "give its account the verbs get, create and patch on implementationspecs, and patch on implementationspecs/status",
        )
    } else {
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhooks::{Sender, issue::Place};

    fn issue() -> Issue {
        Issue {
            sender: Sender::Github,
            external_id: "team/app#7".to_owned(),
            spec_name: "team-app-7-impl".to_owned(),
            text: "do it".to_owned(),
            summary: "it".to_owned(),
            labels: Vec::new(),
            url: None,
            version: Version::parse("2026-03-01T12:00:00Z").expect("a time"),
            place: Place::Repository {
                owner: "team".to_owned(),
                name: "app".to_owned(),
            },
        }
    }

    fn spec(json: &Value) -> ImplementationSpec {
        serde_json::from_value(json.clone()).expect("a spec")
    }

    #[test]
    fn what_is_created_first_has_no_version_and_is_part_of_what_is_applied() {
        let (reservation, manifest) = (reservation("a", &issue()), manifest("a", &issue(), Some("5")));
        assert_eq!(version(&spec(&reservation)), None);
        assert_eq!(
            version(&spec(&manifest)).map(|version| version.text),
            Some("2026-03-01T12:00:00Z".to_owned())
        );
        // Else a field that goes from the issue would stay in the spec, owned by who created it.
        for pointer in ["/spec/text", "/spec/source/provider", "/spec/source/externalId"] {
            assert_eq!(
                reservation.pointer(pointer),
                manifest.pointer(pointer),
                "{pointer}"
            );
        }
        let fields = reservation["spec"].as_object().expect("fields");
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn a_version_is_read_from_the_annotation_and_else_from_the_status() {
        let mut json = reservation("a", &issue());
        json["status"] = json!({"sourceVersion": "2026-02-01T00:00:00Z"});
        let text = |json: &Value| version(&spec(json)).map(|version| version.text);
        assert_eq!(text(&json).as_deref(), Some("2026-02-01T00:00:00Z"));
        json["metadata"]["annotations"] = json!({SOURCE_VERSION: "2026-02-02T00:00:00Z"});
        assert_eq!(text(&json).as_deref(), Some("2026-02-02T00:00:00Z"));
        json["metadata"]["annotations"] = json!({SOURCE_VERSION: "by hand"});
        assert_eq!(text(&json), None);
    }

    #[test]
    fn a_spec_of_something_else_is_not_overwritten() {
        let mut json = reservation("a", &issue());
        assert!(check_origin(&spec(&json), &issue()).is_ok());
        json["spec"]["source"]["externalId"] = json!("Team/App#7");
        assert!(check_origin(&spec(&json), &issue()).is_ok());
        json["spec"]["source"]["externalId"] = json!("team-app/7#1");
        assert!(check_origin(&spec(&json), &issue()).is_err());
        json["spec"] = json!({"text": "by hand"});
        let refusal = check_origin(&spec(&json), &issue()).expect_err("it is somebody's");
        assert_eq!(refusal.trouble, Trouble::Invalid);
    }
}
