//! The ledger: price books, accounts, holds and postings. Money is whole micros in double entry.
//!
//! Absent: who may spend (tenancy), and the exchange.

pub mod account;
pub mod adjust;
pub mod alert;
pub mod analysis;
pub mod bill;
pub mod book;
pub mod clause;
pub mod focus;
pub mod hold;
pub mod idle;
pub mod invoice;
pub mod price;
pub mod rate;
pub mod sheaf;
pub mod sheet;
pub mod tariff;
