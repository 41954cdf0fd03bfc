//! Storage: volumes, the space in which a scope's jobs keep files between runs.
//!
//! Absent: the files themselves and how a node keeps them (the agent), and which node a job goes to (schedule).

pub mod volume;
