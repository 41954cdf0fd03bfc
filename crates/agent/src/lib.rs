//! The node side of Tenure, the only privileged program.
//!
//! `channel` speaks with the server, `node` starts, stops, adopts and forgets allocations, `exec` is the thin
//! parent of each, `isolate` the wall around it, `discover` finds what the machine has. Deliberately absent:
//! decisions, SQL, and the guard (its symbols would capture our own calls to a driver).

#![deny(unsafe_op_in_unsafe_fn)]

pub mod channel;
mod check;
mod checkpoint;
mod chore;
pub mod clock;
pub mod conduct;
pub mod discover;
pub mod doctor;
pub mod door;
pub mod driver;
pub mod exec;
pub mod identity;
pub mod image;
mod interact;
pub mod isolate;
mod kernel;
pub mod launch;
pub mod lease;
pub mod leave;
pub mod log;
pub mod node;
pub mod part;
pub mod record;
pub mod run;
mod saved;
pub mod scrub;
pub mod share;
pub mod state_dir;
pub mod steps;
pub mod stop;
pub mod table;
pub mod telemetry;
mod tls;
pub mod volume;
pub mod watchdog;

/// This very program, even after its file was replaced by a newer one.
pub const PROGRAM: &str = "/proc/self/exe";
