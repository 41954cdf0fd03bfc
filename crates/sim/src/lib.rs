//! Dev only: `tenure-sim` (trace replay on virtual time, seeded simulation of the whole system) and `tenure-bench`
//! (live benchmarks beside peers in one run).
//!
//! Deliberately absent from what users install. Uses the real crates, never copies of their logic.

#![forbid(unsafe_code)]

pub mod bench;
pub mod booking;
pub mod house;
pub mod jct;
pub mod packing;
pub mod platform;
pub mod shared;
