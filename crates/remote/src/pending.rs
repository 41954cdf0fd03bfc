//! Transfers under way: bytes that a read brought must be copied to where the program wants them before it can see the
//! read as ended, and a span may be used again only after its command ended.
//!
//! Whenever the program learns that something ended, it comes through here first: all reads that ended by then are
//! copied out. Whatever the end of one command implies, the broker says of the others too.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use tenure_wire::{Id, Request};

use crate::bulk::Room;
use crate::link::{Link, Remote, lock, parts};

/// Where a packed block goes in the program's memory.
pub struct CopyOut {
    pub to: *mut u8,
    pub block: Block,
}

// SAFETY: an address the program gave for a transfer; it promised not to touch it until that has ended.
unsafe impl Send for CopyOut {}

/// Rows of bytes with gaps between them.
#[derive(Clone, Copy)]
pub struct Block {
    pub row_bytes: usize,
    pub rows: usize,
    pub slices: usize,
    pub row_pitch: usize,
    pub slice_pitch: usize,
}

impl Block {
    /// Bytes without gaps.
    pub fn line(bytes: usize) -> Block {
        Block {
            row_bytes: bytes,
            rows: 1,
            slices: 1,
            row_pitch: bytes,
            slice_pitch: bytes,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.row_bytes as u64 * self.rows as u64 * self.slices as u64
    }

    fn each(&self, mut row: impl FnMut(usize, usize)) {
        if self.rows * self.slices == 1 {
            row(0, 0);
            return;
        }
        for slice in 0..self.slices {
            for line in 0..self.rows {
                let packed = (slice * self.rows + line) * self.row_bytes;
                row(packed, slice * self.slice_pitch + line * self.row_pitch);
            }
        }
    }

    /// Packs the block at `from`.
    ///
    /// # Safety
    /// `from` holds the block, `to` has room for its bytes.
    pub unsafe fn pack(&self, from: *const u8, to: *mut u8) {
        self.each(|packed, spread| {
            // SAFETY: as promised.
            unsafe { std::ptr::copy_nonoverlapping(from.add(spread), to.add(packed), self.row_bytes) };
        });
    }

    /// Unpacks a block to `to`.
    ///
    /// # Safety
    /// `from` holds the packed bytes, `to` has room for the block.
    pub unsafe fn unpack(&self, from: *const u8, to: *mut u8) {
        self.each(|packed, spread| {
            // SAFETY: as promised.
            unsafe { std::ptr::copy_nonoverlapping(from.add(packed), to.add(spread), self.row_bytes) };
        });
    }
}

pub struct Pending {
    /// Its number among all; given when it is added.
    serial: u64,
    event: Arc<Remote>,
    queue: Id,
    room: Room,
    copy: Option<CopyOut>,
}

impl Pending {
    pub fn new(event: Arc<Remote>, queue: Id, room: Room, copy: Option<CopyOut>) -> Pending {
        Pending {
            serial: 0,
            event,
            queue,
            room,
            copy,
        }
    }

    fn finish(self) {
        if let Some(copy) = &self.copy {
            // SAFETY: the span holds the packed bytes; the program gave room for the block.
            unsafe { copy.block.unpack(self.room.start(), copy.to) };
        }
    }
}

#[derive(Default)]
pub struct Pendings {
    list: Mutex<Vec<Pending>>,
    reads: AtomicUsize,
    next: AtomicU64,
}

/// How many events are asked about at once.
const ASKED_MOST: usize = 4096;
/// With so many writes under way their spans are taken back.
const WRITES_MOST: usize = 512;

impl Pendings {
    pub fn add(&self, link: &'static Link, mut pending: Pending) {
        if pending.copy.is_some() {
            self.reads.fetch_add(1, SeqCst);
        }
        let mut list = lock(&self.list);
        pending.serial = self.next.fetch_add(1, SeqCst);
        list.push(pending);
        if list.len().is_multiple_of(WRITES_MOST) {
            drop(list);
            let _ = self.reclaim(link);
        }
    }

    /// Copies out what has ended. Called before the program is told that anything ended.
    pub fn settle(&self, link: &'static Link) -> Result<(), i32> {
        if self.reads.load(SeqCst) == 0 {
            return Ok(());
        }
        self.sweep(link, |pending| pending.copy.is_some())
    }

    /// Takes back the spans of all that has ended.
    pub fn reclaim(&self, link: &'static Link) -> Result<(), i32> {
        self.sweep(link, |_| true)
    }

    /// Waits for all, and takes everything back.
    pub fn await_all(&self, link: &'static Link) -> Result<(), i32> {
        let events: Vec<Id> = lock(&self.list).iter().map(|pending| pending.event.id).collect();
        for some in events.chunks(ASKED_MOST) {
            let _ = link.call(&Request::Wait {
                events: some.to_vec(),
            });
        }
        self.reclaim(link)
    }

    /// What was under way by now, as a mark for [`Pendings::settle_queue`].
    pub fn mark(&self) -> u64 {
        self.next.load(SeqCst)
    }

    /// All commands of a queue have ended that were under way at `mark`.
    pub fn settle_queue(&self, link: &'static Link, queue: Id, mark: u64) -> Result<(), i32> {
        let mut list = lock(&self.list);
        if !list.is_empty() {
            let (ended, kept): (Vec<_>, Vec<_>) = list
                .drain(..)
                .partition(|pending| pending.queue == queue && pending.serial < mark);
            *list = kept;
            self.finish(ended);
        }
        drop(list);
        self.settle(link)
    }

    fn finish(&self, ended: Vec<Pending>) {
        for pending in ended {
            if pending.copy.is_some() {
                self.reads.fetch_sub(1, SeqCst);
            }
            pending.finish();
        }
    }

    fn sweep(&self, link: &'static Link, which: impl Fn(&Pending) -> bool) -> Result<(), i32> {
        // INVARIANT: the list is locked until all is copied: whoever comes later must not see less.
        let mut list = lock(&self.list);
        let asked: Vec<Id> = list
            .iter()
            .filter(|pending| which(pending))
            .map(|pending| pending.event.id)
            .collect();
        let mut flags: Vec<u8> = Vec::with_capacity(asked.len());
        for some in asked.chunks(ASKED_MOST) {
            flags.extend(parts::<Vec<u8>>(&link.call(&Request::Ended {
                events: some.to_vec(),
            })?)?);
        }
        let mut flags = flags.into_iter();
        let (ended, kept): (Vec<_>, Vec<_>) = list
            .drain(..)
            .partition(|pending| which(pending) && flags.next() == Some(1));
        *list = kept;
        self.finish(ended);
        Ok(())
    }

    /// Waits for reads that bring bytes into a range the program now reads itself.
    pub fn await_overlap(&self, link: &'static Link, start: *const u8, bytes: usize) -> Result<(), i32> {
        if self.reads.load(SeqCst) == 0 {
            return Ok(());
        }
        let (start, end) = (start as usize, start as usize + bytes);
        let events: Vec<Id> = lock(&self.list)
            .iter()
            .filter(|pending| {
                pending.copy.as_ref().is_some_and(|copy| {
                    let reach = copy.block.slice_pitch * copy.block.slices;
                    (copy.to as usize) < end && start < copy.to as usize + reach
                })
            })
            .map(|pending| pending.event.id)
            .collect();
        if events.is_empty() {
            return Ok(());
        }
        let _ = link.call(&Request::Wait { events });
        self.settle(link)
    }
}
