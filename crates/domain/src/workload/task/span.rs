//! Runs of pieces by their places in a list, counted from 0.

use serde::{Deserialize, Serialize};

/// So many places from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Span {
    pub first: u64,
    pub count: u64,
}

impl Span {
    pub fn new(first: u64, count: u64) -> Span {
        Span { first, count }
    }

    /// The place after the last.
    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// In so many parts as equal as can be, fewer where it has fewer places.
    pub fn split(self, parts: u64) -> impl Iterator<Item = Span> {
        let Span { first, count } = self;
        let parts = parts.clamp(1, count.max(1));
        let start = move |number: u64| first + number * (count / parts) + number.min(count % parts);
        (0..parts).map(move |number| Span::new(start(number), start(number + 1) - start(number)))
    }
}

/// Places, each at most once. INVARIANT: spans are upwards, apart, and none is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spans(Vec<Span>);

impl Spans {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many places there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|span| span.count).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = Span> {
        self.0.iter().copied()
    }

    pub fn contains(&self, place: u64) -> bool {
        self.iter().any(|span| (span.first..span.end()).contains(&place))
    }

    pub fn add(&mut self, new: Span) {
        if new.count == 0 {
            return;
        }
        let at = self.0.partition_point(|span| span.first < new.first);
        let before = at.checked_sub(1).map(|at| self.0[at]);
        let after = self.0.get(at).copied();
        assert!(
            before.is_none_or(|before| before.end() <= new.first)
                && after.is_none_or(|after| new.end() <= after.first),
            "INVARIANT: {new:?} is there already"
        );
        let joins_before = before.is_some_and(|before| before.end() == new.first);
        let joins_after = after.is_some_and(|after| new.end() == after.first);
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[at - 1].count += new.count + self.0[at].count;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].count += new.count,
            (false, true) => {
                self.0[at].first = new.first;
                self.0[at].count += new.count;
            }
            (false, false) => self.0.insert(at, new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one() {
        let mut spans = Spans::default();
        for (first, count) in [(5, 1), (1, 2), (3, 2), (9, 3), (7, 0)] {
            spans.add(Span::new(first, count));
        }
        let all: Vec<Span> = spans.iter().collect();
        assert_eq!(all, [Span::new(1, 5), Span::new(9, 3)]);
        assert_eq!(spans.count(), 8);
        assert!(spans.contains(5) && !spans.contains(6) && !spans.contains(0));
    }

    #[test]
    #[should_panic(expected = "is there already")]
    fn no_place_is_there_twice() {
        let mut spans = Spans::default();
        spans.add(Span::new(1, 5));
        spans.add(Span::new(4, 1));
    }

    #[test]
    fn parts_are_as_equal_as_can_be() {
        let parts: Vec<u64> = Span::new(10, 10).split(4).map(|part| part.count).collect();
        assert_eq!(parts, [3, 3, 2, 2]);
        let few: Vec<Span> = Span::new(10, 2).split(8).collect();
        assert_eq!(few, [Span::new(10, 1), Span::new(11, 1)]);
    }
}
