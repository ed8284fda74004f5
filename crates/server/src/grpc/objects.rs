//! Objects of any kind, by the name of the kind: created, watched, and what Kubernetes says about them.

use std::{collections::VecDeque, sync::Arc};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use jangar_proto::v1::{
    CreateObjectRequest, CreateObjectResponse, ListEventsRequest, ListEventsResponse, WatchObjectsRequest,
    WatchObjectsResponse, watch_objects_response::Change,
};
use serde_json::Value;
use tonic::{Request, Response, Status, codegen::BoxStream as AnswerStream};

use super::{caller, kinds::document};
use crate::{
    metrics::Protocol,
    plane::{
        ControlPlane,
        create::{kind_named, kind_of},
        objects::{ListQuery, checked_name},
        stream::{Subscription, Told},
    },
    refusal::{Refusal, Trouble},
    world::{Action, Object},
};

pub(super) async fn create_object(
    plane: &Arc<ControlPlane>,
    request: Request<CreateObjectRequest>,
) -> Result<Response<CreateObjectResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let manifest = document(&request.manifest_yaml)?;
    let kind = kind_of(&manifest)?;
    let made = plane.create_new(&caller, kind, &namespace, manifest).await?;
    Ok(Response::new(CreateObjectResponse {
        exists: made.is_none(),
        json: made.map(|object| object.json.to_string()).unwrap_or_default(),
    }))
}

pub(super) async fn list_events(
    plane: &Arc<ControlPlane>,
    request: Request<ListEventsRequest>,
) -> Result<Response<ListEventsResponse>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let namespace = plane.namespace(Some(&request.namespace))?;
    let kind = &kind_named(&request.kind)?.info().kind;
    checked_name("name", &request.name)?;
    let uid = Some(request.uid.as_str()).filter(|uid| !uid.is_empty());
    let events = plane
        .events(&caller, &namespace, kind, &request.name, uid, request.limit)
        .await?;
    Ok(Response::new(ListEventsResponse {
        json: Value::Array(events).to_string(),
    }))
}

pub(super) async fn watch_objects(
    plane: &Arc<ControlPlane>,
    request: Request<WatchObjectsRequest>,
) -> Result<Response<AnswerStream<WatchObjectsResponse>>, Refusal> {
    let caller = caller(&request)?;
    let request = request.into_inner();
    let kind = kind_named(&request.kind)?;
    let namespace = match request.namespace.as_str() {
        "" => plane.default_namespace().to_owned(),
        namespace => namespace.to_owned(),
    };
    let query = ListQuery {
        namespace,
        label_selector: request.label_selector,
        ..ListQuery::default()
    };
    let filter = query.filter()?;
    let name = Some(request.name).filter(|name| !name.is_empty());
    if let Some(name) = &name {
        checked_name("name", name)?;
    }
    let subscription = Subscription {
        kinds: vec![kind],
        filter: filter.clone(),
        name: name.clone(),
        last_id: None,
        snapshot: true,
    };
    let changes = plane
        .changes(caller.clone(), subscription, Protocol::Grpc)
        .await?;
    // The caches may be a moment behind what the caller has just made, who would take it for deleted.
    let named = match (&filter.namespace, &name) {
        (Some(namespace), Some(name)) => match plane.get(&caller, kind, namespace, name).await {
            Ok(object) => Some(object),
            Err(refusal) if matches!(refusal.trouble, Trouble::NotFound | Trouble::Forbidden) => None,
            Err(refusal) => return Err(refusal),
        },
        _ => None,
    };
    let watching = Watching {
        told: changes.boxed(),
        named,
        left: 0,
        pending: VecDeque::new(),
        over: false,
    };
    Ok(Response::new(stream::unfold(watching, next).boxed()))
}

/// Objects that are watched.
struct Watching {
    told: BoxStream<'static, Result<Told, Refusal>>,
    /// The one object that is watched, as it was at the beginning.
    named: Option<Arc<Object>>,
    /// How many objects are still to come until all that is there has been told.
    left: usize,
    pending: VecDeque<WatchObjectsResponse>,
    over: bool,
}

impl Watching {
    fn tell(&mut self, change: Change, object: Option<&Object>) {
        self.pending.push_back(WatchObjectsResponse {
            change: change.into(),
            json: object.map(|object| object.json.to_string()).unwrap_or_default(),
        });
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Heartbeat => {}
            Told::Reset { objects, .. } => {
                self.tell(Change::Relisting, None);
                if let Some(object) = self.named.take() {
                    self.tell(Change::Seen, Some(&object));
                }
                self.left = objects;
                if objects == 0 {
                    self.tell(Change::Listed, None);
                }
            }
            Told::Object { action, object, .. } => {
                let change = match action {
                    Action::Deleted => Change::Gone,
                    Action::Added | Action::Modified => Change::Seen,
                };
                self.tell(change, Some(&object));
                if self.left > 0 {
                    self.left -= 1;
                    if self.left == 0 {
                        self.tell(Change::Listed, None);
                    }
                }
            }
        }
    }
}

async fn next(mut watching: Watching) -> Option<(Result<WatchObjectsResponse, Status>, Watching)> {
    loop {
        if let Some(answer) = watching.pending.pop_front() {
            return Some((Ok(answer), watching));
        }
        if watching.over {
            return None;
        }
        match watching.told.next().await? {
            Ok(told) => watching.take(told),
            Err(refusal) => {
                watching.over = true;
                return Some((Err(Status::from(refusal)), watching));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jangar_api::Kind;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Arc<Object> {
        let json = json!({"metadata": {"name": name, "namespace": "a"}});
        let object = serde_json::from_value(json).expect("an object");
        Arc::new(Object::read(Kind::Agent, object, true))
    }

    fn changes(told: Vec<Told>, named: Option<Arc<Object>>) -> Vec<Change> {
        let mut watching = Watching {
            told: stream::empty().boxed(),
            named,
            left: 0,
            pending: VecDeque::new(),
            over: false,
        };
        for one in told {
            watching.take(one);
        }
        watching
            .pending
            .iter()
            .map(WatchObjectsResponse::change)
            .collect()
    }

    fn reset(objects: usize) -> Told {
        Told::Reset {
            id: String::new(),
            cut: false,
            objects,
        }
    }

    fn told(action: Action) -> Told {
        Told::Object {
            id: String::new(),
            action,
            object: object("x"),
        }
    }

    #[test]
    fn the_end_of_what_is_there_is_told_before_changes() {
        assert_eq!(
            changes(vec![reset(1), told(Action::Added), told(Action::Deleted)], None),
            [Change::Relisting, Change::Seen, Change::Listed, Change::Gone]
        );
        assert_eq!(changes(vec![reset(0)], None), [Change::Relisting, Change::Listed]);
    }

    #[test]
    fn an_object_that_the_caches_do_not_show_yet_is_not_taken_for_deleted() {
        assert_eq!(
            changes(vec![reset(0), reset(0)], Some(object("x"))),
            [
                Change::Relisting,
                Change::Seen,
                Change::Listed,
                Change::Relisting,
                Change::Listed
            ]
        );
    }
}
