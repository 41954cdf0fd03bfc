//! Where allocations run.
//!
//! An engine brings orders to nodes and tells what it observed; `local` speaks with Tenure's own agents.
//! Deliberately absent: deciding what should run, comparing it with what does, and storing either: that is
//! `domain`, `server/reconcile` and `journal`. Called by the server.

#![forbid(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod engine;
pub mod local;
pub mod stream;

pub use engine::{Engine, EngineError, Measured, Seen};
pub use stream::Stream;
