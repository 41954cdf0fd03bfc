//! The exchange from outside: stories, bad input, and a random life beside a naive book.

mod auto;
mod bad_input;
mod policy;
mod property;
mod rule;
mod spot;
mod story;
pub mod street;
mod trust;

pub use trust::life;
