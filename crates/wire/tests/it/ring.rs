//! A channel in one process: order, wrapping, waiting, and positions that lie.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tenure_wire::{BrokerSide, CHANNEL_BYTES, FRAME_MOST, NO_SLOT, Notice, Shared, TenantSide};

/// Both ends of a channel, and its memory once more.
fn channel() -> (TenantSide, BrokerSide, Shared) {
    let one = Shared::create(CHANNEL_BYTES).unwrap();
    let again = || {
        let file = one.file().unwrap().try_clone_to_owned().unwrap();
        Shared::adopt(file, CHANNEL_BYTES).unwrap()
    };
    let (two, three) = (again(), again());
    (TenantSide::new(one), BrokerSide::new(two), three)
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    TenantSide::frame(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

#[test]
fn a_hundred_thousand_frames_come_in_order_and_whole() {
    let (tenant, broker, _) = channel();
    let mut calls = broker.ear();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..100_000u32 {
                let payload: Vec<u8> = (0..n % 700).map(|place| (place ^ n) as u8).collect();
                assert!(tenant.send(NO_SLOT, n, 0, &mut frame(&payload), || true));
            }
        });
        let mut payload = Vec::new();
        for n in 0..100_000u32 {
            let head = loop {
                if let Some(head) = calls.next(&mut payload).unwrap() {
                    break head;
                }
            };
            assert_eq!(head.sequence, n);
            assert_eq!(payload.len() as u32, n % 700);
            assert!(
                payload
                    .iter()
                    .zip(0..)
                    .all(|(byte, place)| *byte == (place ^ n) as u8)
            );
        }
    });
}

#[test]
fn replies_find_their_slots_and_notices_their_reader() {
    let (tenant, broker, _) = channel();
    let mut calls = broker.ear();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut payload = Vec::new();
            for _ in 0..4000 {
                let head = loop {
                    if let Some(head) = calls.next(&mut payload).unwrap() {
                        break head;
                    }
                };
                broker.answer(head, -7, &payload);
            }
        });
        for slot in 0..4u32 {
            let tenant = &tenant;
            scope.spawn(move || {
                for n in 0..1000u32 {
                    let sequence = tenant.sequence();
                    let said = [n.to_le_bytes(), slot.to_le_bytes()].concat();
                    assert!(tenant.send(slot, sequence, 0, &mut frame(&said), || true));
                    assert!(tenant.await_reply(slot, sequence, true, || true));
                    assert_eq!(tenant.reply(slot), (-7, said));
                }
            });
        }
    });
    let notice = Notice::Event { token: 9, status: -3 };
    assert!(broker.tell(&notice) && broker.tell(&Notice::Text(b"hello".to_vec())));
    assert_eq!(tenant.notice().unwrap(), Some(notice));
    assert_eq!(tenant.notice().unwrap(), Some(Notice::Text(b"hello".to_vec())));
    assert_eq!(tenant.notice().unwrap(), None);
    // A tenant that never listens holds up nobody.
    let text = Notice::Text(vec![0; 60_000]);
    let told = (0..100).filter(|_| broker.tell(&text)).count();
    assert!((10..100).contains(&told), "{told}");
}

#[test]
fn a_full_ring_and_a_silent_broker_end_by_the_callers_patience() {
    let (tenant, _broker, _) = channel();
    let begun = Instant::now();
    let alive = || begun.elapsed() < Duration::from_millis(200);
    let mut sent = 0;
    while tenant.send(NO_SLOT, 0, 0, &mut frame(&[0; 1000]), alive) {
        sent += 1;
    }
    assert!(sent > 500 && begun.elapsed() < Duration::from_secs(2));
    assert!(!tenant.send(NO_SLOT, 0, 0, &mut frame(&vec![0; FRAME_MOST + 1]), || true));
    assert!(!tenant.await_reply(0, 1, true, alive));
}

/// Random words written everywhere while frames are read: each read is a frame or the end, and none goes outside.
#[test]
fn hands_in_the_memory_never_lead_the_reader_astray() {
    for seed in 1..=200u64 {
        let (tenant, broker, memory) = channel();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                while !stop.load(SeqCst) {
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    let place = if x & 1 == 0 {
                        x % 112 * 4
                    } else {
                        x % (CHANNEL_BYTES as u64 / 4) * 4
                    };
                    memory.write(place, &(x as u32).to_le_bytes());
                }
            });
            scope.spawn(|| {
                let mut calls = broker.ear();
                let mut payload = Vec::new();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(4) {
                    match calls.next(&mut payload) {
                        Ok(Some(frame)) => {
                            assert!(payload.len() <= FRAME_MOST);
                            broker.answer(frame, 0, &payload[..payload.len().min(64)]);
                            broker.tell(&Notice::Event { token: 1, status: 0 });
                        }
                        Ok(None) => {}
                        Err(_) => break,
                    }
                }
                stop.store(true, SeqCst);
            });
            while !stop.load(SeqCst) {
                tenant.send(3, 1, 0, &mut frame(&[7; 40]), || !stop.load(SeqCst));
                // Wakes the reader, whose bell may have been written over.
                broker.rouse();
            }
        });
    }
}

/// What a position or a length claims beyond the ring is the end, not something to look for.
#[test]
fn claims_beyond_the_ring_are_refused() {
    let ring = 1u64 << 20;
    for head in [ring + 8, u64::MAX - 7, 4, 12, 8] {
        let (_tenant, broker, memory) = channel();
        memory.write(0, &head.to_le_bytes());
        assert!(broker.ear().next(&mut Vec::new()).is_err(), "a head of {head}");
    }
    for length in [9u32, 17, 1000, FRAME_MOST as u32 + 1, u32::MAX] {
        let (tenant, broker, memory) = channel();
        assert!(tenant.send(NO_SLOT, 0, 0, &mut frame(&[0; 8]), || true));
        // The first frame's length stands where the ring's data begins.
        memory.write(384, &length.to_le_bytes());
        assert!(
            broker.ear().next(&mut Vec::new()).is_err(),
            "a length of {length}"
        );
    }
}
