//! Workloads: what users want run, and jobs through their whole life.
//!
//! Absent: where a job runs (schedule), what it costs (ledger).

pub mod frames;
pub mod image;
pub mod job;
pub mod member;
pub mod segments;
pub mod session;
pub mod spec;
pub mod usage;
