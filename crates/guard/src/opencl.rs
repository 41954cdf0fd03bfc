//! The OpenCL layer: the whole dispatch table, with hooks for memory, commands, information and whatever would pass
//! the guard by. Loaded by the OpenCL loader through `OPENCL_LAYERS`.

mod abi;
mod allocation;
mod batch;
mod bind;
mod buffer;
mod command;
mod context;
mod denied;
mod device;
mod enqueue;
mod event;
mod extension;
mod image;
mod kernel;
mod layer;
mod local;
mod map;
mod program;
mod queue;
mod svm;
mod zero;

pub(crate) use crate::guarded;

/// The next function behind this layer by its name, as a value of the function type expected.
macro_rules! next {
    ($name:literal) => {
        // SAFETY: the type at the call site is the one the OpenCL headers give this name.
        unsafe { crate::opencl::layer::next(const { crate::opencl::abi::place($name) }) }
    };
}
pub(crate) use next;
