//! The library a tenant's program sees instead of a driver: an OpenCL implementation whose every call goes over
//! `wire` to the slice's broker.
//!
//! Deliberately absent: any driver, any device node, any limit: nothing here is trusted, and a program that goes round
//! it only speaks to the broker itself. Loaded by the OpenCL loader; finds the broker's socket by
//! `TENURE_BROKER_SOCKET`, and shows no platform without it.
//!
//! # What is told when
//!
//! Objects are made, programs built and questions asked with an answer. Commands are sent without waiting; what a
//! driver would refuse at once is checked here where it can be (objects, ranges, sizes, the first launch of each
//! shape), and what the broker's driver refuses later shows in the command's event, and as the code of the next
//! `clFinish` or blocking read of that queue. When the broker dies, calls answer `CL_OUT_OF_RESOURCES`.
//!
//! # What is not there
//!
//! Shared virtual memory, pipes, sub-devices, device-side queues, native kernels, OpenGL, Direct3D and EGL sharing, mip
//! maps; none is advertised. A context's error callback is never called. Build callbacks are called before the
//! building function returns, destructor callbacks when the last reference is given up.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod absent;
mod bulk;
mod callback;
mod command;
mod context;
mod device;
mod event;
mod export;
mod image;
mod kernel;
mod link;
mod map;
mod memory;
mod object;
mod pending;
mod piece;
mod program;
mod queue;
mod sampler;
mod table;
mod transfer;
