//! The ring and the messages between a tenant's program and its broker.
//!
//! Each side treats what the other wrote as hostile. Deliberately absent: any vendor's API types, any meaning of
//! the calls that travel here. Used by `remote` on the tenant's side and `broker` on the other. Nothing stands here yet.

#![deny(unsafe_op_in_unsafe_fn)]
