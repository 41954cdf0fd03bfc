//! Bookings from outside.

mod bad_input;
mod change;
mod recurrence;
mod shelf;
mod story;

pub use story::life;
