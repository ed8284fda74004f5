//! What was last seen of objects that are gone: evidence, for those who find one missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jangar_engine::{
    decision::{Key, Uid},
    last_sight::LastSight,
};

/// How many are remembered. Nearly all objects go because their time has come, and nobody asks about them. One that is asked
/// about is asked about at once, so that there is no need for more; of one that is forgotten the run's own status still says
/// when it was first seen.
const REMEMBERED_MAX: usize = 1_024;

/// The last sights of objects of one kind, the latest for each name.
#[derive(Debug, Default)]
pub(super) struct Departed {
    sights: BTreeMap<Key, LastSight>,
    /// The names of those that an object controlled, by its UID: whoever looks for what was its own does not know the names.
    owned: BTreeMap<Uid, BTreeSet<Key>>,
    /// The names in the order in which they came, the oldest first.
    order: VecDeque<Key>,
}

impl Departed {
    /// Remembers one, in place of an earlier one of the same name.
    pub(super) fn put(&mut self, key: &Key, sight: LastSight) {
        if let Some(owner) = &sight.owner {
            self.owned.entry(owner.clone()).or_default().insert(key.clone());
        }
        let new_owner = sight.owner.clone();
        if let Some(before) = self.sights.insert(key.clone(), sight) {
            if before.owner != new_owner {
                self.disown(key, &before);
            }
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(sight) = self.sights.remove(&oldest)
        {
            self.disown(&oldest, &sight);
        }
    }

    fn disown(&mut self, key: &Key, sight: &LastSight) {
        let Some(owner) = &sight.owner else { return };
        if let Some(keys) = self.owned.get_mut(owner) {
            keys.remove(key);
            if keys.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&LastSight> {
        self.sights.get(key)
    }

    /// The names of those that an object controlled.
    pub(super) fn owned_by(&self, owner: &Uid) -> impl Iterator<Item = &Key> {
        self.owned.get(owner).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::last_sight::MadeFor;

    use super::*;

    fn key(number: usize) -> Key {
        Key {
            namespace: "agents".to_owned(),
            name: format!("job-{number}"),
        }
    }

    fn sight(uid: &str) -> LastSight {
        LastSight {
            uid: Uid(uid.to_owned()),
            owner: None,
            version: "1".to_owned(),
            written_at: None,
            deleted_at: None,
            writer: None,
            made_for: MadeFor::default(),
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_latest_of_a_name_is_known() {
        let mut departed = Departed::default();
        for number in 0..=REMEMBERED_MAX {
            departed.put(&key(number), sight("first"));
        }
        departed.put(&key(REMEMBERED_MAX), sight("second"));

        assert_eq!(departed.get(&key(0)), None);
        assert_eq!(departed.get(&key(1)), Some(&sight("first")));
        assert_eq!(departed.get(&key(REMEMBERED_MAX)), Some(&sight("second")));
        assert_eq!(departed.sights.len(), REMEMBERED_MAX);
        assert_eq!(departed.order.len(), REMEMBERED_MAX);
    }

    #[test]
    fn what_was_owned_is_found_until_it_is_forgotten_or_its_name_has_another_owner() {
        let owned = |uid: &str, owner: &str| LastSight {
            owner: Some(Uid(owner.to_owned())),
            ..sight(uid)
        };
        let of = |departed: &Departed, owner: &str| -> Vec<Key> {
            departed.owned_by(&Uid(owner.to_owned())).cloned().collect()
        };
        let mut departed = Departed::default();
        departed.put(&key(0), owned("a", "first"));
        departed.put(&key(1), owned("b", "first"));
        assert_eq!(of(&departed, "first"), [key(0), key(1)]);
        departed.put(&key(1), owned("c", "second"));
        assert_eq!(of(&departed, "first"), [key(0)]);
        assert_eq!(of(&departed, "second"), [key(1)]);
        for number in 2..=REMEMBERED_MAX {
            departed.put(&key(number), sight("other"));
        }
        assert_eq!(of(&departed, "first"), []);
        assert_eq!(departed.owned.len(), 1);
    }
}
