//! The real agent with real processes, against a real hub. As root, for that is what the agent is.

mod bench;
mod conform;
mod confine;
mod join;
mod job;
mod lease;
mod restart;
mod secret;
mod stop;
