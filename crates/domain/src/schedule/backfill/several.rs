//! When run-time limits will have made room for all members of a gang at once, and where.
//!
//! Nodes are guessed at first: how many members each would hold after each of its jobs has reached its limit. The moment at
//! which that makes enough is tried in earnest, members placed on nodes with everybody gone who must be by then; if walls or
//! promises make it fewer, later ones are. Nodes of one block go first where it has enough, then those that hold most.
//! Absent: gangs over more nodes than are looked at, which the bound on waiting serves (`order/aged`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::will_do;
use crate::id::NodeId;
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::{Stay, ends_by, mask};
use crate::schedule::fleet::Node;
use crate::schedule::guess::Rest;
use crate::schedule::pass::Ask;
use crate::schedule::place::{Members, Place, gang_classes};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::time::Time;

/// Classes of GPUs tried, and moments of each.
const CLASSES: usize = 4;
const MOMENTS: usize = 4;
/// Nodes on which members are placed in earnest.
const TRIED: usize = 256;

pub(super) fn earliest(
    state: &State,
    ask: &Ask<'_>,
    needs: VolumeNeeds,
    at: Time,
) -> Option<(Time, Vec<Place>)> {
    let specs = gang_classes(state, ask.spec);
    let mut tried = 0;
    let found = specs.iter().take(CLASSES).filter_map(|spec| {
        let wait = Wait {
            state,
            ask: Ask { spec, ..*ask },
            members: Members::of(state, ask.owner, spec, needs),
            needs,
            at,
        };
        wait.earliest(&mut tried)
    });
    found.min_by_key(|(from, _)| *from)
}

struct Wait<'a> {
    state: &'a State,
    ask: Ask<'a>,
    members: Members<'a>,
    needs: VolumeNeeds,
    at: Time,
}

impl Wait<'_> {
    fn earliest(&self, tried: &mut usize) -> Option<(Time, Vec<Place>)> {
        let nodes = will_do(self.state, &self.ask, self.needs);
        let mut seats: Vec<(Time, &Node)> = Vec::new();
        for node in nodes {
            self.seats_on(node, &mut seats);
        }
        seats.sort_by_key(|(time, node)| (*time, node.id));
        let wanted = self.ask.spec.demand.nodes as usize;
        // Seats beyond those wanted make up for guesses that were too high, each time twice as many.
        let mut from = None;
        for beyond in 0..MOMENTS {
            let more = match beyond {
                0 => 0,
                _ => wanted.div_ceil(8) << beyond,
            };
            let last = (wanted + more).min(seats.len()).checked_sub(1)?;
            let (time, _) = seats[last];
            if last + 1 < wanted || from == Some(time) {
                break;
            }
            from = Some(time);
            let by_then = seats.partition_point(|(seat, _)| *seat <= time);
            if let Some(places) = self.places(&seats[..by_then], time, tried) {
                return Some((time, places));
            }
        }
        None
    }

    /// When the node would hold one member more, as often as it does, by shares, memory and CPU.
    fn seats_on<'n>(&self, node: &'n Node, seats: &mut Vec<(Time, &'n Node)>) {
        let mut rest = Rest::of(node, &self.ask.spec.demand);
        let mut held = 0;
        let mut note = |time: Time, members: u64| {
            seats.extend((held..members).map(|_| (time, node)));
            held = held.max(members);
        };
        note(self.at, rest.members());
        for (time, allocation) in self.leaving(node) {
            rest.give_back(allocation, false);
            note(time, rest.members());
        }
    }

    /// Who leaves the node, and when at the latest, first first.
    fn leaving(&self, node: &Node) -> Vec<(Time, &Allocation)> {
        let here = self.state.fleet.allocations_on(node.id);
        let ends = |allocation| ends_by(self.state, allocation, self.at).max(self.at);
        let mut leaving: Vec<(Time, &Allocation)> = here.map(|one| (ends(one), one)).collect();
        leaving.sort_by_key(|(time, allocation)| (*time, allocation.id));
        leaving
    }

    /// Places for all members at that moment on nodes with seats by then.
    fn places(&self, seats: &[(Time, &Node)], then: Time, tried: &mut usize) -> Option<Vec<Place>> {
        let wanted = self.ask.spec.demand.nodes as usize;
        let mut nodes: BTreeMap<NodeId, (&Node, usize)> = BTreeMap::new();
        let mut blocks: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, node) in seats {
            nodes.entry(node.id).or_insert((node, 0)).1 += 1;
            if let Some(block) = &node.labels.block {
                *blocks.entry(block).or_default() += 1;
            }
        }
        let near = blocks.iter().find(|(_, seats)| **seats >= wanted);
        let near = near.map(|(block, _)| *block);
        let mut nodes: Vec<(&Node, usize)> = nodes.into_values().collect();
        nodes.sort_by_key(|(node, seats)| {
            let far = near.is_some() && node.labels.block.as_deref() != near;
            (far, Reverse(*seats), node.id)
        });
        let mut places = Vec::new();
        for (node, _) in nodes {
            *tried += 1;
            if *tried > TRIED {
                return None;
            }
            let here = self.members.on(&self.as_of(node, then));
            places.extend(here.into_iter().take(wanted - places.len()));
            if places.len() == wanted {
                return Some(places);
            }
        }
        None
    }

    /// The node at that moment, without what is promised to anybody else.
    fn as_of(&self, node: &Node, then: Time) -> Node {
        let mut open = node.clone();
        let leaving = self.leaving(node);
        let gone = leaving.into_iter().take_while(|(time, _)| *time <= then);
        gone.for_each(|(_, allocation)| open.without(allocation, false));
        mask(
            self.state,
            &mut open,
            Stay::of(self.ask, self.at).for_ever(),
            self.at,
        );
        open
    }
}
