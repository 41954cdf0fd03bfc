//! The ledger: prices, accounts, holds and postings. Money is whole micros in double entry.
//!
//! Absent: who may spend (tenancy), invoices and the exchange.

pub mod account;
pub mod hold;
pub mod price;
