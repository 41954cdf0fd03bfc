//! One connection's shared memory from both ends: a ring of calls one way, replies in slots and a ring of notices the
//! other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use crate::codec::Malformed;
use crate::memory::Shared;
use crate::ring::{self, Ear, HEADER, Head, NO_SLOT, Place, Writer};
use crate::slot::{self, REPLY_MOST, SLOTS, Slot};
use crate::spin::Spin;

const CALLS: Place = Place(0);
const NOTICES: Place = Place(ring::SPREAD);
const REPLIES: usize = ring::SPREAD * 2;

/// How large a channel's memory is.
pub const CHANNEL_BYTES: usize = (REPLIES + slot::SPREAD).next_multiple_of(4096);

/// A call as it came.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    pub slot: u32,
    pub sequence: u32,
    pub flags: u32,
}

impl Frame {
    /// The caller is the only thread that could call: the answer may be waited for at once.
    pub const ALONE: u32 = 1;

    pub fn wants_reply(self) -> bool {
        self.slot != NO_SLOT
    }

    pub fn is_alone(self) -> bool {
        self.flags & Frame::ALONE != 0
    }
}

/// Something the tenant's side asked to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An event got as far as asked, or failed.
    Event { token: u64, status: i32 },
    /// What a kernel printed.
    Text(Vec<u8>),
}

/// The tenant's end.
pub struct TenantSide {
    shared: Arc<Shared>,
    calls: std::sync::Mutex<Writer>,
    notices: std::sync::Mutex<Ear>,
    next: AtomicU32,
    /// The other side had to be woken for the last call: looking would only keep it from a processor.
    rang: AtomicBool,
    answer: Spin,
    end: Spin,
}

impl TenantSide {
    pub fn new(shared: Shared) -> TenantSide {
        assert!(shared.bytes() >= CHANNEL_BYTES);
        TenantSide {
            shared: Arc::new(shared),
            calls: Writer::new(CALLS).into(),
            notices: Ear::new(NOTICES).into(),
            next: AtomicU32::new(1),
            rang: AtomicBool::new(false),
            answer: Spin::default(),
            end: Spin::default(),
        }
    }

    /// A buffer for a frame, with room for its header.
    pub fn frame(buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.resize(HEADER, 0);
    }

    /// The number of the next call; never zero, which an unused slot holds.
    pub fn sequence(&self) -> u32 {
        loop {
            let sequence = self.next.fetch_add(1, Relaxed);
            if sequence != 0 {
                return sequence;
            }
        }
    }

    /// Sends what was encoded behind [`TenantSide::frame`]. `alive` is asked while the ring is full; false ends the
    /// wait.
    pub fn send(
        &self,
        slot: u32,
        sequence: u32,
        flags: u32,
        frame: &mut [u8],
        alive: impl Fn() -> bool,
    ) -> bool {
        let head = Head {
            bytes: (frame.len() - HEADER) as u32,
            slot,
            sequence,
            flags,
        };
        if frame.len() - HEADER > ring::FRAME_MOST {
            return false;
        }
        frame[..HEADER].copy_from_slice(&head.to_bytes());
        let mut calls = lock(&self.calls);
        while !calls.put(&self.shared, frame) {
            calls.await_room(&self.shared, Duration::from_millis(50));
            if !alive() {
                return false;
            }
        }
        self.rang.store(calls.rang, Relaxed);
        true
    }

    /// Waits for the reply to a call; `at_once`: it waits for no device. `alive` is asked now and then; false ends the wait.
    pub fn await_reply(&self, slot: u32, sequence: u32, at_once: bool, alive: impl Fn() -> bool) -> bool {
        let slot = Slot::new(REPLIES, slot);
        let spin = if at_once { &self.answer } else { &self.end };
        let look = || Ok::<_, Malformed>(slot.is_done(&self.shared, sequence));
        let looked = if self.rang.load(Relaxed) {
            look()
        } else {
            spin.until(look)
        };
        if looked == Ok(true) {
            return true;
        }
        while !slot.is_done(&self.shared, sequence) {
            slot.sleep(&self.shared, sequence, Duration::from_millis(50));
            if !slot.is_done(&self.shared, sequence) && !alive() {
                return slot.is_done(&self.shared, sequence);
            }
        }
        true
    }

    /// Whether the reply to a call is there.
    pub fn is_answered(&self, slot: u32, sequence: u32) -> bool {
        Slot::new(REPLIES, slot).is_done(&self.shared, sequence)
    }

    pub fn reply(&self, slot: u32) -> (i32, Vec<u8>) {
        Slot::new(REPLIES, slot).reply(&self.shared)
    }

    pub fn status(&self, slot: u32) -> i32 {
        Slot::new(REPLIES, slot).status(&self.shared)
    }

    /// Sleeps until there is a notice, somebody rouses, or a while has passed.
    pub fn await_notice(&self) -> Result<(), Malformed> {
        let drowsy = lock(&self.notices).drowse(&self.shared)?;
        if let Some(seen) = drowsy {
            Ear::sleep_on(NOTICES, &self.shared, seen, Duration::from_millis(100));
        }
        Ok(())
    }

    /// Wakes who sleeps there.
    pub fn rouse(&self) {
        Ear::rouse(NOTICES, &self.shared);
    }

    /// The next notice, if there is one.
    pub fn notice(&self) -> Result<Option<Notice>, Malformed> {
        let mut payload = Vec::new();
        let mut ear = lock(&self.notices);
        let Some(head) = ear.take(&self.shared, &mut payload)? else {
            return Ok(None);
        };
        if head.flags == 1 {
            return Ok(Some(Notice::Text(payload)));
        }
        let token: [u8; 8] = payload
            .get(..8)
            .and_then(|b| b.try_into().ok())
            .ok_or(Malformed)?;
        Ok(Some(Notice::Event {
            token: u64::from_le_bytes(token),
            status: head.sequence as i32,
        }))
    }
}

/// The broker's end. Calls are read by one thread; anyone may answer.
pub struct BrokerSide {
    shared: Arc<Shared>,
    notices: std::sync::Mutex<Writer>,
}

impl BrokerSide {
    pub fn new(shared: Shared) -> BrokerSide {
        assert!(shared.bytes() >= CHANNEL_BYTES);
        BrokerSide {
            shared: Arc::new(shared),
            notices: Writer::new(NOTICES).into(),
        }
    }

    /// The end that reads calls.
    pub fn ear(&self) -> Calls {
        Calls {
            shared: self.shared.clone(),
            ear: Ear::new(CALLS),
            spin: Spin::default(),
        }
    }

    /// Answers a call; a slot that is none is ignored, a reply too long is cut to its status.
    pub fn answer(&self, frame: Frame, status: i32, reply: &[u8]) {
        if frame.slot < SLOTS {
            let reply = if reply.len() > REPLY_MOST { &[] } else { reply };
            Slot::new(REPLIES, frame.slot).answer(&self.shared, frame.sequence, status, reply);
        }
    }

    /// Tells the tenant something. Dropped when it does not listen: the ring is its own to empty.
    pub fn tell(&self, notice: &Notice) -> bool {
        let (flags, status, payload): (u32, i32, &[u8]) = match notice {
            Notice::Event { token, status } => (0, *status, &token.to_le_bytes()),
            Notice::Text(text) => (1, 0, text),
        };
        if payload.len() > ring::FRAME_MOST {
            return false;
        }
        let head = Head {
            bytes: payload.len() as u32,
            slot: NO_SLOT,
            sequence: status as u32,
            flags,
        };
        let mut frame = head.to_bytes().to_vec();
        frame.extend_from_slice(payload);
        lock(&self.notices).put(&self.shared, &frame)
    }

    /// Wakes the thread that reads calls.
    pub fn rouse(&self) {
        Ear::rouse(CALLS, &self.shared);
    }
}

/// Where calls come out.
pub struct Calls {
    shared: Arc<Shared>,
    ear: Ear,
    spin: Spin,
}

impl Calls {
    /// The next call, its payload in `payload`; none if there is none after a while.
    pub fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Frame>, Malformed> {
        let Calls { shared, ear, spin } = self;
        if !ear.ready(shared)? && !spin.until(|| ear.ready(shared))? {
            ear.sleep(shared, Duration::from_secs(1))?;
        }
        let head = self.ear.take(&self.shared, payload)?;
        Ok(head.map(|head| Frame {
            slot: head.slot,
            sequence: head.sequence,
            flags: head.flags,
        }))
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
