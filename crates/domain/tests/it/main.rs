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
mod label;
mod lattice;
mod model;
mod part;
mod placement;
mod property;
mod purity;
mod receipt;
mod scenario;
mod session;
mod share;
mod story;
mod usage;
mod volume;
mod workload;
mod world;
