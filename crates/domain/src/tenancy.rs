//! Tenancy: Platform → Tenant → Subscriber → User, what each may use, and who may do what where.
//!
//! Absent: jobs and devices; a scope only counts what it is told is in use.

pub mod alert;
pub mod authorize;
pub mod budget;
pub mod decide;
pub mod keeping;
pub mod key;
pub mod lately;
pub mod leased;
pub mod policy;
pub mod role;
pub mod rule;
pub mod scope;
pub mod share;
pub mod trade;
pub mod tree;
pub mod webhook;
