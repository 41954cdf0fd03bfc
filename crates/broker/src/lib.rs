//! The worker process, one per brokered slice, that owns the driver with the guard in front of it.
//!
//! The tenant's programs speak to it over `wire` and never see a driver, a device node or a mapped page; so the
//! wall stands outside the tenant's process on every vendor. Each process that connects gets a ring and an id space
//! of its own; all count to the one slice. Deliberately absent: limits (the guard, loaded by the OpenCL loader as in
//! a job), scheduling, money, anything of the control plane. Started by the agent.
//!
//! Nothing that comes from a tenant is believed: ids are looked up with their generation and kind, numbers are
//! checked before the driver sees them, addresses never travel in either direction.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod audit;
mod call;
pub mod check;
mod connection;
mod control;
mod driver;
mod fault;
mod format;
mod helper;
mod inventory;
mod object;
mod print;
pub mod scrub;
mod store;
mod suspend;
mod table;
#[cfg(any(test, feature = "trial"))]
pub mod trial;
mod worker;

pub use worker::{Settings, run};
