//! A bounded map in which what was used longest ago makes room.

use std::collections::HashMap;
use std::hash::Hash;

/// At most so many values, by key.
#[derive(Debug)]
pub struct Recent<K, V> {
    entries: HashMap<K, Entry<V>>,
    max: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The number of its last use.
    used: u64,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    /// An empty one for `max` values, at least 1.
    pub fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), max: max.max(1), uses: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A value, which is used by that.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// Puts a value in, which is used by that; where there is no room, looks at all for the one to
    /// go.
    pub fn put(&mut self, key: K, value: V) {
        self.uses += 1;
        if self.entries.len() == self.max && !self.entries.contains_key(&key) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.entries.insert(key, Entry { value, used: self.uses });
    }

    /// Keeps those of which `keep` says so; none is used by that.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.entries.retain(|_, entry| keep(&mut entry.value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let mut recent = Recent::new(2);
        assert!(recent.is_empty());
        recent.put("a", 1);
        recent.put("b", 2);
        assert_eq!(recent.get(&"a"), Some(&mut 1));
        recent.put("c", 3);
        assert_eq!(recent.get(&"b"), None);
        recent.put("a", 4);
        assert_eq!(recent.get(&"a"), Some(&mut 4));
        assert_eq!(recent.get(&"c"), Some(&mut 3));
        recent.retain(|value| *value > 3);
        assert_eq!(recent.get(&"c"), None);
        assert_eq!(recent.len(), 1);
    }

    proptest! {
        /// Against a list with the last used at its end.
        #[test]
        fn it_is_a_list_in_the_order_of_use(
            max in 1usize..5,
            steps in prop::collection::vec((any::<bool>(), 0u8..8, any::<u8>()), 0..60),
        ) {
            let (mut recent, mut list) = (Recent::new(max), Vec::<(u8, u8)>::new());
            for (puts, key, value) in steps {
                let found = list.iter().position(|one| one.0 == key).map(|at| list.remove(at));
                if puts {
                    recent.put(key, value);
                    list.push((key, value));
                    if list.len() > max {
                        list.remove(0);
                    }
                } else {
                    prop_assert_eq!(recent.get(&key).copied(), found.map(|one| one.1));
                    list.extend(found);
                }
                prop_assert_eq!(recent.len(), list.len());
            }
        }
    }
}
