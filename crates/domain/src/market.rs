//! The exchange: quota that lies idle at one tenant is another's for a time, at a price.
//!
//! An offer says what is to be had and on what terms, a bid what is wanted; where they meet a lease begins, its price in
//! escrow, in one batch of events. A lease is quota and nothing else: the buyer's grows and the seller's shrinks
//! (`tenancy/leased`), a node of the seller's own is the buyer's meanwhile (`Node::let_to`), and placement goes on as ever.
//! Absent: the price of running jobs, which is the platform's whoever's quota they run on. Decided in `decide/market`,
//! folded in `state/apply/market`, moved on by `advance` every second.

pub mod advance;
pub mod allow;
pub mod auto;
pub mod bid;
pub mod book;
pub mod check;
pub mod fault;
pub mod fill;
pub mod funds;
pub mod index;
pub mod lease;
pub mod leave;
pub mod offer;
pub mod record;
pub mod reliability;
pub mod search;
pub mod settle;
pub mod terms;
pub mod window;
