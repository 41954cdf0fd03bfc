//! A double of NVIDIA's driver, for tests: `libcuda_double.so` answers as `libcuda.so.1` and `libnvidia-ml.so.1` would
//! on a machine with `TENURE_CUDA_DOUBLE_DEVICES` devices (one) of `TENURE_CUDA_DOUBLE_MIB` each (8192).
//!
//! Memory is the host's and behaves as a device's does: it is dirty when it comes, runs out, is kept back by pools
//! until something waits, and lives while a handle or a mapping of it does. Streams work in order and beside one
//! another, events measure, streams can be captured into graphs. Kernels are those of `kernel.rs`, by name.
//!
//! Deliberately absent: compiling, images and textures beyond arrays, the default stream's waiting for others,
//! whatever checks that this is NVIDIA's driver, and any limit or share: those are the front's to give.

#![allow(non_snake_case)]

mod address;
mod array;
mod context;
mod export;
mod kernel;
mod linear;
mod nvml;
mod pool;
mod store;
mod stream;
mod vmm;
