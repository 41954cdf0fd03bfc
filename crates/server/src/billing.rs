//! Bills: rows read out of history as their payer sees them, counted up with their roots, written out, and checked again
//! without a server.
//!
//! Deliberately absent: what an interval costs and who may see it (domain, `routes/`). `routes/invoice` and
//! `tenure invoice verify` call it.

pub mod against;
pub mod count;
pub mod file;
pub mod page;
pub mod row;
pub mod verify;

pub use count::{Counted, count_up};
pub use row::{Rows, RowsError, Wanted};
