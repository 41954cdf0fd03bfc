//! The Merkle tree over events, as RFC 6962 defines it, and audit paths in it.
//!
//! Pure arithmetic on hashes. The tree is kept as its frontier (the roots of the complete subtrees at
//! the right edge), which each batch row stores; complete subtrees of level `STORED_LEVEL` and above get
//! a row of their own, so a path needs at most two blocks of leaves. Reading them is in `proof`.

use crate::hash::Hash;

/// Subtrees of this many levels (1,024 leaves) and more are stored when they complete.
pub(crate) const STORED_LEVEL: u32 = 10;

/// The leaf for an event hash.
pub fn leaf(event: Hash) -> Hash {
    Hash::of_parts(&[&[0], &event.0])
}

pub fn node(left: Hash, right: Hash) -> Hash {
    Hash::of_parts(&[&[1], &left.0, &right.0])
}

/// A complete subtree: `index` counts subtrees of that level from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub level: u32,
    pub index: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontier {
    size: u64,
    // INVARIANT: one root per set bit of `size`, the largest subtree first.
    roots: Vec<Hash>,
}

impl Frontier {
    pub fn from_parts(size: u64, roots: Vec<Hash>) -> Option<Frontier> {
        (size.count_ones() as usize == roots.len()).then_some(Frontier { size, roots })
    }

    pub fn roots(&self) -> &[Hash] {
        &self.roots
    }

    /// Adds one leaf and tells of every subtree it completed.
    pub fn push(&mut self, leaf: Hash, mut completed: impl FnMut(Place, Hash)) {
        self.roots.push(leaf);
        self.size += 1;
        let mut level = 0;
        while self.size >> level & 1 == 0 {
            let right = self.roots.pop().expect("a set bit for each root");
            let left = self.roots.pop().expect("a set bit for each root");
            let joined = node(left, right);
            self.roots.push(joined);
            level += 1;
            completed(
                Place {
                    level,
                    index: (self.size >> level) - 1,
                },
                joined,
            );
        }
    }

    pub fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev().copied();
        match roots.next() {
            None => Hash::of(b""),
            Some(last) => roots.fold(last, |right, left| node(left, right)),
        }
    }
}

/// A tree over anything that has a hash, one leaf at a time; only its root is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(Frontier);

impl Tree {
    pub fn push(&mut self, hash: Hash) {
        self.0.push(leaf(hash), |_, _| {});
    }

    pub fn root(&self) -> Hash {
        self.0.root()
    }
}

/// The audit path of leaf `index` in the tree of `size` leaves, nearest sibling first.
pub(crate) fn path(index: u64, size: u64, node_at: &mut impl FnMut(Place) -> Hash) -> Vec<Hash> {
    let (mut start, mut count) = (0, size);
    let mut path = Vec::new();
    while count > 1 {
        let left = left_half(count);
        if index - start < left {
            path.push(range(start + left, count - left, node_at));
            count = left;
        } else {
            path.push(range(start, left, node_at));
            start += left;
            count -= left;
        }
    }
    path.reverse();
    path
}

fn range(start: u64, count: u64, node_at: &mut impl FnMut(Place) -> Hash) -> Hash {
    if count.is_power_of_two() {
        let level = count.trailing_zeros();
        return node_at(Place {
            level,
            index: start >> level,
        });
    }
    let left = left_half(count);
    node(
        range(start, left, node_at),
        range(start + left, count - left, node_at),
    )
}

/// The largest power of two below `count` (at least 2).
fn left_half(count: u64) -> u64 {
    1 << (63 - (count - 1).leading_zeros())
}

/// What is needed beside the leaves at `indexes` (rising) to reach the root of the tree of `size` leaves, from left to
/// right: the roots of what holds none of them.
pub(crate) fn paths(indexes: &[u64], size: u64, node_at: &mut impl FnMut(Place) -> Hash) -> Vec<Hash> {
    let mut path = Vec::new();
    beside((0, size), indexes, &mut |start, count| {
        path.push(range(start, count, node_at))
    });
    path
}

/// Walks every subtree that holds none of the leaves, and whose parent holds some.
fn beside((start, count): (u64, u64), indexes: &[u64], found: &mut impl FnMut(u64, u64)) {
    if indexes.is_empty() && count > 0 {
        found(start, count);
    } else if count > 1 {
        let left = left_half(count);
        let cut = indexes.partition_point(|&index| index < start + left);
        beside((start, left), &indexes[..cut], found);
        beside((start + left, count - left), &indexes[cut..], found);
    }
}

/// The root that leaves at `indexes` (rising) and `path` lead to; `None` when they cannot belong together.
pub(crate) fn climb_all(leaves: &[(u64, Hash)], size: u64, path: &[Hash]) -> Option<Hash> {
    let rising = leaves.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if !rising || leaves.last().is_some_and(|(index, _)| *index >= size) {
        return None;
    }
    let mut path = path.iter().copied();
    let root = joined((0, size), leaves, &mut path)?;
    path.next().is_none().then_some(root)
}

fn joined(
    (start, count): (u64, u64),
    leaves: &[(u64, Hash)],
    path: &mut impl Iterator<Item = Hash>,
) -> Option<Hash> {
    match leaves {
        [] => path.next(),
        [(_, only)] if count == 1 => Some(*only),
        _ => {
            let left = left_half(count);
            let cut = leaves.partition_point(|(index, _)| *index < start + left);
            let before = joined((start, left), &leaves[..cut], path)?;
            let after = joined((start + left, count - left), &leaves[cut..], path)?;
            Some(node(before, after))
        }
    }
}

/// The root that `path` leads to from `leaf`; `None` when the path cannot belong to that place.
pub(crate) fn climb(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    // RFC 9162, 2.1.3.2
    let (mut place, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if place & 1 == 1 || place == last {
            hash = node(*sibling, hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(hash, *sibling);
        }
        place >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition in RFC 6962, section 2.1, to the letter.
    fn tree_hash(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::of(b""),
            [one] => *one,
            _ => {
                let (left, right) = leaves.split_at(left_half(leaves.len() as u64) as usize);
                node(tree_hash(left), tree_hash(right))
            }
        }
    }

    #[test]
    fn frontier_and_paths_agree_with_the_definition() {
        let leaves: Vec<Hash> = (0..300u32).map(|n| leaf(Hash::of(&n.to_be_bytes()))).collect();
        let mut frontier = Frontier::default();
        assert_eq!(frontier.root(), tree_hash(&[]));
        for size in 1..=leaves.len() {
            frontier.push(leaves[size - 1], |place, hash| {
                let width = 1usize << place.level;
                let start = place.index as usize * width;
                assert_eq!(hash, tree_hash(&leaves[start..start + width]));
            });
            assert_eq!(frontier.root(), tree_hash(&leaves[..size]));
            let step = if size <= 70 { 1 } else { 13 };
            for index in (0..size).step_by(step) {
                let path = path(index as u64, size as u64, &mut |place| {
                    let width = 1usize << place.level;
                    tree_hash(&leaves[place.index as usize * width..][..width])
                });
                let climb = |leaf, index, size, path: &[Hash]| climb(leaf, index as u64, size as u64, path);
                assert_eq!(climb(leaves[index], index, size, &path), Some(frontier.root()));
                assert_ne!(
                    climb(leaves[(index + 1) % 300], index, size, &path),
                    Some(frontier.root())
                );
                assert_ne!(
                    climb(leaves[index], index + 1, size, &path),
                    Some(frontier.root())
                );
                if let Some((_, short)) = path.split_last() {
                    assert_ne!(climb(leaves[index], index, size, short), Some(frontier.root()));
                }
            }
        }
    }

    #[test]
    fn many_leaves_at_once_agree_with_the_definition() {
        let leaves: Vec<Hash> = (0..70u32).map(|n| leaf(Hash::of(&n.to_be_bytes()))).collect();
        let node_of = |place: Place| {
            let width = 1usize << place.level;
            tree_hash(&leaves[place.index as usize * width..][..width])
        };
        for size in 1..=leaves.len() as u64 {
            let root = tree_hash(&leaves[..size as usize]);
            for step in 1..=size {
                let indexes: Vec<u64> = (0..size).filter(|index| index % step == step / 2).collect();
                let known: Vec<(u64, Hash)> = indexes
                    .iter()
                    .map(|&index| (index, leaves[index as usize]))
                    .collect();
                let path = paths(&indexes, size, &mut |place| node_of(place));
                assert_eq!(climb_all(&known, size, &path), Some(root), "{size} {step}");
                let mut altered = known.clone();
                altered[0].1 = Hash::of(b"another");
                assert_ne!(climb_all(&altered, size, &path), Some(root));
                if let Some((_, short)) = path.split_last() {
                    assert_ne!(climb_all(&known, size, short), Some(root), "{size} {step}");
                }
                let longer = [&path[..], &[root]].concat();
                assert_eq!(climb_all(&known, size, &longer), None);
                let moved: Vec<_> = known.iter().map(|(index, hash)| (index + 1, *hash)).collect();
                assert_ne!(climb_all(&moved, size, &path), Some(root), "{size} {step}");
            }
        }
        assert_eq!(
            climb_all(&[(1, leaves[1]), (0, leaves[0])], 2, &[]),
            None,
            "out of order"
        );
    }
}
