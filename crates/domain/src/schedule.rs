//! Scheduling: the fleet, which job goes next, and where it goes.
//!
//! Pure and without prices; quota and budget are asked through `admit`. Reasons are computed on demand and
//! are never events. Called by `decide` for submissions and for the controller's passes.

pub mod admit;
pub mod allocation;
mod attach;
pub mod backfill;
pub mod board;
pub mod calendar;
pub mod evict;
pub mod fit;
pub mod fleet;
mod gather;
mod guess;
pub mod hardware;
mod index;
pub mod instead;
mod kept;
pub mod label;
pub mod order;
pub mod part;
pub mod pass;
pub mod place;
pub mod queue;
pub mod receipt;
pub(crate) mod relieve;
pub mod seen;
pub mod victim;
pub mod volume;
pub mod when;
pub mod why;
