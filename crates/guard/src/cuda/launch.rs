//! Launches of kernels and graphs: through the gate, unless the stream is only taking down what to do later.

use super::abi::{Code, Handle, LaunchConfig, PER_THREAD_STREAM, SUCCESS, UNKNOWN};
use super::flight::{Work, command};
use super::real;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuLaunchKernel", kernel as Entry),
    Hook("cuLaunchKernel_ptsz", kernel_per_thread as Entry),
    Hook("cuLaunchKernelEx", kernel_ex as Entry),
    Hook("cuLaunchKernelEx_ptsz", kernel_ex_per_thread as Entry),
    Hook("cuLaunchCooperativeKernel", cooperative as Entry),
    Hook("cuLaunchCooperativeKernel_ptsz", cooperative_per_thread as Entry),
    Hook("cuGraphLaunch", graph as Entry),
    Hook("cuGraphLaunch_ptsz", graph_per_thread as Entry),
];

/// A stream as our own calls name it: the variants for threads mean the thread's stream where others mean the default.
pub fn own(stream: Handle, per_thread: bool) -> Handle {
    match per_thread && stream.is_null() {
        true => PER_THREAD_STREAM as Handle,
        false => stream,
    }
}

/// Whether a stream takes down what it is given instead of doing it.
pub fn captures(stream: Handle) -> bool {
    // The default streams never do, and asking of them while another does is an error.
    if stream as usize <= 1 {
        return false;
    }
    let ask: unsafe extern "C" fn(Handle, *mut u32) -> Code = real!("cuStreamIsCapturing");
    let mut status = 0;
    // SAFETY: the caller's own stream, room for the answer.
    (unsafe { ask(stream, &mut status) }) == SUCCESS && status != 0
}

fn items(grid: [u32; 3], block: [u32; 3]) -> u64 {
    let sides = grid.into_iter().chain(block);
    sides.fold(1u64, |all, side| all.saturating_mul(u64::from(side.max(1))))
}

fn launch(stream: Handle, function: Handle, items: u64, next: impl FnOnce() -> Code) -> Code {
    if captures(stream) {
        return next();
    }
    command(stream, Work::Kernel(function as usize, items), next)
}

/// The hooks in two forms: for the default stream, and for the calling thread's.
macro_rules! in_two_forms {
    ($($kernel:ident $kernel_name:literal, $ex:ident $ex_name:literal, $cooperative:ident $cooperative_name:literal,
       $graph:ident $graph_name:literal, $per_thread:literal;)*) => {$(
        unsafe extern "C" fn $kernel(
            function: Handle,
            grid_x: u32, grid_y: u32, grid_z: u32,
            block_x: u32, block_y: u32, block_z: u32,
            shared: u32,
            stream: Handle,
            parameters: Handle,
            extra: Handle,
        ) -> Code {
            type Next = unsafe extern "C" fn(
                Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Handle, Handle,
            ) -> Code;
            let next: Next = real!($kernel_name);
            let items = items([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
            guarded!(UNKNOWN, launch(own(stream, $per_thread), function, items, || {
                // SAFETY: the caller's own arguments.
                unsafe {
                    next(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra)
                }
            }))
        }

        unsafe extern "C" fn $ex(
            config: *const LaunchConfig,
            function: Handle,
            parameters: Handle,
            extra: Handle,
        ) -> Code {
            type Next = unsafe extern "C" fn(*const LaunchConfig, Handle, Handle, Handle) -> Code;
            let next: Next = real!($ex_name);
            // SAFETY: the caller's own arguments.
            let next = || unsafe { next(config, function, parameters, extra) };
            guarded!(UNKNOWN, {
                if config.is_null() {
                    return next();
                }
                // SAFETY: not null, and the caller's own.
                let (stream, grid, block) = unsafe { ((*config).stream, (*config).grid, (*config).block) };
                launch(own(stream, $per_thread), function, items(grid, block), next)
            })
        }

        unsafe extern "C" fn $cooperative(
            function: Handle,
            grid_x: u32, grid_y: u32, grid_z: u32,
            block_x: u32, block_y: u32, block_z: u32,
            shared: u32,
            stream: Handle,
            parameters: Handle,
        ) -> Code {
            type Next =
                unsafe extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Handle) -> Code;
            let next: Next = real!($cooperative_name);
            let items = items([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
            guarded!(UNKNOWN, launch(own(stream, $per_thread), function, items, || {
                // SAFETY: the caller's own arguments.
                unsafe {
                    next(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters)
                }
            }))
        }

        unsafe extern "C" fn $graph(graph: Handle, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(Handle, Handle) -> Code = real!($graph_name);
            guarded!(UNKNOWN, launch(own(stream, $per_thread), graph, 1, || {
                // SAFETY: the caller's own arguments.
                unsafe { next(graph, stream) }
            }))
        }
    )*};
}

in_two_forms! {
    kernel "cuLaunchKernel", kernel_ex "cuLaunchKernelEx", cooperative "cuLaunchCooperativeKernel",
        graph "cuGraphLaunch", false;
    kernel_per_thread "cuLaunchKernel_ptsz", kernel_ex_per_thread "cuLaunchKernelEx_ptsz",
        cooperative_per_thread "cuLaunchCooperativeKernel_ptsz", graph_per_thread "cuGraphLaunch_ptsz", true;
}
