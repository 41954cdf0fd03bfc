//! The wire: REST types, problem codes, API keys, the agent channel, and the typed client.
//!
//! Nouns of `domain` that mean the same on the wire are used as they are; what stands here is the shape of
//! requests and answers. Deliberately absent: decisions, storage, HTTP serving. Used by server, engine, agent and cli.

#![forbid(unsafe_code)]

pub mod channel;
#[cfg(feature = "client")]
pub mod client;
pub mod ical;
pub mod problem;
pub mod public;
pub mod seal;
pub mod secret_text;
pub mod token;
pub mod v1;
