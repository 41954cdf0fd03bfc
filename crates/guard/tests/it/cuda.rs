//! The CUDA and NVML fronts over the double of the driver (`examples/cuda_double`): what each hooked call charges, what
//! passes untouched, how two slices share, and programs nobody here wrote.

pub mod address;
pub mod audit;
pub mod cu;
mod desk;
pub mod ipc;
pub mod limit;
pub mod memory;
pub mod missing;
pub mod nvml;
pub mod pass;
mod program;
pub mod share;
