//! The local engine: Tenure's own agents, each over one mutually authenticated TLS connection it opened.
//!
//! `hub` listens and is the `Engine`; `conversation` is one connection; `authority` signs certificates;
//! `registry` is what the hub asks the server. Deliberately absent: any memory of allocations.

pub mod authority;
mod conversation;
pub mod hub;
mod link;
mod pace;
pub mod registry;

pub use authority::{Authority, AuthorityError};
pub use hub::{Hub, HubConfig, HubError};
pub use registry::Registry;
