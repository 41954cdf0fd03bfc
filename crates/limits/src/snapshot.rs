//! Telemetry's view of a page: a private copy, taken by reading the file.
//!
//! Reading instead of mapping: a tenant that cuts the file short makes the read fail, not the reader die. Nothing in
//! the copy is used as an index or a length without a check, so any content gives an answer, if a foolish one.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::layout::{
    COUNTERS, Counter, ENDED, Header, KERNELS, KernelPlace, LIVE, PAGE_SIZE, PAUSED, Page, SLICES, SLOTS,
    Slice, Slot,
};
use crate::map::{check, source_of};

/// How often a copy is taken again because a fold was under way.
const TRIES: usize = 8;

/// Reads a page without taking part in it.
pub struct Reader {
    file: File,
}

/// One device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub slices: Vec<SliceReading>,
    /// The slice that holds the device lease.
    pub lease_holder: Option<u64>,
    /// False: a fold stayed unfinished while reading (its process died or was stopped in it); counters of that slice
    /// may be off by one process until it is repaired.
    pub settled: bool,
}

/// One slice at one moment. Counters only grow while the slice stands, whatever its processes' fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceReading {
    pub id: u64,
    pub limit_bytes: u64,
    pub weight_per_mille: u32,
    pub cap_per_mille: Option<u32>,
    /// Zero: no limit.
    pub kernel_limit_ns: u64,
    pub paused: bool,
    pub ended: bool,
    /// Processes with a place on the slice, dead ones included until they are reaped.
    pub processes: u32,
    /// Processes of it that wait for the lease.
    pub waiting: u32,
    /// Commands its processes have on the device.
    pub inflight: u32,
    pub used_bytes: u64,
    pub peak_bytes: u64,
    /// Kernels by their hashes, and how often each was launched.
    pub kernels: Vec<(u64, u64)>,
    counters: [u64; COUNTERS],
    /// The clocks it is charged on: its place in line, and its cap.
    clocks: [u64; 2],
}

impl SliceReading {
    /// Whether any counter or clock is below what it was: they only grow, so that nobody has a turn that was not
    /// charged.
    pub fn went_back(&self, before: &SliceReading) -> bool {
        let mut counters = self.counters.iter().zip(before.counters);
        let mut clocks = self.clocks.iter().zip(before.clocks);
        counters.any(|(now, then)| *now < then)
            || clocks.any(|(now, then)| (now.wrapping_sub(then) as i64) < 0)
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

impl Snapshot {
    pub fn slice(&self, id: u64) -> Option<&SliceReading> {
        self.slices.iter().find(|slice| slice.id == id)
    }
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, Error> {
        let file = File::open(source_of(path)).map_err(|error| Error::Io("open the limits page", error))?;
        Ok(Reader { file })
    }

    /// Copies the page and adds it up.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut copy = vec![0u8; PAGE_SIZE];
        let mut again = vec![0u8; PAGE_SIZE];
        for attempt in 0..TRIES {
            self.read(&mut copy)?;
            self.read(&mut again)?;
            if (0..SLICES).all(|index| settled(&copy, &again, index)) {
                return Ok(add_up(&copy, true));
            }
            std::thread::sleep(Duration::from_micros(50 << attempt));
        }
        Ok(add_up(&copy, false))
    }

    fn read(&self, into: &mut [u8]) -> Result<(), Error> {
        self.file
            .read_exact_at(into, 0)
            .map_err(|error| Error::Io("read the limits page", error))?;
        let header = offset_of!(Page, header);
        check(
            u64_at(into, header + offset_of!(Header, magic)),
            u32_at(into, header + offset_of!(Header, version)),
            u32_at(into, header + offset_of!(Header, size)),
        )
    }
}

fn settled(copy: &[u8], again: &[u8], index: usize) -> bool {
    let at = slice_at(index) + offset_of!(Slice, seq);
    u32_at(copy, at).is_multiple_of(2) && u32_at(copy, at) == u32_at(again, at)
}

fn add_up(copy: &[u8], settled: bool) -> Snapshot {
    let mut slices: Vec<Option<SliceReading>> = (0..SLICES).map(|index| read_slice(copy, index)).collect();
    for number in 0..SLOTS {
        let slot = offset_of!(Page, slots) + number * size_of::<Slot>();
        let index = u32_at(copy, slot + offset_of!(Slot, slice)) as usize;
        let live = u32_at(copy, slot + offset_of!(Slot, state)) == LIVE;
        let Some(Some(slice)) = slices.get_mut(index).filter(|_| live) else {
            continue;
        };
        slice.processes += 1;
        slice.waiting += u32::from(u64_at(copy, slot + offset_of!(Slot, want_ns)) != 0);
        slice.inflight = slice
            .inflight
            .saturating_add(u32_at(copy, slot + offset_of!(Slot, inflight)));
        slice.used_bytes = slice
            .used_bytes
            .saturating_add(u64_at(copy, slot + offset_of!(Slot, bytes)));
        for counter in 0..COUNTERS {
            let here = u64_at(copy, slot + offset_of!(Slot, counters) + counter * 8);
            slice.counters[counter] = slice.counters[counter].wrapping_add(here);
        }
    }
    Snapshot {
        lease_holder: lease_holder(copy, &slices),
        slices: slices.into_iter().flatten().collect(),
        settled,
    }
}

fn lease_holder(copy: &[u8], slices: &[Option<SliceReading>]) -> Option<u64> {
    let word = u64_at(copy, offset_of!(Page, header) + offset_of!(Header, lease));
    let number = crate::fair::Word(word)
        .holder()
        .filter(|number| *number < SLOTS)?;
    let slot = offset_of!(Page, slots) + number * size_of::<Slot>();
    let index = u32_at(copy, slot + offset_of!(Slot, slice)) as usize;
    slices.get(index)?.as_ref().map(|slice| slice.id)
}

fn read_slice(copy: &[u8], index: usize) -> Option<SliceReading> {
    let at = slice_at(index);
    let id = u64_at(copy, at + offset_of!(Slice, id));
    let flags = u32_at(copy, at + offset_of!(Slice, flags));
    let cap = u32_at(copy, at + offset_of!(Slice, cap_per_mille));
    let totals = at + offset_of!(Slice, totals);
    (id != 0).then(|| SliceReading {
        id,
        limit_bytes: u64_at(copy, at + offset_of!(Slice, limit_bytes)),
        weight_per_mille: u32_at(copy, at + offset_of!(Slice, weight_per_mille)),
        cap_per_mille: (cap != 0).then_some(cap),
        kernel_limit_ns: u64_at(copy, at + offset_of!(Slice, kernel_limit_ns)),
        paused: flags & PAUSED != 0,
        ended: flags & ENDED != 0,
        peak_bytes: u64_at(copy, at + offset_of!(Slice, peak_bytes)),
        kernels: read_kernels(copy, at),
        counters: std::array::from_fn(|counter| u64_at(copy, totals + counter * 8)),
        clocks: [offset_of!(Slice, tag), offset_of!(Slice, bucket)].map(|clock| u64_at(copy, at + clock)),
        ..SliceReading::default()
    })
}

fn read_kernels(copy: &[u8], slice: usize) -> Vec<(u64, u64)> {
    let table = slice + offset_of!(Slice, kernels);
    (0..KERNELS)
        .map(|index| table + index * size_of::<KernelPlace>())
        .map(|at| {
            (
                u64_at(copy, at + offset_of!(KernelPlace, hash)),
                u64_at(copy, at + offset_of!(KernelPlace, launches)),
            )
        })
        .filter(|(hash, _)| *hash != 0)
        .collect()
}

fn slice_at(index: usize) -> usize {
    offset_of!(Page, slices) + index * size_of::<Slice>()
}

fn u64_at(copy: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&copy[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn u32_at(copy: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&copy[at..at + 4]);
    u32::from_le_bytes(bytes)
}
