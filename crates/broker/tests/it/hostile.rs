//! A tenant that speaks to its worker without our library: malformed, out of bounds, and with its hands in the shared
//! memory. The worst it does is end its own connection.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tenure_wire::{
    Argument, CHANNEL_BYTES, Greeting, Id, NO_SLOT, Order, Request, Shared, Socket, Span, Subject,
    TenantSide, Wanted,
};

use crate::bench::{Bench, Served, Vendor, count, eventually, spec, turn};

/// The same numbers for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// A connection made by hand.
struct Raw {
    socket: Socket,
    side: TenantSide,
    /// The channel's memory once more, to write into.
    memory: Shared,
    bulk: Option<Shared>,
}

impl Raw {
    fn connect(served: &Served) -> Raw {
        let socket = Socket::connect(&served.socket).unwrap();
        let shared = Greeting::ask(&socket).unwrap();
        let again = shared.file().unwrap().try_clone_to_owned().unwrap();
        let memory = Shared::adopt(again, CHANNEL_BYTES).unwrap();
        Raw {
            socket,
            side: TenantSide::new(shared),
            memory,
            bulk: None,
        }
    }

    fn is_open(&self) -> bool {
        self.socket.is_open()
    }

    fn send_bytes(&self, slot: u32, sequence: u32, flags: u32, payload: &[u8]) -> bool {
        let mut frame = Vec::new();
        TenantSide::frame(&mut frame);
        frame.extend_from_slice(payload);
        self.side
            .send(slot, sequence, flags, &mut frame, || self.is_open())
    }

    fn post(&self, request: &Request) -> bool {
        let mut payload = Vec::new();
        request.encode(&mut payload);
        self.send_bytes(NO_SLOT, 0, 0, &payload)
    }

    /// The status and reply of a call; none if the connection ended.
    fn call(&self, request: &Request) -> Option<(i32, Vec<u8>)> {
        let mut payload = Vec::new();
        request.encode(&mut payload);
        let sequence = self.side.sequence();
        let begun = Instant::now();
        // A driver's compiler takes its time, and under a sanitizer much of it.
        let patience = Duration::from_secs(count("TENURE_PATIENCE_S", 20));
        let alive = || self.is_open() && begun.elapsed() < patience;
        if !self.send_bytes(0, sequence, 0, &payload) || !self.side.await_reply(0, sequence, true, alive) {
            assert!(begun.elapsed() < patience, "no answer: {request:?}");
            return None;
        }
        Some(self.side.reply(0))
    }

    /// A region of bulk memory under number one.
    fn with_bulk(mut self, bytes: u64) -> Raw {
        self.bulk = Wanted { region: 1, bytes }.ask(&self.socket).unwrap();
        assert!(self.bulk.is_some());
        self
    }
}

fn id(place: u32) -> Id {
    Id { place, generation: 1 }
}

fn order(event: Id) -> Order {
    Order {
        queue: id(1),
        event,
        waits: Vec::new(),
    }
}

fn span(at: u64, bytes: u64) -> Span {
    Span { region: 1, at, bytes }
}

/// One byte and only where there is a buffer: no mutation of a call makes this kernel a weapon.
const KERNEL: &[u8] = b"__kernel void f(__global char *a, uint n) { if (a) a[0] = n; }";

/// A session that our library could have had; all of it succeeds.
fn session() -> Vec<Request> {
    let name = || CString::new("f").unwrap();
    let picture = [0x10F1, 8, 8, 0, 0, 0, 0, 0, 0];
    vec![
        Request::Context {
            id: id(0),
            devices: vec![0],
        },
        Request::Queue {
            id: id(1),
            context: id(0),
            device: 0,
            properties: 0,
            extra: vec![],
        },
        Request::Buffer {
            id: id(2),
            context: id(0),
            flags: 1,
            bytes: 4096,
            from: None,
        },
        Request::Buffer {
            id: id(3),
            context: id(0),
            flags: 1,
            bytes: 4096,
            from: Some(span(0, 4096)),
        },
        Request::Source {
            id: id(4),
            context: id(0),
            text: span(8192, KERNEL.len() as u64),
        },
        Request::Build {
            program: id(4),
            devices: vec![],
            options: CString::default(),
        },
        Request::Kernel {
            id: id(5),
            program: id(4),
            name: name(),
        },
        Request::Argue {
            kernel: id(5),
            place: 0,
            value: Argument::Memory(id(2)),
        },
        Request::Argue {
            kernel: id(5),
            place: 1,
            value: Argument::Bytes(vec![1, 0, 0, 0]),
        },
        Request::Launch {
            order: order(id(6)),
            kernel: id(5),
            sides: 1,
            offset: None,
            global: [16, 1, 1],
            local: Some([4, 1, 1]),
        },
        Request::Wait { events: vec![id(6)] },
        Request::Part {
            id: id(7),
            buffer: id(2),
            flags: 1,
            at: 1024,
            bytes: 512,
        },
        Request::Image {
            id: id(8),
            context: id(0),
            flags: 1,
            order: 0x10B5,
            channel: 0x10D2,
            shape: picture,
            of: Id::NONE,
            from: Some(span(0, 256)),
        },
        Request::Sampler {
            id: id(9),
            context: id(0),
            normalized: 0,
            addressing: 0x1132,
            filter: 0x1140,
        },
        Request::Read {
            order: order(Id::NONE),
            buffer: id(2),
            at: 8,
            to: span(100, 64),
        },
        Request::Write {
            order: order(Id::NONE),
            buffer: id(2),
            at: 8,
            from: span(100, 64),
        },
        Request::ReadRect {
            order: order(Id::NONE),
            buffer: id(2),
            origin: [4, 1, 0],
            region: [16, 2, 2],
            row: 32,
            slice: 128,
            to: span(0, 64),
        },
        Request::WriteRect {
            order: order(Id::NONE),
            buffer: id(2),
            origin: [4, 1, 0],
            region: [16, 2, 2],
            row: 32,
            slice: 128,
            from: span(0, 64),
        },
        Request::Copy {
            order: order(Id::NONE),
            from: id(2),
            to: id(3),
            from_at: 0,
            to_at: 8,
            bytes: 64,
        },
        Request::CopyRect {
            order: order(Id::NONE),
            from: id(2),
            to: id(3),
            from_at: [0; 3],
            to_at: [0; 3],
            region: [8, 2, 2],
            pitches: [16, 64, 16, 64],
        },
        Request::Fill {
            order: order(Id::NONE),
            buffer: id(3),
            pattern: vec![1, 2, 3, 4],
            at: 16,
            bytes: 64,
        },
        Request::ReadImage {
            order: order(Id::NONE),
            image: id(8),
            origin: [0; 3],
            region: [4, 4, 1],
            to: span(0, 64),
        },
        Request::WriteImage {
            order: order(Id::NONE),
            image: id(8),
            origin: [0; 3],
            region: [4, 4, 1],
            from: span(0, 64),
        },
        Request::FillImage {
            order: order(Id::NONE),
            image: id(8),
            color: vec![0; 16],
            origin: [0; 3],
            region: [4, 4, 1],
        },
        Request::ImageToBuffer {
            order: order(Id::NONE),
            from: id(8),
            to: id(3),
            origin: [0; 3],
            region: [4, 4, 1],
            at: 64,
        },
        Request::BufferToImage {
            order: order(Id::NONE),
            from: id(3),
            to: id(8),
            at: 64,
            origin: [0; 3],
            region: [4, 4, 1],
        },
        Request::Migrate {
            order: order(Id::NONE),
            objects: vec![id(2)],
            flags: 0,
        },
        Request::Marker { order: order(id(10)) },
        Request::Barrier {
            order: order(Id::NONE),
        },
        Request::UserEvent {
            id: id(11),
            context: id(0),
        },
        Request::SetUserEvent {
            event: id(11),
            status: 0,
        },
        Request::Ended {
            events: vec![id(6), id(10), id(11)],
        },
        Request::Notify {
            event: id(10),
            status: 0,
            token: 7,
        },
        Request::Ask {
            subject: Subject::Device,
            object: Id::NONE,
            device: 0,
            index: 0,
            param: 0x102B,
            input: vec![],
            into: None,
        },
        Request::Ask {
            subject: Subject::Build,
            object: id(4),
            device: 0,
            index: 0,
            param: 0x1183,
            input: vec![],
            into: Some(span(0, 4096)),
        },
        Request::Formats {
            context: id(0),
            flags: 1,
            kind: 0x10F1,
        },
        Request::Finish { queue: id(1) },
        Request::CloneKernel {
            id: id(12),
            kernel: id(5),
        },
        Request::Release { id: id(12) },
        Request::Flush { queue: id(1) },
    ]
}

fn begin(served: &Served) -> Raw {
    let raw = Raw::connect(served).with_bulk(1 << 20);
    raw.bulk.as_ref().unwrap().write(8192, KERNEL);
    raw
}

/// Whether an honest program is served well.
fn is_served(served: &Served) {
    let raw = begin(served);
    for request in session() {
        let answer = raw.call(&request);
        assert_eq!(answer.as_ref().map(|answer| answer.0), Some(0), "{request:?}");
    }
    let read = Request::Read {
        order: order(Id::NONE),
        buffer: id(2),
        at: 0,
        to: span(0, 1),
    };
    assert_eq!(raw.call(&read).unwrap().0, 0);
    assert_eq!(raw.bulk.as_ref().unwrap().read(0, 1).unwrap(), [1]);
}

/// Numbers that are wrong in interesting ways.
fn odd(chance: &mut Chance) -> u64 {
    const ODD: [u64; 14] = [
        0,
        1,
        7,
        4095,
        4096,
        4097,
        1 << 20,
        u32::MAX as u64,
        1 << 32,
        1 << 47,
        i64::MAX as u64,
        u64::MAX - 7,
        u64::MAX - 1,
        u64::MAX,
    ];
    ODD[chance.below(ODD.len() as u64) as usize]
}

/// Changes a call's bytes; a launch keeps its size, since a kernel may run for as long as it likes.
fn mutate(chance: &mut Chance, request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    let end = match request {
        Request::Launch { .. } => bytes.len() - 60,
        _ => bytes.len(),
    } as u64;
    for _ in 0..=chance.below(3) {
        let place = (2 + chance.below(end.saturating_sub(2).max(1))) as usize;
        match chance.below(4) {
            0 if place < bytes.len() => bytes[place] = chance.next() as u8,
            1 if place < bytes.len() => bytes[place] ^= 1 << chance.below(8),
            2 if place + 8 <= (end as usize).min(bytes.len()) => {
                bytes[place..place + 8].copy_from_slice(&odd(chance).to_le_bytes());
            }
            _ if !matches!(request, Request::Launch { .. }) => {
                bytes.truncate(bytes.len() - (chance.below(8) as usize).min(bytes.len()));
                bytes.extend((0..chance.below(8)).map(|_| chance.next() as u8));
            }
            _ => {}
        }
    }
    bytes
}

#[test]
fn malformed_calls_end_their_own_connection_at_most() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let mut served = bench.serve(1);
    let steady = begin(&served);
    assert_eq!(steady.call(&session()[0]).unwrap().0, 0);
    let rounds = count("TENURE_FUZZ_ROUNDS", 100);
    let (mut sent, mut ended) = (0u64, 0u64);
    for seed in 1..=rounds {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let raw = begin(&served);
        for request in session() {
            let slow = matches!(request, Request::Build { .. } | Request::Source { .. });
            if chance.below(4) == 0 && !slow {
                // Mostly calls that decode: what does not is the end, and only the first such call is seen.
                let mut bytes = mutate(&mut chance, &request);
                while Request::decode(&bytes).is_err() && chance.below(50) != 0 {
                    bytes = mutate(&mut chance, &request);
                }
                raw.send_bytes(
                    chance.below(66) as u32,
                    chance.next() as u32,
                    chance.below(2) as u32,
                    &bytes,
                );
                sent += 1;
                if chance.below(4) != 0 {
                    continue;
                }
            }
            if chance.below(2) == 0 {
                raw.post(&request);
            } else if raw.call(&request).is_none() {
                ended += 1;
                break;
            }
        }
        if seed % 25 == 0 {
            assert!(served.is_running(), "the worker died at seed {seed}");
            is_served(&served);
        }
    }
    // Bytes of no call at all.
    for seed in 1..=rounds {
        let mut chance = Chance(seed.wrapping_mul(0xD134_2543_DE82_EF95) | 1);
        let raw = Raw::connect(&served);
        let bytes: Vec<u8> = (0..chance.below(300)).map(|_| chance.next() as u8).collect();
        raw.send_bytes(
            chance.next() as u32,
            chance.next() as u32,
            chance.next() as u32,
            &bytes,
        );
        raw.send_bytes(0, 1, 0, &chance.next().to_le_bytes());
    }
    assert!(served.is_running());
    is_served(&served);
    let finish = Request::Ask {
        subject: Subject::Device,
        object: Id::NONE,
        device: 0,
        index: 0,
        param: 0x1000,
        input: vec![],
        into: None,
    };
    assert_eq!(steady.call(&finish).unwrap().0, 0, "the steady connection lives");
    println!("{sent} malformed calls in {rounds} sessions, {ended} of them ended");
    assert!(ended > 0, "no mutation was ever noticed");
    eventually("all is given back", Duration::from_secs(20), || {
        bench.reading(1).used_bytes == 0
    });
}

#[test]
fn numbers_out_of_bounds_are_refused_with_a_code() {
    out_of_bounds(Vendor::Pocl);
}

/// Its driver checks less.
#[test]
fn numbers_out_of_bounds_are_refused_with_a_code_on_intel() {
    out_of_bounds(Vendor::Intel);
}

#[test]
fn numbers_out_of_bounds_are_refused_with_a_code_on_rusticl() {
    out_of_bounds(Vendor::Rusticl);
}

fn out_of_bounds(vendor: Vendor) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 256)]);
    let served = bench.serve(1);
    let raw = begin(&served);
    for request in session() {
        assert_eq!(raw.call(&request).unwrap().0, 0, "{request:?}");
    }
    let refused = |request: Request| {
        let (code, _) = raw.call(&request).expect("the connection stays");
        assert!(code < 0, "{request:?} was accepted");
    };
    let none = || order(Id::NONE);
    let far = u64::MAX - 3;
    for (at, bytes) in [(4096, 1), (4090, 8), (far, 8), (0, 4097), (0, 0), (8, u64::MAX)] {
        refused(Request::Read {
            order: none(),
            buffer: id(2),
            at,
            to: span(0, bytes),
        });
        refused(Request::Write {
            order: none(),
            buffer: id(2),
            at,
            from: span(0, bytes),
        });
        refused(Request::Copy {
            order: none(),
            from: id(2),
            to: id(3),
            from_at: at,
            to_at: 0,
            bytes,
        });
        refused(Request::Copy {
            order: none(),
            from: id(3),
            to: id(2),
            from_at: 0,
            to_at: at,
            bytes,
        });
        refused(Request::Fill {
            order: none(),
            buffer: id(2),
            pattern: vec![0],
            at,
            bytes,
        });
        refused(Request::Part {
            id: id(50),
            buffer: id(2),
            flags: 1,
            at,
            bytes,
        });
    }
    // Spans outside their region, and regions that are none.
    for to in [
        span(1 << 20, 8),
        span(far, 8),
        Span {
            region: 9,
            at: 0,
            bytes: 8,
        },
    ] {
        refused(Request::Read {
            order: none(),
            buffer: id(2),
            at: 0,
            to,
        });
        refused(Request::Source {
            id: id(50),
            context: id(0),
            text: to,
        });
    }
    refused(Request::Source {
        id: id(50),
        context: id(0),
        text: span(0, 17 << 20),
    });
    // Blocks and regions that reach outside, or say another size than they have.
    for (origin, region, row) in [
        ([0, 0, 63], [16, 2, 2], 32),
        ([4090, 0, 0], [16, 1, 1], 0),
        ([0; 3], [16, 2, 1], 8),
        ([0; 3], [0, 1, 1], 0),
        ([far, 0, 0], [8, 1, 1], 0),
        ([0, far, 0], [8, 1, 1], far),
    ] {
        let bytes = region.iter().product();
        refused(Request::ReadRect {
            order: none(),
            buffer: id(2),
            origin,
            region,
            row,
            slice: 0,
            to: span(0, bytes),
        });
    }
    refused(Request::ReadRect {
        order: none(),
        buffer: id(2),
        origin: [0; 3],
        region: [16, 2, 2],
        row: 0,
        slice: 0,
        to: span(0, 63),
    });
    refused(Request::ReadImage {
        order: none(),
        image: id(8),
        origin: [5, 0, 0],
        region: [4, 4, 1],
        to: span(0, 64),
    });
    refused(Request::ReadImage {
        order: none(),
        image: id(8),
        origin: [0; 3],
        region: [4, 4, 1],
        to: span(0, 60),
    });
    refused(Request::WriteImage {
        order: none(),
        image: id(8),
        origin: [0, 0, 1],
        region: [4, 4, 1],
        from: span(0, 64),
    });
    refused(Request::ImageToBuffer {
        order: none(),
        from: id(8),
        to: id(3),
        origin: [0; 3],
        region: [8, 8, 1],
        at: 4000,
    });
    // Objects of another kind, of another generation, and none.
    let other = Id {
        place: 2,
        generation: 2,
    };
    for wrong in [
        id(0),
        id(5),
        id(40),
        other,
        Id::NONE,
        Id {
            place: u32::MAX - 1,
            generation: 0,
        },
    ] {
        refused(Request::Read {
            order: none(),
            buffer: wrong,
            at: 0,
            to: span(0, 8),
        });
        refused(Request::Argue {
            kernel: wrong,
            place: 9,
            value: Argument::Local(8),
        });
        refused(Request::Wait { events: vec![wrong] });
    }
    // A number where the kernel takes memory would be an address of the worker's.
    refused(Request::Argue {
        kernel: id(5),
        place: 0,
        value: Argument::Bytes(0x7f00_0000_1000u64.to_le_bytes().to_vec()),
    });
    refused(Request::Argue {
        kernel: id(5),
        place: 0,
        value: Argument::Sampler(id(9)),
    });
    refused(Request::Argue {
        kernel: id(5),
        place: 0,
        value: Argument::Memory(id(8)),
    });
    refused(Request::Argue {
        kernel: id(5),
        place: 1,
        value: Argument::Memory(id(2)),
    });
    // Answers that would be handles of the worker's.
    for (subject, object, param) in [
        (Subject::Device, Id::NONE, 0x1031),
        (Subject::Device, Id::NONE, 0x1042),
        (Subject::Image, id(8), 0x1118),
        (Subject::Memory, id(2), 0x1103),
        (Subject::Memory, id(2), 0x1106),
        (Subject::Queue, id(1), 0x1090),
        (Subject::Program, id(4), 0x1161),
        (Subject::Program, id(4), 0x1166),
        (Subject::Kernel, id(5), 0x1194),
        (Subject::Event, id(6), 0x11D0),
    ] {
        refused(Request::Ask {
            subject,
            object,
            device: 0,
            index: 0,
            param,
            input: vec![],
            into: None,
        });
    }
    assert!(raw.is_open());
    // More bulk memory than the worker gives, and a place beyond its table.
    let more = Wanted {
        region: 2,
        bytes: 1 << 50,
    };
    assert!(more.ask(&raw.socket).unwrap().is_none());
    let beyond = Request::UserEvent {
        id: id(u32::MAX - 7),
        context: id(0),
    };
    assert_eq!(raw.call(&beyond), None, "the connection ends");
    // Bytes that are no call end theirs, too.
    let raw = Raw::connect(&served);
    raw.send_bytes(0, 1, 0, &[1, 0, 0]);
    eventually("the connection ends", Duration::from_secs(5), || !raw.is_open());
    is_served(&served);
}

#[test]
fn hands_in_the_ring_hurt_nobody_else() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let mut served = bench.serve(1);
    let rounds = count("TENURE_TAMPER_ROUNDS", 60);
    let ended = AtomicU32::new(0);
    for seed in 1..=rounds {
        let raw = begin(&served);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                while !stop.load(SeqCst) {
                    // Half of the writes go to the positions and bells, the others anywhere.
                    let place = match chance.below(2) {
                        0 => chance.below(96) * 4,
                        _ => chance.below(CHANNEL_BYTES as u64 / 4) * 4,
                    };
                    let word = match chance.below(3) {
                        0 => chance.next() as u32,
                        1 => odd(&mut chance) as u32,
                        _ => chance.below(4096) as u32 * 8,
                    };
                    raw.memory.write(place, &word.to_le_bytes());
                    if chance.below(64) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let begun = Instant::now();
            while raw.is_open() && begun.elapsed() < Duration::from_millis(80) {
                for request in session()
                    .iter()
                    .filter(|request| !matches!(request, Request::Launch { .. }))
                {
                    let mut payload = Vec::new();
                    request.encode(&mut payload);
                    let patient = Instant::now();
                    let mut frame = Vec::new();
                    TenantSide::frame(&mut frame);
                    frame.extend_from_slice(&payload);
                    raw.side.send(0, raw.side.sequence(), 0, &mut frame, || {
                        raw.is_open() && patient.elapsed() < Duration::from_millis(20)
                    });
                }
            }
            stop.store(true, SeqCst);
        });
        ended.fetch_add(u32::from(!raw.is_open()), SeqCst);
        assert!(served.is_running(), "the worker died at seed {seed}");
        if seed % 10 == 0 {
            is_served(&served);
        }
    }
    println!(
        "{rounds} connections tampered with, {} of them ended by the worker",
        ended.load(SeqCst)
    );
    is_served(&served);
    let before = Instant::now();
    eventually("all is given back", Duration::from_secs(20), || {
        bench.reading(1).used_bytes == 0
    });
    println!(
        "all given back after {:?}; threads and KiB now {:?}",
        before.elapsed(),
        served.weight()
    );
    eventually("threads end", Duration::from_secs(20), || served.weight().0 < 40);
}

/// A region or a queue given up, or the connection ended, while commands use them.
#[test]
fn memory_stays_while_a_command_may_touch_it() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let mut served = bench.serve(1);
    let bytes = 32 << 20;
    for round in 0..count("TENURE_PULL_ROUNDS", 30) {
        eventually("there is room", Duration::from_secs(20), || {
            bench.reading(1).used_bytes < 128 << 20
        });
        let mut raw = Raw::connect(&served);
        let wanted = Wanted { region: 1, bytes };
        raw.bulk = wanted.ask(&raw.socket).unwrap();
        for request in session().into_iter().take(2) {
            assert_eq!(raw.call(&request).unwrap().0, 0);
        }
        let buffer = Request::Buffer {
            id: id(2),
            context: id(0),
            flags: 1,
            bytes,
            from: None,
        };
        assert_eq!(raw.call(&buffer).unwrap().0, 0);
        for _ in 0..3 {
            let none = || order(Id::NONE);
            raw.post(&Request::Write {
                order: none(),
                buffer: id(2),
                at: 0,
                from: span(0, bytes),
            });
            raw.post(&Request::Read {
                order: none(),
                buffer: id(2),
                at: 0,
                to: span(0, bytes),
            });
        }
        match round % 3 {
            0 => Wanted::give_back(1, &raw.socket).unwrap(),
            1 => {
                raw.post(&Request::Release { id: id(1) });
            }
            _ => {}
        }
        drop(raw);
        assert!(served.is_running(), "the worker died in round {round}");
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(served.is_running());
    is_served(&served);
    eventually("all is given back", Duration::from_secs(20), || {
        bench.reading(1).used_bytes == 0
    });
}

/// A tenant that says nobody else calls, and waits for what only it could do.
#[test]
fn a_wait_without_end_is_its_own_connections() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let served = bench.serve(1);
    let raw = begin(&served);
    for request in session().into_iter().take(3) {
        assert_eq!(raw.call(&request).unwrap().0, 0);
    }
    assert_eq!(
        raw.call(&Request::UserEvent {
            id: id(11),
            context: id(0)
        })
        .unwrap()
        .0,
        0
    );
    let waiting = Order {
        queue: id(1),
        event: id(12),
        waits: vec![id(11)],
    };
    assert_eq!(raw.call(&Request::Marker { order: waiting }).unwrap().0, 0);
    for (slot, request) in [
        (1, Request::Finish { queue: id(1) }),
        (2, Request::Wait { events: vec![id(12)] }),
    ] {
        let mut payload = Vec::new();
        request.encode(&mut payload);
        raw.send_bytes(slot, 77, tenure_wire::Frame::ALONE, &payload);
    }
    // Its other calls go on, and so does everybody.
    assert_eq!(raw.call(&Request::Flush { queue: id(1) }).unwrap().0, 0);
    is_served(&served);
    let begun = Instant::now();
    assert!(served.say("suspend").contains("may wait for the program"));
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(raw);
    eventually("it is put away", Duration::from_secs(10), || {
        bench.reading(1).used_bytes == 0
    });
    eventually("it can be set aside", Duration::from_secs(10), || {
        served.say("suspend").starts_with("ok")
    });
}
