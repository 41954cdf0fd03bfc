//! A year of recurring bookings: how long one takes to make, and the question whether there is room.

use std::time::{Duration, Instant};

use tenure_domain::booking::plan::Wanted;
use tenure_domain::booking::record::Size;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Actor, Wish};

use super::cell::{Cell, Chance, gpus, zone};

pub struct Year {
    pub windows: usize,
    pub refused: usize,
    /// Of the questions, how often there was room.
    pub free: usize,
    /// Sorted.
    pub inserts: Vec<Duration>,
    pub questions: Vec<Duration>,
    pub refusals: Vec<Duration>,
}

const RULES: [&str; 4] = [
    "FREQ=WEEKLY",
    "FREQ=WEEKLY;BYDAY=MO,WE,FR",
    "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR",
    "FREQ=MONTHLY;BYDAY=1MO,3TU",
];

/// Makes so many bookings on so many nodes of eight GPUs, then asks so many times.
pub fn run(nodes: usize, bookings: usize, questions: usize, seed: u64) -> Year {
    let mut cell = Cell::new(nodes, bookings.div_ceil(500).max(1));
    let mut chance = Chance(seed | 1);
    let utc = zone("UTC").expect("UTC is a zone");
    let mut year = Year {
        windows: 0,
        refused: 0,
        free: 0,
        inserts: Vec::new(),
        questions: Vec::new(),
        refusals: Vec::new(),
    };
    let size = |chance: &mut Chance| match chance.below(20) {
        0 => Size::Nodes { count: 1 },
        count => Size::Gpus {
            count: 1 + (count % 3) as u32,
            spread: false,
        },
    };
    while year.inserts.len() < bookings {
        let user = cell.users[year.inserts.len() % cell.users.len()];
        let (minute, length) = (60 + chance.below(7 * 24 * 12) * 5, 30 + chance.below(4) * 30);
        let rule = RULES[chance.below(4) as usize];
        let name = format!("b-{}", year.inserts.len());
        let spec = gpus(name, size(&mut chance), minute, length, Some(rule)).expect("a booking");
        let wish = Wish::Book {
            scope: ScopeId::User(user),
            spec: Box::new(spec),
            zone: Box::new(utc.clone()),
            shown: None,
        };
        let began = Instant::now();
        let made = cell.act(Actor::user(user), wish);
        let took = began.elapsed();
        match made {
            Ok(_) => year.inserts.push(took),
            Err(_) => {
                year.refused += 1;
                year.refusals.push(took);
            }
        }
    }
    year.windows = cell
        .state
        .bookings
        .iter()
        .map(|booking| booking.windows.len())
        .sum();
    for _ in 0..questions {
        let (minute, length) = (60 + chance.below(360 * 24 * 12) * 5, 30 + chance.below(100) * 30);
        let spec = gpus("q".into(), size(&mut chance), minute, length, None).expect("a booking");
        let scope = ScopeId::User(cell.users[0]);
        let began = Instant::now();
        let wanted = Wanted {
            state: &cell.state,
            scope,
            spec: &spec,
            exceptions: &[],
            zone: &utc,
            at: cell.at,
            shelf: cell.state.bookings.shelf(),
            liked: &[],
            begun: &[],
        };
        let answer = wanted.plan(cell.at, cell.at.plus_ms(cell.state.terms.horizon_ms()));
        year.questions.push(began.elapsed());
        year.free += usize::from(answer.missed.is_empty());
    }
    year.inserts.sort();
    year.questions.sort();
    year.refusals.sort();
    year
}
