//! The shelf: which GPUs of which nodes are booked when, and where there is room for more.
//!
//! A window takes whole GPUs of nodes that are named with it; so what is counted here can be had when the time comes,
//! whatever else began and ended meanwhile, and nobody has to be moved. Slices fill GPUs of their own, as many as they
//! need. Lines are shared until they change, so that what would be free without somebody's windows is asked of a copy that
//! costs by the nodes they are on. Absent: who may book, and what it costs. Called by `plan.rs` and `alternative.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::timeline::Timeline;
use crate::id::NodeId;
use crate::time::Time;

/// GPUs of one class on one node, in a window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seat {
    pub node: NodeId,
    pub class: Box<str>,
    pub gpus: u32,
}

/// What a node has that can be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub node: NodeId,
    pub gpus: BTreeMap<Box<str>, u32>,
}

/// What a window takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// GPUs of one node.
    Together(u32),
    /// GPUs wherever they are.
    Spread(u32),
    /// Whole nodes.
    Nodes(u32),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shelf {
    lines: BTreeMap<Box<str>, Lines>,
}

type Lines = BTreeMap<NodeId, Arc<Timeline>>;

impl Shelf {
    pub fn add(&mut self, seat: &Seat, from: Time, until: Time) {
        let lines = match self.lines.get_mut(&seat.class) {
            Some(lines) => lines,
            None => self.lines.entry(seat.class.clone()).or_default(),
        };
        let line = lines.entry(seat.node).or_default();
        Arc::make_mut(line).add(from, until, seat.gpus.into());
    }

    pub fn remove(&mut self, seat: &Seat, from: Time, until: Time) {
        let lines = self.lines.get_mut(&seat.class);
        let lines = lines.expect("INVARIANT: what is taken off the shelf was put there");
        let line = lines.get_mut(&seat.node);
        let line = line.expect("INVARIANT: what is taken off the shelf was put there");
        Arc::make_mut(line).remove(from, until, seat.gpus.into());
        if line.is_empty() {
            lines.remove(&seat.node);
        }
        if lines.is_empty() {
            self.lines.remove(&seat.class);
        }
    }

    fn line(&self, class: &str, node: NodeId) -> Option<&Timeline> {
        Some(self.lines.get(class)?.get(&node)?)
    }

    /// GPUs of a class that are booked on a node at most within the window.
    pub fn booked(&self, class: &str, node: NodeId, from: Time, until: Time) -> u64 {
        self.line(class, node).map_or(0, |line| line.peak(from, until))
    }

    /// Whether so many more of a class can be had on a node; else from when on it may be asked again.
    pub fn more(&self, room: &Room, class: &str, gpus: u32, from: Time, until: Time) -> Result<(), Time> {
        let capacity = room.gpus.get(class).copied().unwrap_or(0);
        let Some(most) = capacity.checked_sub(gpus) else {
            return Err(Time(i64::MAX));
        };
        self.line(class, room.node)
            .map_or(Ok(()), |line| line.at_most(most.into(), from, until))
    }

    /// Whether all of a node can be had.
    fn whole(&self, room: &Room, from: Time, until: Time) -> Result<(), Time> {
        let waits = room.gpus.keys().filter_map(|class| {
            let line = self.line(class, room.node)?;
            line.at_most(0, from, until).err()
        });
        waits.max().map_or(Ok(()), Err)
    }

    /// The seats a window would get, on `liked` nodes first; none if there is no room.
    pub fn seats(
        &self,
        rooms: &[Room],
        class: &str,
        take: Take,
        from: Time,
        until: Time,
        liked: &[NodeId],
    ) -> Option<Vec<Seat>> {
        let is_liked = |room: &&Room| liked.contains(&room.node);
        let liked_first = || {
            let first = rooms.iter().filter(is_liked);
            first.chain(rooms.iter().filter(move |room| !is_liked(room)))
        };
        let seat = |room: &Room, class: &str, gpus| Seat {
            node: room.node,
            class: class.into(),
            gpus,
        };
        match take {
            Take::Together(gpus) => {
                let lines = self.lines.get(class);
                let has_more = |room: &&Room| {
                    let capacity = room.gpus.get(class).copied().unwrap_or(0);
                    capacity.checked_sub(gpus).is_some_and(|most| {
                        let line = lines.and_then(|lines| lines.get(&room.node));
                        line.is_none_or(|line| line.is_at_most(most.into(), from, until))
                    })
                };
                let room = liked_first().find(has_more)?;
                Some(vec![seat(room, class, gpus)])
            }
            Take::Spread(gpus) => {
                let (mut lacking, mut seats) = (gpus, Vec::new());
                for room in liked_first() {
                    let capacity = room.gpus.get(class).copied().unwrap_or(0);
                    let booked = self.booked(class, room.node, from, until);
                    let free = u64::from(capacity).saturating_sub(booked);
                    let taken = lacking.min(u32::try_from(free).unwrap_or(u32::MAX));
                    if taken > 0 {
                        seats.push(seat(room, class, taken));
                        lacking -= taken;
                    }
                    if lacking == 0 {
                        return Some(seats);
                    }
                }
                None
            }
            Take::Nodes(nodes) => {
                let of_class = |room: &&Room| room.gpus.contains_key(class);
                let free = liked_first().filter(of_class);
                let free = free.filter(|room| self.whole(room, from, until).is_ok());
                let free: Vec<&Room> = free.take(nodes as usize).collect();
                let seats = free
                    .iter()
                    .flat_map(|room| room.gpus.iter().map(|(class, gpus)| seat(room, class, *gpus)));
                (free.len() == nodes as usize).then(|| seats.collect())
            }
        }
    }

    /// The first moment from `from` on at which a window of this length has room, if it begins before `before`.
    pub fn next(
        &self,
        rooms: &[Room],
        class: &str,
        take: Take,
        from: Time,
        length_ms: u64,
        before: Time,
    ) -> Option<Time> {
        if let Take::Together(gpus) = take {
            let of_room = |room: &Room| {
                let mut at = from;
                while at < before {
                    match self.more(room, class, gpus, at, at.plus_ms(length_ms)) {
                        Ok(()) => return Some(at),
                        Err(later) => at = later,
                    }
                }
                None
            };
            return rooms.iter().filter_map(of_room).min();
        }
        let mut at = from;
        for _ in 0..TRIES {
            if self
                .seats(rooms, class, take, at, at.plus_ms(length_ms), &[])
                .is_some()
            {
                return Some(at);
            }
            let lines = rooms.iter().flat_map(|room| {
                let classes = room.gpus.keys();
                classes.filter_map(|class| self.line(class, room.node))
            });
            at = lines.filter_map(|line| line.falls_after(at)).min()?;
            if at >= before {
                return None;
            }
        }
        None
    }
}

/// Moments looked at for one window over several nodes.
const TRIES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms() -> Vec<Room> {
        let room = |node, gpus| Room {
            node: NodeId(node),
            gpus: [("h".into(), gpus)].into(),
        };
        vec![room(1, 4), room(2, 4)]
    }

    #[test]
    fn gpus_are_together_unless_they_may_be_spread() {
        let (mut shelf, rooms) = (Shelf::default(), rooms());
        for node in [1, 2] {
            let seat = Seat {
                node: NodeId(node),
                class: "h".into(),
                gpus: 2,
            };
            shelf.add(&seat, Time(0), Time(100));
        }
        let ask = |take| shelf.seats(&rooms, "h", take, Time(50), Time(150), &[NodeId(2)]);
        assert_eq!(ask(Take::Together(3)), None);
        assert_eq!(ask(Take::Nodes(1)), None);
        assert_eq!(ask(Take::Together(2)).map(|seats| seats[0].node), Some(NodeId(2)));
        assert_eq!(ask(Take::Spread(3)).map(|seats| seats.len()), Some(2));
        assert_eq!(ask(Take::Spread(5)), None);
        let next = |take| shelf.next(&rooms, "h", take, Time(10), 20, Time(1000));
        assert_eq!(next(Take::Together(3)), Some(Time(100)));
        assert_eq!(next(Take::Nodes(2)), Some(Time(100)));
        assert_eq!(next(Take::Together(5)), None);
        assert_eq!(next(Take::Spread(4)), Some(Time(10)));
    }
}
