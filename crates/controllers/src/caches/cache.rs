//! The objects of one kind as far as a watch has told of them. No waiting and no requests in here: events go in, changes
//! come out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jangar_engine::{
    decision::{Key, Uid},
    last_sight::LastSight,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use super::{
    CachedKind, Feed, Scope,
    delivered::{Delivered, Illegible},
    departed::Departed,
    index::{Index, Term},
    kinds::Cached,
    version::ResourceVersion,
};

/// The objects of one kind.
///
/// What is in here was true once and may be late; only a live read says what is true now. Live reads may put their answers
/// in as well, so the watch can be behind what is here: an older event does not undo a newer answer.
#[derive(Debug)]
pub struct Cache<K> {
    entries: BTreeMap<Key, Entry<K>>,
    index: Index,
    streams: BTreeMap<Feed, Stream<K>>,
    /// Objects that a live read found gone before the watch told so. A UID never comes back, so what the watch still has
    /// to say about them is old. Each entry goes when the watch has caught up.
    /// The label tells whose watch that is, if it is known.
    gone: BTreeMap<(Key, Uid), Option<&'static str>>,
    /// What was last seen of those that went, where the kind leaves evidence.
    departed: Departed,
    /// How many are over, and wait for us to record how.
    uncaptured: usize,
}

/// One object.
#[derive(Debug)]
struct Entry<K> {
    /// An object that cannot be read is kept as a fact: it is there, and must not be taken for gone. The error says what is
    /// wrong with it.
    object: Result<Arc<K>, String>,
    uid: Uid,
    version: ResourceVersion,
    terms: BTreeSet<Term>,
    /// The label by which its watch finds it.
    label: Option<&'static str>,
    /// It came from a live read, so it can be newer than what the watch says next.
    live: bool,
}

/// How far one watch has come.
#[derive(Debug)]
struct Stream<K> {
    /// The highest version that it has told of.
    seen: ResourceVersion,
    /// Whether its first list is complete.
    listed: bool,
    /// What a list in progress has brought so far: it counts when it is complete.
    listing: BTreeMap<Key, Entry<K>>,
}

/// That something about an object is different from what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: CachedKind,
    pub key: Key,
    /// What the object names now, and what it named before.
    pub terms: BTreeSet<Term>,
}

/// An object that was delivered and cannot be read, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub key: Key,
    pub error: String,
}

/// What became of an event.
#[derive(Debug, Default)]
pub struct Applied {
    pub changes: Vec<Change>,
    /// Told once for each version of the object.
    pub unreadable: Vec<Unreadable>,
}

impl<K: Cached> Cache<K> {
    pub(super) fn new(scopes: &BTreeSet<Scope>) -> Self {
        let stream = |feed: Feed| {
            let stream = Stream {
                seen: ResourceVersion::default(),
                listed: false,
                listing: BTreeMap::new(),
            };
            (feed, stream)
        };
        Self {
            entries: BTreeMap::new(),
            index: Index::default(),
            streams: Feed::of::<K>(scopes).map(stream).collect(),
            gone: BTreeMap::new(),
            departed: Departed::default(),
            uncaptured: 0,
        }
    }

    /// The object, if it is there and can be read.
    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.entries.get(key)?.object.as_ref().ok()
    }

    /// The keys of all objects, also of those that cannot be read.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.entries.keys()
    }

    /// What is wrong with the object, if it is there and cannot be read.
    pub fn illegible(&self, key: &Key) -> Option<&String> {
        self.entries.get(key)?.object.as_ref().err()
    }

    /// The names of the objects in a namespace that name this.
    pub fn naming(&self, namespace: &str, term: Term) -> impl Iterator<Item = &String> + use<'_, K> {
        self.index.find(namespace, term)
    }

    /// What was last seen of an object of this name that is gone, if it is remembered.
    pub fn departed(&self, key: &Key) -> Option<&LastSight> {
        self.departed.get(key)
    }

    /// The names of objects that are gone and that another one controlled.
    pub fn departed_of(&self, owner: &Uid) -> impl Iterator<Item = &Key> {
        self.departed.owned_by(owner)
    }

    /// How many objects are over, and wait for us to record how.
    pub fn uncaptured(&self) -> usize {
        self.uncaptured
    }

    /// Whether all first lists are complete.
    pub fn is_ready(&self) -> bool {
        self.streams.values().all(|stream| stream.listed)
    }

    /// Whether a write of this version is known here: the object has come that far, or the watch that finds it by this label
    /// has gone past it.
    pub fn has_reached(&self, key: &Key, label: Option<&'static str>, version: ResourceVersion) -> bool {
        let object = self.entries.get(key).map(|entry| entry.version);
        let watch = |scope| self.streams.get(&Feed { scope, label });
        let watch = watch(Scope::All).or_else(|| watch(Scope::Namespace(key.namespace.clone())));
        object >= Some(version) || watch.is_some_and(|stream| stream.seen >= version)
    }

    /// Whether this very object is here.
    pub fn holds(&self, key: &Key, uid: &Uid) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.uid == *uid)
    }

    /// Takes in what a watch says.
    pub(super) fn apply(&mut self, feed: &Feed, event: Event<Delivered<K>>) -> Applied {
        let mut applied = Applied::default();
        match event {
            Event::Init => self.stream(feed).listing = BTreeMap::new(),
            Event::InitApply(object) => {
                let (key, entry) = Entry::of(object);
                if let Err(error) = &entry.object
                    && self.entries.get(&key).map(|known| known.version) != Some(entry.version)
                {
                    applied.unreadable.push(Unreadable {
                        key: key.clone(),
                        error: error.clone(),
                    });
                }
                self.stream(feed).listing.insert(key, entry);
            }
            Event::InitDone => self.complete_list(feed, &mut applied.changes),
            Event::Apply(object) => {
                let (key, entry) = Entry::of(object);
                applied
                    .unreadable
                    .extend(entry.object.as_ref().err().map(|error| Unreadable {
                        key: key.clone(),
                        error: error.clone(),
                    }));
                self.progress(feed, entry.version);
                applied.changes.extend(self.put(key, entry));
            }
            Event::Delete(object) => {
                let (key, entry) = Entry::of(object);
                self.progress(feed, entry.version);
                self.gone.remove(&(key.clone(), entry.uid.clone()));
                if self.holds(&key, &entry.uid) {
                    applied.changes.extend(self.remove(&key));
                    // What comes with the news that it is gone is newer than what was known.
                    self.remember(&key, &entry);
                }
            }
        }
        applied
    }

    /// What the list that is under way does not name, or has another object of that name in place of: gone, when it is complete.
    pub(super) fn unlisted(&self, feed: &Feed) -> Vec<Arc<K>> {
        let Some(stream) = self.streams.get(feed) else {
            return Vec::new();
        };
        let gone = self.entries.iter().filter(|(key, entry)| {
            let listed = stream.listing.get(key);
            feed.scope.covers(key)
                && entry.label == feed.label
                && listed.is_none_or(|listed| listed.uid != entry.uid)
        });
        gone.filter_map(|(_, entry)| entry.object.as_ref().ok().cloned())
            .collect()
    }

    /// Takes in the answer of a live read.
    pub(super) fn learn(&mut self, object: Delivered<K>) -> Option<Change> {
        let (key, mut entry) = Entry::of(object);
        entry.live = true;
        self.put(key, entry)
    }

    /// Takes in that a live read found nothing where this object was written.
    pub(super) fn forget(&mut self, key: &Key, uid: &Uid) -> Option<Change> {
        let known = self
            .entries
            .get(key)
            .map(|entry| (entry.uid.clone(), entry.label));
        self.gone.entry((key.clone(), uid.clone())).or_default();
        if let Some((uid, label)) = known {
            self.gone.insert((key.clone(), uid), label);
        }
        self.remove(key)
    }

    fn stream(&mut self, feed: &Feed) -> &mut Stream<K> {
        self.streams.entry(feed.clone()).or_insert_with(|| Stream {
            seen: ResourceVersion::default(),
            listed: false,
            listing: BTreeMap::new(),
        })
    }

    fn progress(&mut self, feed: &Feed, version: ResourceVersion) {
        let stream = self.stream(feed);
        stream.seen = stream.seen.max(version);
    }

    /// A list says what there is: whatever it does not name is gone.
    ///
    /// Something that a live read brought while the list was under way can be newer than the list. If the list has the
    /// object, the newer one stays; if not, it goes, and the watch that starts at the list brings it back.
    fn complete_list(&mut self, feed: &Feed, changes: &mut Vec<Change>) {
        let stream = self.stream(feed);
        let listing = std::mem::take(&mut stream.listing);
        stream.listed = true;
        let newest = listing.values().map(|entry| entry.version).max();
        stream.seen = stream.seen.max(newest.unwrap_or_default());

        let listed = |key: &Key, uid: &Uid| listing.get(key).is_some_and(|entry| entry.uid == *uid);
        self.gone.retain(|(key, uid), label| {
            let covered = feed.scope.covers(key) && (label.is_none() || *label == feed.label);
            !covered || listed(key, uid)
        });
        let missing: Vec<Key> = self
            .entries
            .iter()
            .filter(|(key, entry)| feed.scope.covers(key) && entry.label == feed.label)
            .map(|(key, _)| key)
            .filter(|key| !listing.contains_key(key))
            .cloned()
            .collect();
        for key in missing {
            changes.extend(self.remove(&key));
        }
        for (key, entry) in listing {
            let same = self
                .entries
                .get(&key)
                .is_some_and(|known| known.uid == entry.uid && known.version == entry.version && !known.live);
            if !same {
                changes.extend(self.put(key, entry));
            }
        }
    }

    /// Puts an object in, unless what is known is newer.
    fn put(&mut self, key: Key, entry: Entry<K>) -> Option<Change> {
        if self.gone.contains_key(&(key.clone(), entry.uid.clone())) {
            return None;
        }
        let known = self.entries.get(&key);
        if known.is_some_and(|known| (known.live || entry.live) && known.version > entry.version) {
            return None;
        }
        let mut terms = entry.terms.clone();
        self.index.insert(&key, &entry.terms);
        self.uncaptured += usize::from(entry.is_uncaptured());
        if let Some(before) = self.entries.insert(key.clone(), entry) {
            self.uncaptured -= usize::from(before.is_uncaptured());
            let dropped = before.terms.difference(&terms).cloned().collect();
            self.index.remove(&key, &dropped);
            terms.extend(dropped);
        }
        Some(Change {
            kind: K::KIND,
            key,
            terms,
        })
    }

    fn remove(&mut self, key: &Key) -> Option<Change> {
        let entry = self.entries.remove(key)?;
        self.index.remove(key, &entry.terms);
        self.uncaptured -= usize::from(entry.is_uncaptured());
        self.remember(key, &entry);
        Some(Change {
            kind: K::KIND,
            key: key.clone(),
            terms: entry.terms,
        })
    }
}

impl<K: Cached> Cache<K> {
    /// Keeps what is left of an object that went.
    fn remember(&mut self, key: &Key, entry: &Entry<K>) {
        let sight = entry.object.as_ref().ok().and_then(|object| object.last_sight());
        if let Some(sight) = sight {
            self.departed.put(key, sight);
        }
    }
}

impl<K: Cached> Entry<K> {
    fn is_uncaptured(&self) -> bool {
        self.object.as_ref().is_ok_and(|object| object.is_uncaptured())
    }

    fn of(object: Delivered<K>) -> (Key, Self) {
        let (metadata, object) = match object.0 {
            Ok(object) => (object.meta().clone(), Ok(object)),
            Err(Illegible { error, metadata }) => (metadata, Err(error)),
        };
        let entry = Self {
            uid: uid_of(&metadata),
            version: ResourceVersion::of(&metadata),
            terms: object.as_ref().map(K::terms).unwrap_or_default(),
            label: label_of::<K>(&metadata),
            object: object.map(Arc::new),
            live: false,
        };
        (key_of(&metadata), entry)
    }
}

/// The key of an object that came from an API server, which always has a name and, being namespaced, a namespace.
pub(crate) fn key_of(metadata: &ObjectMeta) -> Key {
    Key {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// The label by which the watch of an object finds it, where there is one for each.
pub(crate) fn label_of<K: Cached>(metadata: &ObjectMeta) -> Option<&'static str> {
    let has = |label: &&&'static str| {
        let labels = metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(**label))
    };
    K::LABELS.iter().find(has).copied()
}

/// The UID of an object that came from an API server.
pub(crate) fn uid_of(metadata: &ObjectMeta) -> Uid {
    Uid(metadata.uid.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use jangar_api::labels;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::*;

    static AGENTS: LazyLock<Scope> = LazyLock::new(|| Scope::Namespace("agents".to_owned()));
    static OF_AGENTS: LazyLock<Feed> = LazyLock::new(|| feed(labels::AGENT_RUN));
    static OF_TOOLS: LazyLock<Feed> = LazyLock::new(|| feed(labels::TOOL_RUN));

    fn feed(label: &'static str) -> Feed {
        Feed {
            scope: AGENTS.clone(),
            label: Some(label),
        }
    }

    fn key(name: &str) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: name.to_owned(),
        }
    }

    fn uid(text: &str) -> Uid {
        Uid(text.to_owned())
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::parse(&number.to_string())
    }

    fn metadata(name: &str, uid: &str, version: u64) -> Value {
        json!({
            "namespace": "agents", "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "labels": { "agents.proompteng.ai/agent-run": format!("run-of-{name}") },
        })
    }

    fn job(name: &str, uid: &str, version: u64) -> Delivered<Job> {
        let job = json!({ "metadata": metadata(name, uid, version) });
        serde_json::from_value(job).unwrap()
    }

    /// One whose spec is no object.
    fn broken(name: &str, uid: &str, version: u64) -> Delivered<Job> {
        let job = json!({ "metadata": metadata(name, uid, version), "spec": 5 });
        serde_json::from_value(job).unwrap()
    }

    fn read(object: Delivered<Job>) -> Job {
        object.0.unwrap()
    }

    /// A cache whose first list brought these.
    fn listed(jobs: Vec<Delivered<Job>>) -> Cache<Job> {
        let mut cache = Cache::new(&BTreeSet::from([AGENTS.clone()]));
        list(&mut cache, jobs);
        cache.apply(&OF_TOOLS, Event::Init);
        cache.apply(&OF_TOOLS, Event::InitDone);
        cache
    }

    fn list(cache: &mut Cache<Job>, jobs: Vec<Delivered<Job>>) -> Applied {
        let mut all = cache.apply(&OF_AGENTS, Event::Init);
        for job in jobs {
            let applied = cache.apply(&OF_AGENTS, Event::InitApply(job));
            all.unreadable.extend(applied.unreadable);
        }
        let done = cache.apply(&OF_AGENTS, Event::InitDone);
        all.changes.extend(done.changes);
        all
    }

    fn changed(applied: &Applied) -> Vec<&str> {
        applied
            .changes
            .iter()
            .map(|change| change.key.name.as_str())
            .collect()
    }

    fn cached_version(cache: &Cache<Job>, name: &str) -> Option<ResourceVersion> {
        let job = cache.get(&key(name))?;
        Some(ResourceVersion::of(&job.metadata))
    }

    #[test]
    fn it_is_ready_when_the_first_list_is_complete() {
        let mut cache = Cache::<Job>::new(&BTreeSet::from([AGENTS.clone()]));
        cache.apply(&OF_AGENTS, Event::Init);
        cache.apply(&OF_AGENTS, Event::InitApply(job("a", "u1", 3)));
        assert!(!cache.is_ready());
        assert!(
            cache.get(&key("a")).is_none(),
            "a list counts when it is complete"
        );

        cache.apply(&OF_AGENTS, Event::InitDone);
        assert!(!cache.is_ready(), "Jobs of tools have a list of their own");
        cache.apply(&OF_TOOLS, Event::InitDone);

        assert!(cache.is_ready());
        assert!(cache.get(&key("a")).is_some());
    }

    #[test]
    fn a_second_list_tells_only_of_what_changed() {
        let mut cache = listed(vec![
            job("same", "u1", 3),
            job("newer", "u2", 4),
            job("gone", "u3", 5),
        ]);

        let applied = list(
            &mut cache,
            vec![job("same", "u1", 3), job("newer", "u2", 8), job("added", "u4", 9)],
        );

        assert_eq!(changed(&applied), ["gone", "added", "newer"]);
    }

    #[test]
    fn objects_are_found_by_what_they_name() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        let found = |cache: &Cache<Job>| {
            let term = Term::AgentRun("run-of-a".to_owned());
            cache.naming("agents", term).count()
        };
        assert_eq!(found(&cache), 1);

        cache.apply(&OF_AGENTS, Event::Delete(job("a", "u1", 4)));

        assert_eq!(found(&cache), 0);
    }

    #[test]
    fn a_change_carries_what_the_object_named_before() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        let mut relabelled = read(job("a", "u1", 4));
        relabelled.metadata.labels =
            Some([("agents.proompteng.ai/agent-run".to_owned(), "other".to_owned())].into());

        let applied = cache.apply(&OF_AGENTS, Event::Apply(Delivered(Ok(relabelled))));

        let terms: Vec<_> = applied.changes[0].terms.iter().cloned().collect();
        assert_eq!(
            terms,
            [
                Term::AgentRun("other".to_owned()),
                Term::AgentRun("run-of-a".to_owned())
            ]
        );
    }

    #[test]
    fn an_object_that_cannot_be_read_is_told_once_and_is_not_taken_for_gone() {
        let mut cache = listed(vec![]);

        let first = cache.apply(&OF_AGENTS, Event::Apply(broken("a", "u1", 3)));
        let second = list(&mut cache, vec![broken("a", "u1", 3), job("b", "u2", 4)]);

        assert_eq!(first.unreadable.len(), 1);
        assert!(second.unreadable.is_empty());
        assert!(cache.illegible(&key("a")).is_some() && cache.get(&key("a")).is_none());
        assert!(cache.get(&key("b")).is_some(), "the others are seen");
    }

    #[test]
    fn a_write_is_reached_when_its_watch_has_gone_past_it() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        assert!(cache.has_reached(&key("a"), Some(labels::AGENT_RUN), version(3)));
        assert!(!cache.has_reached(&key("a"), Some(labels::AGENT_RUN), version(7)));

        cache.apply(&OF_AGENTS, Event::Apply(job("b", "u2", 8)));

        assert!(
            cache.has_reached(&key("a"), Some(labels::AGENT_RUN), version(7)),
            "events come in the order of versions"
        );
        let elsewhere = Key {
            namespace: "other".to_owned(),
            name: "a".to_owned(),
        };
        assert!(
            !cache.has_reached(&elsewhere, Some(labels::AGENT_RUN), version(7)),
            "every namespace has its own watch"
        );
    }

    #[test]
    fn what_one_watch_lists_says_nothing_about_what_another_one_finds() {
        let of_tool = |version: u64| {
            let mut job = read(job("t", "u9", version));
            job.metadata.labels = Some([(labels::TOOL_RUN.to_owned(), "t".to_owned())].into());
            Delivered(Ok(job))
        };
        let mut cache = listed(vec![job("a", "u1", 3)]);
        cache.apply(&OF_TOOLS, Event::Apply(of_tool(8)));

        assert!(cache.has_reached(&key("b"), Some(labels::TOOL_RUN), version(7)));
        assert!(!cache.has_reached(&key("b"), Some(labels::AGENT_RUN), version(7)));
        list(&mut cache, vec![]);
        assert!(cache.get(&key("t")).is_some(), "it is not the one to list it");
        assert!(cache.get(&key("a")).is_none());
    }

    #[test]
    fn an_unfinished_list_reaches_nothing() {
        let mut cache = listed(vec![]);
        cache.apply(&OF_AGENTS, Event::Init);
        cache.apply(&OF_AGENTS, Event::InitApply(job("b", "u2", 8)));

        assert!(!cache.has_reached(&key("a"), Some(labels::AGENT_RUN), version(7)));
    }

    #[test]
    fn an_older_event_does_not_undo_what_a_live_read_found() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        cache.learn(job("a", "u1", 9));

        let late = cache.apply(&OF_AGENTS, Event::Apply(job("a", "u1", 5)));

        assert_eq!(changed(&late), [] as [&str; 0]);
        assert_eq!(cached_version(&cache, "a"), Some(version(9)));
    }

    #[test]
    fn an_older_live_read_does_not_undo_what_the_watch_said() {
        let mut cache = listed(vec![job("a", "u1", 9)]);

        let change = cache.learn(job("a", "u1", 5));

        assert_eq!(change, None);
        assert_eq!(cached_version(&cache, "a"), Some(version(9)));
    }

    #[test]
    fn what_a_live_read_found_gone_does_not_come_back_with_late_events() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        cache.forget(&key("a"), &uid("u1"));

        let late = cache.apply(&OF_AGENTS, Event::Apply(job("a", "u1", 5)));
        assert_eq!(changed(&late), [] as [&str; 0]);
        cache.apply(&OF_AGENTS, Event::Delete(job("a", "u1", 6)));
        let successor = cache.apply(&OF_AGENTS, Event::Apply(job("a", "u2", 7)));

        assert_eq!(changed(&successor), ["a"]);
        assert!(
            cache.gone.is_empty(),
            "nothing is remembered once the watch has caught up"
        );
    }

    #[test]
    fn a_list_ends_what_is_remembered_of_the_gone() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        cache.forget(&key("a"), &uid("u1"));

        list(&mut cache, vec![]);

        assert!(cache.gone.is_empty());
    }

    #[test]
    fn the_end_of_an_older_object_does_not_remove_its_successor() {
        let mut cache = listed(vec![job("a", "u1", 3)]);
        cache.learn(job("a", "u2", 9));

        cache.apply(&OF_AGENTS, Event::Delete(job("a", "u1", 5)));

        assert!(cache.holds(&key("a"), &uid("u2")));
    }
}
