//! Requests and answers of the REST API, version 1. One file a noun, the same nouns as in `domain`.
//!
//! Requests refuse unknown fields; answers may grow. Moments are RFC 3339 in UTC, lengths end in their unit,
//! money is micros of the platform's currency.

pub mod access;
pub mod adjustment;
pub mod analysis;
pub mod audit;
pub mod bill;
pub mod booking;
pub mod cost;
pub mod event;
pub mod fit;
pub mod gpu;
pub mod invoice;
pub mod job;
pub mod journal;
pub mod limit;
pub mod log;
pub mod login;
pub mod market;
pub mod node;
pub mod page;
pub mod platform;
pub mod price_book;
pub mod scope;
pub mod secret;
pub mod service;
pub mod session;
pub mod share;
pub mod task;
pub mod time;
pub mod volume;
pub mod webhook;
