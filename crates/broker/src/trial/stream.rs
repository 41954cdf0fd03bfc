//! Any bytes as a tenant's stream: calls with fields drawn from the bytes, raw frames, bulk memory asked for and let go,
//! and the agent setting the slice aside in between.
//!
//! Objects of a kind have places of their own, so that a drawn id often names something; numbers are small, or of
//! those at which arithmetic goes wrong, or any.

use std::ffi::CString;

use tenure_wire::{Argument, Id, Order, Request, Span};

use super::{Outcome, Trial};

/// Places for contexts, queues, memory, samplers, programs, kernels, events; and any of them.
fn places(kind: char) -> (u32, u32) {
    match kind {
        'c' => (0, 3),
        'q' => (3, 3),
        'm' => (6, 8),
        's' => (14, 2),
        'p' => (16, 4),
        'k' => (20, 4),
        'e' => (24, 8),
        _ => (0, 32),
    }
}

/// The fields of each call, in order: ids by kind (`i`: any, `w`: memory or none), `u` and `U` numbers of 32 and 64 bits, `3` and `4` lists
/// of so many, `D` devices, `S` a span, `B` bytes, `T` text, `O` an order; `?` before what may be absent, `*` before
/// what is a list; and a few of one use.
const CALLS: [(u16, &str); 48] = [
    (1, ""),
    (2, "RiduPB?S"),
    (3, "i"),
    (4, "cUu"),
    (10, "cD"),
    (11, "qcdF*U"),
    (12, "mcUU?S"),
    (13, "mmUUU"),
    (14, "mcUXGw?S"),
    (15, "scLAI"),
    (20, "pcS"),
    (21, "pcD*S"),
    (22, "pcS"),
    (23, "pcDT"),
    (24, "pDT"),
    (25, "pDT*p*T"),
    (26, "pcDT*p"),
    (27, "puB"),
    (28, "puS"),
    (30, "kpT"),
    (31, "p*k"),
    (32, "kk"),
    (33, "kuV"),
    (40, "ec"),
    (41, "eN"),
    (42, "*e"),
    (43, "*e"),
    (44, "euU"),
    (50, "q"),
    (51, "q"),
    (52, "Oku?33?3"),
    (53, "OmUS"),
    (54, "OmUS"),
    (55, "Om33UUS"),
    (56, "Om33UUS"),
    (57, "OmmUUU"),
    (58, "Omm3334"),
    (59, "OmBUU"),
    (60, "Om33S"),
    (61, "Om33S"),
    (62, "Omm333"),
    (63, "Omm33U"),
    (64, "OmmU33"),
    (65, "OmW33"),
    (66, "O*mU"),
    (67, "O"),
    (68, "O"),
    (69, "d"),
];

const NUMBERS: [u64; 16] = [
    256,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    1 << 16,
    u32::MAX as u64,
    1 << 32,
    1 << 46,
    u64::MAX / 2,
    1 << 63,
    u64::MAX - 511,
    u64::MAX - 1,
    u64::MAX,
];

/// Names of kernels say what they take; see the double.
const TEXTS: [&[u8]; 8] = [b"", b"b", b"bv", b"bbl", b"is", b"u", b"-fail", b"-D A=1"];
const ORDERS: [u32; 4] = [0x10B0, 0x10B2, 0x10B5, 0x10B4];
const CHANNELS: [u32; 4] = [0x10D2, 0x10D3, 0x10DE, 0x10D4];
const PARAMS: [u32; 12] = [
    0x0900, 0x1002, 0x1110, 0x1165, 0x1183, 0x1190, 0x1196, 0x11B0, 0x2033, 0x11D3, 0x1280, 0x1031,
];

/// Draws values from bytes; zeros when they are used up.
pub struct Draw<'a>(&'a [u8]);

impl<'a> Draw<'a> {
    pub fn new(bytes: &'a [u8]) -> Draw<'a> {
        Draw(bytes)
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn some(&mut self, count: usize) -> &'a [u8] {
        let (these, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        these
    }

    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..160 => small.into(),
            known @ 160..240 => NUMBERS[usize::from(known) % NUMBERS.len()],
            _ => {
                let mut any = [0; 8];
                let some = self.some(8);
                any[..some.len()].copy_from_slice(some);
                u64::from_le_bytes(any)
            }
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn id(&mut self, kind: char, out: &mut Vec<u8>) {
        let (first, count) = places(kind);
        let (place, generation) = match self.byte() {
            some @ 0..192 => (first + u32::from(some) % count, 0),
            some @ 192..224 => (first + u32::from(some) % count, 1),
            some @ 224..248 => (u32::from(some) % 32, 0),
            248..252 => (u32::MAX, 0),
            _ => (self.number() as u32, self.number() as u32),
        };
        out.extend_from_slice(&place.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
    }

    fn list(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }

    fn span(&mut self) -> Span {
        Span {
            region: u32::from(self.byte()) % 4,
            at: self.number(),
            bytes: self.number(),
        }
    }

    fn field(&mut self, kind: char, out: &mut Vec<u8>) {
        let put32 = |out: &mut Vec<u8>, number: u32| out.extend_from_slice(&number.to_le_bytes());
        let put64 = |out: &mut Vec<u8>, number: u64| out.extend_from_slice(&number.to_le_bytes());
        match kind {
            'u' => put32(out, self.number() as u32),
            'U' => put64(out, self.number()),
            'd' => put32(out, u32::from(self.byte()) % 4),
            'F' => put64(out, u64::from(self.byte()) % 5),
            'N' => put32(out, self.byte() as i8 as u32),
            'P' => {
                let param = self.one_of(&PARAMS) + u32::from(self.byte()) % 8;
                put32(out, param);
            }
            'R' => out.extend_from_slice(&(u16::from(self.byte()) % 15).to_le_bytes()),
            'L' => put32(out, u32::from(self.byte()) % 3),
            'A' => put32(out, 0x1130 + u32::from(self.byte()) % 6),
            'I' => put32(out, 0x1140 + u32::from(self.byte()) % 3),
            'X' => {
                let (order, channel) = (self.one_of(&ORDERS), self.one_of(&CHANNELS));
                put32(out, order);
                put32(out, channel);
            }
            'G' => {
                put64(out, 0x10F0 + u64::from(self.byte()) % 8);
                (0..6).for_each(|_| self.field('U', out));
                let rest = u64::from(self.byte() == 255);
                (0..2).for_each(|_| put64(out, rest));
            }
            '3' => (0..3).for_each(|_| self.field('U', out)),
            '4' => (0..4).for_each(|_| self.field('U', out)),
            'D' => {
                let count = self.byte() % 3;
                put32(out, count.into());
                (0..count).for_each(|_| self.field('d', out));
            }
            'S' => {
                let span = self.span();
                put32(out, span.region);
                put64(out, span.at);
                put64(out, span.bytes);
            }
            'B' => {
                let length = [1, 2, 4, 8, 16, 7, 24, 0][usize::from(self.byte()) % 8];
                let bytes = self.some(length);
                self.list(bytes, out);
            }
            'W' => {
                let mut color = self.some(16).to_vec();
                color.resize(16, 0);
                self.list(&color, out);
            }
            'T' => {
                let text = match self.byte() {
                    some @ 0..240 => TEXTS[usize::from(some) % TEXTS.len()],
                    _ => self.some(6),
                };
                self.list(text, out);
            }
            'O' => {
                self.id('q', out);
                match self.byte() {
                    0..128 => self.field('-', out),
                    _ => self.id('e', out),
                }
                self.lists('e', out);
            }
            'w' => match self.byte() {
                0..128 => self.field('-', out),
                _ => self.id('m', out),
            },
            '-' => out.extend_from_slice(&[255, 255, 255, 255, 0, 0, 0, 0]),
            'V' => {
                let which = u16::from(self.byte()) % 4;
                out.extend_from_slice(&which.to_le_bytes());
                self.field(['B', 'U', 'm', 's'][usize::from(which)], out);
            }
            kind => self.id(kind, out),
        }
    }

    fn lists(&mut self, kind: char, out: &mut Vec<u8>) {
        let count = self.byte() % 4;
        out.extend_from_slice(&u32::from(count).to_le_bytes());
        (0..count).for_each(|_| self.field(kind, out));
    }

    /// A call of the given place in the list, encoded.
    pub fn call(&mut self, which: usize) -> Vec<u8> {
        let (number, fields) = CALLS[which % CALLS.len()];
        let mut out = number.to_le_bytes().to_vec();
        let mut fields = fields.chars();
        while let Some(kind) = fields.next() {
            match kind {
                '?' => {
                    let kind = fields.next().unwrap_or('U');
                    let there = self.byte() & 1;
                    out.push(there);
                    if there == 1 {
                        self.field(kind, &mut out);
                    }
                }
                '*' => {
                    let kind = fields.next().unwrap_or('U');
                    self.lists(kind, &mut out);
                }
                kind => self.field(kind, &mut out),
            }
        }
        out
    }
}

/// One encoded call of every kind.
pub fn each_call() -> impl Iterator<Item = Vec<u8>> {
    (0..CALLS.len()).map(|which| Draw::new(&[1, 0, 1, 2, 1, 1, 1, 1]).call(which))
}

const GRANT: u8 = 50;
const LET_GO: u8 = 52;
const SUSPEND: u8 = 53;
const WRITE: u8 = 54;
const REST: u8 = 55;
const FRAME: u8 = 56;
/// The most of one stream.
const STEPS_MOST: usize = 512;

/// The stream that gives these calls and has them answered, after asking for a region of a page.
pub fn of_calls(calls: &[Request]) -> Vec<u8> {
    let mut stream = vec![GRANT, 1, 165, WRITE, 1, 0, TEXT.len() as u8];
    stream.extend_from_slice(TEXT);
    for call in calls {
        let mut payload = Vec::new();
        call.encode(&mut payload);
        stream.extend_from_slice(&[FRAME, 1, payload.len() as u8]);
        stream.extend_from_slice(&payload);
        stream.push(REST);
    }
    stream
}

fn at(place: u32) -> Id {
    Id { place, generation: 0 }
}

fn order(event: Option<u32>, waits: &[u32]) -> Order {
    Order {
        queue: at(3),
        event: event.map_or(Id::NONE, at),
        waits: waits.iter().map(|place| at(*place)).collect(),
    }
}

fn span(from: u64, bytes: u64) -> Span {
    Span {
        region: 1,
        at: from,
        bytes,
    }
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A context, a queue and three buffers.
fn beginning() -> Vec<Request> {
    let mut calls = vec![
        Request::Context {
            id: at(0),
            devices: vec![0],
        },
        Request::Queue {
            id: at(3),
            context: at(0),
            device: 0,
            properties: 0,
            extra: vec![],
        },
    ];
    calls.extend((6..9).map(|place| Request::Buffer {
        id: at(place),
        context: at(0),
        flags: 1,
        bytes: 512,
        from: (place == 6).then(|| span(0, 512)),
    }));
    calls
}

fn kernels() -> Vec<Request> {
    vec![
        Request::Source {
            id: at(16),
            context: at(0),
            text: span(0, 16),
        },
        Request::Build {
            program: at(16),
            devices: vec![0],
            options: text(""),
        },
        Request::Kernel {
            id: at(20),
            program: at(16),
            name: text("bv"),
        },
        Request::Argue {
            kernel: at(20),
            place: 0,
            value: Argument::Memory(at(6)),
        },
        Request::Argue {
            kernel: at(20),
            place: 1,
            value: Argument::Bytes(vec![1; 4]),
        },
        Request::CloneKernel {
            id: at(21),
            kernel: at(20),
        },
        Request::Launch {
            order: order(Some(25), &[]),
            kernel: at(21),
            sides: 1,
            offset: None,
            global: [8, 1, 1],
            local: None,
        },
    ]
}

fn transfers() -> Vec<Request> {
    let (origin, region) = ([0, 1, 0], [8, 4, 1]);
    vec![
        Request::UserEvent {
            id: at(24),
            context: at(0),
        },
        Request::Write {
            order: order(None, &[]),
            buffer: at(6),
            at: 0,
            from: span(0, 512),
        },
        Request::Copy {
            order: order(None, &[24]),
            from: at(6),
            to: at(7),
            from_at: 0,
            to_at: 64,
            bytes: 64,
        },
        Request::CopyRect {
            order: order(None, &[]),
            from: at(6),
            to: at(7),
            from_at: origin,
            to_at: origin,
            region,
            pitches: [16, 64, 16, 64],
        },
        Request::Fill {
            order: order(None, &[]),
            buffer: at(7),
            pattern: vec![1, 2],
            at: 2,
            bytes: 6,
        },
        Request::SetUserEvent {
            event: at(24),
            status: 0,
        },
        Request::ReadRect {
            order: order(None, &[]),
            buffer: at(7),
            origin,
            region,
            row: 16,
            slice: 0,
            to: span(0, 32),
        },
        Request::Part {
            id: at(9),
            buffer: at(6),
            flags: 1,
            at: 128,
            bytes: 128,
        },
        Request::Read {
            order: order(Some(26), &[]),
            buffer: at(9),
            at: 0,
            to: span(0, 128),
        },
        Request::Notify {
            event: at(26),
            status: 0,
            token: 7,
        },
        Request::Finish { queue: at(3) },
    ]
}

fn images() -> Vec<Request> {
    let (origin, region) = ([0, 0, 0], [4, 4, 1]);
    let image = |place: u32, of: Id, row: u64| Request::Image {
        id: at(place),
        context: at(0),
        flags: 1,
        order: 0x10B5,
        channel: 0x10DA,
        shape: [0x10F1, 8, 8, 0, 0, row, 0, 0, 0],
        of,
        from: None,
    };
    vec![
        image(10, Id::NONE, 0),
        image(11, at(6), 32),
        image(12, at(10), 0),
        Request::WriteImage {
            order: order(None, &[]),
            image: at(10),
            origin,
            region,
            from: span(0, 64),
        },
        Request::CopyImage {
            order: order(None, &[]),
            from: at(10),
            to: at(11),
            from_at: origin,
            to_at: origin,
            region,
        },
        Request::ImageToBuffer {
            order: order(None, &[]),
            from: at(10),
            to: at(7),
            origin,
            region,
            at: 0,
        },
        Request::BufferToImage {
            order: order(None, &[]),
            from: at(7),
            to: at(10),
            at: 0,
            origin,
            region,
        },
        Request::FillImage {
            order: order(None, &[]),
            image: at(11),
            color: vec![1; 16],
            origin,
            region,
        },
        Request::ReadImage {
            order: order(None, &[]),
            image: at(10),
            origin,
            region,
            to: span(0, 64),
        },
    ]
}

/// What our own library could send, and what a region begins with for it.
pub const TEXT: &[u8] = b"__kernel of text";

pub fn sessions() -> Vec<Vec<Request>> {
    let all = [kernels(), transfers(), images()];
    all.into_iter()
        .map(|calls| [beginning(), calls].concat())
        .collect()
}

/// Lives a stream to its end.
pub fn live(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let mut trial = Trial::begin();
    for _ in 0..STEPS_MOST {
        if draw.0.is_empty() || step(&mut draw, &mut trial) == Outcome::Broken {
            break;
        }
    }
    trial.end();
}

fn step(draw: &mut Draw<'_>, trial: &mut Trial) -> Outcome {
    let which = draw.byte() % 64;
    match which {
        GRANT => {
            let (region, bytes) = (draw.byte() % 4, draw.number());
            trial.grant(region.into(), bytes);
        }
        LET_GO => trial.let_go((draw.byte() % 4).into()),
        SUSPEND => {
            trial.suspend();
        }
        WRITE => {
            let (region, at, count) = (draw.byte() % 4, draw.number(), draw.byte());
            let bytes = draw.some(count.into());
            let span = Span {
                region: region.into(),
                at,
                bytes: bytes.len() as u64,
            };
            trial.write(span, bytes);
        }
        REST => trial.rest_briefly(),
        FRAME => {
            let (flags, count) = (draw.byte(), draw.byte());
            return trial.give(draw.some(count.into()), flags & 1 != 0, flags & 2 != 0);
        }
        which => {
            let flags = draw.byte();
            let call = draw.call(which.into());
            return trial.give(&call, flags & 1 != 0, flags & 2 != 0);
        }
    }
    Outcome::Given
}
