//! Lists of numbers, one for each key, in two vectors.

use core::ops::Range;

/// For each key from 0 on, a list of numbers. Lists take four bytes for each key and each number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lists {
    /// Place in `items` where the list of each key begins, and the end of the last; empty if all
    /// lists are.
    first: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// Sorts pairs of a key and a number into the lists of `keys` keys. A list has its numbers in
    /// the order of the pairs, of which there must be fewer than 2^32.
    pub(crate) fn new<I: Iterator<Item = (u32, u32)>>(keys: usize, pairs: impl Fn() -> I) -> Self {
        let count = pairs().count();
        if count == 0 {
            return Self::default();
        }
        // The list of a key first begins where that of the next one ends, and moves down to its own
        // place as it is filled from behind.
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
        lists.each(<[u32]>::reverse);
        lists
    }

    /// Sorts the numbers of each list.
    pub(crate) fn sorted(mut self) -> Self {
        self.each(<[u32]>::sort_unstable);
        self
    }

    fn each(&mut self, change: impl Fn(&mut [u32])) {
        for (from, to) in self.first.iter().zip(self.first.iter().skip(1)) {
            if to - from > 1 {
                change(&mut self.items[*from as usize..*to as usize]);
            }
        }
    }

    /// Returns the range of the list of a key, for [`Lists::items`].
    pub(crate) fn range(&self, key: u32) -> Range<u32> {
        let ends = self.first.get(key as usize).zip(self.first.get(key as usize + 1));
        ends.map_or(0..0, |(from, to)| *from..*to)
    }

    /// Returns the numbers in a range of [`Lists::range`].
    pub(crate) fn items(&self, range: &Range<u32>) -> &[u32] {
        &self.items[range.start as usize..range.end as usize]
    }

    /// Returns the list of a key.
    pub(crate) fn of(&self, key: u32) -> &[u32] {
        self.items(&self.range(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_order_of_their_pairs() {
        let pairs = [(2, 7), (0, 3), (2, 1), (3, 9), (2, 5)];
        let lists = Lists::new(5, || pairs.into_iter());
        let all = |lists: &Lists| (0..6).map(|key| lists.of(key).to_vec()).collect::<Vec<_>>();
        assert_eq!(all(&lists), [vec![3], vec![], vec![7, 1, 5], vec![9], vec![], vec![]]);
        assert_eq!(all(&lists.sorted())[2], [1, 5, 7]);
        assert_eq!(Lists::new(5, core::iter::empty).of(2), [0u32; 0]);
    }
}
