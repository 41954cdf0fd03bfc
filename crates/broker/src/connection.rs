//! One process of the job: its ring, its objects, its bulk memory. One thread takes its calls in order, one hears its
//! socket; when either finds it broken or gone, the connection ends and nothing else does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tenure_wire::{BrokerSide, Frame, Greeting, Id, Request, Shared, Socket, Span, Wanted};

use crate::abi::{INVALID_VALUE, OUT_OF_RESOURCES};
use crate::audit;
use crate::call::{self, Answer};
use crate::driver::cl;
use crate::fault::Fault;
use crate::helper::Helpers;
use crate::object::{Event, Live, Object, Queue, lock};
use crate::table::Table;
use crate::worker::World;

/// The most regions of one connection.
const REGIONS_MOST: usize = 4096;

pub struct Connection {
    pub world: Arc<World>,
    pub side: BrokerSide,
    pub table: Table,
    pub helpers: Helpers,
    regions: RwLock<HashMap<u32, Arc<Region>>>,
    /// Held by the call that is being done: what it found of a region is used before it ends.
    turn: Mutex<()>,
    /// Queues the tenant gave up whose commands may still use its regions.
    leaving: Mutex<Vec<Arc<Queue>>>,
    closed: AtomicBool,
    /// User events nobody has set yet.
    pub open_events: AtomicUsize,
    /// Notices promised and not yet given.
    pub promised: AtomicU64,
}

/// Bulk memory, counted while it lives.
pub struct Region {
    shared: Shared,
    world: Arc<World>,
}

#[cfg(any(test, feature = "trial"))]
impl Region {
    pub fn contains(&self, start: usize, bytes: usize) -> bool {
        let first = self.shared.part(0, 0).map_or(0, |first| first as usize);
        start >= first
            && start - first <= self.shared.bytes()
            && bytes <= self.shared.bytes() - (start - first)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.shared
            .read(0, self.shared.bytes() as u64)
            .unwrap_or_default()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.world.bulk_used.fetch_sub(self.shared.bytes() as u64, SeqCst);
    }
}

impl Connection {
    /// The address of a span, for the driver. Whoever reads or writes there sees bytes the tenant may change.
    pub fn address(&self, span: Span) -> Result<*mut u8, Fault> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let region = regions.get(&span.region).ok_or(Fault::Code(INVALID_VALUE))?;
        region
            .shared
            .part(span.at, span.bytes)
            .ok_or(Fault::Code(INVALID_VALUE))
    }

    fn region(&self, number: u32) -> Result<Arc<Region>, Fault> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.get(&number).cloned().ok_or(Fault::Code(INVALID_VALUE))
    }

    /// A private copy of what is there now.
    pub fn copy(&self, span: Span, most: u64) -> Result<Vec<u8>, Fault> {
        if span.bytes > most {
            return Err(Fault::Code(OUT_OF_RESOURCES));
        }
        self.region(span.region)?
            .shared
            .read(span.at, span.bytes)
            .ok_or(Fault::Code(INVALID_VALUE))
    }

    /// Puts bytes there.
    pub fn fill(&self, span: Span, bytes: &[u8]) -> Result<(), Fault> {
        let fits = bytes.len() as u64 <= span.bytes;
        match fits && self.region(span.region)?.shared.write(span.at, bytes) {
            true => Ok(()),
            false => Err(Fault::Code(INVALID_VALUE)),
        }
    }

    pub fn grant(&self, wanted: Wanted) -> Option<Arc<Region>> {
        let bytes = usize::try_from(wanted.bytes).ok()?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        if regions.len() >= REGIONS_MOST || regions.contains_key(&wanted.region) {
            return None;
        }
        let most = self.world.bulk_most;
        self.world
            .bulk_used
            .fetch_update(SeqCst, SeqCst, |used| {
                used.checked_add(wanted.bytes).filter(|sum| *sum <= most)
            })
            .ok()?;
        let Ok(shared) = Shared::create(bytes) else {
            self.world.bulk_used.fetch_sub(wanted.bytes, SeqCst);
            return None;
        };
        let region = Arc::new(Region {
            shared,
            world: self.world.clone(),
        });
        regions.insert(wanted.region, region.clone());
        Some(region)
    }

    /// Takes a region out of use; its memory goes when no command of the driver can touch it any more.
    pub fn let_go(self: &Arc<Self>, number: u32) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(region) = regions.remove(&number) else {
            return;
        };
        drop(regions);
        let here = self.clone();
        let kept = region.clone();
        let given = self.helpers.give(move || {
            drop(lock(&here.turn));
            here.finish_queues();
            drop(kept);
        });
        if !given {
            // It stays until the connection ends.
            let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
            regions.insert(number, region);
        }
    }

    /// All objects, those that leave among them.
    pub fn objects(&self) -> Vec<Object> {
        let mut all = self.table.all();
        all.extend(lock(&self.leaving).iter().cloned().map(Object::Queue));
        all
    }

    /// Gives up an object. A queue stays until its commands have ended.
    pub fn release(self: &Arc<Self>, id: Id) {
        let queue = match self.table.take(id) {
            Some(Object::Queue(queue)) => queue,
            Some(Object::Event(event)) => {
                self.set(&event, -1);
                return;
            }
            _ => return,
        };
        lock(&self.leaving).push(queue.clone());
        let held = Live::retained(queue.live.get(), cl().retain_queue, cl().release_queue);
        let here = self.clone();
        // With no helper it stays until the connection ends.
        self.helpers.give(move || {
            // SAFETY: a live queue, held by this closure.
            unsafe { (cl().finish)(held.get()) };
            let _held = here.world.hold();
            lock(&here.leaving).retain(|other| !Arc::ptr_eq(other, &queue));
            drop(queue);
        });
    }

    fn finish_queues(&self) {
        let held = self.world.hold();
        let live = |object: Object| match object {
            Object::Queue(queue) if !queue.live.get().is_null() => Some(Live::retained(
                queue.live.get(),
                cl().retain_queue,
                cl().release_queue,
            )),
            _ => None,
        };
        let queues: Vec<Live> = self.objects().into_iter().filter_map(live).collect();
        drop(held);
        for queue in queues {
            // SAFETY: a live queue, held here.
            unsafe { (cl().finish)(queue.get()) };
        }
    }

    /// Whether the thread that takes calls may wait for a command itself: nobody else could be needed for its end.
    pub fn may_wait(&self, frame: Frame) -> bool {
        frame.is_alone() && self.open_events.load(SeqCst) == 0
    }

    /// Sets a user event. False: it was set already.
    pub fn set(&self, event: &Event, status: i32) -> bool {
        let set = event.set(status);
        if set {
            self.open_events.fetch_sub(1, SeqCst);
        }
        set
    }

    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        // Whatever waits for the tenant waits in vain.
        for object in self.table.all() {
            if let Object::Event(event) = object {
                self.set(&event, -1);
            }
        }
        self.side.rouse();
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// All that is left: what runs ends, then everything is given back. The connection was closed before.
    pub fn tear_down(&self) {
        self.finish_queues();
        let _held = self.world.hold();
        drop(self.table.clear());
        lock(&self.leaving).clear();
        self.regions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

pub fn new(world: Arc<World>, side: BrokerSide, helpers: Helpers) -> Arc<Connection> {
    Arc::new(Connection {
        world,
        side,
        table: Table::default(),
        helpers,
        regions: RwLock::default(),
        turn: Mutex::default(),
        leaving: Mutex::default(),
        closed: AtomicBool::new(false),
        open_events: AtomicUsize::new(0),
        promised: AtomicU64::new(0),
    })
}

/// Serves a connection to its end.
pub fn serve(world: Arc<World>, socket: Socket) {
    let Ok(shared) = Greeting::answer(&socket) else {
        return;
    };
    let side = BrokerSide::new(shared);
    let mut calls = side.ear();
    let connection = new(world, side, Helpers::default());
    connection.world.add(&connection);
    let socket = Arc::new(socket);
    let heard = (connection.clone(), socket.clone());
    let ear = std::thread::Builder::new()
        .name("socket".into())
        .spawn(move || hear(&heard.0, &heard.1));
    if ear.is_ok() {
        let mut payload = Vec::new();
        while !connection.is_closed() {
            match calls.next(&mut payload) {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    if !take(&connection, frame, &payload) {
                        break;
                    }
                }
                Err(_) => {
                    audit::malformed();
                    break;
                }
            }
        }
    }
    connection.close();
    socket.hang_up();
    connection.tear_down();
}

/// Does one call. False: it is none of our library's.
pub fn take(connection: &Arc<Connection>, frame: Frame, payload: &[u8]) -> bool {
    let Ok(request) = Request::decode(payload) else {
        audit::malformed();
        return false;
    };
    let Some(_running) = connection.world.enter(connection) else {
        return false;
    };
    let _turn = lock(&connection.turn);
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        call::perform(connection, frame, request)
    }));
    match done {
        Ok(Ok(Answer::Now(reply))) => connection.side.answer(frame, 0, &reply),
        Ok(Ok(Answer::Later)) => {}
        Ok(Err(Fault::Code(code))) => connection.side.answer(frame, code, &[]),
        Ok(Err(Fault::Broken)) => {
            audit::malformed();
            return false;
        }
        Err(_) => return false,
    }
    true
}

/// Hears the socket: requests for bulk memory, and the end.
fn hear(connection: &Arc<Connection>, socket: &Socket) {
    loop {
        let wanted = match Wanted::hear(socket) {
            Ok(Some(wanted)) => wanted,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                audit::malformed();
                break;
            }
            Ok(None) | Err(_) => break,
        };
        let answered = if wanted.bytes == 0 {
            connection.let_go(wanted.region);
            Wanted::answer(socket, None)
        } else {
            let region = connection.grant(wanted);
            Wanted::answer(socket, region.as_ref().map(|region| &region.shared))
        };
        if answered.is_err() {
            break;
        }
    }
    connection.close();
}
