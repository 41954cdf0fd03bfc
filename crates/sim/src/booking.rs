//! Bookings on virtual time: a cell of the domain alone, that books, waits and breaks.
//!
//! Pure but for chance with a seed, so that a run is replayed by it. Used by `tenure-bench booking` and `tenure-sim booking`.

pub mod cell;
#[cfg(test)]
mod tests;
pub mod windows;
pub mod year;

pub use cell::Cell;
