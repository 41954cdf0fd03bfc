//! The small library a tenant's program sees instead of a driver; it passes calls over `wire` to the broker.
//!
//! Deliberately absent: any driver, any device node, any limit: nothing here is trusted. Nothing stands here yet.

#![deny(unsafe_op_in_unsafe_fn)]
