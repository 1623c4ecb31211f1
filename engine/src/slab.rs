//! A table of values with generation-counted keys: a key that outlives its value finds nothing.

/// The key of a value in a [`Slab`]: an index, and a generation that detects stale keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// The smallest and the largest of all possible keys, for range searches.
    pub(crate) const FIRST: Self = Self { index: 0, generation: 0 };
    pub(crate) const LAST: Self = Self { index: u32::MAX, generation: u32::MAX };

    /// Returns the key as one number of 64 bits.
    pub(crate) const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Restores a key from the number that [`Key::to_u64`] returned.
    pub(crate) const fn from_u64(raw: u64) -> Self {
        Self { index: (raw & 0xffff_ffff) as u32, generation: (raw >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Entry<T> {
    /// Number of values that the entry has held before; wraps after 2^32.
    generation: u32,
    value: Option<T>,
}

/// A growing table of values that reuses the entries of removed values.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub(crate) fn add(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return Key { index, generation: entry.generation };
        }
        let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries");
        self.entries.push(Entry { generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// Returns the value at `index`, if there is one, and its key.
    pub(crate) fn at(&self, index: u32) -> Option<(Key, &T)> {
        let entry = self.entries.get(index as usize)?;
        let key = Key { index, generation: entry.generation };
        entry.value.as_ref().map(|value| (key, value))
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    /// Returns the number of values in the table.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns all values of the table for modification.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|entry| entry.value.as_mut())
    }

    /// Returns the index of a value that `wanted` selects, if there is one. The search begins at index `from`.
    pub(crate) fn position_from(&self, from: u32, wanted: impl Fn(&T) -> bool) -> Option<u32> {
        let (before, behind) = self.entries.split_at((from as usize).min(self.entries.len()));
        // There are fewer than 2^32 entries, so the numbers fit.
        let behind = behind.iter().zip(before.len() as u32..);
        let mut entries = behind.chain(before.iter().zip(0u32..));
        let found = entries.find(|(entry, _)| entry.value.as_ref().is_some_and(&wanted));
        found.map(|(_, index)| index)
    }

    /// Returns all values with their keys, in the order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().zip(0u32..).filter_map(|(entry, index)| {
            let key = Key { index, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;

    #[test]
    fn key_of_a_removed_value_finds_nothing() {
        let mut slab = Slab::default();
        let (a, b) = (slab.add('a'), slab.add('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        let c = slab.add('c');
        assert_eq!(c.index, a.index, "the place is used again");
        assert_eq!((slab.get(a), slab.get(c)), (None, Some(&'c')));
        assert_eq!(slab.get_mut(b).copied(), Some('b'));
        assert_eq!(slab.at(a.index), Some((c, &'c')));
        assert_eq!(slab.iter().map(|(_, v)| *v).collect::<String>(), "cb");
        assert_eq!(slab.len(), 2);
        assert_eq!(Key::from_u64(c.to_u64()), c);
    }

    #[test]
    fn search_from_an_index_sees_every_value_once() {
        let mut slab = Slab::default();
        for number in 0..5 {
            slab.add(number);
        }
        for (from, order) in [(0, [0, 1, 2, 3, 4]), (3, [3, 4, 0, 1, 2]), (9, [0, 1, 2, 3, 4])] {
            let seen = RefCell::new(Vec::new());
            let found = slab.position_from(from, |number| {
                seen.borrow_mut().push(*number);
                false
            });
            assert_eq!((found, seen.into_inner()), (None, order.to_vec()), "from {from}");
        }
        assert_eq!(slab.position_from(3, |number| number % 2 == 0), Some(4));
        assert_eq!(slab.position_from(3, |number| *number < 2), Some(0));
    }
}
