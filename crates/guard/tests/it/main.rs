//! The OpenCL layer on real OpenCL implementations: PoCL always, Intel's CPU runtime and rusticl where
//! `scripts/setup-devices` has put them; the CUDA front on a double of the driver; the
//! Vulkan layer on lavapipe; and programs nobody here wrote.

// `call!` exists to call C functions on values the tests made.
#![allow(clippy::macro_metavars_in_unsafe)]

mod audit;
mod bench;
mod cl;
mod contain;
mod cost;
mod cuda;
mod deny;
mod info;
mod memory;
mod program;
mod queue;
mod share;
mod vendor;
mod vulkan;
mod worker;
