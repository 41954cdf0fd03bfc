//! The control plane: `controller` (the only writer), `routes/`, `auth`, `reconcile`, `keyring`.
//!
//! Commands enter through routes or through what engines saw, are decided by `domain` inside the controller,
//! made durable by `journal`, then acknowledged and published. Deliberately absent: decisions (domain), SQL
//! (journal), sandboxes and devices (agent). Started by `tenure up`.

#![forbid(unsafe_code)]

pub mod controller;
pub mod keyring;
pub mod reconcile;
pub mod view;
