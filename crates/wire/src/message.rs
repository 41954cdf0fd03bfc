//! The messages: what a tenant's side can ask for. Numbers, ids and bytes; what they mean is known to `remote` and
//! `broker` alone.

use std::ffi::CString;

use crate::codec::{Field, Malformed, Reader};
use crate::memory::Span;

/// An object of one connection: a place in its table and which of the objects that were at this place is meant.
/// Chosen by the tenant's side, so that it need not wait for an answer; checked by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Id {
    pub place: u32,
    pub generation: u32,
}

impl Id {
    /// No object.
    pub const NONE: Id = Id {
        place: u32::MAX,
        generation: 0,
    };

    pub fn is_none(self) -> bool {
        self == Id::NONE
    }
}

impl Field for Id {
    fn put(&self, out: &mut Vec<u8>) {
        self.place.put(out);
        self.generation.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Id, Malformed> {
        Ok(Id {
            place: from.take()?,
            generation: from.take()?,
        })
    }
}

/// What every command carries: where it goes, what it waits for, and the event it makes, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub queue: Id,
    pub event: Id,
    pub waits: Vec<Id>,
}

impl Field for Order {
    fn put(&self, out: &mut Vec<u8>) {
        self.queue.put(out);
        self.event.put(out);
        self.waits.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Order, Malformed> {
        Ok(Order {
            queue: from.take()?,
            event: from.take()?,
            waits: from.take()?,
        })
    }
}

/// A value set for a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    Bytes(Vec<u8>),
    /// So many bytes of local memory.
    Local(u64),
    /// A memory object, or none.
    Memory(Id),
    Sampler(Id),
}

impl Field for Argument {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Argument::Bytes(bytes) => {
                0u16.put(out);
                bytes.put(out);
            }
            Argument::Local(bytes) => {
                1u16.put(out);
                bytes.put(out);
            }
            Argument::Memory(id) => {
                2u16.put(out);
                id.put(out);
            }
            Argument::Sampler(id) => {
                3u16.put(out);
                id.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Argument, Malformed> {
        Ok(match from.take::<u16>()? {
            0 => Argument::Bytes(from.take()?),
            1 => Argument::Local(from.take()?),
            2 => Argument::Memory(from.take()?),
            3 => Argument::Sampler(from.take()?),
            _ => return Err(Malformed),
        })
    }
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $one:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$each])* $one = $number),* }

        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u16).put(out);
            }

            fn take(from: &mut Reader<'_>) -> Result<$name, Malformed> {
                match from.take::<u16>()? {
                    $($number => Ok($name::$one),)*
                    _ => Err(Malformed),
                }
            }
        }
    };
}

numbered! {
    /// What a kernel takes at one place.
    ArgumentKind {
        /// A number, an image or a sampler: the driver does not say.
        Unknown = 0,
        Value = 1,
        Local = 2,
        Buffer = 3,
        Image = 4,
        Sampler = 5,
    }
}

numbered! {
    /// What a question is about.
    Subject {
        Platform = 0,
        Device = 1,
        Image = 2,
        Program = 3,
        Build = 4,
        Kernel = 5,
        KernelArgument = 6,
        KernelOnDevice = 7,
        SubGroup = 8,
        Event = 9,
        Profile = 10,
        Memory = 11,
        Queue = 12,
        Context = 13,
    }
}

macro_rules! requests {
    ($($(#[$doc:meta])* $number:literal $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        /// One call. Those that begin with an [`Order`] are commands.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request { $($(#[$doc])* $name { $($field: $kind),* }),* }

        impl Request {
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Request::$name { $($field),* } => {
                        Field::put(&{ let number: u16 = $number; number }, out);
                        $($field.put(out);)*
                    })*
                }
            }

            pub fn decode(bytes: &[u8]) -> Result<Request, Malformed> {
                let mut from = Reader::new(bytes);
                let request = match from.take::<u16>()? {
                    $($number => Request::$name { $($field: from.take()?),* },)*
                    _ => return Err(Malformed),
                };
                from.end()?;
                Ok(request)
            }
        }
    };
}

requests! {
    /// Which devices there are: for each the number of its platform.
    1 Devices {}
    /// A question with an answer in bytes. One too long for a reply goes to `into`, or says only its length.
    2 Ask { subject: Subject, object: Id, device: u32, index: u32, param: u32, input: Vec<u8>, into: Option<Span> }
    3 Release { id: Id }
    4 Formats { context: Id, flags: u64, kind: u32 }

    10 Context { id: Id, devices: Vec<u32> }
    11 Queue { id: Id, context: Id, device: u32, properties: u64, extra: Vec<u64> }
    12 Buffer { id: Id, context: Id, flags: u64, bytes: u64, from: Option<Span> }
    13 Part { id: Id, buffer: Id, flags: u64, at: u64, bytes: u64 }
    /// `shape`: kind, width, height, depth, array, row pitch, slice pitch, mip levels, samples. `of`: the memory it
    /// is made from.
    14 Image { id: Id, context: Id, flags: u64, order: u32, channel: u32, shape: [u64; 9], of: Id, from: Option<Span> }
    15 Sampler { id: Id, context: Id, normalized: u32, addressing: u32, filter: u32 }

    20 Source { id: Id, context: Id, text: Span }
    21 Binary { id: Id, context: Id, devices: Vec<u32>, binaries: Vec<Span> }
    22 Intermediate { id: Id, context: Id, code: Span }
    23 BuiltIn { id: Id, context: Id, devices: Vec<u32>, names: CString }
    24 Build { program: Id, devices: Vec<u32>, options: CString }
    25 Compile { program: Id, devices: Vec<u32>, options: CString, headers: Vec<Id>, names: Vec<CString> }
    26 Link { id: Id, context: Id, devices: Vec<u32>, options: CString, programs: Vec<Id> }
    27 Specialize { program: Id, number: u32, value: Vec<u8> }
    28 Binaries { program: Id, place: u32, into: Span }

    30 Kernel { id: Id, program: Id, name: CString }
    31 Kernels { program: Id, ids: Vec<Id> }
    32 CloneKernel { id: Id, kernel: Id }
    33 Argue { kernel: Id, place: u32, value: Argument }

    40 UserEvent { id: Id, context: Id }
    41 SetUserEvent { event: Id, status: i32 }
    /// Answered when all have ended.
    42 Wait { events: Vec<Id> }
    /// Which have ended: a list of 0 and 1.
    43 Ended { events: Vec<Id> }
    /// A notice with this token when the event gets as far as `status`.
    44 Notify { event: Id, status: i32, token: u64 }

    50 Flush { queue: Id }
    /// Answered when all commands of the queue have ended.
    51 Finish { queue: Id }
    52 Launch { order: Order, kernel: Id, sides: u32, offset: Option<[u64; 3]>, global: [u64; 3], local: Option<[u64; 3]> }
    /// With a reply asked for, answered when it has ended.
    53 Read { order: Order, buffer: Id, at: u64, to: Span }
    54 Write { order: Order, buffer: Id, at: u64, from: Span }
    55 ReadRect { order: Order, buffer: Id, origin: [u64; 3], region: [u64; 3], row: u64, slice: u64, to: Span }
    56 WriteRect { order: Order, buffer: Id, origin: [u64; 3], region: [u64; 3], row: u64, slice: u64, from: Span }
    57 Copy { order: Order, from: Id, to: Id, from_at: u64, to_at: u64, bytes: u64 }
    /// `pitches`: row and slice of the one, row and slice of the other.
    58 CopyRect { order: Order, from: Id, to: Id, from_at: [u64; 3], to_at: [u64; 3], region: [u64; 3], pitches: [u64; 4] }
    59 Fill { order: Order, buffer: Id, pattern: Vec<u8>, at: u64, bytes: u64 }
    60 ReadImage { order: Order, image: Id, origin: [u64; 3], region: [u64; 3], to: Span }
    61 WriteImage { order: Order, image: Id, origin: [u64; 3], region: [u64; 3], from: Span }
    62 CopyImage { order: Order, from: Id, to: Id, from_at: [u64; 3], to_at: [u64; 3], region: [u64; 3] }
    63 ImageToBuffer { order: Order, from: Id, to: Id, origin: [u64; 3], region: [u64; 3], at: u64 }
    64 BufferToImage { order: Order, from: Id, to: Id, at: u64, origin: [u64; 3], region: [u64; 3] }
    65 FillImage { order: Order, image: Id, color: Vec<u8>, origin: [u64; 3], region: [u64; 3] }
    66 Migrate { order: Order, objects: Vec<Id>, flags: u64 }
    67 Marker { order: Order }
    68 Barrier { order: Order }
    69 Timer { device: u32 }
}
