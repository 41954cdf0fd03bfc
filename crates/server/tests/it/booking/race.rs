//! Many who want the same GPUs at once: whatever is granted, in the order it was, fits a model that looks at every window.
//!
//! `TENURE_BOOKING_ATTEMPTS` says how many attempts (1,000,000 in the long run), `TENURE_BOOKING_SEED` which.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_domain::booking::change::Which;
use tenure_domain::booking::record::{BookingSpec, Size};
use tenure_domain::booking::recurrence::Recurrence;
use tenure_domain::booking::shelf::Seat;
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::id::{BookingId, NodeId};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Code, Event, Time, Wish};
use tenure_server::controller::{Controller, NotDone, now};

use crate::world::World;

/// The seats of each window of one booking, from when to when.
type Held = Vec<(Vec<Seat>, Time, Time)>;

const CALLERS: u64 = 32;
const NODES: u64 = 3;
const GPUS: u32 = 8;
/// Bookings one caller keeps at most.
const KEPT: usize = 12;

fn from_env(name: &str, or: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(or, |text| text.parse().expect("a number"))
}

/// What was granted or given back, and as which event of the journal.
enum Done {
    Made(BookingId, Held),
    Ended(BookingId),
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }
}

fn spec(chance: &mut Chance, zone: &Zone, tomorrow: Time) -> BookingSpec {
    let wall = |minute: u64| Wall(zone.wall(tomorrow.plus_ms(minute * 60_000)).expect("a wall time"));
    let (minute, length) = (chance.below(600), 1 + chance.below(120));
    let rule = ["FREQ=DAILY;COUNT=2", "FREQ=HOURLY;INTERVAL=3;COUNT=3"];
    let rule = rule
        .get(chance.below(6) as usize)
        .map(|rule| rule.parse().expect("a rule"));
    BookingSpec {
        name: "race".into(),
        class: "H100".into(),
        size: match chance.below(8) {
            0 => Size::Nodes { count: 1 },
            1 => Size::Gpus {
                count: 1 + chance.below(20) as u32,
                spread: true,
            },
            2 => Size::Slices {
                count: 1 + chance.below(30) as u32,
                compute_permille: 300,
                vram_mib: 1024,
            },
            _ => Size::Gpus {
                count: 1 + chance.below(8) as u32,
                spread: false,
            },
        },
        region: None,
        recurrence: Recurrence {
            rule,
            ..Recurrence::once(wall(minute))
        },
        end: wall(minute + length),
    }
}

/// Books and gives back until all attempts are made; what was done comes with its place in the journal.
async fn caller(
    controller: Controller,
    by: Actor,
    scope: ScopeId,
    seed: u64,
    left: Arc<AtomicU64>,
    zone: Zone,
    tomorrow: Time,
) -> (Vec<(u64, Done)>, u64) {
    let (mut chance, mut kept, mut done, mut refused) = (Chance(seed), Vec::new(), Vec::new(), 0);
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        if kept.len() > KEPT || (!kept.is_empty() && chance.below(3) == 0) {
            let booking = kept.swap_remove(chance.below(kept.len() as u64) as usize);
            let which = Which::All;
            let wish = Wish::CancelBooking {
                booking,
                which,
                zone: Some(Box::new(zone.clone())),
            };
            let accepted = controller
                .submit(by.clone(), wish, None, None)
                .await
                .expect("cancelled");
            done.push((accepted.seq, Done::Ended(booking)));
        }
        let wish = Wish::Book {
            scope,
            spec: Box::new(spec(&mut chance, &zone, tomorrow)),
            zone: Box::new(zone.clone()),
            shown: None,
        };
        match controller.submit(by.clone(), wish, None, None).await {
            Ok(accepted) => {
                let made = accepted.events.iter().find_map(|event| match &**event {
                    Event::BookingMade { booking } => Some(booking.clone()),
                    _ => None,
                });
                let made = made.expect("what was accepted was made");
                let windows = made.windows.iter();
                let windows = windows.map(|window| (window.seats.clone(), window.start, window.end));
                done.push((accepted.seq, Done::Made(made.id, windows.collect())));
                kept.push(made.id);
            }
            Err(NotDone::Refused(refusal)) if refusal.code == Code::BookedOut => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    (done, refused)
}

/// Whether a node has that many at every moment at which something begins.
fn over_booked(live: &BTreeMap<BookingId, Held>, node: NodeId, from: Time, until: Time) -> bool {
    let there: Vec<(u32, Time, Time)> = live
        .values()
        .flatten()
        .filter(|(_, start, end)| *start < until && from < *end)
        .flat_map(|(seats, start, end)| {
            let here = seats.iter().filter(|seat| seat.node == node);
            here.map(|seat| (seat.gpus, *start, *end))
        })
        .collect();
    let booked = |at: Time| -> u32 {
        let then = there.iter().filter(|(_, start, end)| *start <= at && at < *end);
        then.map(|(gpus, ..)| gpus).sum()
    };
    there
        .iter()
        .any(|(_, start, _)| booked((*start).max(from)) > GPUS)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_granted_what_another_has() {
    let attempts = from_env("TENURE_BOOKING_ATTEMPTS", 4_000);
    let seed = from_env("TENURE_BOOKING_SEED", 1);
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    for number in 0..NODES {
        let node = world.node(&format!("n{number}"), 0).await;
        let gpu = |gpu: u32| GpuFacts {
            uuid: format!("{number}-{gpu}"),
            vendor: "maker".into(),
            model: "model".into(),
            class: "H100".into(),
            vram_mib: 8192,
            isolation: [(Isolation::Guarded, "by the guard".to_owned())].into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 64_000,
            memory_mib: 64 * 1024,
            gpus: (0..GPUS).map(gpu).collect(),
            ..Inventory::default()
        };
        world
            .controller
            .system(Wish::ReportInventory { node, inventory })
            .await
            .expect("reported");
    }
    let left = Arc::new(AtomicU64::new(attempts));
    let zone = Zone::bundled("Europe/Berlin").expect("a zone");
    let tomorrow = Time(now().0 / 60_000 * 60_000).plus_ms(30 * 3_600_000);
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let (user, _) = world.user(&tenant, &format!("u{number}"), Some("member")).await;
        let scope: ScopeId = user.parse().expect("a scope");
        let ScopeId::User(user) = scope else {
            panic!("a user")
        };
        let seed = (seed * CALLERS + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (controller, by) = (world.controller.clone(), Actor::user(user));
        callers.push(tokio::spawn(caller(
            controller,
            by,
            scope,
            seed,
            left.clone(),
            zone.clone(),
            tomorrow,
        )));
    }
    let (mut done, mut refused) = (Vec::new(), 0);
    for caller in callers {
        let (some, no) = caller.await.expect("a caller");
        done.extend(some);
        refused += no;
    }
    done.sort_by_key(|(seq, _)| *seq);
    let mut live = BTreeMap::new();
    let mut made = 0;
    for (seq, done) in done {
        match done {
            Done::Ended(booking) => drop(live.remove(&booking)),
            Done::Made(booking, windows) => {
                live.insert(booking, windows.clone());
                for (seats, from, until) in windows {
                    for seat in seats {
                        assert!(
                            !over_booked(&live, seat.node, from, until),
                            "event {seq} booked {seat:?} twice"
                        );
                    }
                }
                made += 1;
            }
        }
    }
    assert_eq!(made + refused, attempts);
    assert!(
        made * 20 > attempts && refused * 20 > attempts,
        "{made} made, {refused} refused"
    );
    let state = world.controller.view().read();
    assert_eq!(state.bookings.iter().count(), live.len());
}
