//! Lists of indices in compressed sparse row form: two vectors hold the lists of all keys.

use core::ops::Range;

/// A list of numbers for each key from 0 on. The lists take four bytes for each key and each number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct IndexLists {
    /// Offset in `items` of each key's list, plus the end of the last. Empty if there are no items.
    first: Vec<u32>,
    items: Vec<u32>,
}

impl IndexLists {
    /// Sorts pairs of a key and a number into the lists of `keys` keys. A list has its numbers in
    /// the order of the pairs, of which there must be fewer than 2^32.
    pub(crate) fn new<I: Iterator<Item = (u32, u32)>>(keys: usize, pairs: impl Fn() -> I) -> Self {
        let count = pairs().count();
        if count == 0 {
            return Self::default();
        }
        // Counting sort: `first[key]` starts at the end of the key's list and is decremented once per
        // item. That reverses each list, so it is reversed again.
        let mut first = vec![0u32; keys + 1];
        pairs().for_each(|(key, _)| first[key as usize] += 1);
        let mut end = 0;
        for place in &mut first {
            end += *place;
            *place = end;
        }
        let mut items = vec![0; count];
        for (key, item) in pairs() {
            let place = &mut first[key as usize];
            *place -= 1;
            items[*place as usize] = item;
        }
        let mut lists = Self { first, items };
        lists.for_each_list(<[u32]>::reverse);
        lists
    }

    /// Sorts the numbers of each list.
    pub(crate) fn sorted(mut self) -> Self {
        self.for_each_list(<[u32]>::sort_unstable);
        self
    }

    fn for_each_list(&mut self, change: impl Fn(&mut [u32])) {
        for (from, to) in self.first.iter().zip(self.first.iter().skip(1)) {
            if to - from > 1 {
                change(&mut self.items[*from as usize..*to as usize]);
            }
        }
    }

    /// Returns the range of the list of a key, for [`IndexLists::items`].
    pub(crate) fn range(&self, key: u32) -> Range<u32> {
        let ends = self.first.get(key as usize).zip(self.first.get(key as usize + 1));
        ends.map_or(0..0, |(from, to)| *from..*to)
    }

    /// Returns the numbers in a range of [`IndexLists::range`].
    pub(crate) fn items(&self, range: &Range<u32>) -> &[u32] {
        &self.items[range.start as usize..range.end as usize]
    }

    /// Returns the list of a key.
    pub(crate) fn get(&self, key: u32) -> &[u32] {
        self.items(&self.range(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_order_of_their_pairs() {
        let pairs = [(2, 7), (0, 3), (2, 1), (3, 9), (2, 5)];
        let lists = IndexLists::new(5, || pairs.into_iter());
        let all =
            |lists: &IndexLists| (0..6).map(|key| lists.get(key).to_vec()).collect::<Vec<_>>();
        assert_eq!(all(&lists), [vec![3], vec![], vec![7, 1, 5], vec![9], vec![], vec![]]);
        assert_eq!(all(&lists.sorted())[2], [1, 5, 7]);
        assert_eq!(IndexLists::new(5, core::iter::empty).get(2), [0u32; 0]);
    }
}
