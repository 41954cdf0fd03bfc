//! A year of recurring bookings: how long one takes to make, and the question whether there is room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::booking::change::Edit;
use tenure_domain::booking::plan::{MAX_WINDOWS, Wanted};
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::id::BookingId;
use tenure_domain::meter::{Amounts, Meter, Resource};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::{Demand, JobSpec};
use tenure_domain::{Actor, Wish};

use super::cell::{CLASS, Cell, Chance, gpus, zone};

pub struct Year {
    pub windows: usize,
    pub refused: usize,
    /// Of the questions, how often there was room.
    pub free: usize,
    /// Sorted.
    pub inserts: Vec<Duration>,
    pub questions: Vec<Duration>,
    pub refusals: Vec<Duration>,
    /// One window of a series moved.
    pub edits: Vec<Duration>,
    /// Deciding that a waiting job starts, with all of that to come.
    pub starts: Vec<Duration>,
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
        edits: Vec::new(),
        starts: Vec::new(),
    };
    // Everybody's quota is counted, as it would be where there are tenants.
    let scopes: Vec<ScopeId> = cell.state.tree.iter().map(|scope| scope.id).collect();
    for scope in scopes {
        let quota = Amounts::from([(Meter::all(Resource::BookedMilli), 1_000_000_000)]);
        let revision = None;
        cell.system(Wish::SetQuota {
            scope,
            quota,
            revision,
        });
    }
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
            known: None,
            had: &[],
            most: MAX_WINDOWS,
        };
        let answer = wanted.plan(cell.at, cell.at.plus_ms(cell.state.terms.horizon_ms()));
        year.questions.push(began.elapsed());
        year.free += usize::from(answer.missed.is_empty());
    }
    edit(&mut cell, &mut chance, &utc, &mut year, questions / 50);
    start(&mut cell, &mut year, questions / 50);
    for samples in [
        &mut year.inserts,
        &mut year.questions,
        &mut year.refusals,
        &mut year.edits,
        &mut year.starts,
    ] {
        samples.sort();
    }
    year
}

/// Moves windows of series by half an hour, where there is room.
fn edit(cell: &mut Cell, chance: &mut Chance, utc: &Zone, year: &mut Year, count: usize) {
    let ids: Vec<BookingId> = cell.state.bookings.iter().map(|booking| booking.id).collect();
    for _ in 0..count {
        let id = ids[chance.below(ids.len() as u64) as usize];
        let Some(booking) = cell.state.bookings.get(id) else {
            continue;
        };
        let window = &booking.windows[chance.below(booking.windows.len() as u64) as usize];
        let later = |wall: Wall| wall.plus_s(1800).unwrap_or(wall);
        let Some(end) = utc.wall(window.end).map(Wall) else {
            continue;
        };
        let edit = Edit::One(Exception {
            of: window.of,
            start: later(window.of),
            end: later(end),
            size: booking.size_of(window.of),
        });
        let (user, wish) = (
            booking.by,
            Wish::EditBooking {
                booking: id,
                edit: Box::new(edit),
                zone: Box::new(utc.clone()),
                revision: None,
            },
        );
        let Some(user) = user else { continue };
        let began = Instant::now();
        let edited = cell.act(Actor::user(user), wish);
        if edited.is_ok() {
            year.edits.push(began.elapsed());
        }
    }
}

/// Jobs of two hours, which windows are in the way of.
fn start(cell: &mut Cell, year: &mut Year, count: usize) {
    for number in 0..count {
        let text = format!(r#"{{"name":"j-{number}","command":["x"]}}"#);
        let Ok(mut spec) = serde_json::from_str::<JobSpec>(&text) else {
            continue;
        };
        spec.run_time_s = 7200;
        spec.demand = Demand {
            gpus: 1,
            class: Some(CLASS.into()),
            ..Demand::default()
        };
        let owner = cell.users[number % cell.users.len()];
        let wish = Wish::Submit {
            owner,
            spec: Arc::new(spec),
            trace: None,
        };
        let began = Instant::now();
        let submitted = cell.act(Actor::user(owner), wish);
        if submitted.is_ok() {
            year.starts.push(began.elapsed());
        }
    }
}
