//! The control plane: `controller` (the only writer), `routes/`, `console/`, `auth`, `reconcile`, `keyring`.
//!
//! Commands enter through routes or through what engines saw, are decided by `domain` inside the controller,
//! made durable by `journal`, then acknowledged and published. Deliberately absent: decisions (domain), SQL
//! (journal), sandboxes and devices (agent). Started by `tenure up`.

#![forbid(unsafe_code)]

pub mod audit;
pub mod auth;
pub mod billing;
mod console;
pub mod controller;
pub mod http;
mod idempotency;
pub mod journal_tools;
pub mod keyring;
pub mod log;
pub mod metrics;
mod openapi;
pub mod reading;
pub mod reconcile;
mod routes;
mod service;
mod session;
mod throttle;
pub mod trace;
pub mod up;
pub mod view;
mod webhook;
