//! Programs through the broker on real OpenCL implementations, put there by `scripts/setup-devices`: PoCL always, Intel's
//! CPU runtime nearly always, and rusticl for what it runs without a broker.

// `call!` exists to call C functions on values the tests made.
#![allow(clippy::macro_metavars_in_unsafe)]

mod audit;
mod bench;
mod check;
mod cl;
mod cost;
mod death;
mod fork;
mod hostile;
mod part;
mod program;
mod scrub;
mod semantics;
mod suspend;
mod transfer;
