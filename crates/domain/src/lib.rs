//! The domain: nouns, state machines and every decision of Tenure.
//!
//! Pure. `decide(&State, &Command)` gives events or a refusal, `State::apply` folds events; the same state
//! and command give the same events on every machine. Deliberately absent: I/O, clocks, randomness, threads,
//! async, databases, HTTP. Time, ids and readings arrive inside the command. Called by the server's
//! controller, and by the simulator on virtual time.

#![forbid(unsafe_code)]

pub mod actor;
pub mod audit;
pub mod booking;
pub mod command;
pub mod decide;
pub mod event;
pub mod forecast;
pub mod id;
pub mod kind;
pub mod ledger;
pub mod market;
pub mod meter;
pub mod money;
pub mod name;
pub mod refusal;
pub mod schedule;
mod size;
pub mod state;
pub mod storage;
pub mod tenancy;
pub mod time;
pub mod workload;
pub mod zone;

pub use actor::Actor;
pub use command::{Command, Wish};
pub use decide::decide;
pub use event::Event;
pub use refusal::{Code, Refusal};
pub use state::State;
pub use time::Time;
