//! The Vulkan layer on lavapipe, Mesa's Vulkan on the processor: what programs see, what they may allocate, how two
//! slices share; with vulkaninfo and wgpu, which nobody here wrote.

pub mod audit;
mod desk;
pub mod memory;
mod program;
pub mod share;
pub mod vk;
