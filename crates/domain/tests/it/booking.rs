//! Bookings from outside.

mod bad_input;
mod change;
mod inside;
mod limit;
mod put_off;
mod recurrence;
mod renew;
mod seat;
mod shelf;
mod story;

pub use story::life;
