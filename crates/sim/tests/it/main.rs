//! Tests over the whole house: its rules, and the real programs together.

mod audit;
mod booking;
mod console;
mod crash;
mod interrupt;
mod log;
mod market;
mod metric;
mod service;
mod session;
mod share;
mod task;
mod tidy;
mod trace;
mod up;
mod volume;
mod walk;
