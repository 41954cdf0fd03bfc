//! The library that stands in front of a driver inside a process: OpenCL layer, CUDA front, Vulkan layer; thin
//! fronts over `limits`.
//!
//! It gives good behaviour and precise sharing; the guarantee is given outside the process, by kernel, driver or
//! broker. Deliberately absent: accounting (limits), the agent (linked in, our symbols would capture its calls).
//! Loaded by the driver's own loader. Nothing stands here yet.

#![deny(unsafe_op_in_unsafe_fn)]
