//! Bookings: capacity held for windows in time, one-off or recurring, in a time zone.
//!
//! Absent: which jobs run in a window (`schedule/`), and when anybody looks at the clock (the server).

pub mod advance;
pub mod allow;
pub mod alternative;
pub mod change;
mod choose;
pub(crate) mod inside;
pub mod plan;
pub mod quota;
pub mod record;
pub mod recurrence;
mod reprice;
pub mod resolve;
mod settle;
pub mod shelf;
mod slot;
pub mod terms;
pub mod timeline;

pub use crate::zone;
