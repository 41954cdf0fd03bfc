//! What jobs wrote, kept: collected from nodes while they have it, searched afterwards, erased in time.
//!
//! Collecting asks nodes by the question `tenure logs` asks, at this server's pace, so a node says nothing it was not asked
//! for and its heartbeat waits for one answer at most. Absent: tables (`journal/log`), who may read what and how it is
//! asked for (`routes/log`), how much is kept of whom (`domain/tenancy/keeping`). Started by whoever leads.

mod about;
mod collect;
mod desk;
mod expire;
mod level;
mod line;
mod pace;
mod pack;
mod read;
mod track;

pub(crate) use about::About;
pub use collect::{Collector, CollectorOptions};
pub use expire::sweep;
pub use level::Level;
pub(crate) use level::{UNSAID_BIT, bits_from};
pub(crate) use line::{clean, lines};
pub(crate) use pack::unpack;
