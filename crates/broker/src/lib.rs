//! The worker process, one per brokered slice, that owns the driver with the guard in front of it.
//!
//! The tenant's program speaks to it over `wire` and never sees a driver, a device node or a mapped page; so the
//! wall stands outside the tenant's process on every vendor. Deliberately absent: scheduling, money, anything of
//! the control plane. Started by the agent. Nothing stands here yet.

#![deny(unsafe_op_in_unsafe_fn)]
