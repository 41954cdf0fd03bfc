//! A worker on trial: a connection without its processes, on a driver that is a double, given any calls in any order.
//!
//! The double believes whatever the worker tells it and ends the process where that is wrong: a handle that is dead or of
//! another kind or platform, a range beyond its object, host memory that is nobody's. Beside the connection on trial
//! stands a neighbour whose memory is full of a canary, which must never be seen. Compiled for tests and for the
//! feature `trial`, which the fuzz target and its seeds use; never part of a worker.

mod double;
pub mod stream;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tenure_wire::{BrokerSide, CHANNEL_BYTES, Frame, Id, NO_SLOT, Request, Shared, Span, TenantSide, Wanted};

use crate::connection::{self, Connection, Region};
use crate::helper::Helpers;
use crate::object::lock;
use crate::suspend;
use crate::worker::World;

/// Replies go to a few slots, which are all looked at.
const SLOTS: u32 = 4;
/// How much bulk memory there is for both.
pub(crate) const BULK_MOST: u64 = 256 << 10;
/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(8);

pub struct Trial {
    world: Arc<World>,
    here: Arc<Connection>,
    neighbour: Arc<Connection>,
    tenant: TenantSide,
    regions: Vec<Weak<Region>>,
    sequence: u32,
    /// What only the neighbour has. Another each time: a fuzzer learns what it sees compared, and writes it itself.
    canary: [u8; 8],
    _turn: MutexGuard<'static, ()>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is being done, or wanted no answer.
    Given,
    Answered(i32, Vec<u8>),
    /// The connection has ended.
    Broken,
}

/// A connection of this world, and its channel's other end.
fn connect(world: &Arc<World>) -> (Arc<Connection>, TenantSide) {
    let one = Shared::create(CHANNEL_BYTES).expect("memory for a channel");
    let file = one.file().expect("its file").try_clone_to_owned();
    let two = Shared::adopt(file.expect("a descriptor"), CHANNEL_BYTES).expect("the same memory");
    let connection = connection::new(world.clone(), BrokerSide::new(two), helpers());
    world.add(&connection);
    (connection, TenantSide::new(one))
}

/// One crew for all trials: starting threads anew would take most of the time.
fn helpers() -> Helpers {
    static CREW: Mutex<Option<Helpers>> = Mutex::new(None);
    lock(&CREW).get_or_insert_with(Helpers::default).share()
}

fn id(place: u32) -> Id {
    Id { place, generation: 0 }
}

impl Trial {
    pub fn begin() -> Trial {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = lock(&TURN);
        double::install();
        let world = Arc::new(World::new(BULK_MOST, None));
        let (here, tenant) = connect(&world);
        let (neighbour, _) = connect(&world);
        let mut trial = Trial {
            world,
            here,
            neighbour,
            tenant,
            regions: Vec::new(),
            sequence: 0,
            canary: canary(),
            _turn: turn,
        };
        trial.settle_neighbour();
        trial
    }

    /// The neighbour has a region, a buffer and a program, all of them canaries.
    fn settle_neighbour(&mut self) {
        let wanted = Wanted {
            region: 1,
            bytes: 512,
        };
        let region = self.neighbour.grant(wanted).expect("a region");
        double::may_touch(&region);
        let all = Span {
            region: 1,
            at: 0,
            bytes: 512,
        };
        self.neighbour.fill(all, &self.canary.repeat(64)).expect("room");
        let calls = [
            Request::Context {
                id: id(0),
                devices: vec![0],
            },
            Request::Buffer {
                id: id(1),
                context: id(0),
                flags: 1,
                bytes: 512,
                from: Some(all),
            },
            Request::Source {
                id: id(2),
                context: id(0),
                text: all,
            },
        ];
        let frame = Frame {
            slot: NO_SLOT,
            sequence: 0,
            flags: 0,
        };
        for call in calls {
            let mut payload = Vec::new();
            call.encode(&mut payload);
            assert!(connection::take(&self.neighbour, frame, &payload));
        }
        assert_eq!(self.neighbour.table.all().len(), 3, "the neighbour is there");
    }

    /// Gives the worker a call as it stands in the ring.
    pub fn give(&mut self, payload: &[u8], answered: bool, alone: bool) -> Outcome {
        self.sequence += 1;
        let slot = self.sequence % SLOTS;
        let frame = Frame {
            slot: if answered { slot } else { NO_SLOT },
            sequence: self.sequence,
            flags: if alone { Frame::ALONE } else { 0 },
        };
        if !connection::take(&self.here, frame, payload) {
            return Outcome::Broken;
        }
        // What a helper answers is looked at in the end.
        if !answered || !self.tenant.is_answered(slot, self.sequence) {
            return Outcome::Given;
        }
        let (status, reply) = self.tenant.reply(slot);
        self.expect_no_canary("a reply", &reply);
        Outcome::Answered(status, reply)
    }

    pub fn call(&mut self, request: &Request) -> Outcome {
        let mut payload = Vec::new();
        request.encode(&mut payload);
        self.give(&payload, true, false)
    }

    /// Asks for bulk memory.
    pub fn grant(&mut self, region: u32, bytes: u64) -> bool {
        let granted = self.here.grant(Wanted { region, bytes });
        if let Some(region) = &granted {
            double::may_touch(region);
            self.regions.push(Arc::downgrade(region));
        }
        self.regions.retain(|region| region.strong_count() > 0);
        granted.is_some()
    }

    pub fn let_go(&mut self, region: u32) {
        self.look();
        self.here.let_go(region);
    }

    /// Puts bytes into bulk memory, as the tenant does at any time.
    pub fn write(&mut self, span: Span, bytes: &[u8]) {
        let _ = self.here.fill(span, bytes);
    }

    /// Sets the slice aside and takes it up again, as the agent does at any time.
    pub fn suspend(&mut self) -> bool {
        double::suspends(true);
        let aside = suspend::suspend(&self.world).is_ok();
        if aside {
            suspend::resume(&self.world).expect("what was there can be made again");
        }
        double::suspends(false);
        aside
    }

    /// Looks at everything the tenant can see.
    fn look(&mut self) {
        for region in self.regions.iter().filter_map(Weak::upgrade) {
            self.expect_no_canary("a region", &region.bytes());
        }
        for slot in 0..SLOTS {
            self.expect_no_canary("a reply", &self.tenant.reply(slot).1);
        }
        while let Ok(Some(notice)) = self.tenant.notice() {
            if let tenure_wire::Notice::Text(text) = notice {
                self.expect_no_canary("a notice", &text);
            }
        }
    }

    /// Waits until no helper has anything to do.
    pub fn rest(&self) {
        let begun = Instant::now();
        while !self.here.helpers.is_quiet() {
            assert!(begun.elapsed() < PATIENCE, "a call hangs");
            std::thread::yield_now();
        }
    }

    /// Lets the helpers get somewhere, which is not always the end.
    pub fn rest_briefly(&self) {
        let begun = Instant::now();
        while !self.here.helpers.is_quiet() && begun.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
    }

    /// The tenant goes: nothing of its may be left.
    pub fn end(mut self) {
        self.here.close();
        self.look();
        self.here.tear_down();
        self.rest();
        self.look();
        self.neighbour.close();
        self.neighbour.tear_down();
        assert_eq!(
            self.here.promised.load(SeqCst),
            0,
            "a notice was promised and not given"
        );
        assert_eq!(self.here.open_events.load(SeqCst), 0, "an event is open");
        // What a helper made last goes with the connection.
        let Trial { world, here, .. } = self;
        assert_eq!(Arc::strong_count(&here), 1, "somebody holds the connection");
        drop(here);
        double::expect_nothing_left();
        assert_eq!(world.bulk_used.load(SeqCst), 0, "bulk memory is left");
    }

    fn expect_no_canary(&self, what: &str, bytes: &[u8]) {
        let seen = bytes.windows(self.canary.len()).any(|part| part == self.canary);
        assert!(!seen, "{what} shows what is the neighbour's");
    }
}

fn canary() -> [u8; 8] {
    static TRIALS: AtomicU64 = AtomicU64::new(1);
    let number = TRIALS.fetch_add(1, SeqCst).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // No byte of it is zero, which texts may not hold.
    (number ^ number >> 29).to_ne_bytes().map(|byte| byte | 0x81)
}
