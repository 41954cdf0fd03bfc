//! The ring of frames from the tenant's side to the broker's: one writer, one reader, in memory both can write.
//!
//! Each side keeps its own position in private memory and only publishes it; the other's position is copied once and
//! checked before use. A frame is a header of sixteen bytes and its payload, padded to eight.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::codec::Malformed;
use crate::futex;
use crate::memory::Shared;

/// Bytes of the ring's data.
pub const RING_BYTES: usize = 1 << 20;
/// The longest payload.
pub const FRAME_MOST: usize = 64 << 10;
/// A frame that wants no reply.
pub const NO_SLOT: u32 = u32::MAX;

pub(crate) const HEADER: usize = 16;
/// Where things lie, from the ring's start: each word on a cache line of its own, then the data.
const HEAD: usize = 0;
const TAIL: usize = 64;
const BELL: usize = 128;
const SLEEPS: usize = 192;
const SPACE: usize = 256;
const WANTS_SPACE: usize = 320;
const DATA: usize = 384;
pub(crate) const SPREAD: usize = DATA + RING_BYTES;

/// The places of one ring in a mapping.
#[derive(Clone, Copy)]
pub(crate) struct Place(pub usize);

impl Place {
    fn head(self, shared: &Shared) -> &AtomicU64 {
        shared.word64(self.0 + HEAD)
    }
    fn tail(self, shared: &Shared) -> &AtomicU64 {
        shared.word64(self.0 + TAIL)
    }
    fn bell(self, shared: &Shared) -> &AtomicU32 {
        shared.word32(self.0 + BELL)
    }
    fn sleeps(self, shared: &Shared) -> &AtomicU32 {
        shared.word32(self.0 + SLEEPS)
    }
    fn space(self, shared: &Shared) -> &AtomicU32 {
        shared.word32(self.0 + SPACE)
    }
    fn wants_space(self, shared: &Shared) -> &AtomicU32 {
        shared.word32(self.0 + WANTS_SPACE)
    }

    fn copy_out(self, shared: &Shared, position: u64, out: &mut [u8]) {
        let at = position as usize % RING_BYTES;
        let first = out.len().min(RING_BYTES - at);
        let (head, rest) = out.split_at_mut(first);
        shared.copy_out(self.0 + DATA + at, head);
        shared.copy_out(self.0 + DATA, rest);
    }

    fn copy_in(self, shared: &Shared, position: u64, bytes: &[u8]) {
        let at = position as usize % RING_BYTES;
        let first = bytes.len().min(RING_BYTES - at);
        shared.copy_in(self.0 + DATA + at, &bytes[..first]);
        shared.copy_in(self.0 + DATA, &bytes[first..]);
    }
}

/// What stands before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub bytes: u32,
    pub slot: u32,
    pub sequence: u32,
    pub flags: u32,
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        for (place, word) in [self.bytes, self.slot, self.sequence, self.flags]
            .iter()
            .enumerate()
        {
            out[place * 4..place * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    fn from_bytes(bytes: [u8; HEADER]) -> Head {
        let word = |place: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[place * 4..place * 4 + 4]);
            u32::from_le_bytes(word)
        };
        Head {
            bytes: word(0),
            slot: word(1),
            sequence: word(2),
            flags: word(3),
        }
    }
}

/// The writing end. One thread at a time.
pub(crate) struct Writer {
    place: Place,
    head: u64,
    /// The reader's position as last seen.
    tail: u64,
    /// Whether the reader slept when the last frame came.
    pub rang: bool,
}

impl Writer {
    pub fn new(place: Place) -> Writer {
        Writer {
            place,
            head: 0,
            tail: 0,
            rang: false,
        }
    }

    /// Puts a frame into the ring. False: there is no room now. `frame` begins with its header.
    pub fn put(&mut self, shared: &Shared, frame: &[u8]) -> bool {
        let room = frame.len().next_multiple_of(8) as u64;
        if self.head.wrapping_sub(self.tail) + room > RING_BYTES as u64 {
            let tail = self.place.tail(shared).load(SeqCst);
            if self.head.wrapping_sub(tail) > RING_BYTES as u64 {
                return false;
            }
            self.tail = tail;
            if self.head.wrapping_sub(tail) + room > RING_BYTES as u64 {
                return false;
            }
        }
        self.place.copy_in(shared, self.head, frame);
        self.head = self.head.wrapping_add(room);
        self.place.head(shared).store(self.head, SeqCst);
        self.rang = self.place.sleeps(shared).load(SeqCst) != 0;
        if self.rang {
            self.ring(shared);
        }
        true
    }

    fn ring(&self, shared: &Shared) {
        self.place.sleeps(shared).store(0, SeqCst);
        self.place.bell(shared).fetch_add(1, SeqCst);
        futex::wake(self.place.bell(shared));
    }

    /// Sleeps until the reader made room, or for a while.
    pub fn await_room(&self, shared: &Shared, most: Duration) {
        let space = self.place.space(shared);
        let seen = space.load(SeqCst);
        self.place.wants_space(shared).store(1, SeqCst);
        if self.place.tail(shared).load(SeqCst) == self.tail {
            futex::sleep(space, seen, most);
        }
    }
}

/// The reading end. One thread.
pub(crate) struct Ear {
    place: Place,
    tail: u64,
    /// The writer's position as last seen and checked.
    head: u64,
}

impl Ear {
    pub fn new(place: Place) -> Ear {
        Ear {
            place,
            tail: 0,
            head: 0,
        }
    }

    /// Whether a frame is there.
    pub fn ready(&mut self, shared: &Shared) -> Result<bool, Malformed> {
        if self.head == self.tail {
            let head = self.place.head(shared).load(SeqCst);
            let ahead = head.wrapping_sub(self.tail);
            if ahead > RING_BYTES as u64 || !ahead.is_multiple_of(8) {
                return Err(Malformed);
            }
            self.head = head;
        }
        Ok(self.head != self.tail)
    }

    /// Copies the next frame out; its payload replaces what is in `payload`.
    pub fn take(&mut self, shared: &Shared, payload: &mut Vec<u8>) -> Result<Option<Head>, Malformed> {
        if !self.ready(shared)? {
            return Ok(None);
        }
        let there = self.head.wrapping_sub(self.tail);
        let mut header = [0; HEADER];
        if there < HEADER as u64 {
            return Err(Malformed);
        }
        self.place.copy_out(shared, self.tail, &mut header);
        let head = Head::from_bytes(header);
        let bytes = head.bytes as usize;
        let room = (HEADER + bytes.min(FRAME_MOST)).next_multiple_of(8) as u64;
        if bytes > FRAME_MOST || room > there {
            return Err(Malformed);
        }
        payload.clear();
        payload.resize(bytes, 0);
        self.place
            .copy_out(shared, self.tail.wrapping_add(HEADER as u64), payload);
        self.tail = self.tail.wrapping_add(room);
        self.place.tail(shared).store(self.tail, SeqCst);
        if self.place.wants_space(shared).load(SeqCst) != 0 {
            self.place.wants_space(shared).store(0, SeqCst);
            self.place.space(shared).fetch_add(1, SeqCst);
            futex::wake(self.place.space(shared));
        }
        Ok(Some(head))
    }

    /// Sleeps until the writer rings, or for a while.
    pub fn sleep(&mut self, shared: &Shared, most: Duration) -> Result<(), Malformed> {
        if let Some(seen) = self.drowse(shared)? {
            futex::sleep(self.place.bell(shared), seen, most);
        }
        self.place.sleeps(shared).store(0, SeqCst);
        Ok(())
    }

    /// Asks to be rung; what the bell shows now, or none if a frame is there already.
    pub fn drowse(&mut self, shared: &Shared) -> Result<Option<u32>, Malformed> {
        let seen = self.place.bell(shared).load(SeqCst);
        self.place.sleeps(shared).store(1, SeqCst);
        Ok((!self.ready(shared)?).then_some(seen))
    }

    /// Sleeps on the bell as it was seen, without holding the ear.
    pub fn sleep_on(place: Place, shared: &Shared, seen: u32, most: Duration) {
        futex::sleep(place.bell(shared), seen, most);
    }

    /// Wakes a reader that sleeps, from outside the ring.
    pub fn rouse(place: Place, shared: &Shared) {
        place.bell(shared).fetch_add(1, SeqCst);
        futex::wake(place.bell(shared));
    }
}
