//! What was last seen of objects that are gone: evidence, for those who find one missing.

use std::collections::{BTreeMap, VecDeque};

use jangar_engine::{decision::Key, last_sight::LastSight};

/// How many are remembered. Nearly all objects go because their time has come, and nobody asks about them. One that is asked
/// about is asked about at once, so that there is no need for more; of one that is forgotten the run's own status still says
/// when it was first seen.
const REMEMBERED_MAX: usize = 1_024;

/// The last sights of objects of one kind, the latest for each name.
#[derive(Debug, Default)]
pub(super) struct Departed {
    sights: BTreeMap<Key, LastSight>,
    /// The names in the order in which they came, the oldest first.
    order: VecDeque<Key>,
}

impl Departed {
    /// Remembers one, in place of an earlier one of the same name.
    pub(super) fn put(&mut self, key: &Key, sight: LastSight) {
        if self.sights.insert(key.clone(), sight).is_some() {
            return;
        }
        self.order.push_back(key.clone());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.sights.remove(&oldest);
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&LastSight> {
        self.sights.get(key)
    }
}

#[cfg(test)]
mod tests {
    use jangar_engine::decision::Uid;

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
            version: "1".to_owned(),
            written_at: None,
            deleted_at: None,
            writer: None,
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
}
