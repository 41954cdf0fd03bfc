//! The local engine over real TLS, against a scripted agent.

mod conform;
mod fake;
mod frames;
mod links;
mod trust;
mod wire;
