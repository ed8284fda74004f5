//! Objects of any kind, by the name of the kind: created, watched, and what Kubernetes says about them.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use jangar_api::Kind;
use jangar_proto::v1::{
    CreateObjectRequest, CreateObjectResponse, ListEventsRequest, ListEventsResponse, WatchObjectsRequest,
    WatchObjectsResponse, watch_objects_response::Change,
};
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
    world::{Action, Filter, Object},
};

/// How many objects a watch tells of when it begins. Beyond that a client pages through lists.
const LISTED_MAX: usize = 2_000;

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
        // It is made of texts and numbers.
        json: serde_json::to_string(&events).unwrap_or_default(),
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
        snapshot: false,
    };
    // First the stream, then what is there: so that no change falls between them.
    let changes = plane
        .changes(caller.clone(), subscription, Protocol::Grpc)
        .await?;
    // The caches may be a moment behind what the caller has just made, who would take it for deleted.
    let late = match (&filter.namespace, &name) {
        (Some(namespace), Some(name)) => match plane.get(&caller, kind, namespace, name).await {
            Ok(object) => Some(object),
            Err(refusal) if matches!(refusal.trouble, Trouble::NotFound | Trouble::Forbidden) => None,
            Err(refusal) => return Err(refusal),
        },
        _ => None,
    };
    let shelf = Shelf {
        plane: Arc::clone(plane),
        kind,
        filter,
        name,
    };
    let mut watching = Watching {
        told: changes.boxed(),
        pending: VecDeque::new(),
        cut: false,
        over: false,
    };
    watching.list(shelf.objects(), late);
    let watching = stream::unfold((watching, shelf), |(watching, shelf)| next(watching, shelf));
    Ok(Response::new(watching.boxed()))
}

/// Where the objects are that are watched.
struct Shelf {
    plane: Arc<ControlPlane>,
    kind: Kind,
    filter: Filter,
    name: Option<String>,
}

impl Shelf {
    fn object(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let object = self.plane.world.get(self.kind, namespace, name);
        object.filter(|object| self.filter.matches(object))
    }

    /// What is there, by namespace and name as Kubernetes lists it.
    fn objects(&self) -> Listed {
        let mut objects = match (&self.filter.namespace, &self.name) {
            (Some(namespace), Some(name)) => {
                let found = self.plane.world.get(self.kind, namespace, name);
                found.into_iter().collect()
            }
            _ => self
                .plane
                .world
                .list(self.kind, &self.filter, None, LISTED_MAX + 1),
        };
        let cut = objects.len() > LISTED_MAX;
        objects.truncate(LISTED_MAX);
        objects.retain(|object| {
            self.filter.matches(object) && self.name.as_ref().is_none_or(|name| *name == object.name)
        });
        objects.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        Listed {
            objects,
            cut,
            is_one: self.filter.namespace.is_some() && self.name.is_some(),
        }
    }

    /// What is to be told of something that is pending, if it is still there.
    fn told(&self, pending: Pending) -> Option<(Change, Option<Arc<Object>>)> {
        let known = match pending {
            Pending::Word(change) => return Some((change, None)),
            Pending::Object(change, object) => return Some((change, Some(object))),
            Pending::Known(object) => {
                // The list of changes holds what an object was before it changed. Who cannot find it there any more has fallen behind, and is
                // told everything again.
                let object = object.upgrade()?;
                self.object(&object.namespace, &object.name)
            }
            Pending::One => match (&self.filter.namespace, &self.name) {
                (Some(namespace), Some(name)) => self.object(namespace, name),
                _ => None,
            },
        };
        known.map(|object| (Change::Seen, Some(object)))
    }
}

/// What is there.
#[derive(Default)]
struct Listed {
    objects: Vec<Arc<Object>>,
    /// There are more.
    cut: bool,
    /// One object was asked for, by its namespace and name.
    is_one: bool,
}

/// What is still to be told.
#[derive(Debug)]
enum Pending {
    Word(Change),
    /// An object that was there: it is told as it is when its turn comes, and nothing of it is kept for who does not read.
    Known(Weak<Object>),
    /// The one that was asked for by its name.
    One,
    Object(Change, Arc<Object>),
}

/// Objects that are watched.
struct Watching {
    told: BoxStream<'static, Result<Told, Refusal>>,
    pending: VecDeque<Pending>,
    /// There were more than were told last.
    cut: bool,
    over: bool,
}

impl Watching {
    /// Tells all that is there, and one that the caches may not show yet.
    fn list(&mut self, listed: Listed, late: Option<Arc<Object>>) {
        let Listed { objects, cut, is_one } = listed;
        self.cut = cut;
        let late = late.filter(|_| objects.is_empty());
        self.pending.push_back(Pending::Word(Change::Relisting));
        let known = objects.iter().map(|object| {
            if is_one {
                Pending::One
            } else {
                Pending::Known(Arc::downgrade(object))
            }
        });
        self.pending.extend(known);
        self.pending
            .extend(late.map(|object| Pending::Object(Change::Seen, object)));
        self.pending.push_back(Pending::Word(Change::Listed));
    }

    fn change(&mut self, action: Action, object: Arc<Object>) {
        let change = match action {
            Action::Deleted => Change::Gone,
            Action::Added | Action::Modified => Change::Seen,
        };
        self.pending.push_back(Pending::Object(change, object));
    }
}

type Answer = Result<WatchObjectsResponse, Status>;

async fn next(mut watching: Watching, shelf: Shelf) -> Option<(Answer, (Watching, Shelf))> {
    loop {
        if let Some(pending) = watching.pending.pop_front() {
            let Some((change, object)) = shelf.told(pending) else {
                // The list of changes tells of that.
                continue;
            };
            let answer = WatchObjectsResponse {
                change: change.into(),
                json: object.map(|object| object.json.to_string()).unwrap_or_default(),
                cut: change == Change::Listed && watching.cut,
            };
            return Some((Ok(answer), (watching, shelf)));
        }
        if watching.over {
            return None;
        }
        match watching.told.next().await? {
            Ok(Told::Heartbeat { .. } | Told::Synced { .. }) => {}
            Ok(Told::Object { action, object, .. }) => watching.change(action, object),
            // The stream fell behind. What it tells of after that is told twice rather than not at all.
            Ok(Told::Reset { .. }) => watching.list(shelf.objects(), None),
            Err(refusal) => {
                watching.over = true;
                return Some((Err(Status::from(refusal)), (watching, shelf)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Arc<Object> {
        let json = json!({"metadata": {"name": name, "namespace": "a"}});
        let object = serde_json::from_value(json).expect("an object");
        Arc::new(Object::read(Kind::Agent, object, true))
    }

    fn listed(objects: &[&str], late: Option<&str>) -> Vec<Change> {
        let mut watching = Watching {
            told: stream::empty().boxed(),
            pending: VecDeque::new(),
            cut: false,
            over: false,
        };
        watching.list(
            Listed {
                objects: objects.iter().map(|name| object(name)).collect(),
                cut: false,
                is_one: false,
            },
            late.map(object),
        );
        let change = |pending: &Pending| match pending {
            Pending::Word(change) | Pending::Object(change, _) => *change,
            Pending::Known(_) | Pending::One => Change::Seen,
        };
        watching.pending.iter().map(change).collect()
    }

    #[test]
    fn the_end_of_what_is_there_is_told() {
        assert_eq!(
            listed(&["x"], None),
            [Change::Relisting, Change::Seen, Change::Listed]
        );
        assert_eq!(listed(&[], None), [Change::Relisting, Change::Listed]);
    }

    #[test]
    fn what_waits_for_a_client_that_does_not_read_is_small() {
        assert!(size_of::<Pending>() <= 2 * size_of::<usize>());
    }

    #[test]
    fn an_object_that_the_caches_do_not_show_yet_is_not_taken_for_deleted() {
        let once = [Change::Relisting, Change::Seen, Change::Listed];
        assert_eq!(listed(&[], Some("x")), once);
        assert_eq!(listed(&["x"], Some("x")), once);
    }
}
