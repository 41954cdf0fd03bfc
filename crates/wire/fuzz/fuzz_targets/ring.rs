//! Hands in a channel's memory between the steps of both sides: every frame, reply and notice is read within it, or
//! refused, and nobody waits for what a lie promised.
//!
//! The input is a list of steps, so that positions can be moved while a side is in the middle of the ring, and the
//! ring's end is within reach.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::{
    BrokerSide, CHANNEL_BYTES, FRAME_MOST, NO_SLOT, Notice, REPLY_MOST, Request, SLOTS, Shared, TenantSide,
};

/// Where the second ring begins, and how far the words of one lie apart.
const RING: u64 = (1 << 20) + 384;
const WORDS: u64 = 64;

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (these, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(these.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
}

struct Sides {
    memory: Shared,
    tenant: TenantSide,
    broker: BrokerSide,
    /// Where the broker has read to, as it must be.
    tail: u64,
    /// The ring was full, or said to be: one wait for room is enough.
    full: bool,
}

impl Sides {
    fn new() -> Sides {
        let memory = Shared::create(CHANNEL_BYTES).unwrap();
        let again = || {
            let file = memory.file().unwrap().try_clone_to_owned().unwrap();
            Shared::adopt(file, CHANNEL_BYTES).unwrap()
        };
        let (tenant, broker) = (TenantSide::new(again()), BrokerSide::new(again()));
        Sides {
            memory,
            tenant,
            broker,
            tail: 0,
            full: false,
        }
    }

    fn send(&mut self, bytes: usize, slot: u32) {
        if !self.full {
            let mut frame = Vec::new();
            TenantSide::frame(&mut frame);
            frame.resize(frame.len() + bytes, 7);
            self.full = !self.tenant.send(slot, 1, 0, &mut frame, || false);
        }
    }

    /// Whether the broker would find something: it sleeps where there is nothing.
    fn has_call(&self) -> bool {
        let head = self.memory.read(0, 8).unwrap();
        u64::from_le_bytes(head.try_into().unwrap()) != self.tail
    }
}

fn steps(script: &mut Script<'_>) -> Option<()> {
    let mut sides = Sides::new();
    let mut calls = sides.broker.ear();
    let mut payload = Vec::new();
    loop {
        match script.number(1)? % 9 {
            0 => {
                let place = script.number(3)? * 4 % CHANNEL_BYTES as u64;
                sides.memory.write(place, &script.number(4)?.to_le_bytes()[..4]);
            }
            step @ (1 | 2) => {
                let place = (step - 1) * RING + script.number(1)? % 8 * WORDS;
                sides.memory.write(place, &script.number(8)?.to_le_bytes());
            }
            // A position near one that is true.
            3 => {
                let ahead = script.number(2)?;
                sides.memory.write(0, &sides.tail.wrapping_add(ahead).to_le_bytes());
            }
            4 => {
                let (bytes, slot) = (script.number(2)?, script.number(1)?);
                sides.send(bytes as usize, if slot < 128 { slot as u32 } else { NO_SLOT });
            }
            5 if sides.has_call() => {
                let frame = calls.next(&mut payload).ok()?.expect("a frame was there");
                sides.tail += (16 + payload.len() as u64).next_multiple_of(8);
                assert!(payload.len() <= FRAME_MOST);
                let _ = Request::decode(&payload);
                sides.broker.answer(frame, 0, &payload);
            }
            6 => {
                let token = script.number(1)?;
                sides.broker.tell(&Notice::Event { token, status: 0 });
                sides.broker.tell(&Notice::Text(payload.clone()));
            }
            7 => match sides.tenant.notice() {
                Ok(Some(Notice::Text(text))) => assert!(text.len() <= FRAME_MOST),
                Ok(_) => {}
                Err(_) => return None,
            },
            8 => {
                let slot = script.number(1)? as u32 % SLOTS;
                assert!(sides.tenant.reply(slot).1.len() <= REPLY_MOST);
            }
            _ => {}
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    steps(&mut Script(bytes));
});
