//! Accounting and arbitration for one device: VRAM ledger, compute lease, token bucket, liveness, in a mapped page
//! that the agent makes and the guards of several processes share.
//!
//! The agent makes a [`Device`] and puts slices on it; a program's guard joins a slice and gets a [`Process`], which
//! charges memory and takes the device lease; telemetry reads a [`Snapshot`] through a [`Reader`].
//!
//! Deliberately absent: any vendor's API types, any driver call, any thread, any policy: limits arrive as numbers.
//! This is the only place where agent and guard meet. Whoever maps the page can edit it, so what it says is worth
//! what the isolation level `guarded` is worth; but no content of it crashes or hangs the agent's side.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(target_endian = "big")]
compile_error!("the futex in the lease word is its first half: little-endian machines only");

mod clock;
mod cut;
mod device;
mod error;
mod fair;
mod kernel;
mod layout;
mod lease;
mod liveness;
mod map;
mod mutex;
mod process;
mod reap;
mod snapshot;

pub use clock::now_ns;
pub use cut::outlive_cut_pages;
pub use device::{Device, Fit, SliceSpec};
pub use error::{Error, Refused};
pub use kernel::KernelIndex;
pub use layout::{COUNTERS, Counter, KERNELS, SLICES, SLOTS, VERSION};
pub use lease::{Lease, Turn};
pub use process::Process;
pub use snapshot::{Reader, SliceReading, Snapshot};
