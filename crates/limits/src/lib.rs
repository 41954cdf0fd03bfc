//! Accounting and arbitration for one device: VRAM ledger, compute lease, token bucket, liveness, in a mapped page
//! that the agent makes and the guards of several processes share.
//!
//! Deliberately absent: any vendor's API types, any driver call, any policy: limits arrive as numbers. This is the
//! only place where agent and guard meet. Nothing stands here yet.

#![deny(unsafe_op_in_unsafe_fn)]
