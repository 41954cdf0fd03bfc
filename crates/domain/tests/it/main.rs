//! The domain from outside: stories, properties and golden encodings, in one binary.

mod chance;
mod invariant;
mod model;
mod property;
mod world;
