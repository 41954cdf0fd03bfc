//! Packing: the published protocol of "Beware of Fragmentation" (USENIX ATC'23), its schedulers, and ours beside them.
//!
//! A replay fills a fleet with pods that never leave, in an order drawn from a seed, up to 130 % of its GPUs. `tenure`
//! is the domain's own board, `decided` the same through the whole of `decide`; the peers are written from their published
//! descriptions.

pub mod busy;
pub mod contest;
pub mod crowd;
pub mod decided;
pub mod fgd;
pub mod generate;
pub mod ours;
pub mod peer;
pub mod replay;
pub mod room;
pub mod seeded;
pub mod throughput;
pub mod trace;
pub mod whole;

#[cfg(test)]
mod tests;
