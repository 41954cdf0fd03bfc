//! The domain from outside: stories, properties and golden encodings, in one binary.

mod audit;
mod bad_input;
mod chance;
mod evict;
mod golden;
mod invariant;
mod lattice;
mod model;
mod part;
mod placement;
mod property;
mod purity;
mod receipt;
mod scenario;
mod session;
mod story;
mod usage;
mod volume;
mod world;
