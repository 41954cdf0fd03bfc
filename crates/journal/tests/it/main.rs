//! One suite over both databases: every test that takes a place runs on SQLite and on PostgreSQL.

mod backup;
mod fence;
mod follow;
mod kill;
mod log;
mod lost;
mod open;
mod place;
mod power;
mod power_vfs;
mod proof;
mod snapshot;
mod suite;
mod tamper;
