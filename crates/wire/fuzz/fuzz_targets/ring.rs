//! The memory of a channel holds any bytes: reading calls from it, and answering them, stays within it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_wire::{BrokerSide, CHANNEL_BYTES, FRAME_MOST, Notice, Request, Shared};

fuzz_target!(|bytes: &[u8]| {
    let shared = Shared::create(CHANNEL_BYTES).unwrap();
    shared.write(0, &bytes[..bytes.len().min(CHANNEL_BYTES)]);
    let broker = BrokerSide::new(shared);
    let mut calls = broker.ear();
    let mut payload = Vec::new();
    // An empty ring is slept on; the input says whether there is anything.
    let head = bytes.get(..8).map_or(0, |head| u64::from_le_bytes(head.try_into().unwrap()));
    let mut left = head;
    while left > 0 {
        match calls.next(&mut payload) {
            Ok(Some(frame)) => {
                assert!(payload.len() <= FRAME_MOST);
                let _ = Request::decode(&payload);
                broker.answer(frame, 0, &payload[..payload.len().min(100)]);
                broker.tell(&Notice::Event { token: 1, status: 0 });
                left = left.saturating_sub((16 + payload.len() as u64).next_multiple_of(8));
            }
            _ => break,
        }
    }
});
