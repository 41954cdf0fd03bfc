//! Places for replies: a thread of the tenant's that waits has one for itself, and sleeps on its own word.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::futex;
use crate::memory::Shared;

/// How many calls may be under way at once.
pub const SLOTS: u32 = 64;
/// The longest reply.
pub const REPLY_MOST: usize = 8 << 10;

const DONE: usize = 0;
const WAITS: usize = 4;
const STATUS: usize = 8;
const LENGTH: usize = 12;
const DATA: usize = 64;
const STRIDE: usize = DATA + REPLY_MOST;
pub(crate) const SPREAD: usize = STRIDE * SLOTS as usize;

#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Slot {
    /// The slot of a number below [`SLOTS`], of those that begin at `start`.
    pub fn new(start: usize, number: u32) -> Slot {
        assert!(number < SLOTS);
        Slot(start + number as usize * STRIDE)
    }

    /// Puts the reply to call `sequence` there and wakes who waits for it.
    pub fn answer(self, shared: &Shared, sequence: u32, status: i32, reply: &[u8]) {
        assert!(reply.len() <= REPLY_MOST);
        shared.copy_in(self.0 + DATA, reply);
        shared.word32(self.0 + LENGTH).store(reply.len() as u32, SeqCst);
        shared.word32(self.0 + STATUS).store(status as u32, SeqCst);
        let done = shared.word32(self.0 + DONE);
        done.store(sequence, SeqCst);
        if shared.word32(self.0 + WAITS).load(SeqCst) != 0 {
            futex::wake(done);
        }
    }

    pub fn is_done(self, shared: &Shared, sequence: u32) -> bool {
        shared.word32(self.0 + DONE).load(SeqCst) == sequence
    }

    /// Sleeps until call `sequence` is answered, or for a while.
    pub fn sleep(self, shared: &Shared, sequence: u32, most: Duration) {
        let done = shared.word32(self.0 + DONE);
        let seen = done.load(SeqCst);
        shared.word32(self.0 + WAITS).store(1, SeqCst);
        if seen != sequence && !self.is_done(shared, sequence) {
            futex::sleep(done, seen, most);
        }
        shared.word32(self.0 + WAITS).store(0, SeqCst);
    }

    /// The reply of a call that is done.
    pub fn reply(self, shared: &Shared) -> (i32, Vec<u8>) {
        let length = shared.word32(self.0 + LENGTH).load(SeqCst) as usize;
        let mut reply = vec![0; length.min(REPLY_MOST)];
        shared.copy_out(self.0 + DATA, &mut reply);
        (shared.word32(self.0 + STATUS).load(SeqCst) as i32, reply)
    }

    pub fn status(self, shared: &Shared) -> i32 {
        shared.word32(self.0 + STATUS).load(SeqCst) as i32
    }
}
