//! The page: what stands where, who writes it, and what holds after a crash at any instruction.
//!
//! Every field is an atomic, so any content and any interleaving is defined behaviour. Three kinds of field:
//!
//! | field | written by | rule after its writer dies |
//! |---|---|---|
//! | header `magic version size` | the maker, before the file gets its name | never changes |
//! | `lease` | compare-and-swap by anyone | one word holds holder, epoch and deadline; past the deadline anyone passes it on |
//! | `virtual_now`, slice `tag`, `active_ns`, `bucket` | single atomic updates | each update is whole or absent; the lost charge of a dead holder is made by whoever takes over |
//! | `waiting` bits | their slot's process; cleared by anyone who finds the slot dead or deaf | a hint only: a stale bit costs one look |
//! | `local_of` | whoever holds the lease, after local memory was overwritten for its slice | another's: it is overwritten again |
//! | slice `id limit weight cap flags …` | the agent, single stores; `id` last when made, first when removed | each is valid on its own |
//! | slice `used` | whoever holds the slice's lock | a cache: recomputed from the slots when a dead holder is found |
//! | slice `peak`, `totals`, `fold*` | whoever holds the slice's lock | `fold_stage` READY: finish the fold again (it is idempotent); else drop it |
//! | slot `bytes` | its process, under the slice's lock | the truth; dropped with the slot |
//! | slot counters | its process | added to `totals` once, by the fold |
//! | slice `kernels` | single atomic updates by its processes; cleared when the slice is made | each update is whole or absent |
//! | slot `state slice …` | whoever holds the slot's byte lock | LIVE with a free byte lock means dead: reap |
//!
// INVARIANT: slice usage = sum of `bytes` over LIVE slots of the slice. Recovery drops slots, never repairs a sum.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// "TENURELM", little-endian.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TENURELM");
/// The layout's version; a page of a newer one is refused.
pub const VERSION: u32 = 3;
/// Slices on one device at once.
pub const SLICES: usize = 64;
/// Processes (and agents) on one device at once.
pub const SLOTS: usize = 256;
/// The place that no process takes of its own accord: the agent's.
pub(crate) const AGENTS: usize = SLOTS - 1;
/// Where the byte locks stand: far beyond the file's content, one byte per slot.
pub(crate) const LOCK_BASE: i64 = 1 << 40;
/// Kinds of counters a slice keeps.
pub const COUNTERS: usize = 15;
/// Kernels told apart on one slice; launches of others are counted together.
pub const KERNELS: usize = 32;

/// What is counted for the audit; all only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Nanoseconds the device worked for the slice.
    BusyNs = 0,
    /// Nanoseconds the slice held the lease.
    LeaseNs = 1,
    /// Nanoseconds a launch waited because of the slice's own cap or a pause.
    ThrottledNs = 2,
    /// Nanoseconds a launch waited for other slices' turns.
    WaitedNs = 3,
    /// Commands let through to the device.
    Launches = 4,
    /// Allocations granted.
    Allocations = 5,
    /// Bytes ever allocated.
    AllocatedBytes = 6,
    /// Allocations refused.
    Refusals = 7,
    /// Calls denied because they would pass the guard by.
    Denials = 8,
    /// Leases lost to a missed deadline.
    Lost = 9,
    /// Processes that opened the device.
    Opens = 10,
    /// Bytes moved to the device.
    BytesIn = 11,
    /// Bytes moved from the device.
    BytesOut = 12,
    /// Messages to the slice's worker that no library of ours sends.
    Malformed = 13,
    /// Launches of kernels that found no place in the slice's table.
    OtherKernels = 14,
}

/// Slice flags.
pub(crate) const PAUSED: u32 = 1;
pub(crate) const ENDED: u32 = 2;

/// Slot states.
pub(crate) const FREE: u32 = 0;
pub(crate) const LIVE: u32 = 1;
/// `Slot::slice` of an agent, which uses no slice.
pub(crate) const NO_SLICE: u32 = u32::MAX;

/// `Slice::fold_stage` when the new totals are complete and must be taken over.
pub(crate) const READY: u32 = 1;

#[repr(C, align(4096))]
pub(crate) struct Page {
    pub header: Header,
    pub slices: [Slice; SLICES],
    pub slots: [Slot; SLOTS],
}

#[repr(C, align(64))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub size: AtomicU32,
    pub lease: Line<AtomicU64>,
    pub virtual_now: Line<AtomicU64>,
    pub waiting: Line<[AtomicU64; SLOTS / 64]>,
    /// The slice whose kernels last had the device's local memory; zero: nobody knows.
    pub local_of: Line<AtomicU64>,
}

/// Keeps what different processors write apart.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub T);

#[repr(C, align(128))]
pub(crate) struct Slice {
    /// Zero: this place is free.
    pub id: AtomicU64,
    /// Raised when the place is given to another slice, so an old handle cannot use the new one.
    pub epoch: AtomicU32,
    pub flags: AtomicU32,
    pub limit_bytes: AtomicU64,
    pub weight_per_mille: AtomicU32,
    /// Zero: no cap.
    pub cap_per_mille: AtomicU32,
    /// Zero: no limit.
    pub kernel_limit_ns: AtomicU64,
    pub process_limit_ns: AtomicU64,
    /// The robust lock of this slice's ledger. One per slice: a process stopped inside it holds up its own slice only.
    pub lock: Line<AtomicU32>,
    pub used_bytes: AtomicU64,
    pub peak_bytes: AtomicU64,
    /// Virtual time at which the slice's next turn starts.
    pub tag: Line<AtomicU64>,
    /// When a process of the slice last worked, waited or gave up waiting.
    pub active_ns: AtomicU64,
    /// Token bucket as the instant at which the slice's spending is paid off.
    pub bucket: AtomicU64,
    /// Odd while totals and slots are being folded.
    pub seq: Line<AtomicU32>,
    pub fold_stage: AtomicU32,
    pub fold_slot: AtomicU32,
    pub fold_content: AtomicU32,
    pub fold: [AtomicU64; COUNTERS],
    pub totals: [AtomicU64; COUNTERS],
    /// A place is taken by storing its hash, and stays while the slice does.
    pub kernels: [KernelPlace; KERNELS],
}

/// A kernel by its hash, zero for none, and how often it was launched.
#[repr(C)]
pub(crate) struct KernelPlace {
    pub hash: AtomicU64,
    pub launches: AtomicU64,
}

#[repr(C, align(128))]
pub(crate) struct Slot {
    /// Raised at each claim: who holds a lock is (slot, actor), so a successor is not taken for its predecessor.
    pub actor: AtomicU32,
    /// Raised when the content is begun anew: a fold repeated after a crash clears only what it folded.
    pub content: AtomicU32,
    pub state: AtomicU32,
    /// Index into `slices`, or NO_SLICE.
    pub slice: AtomicU32,
    pub slice_epoch: AtomicU32,
    pub inflight: AtomicU32,
    pub bytes: AtomicU64,
    /// Since when a thread of this process waits for the lease; zero: none does.
    pub want_ns: AtomicU64,
    /// Up to when the process has charged its use of the lease; what comes after is charged by whoever takes over.
    pub charged_ns: AtomicU64,
    /// Up to when somebody who took over has charged it.
    pub settled_ns: AtomicU64,
    pub counters: [AtomicU64; COUNTERS],
}

pub(crate) const PAGE_SIZE: usize = size_of::<Page>();
