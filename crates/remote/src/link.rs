//! The connection to the broker: calls with and without an answer, ids, and what happens when it is lost.
//!
//! A process has one. A child made by `fork` must not speak over its parent's: it finds the link unusable and makes
//! its own when it asks for devices anew.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tenure_wire::{Frame, Greeting, Id, NO_SLOT, Reader, Request, SLOTS, Shared, Socket, TenantSide, Wanted};

use crate::abi::OUT_OF_RESOURCES;
use crate::bulk::Bulk;
use crate::callback::Callbacks;
use crate::pending::Pendings;

pub struct Link {
    side: TenantSide,
    socket: Mutex<Socket>,
    /// The same socket, to look whether the other end lives.
    watch: libc::c_int,
    /// How many forks lay before this link was made.
    age: u32,
    dead: AtomicBool,
    ids: Mutex<Ids>,
    slots: AtomicU64,
    /// The thread that made the first call; zero: none yet.
    first: AtomicUsize,
    many: AtomicBool,
    /// User events that nobody has set.
    pub open_events: AtomicUsize,
    pub bulk: Bulk,
    pub pendings: Pendings,
    pub callbacks: Callbacks,
}

static LINK: AtomicPtr<Link> = AtomicPtr::new(std::ptr::null_mut());
static FORKS: AtomicU32 = AtomicU32::new(0);

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's link; made on first use, and anew after a fork.
pub fn link() -> Result<&'static Link, i32> {
    static MAKING: AtomicU32 = AtomicU32::new(0);
    let usable = |link: *mut Link| {
        // SAFETY: links are never freed.
        unsafe { link.as_ref() }.filter(|link| link.age == FORKS.load(SeqCst))
    };
    if let Some(link) = usable(LINK.load(SeqCst)) {
        return Ok(link);
    }
    // A thread that was making one in the parent does not exist in a child: its claim is by number of forks.
    let age = FORKS.load(SeqCst);
    while MAKING
        .fetch_update(SeqCst, SeqCst, |claim| (claim != age + 1).then_some(age + 1))
        .is_err()
    {
        std::thread::yield_now();
        if let Some(link) = usable(LINK.load(SeqCst)) {
            return Ok(link);
        }
    }
    let made = match usable(LINK.load(SeqCst)) {
        Some(link) => Ok(link),
        None => Link::open(age).map(|link| {
            let link = Box::leak(Box::new(link));
            LINK.store(link, SeqCst);
            &*link
        }),
    };
    MAKING.store(0, SeqCst);
    made.map_err(|error| {
        say(&format!("no device is shown: {error}"));
        OUT_OF_RESOURCES
    })
}

/// Says one sentence on stderr; what cannot be said is not said.
pub fn say(sentence: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "tenure-remote: {sentence}");
}

extern "C" fn forked() {
    FORKS.fetch_add(1, SeqCst);
    // SAFETY: links are never freed. The child's copy of the socket would keep the broker from seeing its parent's end.
    if let Some(link) = unsafe { LINK.load(SeqCst).as_ref() } {
        // SAFETY: closes this process's copy of a descriptor that is never used here again.
        unsafe { libc::close(link.watch) };
    }
}

/// A slot for an answer, given back when dropped.
pub struct Claim<'a> {
    slots: &'a AtomicU64,
    slot: u32,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.slots.fetch_and(!(1 << self.slot), SeqCst);
    }
}

/// A call under way.
pub struct Ticket<'a> {
    claim: Claim<'a>,
    sequence: u32,
    /// It waits for no device and no compiler.
    at_once: bool,
}

impl Link {
    fn open(age: u32) -> io::Result<Link> {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(|| {
            // SAFETY: a plain function that stays loaded: the library holds itself.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            stay_loaded();
        });
        let path: PathBuf = std::env::var_os("TENURE_BROKER_SOCKET")
            .ok_or_else(|| io::Error::other("TENURE_BROKER_SOCKET is not set"))?
            .into();
        let socket = Socket::connect(&path)?;
        let mut shared = Greeting::ask(&socket)?;
        shared.close_file();
        Ok(Link {
            side: TenantSide::new(shared),
            watch: socket.as_fd().as_raw_fd(),
            socket: Mutex::new(socket),
            age,
            dead: AtomicBool::new(false),
            ids: Mutex::default(),
            slots: AtomicU64::new(0),
            first: AtomicUsize::new(0),
            many: AtomicBool::new(false),
            open_events: AtomicUsize::new(0),
            bulk: Bulk::default(),
            pendings: Pendings::default(),
            callbacks: Callbacks::default(),
        })
    }

    /// Whether calls can be made: the broker lives, and this is the process that spoke to it first.
    pub fn usable(&self) -> bool {
        !self.dead.load(SeqCst) && self.age == FORKS.load(SeqCst)
    }

    pub fn side(&self) -> &TenantSide {
        &self.side
    }

    /// Looks whether the broker's end is still held; remembers if not.
    pub fn alive(&self) -> bool {
        if !self.usable() {
            return false;
        }
        let mut watched = libc::pollfd {
            fd: self.watch,
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: one descriptor to look at, without waiting.
        unsafe { libc::poll(&mut watched, 1, 0) };
        let gone = libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP | libc::POLLNVAL;
        if watched.revents & gone != 0 {
            self.dead.store(true, SeqCst);
            return false;
        }
        true
    }

    /// Whether nobody but the calling thread could do anything that a wait depends on.
    fn flags(&self) -> u32 {
        thread_local!(static SELF: u8 = const { 0 });
        let me = SELF.with(|own| std::ptr::from_ref(own) as usize);
        if self.first.load(SeqCst) != me
            && self.first.compare_exchange(0, me, SeqCst, SeqCst).is_err()
            && !self.many.load(SeqCst)
        {
            self.many.store(true, SeqCst);
        }
        let alone =
            !self.many.load(SeqCst) && self.open_events.load(SeqCst) == 0 && !self.callbacks.listens();
        if alone { Frame::ALONE } else { 0 }
    }

    fn send(&self, slot: u32, sequence: u32, flags: u32, request: &Request) -> Result<(), i32> {
        if !self.usable() {
            return Err(OUT_OF_RESOURCES);
        }
        let mut frame = Vec::with_capacity(256);
        TenantSide::frame(&mut frame);
        request.encode(&mut frame);
        let sent = self.side.send(slot, sequence, flags, &mut frame, || self.alive());
        if sent { Ok(()) } else { Err(OUT_OF_RESOURCES) }
    }

    /// Sends a call without waiting for anything.
    pub fn post(&self, request: &Request) -> Result<(), i32> {
        self.send(NO_SLOT, 0, self.flags(), request)
    }

    /// A slot for an answer. Where all are taken it is waited for, or there is none: who has calls under way himself
    /// must not wait, for others may wait for his slots.
    pub fn claim(&self, wait: bool) -> Result<Option<Claim<'_>>, i32> {
        loop {
            let taken = self.slots.load(SeqCst);
            let slot = taken.trailing_ones();
            if slot < SLOTS {
                let claim = self
                    .slots
                    .compare_exchange(taken, taken | 1 << slot, SeqCst, SeqCst);
                if claim.is_ok() {
                    let slots = &self.slots;
                    return Ok(Some(Claim { slots, slot }));
                }
                continue;
            }
            if !wait {
                return Ok(None);
            }
            if !self.alive() {
                return Err(OUT_OF_RESOURCES);
            }
            std::thread::yield_now();
        }
    }

    /// Sends a call whose answer is fetched later. Others may follow before, so the broker does not wait in its place.
    pub fn begin<'a>(&'a self, claim: Claim<'a>, request: &Request) -> Result<Ticket<'a>, i32> {
        let more_follow = self.flags() & !Frame::ALONE;
        self.begin_with(more_follow, claim, request)
    }

    fn begin_with<'a>(&'a self, flags: u32, claim: Claim<'a>, request: &Request) -> Result<Ticket<'a>, i32> {
        let sequence = self.side.sequence();
        self.send(claim.slot, sequence, flags, request)?;
        Ok(Ticket {
            claim,
            sequence,
            at_once: !takes_long(request),
        })
    }

    /// Waits for the answer of a call.
    pub fn end(&self, ticket: Ticket<'_>) -> Result<Vec<u8>, i32> {
        let slot = ticket.claim.slot;
        let answered = self
            .side
            .await_reply(slot, ticket.sequence, ticket.at_once, || self.alive());
        if !answered {
            // The slot stays taken: the broker is gone, or may still write there.
            std::mem::forget(ticket);
            return Err(OUT_OF_RESOURCES);
        }
        let (status, reply) = self.side.reply(slot);
        drop(ticket);
        if status == 0 { Ok(reply) } else { Err(status) }
    }

    /// Makes a call and waits for its answer.
    pub fn call(&self, request: &Request) -> Result<Vec<u8>, i32> {
        let Some(claim) = self.claim(true)? else {
            return Err(OUT_OF_RESOURCES);
        };
        let ticket = self.begin_with(self.flags(), claim, request)?;
        self.end(ticket)
    }

    /// More bulk memory from the broker.
    pub fn region(&self, region: u32, bytes: u64) -> Option<Shared> {
        if !self.usable() {
            return None;
        }
        Wanted { region, bytes }.ask(&lock(&self.socket)).ok()?
    }

    pub fn let_region_go(&self, region: u32) {
        if self.usable() {
            let _ = Wanted::give_back(region, &lock(&self.socket));
        }
    }

    pub fn new_id(&self) -> Id {
        lock(&self.ids).take()
    }

    /// The id names nothing at the broker; it may be used again.
    pub fn free_id(&self, id: Id) {
        lock(&self.ids).free.push(id.place);
    }

    /// Tells the broker that an object is gone.
    pub fn release(&self, id: Id) {
        if self.usable() && self.post(&Request::Release { id }).is_ok() {
            self.free_id(id);
        }
    }
}

#[derive(Default)]
struct Ids {
    free: Vec<u32>,
    next: u32,
    generation: u32,
}

impl Ids {
    fn take(&mut self) -> Id {
        self.generation = self.generation.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        Id {
            place,
            generation: self.generation,
        }
    }
}

fn takes_long(request: &Request) -> bool {
    use Request as R;
    matches!(
        request,
        R::Finish { .. }
            | R::Wait { .. }
            | R::Read { .. }
            | R::Write { .. }
            | R::ReadRect { .. }
            | R::ReadImage { .. }
            | R::Build { .. }
            | R::Compile { .. }
            | R::Link { .. }
    )
}

/// An object at the broker, given up when dropped.
pub struct Remote {
    pub link: &'static Link,
    pub id: Id,
}

impl Remote {
    /// Makes an object with an id of our own; `request` names it.
    pub fn make(link: &'static Link, request: impl FnOnce(Id) -> Request) -> Result<(Remote, Vec<u8>), i32> {
        let id = link.new_id();
        match link.call(&request(id)) {
            Ok(reply) => Ok((Remote { link, id }, reply)),
            Err(code) => {
                if link.usable() {
                    link.free_id(id);
                }
                Err(code)
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.link.release(self.id);
    }
}

/// The parts of a reply; one that is not as expected is a broken broker.
pub fn parts<T: tenure_wire::Field>(reply: &[u8]) -> Result<T, i32> {
    Reader::new(reply).take().map_err(|_| OUT_OF_RESOURCES)
}

/// Loaders may unload drivers; the callback thread and the fork handler need the code to stay.
fn stay_loaded() {
    // SAFETY: asks for the library that holds this very function and loads it once more, never to be unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(stay_loaded as *const libc::c_void, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(
                info.dli_fname,
                libc::RTLD_NOW | libc::RTLD_NODELETE | libc::RTLD_NOLOAD,
            );
        }
    }
}
