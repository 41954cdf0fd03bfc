//! The domain from outside: stories, properties and golden encodings, in one binary.

mod audit;
mod bad_input;
mod booking;
mod chance;
mod estimate;
mod evict;
mod fair;
mod gang;
mod golden;
mod invariant;
mod keeping;
mod label;
mod lattice;
mod ledger;
mod market;
mod model;
mod part;
mod placement;
mod planted;
mod property;
mod purity;
mod receipt;
mod scenario;
mod service;
mod session;
mod share;
#[path = "../../../sim/src/shared.rs"]
#[expect(dead_code, reason = "it knows of traces, too")]
mod shared;
mod story;
mod task;
mod usage;
mod volume;
mod workload;
mod world;
