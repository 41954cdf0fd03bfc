//! The shelf beside a model that remembers every window and counts by looking at all of them.

use tenure_domain::Time;
use tenure_domain::booking::shelf::{Room, Seat, Shelf, Take};
use tenure_domain::id::NodeId;

use crate::chance::{Chance, number_from_env};

const CLASSES: [&str; 2] = ["A100", "H100"];

#[derive(Default)]
struct Model {
    windows: Vec<(Vec<Seat>, Time, Time)>,
}

impl Model {
    /// The most that is booked of a class on a node at any moment within the window.
    fn booked(&self, class: &str, node: NodeId, from: Time, until: Time) -> u64 {
        let meets = self
            .windows
            .iter()
            .filter(|(_, start, end)| *start < until && from < *end);
        let meets: Vec<_> = meets.collect();
        let moments = meets.iter().map(|(_, start, _)| (*start).max(from)).chain([from]);
        let at = |moment: Time| -> u64 {
            let there = meets
                .iter()
                .filter(|(_, start, end)| *start <= moment && moment < *end);
            let seats = there.flat_map(|(seats, ..)| seats);
            let seats = seats.filter(|seat| seat.node == node && *seat.class == *class);
            seats.map(|seat| u64::from(seat.gpus)).sum()
        };
        moments.map(at).max().unwrap_or(0)
    }

    fn free(&self, room: &Room, class: &str, from: Time, until: Time) -> u64 {
        let capacity = u64::from(room.gpus.get(class).copied().unwrap_or(0));
        capacity - self.booked(class, room.node, from, until)
    }

    fn has_room(&self, rooms: &[Room], class: &str, take: Take, from: Time, until: Time) -> bool {
        let free = |room: &Room| self.free(room, class, from, until);
        match take {
            Take::Together(gpus) => rooms.iter().any(|room| free(room) >= gpus.into()),
            Take::Spread(gpus) => rooms.iter().map(free).sum::<u64>() >= gpus.into(),
            Take::Nodes(nodes) => {
                let whole = |room: &&Room| {
                    room.gpus.contains_key(class)
                        && room
                            .gpus
                            .keys()
                            .all(|class| self.booked(class, room.node, from, until) == 0)
                };
                rooms.iter().filter(whole).count() >= nodes as usize
            }
        }
    }
}

fn rooms(chance: &mut Chance) -> Vec<Room> {
    let room = |(node, chance): (u64, &mut Chance)| {
        let mut room = Room {
            node: NodeId(node),
            gpus: [(CLASSES[node as usize % 2].into(), 4 + 4 * chance.below(2) as u32)].into(),
        };
        if node == 5 {
            room.gpus.insert(CLASSES[0].into(), 2);
            room.gpus.insert(CLASSES[1].into(), 2);
        }
        room
    };
    (0..6).map(|node| room((node, chance))).collect()
}

#[test]
fn nothing_is_booked_twice_and_what_is_free_is_found() {
    let attempts = number_from_env("TENURE_BOOKING_ATTEMPTS", 60_000);
    let seed = number_from_env("TENURE_BOOKING_SEED", 1);
    let mut chance = Chance::new(seed);
    let rooms = rooms(&mut chance);
    let (mut shelf, mut model) = (Shelf::default(), Model::default());
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..attempts {
        if model.windows.len() > 60 || chance.one_in(8) && !model.windows.is_empty() {
            let index = chance.below(model.windows.len() as u64) as usize;
            let (seats, from, until) = model.windows.swap_remove(index);
            seats.iter().for_each(|seat| shelf.remove(seat, from, until));
        }
        let class = chance.of(&CLASSES);
        let take = match chance.below(5) {
            0 => Take::Nodes(1 + chance.below(2) as u32),
            1 => Take::Spread(1 + chance.below(12) as u32),
            _ => Take::Together(1 + chance.below(8) as u32),
        };
        let from = Time(chance.below(200) as i64);
        let length = 1 + chance.below(40);
        let until = from.plus_ms(length);
        let seats = shelf.seats(&rooms, class, take, from, until, &[NodeId(chance.below(6))]);
        assert_eq!(
            seats.is_some(),
            model.has_room(&rooms, class, take, from, until),
            "{take:?} of {class}"
        );
        let Some(seats) = seats else {
            refused += 1;
            if chance.one_in(16) {
                let next = shelf.next(&rooms, class, take, from, length, Time(1000));
                let naive = (from.0..1000)
                    .find(|at| model.has_room(&rooms, class, take, Time(*at), Time(*at).plus_ms(length)));
                assert_eq!(
                    next,
                    naive.map(Time),
                    "{take:?} of {class} from {from:?} for {length}"
                );
            }
            continue;
        };
        for seat in &seats {
            let room = rooms
                .iter()
                .find(|room| room.node == seat.node)
                .expect("a room there is");
            assert!(
                model.free(room, &seat.class, from, until) >= seat.gpus.into(),
                "over-booked"
            );
        }
        let gpus: u32 = seats.iter().map(|seat| seat.gpus).sum();
        match take {
            Take::Together(asked) => assert_eq!((seats.len(), gpus), (1, asked)),
            Take::Spread(asked) => assert_eq!(gpus, asked),
            Take::Nodes(asked) => assert!(seats.len() >= asked as usize),
        }
        seats.iter().for_each(|seat| shelf.add(seat, from, until));
        model.windows.push((seats, from, until));
        taken += 1;
    }
    assert!(
        taken * 10 > attempts && refused * 10 > attempts,
        "{taken} taken, {refused} refused"
    );
    for (seats, from, until) in model.windows {
        seats.iter().for_each(|seat| shelf.remove(seat, from, until));
    }
    assert_eq!(shelf, Shelf::default(), "all given back, nothing left");
}
