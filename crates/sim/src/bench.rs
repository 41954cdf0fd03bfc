//! Live benchmarks: ours and the peer or the limit in one run, with a ratio.

pub mod booking;
pub mod device;
pub mod figure;
pub mod http;
pub mod invoice;
pub mod journal;
pub mod ledger;
pub mod market;
pub mod peer;
pub mod restart;
pub mod service;
mod slurm;
pub mod start;
pub mod tenant;
